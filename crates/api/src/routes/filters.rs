//! Trying a filter before it is trusted.

use axum::Json;
use axum::extract::State;
use postrider_domain::event::Event;
use postrider_domain::filter::EventView;
use postrider_domain::ids::EventId;

use crate::auth::CanRead;
use crate::body::Strict;
use crate::problem::Problem;
use crate::random;
use crate::state::ApiState;
use crate::wire::event::{self, Keep};
use crate::wire::filter::{FilterTest, FilterVerdict};
use crate::wire::subscription::check_filter;

/// Try a filter on an event
///
/// Nothing is stored and nothing is sent.
#[utoipa::path(
    post, path = "/v1/filters/test", tag = "filters",
    request_body = FilterTest,
    responses((status = 200, body = FilterVerdict, description = "Whether the event passes"))
)]
pub(crate) async fn test(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Strict(body): Strict<FilterTest>,
) -> Result<Json<FilterVerdict>, Problem> {
    let filter = check_filter(&body.filter.ok_or_else(|| Problem::missing("filter"))?)?;
    let text = body.event.ok_or_else(|| Problem::missing("event"))?;
    let new = event::read(text.get().as_bytes(), Keep::Copied);
    let new = new.map_err(|problem| problem.below("event"))?;
    let now = state.now();
    let event = Event {
        id: new.id.unwrap_or(EventId::new(now, random::bytes()?)),
        tenant: caller.tenant,
        kind: new.kind,
        object: new.object,
        data: new.data,
        old: new.old,
        time: new.time.unwrap_or(now),
        trace: None,
    };
    Ok(Json(FilterVerdict { matches: filter.matches(&EventView::new(&event)) }))
}
