//! The events of the live stream.

use postrider_domain::ids::TenantId;
use postrider_engine::EngineEvent;
use serde_json::{Value, json};

use super::delivery::{AttemptView, DeliveryView};
use super::destination::TransitionView;
use crate::live_feed::{Bodies, Mark};

/// The tenant whose stream gets this event, if any.
pub(crate) fn whose(event: &EngineEvent) -> Option<&TenantId> {
    match event {
        EngineEvent::Attempt { delivery, .. } | EngineEvent::Dead { delivery, .. } => {
            Some(&delivery.tenant)
        }
        EngineEvent::Transition { tenant, .. }
        | EngineEvent::Warning { tenant, .. }
        | EngineEvent::FilterOverBudget { tenant, .. } => Some(tenant),
        EngineEvent::Began { .. }
        | EngineEvent::SuspensionChange(_)
        | EngineEvent::ClockStep(_) => None,
    }
}

/// What an event is about.
pub(crate) fn mark(event: &EngineEvent) -> Mark {
    match event {
        EngineEvent::Attempt { delivery, attempt } => Mark {
            destination: Some(delivery.destination),
            is_delivered: Some(attempt.ending.is_success()),
        },
        EngineEvent::Dead { delivery, .. } => {
            Mark { destination: Some(delivery.destination), is_delivered: None }
        }
        EngineEvent::Transition { destination, .. } | EngineEvent::Warning { destination, .. } => {
            Mark { destination: Some(*destination), is_delivered: None }
        }
        EngineEvent::FilterOverBudget { .. }
        | EngineEvent::Began { .. }
        | EngineEvent::SuspensionChange(_)
        | EngineEvent::ClockStep(_) => Mark::default(),
    }
}

/// The name and the data of an event of the stream, with or without the bodies of responses.
pub(crate) fn told(event: &EngineEvent, bodies: Bodies) -> Option<(&'static str, Value)> {
    match event {
        EngineEvent::Attempt { delivery, attempt } => {
            let (delivery, attempt) =
                (DeliveryView::of(delivery, false), AttemptView::of(attempt, false));
            let attempt = match bodies {
                Bodies::Shown => attempt,
                Bodies::LeftOut => attempt.without_body(),
            };
            Some(("attempt", json!({"delivery": delivery, "attempt": attempt})))
        }
        EngineEvent::Transition { destination, url, transition, .. } => {
            let transition = TransitionView::of(transition);
            let data =
                json!({"destination_id": destination, "url": &**url, "transition": transition});
            Some(("transition", data))
        }
        EngineEvent::Dead { delivery, .. } => {
            Some(("dead", json!({"delivery": DeliveryView::of(delivery, false)})))
        }
        EngineEvent::Warning { destination, url, warning, .. } => {
            let data = json!({"destination_id": destination, "url": &**url, "warning": warning});
            Some(("warning", data))
        }
        EngineEvent::FilterOverBudget { subscription, events, last, since, .. } => {
            let data = json!({
                "subscription_id": subscription,
                "events": events,
                "last_event_id": last,
                "since": since,
            });
            Some(("filter_over_budget", data))
        }
        EngineEvent::Began { .. }
        | EngineEvent::SuspensionChange(_)
        | EngineEvent::ClockStep(_) => None,
    }
}
