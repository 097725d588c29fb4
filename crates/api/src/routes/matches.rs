//! Why an event goes to a subscription or not, judged by the subscriptions as they are now.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use postrider_domain::filter::{Budget, EventView, OverBudget};
use postrider_domain::ids::{EventId, SubscriptionId};
use postrider_domain::limits::{EVENT_FILTER_STEPS_MAX, FILTER_STEPS_MAX};
use postrider_domain::subscription::Subscription;
use postrider_store::{Cursor, EventRecord, Page};
use serde::Serialize;
use utoipa::ToSchema;

use super::subscriptions::PageQuery;
use super::{PathId, busy};
use crate::auth::CanRead;
use crate::paging::{List, ListOf, Query, bad_cursor, page};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::filter::ConditionView;

/// One subscription, and whether it wants the event.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Match)]
pub(crate) struct MatchView {
    /// The subscription.
    subscription_id: String,
    /// Where it wants its deliveries.
    url: String,
    /// Whether the event, sent now, would be delivered to it.
    matched: bool,
    /// Why it got the event or did not.
    because: MatchReason,
    /// Its filter's conditions, where all else fits and the filter was asked; empty where it has none, or
    /// where that took too many steps.
    conditions: Vec<ConditionView>,
}

/// What decided: everything fits (`matched`), the filter took too many steps, so that the event is
/// delivered unfiltered (`over_budget`), or what does not fit. `created_after`: it fits, but the
/// subscription was created after the event was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum MatchReason {
    Matched,
    OverBudget,
    CreatedAfter,
    Disabled,
    Type,
    Object,
    Filter,
}

/// Show what an event matches
///
/// Every subscription of the tenant, newest first, with why it wants the event or not, as the
/// subscriptions are now. The filters of a page share the steps that all filters of a tenant may take on
/// one event.
#[utoipa::path(
    get, path = "/v1/events/{id}/matches", tag = "events",
    params(("id" = String, Path, description = "The event"), PageQuery),
    responses((status = 200, body = List<MatchView>, description = "A page of subscriptions"))
)]
pub(crate) async fn matches(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<MatchView>>, Problem> {
    let filters = [Some(id.0.as_str())];
    let list = ListOf { name: "matches", tenant: Some(&caller.tenant), filters: &filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let event: EventId = id.of("event")?;
    let record = state.store().event(&caller.tenant, &event).await?;
    let record = record.ok_or_else(|| id.unknown("event"))?;
    let before: Option<SubscriptionId> = match &asked.request.cursor {
        Some(cursor) => Some(cursor.0.parse().map_err(|_| bad_cursor())?),
        None => None,
    };
    let limit = asked.request.limit;
    let index = state.engine().subscriptions_of(&caller.tenant);
    let all = index.iter().flat_map(|index| index.newest_first(before));
    let mut found: Vec<Arc<Subscription>> = all.take(limit.saturating_add(1)).cloned().collect();
    let is_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| is_more).map(|last| Cursor(last.id.to_string()));
    // Run as a job of the tenant: how long it takes depends on the filters that the tenant wrote.
    let work = move || judge_all(&found, &record);
    let items = state.engine().compute(&caller.tenant, work).await.map_err(busy)?;
    Ok(Json(List::of(&asked, Page { items, next }, |view| view)))
}

fn judge_all(subscriptions: &[Arc<Subscription>], record: &EventRecord) -> Vec<MatchView> {
    let view = EventView::new(&record.event);
    let mut steps_left = EVENT_FILTER_STEPS_MAX;
    let judge = |subscription: &Arc<Subscription>| {
        let (because, conditions) = judge(subscription, record, &view, &mut steps_left);
        MatchView {
            subscription_id: subscription.id.to_string(),
            url: subscription.url.clone(),
            matched: matches!(because, MatchReason::Matched | MatchReason::OverBudget),
            because,
            conditions,
        }
    };
    subscriptions.iter().map(judge).collect()
}

/// Judges one subscription: why it gets the event or not, and the result of each condition of its
/// filter.
fn judge(
    subscription: &Subscription,
    record: &EventRecord,
    view: &EventView<'_>,
    steps_left: &mut u64,
) -> (MatchReason, Vec<ConditionView>) {
    let event = &*record.event;
    if !subscription.enabled {
        return (MatchReason::Disabled, Vec::new());
    }
    if !subscription.types.matches(&event.kind) {
        return (MatchReason::Type, Vec::new());
    }
    let is_of_object = |object| Some(object) == event.object.as_ref();
    if !subscription.object.as_ref().is_none_or(is_of_object) {
        return (MatchReason::Object, Vec::new());
    }
    let is_later = subscription.created_at > record.accepted_at;
    let fits = if is_later { MatchReason::CreatedAfter } else { MatchReason::Matched };
    let Some(filter) = &subscription.filter else { return (fits, Vec::new()) };
    let mut within = |ask: &mut dyn FnMut(&mut Budget) -> Result<bool, OverBudget>| {
        let steps = FILTER_STEPS_MAX.min(*steps_left);
        let mut budget = Budget::new(steps);
        let answer = ask(&mut budget);
        *steps_left -= steps - budget.left();
        answer
    };
    let verdict = within(&mut |budget| filter.evaluate(view, budget));
    let mut conditions = Vec::new();
    let each = within(&mut |budget| {
        conditions = filter.conditions(view, budget)?;
        Ok(true)
    });
    let because = match verdict {
        Ok(true) => fits,
        Ok(false) => MatchReason::Filter,
        Err(OverBudget) => MatchReason::OverBudget,
    };
    let shown = conditions.into_iter().filter(|_| each.is_ok()).map(ConditionView::of);
    (because, shown.collect())
}
