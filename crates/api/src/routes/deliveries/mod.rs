//! Deliveries: list, show, explain, retry, replay, cancel.

mod in_flight;
pub(crate) mod request;
mod schedule;
pub(crate) mod summaries;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::explain::{self, Facts};
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::limits::PAGE_MAX;
use postrider_domain::time::Timestamp;
use postrider_store::{Cursor, DeliveryFilter, Page, PageRequest, Span};
use serde::Deserialize;
use utoipa::IntoParams;

use super::PathId;
use super::subscription_uid;
use super::subscriptions::PageQuery;
use crate::auth::{Caller, CanManage, CanRead, CanReadAll, one_tenant};
use crate::body::{Nothing, StrictOrNone};
use crate::draw::Draw;
use crate::paging::{List, ListOf, ListRequest, Query, page, parameter};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::delivery::{AttemptView, DeliveryDetail, DeliveryView, is_in_flight};
use crate::wire::explanation::ExplanationView;

/// Selects deliveries.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeliveryQuery {
    /// Deliveries in this state: `queued`, `in_flight`, `waiting`, `delivered`, `dead` or
    /// `cancelled`.
    state: Option<String>,
    /// Deliveries to this destination.
    destination: Option<String>,
    /// Deliveries for this subscription, by its id or its uid.
    subscription: Option<String>,
    /// Deliveries of this event.
    event: Option<String>,
    /// Deliveries of events of this type.
    #[serde(rename = "type")]
    #[param(required = false)]
    kind: Option<String>,
    /// Deliveries of events of this object.
    object: Option<String>,
    /// Deliveries accepted at this time or later.
    since: Option<String>,
    /// Deliveries accepted before this time.
    until: Option<String>,
    /// Entries per page, 1 to 1000; 50 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// The first page of `GET /v1/deliveries?event=…`, as long as may be.
pub(crate) fn first_of_event(tenant: &TenantId, event: &EventId) -> Result<ListRequest, Problem> {
    let query = DeliveryQuery { event: Some(event.to_string()), ..DeliveryQuery::default() };
    let list = ListOf { name: "deliveries", tenant: Some(tenant), filters: &query.given() };
    let mut asked = page(list, None, None)?;
    asked.request.limit = PAGE_MAX;
    Ok(asked)
}

impl DeliveryQuery {
    /// The filters as they were given.
    fn given(&self) -> Vec<Option<&str>> {
        let mut given = vec![
            self.state.as_deref(),
            self.destination.as_deref(),
            self.subscription.as_deref(),
            self.event.as_deref(),
            self.kind.as_deref(),
            self.since.as_deref(),
            self.until.as_deref(),
        ];
        // Without an object the list is the one that cursors of earlier versions are good for.
        given.extend(self.object.as_deref().map(Some));
        given
    }

    async fn filter(&self, state: &ApiState, caller: &Caller) -> Result<DeliveryFilter, Problem> {
        let subscription = self.subscription.as_deref();
        Ok(DeliveryFilter {
            state: self.state.as_deref().map(parse_state).transpose()?,
            destination: parameter("destination", self.destination.as_deref())?,
            subscription: subscription_uid::in_filter(state, &caller.tenant, subscription).await?,
            event: parameter("event", self.event.as_deref())?,
            kind: parameter("type", self.kind.as_deref())?,
            since: parameter("since", self.since.as_deref())?,
            until: parameter("until", self.until.as_deref())?,
            ended_since: None,
        })
    }
}

/// Parses one of the six states.
pub(crate) fn parse_state(text: &str) -> Result<StateName, Problem> {
    let found = StateName::ALL.into_iter().find(|state| state.as_str() == text);
    found.ok_or_else(|| {
        Problem::field("state", "one of queued, in_flight, waiting, delivered, dead, cancelled")
    })
}

