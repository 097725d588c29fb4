//! Deliveries and their attempts in the API.

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
    /// The tenant; only in lists of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The event that is delivered.
    event_id: String,
    /// The subscription that it is owed to.
    subscription_id: String,
    /// The destination that it goes to.
    destination_id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    kind: String,
    /// Where it stands.
    state: DeliveryStateWord,
    /// The reason, if it is dead or cancelled.
    reason: Option<&'static str>,
    /// How often it was attempted, probes and replays included.
    attempts: u32,
    /// When it is attempted next, if the destination allows it.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_attempt_at: Option<Timestamp>,
    /// When the event was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was delivered, died or was cancelled; null before that.
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Timestamp>,
}

/// The state of a delivery.
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

/// A delivery with its attempts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryDetail {
    #[serde(flatten)]
    pub(crate) delivery: DeliveryView,
    /// The attempts, oldest first.
    pub(crate) attempt_log: Vec<AttemptView>,
    /// Give this as `cursor` to `/v1/deliveries/{id}/attempts` to get the attempts that are not in
    /// `attempt_log`; null if it has all of them.
    pub(crate) attempt_log_cursor: Option<String>,
    /// Its retry slots, and what became of each.
    pub(crate) schedule: ScheduleView,
}

/// One HTTP request made for a delivery.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptView {
    /// The number of the attempt, from 1.
    number: u32,
    /// `first`, `retry`, `probe`, or `manual` if somebody requested it.
    turn: &'static str,
    /// The number of the retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry: Option<u32>,
    #[serde(flatten)]
    outcome: OutcomeView,
}

/// The outcome of a request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Outcome)]
pub(crate) struct OutcomeView {
    /// When the attempt began.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// How long it took.
    duration_ms: u64,
    /// How it ended.
    outcome: OutcomeWord,
    /// The status of the response; null if there was none.
    status: Option<u16>,
    /// The class of the failure: `status 500`, `refused`, `reset`, `dns`, `tls`, `timeout
    /// (connect)`, `blocked`, `protocol`, or a fault of our own.
    error: Option<String>,
    /// The first 16 KiB of the response's body.
    response_body: Option<String>,
    /// Whether `response_body` is the whole body: `whole`, `cut`, `late` or `broken`.
    response_body_end: Option<&'static str>,
    /// How long its parts took.
    timings: TimingsView,
    /// For admin keys only: details about the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Whether it succeeded.
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
    /// Resolving the name; null where no name was resolved.
    dns_ms: Option<u64>,
    /// Connecting; null on a connection that was open already.
    connect_ms: Option<u64>,
    /// The TLS handshake; null without one.
    tls_ms: Option<u64>,
    /// From the first byte of the request to the end of the answer's head; null without an answer.
    response_ms: Option<u64>,
    /// The connection: `fresh`, `reused` or `resent`.
    connection: &'static str,
}

impl DeliveryView {
    /// Deliveries in their current state: those that the engine is sending are in flight.
    pub(crate) async fn of_all(
        state: &ApiState,
        deliveries: &[Delivery],
    ) -> Result<Vec<Self>, Problem> {
        let in_flight = in_flight(state, deliveries).await?;
        let both = deliveries.iter().zip(in_flight);
        Ok(both.map(|(delivery, in_flight)| DeliveryView::of(delivery, in_flight)).collect())
    }

    /// A delivery in its current state.
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
            tenant: None,
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

/// Which of these are in flight. Ended ones are not asked for.
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

/// Whether this one is in flight.
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
    /// An attempt. Details for operators are shown to admins only.
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
        // A tenant must not see the address that a name resolved to.
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
