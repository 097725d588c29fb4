//! The ledger, and time series for charts.

use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::TallyAt;
use serde::Serialize;
use utoipa::ToSchema;

use super::millis;
use crate::process::Arrivals;

/// `accepted = queued + in_flight + waiting + delivered + dead + cancelled`, always.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ledger)]
pub(crate) struct LedgerView {
    /// All deliveries that were ever accepted: the sum of the others.
    accepted: u64,
    /// Waiting for their first attempt.
    queued: u64,
    /// Being attempted now.
    in_flight: u64,
    /// Waiting for a retry.
    waiting: u64,
    /// Answered with 2xx.
    delivered: u64,
    /// Without a retry left; kept, and can be replayed.
    dead: u64,
    /// Ended by somebody, or because their subscription was deleted.
    cancelled: u64,
}

impl LedgerView {
    pub(crate) fn of(ledger: &Ledger) -> Self {
        let Ledger { accepted, queued, in_flight, waiting, delivered, dead, cancelled } = *ledger;
        LedgerView { accepted, queued, in_flight, waiting, delivered, dead, cancelled }
    }
}

/// Statistics over time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Stats {
    /// The start that was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) since: Timestamp,
    /// The end that was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) until: Timestamp,
    /// The length of a span.
    pub(crate) step_minutes: u32,
    /// One entry for each span, oldest first; spans in which nothing happened are zero.
    pub(crate) data: Vec<SpanView>,
    /// How long deliveries took lately, whatever time was asked for; null where none arrived.
    pub(crate) arrivals: Option<ArrivalsView>,
}

/// The time from acceptance to arrival, of deliveries that arrived in the last five minutes at their first attempt. The
/// node that answers tells its own, since its start.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Arrivals)]
pub(crate) struct ArrivalsView {
    /// How many arrived.
    count: u64,
    /// The time that half of them did not exceed. It may be off by a fifth, and so may the other.
    p50_ms: u64,
    /// The time that 99 of 100 did not exceed.
    p99_ms: u64,
}

impl ArrivalsView {
    pub(crate) fn of(arrivals: &Arrivals) -> Self {
        let Arrivals { count, p50, p99 } = *arrivals;
        ArrivalsView { count, p50_ms: millis(p50), p99_ms: millis(p99) }
    }
}

/// The counts of one span.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Span)]
pub(crate) struct SpanView {
    /// The start of the span.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Deliveries that were accepted.
    accepted: u64,
    /// Deliveries that succeeded.
    delivered: u64,
    /// Attempts that failed.
    failed: u64,
    /// Deliveries that became dead.
    dead: u64,
}

impl SpanView {
    pub(crate) fn of(span: &TallyAt) -> Self {
        let tally = span.tally;
        SpanView {
            at: span.at,
            accepted: tally.accepted,
            delivered: tally.delivered,
            failed: tally.failed,
            dead: tally.dead,
        }
    }
}
