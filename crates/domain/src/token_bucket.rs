//! Token buckets: how many requests or attempts a rate allows.
//!
//! **A bucket never gives more than its rate and one burst allow**, however it is asked.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::time::Timestamp;

/// Grants tokens at a rate, and up to a burst at once after a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Tokens per thousand seconds; `level` counts millionths of a token.
    per_1000_seconds: u64,
    burst: u64,
    level: u64,
    filled_at: Timestamp,
}

/// A token, in the unit in which one millisecond adds `per_1000_seconds`.
const TOKEN: u64 = 1_000_000;

impl TokenBucket {
    /// A full bucket. A burst is at least one token, and the rate at least one in 1000 seconds.
    pub fn new(per_1000_seconds: u64, burst: u64, now: Timestamp) -> Self {
        let burst = burst.max(1);
        let level = burst.saturating_mul(TOKEN);
        TokenBucket { per_1000_seconds: per_1000_seconds.max(1), burst, level, filled_at: now }
    }

    /// Takes tokens, or returns when there will be enough. A request for more than a burst takes a
    /// full bucket, because otherwise it could never be granted.
    pub fn take(&mut self, tokens: u64, now: Timestamp) -> Result<(), Timestamp> {
        self.fill(now);
        let needed = tokens.min(self.burst).saturating_mul(TOKEN);
        if self.level >= needed {
            self.level -= needed;
            return Ok(());
        }
        let ms = (needed - self.level).div_ceil(self.per_1000_seconds);
        Err(now.saturating_add(Duration::from_millis(ms)))
    }

    /// Puts back tokens that were taken and not used.
    pub fn give_back(&mut self, tokens: u64) {
        let full = self.burst.saturating_mul(TOKEN);
        self.level = self.level.saturating_add(tokens.saturating_mul(TOKEN)).min(full);
    }

    /// When there will be a token; `None` when there is one now.
    pub fn ready_at(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut copy = *self;
        let ready = copy.take(1, now).err();
        self.fill(now);
        ready
    }

    /// Whether the bucket is full.
    pub fn is_full(&mut self, now: Timestamp) -> bool {
        self.fill(now);
        self.level == self.burst.saturating_mul(TOKEN)
    }

    /// The rate.
    pub fn per_1000_seconds(&self) -> u64 {
        self.per_1000_seconds
    }

    fn fill(&mut self, now: Timestamp) {
        let ms = u64::try_from(now.since(self.filled_at).as_millis()).unwrap_or(u64::MAX);
        let more = ms.saturating_mul(self.per_1000_seconds);
        self.level = self.level.saturating_add(more).min(self.burst.saturating_mul(TOKEN));
        self.filled_at = self.filled_at.max(now);
    }
}

/// A bucket for each key, each with its own rate.
///
/// A full bucket is equivalent to no bucket and is removed, so only active keys take memory.
#[derive(Debug)]
pub struct TokenBuckets<K> {
    buckets_max: usize,
    buckets: HashMap<K, TokenBucket>,
}

impl<K: Eq + Hash> TokenBuckets<K> {
    /// At most `buckets_max` buckets.
    pub fn new(buckets_max: usize) -> Self {
        TokenBuckets { buckets_max, buckets: HashMap::new() }
    }

    /// Takes tokens from the bucket of a key with this rate per second and burst, or returns when there will be
    /// enough. A bucket whose rate has changed begins full.
    pub fn take(
        &mut self,
        key: K,
        (per_second, burst): (u32, u32),
        tokens: u64,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        if self.buckets.len() >= self.buckets_max {
            self.make_room(now);
        }
        let full = TokenBucket::new(u64::from(per_second) * 1000, u64::from(burst), now);
        let bucket = self.buckets.entry(key).or_insert(full);
        if (bucket.per_1000_seconds, bucket.burst) != (full.per_1000_seconds, full.burst) {
            *bucket = full;
        }
        bucket.take(tokens, now)
    }

    /// Puts tokens that were taken and not used back into the bucket of a key.
    pub fn give_back(&mut self, key: &K, tokens: u64) {
        if let Some(bucket) = self.buckets.get_mut(key) {
            bucket.give_back(tokens);
        }
    }

