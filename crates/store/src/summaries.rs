//! Summaries of deliveries that have not arrived: when those that wait fall due, and what died.
//!
//! **A summary costs at most a fixed number of rows, however many there are**: it says where it has not counted all of
//! them. These methods read, and go through the same queues as lists.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::delivery::DeadReason;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;

use crate::error::StoreError;

/// For how many hours waiting deliveries are counted by the hour.
pub const DUE_HOURS: usize = 48;
/// The spans in which waiting deliveries are counted: overdue, each hour, and later.
pub(crate) const DUE_SPANS: usize = DUE_HOURS + 2;
const HOUR: Duration = Duration::from_secs(3_600);

/// Summaries of one tenant, or of all tenants for `None`.
#[async_trait]
pub trait Summaries: Send + Sync + 'static {
    /// How many waiting deliveries fall due before `now`, in each of the 48 hours after it, and later. Each span is
    /// counted up to `most`. The cost is at most that of `DUE_SPANS` times `most` rows, and of a step for each
    /// destination of the tenant; where this is not enough for all rows, spans are not whole.
    async fn due_counts(
        &self,
        tenant: Option<&TenantId>,
        now: Timestamp,
        most: u64,
    ) -> Result<DueCounts, StoreError>;
    /// The dead deliveries by destination and reason, the largest group first. At most `most` deliveries are read:
    /// the newest, by acceptance; of all tenants together, those of the newest days.
    async fn dead_letters(
        &self,
        tenant: Option<&TenantId>,
        most: usize,
    ) -> Result<DeadLetters, StoreError>;
}

/// A count that may have ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The count; a lower bound where the search was cut off.
    pub count: u64,
    /// Whether the count is exact.
    pub is_whole: bool,
}

/// When waiting deliveries fall due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueCounts {
    /// Due before now.
    pub overdue: Counted,
    /// Due in each of the next [`DUE_HOURS`] hours.
    pub hours: Vec<Counted>,
    /// Due after them.
    pub later: Counted,
}

/// Counts waiting deliveries by the time at which they fall due.
#[derive(Debug)]
pub struct DueTally {
    now: Timestamp,
    most: u64,
    counts: [Counted; DUE_SPANS],
}

impl DueTally {
    /// Counts up to `most` in each span.
    pub fn new(now: Timestamp, most: u64) -> Self {
        DueTally { now, most, counts: [Counted { count: 0, is_whole: true }; DUE_SPANS] }
    }

    /// The times at which spans end, but for the last one: the first span ends now.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        let now = self.now;
        (0..).take(DUE_SPANS - 1).map(move |hours| now.saturating_add(HOUR * hours))
    }

    /// The number of the span of a time.
    fn span_of(&self, due_at: Timestamp) -> usize {
        if due_at < self.now {
            return 0;
        }
        let hours = due_at.since(self.now).as_secs() / HOUR.as_secs();
        usize::try_from(hours).unwrap_or(usize::MAX).saturating_add(1).min(DUE_SPANS - 1)
    }

    /// Counts a delivery; `false` where its span is full.
    pub fn add(&mut self, due_at: Timestamp) -> bool {
        let span = self.span_of(due_at);
        self.add_to(span, 1);
        self.counts.get(span).is_some_and(|counted| counted.is_whole)
    }

    /// Counts so many deliveries in a span.
    pub(crate) fn add_to(&mut self, span: usize, n: u64) {
        if let Some(counted) = self.counts.get_mut(span) {
            let count = counted.count.saturating_add(n);
            let is_whole = counted.is_whole && count <= self.most;
            *counted = Counted { count: count.min(self.most), is_whole };
        }
    }

    /// When the span of this time ends; `None` for the last span.
    pub(crate) fn end_of(&self, due_at: Timestamp) -> Option<Timestamp> {
        self.ends().nth(self.span_of(due_at))
    }

    /// Says that not all deliveries were read.
    pub(crate) fn has_more(&mut self) {
        self.counts.iter_mut().for_each(|counted| counted.is_whole = false);
    }

    /// The counts.
    pub fn done(self) -> DueCounts {
        let [overdue, hours @ .., later] = self.counts;
        DueCounts { overdue, hours: hours.to_vec(), later }
    }
}

/// Dead deliveries of one destination that died for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadGroup {
    /// Whose they are.
    pub tenant: TenantId,
    /// Where they should have gone.
    pub destination: DestinationId,
    /// Why they died.
    pub reason: DeadReason,
    /// How many were counted.
    pub count: u64,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the last of them died.
    pub last_at: Timestamp,
}

/// Dead deliveries in groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetters {
    /// The largest group first; then by tenant, destination and reason.
    pub groups: Vec<DeadGroup>,
    /// Whether all dead deliveries were counted.
    pub is_whole: bool,
}

/// Groups dead deliveries.
#[derive(Debug, Default)]
pub struct DeadTally {
    groups: BTreeMap<(TenantId, DestinationId, bool), DeadGroup>,
}

impl DeadTally {
    /// Adds a group, which may have an equal one already.
    pub fn add(&mut self, group: DeadGroup) {
        let is_exhausted = group.reason == DeadReason::Exhausted;
        let key = (group.tenant.clone(), group.destination, !is_exhausted);
        match self.groups.get_mut(&key) {
            None => drop(self.groups.insert(key, group)),
            Some(found) => {
                found.count = found.count.saturating_add(group.count);
                found.first_at = found.first_at.min(group.first_at);
                found.last_at = found.last_at.max(group.last_at);
            }
        }
    }

    /// The groups in order.
    pub fn done(self, is_whole: bool) -> DeadLetters {
        let mut groups: Vec<DeadGroup> = self.groups.into_values().collect();
        groups.sort_by_key(|group| std::cmp::Reverse(group.count));
        DeadLetters { groups, is_whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_time_at_the_end_of_a_span_counts_in_the_next_one() {
        let now = Timestamp::from_unix_ms(1_000_000);
        let tally = DueTally::new(now, 10);
        let span = |ms: i64| tally.span_of(Timestamp::from_unix_ms(1_000_000 + ms));
        let hour = 3_600_000;
        let spans = [i64::MIN + 1_000_000, -1, 0, hour - 1, hour, 48 * hour - 1, 48 * hour];
        assert_eq!(spans.map(span), [0, 0, 1, 1, 2, 48, 49]);
        assert_eq!(tally.span_of(Timestamp::MAX), 49);
        let end = |ms: i64| tally.end_of(Timestamp::from_unix_ms(1_000_000 + ms));
        assert_eq!(end(-5), Some(now));
        assert_eq!(end(0), Some(Timestamp::from_unix_ms(1_000_000 + hour)));
        assert_eq!(end(48 * hour - 1), Some(Timestamp::from_unix_ms(1_000_000 + 48 * hour)));
        assert_eq!(end(48 * hour), None);
    }
}
