//! Rate limits of keys and tenants. Off by default.

use std::sync::{Mutex, PoisonError};

use postrider_domain::time::Timestamp;
use postrider_domain::token_bucket::TokenBuckets;

use crate::problem::{Code, Problem};
use crate::settings::{REMEMBERED_MAX, Rate};

/// A token bucket for each name.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// The rate of a name without a rate of its own; `None` without a limit.
    rate: Option<Rate>,
    buckets: Mutex<TokenBuckets<String>>,
}

impl Buckets {
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Buckets { rate, buckets: Mutex::new(TokenBuckets::new(REMEMBERED_MAX)) }
    }

    /// Takes one request from the bucket of this name, or returns how many seconds to wait.
    pub(crate) fn take(&self, name: &str, now: Timestamp) -> Result<(), u64> {
        self.take_within(name, None, now)
    }

    /// The same for a name that may have a rate of its own.
    pub(crate) fn take_within(
        &self,
        name: &str,
        own: Option<Rate>,
        now: Timestamp,
    ) -> Result<(), u64> {
        let Some(rate) = own.or(self.rate) else { return Ok(()) };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = buckets.take(name.to_owned(), (rate.per_second, rate.burst), 1, now);
        taken.map_err(|at| {
            let ms = u64::try_from(at.since(now).as_millis()).unwrap_or(u64::MAX);
            ms.div_ceil(1000)
        })
    }
}

/// The problem of a request over the rate.
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
    fn refused_request_is_told_to_wait_whole_seconds() {
        let buckets = Buckets::new(Some(Rate { per_second: 2, burst: 1 }));
        assert_eq!(buckets.take("a", at(0)), Ok(()));
        assert_eq!(buckets.take("a", at(0)), Err(1));
        assert_eq!(buckets.take("a", at(499)), Err(1));
        assert_eq!(buckets.take("a", at(500)), Ok(()));
        assert_eq!(buckets.take("b", at(500)), Ok(()));
    }

    #[test]
    fn own_rate_of_a_name_takes_the_place_of_the_common_one() {
        let (own, none) = (Some(Rate { per_second: 1, burst: 2 }), Buckets::new(None));
        assert_eq!(none.take_within("a", own, at(0)), Ok(()));
        assert_eq!(none.take_within("a", own, at(0)), Ok(()));
        assert_eq!(none.take_within("a", own, at(0)), Err(1));
        assert_eq!(none.take_within("b", None, at(0)), Ok(()));
    }

    #[test]
    fn without_a_rate_nothing_is_limited() {
        let buckets = Buckets::new(None);
        assert!((0..10_000).all(|_| buckets.take("a", at(0)).is_ok()));
    }
}
