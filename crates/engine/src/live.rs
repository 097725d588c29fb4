//! The engine's live events, for listeners and for operational events to tenants.

use std::sync::Arc;

use postrider_domain::attempt::{Attempt, Turn};
use postrider_domain::circuit::{StateName as CircuitName, Transition};
use postrider_domain::delivery::{DeadReason, Delivery, DeliveryState};
use postrider_domain::event::{EventType, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::limits;
use postrider_domain::mass_failure::SuspensionChange;
use postrider_domain::steady::Step;
use postrider_domain::thresholds::Warning;
use postrider_domain::time::Timestamp;
use serde_json::json;

use crate::core::{Command, Input};
use crate::handle::EngineHandle;
use crate::ingest::NewEvent;

/// An event of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineEvent {
    /// An attempt ended.
    Attempt {
        /// The delivery afterwards.
        delivery: Arc<Delivery>,
        /// The attempt.
        attempt: Arc<Attempt>,
    },
    /// An attempt began.
    Began {
        /// The tenant.
        tenant: TenantId,
        /// The delivery.
        delivery: DeliveryId,
        /// The destination.
        destination: DestinationId,
        /// The turn of the attempt.
        turn: Turn,
    },
    /// A destination's circuit changed.
    Transition {
        /// The tenant.
        tenant: TenantId,
        /// The destination.
        destination: DestinationId,
        /// Its URL.
        url: Arc<str>,
        /// The change.
        transition: Transition,
    },
    /// A delivery ran out of retries.
    Dead {
        /// The delivery.
        delivery: Arc<Delivery>,
        /// The reason.
        reason: DeadReason,
    },
    /// A destination has come near a threshold.
    Warning {
        /// The tenant.
        tenant: TenantId,
        /// The destination.
        destination: DestinationId,
        /// Its URL.
        url: Arc<str>,
        /// The threshold, and how near it is.
        warning: Warning,
    },
    /// The filter of a subscription exceeded its budget, so the events were delivered.
    FilterOverBudget {
        /// The tenant.
        tenant: TenantId,
        /// The subscription.
        subscription: SubscriptionId,
        /// How many events since `since`.
        events: u64,
        /// The last of these events.
        last: EventId,
        /// The time of the last notice, or of the first occurrence.
        since: Timestamp,
    },
    /// Transitions are suspended, because so many destinations fail at once that the fault is
    /// probably ours; or the suspension has ended.
    SuspensionChange(SuspensionChange),
    /// The clock of the machine, or of the database, was set.
    ClockStep(Step),
}

impl EngineHandle {
    /// Tells the operator that the time of day was set.
    pub fn clock_stepped(&self, step: Step) {
        // Sending fails only after the engine has shut down.
        drop(self.shared.inputs.send(Input::Command(Command::ClockStepped { step })));
    }
}

/// The operational event for this engine event, if there is one, with its tenant; without a tenant
/// it is for the operator alone.
///
/// A dead delivery of an operational event causes no further one: otherwise a dead URL would cause
/// events about itself for ever.
pub(crate) fn operational(
    event: &EngineEvent,
    now: Timestamp,
) -> Option<(Option<TenantId>, NewEvent)> {
    let (tenant, kind, data) = match event {
        EngineEvent::Transition { tenant, destination, url, transition } => {
            let kind = match (transition.from, transition.to) {
                (CircuitName::Closed, CircuitName::Open) => "postrider.destination.disabled",
                (_, CircuitName::Closed) => "postrider.destination.enabled",
                (_, CircuitName::Frozen) => "postrider.destination.frozen",
                (_, CircuitName::Open | CircuitName::HalfOpen) => return None,
            };
            let data = json!({
                "tenant": tenant,
                "destination": destination,
                "url": &**url,
                "at": transition.at,
                "evidence": transition.evidence,
                "counters": transition.counters,
            });
            (Some(tenant), kind, data)
        }
        EngineEvent::Warning { tenant, destination, url, warning } => {
            let data = json!({
                "tenant": tenant,
                "destination": destination,
                "url": &**url,
                "warning": warning,
            });
            (Some(tenant), "postrider.destination.failing", data)
        }
        EngineEvent::FilterOverBudget { tenant, subscription, events, last, since } => {
            let data = json!({
                "tenant": tenant,
                "subscription": subscription,
                "events": events,
                "last_event": last,
                "since": since,
                "steps_max": limits::FILTER_STEPS_MAX,
            });
            (Some(tenant), "postrider.subscription.filter_over_budget", data)
        }
        EngineEvent::Dead { delivery, reason } if !delivery.kind.is_reserved() => {
            let data = json!({
                "tenant": delivery.tenant,
                "delivery": delivery.id,
                "event": delivery.event,
                "subscription": delivery.subscription,
                "destination": delivery.destination,
                "type": delivery.kind.as_str(),
                "attempts": delivery.attempts,
                "reason": reason,
            });
            (Some(&delivery.tenant), "postrider.delivery.dead", data)
        }
        EngineEvent::ClockStep(step) => {
            let data = json!({
                "at": step.at,
                "by_ms": step.by_ms,
                "ahead_ms": step.ahead_ms,
            });
            (None, "postrider.clock.stepped", data)
        }
        EngineEvent::Dead { .. }
        | EngineEvent::Attempt { .. }
        | EngineEvent::Began { .. }
        | EngineEvent::SuspensionChange(_) => return None,
    };
    let kind: EventType = kind.parse().ok()?;
    let data = RawJson::parse(data.to_string().into()).ok()?;
    Some((tenant.cloned(), own_event(kind, data, now)))
}

/// An event of Postrider's own.
fn own_event(kind: EventType, data: RawJson, now: Timestamp) -> NewEvent {
    NewEvent {
        id: None,
        kind,
        object: None,
        data,
        old: None,
        time: Some(now),
        trace: None,
        flagged: None,
    }
}

/// The engine event of a dead delivery; `None` if it is not dead.
pub(crate) fn death(delivery: &Delivery) -> Option<EngineEvent> {
    match delivery.state {
        DeliveryState::Dead { reason, .. } => {
            Some(EngineEvent::Dead { delivery: Arc::new(delivery.clone()), reason })
        }
        DeliveryState::Queued
        | DeliveryState::Waiting(_)
        | DeliveryState::Delivered { .. }
        | DeliveryState::Cancelled { .. } => None,
    }
}
