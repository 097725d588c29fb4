//! Deliveries and their attempts, as they are shown.

use postrider_domain::attempt::{Attempt, BodyEnd, Connection, Ending, Finished, Timings};
use postrider_domain::delivery::{CancelReason, DeadReason, Delivery, DeliveryState, StateName};
use postrider_domain::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::millis;
use super::schedule::ScheduleView;
use crate::problem::Problem;
use crate::state::ApiState;

/// One event owed to one subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct DeliveryView {
    /// What the receiver sees as `webhook-id`.
    id: String,
    event_id: String,
    subscription_id: String,
    destination_id: String,
    #[serde(rename = "type")]
    kind: String,
    state: DeliveryStateWord,
    /// Why, where it is dead or cancelled.
    reason: Option<&'static str>,
    /// How often it was attempted, probes and replays included.
    attempts: u32,
    /// When it is attempted next, if the destination permits.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DeliveryState)]
enum DeliveryStateWord {
    Queued,
    InFlight,
    Waiting,
    Delivered,
    Dead,
    Cancelled,
}

impl DeliveryStateWord {
    const fn of(name: StateName) -> Self {
        match name {
            StateName::Queued => DeliveryStateWord::Queued,
            StateName::InFlight => DeliveryStateWord::InFlight,
            StateName::Waiting => DeliveryStateWord::Waiting,
            StateName::Delivered => DeliveryStateWord::Delivered,
            StateName::Dead => DeliveryStateWord::Dead,
            StateName::Cancelled => DeliveryStateWord::Cancelled,
        }
    }
}

/// A delivery with the record of what was tried.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryDetail {
    #[serde(flatten)]
    pub(crate) delivery: DeliveryView,
    /// The attempts, oldest first.
    pub(crate) attempt_log: Vec<AttemptView>,
    /// Give this as `cursor` to `/v1/deliveries/{id}/attempts` to get the attempts that are not in
    /// `attempt_log`; null where it has all of them.
    pub(crate) attempt_log_cursor: Option<String>,
    pub(crate) schedule: ScheduleView,
}

/// One HTTP request made for a delivery.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView {
    /// From 1.
    number: u32,
    /// `first`, `retry`, `probe`, or `manual` where somebody asked for it.
    turn: &'static str,
    /// Which retry it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<u32>,
    #[serde(flatten)]
    outcome: OutcomeView,
}

/// How a request ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Outcome)]
pub(crate) struct OutcomeView {
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    duration_ms: u64,
    outcome: OutcomeWord,
    /// The status that was answered; null where there was no answer.
    status: Option<u16>,
    /// The kind of failure: `status 500`, `refused`, `reset`, `dns`, `tls`, `timeout (connect)`,
    /// `blocked`, `protocol`, or a fault of our own.
    error: Option<String>,
    /// The first 16 KiB of the answer's body.
    response_body: Option<String>,
    /// Whether that was all of it: `whole`, `cut`, `late` or `broken`.
    response_body_end: Option<&'static str>,
    timings: TimingsView,
    /// For admin keys only: what helps to find the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Whether it arrived.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AttemptOutcome)]
enum OutcomeWord {
    Delivered,
    Failed,
}

/// How long each phase took, in milliseconds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Timings)]
struct TimingsView {
    dns_ms: Option<u64>,
    connect_ms: Option<u64>,
    tls_ms: Option<u64>,
    response_ms: Option<u64>,
    /// `fresh`, `reused` or `resent`.
    connection: &'static str,
}

impl DeliveryView {
    /// Deliveries as they are now: what the engine is sending at this moment is in flight.
    pub(crate) async fn of_all(
        state: &ApiState,
        deliveries: &[Delivery],
    ) -> Result<Vec<Self>, Problem> {
        let in_flight = in_flight(state, deliveries).await?;
        let both = deliveries.iter().zip(in_flight);
        Ok(both.map(|(delivery, in_flight)| DeliveryView::of(delivery, in_flight)).collect())
    }

    /// A delivery as it is now.
    pub(crate) async fn of_one(state: &ApiState, delivery: &Delivery) -> Result<Self, Problem> {
        let in_flight = is_in_flight(state, delivery).await?;
        Ok(DeliveryView::of(delivery, in_flight))
    }

    /// The name of its state.
    pub(crate) const fn state(&self) -> StateName {
        match self.state {
            DeliveryStateWord::Queued => StateName::Queued,
            DeliveryStateWord::InFlight => StateName::InFlight,
            DeliveryStateWord::Waiting => StateName::Waiting,
            DeliveryStateWord::Delivered => StateName::Delivered,
            DeliveryStateWord::Dead => StateName::Dead,
            DeliveryStateWord::Cancelled => StateName::Cancelled,
        }
    }