    fn make_room(&mut self, now: Timestamp) {
        self.buckets.retain(|_, bucket| !bucket.is_full(now));
        // When nearly all buckets are in use, drop a quarter of them, which gives those keys a full
        // bucket early: cheaper than searching all of them at every call.
        let mut n = 0_usize;
        let is_crowded = self.buckets.len() >= self.buckets_max / 10 * 9;
        self.buckets.retain(|_, _| {
            n += 1;
            !is_crowded || !n.is_multiple_of(4)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_unix_ms(ms)
    }

    #[test]
    fn bucket_keeps_its_rate_to_the_millisecond() {
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
    fn request_for_more_than_a_burst_takes_a_full_bucket() {
        let mut now = Timestamp::EPOCH;
        let mut bucket = TokenBucket::new(10_000, 5, now);
        assert!(bucket.is_full(now));
        assert_eq!(bucket.take(100, now), Ok(()));
        assert!(!bucket.is_full(now));
        now = bucket.take(1, now).unwrap_err();
        assert_eq!(now, Timestamp::from_unix_ms(100));
    }

    #[test]
    fn every_key_has_a_burst_and_then_its_rate() {
        let mut buckets = TokenBuckets::new(10);
        for _ in 0..3 {
            assert_eq!(buckets.take("a", (2, 3), 1, at(0)), Ok(()));
        }
        assert_eq!(buckets.take("a", (2, 3), 1, at(0)), Err(at(500)));
        assert_eq!(
            buckets.take("b", (2, 3), 1, at(0)),
            Ok(()),
            "every key has a bucket of its own"
        );
        assert_eq!(buckets.take("a", (2, 3), 1, at(499)), Err(at(500)));
        assert_eq!(buckets.take("a", (2, 3), 1, at(500)), Ok(()));
        assert_eq!(buckets.take("a", (2, 3), 1, at(500)), Err(at(1_000)));
        assert_eq!(buckets.take("a", (2, 3), 3, at(1_000_000)), Ok(()));
        assert_eq!(
            buckets.take("a", (2, 3), 1, at(1_000_000)),
            Err(at(1_000_500)),
            "never more than the burst"
        );
    }

    #[test]
    fn tokens_that_were_not_used_are_put_back_and_never_exceed_the_burst() {
        let mut buckets = TokenBuckets::new(10);
        buckets.give_back(&"a", 1);
        assert_eq!(buckets.take("a", (1, 2), 2, at(0)), Ok(()));
        buckets.give_back(&"a", 1);
        assert_eq!(buckets.take("a", (1, 2), 1, at(0)), Ok(()));
        assert_eq!(buckets.take("a", (1, 2), 1, at(0)), Err(at(1_000)));
        buckets.give_back(&"a", 100);
        assert_eq!(buckets.take("a", (1, 2), 2, at(0)), Ok(()));
        assert_eq!(buckets.take("a", (1, 2), 1, at(0)), Err(at(1_000)));
    }

    #[test]
    fn bucket_whose_rate_changes_begins_full() {
        let mut buckets = TokenBuckets::new(10);
        assert_eq!(buckets.take("a", (1, 1), 1, at(0)), Ok(()));
        assert_eq!(buckets.take("a", (1, 1), 1, at(0)), Err(at(1_000)));
        assert_eq!(buckets.take("a", (2, 1), 1, at(0)), Ok(()));
        assert_eq!(buckets.take("a", (2, 1), 1, at(0)), Err(at(500)));
    }

    #[test]
    fn clock_that_goes_back_fills_no_bucket() {
        let mut buckets = TokenBuckets::new(10);
        assert_eq!(buckets.take("a", (1, 1), 1, at(5_000)), Ok(()));
        assert_eq!(buckets.take("a", (1, 1), 1, at(0)), Err(at(1_000)));
    }

    #[test]
    fn buckets_stay_bounded_when_ever_more_keys_use_them() {
        let mut buckets = TokenBuckets::new(1_000);
        for key in 0..2_000 {
            assert_eq!(buckets.take(key, (1, 10), 1, at(0)), Ok(()));
            assert!(buckets.buckets.len() <= 1_000);
        }
    }

    #[test]
    fn full_buckets_are_forgotten_before_those_in_use() {
        let mut buckets = TokenBuckets::new(100);
        (0..99).for_each(|key| assert_eq!(buckets.take(key, (1, 1), 1, at(0)), Ok(())));
        assert_eq!(buckets.take(99, (1, 1), 1, at(999)), Ok(()));
        // The bucket of 99 is empty, all others are full again.
        assert_eq!(buckets.take(100, (1, 1), 1, at(1_000)), Ok(()));
        assert_eq!(buckets.buckets.len(), 2);
        assert_eq!(buckets.take(99, (1, 1), 1, at(1_000)), Err(at(1_999)));
    }
}
