//! How much at a time: attempts in flight at a destination, and requests per second.
//!
//! An adaptive limit grows by one for each round of quick answers that used all of it, and halves
//! on each timeout or refusal. A bucket never gives more than its rate allows in the long run.

use postrider_domain::time::Timestamp;

/// How many attempts may be in flight at a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdaptiveLimit {
    limit: u32,
    max: u32,
    /// Quick answers since the limit last changed and was felt.
    quick: u32,
    /// Whether more would have been sent but for the limit.
    felt: bool,
    /// Whether the last answer was a quick one.
    proven: bool,
}

/// What an attempt taught about how much a destination takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It answered quickly.
    Quick,
    /// It answered.
    Slow,
    /// It timed out, refused, or asked for less.
    Strained,
    /// Nothing.
    Unknown,
}

impl AdaptiveLimit {
    pub(crate) fn new(start: u32, max: u32) -> Self {
        let max = max.max(1);
        AdaptiveLimit { limit: start.clamp(1, max), max, quick: 0, felt: false, proven: false }
    }

    /// The limit, while there is enough for all; under `pressure` a destination that has not just
    /// answered quickly gets one.
    pub(crate) fn get(&self, pressure: bool) -> u32 {
        if pressure && !self.proven { 1 } else { self.limit }
    }

    /// More would have been sent but for the limit.
    pub(crate) fn feel(&mut self) {
        self.felt = true;
    }

    /// An attempt ended.
    pub(crate) fn learn(&mut self, pace: Pace) {
        match pace {
            Pace::Quick => {
                self.proven = true;
                // Only a limit that is felt needs to grow.
                self.quick += u32::from(self.felt);
                if self.quick >= self.limit && self.limit < self.max {
                    self.limit += 1;
                    (self.quick, self.felt) = (0, false);
                }
            }
            Pace::Slow => self.quick = 0,
            Pace::Strained => {
                self.limit = (self.limit / 2).max(1);
                self.quick = 0;
                self.proven = false;
            }
            Pace::Unknown => {}
        }
    }
}

/// Gives out tokens at a rate, and some more at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    /// Tokens in a thousand seconds: one token is a million of what is kept in `level`.
    per_1000_seconds: u64,
    burst: u64,
    level: u64,
    filled_at: Timestamp,
}

/// A token, in the unit in which one millisecond adds `per_1000_seconds`.
const TOKEN: u64 = 1_000_000;

impl TokenBucket {
    pub(crate) fn new(per_1000_seconds: u64, burst: u64, now: Timestamp) -> Self {
        let burst = burst.max(1);
        let level = burst.saturating_mul(TOKEN);
        TokenBucket { per_1000_seconds: per_1000_seconds.max(1), burst, level, filled_at: now }
    }

    /// Takes tokens, or says when there will be enough. More than fit are given when it is full,
    /// and owed: the next ones wait the longer.
    pub(crate) fn take(&mut self, tokens: u64, now: Timestamp) -> Result<(), Timestamp> {
        self.fill(now);
        let needed = tokens.min(self.burst).saturating_mul(TOKEN);
        if self.level >= needed {
            self.level -= needed;
            return Ok(());
        }
        let ms = (needed - self.level).div_ceil(self.per_1000_seconds);
        Err(now.saturating_add(std::time::Duration::from_millis(ms)))
    }

    /// When there will be one; `None` where there is one now.
    pub(crate) fn ready_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut copy = *self;
        let ready = copy.take(1, now).err();
        self.fill(now);
        ready
    }

    pub(crate) fn is_full(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.level == self.burst.saturating_mul(TOKEN)
    }

    pub(crate) fn per_1000_seconds(&self) -> u64 {
        self.per_1000_seconds
    }

    fn fill(&mut self, now: Timestamp) {
        let ms = u64::try_from(now.since(self.filled_at).as_millis()).unwrap_or(u64::MAX);
        let more = ms.saturating_mul(self.per_1000_seconds);
        self.level = self.level.saturating_add(more).min(self.burst.saturating_mul(TOKEN));
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_limit_grows_while_it_is_felt_and_answers_are_quick() {
        let mut limit = AdaptiveLimit::new(8, 64);
        for _ in 0..1000 {
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 8, "a limit that is not felt does not grow");
        limit.feel();
        for _ in 0..7 {
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 8);
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(false), 9);
        for _ in 0..10_000 {
            limit.feel();
            limit.learn(Pace::Quick);
        }
        assert_eq!(limit.get(false), 64);
    }

    #[test]
    fn a_limit_halves_on_each_strain_and_never_ends() {
        let mut limit = AdaptiveLimit::new(64, 64);
        for expected in [32, 16, 8, 4, 2, 1, 1, 1] {
            limit.learn(Pace::Strained);
            assert_eq!(limit.get(false), expected);
        }
        limit.learn(Pace::Slow);
        limit.learn(Pace::Unknown);
        assert_eq!(limit.get(false), 1);
        limit.feel();
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(false), 2);
    }

    #[test]
    fn under_pressure_only_those_that_answer_quickly_get_more_than_one() {
        let mut limit = AdaptiveLimit::new(8, 64);
        assert_eq!((limit.get(false), limit.get(true)), (8, 1));
        limit.learn(Pace::Quick);
        assert_eq!(limit.get(true), 8);
        limit.learn(Pace::Strained);
        assert_eq!(limit.get(true), 1);
    }

    #[test]
    fn a_bucket_keeps_its_rate_to_the_millisecond() {
        for (per_1000_seconds, burst, seconds, expected) in [
            (5_000, 1, 10, 51),
            (1, 1, 1_000, 2),
            (33_333, 3, 100, 3_336),
            (1_000_000, 10, 3, 3_010),
        ] {
            let mut now = Timestamp::EPOCH;
            let end = now.saturating_add(Duration::from_secs(seconds));
            let mut bucket = TokenBucket::new(per_1000_seconds, burst, now);
            let mut given = 0;
            while now <= end {
                match bucket.take(1, now) {
                    Ok(()) => given += 1,
                    Err(at) => {
                        assert!(at > now);
                        assert_eq!(bucket.ready_at(now), Some(at));
                        now = at;
                    }
                }
            }
            assert_eq!(given, expected, "{per_1000_seconds} in 1000 s, burst {burst}");
        }
    }

    #[test]
    fn more_than_a_burst_is_given_when_the_bucket_is_full() {
        let mut now = Timestamp::EPOCH;
        let mut bucket = TokenBucket::new(10_000, 5, now);
        assert!(bucket.is_full(now));
        assert_eq!(bucket.take(100, now), Ok(()));
        assert!(!bucket.is_full(now));
        now = bucket.take(1, now).unwrap_err();
        assert_eq!(now, Timestamp::from_unix_ms(100));
    }
}
