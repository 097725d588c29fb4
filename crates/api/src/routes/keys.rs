//! Keys, for admins.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use postrider_engine::Quota;
use postrider_store::Key;
use serde::Deserialize;
use utoipa::IntoParams;

use super::PathId;
use crate::auth::{GivenAdmin, IsAdmin, NewKey, View, new_key};
use crate::body::Strict;
use crate::draw::Draw;
use crate::paging::{List, ListOf, ListRequest, Query, page, parameter};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::check_name;
use crate::wire::key::{KeyBody, KeyCreated, KeyView};

/// Create a key
///
/// The key itself is shown only in this answer.
#[utoipa::path(
    post, path = "/v1/keys", tag = "administration",
    request_body = KeyBody,
    responses((status = 201, body = KeyCreated, description = "Created"))
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    IsAdmin(caller): IsAdmin,
    draw: Draw,
    Strict(body): Strict<KeyBody>,
) -> Result<(StatusCode, Json<KeyCreated>), Problem> {
    let now = draw.created_at(&state);
    let scopes = check_scopes(&body.scopes.ok_or_else(|| Problem::missing("scopes"))?)?;
    let is_admin = scopes.contains(&Scope::Admin);
    let tenant = match parameter::<TenantId>("tenant", body.tenant.as_deref())? {
        Some(_) if is_admin => {
            let why = "an admin key is for all tenants: leave the tenant out, or the scope admin";
            return Err(Problem::field("tenant", why));
        }
        None if is_admin => None,
        None => Some(caller.tenant),
        Some(tenant) => Some(tenant),
    };
    if let Some(tenant) = &tenant
        && state.store().tenant(tenant).await?.is_none()
        && *tenant != TenantId::default_tenant()
    {
        return Err(Problem::field("tenant", "there is no such tenant: create it first"));
    }
    let expires_at = parameter("expires_at", body.expires_at.as_deref())?;
    if expires_at.is_some_and(|at| at <= now) {
        return Err(Problem::field("expires_at", "a time that is still to come"));
    }
    let wish = NewKey { tenant, name: check_name(body.name)?, scopes, expires_at };
    let (key, text) = new_key(state.vault(), wish, now, &draw)?;
    let lock = state.locks().of_quota(Quota::TenantKeys.name(), key.tenant.as_ref());
    let _turn = lock.lock().await;
    // An existing key was created by an earlier run of this request.
    if state.store().key(&key.id).await?.is_none() {
        let keys = state.store().usage(key.tenant.as_ref()).await?.keys;
        state.engine().check_quota(
            key.tenant.as_ref(),
            Quota::TenantKeys,
            keys.saturating_add(1),
        )?;
    }
    if !state.store().create_key(&key).await? && draw.repeats().is_none() {
        return Err(Problem::internal());
    }
    let created = KeyCreated { view: KeyView::of(&key), key: text.to_string() };
    Ok((StatusCode::CREATED, Json(created)))
}

fn check_scopes(texts: &[String]) -> Result<Vec<Scope>, Problem> {
    let mut scopes = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let scope = text.parse().map_err(|error| Problem::field(format!("scopes[{n}]"), error))?;
        if !scopes.contains(&scope) {
            scopes.push(scope);
        }
    }
    if scopes.is_empty() {
        return Err(Problem::field("scopes", "at least one of ingest, manage, read, admin"));
    }
    scopes.sort_unstable();
    Ok(scopes)
}

/// Selects keys.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct KeyQuery {
    /// Keys of this tenant; by default of the tenant that the header `postrider-tenant` names, and where that names
    /// none, or `*`, all keys.
    tenant: Option<String>,
    /// `admin`: the admin keys, which belong to no tenant.
    scope: Option<String>,
    /// Entries per page, 1 to 1000; 50 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List keys
