//! What happens, as a stream tells it.

use postrider_domain::ids::TenantId;
use postrider_engine::EngineEvent;
use serde_json::{Value, json};

use super::delivery::{AttemptView, DeliveryView};
use super::destination::TransitionView;

/// The name and the data of an event of the stream; `None` where it is not this tenant's.
pub(crate) fn told(tenant: &TenantId, event: &EngineEvent) -> Option<(&'static str, Value)> {
    match event {
        EngineEvent::Attempt { delivery, attempt } if delivery.tenant == *tenant => {
            let (delivery, attempt) =
                (DeliveryView::of(delivery, false), AttemptView::of(attempt, false));
            Some(("attempt", json!({"delivery": delivery, "attempt": attempt})))
        }
        EngineEvent::Transition { tenant: whose, destination, url, transition }
            if whose == tenant =>
        {
            let transition = TransitionView::of(transition);
            let data =
                json!({"destination_id": destination, "url": &**url, "transition": transition});
            Some(("transition", data))
        }
        EngineEvent::Dead { delivery, .. } if delivery.tenant == *tenant => {
            Some(("dead", json!({"delivery": DeliveryView::of(delivery, false)})))
        }
        EngineEvent::Warning { tenant: whose, destination, url, warning } if whose == tenant => {
            let data = json!({"destination_id": destination, "url": &**url, "warning": warning});
            Some(("warning", data))
        }
        EngineEvent::FilterOverBudget { tenant: whose, subscription, events, last, since }
            if whose == tenant =>
        {
            let data = json!({
                "subscription_id": subscription,
                "events": events,
                "last_event_id": last,
                "since": since,
            });
            Some(("filter_over_budget", data))
        }
        EngineEvent::Attempt { .. }
        | EngineEvent::FilterOverBudget { .. }
        | EngineEvent::Began { .. }
        | EngineEvent::Transition { .. }
        | EngineEvent::Dead { .. }
        | EngineEvent::Warning { .. }
        | EngineEvent::HoldChange(_)
        | EngineEvent::ClockStep(_) => None,
    }
}
