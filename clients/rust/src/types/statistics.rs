//! Attempts of destinations by the hour, and summaries of deliveries that have not arrived.

use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Attempts of a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptCounts {
    /// All attempts.
    pub attempts: u64,
    /// Attempts that succeeded.
    pub delivered: u64,
    /// Attempts that failed by the destination's fault, or by the network's on the way to it.
    pub failed: u64,
    /// Attempts that failed by a fault of the server, which do not count against the destination.
    pub own_faults: u64,
    /// The response time that half of the answered attempts did not exceed; absent without any. It
    /// may be off by a fifth.
    pub p50_ms: Option<u64>,
    /// The response time that 99 of 100 answered attempts did not exceed.
    pub p99_ms: Option<u64>,
    /// The share of `delivered` in `delivered` and `failed`; absent without any.
    pub success_rate: Option<f64>,
}

/// The attempts that began in one hour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HourOfAttempts {
    /// What they came to.
    #[serde(flatten)]
    pub counts: AttemptCounts,
    /// The start of the hour.
    pub at: Timestamp,
}

impl Deref for HourOfAttempts {
    type Target = AttemptCounts;

    fn deref(&self) -> &AttemptCounts {
        &self.counts
    }
}

/// A class of failures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FailureCount {
    /// `status_5xx`, `refused`, `timeout_response` and so on.
    pub class: String,
    /// How many attempts failed so.
    pub count: u64,
}

/// One of the last attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecentAttempt {
    /// `delivered`, or the class of the failure.
    pub class: String,
    /// How long it took.
    pub duration_ms: u64,
    /// When it began.
    pub started_at: Timestamp,
    /// The status of the response; absent if there was none.
    pub status: Option<u16>,
}

/// What the attempts of a destination came to lately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DestinationFigures {
    /// The destination.
    pub destination_id: String,
    /// The current hour and the 23 before it.
    pub last_24_hours: AttemptCounts,
    /// The current hour and the 167 before it.
    pub last_7_days: AttemptCounts,
    /// The last 30 attempts of the last eight days, oldest first.
    pub recent: Vec<RecentAttempt>,
}

/// Statistics of one destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DestinationStats {
    /// How attempts failed in these hours, most frequent first.
    pub failures: Vec<FailureCount>,
    /// The figures that lists show.
    pub figures: DestinationFigures,
    /// One entry for each hour, oldest first; the last one is the current hour, so far.
    pub hours: Vec<HourOfAttempts>,
    /// The start of the first hour.
    pub since: Timestamp,
    /// All of these hours together.
    pub total: AttemptCounts,
    /// The time of the answer.
    pub until: Timestamp,
}

/// When waiting deliveries fall due.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetriesDue {
    /// Whether every count is exact.
    pub complete: bool,
    /// The next 48 hours.
    pub hours: Vec<DueHour>,
    /// Due after them.
    pub later: DueCount,
    /// The server's time: the first of the hours begins then.
    pub now: Timestamp,
    /// Due before now.
    pub overdue: DueCount,
}

/// A count of waiting deliveries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DueCount {
    /// Whether the count is exact.
    pub complete: bool,
    /// How many; at least so many where the count is not complete.
    pub count: u64,
}

/// The waiting deliveries that fall due in one hour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DueHour {
    /// The start of the hour.
    pub at: Timestamp,
    /// Whether the count is exact.
    pub complete: bool,
    /// How many; at least so many where the count is not complete.
    pub count: u64,
}

/// Dead deliveries in groups.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeadLetters {
    /// Whether all dead deliveries were counted. Where more are dead, the newest are counted.
    pub complete: bool,
    /// How many dead deliveries were counted.
    pub counted: u64,
    /// The largest groups, largest first.
    pub data: Vec<DeadGroup>,
    /// How many groups there are, those included that are not in `data`.
    pub groups: u64,
}

/// Dead deliveries of one destination with the same reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeadGroup {
    /// How many of them were counted.
    pub count: u64,
    /// The destination.
    pub destination_id: String,
    /// When the first of them died.
    pub first_at: Timestamp,
    /// When the last of them died.
    pub last_at: Timestamp,
    /// `exhausted` or `not_admitted`.
    pub reason: String,
    /// Whose they are; only in an answer about all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}
