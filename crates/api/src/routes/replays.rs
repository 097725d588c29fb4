//! Bulk replays: start, look, pause, resume, cancel.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use postrider_domain::ids::ReplayId;
use postrider_store::{ReplayJob, ReplayState};

use super::PathId;
use super::subscriptions::PageQuery;
use crate::auth::{CanManage, CanRead, Caller};
use crate::body::Strict;
use crate::paging::{List, Query, page};
use crate::problem::Problem;
use crate::random;
use crate::state::ApiState;
use crate::wire::replay::{DryRun, ReplayBody, ReplayView};

/// Start a bulk replay
///
/// Of every delivery that matches and has ended by now, each once. With `dry_run` it only counts.
#[utoipa::path(
    post, path = "/v1/replays", tag = "replays",
    request_body = ReplayBody,
    responses(
        (status = 200, body = DryRun, description = "How many it would be"),
        (status = 201, body = ReplayView, description = "Started")
    )
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    Strict(body): Strict<ReplayBody>,
) -> Result<Response, Problem> {
    let wish = body.check()?;
    let total = state.store().count_deliveries(&caller.tenant, &wish.filter).await?;
    if wish.dry_run {
        return Ok(Json(DryRun { dry_run: true, total }).into_response());
    }
    let now = state.now();
    let job = ReplayJob {
        id: ReplayId::new(now, random::bytes()?),
        tenant: caller.tenant,
        filter: wish.filter,
        per_second: wish.per_second,
        created_at: now,
        state: ReplayState::Running,
        total,
        done: 0,
        position: None,
        finished_at: None,
    };
    let job = state.engine().start_replay(job).await?;
    Ok((StatusCode::CREATED, Json(ReplayView::of(&job))).into_response())
}

/// List bulk replays
///
/// Newest first.
#[utoipa::path(
    get, path = "/v1/replays", tag = "replays", params(PageQuery),
    responses((status = 200, body = List<ReplayView>, description = "A page of replays"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<ReplayView>>, Problem> {
    let page = page(query.limit.as_deref(), query.cursor.as_deref())?;
    let jobs = state.store().replays(&caller.tenant, &page).await?;
    Ok(Json(List::of(jobs, |job| ReplayView::of(&job))))
}

/// Show a bulk replay
///
/// With its progress.
#[utoipa::path(
    get, path = "/v1/replays/{id}", tag = "replays",
    params(("id" = String, Path, description = "The replay")),
    responses((status = 200, body = ReplayView, description = "The replay"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<ReplayView>, Problem> {
    let job = state.store().replay(&caller.tenant, id.of("replay")?).await?;
    let job = job.ok_or_else(|| id.unknown("replay"))?;
    Ok(Json(ReplayView::of(&job)))
}

/// Pause a bulk replay
#[utoipa::path(
    post, path = "/v1/replays/{id}/pause", tag = "replays",
    params(("id" = String, Path, description = "The replay")),
    responses((status = 200, body = ReplayView, description = "As it is now"))
)]
pub(crate) async fn pause(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
) -> Result<Json<ReplayView>, Problem> {
    steer(&state, &caller, &id, ReplayState::Paused).await
}

/// Resume a bulk replay
#[utoipa::path(
    post, path = "/v1/replays/{id}/resume", tag = "replays",
    params(("id" = String, Path, description = "The replay")),
    responses((status = 200, body = ReplayView, description = "As it is now"))
)]
pub(crate) async fn resume(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
) -> Result<Json<ReplayView>, Problem> {
    steer(&state, &caller, &id, ReplayState::Running).await
}

/// Cancel a bulk replay
///
/// What it has replayed stays replayed.
#[utoipa::path(
    post, path = "/v1/replays/{id}/cancel", tag = "replays",
    params(("id" = String, Path, description = "The replay")),
    responses((status = 200, body = ReplayView, description = "As it is now"))
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    id: PathId,
) -> Result<Json<ReplayView>, Problem> {
    steer(&state, &caller, &id, ReplayState::Cancelled).await
}

async fn steer(
    state: &ApiState,
    caller: &Caller,
    id: &PathId,
    to: ReplayState,
) -> Result<Json<ReplayView>, Problem> {
    let job = state.engine().steer_replay(&caller.tenant, id.of("replay")?, to).await?;
    let job = job.ok_or_else(|| id.unknown("replay"))?;
    Ok(Json(ReplayView::of(&job)))
}
