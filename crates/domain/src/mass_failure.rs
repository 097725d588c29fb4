//! The mass-failure guard: when many destinations begin to fail at once, the fault is probably our own.
//!
//! When, of at least 20 destinations attempted within a minute, more than half begin to fail (they
//! did not fail in the minute before), transitions to disabled and frozen are suspended and the
//! operator is alerted. A single bad URL never triggers this: it is one destination, however often
//! it fails. The suspension ends when no more than half of the attempted destinations
//! still fail, and in any case after [`crate::policy::MassFailurePolicy::hold_max`], so that an
//! outage that is not ours cannot switch the circuits off for ever.
//!
//! When the destinations have recovered after a suspension (no more than half of that share still fails),
//! their failures are dropped here, as in their circuits. If most of them fail again a few seconds
//! later, they count as not having failed "in the minute before", so a new suspension begins. Such a
//! relapse within two windows belongs to the same outage, and `hold_max` counts from the beginning
//! of that outage.
//!
//! The window is divided into six ticks. For each destination attempted in the last two windows a
//! few bits are kept, so memory is bounded by the number of active destinations.

use std::collections::HashMap;
use std::time::Duration;

use crate::circuit::Suspension;
use crate::ids::DestinationId;
use crate::policy::MassFailurePolicy;
use crate::time::Timestamp;

/// Ticks per window.
const TICKS: u32 = 6;
/// The ticks of the current window as a bit mask, the newest in bit 0.
const CURRENT: u16 = 0b0000_0011_1111;
/// The ticks of the window before the current one, as a bit mask.
const BEFORE: u16 = 0b1111_1100_0000;

/// Watches all destinations of this process.
#[derive(Debug, Clone)]
pub struct MassFailureGuard {
    policy: MassFailurePolicy,
    tick: i64,
    recent: HashMap<DestinationId, Recent>,
    attempted: usize,
    failing: usize,
    newly_failing: usize,
    suspended_since: Option<Timestamp>,
    /// When the last suspension began and ended.
    last_suspension: Option<(Timestamp, Timestamp)>,
    /// Whether the destinations have not recovered from the last suspension yet.
    is_recovering: bool,
}

/// A destination's attempts and failures in the last two windows, one bit per tick.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    attempted: u16,
    failed: u16,
    last_failed: bool,
}

/// The beginning or end of a suspension, for the operator's alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspensionChange {
    /// Whether transitions are suspended from now on.
    pub suspension: Suspension,
    /// Destinations attempted within the window.
    pub attempted: usize,
    /// The attempted destinations whose last attempt failed.
    pub failing: usize,
}

impl Recent {
    fn is_attempted(self) -> bool {
        self.attempted & CURRENT != 0
    }

    fn is_failing(self) -> bool {
        self.is_attempted() && self.last_failed
    }

    fn is_newly_failing(self) -> bool {
        self.is_failing() && self.failed & BEFORE == 0
    }
}

impl MassFailureGuard {
    /// A guard that has seen nothing yet.
    pub fn new(policy: MassFailurePolicy) -> Self {
        MassFailureGuard {
            policy,
            tick: i64::MIN,
            recent: HashMap::new(),
            attempted: 0,
            failing: 0,
            newly_failing: 0,
            suspended_since: None,
            last_suspension: None,
            is_recovering: false,
        }
    }

    /// Whether transitions are suspended now.
    pub fn suspension(&self) -> Suspension {
        if self.suspended_since.is_some() { Suspension::On } else { Suspension::Off }
    }

    /// Since when transitions are suspended; `None` if they are not.
    pub fn suspended_since(&self) -> Option<Timestamp> {
        self.suspended_since
    }

    /// Takes in a settled attempt. Pass faults of our own as failures: they are
    /// what the guard looks for.
    pub fn record(
        &mut self,
        destination: DestinationId,
        failed: bool,
        now: Timestamp,
    ) -> Option<SuspensionChange> {
        self.advance(now);
        let recent = self.recent.entry(destination).or_default();
        let before = *recent;
        recent.attempted |= 1;
        recent.failed |= u16::from(failed);
        recent.last_failed = failed;
        let after = *recent;
        self.recount(before, after);
        self.notice_recovery();
        self.judge(now)
    }

    /// Advances the time: a suspension also ends when nothing is attempted any more.
    pub fn tick(&mut self, now: Timestamp) -> Option<SuspensionChange> {
        self.advance(now);
        self.judge(now)
    }

    fn recount(&mut self, before: Recent, after: Recent) {
        let step = |count: &mut usize, was: bool, is: bool| match (was, is) {
            (false, true) => *count += 1,
            (true, false) => *count -= 1,
            (true, true) | (false, false) => {}
        };
        step(&mut self.attempted, before.is_attempted(), after.is_attempted());
        step(&mut self.failing, before.is_failing(), after.is_failing());
        step(&mut self.newly_failing, before.is_newly_failing(), after.is_newly_failing());
    }

