//! Tenants, for admins.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_domain::ids::TenantId;
use postrider_engine::Quota;
use postrider_store::{PageRequest, StoreError, Tenant, TenantDetails};

use super::PathId;
use super::subscriptions::PageQuery;
use crate::auth::IsAdmin;
use crate::body::Strict;
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::tenant::{TenantBody, TenantChange, TenantView};

/// Create a tenant
///
/// The identifier is the application's own. The body of an existing tenant answers that tenant with 200, so that an
/// application need not remember which ones it has created.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "administration",
    request_body = TenantBody,
    responses(
        (status = 201, body = TenantView, description = "Created"),
        (status = 200, body = TenantView, description = "It existed already, as the body says")
    )
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    draw: Draw,
    Strict(body): Strict<TenantBody>,
) -> Result<(StatusCode, Json<TenantView>), Problem> {
    let (id, rest) = body.split();
    let id = id.ok_or_else(|| Problem::missing("id"))?;
    let id: TenantId = id.parse().map_err(|error| Problem::field("id", error))?;
    let created_at = draw.created_at(&state);
    let mut tenant = Tenant { id, name: None, created_at, details: TenantDetails::default() };
    rest.apply(&mut tenant)?;
    let lock = state.locks().of_quota(Quota::Tenants.name(), None);
    let _turn = lock.lock().await;
    let there = state.store().tenant(&tenant.id).await?;
    if there.is_none() {
        let tenants = state.store().tenant_count().await?;
        state.engine().check_quota(None, Quota::Tenants, tenants.saturating_add(1))?;
    }
    // An existing tenant with this request's creation time was created by an earlier run of it.
    let is_ours = draw.repeats().is_some() && there.as_ref() == Some(&tenant);
    if !is_ours && let Some(there) = there.filter(|there| describes(&tenant, there)) {
        return Ok((StatusCode::OK, Json(TenantView::of(&there))));
    }
    if !is_ours && !state.store().create_tenant(&tenant).await? {
        let detail = format!(
            "the tenant {} exists already, and not as this body says: change it with PATCH",
            tenant.id
        );
        return Err(Problem::new(Code::AlreadyExists, detail).at("id").existing(&tenant.id));
    }
    state.engine().tenant_changed(&tenant.id, Some(&tenant));
    Ok((StatusCode::CREATED, Json(TenantView::of(&tenant))))
}

/// Whether both are the same tenant, but for when it was created.
fn describes(asked: &Tenant, there: &Tenant) -> bool {
    *asked == Tenant { created_at: asked.created_at, ..there.clone() }
}

/// Change a tenant
///
/// Absent fields stay unchanged, null removes a value. A limit of its own holds at once; on other nodes of a cluster
/// within seconds. One that is below what the tenant has already takes nothing away.
#[utoipa::path(
    patch, path = "/v1/tenants/{id}", tag = "administration",
    params(("id" = String, Path, description = "The tenant")),
    request_body = TenantChange,
    responses((status = 200, body = TenantView, description = "As it is now"))
)]
pub(crate) async fn change(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    id: PathId,
    Strict(body): Strict<TenantChange>,
) -> Result<Json<TenantView>, Problem> {
    let tenant: TenantId = id.of("tenant")?;
    let lock = state.locks().of_quota(Quota::Tenants.name(), Some(&tenant));
    let _turn = lock.lock().await;
    let found = state.store().tenant(&tenant).await?;
    let mut tenant = found.ok_or_else(|| id.unknown("tenant"))?;
    body.apply(&mut tenant)?;
    if !state.store().update_tenant(&tenant).await? {
        return Err(id.unknown("tenant"));
    }
    state.engine().tenant_changed(&tenant.id, Some(&tenant));
    Ok(Json(TenantView::of(&tenant)))
}

/// List tenants
///
/// By identifier.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "administration", params(PageQuery),
    responses((status = 200, body = List<TenantView>, description = "A page of tenants"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<TenantView>>, Problem> {
    let list = ListOf { name: "tenants", tenant: None, filters: &[] };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let tenants = state.store().tenants(&asked.request).await?;
    Ok(Json(List::of(&asked, tenants, |tenant| TenantView::of(&tenant))))
}

/// Show a tenant
#[utoipa::path(
    get, path = "/v1/tenants/{id}", tag = "administration",
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 200, body = TenantView, description = "The tenant"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    id: PathId,
) -> Result<Json<TenantView>, Problem> {
    let tenant = state.store().tenant(&id.of("tenant")?).await?;
    let tenant = tenant.ok_or_else(|| id.unknown("tenant"))?;
    Ok(Json(TenantView::of(&tenant)))
}

/// Delete a tenant
///
/// With its keys. Its subscriptions must be deleted first; the tenant `default` stays.
#[utoipa::path(
    delete, path = "/v1/tenants/{id}", tag = "administration",
    params(("id" = String, Path, description = "The tenant")),
    responses((status = 204, description = "Deleted"))
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    draw: Draw,
    id: PathId,
) -> Result<StatusCode, Problem> {
    let tenant: TenantId = id.of("tenant")?;
    if tenant == TenantId::default_tenant() {
        return Err(Problem::new(Code::TenantInUse, "the tenant default is always there"));
    }
    let in_use = || {
        let detail = "the tenant has subscriptions, or deliveries of deleted ones are still being \
                      cancelled: delete them, then try again";
        Problem::new(Code::TenantInUse, detail)
    };
    let one = PageRequest { limit: 1, cursor: None };
    if !state.store().subscriptions(&tenant, &one).await?.items.is_empty() {
        return Err(in_use());
    }
    let deleted = match state.store().delete_tenant(&tenant).await {
        Ok(deleted) => deleted,
        // A subscription was created meanwhile, or is marked as deleted and not removed yet.
        Err(StoreError::Internal(_)) => return Err(in_use()),
        Err(error) => return Err(error.into()),
    };
    state.key_cache().forget_tenant(&tenant);
    state.passes().forget_tenant(&tenant);
    state.engine().tenant_changed(&tenant, None);
    state.catalogue().forget(Some(&tenant));
    // What is gone may have been deleted by an earlier run of this request.
    let is_gone = deleted || draw.repeats().is_some();
    if is_gone { Ok(StatusCode::NO_CONTENT) } else { Err(id.unknown("tenant")) }
}