    pub(crate) fn of(delivery: &Delivery, in_flight: bool) -> Self {
        let name = if in_flight { StateName::InFlight } else { delivery.state.name() };
        DeliveryView {
            id: delivery.id.to_string(),
            event_id: delivery.event.to_string(),
            subscription_id: delivery.subscription.to_string(),
            destination_id: delivery.destination.to_string(),
            kind: delivery.kind.to_string(),
            state: DeliveryStateWord::of(name),
            reason: reason(&delivery.state),
            attempts: delivery.attempts,
            next_attempt_at: delivery.next_attempt_at(),
            created_at: delivery.created_at,
            finished_at: delivery.finished_at(),
        }
    }
}

/// Which of these are being attempted now. Those that have ended are not asked for.
pub(crate) async fn in_flight(
    state: &ApiState,
    deliveries: &[Delivery],
) -> Result<Vec<bool>, Problem> {
    let is_open = |delivery: &&Delivery| delivery.finished_at().is_none();
    let open: Vec<_> = deliveries.iter().filter(is_open).map(|delivery| delivery.id).collect();
    if open.is_empty() {
        return Ok(vec![false; deliveries.len()]);
    }
    let mut flags = state.engine().in_flight(open).await?.into_iter();
    let flag = |delivery| is_open(&delivery) && flags.next().unwrap_or(false);
    Ok(deliveries.iter().map(flag).collect())
}

/// Whether this one is being attempted now.
pub(crate) async fn is_in_flight(state: &ApiState, delivery: &Delivery) -> Result<bool, Problem> {
    let flags = in_flight(state, std::slice::from_ref(delivery)).await?;
    Ok(flags.first().copied().unwrap_or(false))
}

fn reason(state: &DeliveryState) -> Option<&'static str> {
    match state {
        DeliveryState::Dead { reason: DeadReason::Exhausted, .. } => Some("exhausted"),
        DeliveryState::Dead { reason: DeadReason::NotAdmitted, .. } => Some("not_admitted"),
        DeliveryState::Cancelled { reason: CancelReason::Asked, .. } => Some("asked"),
        DeliveryState::Cancelled { reason: CancelReason::SubscriptionDeleted, .. } => {
            Some("subscription_deleted")
        }
        DeliveryState::Queued | DeliveryState::Waiting(_) | DeliveryState::Delivered { .. } => None,
    }
}

impl AttemptView {
    /// An attempt. What only the operator may know is shown to admins alone.
    pub(crate) fn of(attempt: &Attempt, for_admin: bool) -> Self {
        let (turn, retry) = (attempt.turn.as_str(), attempt.turn.retry());
        let outcome = outcome(attempt.started_at, &attempt.timings, &attempt.ending, for_admin);
        AttemptView { number: attempt.number, turn, retry, outcome }
    }
}

impl AttemptView {
    /// The same without the response's body.
    pub(crate) fn without_body(self) -> Self {
        let outcome = OutcomeView { response_body: None, ..self.outcome };
        AttemptView { outcome, ..self }
    }
}

impl OutcomeView {
    pub(crate) fn of(finished: &Finished, for_admin: bool) -> Self {
        outcome(finished.started_at, &finished.timings, &finished.ending, for_admin)
    }
}

fn outcome(
    started_at: Timestamp,
    timings: &Timings,
    ending: &Ending,
    for_admin: bool,
) -> OutcomeView {
    let is_success = ending.is_success();
    let (body, body_end, detail) = match ending {
        Ending::Answered(answer) => {
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            (Some(text), Some(body_end(answer.body_end)), None)
        }
        // Which address a name resolved to is not a tenant's business.
        Ending::Failed(failure) => (None, None, Some(failure.detail.clone())),
        Ending::OwnFault(fault) => (None, None, Some(fault.detail.clone())),
    };
    OutcomeView {
        started_at,
        duration_ms: millis(timings.total),
        outcome: if is_success { OutcomeWord::Delivered } else { OutcomeWord::Failed },
        status: ending.status(),
        error: (!is_success).then(|| ending.to_string()),
        response_body: body,
        response_body_end: body_end,
        timings: TimingsView {
            dns_ms: timings.dns.map(millis),
            connect_ms: timings.connect.map(millis),
            tls_ms: timings.tls.map(millis),
            response_ms: timings.response.map(millis),
            connection: match timings.connection {
                Connection::Fresh => "fresh",
                Connection::Reused => "reused",
                Connection::Resent => "resent",
            },
        },
        detail: detail.filter(|detail| for_admin && !detail.is_empty()),
    }
}

const fn body_end(end: BodyEnd) -> &'static str {
    match end {
        BodyEnd::Whole => "whole",
        BodyEnd::Cut => "cut",
        BodyEnd::Late => "late",
        BodyEnd::Broken => "broken",
    }
}
