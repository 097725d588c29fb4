//! Summaries of deliveries that have not arrived.

use postrider_domain::delivery::DeadReason;
use postrider_domain::time::Timestamp;
use postrider_store::{Counted, DeadGroup, DueCounts};
use serde::Serialize;
use utoipa::ToSchema;

/// The length of a span.
const HOUR: std::time::Duration = std::time::Duration::from_secs(3_600);

/// When waiting deliveries fall due.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetriesDue)]
pub(crate) struct RetriesDueView {
    /// The server's time: the first of the hours begins then.
    #[schema(value_type = String, format = DateTime)]
    now: Timestamp,
    /// Due before now: at a disabled or frozen destination, or for want of a free place.
    overdue: DueCountView,
    /// The next 48 hours.
    hours: Vec<DueHourView>,
    /// Due after them.
    later: DueCountView,
    /// Whether every count is exact.
    complete: bool,
}

/// A count of waiting deliveries.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DueCount)]
struct DueCountView {
    /// How many; at least so many where the count is not complete.
    count: u64,
    /// Whether the count is exact. Of very many deliveries, not all are counted.
    complete: bool,
}

/// The waiting deliveries that fall due in one hour.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DueHour)]
struct DueHourView {
    /// The start of the hour.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// How many; at least so many where the count is not complete.
    count: u64,
    /// Whether the count is exact.
    complete: bool,
}

impl RetriesDueView {
    pub(crate) fn of(now: Timestamp, counts: &DueCounts) -> Self {
        let count = |of: &Counted| DueCountView { count: of.count, complete: of.is_whole };
        let starts = (0..).map(|hours| now.saturating_add(HOUR * hours));
        let hours = counts.hours.iter().zip(starts);
        let all = [&counts.overdue, &counts.later];
        RetriesDueView {
            now,
            overdue: count(&counts.overdue),
            hours: hours
                .map(|(of, at)| DueHourView { at, count: of.count, complete: of.is_whole })
                .collect(),
            later: count(&counts.later),
            complete: all.into_iter().chain(&counts.hours).all(|of| of.is_whole),
        }
    }
}

/// Dead deliveries in groups.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetters)]
pub(crate) struct DeadLettersView {
    /// The largest groups, largest first.
    pub(crate) data: Vec<DeadGroupView>,
    /// How many groups there are, those included that are not in `data`.
    pub(crate) groups: usize,
    /// How many dead deliveries were counted.
    pub(crate) counted: u64,
    /// Whether these are all. Where more are dead, the newest are counted.
    pub(crate) complete: bool,
}

/// Dead deliveries of one destination with the same reason.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadGroup)]
pub(crate) struct DeadGroupView {
    /// The destination.
    destination_id: String,
    /// `exhausted` where the last attempt failed, `not_admitted` where the last slot passed while the destination was
    /// disabled or frozen.
    reason: &'static str,
    /// How many of them were counted.
    count: u64,
    /// When the first of them died.
    #[schema(value_type = String, format = DateTime)]
    first_at: Timestamp,
    /// When the last of them died.
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
    /// Whose they are; only where those of all tenants are asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<String>,
}

impl DeadGroupView {
    pub(crate) fn of(group: &DeadGroup, with_tenant: bool) -> Self {
        DeadGroupView {
            destination_id: group.destination.to_string(),
            reason: match group.reason {
                DeadReason::Exhausted => "exhausted",
                DeadReason::NotAdmitted => "not_admitted",
            },
            count: group.count,
            first_at: group.first_at,
            last_at: group.last_at,
            tenant: with_tenant.then(|| group.tenant.to_string()),
        }
    }
}
