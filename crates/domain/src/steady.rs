//! One clock that only moves forward, at the pace of real time.
//!
//! Two sources are read. The *reference* is the time of day: the machine's clock, or the database's
//! in a cluster. People and NTP set it, so it jumps. The *elapsed time* since the machine was
//! started cannot be set, and counts while the machine sleeps. All times in Postrider come from
//! this clock: it starts at the reference and advances with the elapsed time.
//!
//! - A difference of up to a second between the two is corrected gradually, by half a millisecond
//!   per second.
//! - A larger one is a [`Step`]: the reference was set. It is reported, and the clock does not
//!   follow it: from then on the clock stays `ahead_ms` ahead of the reference (or behind, if
//!   negative).
//!
//! So a reference that is set back costs no slot, and one that jumps ahead makes no attempt early.
//! After a restart [`Steady::start`] continues from the clock of the previous process.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// A difference larger than this means that the reference was set.
const STEP_US: i64 = 1_000_000;
/// Smaller differences are corrected by one microsecond in this many.
const SLEW_EVERY_US: i64 = 2_000;

/// A reading of both sources at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The boot of the machine from which the elapsed time counts, if known.
    pub boot: Option<String>,
    /// The elapsed time.
    pub elapsed: Duration,
    /// The time of day.
    pub reference: Timestamp,
}

/// The clock's state, saved for the next process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// The time of the clock.
    pub at: Timestamp,
    /// How far the clock was ahead of the reference.
    pub ahead_ms: i64,
    /// The boot of the machine from which the elapsed time counts.
    pub boot: Option<String>,
    /// The elapsed time at the moment `at`.
    pub elapsed_us: i64,
}

/// A step of the reference: somebody set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// When it was noticed, by this clock, which does not step.
    pub at: Timestamp,
    /// By how much it was set: forward if positive, back if negative.
    pub by_ms: i64,
    /// How far this clock is ahead of the reference from now on.
    pub ahead_ms: i64,
}

/// The clock. The caller passes the readings of the sources; the clock reads nothing itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steady {
    /// The clock's time at `base_elapsed_us`, in microseconds since the epoch.
    base_us: i64,
    base_elapsed_us: i64,
    /// The remaining difference to the reference that is being corrected.
    slew_us: i64,
    ahead_us: i64,
}

impl Steady {
    /// A clock that continues from `saved` and is never earlier than `newest`, the newest time in
    /// the store. The returned step is one that happened between the two processes.
    ///
    /// If the machine was not rebooted, the elapsed time gives the exact length of the pause,
    /// whatever happened to the reference. After a reboot the reference is used, but the clock
    /// never goes back.
    pub fn start(
        saved: Option<&Saved>,
        newest: Option<Timestamp>,
        reading: &Reading,
    ) -> (Steady, Option<Step>) {
        let (reference_us, elapsed_us) = (micros(reading.reference), elapsed_us(reading.elapsed));
        let newest_us = newest.map_or(i64::MIN, micros);
        let (ahead_us, base_us) = match saved {
            None => (0, reference_us),
            Some(saved) => {
                let ahead_us = saved.ahead_ms.saturating_mul(1000);
                let is_same_boot = saved.boot.is_some() && saved.boot == reading.boot;
                let passed_us = elapsed_us.saturating_sub(saved.elapsed_us);
                if is_same_boot && passed_us >= 0 {
                    (ahead_us, micros(saved.at).saturating_add(passed_us))
                } else {
                    (ahead_us, micros(saved.at).max(reference_us.saturating_add(ahead_us)))
                }
            }
        };
        let base_us = base_us.max(newest_us);
        let mut clock = Steady { base_us, base_elapsed_us: elapsed_us, slew_us: 0, ahead_us };
        let step = clock.compare(reading.elapsed, reading.reference);
        (clock, step)
    }

    /// The current time.
    pub fn now(&self, elapsed: Duration) -> Timestamp {
        Timestamp::from_unix_ms(self.now_us(elapsed_us(elapsed)).div_euclid(1000))
    }

    /// How far the clock is ahead of the reference, in milliseconds; negative if it is behind.
    pub const fn ahead_ms(&self) -> i64 {
        self.ahead_us.div_euclid(1000)
    }

    /// Compares the clock with the reference. Each step is returned once.
    pub fn compare(&mut self, elapsed: Duration, reference: Timestamp) -> Option<Step> {
        self.rebase(elapsed_us(elapsed));
        let expected_us = micros(reference).saturating_add(self.ahead_us);
        let off_us = expected_us.saturating_sub(self.base_us);
        if off_us.saturating_abs() <= STEP_US {
            self.slew_us = off_us;
            return None;
        }
        self.ahead_us = self.ahead_us.saturating_sub(off_us);
        self.slew_us = 0;
        let (by_ms, ahead_ms) = (off_us.div_euclid(1000), self.ahead_ms());
        Some(Step { at: self.now(elapsed), by_ms, ahead_ms })
    }

