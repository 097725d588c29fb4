//! What happens, as a stream tells it.

use postrider_domain::ids::TenantId;
use serde_json::{Value, json};

use super::delivery::{AttemptView, DeliveryView};
use super::destination::TransitionView;
use crate::engine::EngineEvent;
use crate::state::ApiState;

/// The name and the data of an event of the stream; `None` where it is not this tenant's.
pub(crate) fn told(
    state: &ApiState,
    tenant: &TenantId,
    event: &EngineEvent,
) -> Option<(&'static str, Value)> {
    match event {
        EngineEvent::Attempt { delivery, attempt } if delivery.tenant == *tenant => {
            let (delivery, attempt) =
                (DeliveryView::of(state, delivery), AttemptView::of(attempt, false));
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
            Some(("dead", json!({"delivery": DeliveryView::of(state, delivery)})))
        }
        EngineEvent::Warning { tenant: whose, destination, url, warning } if whose == tenant => {
            let data = json!({"destination_id": destination, "url": &**url, "warning": warning});
            Some(("warning", data))
        }
        EngineEvent::Attempt { .. }
        | EngineEvent::Began { .. }
        | EngineEvent::Transition { .. }
        | EngineEvent::Dead { .. }
        | EngineEvent::Warning { .. } => None,
    }
}
