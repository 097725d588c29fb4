//! What happens, as it happens: for whoever looks on, and for subscriptions that want to be told.

use std::sync::Arc;

use postrider_domain::attempt::{Attempt, Turn};
use postrider_domain::circuit::{StateName as CircuitName, Transition};
use postrider_domain::delivery::{DeadReason, Delivery, DeliveryState};
use postrider_domain::event::{EventType, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::limits;
use postrider_domain::mass_failure::HoldChange;
use postrider_domain::steady::Step;
use postrider_domain::thresholds::Warning;
use postrider_domain::time::Timestamp;
use serde_json::json;

use crate::core::{Command, Input};
use crate::handle::EngineHandle;
use crate::ingest::NewEvent;

/// Something that happened.
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
        /// Whose.
        tenant: TenantId,
        /// Of which delivery.
        delivery: DeliveryId,
        /// Where to.
        destination: DestinationId,
        /// In which turn.
        turn: Turn,
    },
    /// A destination's circuit changed.
    Transition {
        /// Whose.
        tenant: TenantId,
        /// Which destination.
        destination: DestinationId,
        /// Its URL.
        url: Arc<str>,
        /// The change.
        transition: Transition,
    },
    /// A delivery ran out of retries.
    Dead {
        /// Which one.
        delivery: Arc<Delivery>,
        /// Why.
        reason: DeadReason,
    },
    /// A destination has come near a threshold.
    Warning {
        /// Whose.
        tenant: TenantId,
        /// Which destination.
        destination: DestinationId,
        /// Its URL.
        url: Arc<str>,
        /// Which threshold, and how near.
        warning: Warning,
    },
    /// The filter of a subscription took more steps than it may, and the events were delivered.
    FilterOverBudget {
        /// Whose.
        tenant: TenantId,
        /// Which subscription.
        subscription: SubscriptionId,
        /// How many events since then.
        events: u64,
        /// The last of them.
        last: EventId,
        /// When it was last told, or when it first happened.
        since: Timestamp,
    },
    /// So many destinations fail at once that the fault is probably ours, or no longer.
    HoldChange(HoldChange),
    /// The clock of the machine, or of the database, was set.
    ClockStep(Step),
}

impl EngineHandle {
    /// Tells the operator that the time of day was set.
    pub fn clock_stepped(&self, step: Step) {
        // Nobody takes it only after the engine has shut down.
        drop(self.shared.inputs.send(Input::Command(Command::ClockStepped { step })));
    }
}

/// The event of Postrider's own that tells of this, where there is one, and the tenant whose it is;
/// what is nobody's is the operator's alone.
///
/// An operational event's own dead delivery makes no other: else one dead URL would tell of itself
/// for ever.
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
        | EngineEvent::HoldChange(_) => return None,
    };
    let kind: EventType = kind.parse().ok()?;
    let data = RawJson::parse(data.to_string().into()).ok()?;
    let new =
        NewEvent { id: None, kind, object: None, data, old: None, time: Some(now), trace: None };
    Some((tenant.cloned(), new))
}

/// The event that says that a delivery died, where it did.
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
