//! Destinations with their circuits: list, show, enable, freeze.

use axum::Json;
use axum::extract::State;
use postrider_domain::ids::DestinationId;
use postrider_domain::limits::REASON_CHARS_MAX;
use postrider_engine::CommandError;
use postrider_store::DestinationRecord;

use super::PathId;
use super::subscriptions::PageQuery;
use crate::auth::{Caller, CanManage, CanRead};
use crate::body::StrictOrNone;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::check_text;
use crate::wire::destination::{DestinationView, ReasonBody, TransitionView};

/// List destinations
///
/// Newest first.
#[utoipa::path(
    get, path = "/v1/destinations", tag = "destinations", params(PageQuery),
    responses((status = 200, body = List<DestinationView>, description = "A page of destinations"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<DestinationView>>, Problem> {
    let list = ListOf { name: "destinations", tenant: Some(&caller.tenant), filters: &[] };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let records = state.store().destinations(&caller.tenant, &asked.request).await?;
    let ids: Vec<DestinationId> = records.items.iter().map(|record| record.id).collect();
    let waiting = state.store().waiting_counts(&caller.tenant, &ids).await?;
    let (now, policy) = (state.now(), state.policy());
    let mut waiting = waiting.into_iter();
    Ok(Json(List::of(&asked, records, |record| {
        DestinationView::of(&record, waiting.next().unwrap_or(0), now, &policy.circuit)
    })))
}

/// Show a destination
///
/// With its distance to each threshold.
#[utoipa::path(
    get, path = "/v1/destinations/{id}", tag = "destinations",
    params(("id" = String, Path, description = "The destination")),
    responses((status = 200, body = DestinationView, description = "The destination"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<DestinationView>, Problem> {
    let record = find(&state, &caller, &id).await?;
    shown(&state, &caller, &record).await
}

async fn find(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
) -> Result<DestinationRecord, Problem> {
    let record = state.store().destination(&caller.tenant, id.of("destination")?).await?;
    record.ok_or_else(|| id.unknown("destination"))
}

async fn shown(
    state: &ApiState,
    caller: &Caller,
    record: &DestinationRecord,
) -> Result<Json<DestinationView>, Problem> {
    let waiting = state.store().waiting_counts(&caller.tenant, &[record.id]).await?;
    let waiting = waiting.first().copied().unwrap_or(0);
    Ok(Json(DestinationView::of(record, waiting, state.now(), &state.policy().circuit)))
}

/// Enable a destination
///
/// Closes its circuit and resets its counters. The only way out of frozen.
#[utoipa::path(
    post, path = "/v1/destinations/{id}/enable", tag = "destinations",
    params(("id" = String, Path, description = "The destination")),
    request_body = ReasonBody,
    responses((status = 200, body = DestinationView, description = "As it is now"))
)]
pub(crate) async fn enable(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    StrictOrNone(body): StrictOrNone<ReasonBody>,
) -> Result<Json<DestinationView>, Problem> {
    let reason = check_text("reason", body.reason, REASON_CHARS_MAX)?;
    let switched = state.engine().enable(&caller.tenant, id.of("destination")?, reason).await;
    switched_to(&state, &caller, &id, switched).await
}

/// Freeze a destination
///
/// Nothing is sent to it until somebody enables it.
#[utoipa::path(
    post, path = "/v1/destinations/{id}/freeze", tag = "destinations",
    params(("id" = String, Path, description = "The destination")),
    request_body = ReasonBody,
    responses((status = 200, body = DestinationView, description = "As it is now"))
)]
pub(crate) async fn freeze(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
    StrictOrNone(body): StrictOrNone<ReasonBody>,
) -> Result<Json<DestinationView>, Problem> {
    let reason = check_text("reason", body.reason, REASON_CHARS_MAX)?;
    let switched = state.engine().freeze(&caller.tenant, id.of("destination")?, reason).await;
    switched_to(&state, &caller, &id, switched).await
}

async fn switched_to(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
    switched: Result<DestinationRecord, CommandError>,
) -> Result<Json<DestinationView>, Problem> {
    let record = switched.map_err(|error| id.refused("destination", error))?;
    shown(state, caller, &record).await
}

/// Show a destination's timeline
///
/// Every change of its state with its evidence, newest first.
#[utoipa::path(
    get, path = "/v1/destinations/{id}/timeline", tag = "destinations",
    params(("id" = String, Path, description = "The destination"), PageQuery),
    responses((status = 200, body = List<TransitionView>, description = "A page of transitions"))
)]
pub(crate) async fn timeline(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<TransitionView>>, Problem> {
    let filters = [Some(id.0.as_str())];
    let list = ListOf { name: "timeline", tenant: Some(&caller.tenant), filters: &filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let record = find(&state, &caller, &id).await?;
    let transitions = state.store().transitions(&caller.tenant, record.id, &asked.request).await?;
    Ok(Json(List::of(&asked, transitions, |transition| TransitionView::of(&transition))))
}
