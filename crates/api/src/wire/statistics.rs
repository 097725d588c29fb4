//! Statistics of destinations in the API.

use postrider_domain::attempt_tally::{AttemptTally, OutcomeClass, RecentAttempt};
use postrider_domain::ids::DestinationId;
use postrider_domain::time::Timestamp;
use postrider_store::AttemptSums;
use serde::Serialize;
use utoipa::ToSchema;

use super::millis;

/// The median, in thousandths.
const P50: u32 = 500;
/// The 99th percentile, in thousandths.
const P99: u32 = 990;

/// What the attempts of a destination came to lately.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationFigures)]
pub(crate) struct FiguresView {
    /// The destination.
    destination_id: String,
    /// The current hour and the 23 before it.
    last_24_hours: AttemptCountsView,
    /// The current hour and the 167 before it.
    last_7_days: AttemptCountsView,
    /// The last 30 attempts of the last eight days, oldest first.
    recent: Vec<RecentView>,
}

/// Attempts of a destination.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AttemptCounts)]
pub(crate) struct AttemptCountsView {
    /// Attempts, without faults of our own.
    attempts: u64,
    /// Those that succeeded.
    delivered: u64,
    /// Attempts that failed by the destination's fault, or by the network's on the way to it.
    failed: u64,
    /// Attempts that failed by a fault of our own, which do not count against the destination.
    own_faults: u64,
    /// The share of `delivered` in `delivered` and `failed`; null without any.
    success_rate: Option<f64>,
    /// The response time that half of the answered attempts did not exceed; null without any. It is told from counts by
    /// class, and may be off by a fifth, or by a millisecond.
    p50_ms: Option<u64>,
    /// The response time that 99 of 100 answered attempts did not exceed.
    p99_ms: Option<u64>,
}

/// One of the last attempts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RecentAttempt)]
struct RecentView {
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// How long it took.
    duration_ms: u64,
    /// `delivered`, or the class of the failure, as in `failures` of a destination's statistics.
    class: &'static str,
    /// The status of the response; null if there was none.
    status: Option<u16>,
}

/// The figures of some destinations.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationFiguresList)]
pub(crate) struct FiguresListView {
    /// In the order of `ids`; all zero for a destination that does not exist.
    pub(crate) data: Vec<FiguresView>,
}

/// Statistics of one destination.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationStats)]
pub(crate) struct DestinationStatsView {
    /// The start of the first hour.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) since: Timestamp,
    /// The end: now.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) until: Timestamp,
    /// One entry for each hour, oldest first; the last one is the current hour, so far. Hours without attempts are
    /// zero.
    pub(crate) hours: Vec<HourView>,
    /// All of these hours together.
    pub(crate) total: AttemptCountsView,
    /// How attempts failed in these hours, most frequent first.
    pub(crate) failures: Vec<FailureCountView>,
    /// The figures that lists show.
    pub(crate) figures: FiguresView,
}

/// The attempts that began in one hour.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HourOfAttempts)]
pub(crate) struct HourView {
    /// The start of the hour.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) at: Timestamp,
    #[serde(flatten)]
    pub(crate) counts: AttemptCountsView,
}

/// A class of failures.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FailureCount)]
pub(crate) struct FailureCountView {
    /// `status_3xx`, `status_4xx`, `status_410`, `status_429`, `status_5xx`, `status_other`, `refused`, `reset`, `dns`,
    /// `tls`, `timeout_dns`, `timeout_connect`, `timeout_tls`, `timeout_request`, `timeout_response`, `blocked`,
    /// `protocol`, or `own_fault`.
    class: &'static str,
    /// How many attempts.
    count: u64,
}

impl FiguresView {
    pub(crate) fn of(destination: DestinationId, sums: &AttemptSums) -> Self {
        let [day, week] = &sums.sums;
        FiguresView {
            destination_id: destination.to_string(),
            last_24_hours: AttemptCountsView::of(day),
            last_7_days: AttemptCountsView::of(week),
            recent: sums.recent.iter().map(RecentView::of).collect(),
        }
    }
}

impl AttemptCountsView {
    pub(crate) fn of(tally: &AttemptTally) -> Self {
        let (delivered, failed) = (tally.of(OutcomeClass::Delivered), tally.failures());
        AttemptCountsView {
            attempts: tally.attempts(),
            delivered,
            failed,
            own_faults: tally.of(OutcomeClass::OwnFault),
            success_rate: share(delivered, delivered.saturating_add(failed)),
            p50_ms: tally.percentile(P50).map(millis),
            p99_ms: tally.percentile(P99).map(millis),
        }
    }
}

impl RecentView {
    fn of(attempt: &RecentAttempt) -> Self {
        RecentView {
            started_at: attempt.started_at,
            duration_ms: u64::from(attempt.duration_ms),
            class: attempt.class.as_str(),
            status: attempt.status,
        }
    }
}

impl FailureCountView {
    pub(crate) fn all_of(tally: &AttemptTally) -> Vec<Self> {
        let view =
            |(class, count): (OutcomeClass, u64)| FailureCountView { class: class.as_str(), count };
        tally.failure_classes().into_iter().map(view).collect()
    }
}

/// A share with four decimals, rounded down so that 1 means all.
fn share(part: u64, whole: u64) -> Option<f64> {
    let ten_thousandths = (u128::from(part) * 10_000).checked_div(u128::from(whole))?;
    Some(f64::from(u32::try_from(ten_thousandths).unwrap_or(u32::MAX)) / 10_000.0)
}