/// List deliveries
///
/// Newest first. A page may have fewer entries than asked for and yet a `next_cursor`: deliveries
/// that are in flight at this moment are left out of `queued` and `waiting`. An admin key that names the tenant `*`
/// gets those of all tenants, each with its `tenant`; its filters are `state`, `since` and `until`.
#[utoipa::path(
    get, path = "/v1/deliveries", tag = "deliveries", params(DeliveryQuery),
    responses((status = 200, body = List<DeliveryView>, description = "A page of deliveries"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanReadAll(caller): CanReadAll,
    Query(query): Query<DeliveryQuery>,
) -> Result<Json<List<DeliveryView>>, Problem> {
    let tenant = (!caller.sees_all()).then_some(&caller.tenant);
    let list = ListOf { name: "deliveries", tenant, filters: &query.given() };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    if caller.sees_all() {
        return of_all_tenants(&state, &query, &asked).await.map(Json);
    }
    let filter = query.filter(&state, &caller).await?;
    let object = parameter("object", query.object.as_deref())?;
    if filter.state == Some(StateName::InFlight) {
        if object.is_some() {
            let detail =
                "deliveries in flight are not listed by object: leave out the state or the object";
            return Err(Problem::field("object", detail));
        }
        return in_flight::list(&state, &caller, filter, &asked).await.map(Json);
    }
    let (store, request) = (state.store(), &asked.request);
    let found = match &object {
        Some(object) => {
            store.deliveries_of_object(&caller.tenant, object, &filter, request).await?
        }
        None => store.list_deliveries(&caller.tenant, &filter, request).await?,
    };
    let views = DeliveryView::of_all(&state, &found.items).await?;
    let is_wanted = |view: &DeliveryView| filter.state.is_none_or(|state| view.state() == state);
    let items = views.into_iter().filter(is_wanted).collect();
    Ok(Json(List::of(&asked, Page { items, next: found.next }, |view| view)))
}

/// The deliveries of all tenants.
async fn of_all_tenants(
    state: &ApiState,
    query: &DeliveryQuery,
    asked: &ListRequest,
) -> Result<List<DeliveryView>, Problem> {
    let DeliveryQuery { destination, subscription, event, kind, object, .. } = query;
    if [destination, subscription, event, kind, object].into_iter().any(Option::is_some) {
        let why = "deliveries of all tenants are listed by state, since and until";
        return Err(one_tenant(why));
    }
    let wanted = query.state.as_deref().map(parse_state).transpose()?;
    if wanted == Some(StateName::InFlight) {
        return Err(one_tenant("deliveries in flight are listed for one tenant"));
    }
    let span = Span {
        since: parameter("since", query.since.as_deref())?,
        until: parameter("until", query.until.as_deref())?,
    };
    let found = state.store().deliveries_of_all(wanted, span, &asked.request).await?;
    let views = DeliveryView::of_all(state, &found.items).await?;
    let mut items = Vec::with_capacity(views.len());
    for (mut view, delivery) in views.into_iter().zip(&found.items) {
        view.tenant = Some(delivery.tenant.to_string());
        if wanted.is_none_or(|wanted| view.state() == wanted) {
            items.push(view);
        }
    }
    Ok(List::of(asked, Page { items, next: found.next }, |view| view))
}

/// Show a delivery
///
/// With the attempts that were made, oldest first, and the slots of its schedule: what became of each,
/// and when those that come fall due. Where the attempts are very many or very large, `attempt_log` has
/// the first of them, and `attempt_log_cursor` is the cursor for the others at
/// `/v1/deliveries/{id}/attempts`.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = DeliveryDetail, description = "The delivery"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<DeliveryDetail>, Problem> {
    let delivery = find(&state, &caller, &id).await?;
    let mut asked = asked_of_log(&caller, &id, None, None)?;
    asked.request.limit = PAGE_MAX;
    let log = state.store().attempt_page(&caller.tenant, delivery.id, &asked.request).await?;
    let attempt_log =
        log.items.iter().map(|attempt| AttemptView::of(attempt, caller.is_admin())).collect();
    let attempt_log_cursor = log.next.as_ref().map(|next| asked.shown(next));
    let in_flight = is_in_flight(&state, &delivery).await?;
    let schedule = schedule::of(&state, &delivery, in_flight, log).await?;
    let delivery = DeliveryView::of(&delivery, in_flight);
    Ok(Json(DeliveryDetail { delivery, attempt_log, attempt_log_cursor, schedule }))
}

