//! Tries a filter on accepted events, for somebody who is writing the filter.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider_domain::event::EventType;
use postrider_domain::filter::{Budget, ConditionVerdict, EventView, Filter, OverBudget};
use postrider_domain::ids::EventId;
use postrider_domain::limits::{BATCH_FILTER_STEPS_MAX, FILTER_STEPS_MAX};
use postrider_domain::time::Timestamp;
use postrider_store::{EventFilter, EventRecord, PageRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::busy;
use crate::auth::{Caller, CanRead};
use crate::body::Strict;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::filter::ConditionView;
use crate::wire::subscription::check_filter;

/// The most events that a filter is tried on in one request.
const EVENTS_MAX: usize = 50;
const RECENT_DEFAULT: usize = 20;

/// A filter, and which events to try it on: those that are named, or the newest ones.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterTrial {
    /// The filter to try.
    #[serde(default)]
    #[schema(value_type = Object, required = true)]
    filter: Option<Value>,
    /// Events by their identifiers, at most 50; not together with `recent` or `type`.
    #[serde(default)]
    event_ids: Option<Vec<String>>,
    /// So many of the newest events, 1 to 50; 20 where it is left out.
    #[serde(default)]
    recent: Option<usize>,
    /// Of the newest events only those of this type.
    #[serde(default, rename = "type")]
    kind: Option<String>,
}

/// What the filter says of each event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FilterTrialAnswer {
    /// In the order in which they were named, or newest first.
    data: Vec<TriedEvent>,
    /// The steps that a filter may take on one event.
    steps_max: u64,
}

/// What the filter says of one event.
#[derive(Debug, Serialize, ToSchema)]
struct TriedEvent {
    /// The event.
    event_id: String,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    accepted_at: Timestamp,
    /// Whether a subscription with this filter is delivered the event.
    matches: bool,
    /// Whether the filter took more steps than it may: the event is delivered unfiltered then.
    over_budget: bool,
    /// The steps that it took.
    steps: u64,
    /// Each condition by itself; empty where that took too many steps.
    conditions: Vec<ConditionView>,
}

/// Try a filter on accepted events
///
/// On up to 50 events that are named, or on the newest ones. Nothing is stored and nothing is sent. All
/// events of a request share the steps that a tenant's filters may take on one batch.
#[utoipa::path(
    post, path = "/v1/filters/test/events", tag = "filters",
    request_body = FilterTrial,
    responses((status = 200, body = FilterTrialAnswer, description = "Which events pass"))
)]
pub(crate) async fn test_events(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Strict(body): Strict<FilterTrial>,
) -> Result<Json<FilterTrialAnswer>, Problem> {
    let filter = check_filter(body.filter.as_ref().ok_or_else(|| Problem::missing("filter"))?)?;
    let (filter, mut steps_left) = (Arc::new(filter), BATCH_FILTER_STEPS_MAX);
    let mut data = Vec::new();
    match &body.event_ids {
        Some(ids) => {
            if body.recent.is_some() || body.kind.is_some() {
                let field = if body.recent.is_some() { "recent" } else { "type" };
                return Err(Problem::field(field, "not together with event_ids"));
            }
            if ids.len() > EVENTS_MAX {
                return Err(Problem::field("event_ids", format!("at most {EVENTS_MAX}")));
            }
            // Events are read one after the other: fifty large events at once would fill the
            // memory.
            for (n, id) in ids.iter().enumerate() {
                let record = named(&state, &caller, n, id).await?;
                let tried = judge(&state, &caller, &filter, vec![record], steps_left).await?;
                steps_left = tried.1;
                data.extend(tried.0);
            }
        }
        None => {
            let events = recent(&state, &caller, &body).await?;
            data = judge(&state, &caller, &filter, events, steps_left).await?.0;
        }
    }
    Ok(Json(FilterTrialAnswer { data, steps_max: FILTER_STEPS_MAX }))
}

async fn named(
    state: &ApiState,
    caller: &Caller,
    n: usize,
    id: &str,
) -> Result<EventRecord, Problem> {
    let unknown = || Problem::field(format!("event_ids[{n}]"), "there is no such event");
    let id: EventId = id.parse().map_err(|_| unknown())?;
    state.store().event(&caller.tenant, &id).await?.ok_or_else(unknown)
}

async fn recent(
    state: &ApiState,
    caller: &Caller,
    body: &FilterTrial,
) -> Result<Vec<EventRecord>, Problem> {
    let limit = body.recent.unwrap_or(RECENT_DEFAULT);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(Problem::field("recent", format!("a number from 1 to {EVENTS_MAX}")));
    }
    let kind: Option<Result<EventType, _>> = body.kind.as_deref().map(str::parse);
    let kind = kind.transpose().map_err(|error| Problem::field("type", error))?;
    let wanted = EventFilter { kind, ..EventFilter::default() };
    let page = PageRequest { limit, cursor: None };
    Ok(state.store().list_events(&caller.tenant, &wanted, &page).await?.items)
}

/// The filter's result for each of these events, and how many steps are left.
async fn judge(
    state: &ApiState,
    caller: &Caller,
    filter: &Arc<Filter>,
    events: Vec<EventRecord>,
    mut steps_left: u64,
) -> Result<(Vec<TriedEvent>, u64), Problem> {
    let filter = Arc::clone(filter);
    let work = move || {
        let each = events.iter().map(|record| try_on(&filter, record, &mut steps_left));
        let tried: Vec<TriedEvent> = each.collect();
        (tried, steps_left)
    };
    state.engine().compute(&caller.tenant, work).await.map_err(busy)
}

fn try_on(filter: &Filter, record: &EventRecord, steps_left: &mut u64) -> TriedEvent {
    let view = EventView::new(&record.event);
    let steps_max = FILTER_STEPS_MAX.min(*steps_left);
    let mut budget = Budget::new(steps_max);
    let verdict = filter.evaluate(&view, &mut budget);
    let steps = steps_max - budget.left();
    *steps_left -= steps;
    let conditions_max = FILTER_STEPS_MAX.min(*steps_left);
    let mut budget = Budget::new(conditions_max);
    let conditions: Result<Vec<ConditionVerdict>, OverBudget> =
        filter.conditions(&view, &mut budget);
    *steps_left -= conditions_max - budget.left();
    let conditions = conditions.unwrap_or_default();
    TriedEvent {
        event_id: record.event.id.to_string(),
        kind: record.event.kind.to_string(),
        accepted_at: record.accepted_at,
        matches: verdict.unwrap_or(true),
        over_budget: verdict.is_err(),
        steps,
        conditions: conditions.into_iter().map(ConditionView::of).collect(),
    }
}
