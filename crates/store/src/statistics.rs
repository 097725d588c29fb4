//! Statistics of destinations: what their attempts came to, by the hour.
//!
//! [`Work::settle`](crate::Work::settle) counts every attempt of a destination that exists, in the same transaction;
//! a repeated commit is counted once. One destination has at most one record for each hour, whose size is limited, so
//! all of them together are limited by the number of destinations and the time that they are kept.

use async_trait::async_trait;
use postrider_domain::attempt_tally::{AttemptHour, AttemptTally, RecentAttempt, first_hour};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::limits::RECENT_ATTEMPTS_MAX;
use postrider_domain::time::Timestamp;

use crate::error::StoreError;

/// The recent attempts of a destination, summed up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptSums {
    /// One sum for each of the two times that were asked for.
    pub sums: [AttemptTally; 2],
    /// Its last attempts, oldest first: those of a later hour after those of an earlier one, within an hour in the
    /// order in which they were settled.
    pub recent: Vec<RecentAttempt>,
}

/// Statistics of destinations.
#[async_trait]
pub trait Statistics: Send + Sync + 'static {
    /// What the attempts of these destinations came to since each of two times, in the order given; nothing for a
    /// destination of another tenant. `None` stands for all tenants. Only whole hours count: those that begin at or
    /// after the time. The cost is that of the hours that are kept of these destinations.
    async fn attempt_sums(
        &self,
        tenant: Option<&TenantId>,
        destinations: &[DestinationId],
        since: [Timestamp; 2],
    ) -> Result<Vec<AttemptSums>, StoreError>;
    /// The hours of a destination that begin at or after `since` and in which there were attempts, oldest first, each
    /// with its start.
    async fn attempt_hours(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<(Timestamp, AttemptTally)>, StoreError>;
    /// Removes the hours that begin before `before`, of all destinations. Returns how many.
    async fn forget_attempt_hours(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// Adds up the hours of one destination, which come newest first.
#[derive(Debug)]
pub struct SummingUp {
    first_hours: [i64; 2],
    sums: AttemptSums,
    /// The last attempts, newest first.
    recent: Vec<RecentAttempt>,
}

impl SummingUp {
    /// Sums since two times.
    pub fn new(since: [Timestamp; 2]) -> Self {
        let (sums, recent) = (AttemptSums::default(), Vec::new());
        SummingUp { first_hours: since.map(first_hour), sums, recent }
    }

    /// Adds an hour that is before all others.
    pub fn add(&mut self, hour: i64, attempts: &AttemptHour) {
        for (first, sum) in self.first_hours.iter().zip(&mut self.sums.sums) {
            if hour >= *first {
                sum.add(&attempts.tally);
            }
        }
        let left = RECENT_ATTEMPTS_MAX - self.recent.len();
        self.recent.extend(attempts.recent.iter().rev().take(left));
    }

    /// The sums.
    pub fn done(mut self) -> AttemptSums {
        self.recent.reverse();
        AttemptSums { recent: self.recent, ..self.sums }
    }
}