/// List the attempts of a delivery
///
/// Oldest first. A page ends early if its attempts are together large.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}/attempts", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery"), PageQuery),
    responses((status = 200, body = List<AttemptView>, description = "A page of attempts"))
)]
pub(crate) async fn attempts(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<AttemptView>>, Problem> {
    let asked = asked_of_log(&caller, &id, query.limit.as_deref(), query.cursor.as_deref())?;
    let delivery = find(&state, &caller, &id).await?;
    let log = state.store().attempt_page(&caller.tenant, delivery.id, &asked.request).await?;
    let for_admin = caller.is_admin();
    Ok(Json(List::of(&asked, log, |attempt| AttemptView::of(&attempt, for_admin))))
}

/// The requested page of a delivery's attempts.
fn asked_of_log(
    caller: &Caller,
    id: &PathId,
    limit: Option<&str>,
    cursor: Option<&str>,
) -> Result<ListRequest, Problem> {
    let filters = [Some(id.0.as_str())];
    page(
        ListOf { name: "attempts", tenant: Some(&caller.tenant), filters: &filters },
        limit,
        cursor,
    )
}

async fn find(state: &ApiState, caller: &Caller, id: &PathId) -> Result<Delivery, Problem> {
    let delivery = state.store().delivery(&caller.tenant, id.of("delivery")?).await?;
    delivery.ok_or_else(|| id.unknown("delivery"))
}

/// Explain a delivery
///
/// As sentences and as data: its state, the reasons, what happens next and when, and what would
/// unblock it.
#[utoipa::path(
    get, path = "/v1/deliveries/{id}/explain", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = ExplanationView, description = "The explanation"))
)]
pub(crate) async fn explain(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<ExplanationView>, Problem> {
    let delivery = find(&state, &caller, &id).await?;
    let store = state.store();
    let destination = store.destination(&caller.tenant, delivery.destination).await?;
    let subscription = store.subscription(&caller.tenant, delivery.subscription).await?;
    // Read only the last attempt: its number is the number of attempts.
    let before_last = delivery.attempts.checked_sub(1).filter(|number| *number > 0);
    let last = PageRequest { limit: 1, cursor: before_last.map(|n| Cursor(n.to_string())) };
    let last = store.attempt_page(&caller.tenant, delivery.id, &last).await?;
    let in_flight = is_in_flight(&state, &delivery).await?;
    let standing = state.engine().standing(&delivery).await?;
    let facts = Facts {
        delivery: &delivery,
        in_flight,
        destination: destination.as_ref(),
        subscription: subscription.as_ref().map(|record| &record.subscription),
        last_attempt: last.items.last(),
        standing: standing.as_ref(),
    };
    let explanation = explain::explain(&facts, state.now(), &state.policy());
    Ok(Json(ExplanationView::of(DeliveryView::of(&delivery, in_flight), explanation)))
}

/// Retry a delivery now
///
/// Attempts a waiting delivery as soon as its turn comes, within all limits, without waiting for
/// its slot. This takes no slot: its future slots stay. If its destination is disabled, it is the
/// next probe; if it is frozen, the call is refused: enable the destination first. To send a
/// delivery again that has ended, replay it.
#[utoipa::path(
    post, path = "/v1/deliveries/{id}/retry", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 202, body = DeliveryView, description = "As it is now"))
)]
pub(crate) async fn retry(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<(StatusCode, Json<DeliveryView>), Problem> {
    // An earlier run of this request has requested the attempt, which may have been made already.
    let is_done = |delivery: &Delivery, begun_at| {
        delivery.is_asked_for() || delivery.last_attempt_at.is_some_and(|at| at >= begun_at)
    };
    if let Some(view) = done_before(&state, &caller, &draw, &id, is_done).await? {
        return Ok((StatusCode::ACCEPTED, Json(view)));
    }
    let retried = state.engine().retry(&caller.tenant, id.of("delivery")?).await;
    let delivery = retried.map_err(|error| id.refused("delivery", error))?;
    Ok((StatusCode::ACCEPTED, Json(DeliveryView::of(&delivery, false))))
}

/// The current delivery, if an earlier run of the same request has changed it already.
async fn done_before(
    state: &ApiState,
    caller: &Caller,
    draw: &Draw,
    id: &PathId,
    is_done: impl FnOnce(&Delivery, Timestamp) -> bool,
) -> Result<Option<DeliveryView>, Problem> {
    let Some(begun_at) = draw.repeats() else { return Ok(None) };
    let delivery = find(state, caller, id).await?;
    if !is_done(&delivery, begun_at) {
        return Ok(None);
    }
    DeliveryView::of_one(state, &delivery).await.map(Some)
}

/// Replay a delivery
///
/// Starts a new schedule at once for a delivery that has ended. Its attempt log continues.
#[utoipa::path(
    post, path = "/v1/deliveries/{id}/replay", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 202, body = DeliveryView, description = "As it is now"))
)]
pub(crate) async fn replay(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<(StatusCode, Json<DeliveryView>), Problem> {
    // It had ended when this request began. If it is unfinished, or ended later, an earlier run of
    // this request has replayed it.
    let is_done =
        |delivery: &Delivery, begun_at| delivery.finished_at().is_none_or(|at| at >= begun_at);
    if let Some(view) = done_before(&state, &caller, &draw, &id, is_done).await? {
        return Ok((StatusCode::ACCEPTED, Json(view)));
    }
    refuse_erased(&state, &find(&state, &caller, &id).await?).await?;
    let replayed = state.engine().replay(&caller.tenant, id.of("delivery")?).await;
    let delivery = replayed.map_err(|error| id.refused("delivery", error))?;
    Ok((StatusCode::ACCEPTED, Json(DeliveryView::of(&delivery, false))))
}

/// Refuses what needs the payload of an event whose payload was erased.
async fn refuse_erased(state: &ApiState, delivery: &Delivery) -> Result<(), Problem> {
    let event = state.store().event(&delivery.tenant, &delivery.event).await?;
    match event.and_then(|record| record.mark.erased_at) {
        None => Ok(()),
        Some(at) => {
            let detail = format!("the payload of event {} was erased at {at}", delivery.event);
            Err(Problem::new(Code::EventErased, detail))
        }
    }
}

/// Cancel a delivery
///
/// Cancels a delivery that has not ended.
#[utoipa::path(
    post, path = "/v1/deliveries/{id}/cancel", tag = "deliveries",
    params(("id" = String, Path, description = "The delivery")),
    responses((status = 200, body = DeliveryView, description = "As it is now"))
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<Json<DeliveryView>, Problem> {
    // An earlier run of this request may have cancelled it.
    let is_done = |delivery: &Delivery, _| delivery.state.name() == StateName::Cancelled;
    if let Some(view) = done_before(&state, &caller, &draw, &id, is_done).await? {
        return Ok(Json(view));
    }
    let cancelled = state.engine().cancel(&caller.tenant, id.of("delivery")?).await;
    let delivery = cancelled.map_err(|error| id.refused("delivery", error))?;
    Ok(Json(DeliveryView::of(&delivery, false)))
}
