//! Testing a filter on an event.

use axum::Json;
use axum::extract::State;
use postrider_domain::event::Event;
use postrider_domain::filter::{Budget, EventView, Filter};
use postrider_domain::ids::EventId;

use super::busy;
use crate::auth::CanRead;
use crate::body::Strict;
use crate::problem::Problem;
use crate::random;
use crate::state::ApiState;
use crate::wire::event::{self, Keep};
use crate::wire::filter::{FilterTest, FilterVerdict};
use crate::wire::subscription::check_filter;

/// Test a filter on an event
///
/// Nothing is stored and nothing is sent. A filter may take a limited number of steps on an event.
/// If it needs more, the answer has `"over_budget": true`; a subscription with this filter would
/// get the event unfiltered.
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
    let steps_max = state.settings().filter_steps_max;
    if let Some((matches, steps)) = attempt(&filter, &event, LIGHT_STEPS.min(steps_max)) {
        return Ok(Json(FilterVerdict::of(matches, steps, steps_max)));
    }
    // Runs on the threads for large work, so that no other request waits.
    let tenant = event.tenant.clone();
    let work = move || attempt(&filter, &event, steps_max);
    let verdict = state.engine().compute(&tenant, work).await.map_err(busy)?;
    Ok(Json(match verdict {
        Some((matches, steps)) => FilterVerdict::of(matches, steps, steps_max),
        None => FilterVerdict::over_budget(steps_max),
    }))
}

/// Steps that are tried on this thread; larger filters run on the threads for large work.
const LIGHT_STEPS: u64 = 20_000;
/// Bytes of an event that are parsed on this thread.
const LIGHT_BYTES: usize = 16 * 1024;

/// Whether an event passes, and in how many steps, if it takes no more than these; with few steps a
/// large event is not even parsed.
fn attempt(filter: &Filter, event: &Event, steps: u64) -> Option<(bool, u64)> {
    let bytes =
        event.data.as_bytes().len() + event.old.as_ref().map_or(0, |old| old.as_bytes().len());
    if steps <= LIGHT_STEPS && bytes > LIGHT_BYTES && filter.needs_json() {
        return None;
    }
    let mut budget = Budget::new(steps);
    let matches = filter.evaluate(&EventView::new(event), &mut budget).ok()?;
    Some((matches, steps - budget.left()))
}