    /// Shifts every destination's bits to the current tick, and forgets destinations without any
    /// bits.
    fn advance(&mut self, now: Timestamp) {
        let tick = now.as_unix_ms().div_euclid(tick_ms(self.policy.window));
        // If the clock goes back a little, nothing changes.
        let passed = u32::try_from(tick.saturating_sub(self.tick)).unwrap_or(if tick > self.tick {
            u32::MAX
        } else {
            0
        });
        if passed == 0 {
            return;
        }
        self.tick = tick;
        let shift = |bits: u16| bits.checked_shl(passed).unwrap_or(0) & (CURRENT | BEFORE);
        (self.attempted, self.failing, self.newly_failing) = (0, 0, 0);
        self.recent.retain(|_, recent| {
            recent.attempted = shift(recent.attempted);
            recent.failed = shift(recent.failed);
            self.attempted += usize::from(recent.is_attempted());
            self.failing += usize::from(recent.is_failing());
            self.newly_failing += usize::from(recent.is_newly_failing());
            recent.attempted != 0
        });
    }

    fn judge(&mut self, now: Timestamp) -> Option<SuspensionChange> {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let most = |part| self.policy.share.is_exceeded_by(count(part), count(self.attempted));
        let suspension = match self.suspended_since {
            None if self.attempted >= self.policy.destinations_min && most(self.newly_failing) => {
                self.suspended_since = Some(self.outage_began(now));
                Suspension::On
            }
            Some(since) if now.since(since) >= self.policy.hold_max => {
                (self.suspended_since, self.last_suspension) = (None, None);
                self.rewrite_failures(|failed| failed | BEFORE);
                Suspension::Off
            }
            Some(since) if !most(self.failing) => {
                (self.suspended_since, self.last_suspension) = (None, Some((since, now)));
                self.is_recovering = true;
                self.notice_recovery();
                Suspension::Off
            }
            None | Some(_) => return None,
        };
        Some(SuspensionChange { suspension, attempted: self.attempted, failing: self.failing })
    }
}

impl MassFailureGuard {
    /// The beginning of the outage that causes a suspension. If an earlier suspension ended within the last two
    /// windows, it is the beginning of that one's outage.
    fn outage_began(&self, now: Timestamp) -> Timestamp {
        match self.last_suspension {
            Some((began, ended)) if now.since(ended) < self.policy.window * 2 => began,
            Some(_) | None => now,
        }
    }

    /// Drops the failures of the last suspension once the destinations have recovered. Destinations that
    /// fail in turns, about half of them at any time, never recover in this sense: their failures
    /// are not new.
    fn notice_recovery(&mut self) {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        let still =
            self.policy.share.is_exceeded_by(count(self.failing * 2), count(self.attempted));
        if self.is_recovering && self.suspended_since.is_none() && !still {
            self.is_recovering = false;
            self.rewrite_failures(|_| 0);
        }
    }

    /// Rewrites the failure bits after a suspension: failures are dropped or, if it lasted too long,
    /// count as old.
    fn rewrite_failures(&mut self, rewrite: impl Fn(u16) -> u16) {
        for recent in self.recent.values_mut() {
            recent.failed = rewrite(recent.failed);
        }
        let newly = self.recent.values().filter(|recent| recent.is_newly_failing()).count();
        self.newly_failing = newly;
    }
}

