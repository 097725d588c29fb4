//! Token buckets: how many requests a key or a tenant may make.
//!
//! Off unless configured. A bucket that is full again is forgotten, so memory follows activity.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use postrider_domain::time::Timestamp;

use crate::problem::{Code, Problem};
use crate::settings::{REMEMBERED_MAX, Rate};

/// A bucket for each name.
#[derive(Debug)]
pub(crate) struct Buckets {
    rate: Option<Rate>,
    buckets: Mutex<HashMap<String, Bucket>>,
}

/// Thousandths of a request that may be made at a time.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    milli_tokens: u64,
    at: Timestamp,
}

impl Buckets {
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Buckets { rate, buckets: Mutex::default() }
    }

    /// Takes one request from the bucket of this name, or says how many seconds to wait.
    pub(crate) fn take(&self, name: &str, now: Timestamp) -> Result<(), u64> {
        let Some(rate) = self.rate else { return Ok(()) };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= REMEMBERED_MAX {
            buckets.retain(|_, bucket| bucket.filled(rate, now) < rate.capacity());
            // Where nearly all are in use, some get a full bucket early: cheaper than to search all of
            // them at every request.
            let mut n = 0_usize;
            let is_crowded = buckets.len() >= REMEMBERED_MAX / 10 * 9;
            buckets.retain(|_, _| {
                n += 1;
                !is_crowded || !n.is_multiple_of(4)
            });
        }
        let full = Bucket { milli_tokens: rate.capacity(), at: now };
        let bucket = buckets.entry(name.to_owned()).or_insert(full);
        *bucket = Bucket { milli_tokens: bucket.filled(rate, now), at: bucket.at.max(now) };
        match bucket.milli_tokens.checked_sub(1000) {
            Some(left) => {
                bucket.milli_tokens = left;
                Ok(())
            }
            None => {
                let missing = 1000 - bucket.milli_tokens;
                Err(missing.div_ceil(1000 * u64::from(rate.per_second).max(1)).max(1))
            }
        }
    }
}

impl Bucket {
    fn filled(&self, rate: Rate, now: Timestamp) -> u64 {
        let ms = u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX);
        let gained = ms.saturating_mul(u64::from(rate.per_second));
        self.milli_tokens.saturating_add(gained).min(rate.capacity())
    }
}

impl Rate {
    fn capacity(self) -> u64 {
        u64::from(self.burst.max(1)) * 1000
    }
}

/// The refusal of one request too many.
pub(crate) fn refusal(whose: &str, seconds: u64) -> Problem {
    let detail = format!("the {whose} makes too many requests; wait {seconds} s");
    Problem::new(Code::RateLimited, detail).retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::EPOCH.saturating_add(Duration::from_millis(ms))
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let buckets = Buckets::new(Some(Rate { per_second: 2, burst: 3 }));
        for _ in 0..3 {
            assert_eq!(buckets.take("a", at(0)), Ok(()));
        }
        assert_eq!(buckets.take("a", at(0)), Err(1));
        assert_eq!(buckets.take("b", at(0)), Ok(()), "everybody has a bucket of their own");
        assert_eq!(buckets.take("a", at(499)), Err(1));
        assert_eq!(buckets.take("a", at(500)), Ok(()));
        assert_eq!(buckets.take("a", at(500)), Err(1));
        for _ in 0..3 {
            assert_eq!(buckets.take("a", at(1_000_000)), Ok(()));
        }
        assert_eq!(buckets.take("a", at(1_000_000)), Err(1), "never more than the burst");
    }

    #[test]
    fn buckets_in_use_by_ever_more_names_stay_bounded() {
        let buckets = Buckets::new(Some(Rate { per_second: 1, burst: 10 }));
        for n in 0..REMEMBERED_MAX * 2 {
            assert_eq!(buckets.take(&n.to_string(), at(0)), Ok(()));
        }
        assert!(buckets.buckets.lock().unwrap().len() <= REMEMBERED_MAX);
    }

    #[test]
    fn without_a_rate_nothing_is_limited_and_clocks_may_go_back() {
        let buckets = Buckets::new(None);
        assert!((0..10_000).all(|_| buckets.take("a", at(0)).is_ok()));
        let buckets = Buckets::new(Some(Rate { per_second: 1, burst: 1 }));
        assert_eq!(buckets.take("a", at(5_000)), Ok(()));
        assert_eq!(buckets.take("a", at(0)), Err(1));
    }
}
