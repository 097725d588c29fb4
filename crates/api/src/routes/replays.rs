//! Bulk replays: start, list, show, pause, resume, cancel.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use postrider_domain::ids::ReplayId;
use postrider_domain::job_outcomes::JobOutcomes;
use postrider_engine::CommandError;
use postrider_store::{ReplayJob, ReplayState};

use super::PathId;
use super::subscription_uid;
use super::subscriptions::PageQuery;
use crate::audit::OnlyTried;
use crate::auth::{CanManage, CanRead};
use crate::body::{Nothing, Strict, StrictOrNone};
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::replay::{DryRun, ReplayBody, ReplayView};

/// Start a bulk replay
///
/// Of every delivery that matches and has ended by now, each once. With `state` `waiting`, of every
/// delivery that matches and waits: each is attempted once, as soon as its turn comes, within every limit,
/// and its slot stays. Where its destination is disabled, one is the next probe, and the others are sent
/// when that succeeds. Deliveries of frozen destinations are skipped; where the filter names a frozen
/// destination, the call is refused: enable it with `waiting` `drain` instead. A replay with `per_second`
/// for one `destination` goes after what waits there: it pauses while the destination drains or any of its
/// deliveries is due. With `dry_run` it only counts.
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
    draw: Draw,
    Strict(mut body): Strict<ReplayBody>,
) -> Result<Response, Problem> {
    let named = body.subscription.as_deref();
    let subscription = subscription_uid::in_filter(&state, &caller.tenant, named).await?;
    body.subscription = subscription.map(|id| id.to_string());
    let (mut wish, dry_run) = body.check()?;
    if dry_run {
        let total = state.engine().count_replay(&caller.tenant, &wish).await?;
        let mut answer = Json(DryRun { dry_run, total }).into_response();
        answer.extensions_mut().insert(OnlyTried);
        return Ok(answer);
    }
    let id = ReplayId::new(draw.created_at(&state), draw.bytes("replay id")?);
    wish.id = Some(id);
    // An earlier run of this request may have started it.
    let started = match draw.repeats() {
        Some(_) => state.store().replay(&caller.tenant, id).await?,
        None => None,
    };
    let job = match started {
        // As it was at the start: this is the answer of that run.
        Some(job) => {
            let state = ReplayState::Running;
            let outcomes = JobOutcomes::default();
            ReplayJob { state, done: 0, position: None, finished_at: None, outcomes, ..job }
        }
        None => state.engine().start_replay(&caller.tenant, wish).await?,
    };
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
    let list = ListOf { name: "replays", tenant: Some(&caller.tenant), filters: &[] };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let jobs = state.store().replays(&caller.tenant, &asked.request).await?;
    Ok(Json(List::of(&asked, jobs, |job| ReplayView::of(&job))))
}

/// Show a bulk replay
///
/// With its progress, and with what became of the deliveries that it sent.
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
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<Json<ReplayView>, Problem> {
    let job = state.engine().pause_replay(&caller.tenant, id.of("replay")?).await;
    steered(&id, job)
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
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<Json<ReplayView>, Problem> {
    let job = state.engine().resume_replay(&caller.tenant, id.of("replay")?).await;
    steered(&id, job)
}

/// Cancel a bulk replay
///
/// Deliveries that it has replayed stay replayed.
#[utoipa::path(
    post, path = "/v1/replays/{id}/cancel", tag = "replays",
    params(("id" = String, Path, description = "The replay")),
    responses((status = 200, body = ReplayView, description = "As it is now"))
)]
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    StrictOrNone(Nothing {}): StrictOrNone<Nothing>,
) -> Result<Json<ReplayView>, Problem> {
    let replay = id.of("replay")?;
    // An earlier run of this request may have cancelled it.
    if draw.repeats().is_some()
        && let Some(job) = state.store().replay(&caller.tenant, replay).await?
        && job.state == ReplayState::Cancelled
    {
        return Ok(Json(ReplayView::of(&job)));
    }
    let job = state.engine().cancel_replay(&caller.tenant, replay).await;
    steered(&id, job)
}

fn steered(id: &PathId, job: Result<ReplayJob, CommandError>) -> Result<Json<ReplayView>, Problem> {
    let job = job.map_err(|error| id.refused("replay", error))?;
    Ok(Json(ReplayView::of(&job)))
}