    /// Moves forward to a clock that is `ahead_ms` ahead of the same reference: this machine was
    /// suspended while others were not. Returns by how many milliseconds; never goes back.
    pub fn catch_up(&mut self, elapsed: Duration, ahead_ms: i64) -> i64 {
        let by_us = ahead_ms.saturating_mul(1000).saturating_sub(self.ahead_us).max(0);
        self.rebase(elapsed_us(elapsed));
        self.base_us = self.base_us.saturating_add(by_us);
        self.ahead_us = self.ahead_us.saturating_add(by_us);
        by_us / 1000
    }

    /// The state that the next process needs to continue.
    pub fn save(&self, boot: Option<String>, elapsed: Duration) -> Saved {
        let elapsed_us = elapsed_us(elapsed);
        let now_us = self.now_us(elapsed_us);
        // The moment at which the clock reached the whole millisecond.
        let elapsed_us = elapsed_us.saturating_sub(now_us.rem_euclid(1000));
        Saved { at: self.now(elapsed), ahead_ms: self.ahead_ms(), boot, elapsed_us }
    }

    fn now_us(&self, elapsed_us: i64) -> i64 {
        let passed = elapsed_us.saturating_sub(self.base_elapsed_us).max(0);
        let reach = passed / SLEW_EVERY_US;
        self.base_us.saturating_add(passed).saturating_add(self.slew_us.clamp(-reach, reach))
    }

    fn rebase(&mut self, elapsed_us: i64) {
        self.base_us = self.now_us(elapsed_us);
        self.base_elapsed_us = self.base_elapsed_us.max(elapsed_us);
        self.slew_us = 0;
    }
}

fn micros(at: Timestamp) -> i64 {
    at.as_unix_ms().saturating_mul(1000)
}

