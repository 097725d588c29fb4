//! How long deliveries took from acceptance to arrival in the last minutes, of each tenant and of all.
//!
//! Times are counted by the minute, and a minute is dropped as a whole. **What is kept is limited**: of a minute with
//! many tenants, some are counted among all tenants only.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use postrider_domain::attempt_tally::AttemptTally;
use postrider_domain::ids::TenantId;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// How many minutes are kept, the current one included.
const MINUTES: u32 = 5;
/// How many tenants of one minute are counted by themselves.
const TENANTS_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct RecentArrivals {
    /// Oldest first.
    minutes: VecDeque<Minute>,
}

struct Minute {
    began: Instant,
    all: AttemptTally,
    of: HashMap<TenantId, AttemptTally>,
}

impl RecentArrivals {
    /// Counts deliveries that arrived now.
    pub(super) fn add(&mut self, now: Instant, arrived: &[(TenantId, Duration)]) {
        let is_over = |minute: &Minute| now.duration_since(minute.began) >= MINUTE;
        if self.minutes.back().is_none_or(is_over) {
            self.forget(now);
            let (all, of) = (AttemptTally::default(), HashMap::new());
            self.minutes.push_back(Minute { began: now, all, of });
        }
        let Some(minute) = self.minutes.back_mut() else { return };
        for (tenant, took) in arrived {
            minute.all.count_time(*took);
            if let Some(tally) = minute.of.get_mut(tenant) {
                tally.count_time(*took);
            } else if minute.of.len() < TENANTS_MAX {
                minute.of.entry(tenant.clone()).or_default().count_time(*took);
            }
        }
    }

    fn forget(&mut self, now: Instant) {
        let is_old = |minute: &Minute| now.duration_since(minute.began) >= MINUTE * MINUTES;
        while self.minutes.front().is_some_and(is_old) {
            self.minutes.pop_front();
        }
    }

    /// The times of the last minutes.
    pub(super) fn lately(&mut self, now: Instant, tenant: Option<&TenantId>) -> AttemptTally {
        self.forget(now);
        let mut sum = AttemptTally::default();
        for minute in &self.minutes {
            match tenant {
                None => sum.add(&minute.all),
                Some(tenant) => minute.of.get(tenant).into_iter().for_each(|one| sum.add(one)),
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::disallowed_methods, reason = "any time: the tests count from it")]
    fn some_time() -> Instant {
        Instant::now()
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn ms(tally: &AttemptTally, thousandths: u32) -> u128 {
        tally.percentile(thousandths).map_or(0, |took| took.as_millis())
    }

    #[test]
    fn arrivals_are_counted_by_tenant_and_forgotten_after_five_minutes() {
        let start = some_time();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut arrivals = RecentArrivals::default();
        let fast = vec![(tenant("acme"), Duration::from_millis(10)); 98];
        arrivals.add(at(0), &fast);
        arrivals.add(at(59), &[(tenant("umbrella"), Duration::from_secs(3))]);
        arrivals.add(at(61), &[(tenant("umbrella"), Duration::from_secs(3))]);
        let all = arrivals.lately(at(100), None);
        assert_eq!(all.times_counted(), 100);
        assert!((8..=12).contains(&ms(&all, 500)), "{}", ms(&all, 500));
        assert!((2_400..=3_600).contains(&ms(&all, 990)), "{}", ms(&all, 990));
        assert_eq!(arrivals.lately(at(100), Some(&tenant("acme"))).times_counted(), 98);
        let umbrella = arrivals.lately(at(299), Some(&tenant("umbrella")));
        assert_eq!(umbrella.times_counted(), 2);
        assert_eq!(arrivals.lately(at(300), None).times_counted(), 1, "the first minute is gone");
        assert_eq!(arrivals.lately(at(361), None), AttemptTally::default());
        assert_eq!(arrivals.lately(at(361), Some(&tenant("none"))), AttemptTally::default());
    }

    #[test]
    fn tenants_beyond_the_limit_are_counted_among_all_only() {
        let now = some_time();
        let mut arrivals = RecentArrivals::default();
        let took = Duration::from_millis(5);
        let many: Vec<_> = (0..=TENANTS_MAX).map(|n| (tenant(&format!("t{n}")), took)).collect();
        arrivals.add(now, &many);
        arrivals.add(now, &many[..1]);
        let count = |arrivals: &mut RecentArrivals, whose: Option<&TenantId>| {
            arrivals.lately(now, whose).times_counted()
        };
        assert_eq!(count(&mut arrivals, None), 1_002);
        assert_eq!(count(&mut arrivals, Some(&tenant("t0"))), 2);
        assert_eq!(count(&mut arrivals, Some(&tenant("t1000"))), 0);
    }
}
