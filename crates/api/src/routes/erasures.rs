//! Erasures of payloads: start, list, show.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_domain::erasure::{ErasureJob, ErasureTarget};
use postrider_domain::ids::ErasureId;
use postrider_engine::Quota;
use postrider_store::{Document, DocumentKind, DocumentOrder, Expected};

use super::PathId;
use super::subscriptions::PageQuery;
use crate::auth::{CanManage, CanRead};
use crate::body::Strict;
use crate::draw::Draw;
use crate::erasing;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::Problem;
use crate::state::ApiState;
use crate::wire::erasure::{ErasureBody, ErasureView};

const KIND: DocumentKind = DocumentKind::Erasure;

/// Erase payloads
///
/// Of one event, or of all events of an object that were accepted before this request: `data`, `old`, and the
/// response bodies of all attempts, everywhere in the store. Unfinished deliveries of these events are cancelled.
/// The events stay in lists with `erased_at`, and cannot be replayed. Answered when the work is recorded; the answer's
/// `state` says how far it is. Backups are not reached.
#[utoipa::path(
    post, path = "/v1/erasures", tag = "erasures",
    request_body = ErasureBody,
    responses((status = 202, body = ErasureView, description = "Begun"))
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    Strict(body): Strict<ErasureBody>,
) -> Result<(StatusCode, Json<ErasureView>), Problem> {
    let target = body.check()?;
    if let ErasureTarget::Event(id) = &target
        && state.store().event(&caller.tenant, id).await?.is_none()
    {
        return Err(Problem::not_found("event", id.as_str()).at("event"));
    }
    let created_at = draw.created_at(&state);
    let id = ErasureId::new(created_at, draw.bytes("erasure id")?);
    let job = ErasureJob::new(id, caller.tenant.clone(), target, created_at);
    let lock = state.locks().of_quota(Quota::TenantErasuresOpen.name(), Some(&caller.tenant));
    let _turn = lock.lock().await;
    // An earlier run of this request may have begun it.
    let is_begun = match draw.repeats() {
        Some(_) => state.store().document(KIND, Some(&caller.tenant), &id.to_string()).await?,
        None => None,
    };
    if is_begun.is_none() {
        let used = state.store().count_documents(KIND, Some(&caller.tenant)).await?;
        let (engine, whose) = (state.engine(), Some(&caller.tenant));
        engine.check_quota(whose, Quota::TenantErasuresOpen, used.open.saturating_add(1))?;
        let all = state.store().count_all_documents(KIND).await?;
        engine.check_quota(whose, Quota::ErasuresOpen, all.open.saturating_add(1))?;
        if used.count >= erasing::KEPT_MAX {
            let keep = erasing::KEPT_MAX / 2;
            state.store().forget_documents(KIND, &caller.tenant, keep).await?;
        }
        state.store().put_document(&document(&job)?, &Expected::Nothing).await?;
        state.erasures().wake();
    }
    Ok((StatusCode::ACCEPTED, Json(ErasureView::of(&job))))
}

/// A job as it is stored.
pub(crate) fn document(job: &ErasureJob) -> Result<Document, Problem> {
    Ok(Document {
        kind: KIND,
        tenant: Some(job.tenant.clone()),
        name: job.id.to_string(),
        is_open: job.is_open(),
        body: serde_json::to_string(job).map_err(|_| Problem::internal())?,
    })
}

/// The job in a document.
pub(crate) fn job(document: &Document) -> Result<ErasureJob, Problem> {
    serde_json::from_str(&document.body).map_err(|_| Problem::internal())
}

/// List erasures
///
/// Newest first.
#[utoipa::path(
    get, path = "/v1/erasures", tag = "erasures", params(PageQuery),
    responses((status = 200, body = List<ErasureView>, description = "A page of erasures"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<ErasureView>>, Problem> {
    let list = ListOf { name: "erasures", tenant: Some(&caller.tenant), filters: &[] };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let order = DocumentOrder::Descending;
    let found = state.store().documents(KIND, Some(&caller.tenant), order, &asked.request).await?;
    Ok(Json(List::try_of(&asked, found, |one| Ok(ErasureView::of(&job(&one)?)))?))
}

/// Show an erasure
///
/// With its progress.
#[utoipa::path(
    get, path = "/v1/erasures/{id}", tag = "erasures",
    params(("id" = String, Path, description = "The erasure")),
    responses((status = 200, body = ErasureView, description = "The erasure"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<ErasureView>, Problem> {
    let erasure: ErasureId = id.of("erasure")?;
    let found = state.store().document(KIND, Some(&caller.tenant), &erasure.to_string()).await?;
    let found = found.ok_or_else(|| id.unknown("erasure"))?;
    Ok(Json(ErasureView::of(&job(&found)?)))
}