fn elapsed_us(elapsed: Duration) -> i64 {
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);
    const HOUR: i64 = 3_600_000;

    /// Simulated sources: real time, and a reference that can be set.
    struct Bench {
        real_ms: i64,
        skew_ms: i64,
        boot: u32,
        booted_at: i64,
        clock: Steady,
        saved: Option<Saved>,
        steps: Vec<i64>,
    }

    impl Bench {
        fn new() -> Self {
            let reading = Reading { boot: None, elapsed: Duration::ZERO, reference: START };
            let (clock, step) = Steady::start(None, None, &reading);
            assert_eq!(step, None);
            let (real_ms, booted_at) = (0, 0);
            Bench { real_ms, skew_ms: 0, boot: 1, booted_at, clock, saved: None, steps: Vec::new() }
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis((self.real_ms - self.booted_at).unsigned_abs())
        }

        fn reference(&self) -> Timestamp {
            START.moved_ms(self.real_ms + self.skew_ms)
        }

        /// How far the clock is off from real time.
        fn off(&self) -> i64 {
            self.clock.now(self.elapsed()).ms_from(START.moved_ms(self.real_ms))
        }

        fn input(&mut self, word: &str) {
            match word.split_at_checked(1) {
                Some(("+", ms)) => self.real_ms += number(ms),
                Some(("~", ms)) => self.skew_ms += number(ms),
                Some(("c", "rash")) => self.restart(),
                Some(("r", "eboot")) => {
                    (self.boot, self.booted_at) = (self.boot + 1, self.real_ms);
                    self.restart();
                }
                Some(("l", "ook")) => {
                    let step = self.clock.compare(self.elapsed(), self.reference());
                    self.steps.extend(step.map(|step| step.by_ms));
                }
                Some(("s", "ave")) => {
                    let boot = Some(self.boot.to_string());
                    self.saved = Some(self.clock.save(boot, self.elapsed()));
                }
                _ => panic!("what is {word}?"),
            }
        }

        fn restart(&mut self) {
            let boot = Some(self.boot.to_string());
            let reading = Reading { boot, elapsed: self.elapsed(), reference: self.reference() };
            let (clock, step) = Steady::start(self.saved.as_ref(), None, &reading);
            self.clock = clock;
            self.steps.extend(step.map(|step| step.by_ms));
        }
    }

    fn number(text: &str) -> i64 {
        match text.strip_suffix('h') {
            Some(hours) => hours.parse::<i64>().unwrap() * HOUR,
            None => text.parse().unwrap(),
        }
    }

    /// `+n` advances n milliseconds (hours with an `h`), `~n` sets the reference by n, `look`
    /// compares, `save` saves, `crash` and `reboot` restart. `off` is the expected error of the
    /// clock at the end.
    #[track_caller]
    fn check(inputs: &str, off: i64, steps: &[i64]) {
        let mut bench = Bench::new();
        inputs.split_whitespace().for_each(|word| bench.input(word));
        assert_eq!((bench.off(), &bench.steps[..]), (off, steps), "{inputs}");
    }

    #[test]
    fn step_of_the_reference_is_reported_and_not_followed() {
        check("+5h ~-49h look +1h look", 0, &[-49 * HOUR]);
        check("+5h ~49h look +1h look", 0, &[49 * HOUR]);
        check("~-2000 look ~2000 look +1h look", 0, &[-2000, 2000]);
        check("~1001 look", 0, &[1001]);
        check("~876000h look +1 look ~-876000h look", 0, &[876_000 * HOUR, -876_000 * HOUR]);
    }

    #[test]
    fn small_difference_is_corrected_by_half_a_millisecond_per_second() {
        check("~1000 look", 0, &[]);
        check("~1000 look +1000", 0, &[]);
        check("~1000 look +2000", 1, &[]);
        check("~1000 look +1000000", 500, &[]);
        check("~1000 look +1000000 look +1000000 look +1h look", 1000, &[]);
        check("~-1000 look +1000000", -500, &[]);
        check("~-1000 look +1h look +1h look", -1000, &[]);
    }

    #[test]
    fn clock_continues_after_a_restart_even_if_the_reference_was_set() {
        check("+1h save +1h crash +1h", 0, &[]);
        check("+1h save +1h ~-30h crash +1h look", 0, &[-30 * HOUR]);
        check("+1h save +1h ~30h crash +1h look", 0, &[30 * HOUR]);
        check("~-30h look +1h save +1h crash +1h look", 0, &[-30 * HOUR]);
        check("~30h look save +1h ~-5h crash look", 0, &[30 * HOUR, -5 * HOUR]);
        // A step that was not noticed before the crash is noticed after it.
        check("+1h save ~30h +1h crash", 0, &[30 * HOUR]);
    }

    #[test]
    fn after_a_reboot_the_reference_is_believed_but_never_back() {
        check("+1h save +1h reboot +1h", 0, &[]);
        check("~-30h look +1h save +1h reboot +1h look", 0, &[-30 * HOUR]);
        check("~30h look +1h save +1h reboot +1h look", 0, &[30 * HOUR]);
        // The reference was set back during the downtime: the clock continues from the saved time,
        // and loses only the downtime.
        check("+1h save +1h ~-30h reboot look", -HOUR, &[-29 * HOUR]);
        // Without a saved state there is only the reference.
        check("+1h ~-30h crash", -30 * HOUR, &[]);
    }

    #[test]
    fn clock_never_starts_before_the_newest_stored_time() {
        let reading = Reading { boot: None, elapsed: Duration::ZERO, reference: START };
        let newest = START.moved_ms(HOUR);
        let (clock, step) = Steady::start(None, Some(newest), &reading);
        assert_eq!(clock.now(Duration::ZERO), newest);
        assert_eq!(step, Some(Step { at: newest, by_ms: -HOUR, ahead_ms: HOUR }));
    }

    #[test]
    fn a_machine_that_stood_still_catches_up_and_never_goes_back() {
        let mut bench = Bench::new();
        assert_eq!(bench.clock.catch_up(Duration::ZERO, 5_000), 5_000);
        assert_eq!(bench.off(), 5_000);
        assert_eq!(bench.clock.catch_up(Duration::ZERO, 4_000), 0);
        assert_eq!((bench.off(), bench.clock.ahead_ms()), (5_000, 5_000));
    }

    #[test]
    fn saved_state_round_trips_through_json() {
        let mut bench = Bench::new();
        "+1h ~-30h look +7 save".split_whitespace().for_each(|word| bench.input(word));
        let saved = bench.saved.unwrap();
        let json = serde_json::to_string(&saved).unwrap();
        assert_eq!(serde_json::from_str::<Saved>(&json).unwrap(), saved, "{json}");
    }

    proptest! {
        #[test]
        fn clock_never_goes_back_and_ignores_steps(
            words in proptest::collection::vec(
                prop_oneof![
                    (0_i64..100_000).prop_map(|ms| format!("+{ms}")),
                    (2_000_i64..10_000_000_000).prop_map(|ms| format!("~{ms}")),
                    (2_000_i64..10_000_000_000).prop_map(|ms| format!("~-{ms}")),
                    Just("look".to_owned()),
                    Just("save".to_owned()),
                    Just("crash".to_owned()),
                ],
                1..60,
            ),
        ) {
            let mut bench = Bench::new();
            bench.input("save");
            let mut before = START;
            for word in words {
                bench.input(&word);
                let now = bench.clock.now(bench.elapsed());
                prop_assert!(now >= before, "{} after {}", now, before);
                before = now;
                // Two steps may add up to a difference that is small enough to be corrected.
                if bench.clock.slew_us == 0 {
                    let slewed = bench.off().unsigned_abs();
                    prop_assert!(slewed <= 1_000, "{} ms off", slewed);
                }
            }
        }
    }
}