///
/// All keys with their tenants, admin keys included, or those of one tenant, or the admin keys alone; newest first.
/// The admin key that the operator chose (`POSTRIDER_ADMIN_KEY`) is the first row, with the identifier `given`.
#[utoipa::path(
    get, path = "/v1/keys", tag = "administration", params(KeyQuery),
    responses((status = 200, body = List<KeyView>, description = "A page of keys"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    IsAdmin(caller): IsAdmin,
    Query(query): Query<KeyQuery>,
) -> Result<Json<List<KeyView>>, Problem> {
    let tenant = parameter("tenant", query.tenant.as_deref())?;
    let named = (caller.view == View::Named).then_some(caller.tenant);
    let whose = match (query.scope.as_deref(), tenant) {
        (None, tenant) => match tenant.or(named) {
            Some(tenant) => Some(tenant),
            None => return all_keys(&state, &query).await,
        },
        (Some("admin"), None) => None,
        (Some("admin"), Some(_)) => {
            return Err(Problem::field("tenant", "admin keys belong to no tenant: leave it out"));
        }
        (Some(_), _) => return Err(Problem::field("scope", "`admin`, or leave it out")),
    };
    let list = ListOf { name: "keys", tenant: whose.as_ref(), filters: &[] };
    let mut asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let given = if whose.is_none() { given_key(&state, &mut asked) } else { None };
    let keys = state.store().keys(whose.as_ref(), &asked.request).await?;
    Ok(Json(List::of(&asked, keys, |key| KeyView::of(&key)).beginning_with(given)))
}

/// The key of `POSTRIDER_ADMIN_KEY`, which is not in the store: it is the first row of the first page,
/// and takes one of its places. A page with a single place does not have it.
fn given_key(state: &ApiState, asked: &mut ListRequest) -> Option<KeyView> {
    let is_first = asked.request.cursor.is_none() && asked.request.limit > 1;
    let given = shown_given(state).filter(|_| is_first)?;
    asked.request.limit -= 1;
    Some(given)
}

fn shown_given(state: &ApiState) -> Option<KeyView> {
    state.given_admin().map(|_| KeyView::given(state.process().about().started_at))
}

/// The keys of all tenants, and the admin keys.
async fn all_keys(state: &ApiState, query: &KeyQuery) -> Result<Json<List<KeyView>>, Problem> {
    let list = ListOf { name: "all keys", tenant: None, filters: &[] };
    let mut asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let given = given_key(state, &mut asked);
    let keys = state.store().keys_of_all(&asked.request).await?;
    Ok(Json(List::of(&asked, keys, |key| KeyView::of(&key)).beginning_with(given)))
}

/// Show a key
///
/// Without the key itself.
#[utoipa::path(
    get, path = "/v1/keys/{id}", tag = "administration",
    params(("id" = String, Path, description = "The key's public part")),
    responses((status = 200, body = KeyView, description = "The key"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
    id: PathId,
) -> Result<Json<KeyView>, Problem> {
    if let Some(given) = shown_given(&state).filter(|_| id.0 == GivenAdmin::KEY_ID) {
        return Ok(Json(given));
    }
    Ok(Json(KeyView::of(&find(&state, &id).await?)))
}

async fn find(state: &ApiState, id: &PathId) -> Result<Key, Problem> {
    state.store().key(&id.0).await?.ok_or_else(|| id.unknown("key"))
}

/// Delete a key
///
/// It stops working at once; on other nodes of a cluster within seconds. The key `given` is not deleted here: it is
/// `POSTRIDER_ADMIN_KEY` of the server's environment.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", tag = "administration",
    params(("id" = String, Path, description = "The key's public part")),
    responses((status = 204, description = "Deleted"))
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    IsAdmin(caller): IsAdmin,
    draw: Draw,
    id: PathId,
) -> Result<StatusCode, Problem> {
    if id.0 == GivenAdmin::KEY_ID && state.given_admin().is_some() {
        let detail =
            "this is the key of POSTRIDER_ADMIN_KEY: change it there, and restart the server";
        return Err(Problem::new(Code::KeyInUse, detail));
    }
    let key = match state.store().key(&id.0).await? {
        Some(key) => key,
        // An earlier run of this request has deleted it.
        None if draw.repeats().is_some() => return Ok(StatusCode::NO_CONTENT),
        None => return Err(id.unknown("key")),
    };
    if *caller.key_id == *key.id {
        let detail = "this is the key that makes the request: delete it with another one";
        return Err(Problem::new(Code::KeyInUse, detail));
    }
    let deleted = state.store().delete_key(key.tenant.as_ref(), &key.id).await?;
    state.key_cache().forget_key(&key.id);
    if deleted { Ok(StatusCode::NO_CONTENT) } else { Err(id.unknown("key")) }
}