fn tick_ms(window: Duration) -> i64 {
    i64::try_from((window / TICKS).as_millis()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TenantId;

    const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

    fn destination(n: u32) -> DestinationId {
        DestinationId::of(&TenantId::default_tenant(), &n.to_string())
    }

    fn at(seconds: u64) -> Timestamp {
        START.saturating_add(Duration::from_secs(seconds))
    }

    /// Attempts `failed` destinations that fail and then `ok` others that do not.
    fn round(guard: &mut MassFailureGuard, failed: u32, ok: u32, now: Timestamp) -> Suspension {
        for n in 0..failed + ok {
            guard.record(destination(n), n < failed, now);
        }
        guard.suspension()
    }

    fn guard() -> MassFailureGuard {
        MassFailureGuard::new(MassFailurePolicy::default())
    }

    #[test]
    fn transitions_are_suspended_when_more_than_half_of_twenty_begin_to_fail_together() {
        for (failed, ok, suspension) in [
            (20, 0, Suspension::On),
            (11, 9, Suspension::On),
            (10, 10, Suspension::Off),
            (19, 0, Suspension::Off),
            (100, 101, Suspension::Off),
            (101, 100, Suspension::On),
        ] {
            let mut guard = guard();
            // The healthy destinations are attempted first, so that the order does not matter.
            for n in failed..failed + ok {
                guard.record(destination(n), false, START);
            }
            assert_eq!(
                round(&mut guard, failed, ok, START),
                suspension,
                "{failed} of {}",
                failed + ok
            );
        }
    }

    #[test]
    fn a_single_bad_url_never_triggers_it() {
        let mut guard = guard();
        for second in 0..600 {
            for _ in 0..100 {
                guard.record(destination(0), true, at(second));
            }
            assert_eq!(round(&mut guard, 1, 1, at(second)), Suspension::Off);
        }
    }

    #[test]
    fn destinations_that_failed_in_the_minute_before_do_not_trigger_it() {
        let mut guard = guard();
        // The destinations began to fail one by one, over many minutes.
        for n in 0..30 {
            let now = at(u64::from(n) * 60);
            assert_eq!(round(&mut guard, n, 30 - n, now), Suspension::Off, "{n} of 30");
            assert_eq!(guard.tick(now), None);
        }
        assert_eq!(round(&mut guard, 30, 0, at(30 * 60 + 5)), Suspension::Off);
    }

    #[test]
    fn suspension_lasts_while_most_still_fail_and_ends_when_they_recover() {
        let mut guard = guard();
        assert_eq!(round(&mut guard, 0, 40, START), Suspension::Off);
        assert_eq!(round(&mut guard, 40, 0, at(10)), Suspension::On);
        for minute in 1..30 {
            assert_eq!(round(&mut guard, 40, 0, at(10 + minute * 60)), Suspension::On);
        }
        let mut changes = Vec::new();
        for n in 0..40 {
            changes.extend(guard.record(destination(n), false, at(30 * 60)));
        }
        assert_eq!(
            changes,
            [SuspensionChange { suspension: Suspension::Off, attempted: 40, failing: 20 }]
        );
    }

    #[test]
    fn suspension_ends_after_an_hour_or_when_nothing_is_attempted() {
        let mut guard = guard();
        round(&mut guard, 40, 0, START);
        for minute in 1..60 {
            assert_eq!(round(&mut guard, 40, 0, at(minute * 60)), Suspension::On);
        }
        assert_eq!(round(&mut guard, 40, 0, at(60 * 60)), Suspension::Off);
        assert_eq!(round(&mut guard, 40, 0, at(61 * 60)), Suspension::Off, "it is no news now");

        let mut guard = MassFailureGuard::new(MassFailurePolicy::default());
        round(&mut guard, 40, 0, START);
        let change = guard.tick(at(120));
        assert_eq!(
            change,
            Some(SuspensionChange { suspension: Suspension::Off, attempted: 0, failing: 0 })
        );
    }

    #[test]
    fn relapse_within_two_windows_is_the_same_outage() {
        let mut guard = guard();
        round(&mut guard, 0, 40, START);
        assert_eq!(round(&mut guard, 40, 0, at(10)), Suspension::On);
        assert_eq!(round(&mut guard, 0, 40, at(100)), Suspension::Off);
        assert_eq!(round(&mut guard, 40, 0, at(110)), Suspension::On, "seconds later");
        // Failing and recovering every 20 s: `hold_max` counts from the first failure.
        for step in 0..200 {
            let now = 120 + step * 20;
            assert_eq!(round(&mut guard, 0, 40, at(now)), Suspension::Off, "at {now}");
            let expected = if now < 3_600 { Suspension::On } else { Suspension::Off };
            assert_eq!(round(&mut guard, 40, 0, at(now + 10)), expected, "at {now}");
        }
    }

    #[test]
    fn destinations_that_fail_in_turns_are_not_held_for_ever() {
        let mut guard = guard();
        round(&mut guard, 0, 40, START);
        assert_eq!(round(&mut guard, 40, 0, at(10)), Suspension::On);
        let (mut suspended, mut dice) = (0, 1_u64);
        for second in 100..8_000 {
            for _ in 0..20 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (n, failed) = ((dice >> 40) % 40, dice >> 63 == 0);
                guard.record(destination(u32::try_from(n).unwrap()), failed, at(second));
            }
            suspended += u32::from(guard.suspension() == Suspension::On);
        }
        assert!(suspended < 3_700, "suspended for {suspended} s");
    }

    #[test]
    fn memory_is_bounded_by_what_was_active_in_two_minutes() {
        let mut guard = guard();
        for n in 0..10_000 {
            guard.record(destination(n), n % 2 == 0, at(u64::from(n)));
        }
        assert!(guard.recent.len() <= 130, "{} destinations are remembered", guard.recent.len());
        guard.tick(Timestamp::MAX);
        assert_eq!(guard.recent.len(), 0);
        guard.record(destination(1), true, START);
        assert_eq!(guard.recent.len(), 1, "a clock that went back does no harm");
    }
}
