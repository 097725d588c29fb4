//! The ledger, and time series for charts.

use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::TallyAt;
use serde::Serialize;
use utoipa::ToSchema;

/// `accepted = queued + in_flight + waiting + delivered + dead + cancelled`, always.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ledger)]
pub(crate) struct LedgerView {
    accepted: u64,
    queued: u64,
    in_flight: u64,
    waiting: u64,
    delivered: u64,
    dead: u64,
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
    #[schema(value_type = String, format = DateTime)]
    pub(crate) since: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub(crate) until: Timestamp,
    pub(crate) step_minutes: u32,
    /// One entry for each span, oldest first; spans in which nothing happened are zero.
    pub(crate) data: Vec<SpanView>,
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
