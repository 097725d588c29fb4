//! The events of the live stream.

use postrider_domain::ids::TenantId;
use postrider_engine::EngineEvent;
use serde_json::{Value, json};

use super::delivery::{AttemptView, DeliveryView};
use super::destination::TransitionView;

/// The tenant whose stream gets this event, if any.
pub(crate) fn whose(event: &EngineEvent) -> Option<&TenantId> {
    match event {
        EngineEvent::Attempt { delivery, .. } | EngineEvent::Dead { delivery, .. } => {
            Some(&delivery.tenant)
        }
        EngineEvent::Transition { tenant, .. }
        | EngineEvent::Warning { tenant, .. }
        | EngineEvent::FilterOverBudget { tenant, .. } => Some(tenant),
        EngineEvent::Began { .. } | EngineEvent::HoldChange(_) | EngineEvent::ClockStep(_) => None,
    }
}

/// The name and the data of an event in the stream.
pub(crate) fn told(event: &EngineEvent) -> Option<(&'static str, Value)> {
    match event {
        EngineEvent::Attempt { delivery, attempt } => {
            let (delivery, attempt) =
                (DeliveryView::of(delivery, false), AttemptView::of(attempt, false));
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
        EngineEvent::Began { .. } | EngineEvent::HoldChange(_) | EngineEvent::ClockStep(_) => None,
    }
}
