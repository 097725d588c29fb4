//! The explanation of a delivery in the API.

use postrider_domain::explain::{Explanation, RetryPlace, Wait};
use postrider_domain::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::delivery::DeliveryView;

/// The explanation of a delivery, as sentences and data.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct ExplanationView {
    /// The delivery.
    delivery: DeliveryView,
    /// The state in a sentence.
    summary: String,
    /// The reasons, one sentence each.
    because: Vec<String>,
    /// What happens next; null if nothing happens by itself.
    next: Option<NextView>,
    /// What a person can do about it; empty if nothing is needed.
    unblock: Vec<UnblockView>,
    /// What a due delivery waits for; null if it is not due, or another node sends it.
    standing: Option<StandingView>,
    /// The slot that it waits for; null where it waits for none.
    slot: Option<RetryPlaceView>,
}

/// Which retry of how many.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryPlace)]
struct RetryPlaceView {
    /// Retry n; 0 for the first attempt of a replay.
    number: u32,
    /// How many retries there are.
    max: u32,
    /// When its slot falls due. An attempt that somebody asked for comes before it and takes no slot.
    #[schema(value_type = String, format = DateTime)]
    due_at: Timestamp,
}

/// What a due delivery waits for.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Standing)]
struct StandingView {
    /// Deliveries to the same destination that are sent before it; a lower bound if `stored` is
    /// true.
    ahead: usize,
    /// Whether it is still only in the store, behind all deliveries in memory.
    stored: bool,
    /// What the first delivery of the queue waits for.
    waits_for: Vec<WaitView>,
}

/// One reason for waiting. Fields that do not belong to the reason are null.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Wait)]
struct WaitView {
    /// `destination_limit`, `destination_rate`, `tenant_limit`, `tenant_bytes`, `total_limit`, `turn` or
    /// `pause`.
    reason: &'static str,
    /// The reason as a sentence.
    what: String,
    /// Attempts, or bytes, in flight.
    in_flight: Option<usize>,
    /// The limit.
    limit: Option<usize>,
    /// Requests per second.
    per_second: Option<f64>,
    /// When the next request may be sent; null if that is not known.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// Tenants that are served before it.
    tenants: Option<usize>,
    /// Destinations of its tenant that are served before it.
    destinations: Option<usize>,
}

impl WaitView {
    fn of(wait: &Wait) -> Self {
        let view = WaitView {
            reason: wait.as_str(),
            what: wait.to_string(),
            in_flight: None,
            limit: None,
            per_second: None,
            at: None,
            tenants: None,
            destinations: None,
        };
        let counted = |view, in_flight, limit| WaitView {
            in_flight: Some(in_flight),
            limit: Some(limit),
            ..view
        };
        match *wait {
            Wait::DestinationLimit { in_flight, limit } => {
                let count = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
                counted(view, count(in_flight), count(limit))
            }
            Wait::Rate { per_1000_seconds, next_at } => {
                // A rate is at most a million per second.
                let rate = u32::try_from(per_1000_seconds).unwrap_or(u32::MAX);
                WaitView { per_second: Some(f64::from(rate) / 1000.0), at: Some(next_at), ..view }
            }
            Wait::TenantLimit { in_flight, limit } | Wait::TotalLimit { in_flight, limit } => {
                counted(view, in_flight, limit)
            }
            Wait::TenantBytes { bytes, limit } => counted(view, bytes, limit),
            Wait::Turn { tenants, destinations } => {
                WaitView { tenants: Some(tenants), destinations: Some(destinations), ..view }
            }
            Wait::Pause => view,
        }
    }
}

/// What happens next.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NextStep)]
struct NextView {
    /// When it happens; null if that does not depend on time.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// What happens, in a sentence.
    what: String,
}

/// An action that would help.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Unblock)]
struct UnblockView {
    /// `fix_receiver`, `enable_destination`, `retry`, `replay` or `resubscribe`.
    action: &'static str,
    /// What would help, in a sentence.
    what: String,
}

impl ExplanationView {
    pub(crate) fn of(delivery: DeliveryView, explanation: Explanation) -> Self {
        let Explanation { state: _, summary, because, next, unblock, standing, retry } =
            explanation;
        ExplanationView {
            delivery,
            summary,
            because,
            next: next.map(|next| NextView { at: next.at, what: next.what }),
            unblock: unblock
                .into_iter()
                .map(|hint| UnblockView { action: hint.action.as_str(), what: hint.what })
                .collect(),
            standing: standing.map(|standing| StandingView {
                ahead: standing.ahead,
                stored: standing.is_stored,
                waits_for: standing.waits.iter().map(WaitView::of).collect(),
            }),
            slot: retry.map(|RetryPlace { number, max, due_at }| RetryPlaceView {
                number,
                max,
                due_at,
            }),
        }
    }
}
