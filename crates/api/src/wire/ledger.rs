//! The ledger, and time series for charts.

use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::TallyAt;
use serde::Serialize;
use utoipa::ToSchema;

use crate::engine::InFlight;

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
    /// The store's ledger with what is in flight. The two are read one after the other: where they
    /// disagree, the store's total holds.
    pub(crate) fn of(ledger: &Ledger, in_flight: InFlight) -> Self {
        let from_queued = in_flight.queued.min(ledger.queued);
        let from_waiting = in_flight.waiting.min(ledger.waiting);
        LedgerView {
            accepted: ledger.accepted,
            queued: ledger.queued - from_queued,
            in_flight: ledger.in_flight + from_queued + from_waiting,
            waiting: ledger.waiting - from_waiting,
            delivered: ledger.delivered,
            dead: ledger.dead,
            cancelled: ledger.cancelled,
        }
    }
}

/// What happened over time.
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

/// What happened in one span.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Span)]
pub(crate) struct SpanView {
    /// Begin of the span.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Deliveries accepted.
    accepted: u64,
    /// Deliveries that arrived.
    delivered: u64,
    /// Attempts that failed.
    failed: u64,
    /// Deliveries that died.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_balances_however_late_the_store_is() {
        let ledger = Ledger { accepted: 9, queued: 2, waiting: 3, delivered: 4, ..Ledger::default() };
        for (queued, waiting) in [(0, 0), (1, 2), (2, 3), (5, 9)] {
            let view = LedgerView::of(&ledger, InFlight { queued, waiting });
            let sum = view.queued + view.in_flight + view.waiting + view.delivered;
            assert_eq!(sum + view.dead + view.cancelled, view.accepted);
            assert_eq!(view.in_flight, queued.min(2) + waiting.min(3));
        }
    }
}
