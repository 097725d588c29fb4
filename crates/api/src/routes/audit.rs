//! The audit log: all of it for admins, and for each tenant its own part.

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use postrider_domain::ids::TenantId;
use postrider_store::AuditFilter;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::auth::{Caller, CanManage};
use crate::paging::{List, ListOf, Query, page, parameter};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::audit::AuditView;

/// The cursor of the next page, for answers with one entry per line.
const NEXT_CURSOR: HeaderName = HeaderName::from_static("postrider-next-cursor");
const LINES: &str = "application/x-ndjson";

/// Selects entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Entries of this tenant; only for admin keys, which see all tenants by default.
    tenant: Option<String>,
    /// Entries by the key with this identifier, or by `environment` or `server`.
    key: Option<String>,
    /// Entries with this action, such as `subscription.create`.
    action: Option<String>,
    /// Entries about the record with this identifier.
    target: Option<String>,
    /// Entries at this time or later.
    since: Option<String>,
    /// Entries before this time.
    until: Option<String>,
    /// Entries per page, 1 to 1000; 50 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// List the audit log
///
/// Who changed what, when, from where and with which outcome, newest first. An admin key sees every
/// tenant; a key with the scope `manage` sees its own. With `accept: application/x-ndjson` the page
/// is one entry a line, and the header `postrider-next-cursor` names the next one.
#[utoipa::path(
    get, path = "/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "A page of entries", content(
        (List<AuditView> = "application/json"), (String = "application/x-ndjson")
    )))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    headers: HeaderMap,
    Query(query): Query<AuditQuery>,
) -> Result<Response, Problem> {
    let tenant = whose(&caller, query.tenant.as_deref())?;
    let AuditQuery { key, action, target, since, until, .. } = &query;
    let filters = [key, action, target, since, until].map(Option::as_deref);
    let list = ListOf { name: "audit", tenant: tenant.as_ref(), filters: &filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let filter = AuditFilter {
        tenant: tenant.clone(),
        actor: query.key.clone(),
        action: query.action.clone(),
        target: query.target.clone(),
        since: parameter("since", query.since.as_deref())?,
        until: parameter("until", query.until.as_deref())?,
    };
    let entries = state.store().audit(&filter, &asked.request).await?;
    let list = List::of(&asked, entries, AuditView::of);
    let wants_lines =
        headers.get(ACCEPT).is_some_and(|accept| accept.as_bytes() == LINES.as_bytes());
    if wants_lines { lines(&list) } else { Ok(Json(list).into_response()) }
}

/// The tenant whose entries are requested; `None` for all.
fn whose(caller: &Caller, tenant: Option<&str>) -> Result<Option<TenantId>, Problem> {
    let named: Option<TenantId> = parameter("tenant", tenant)?;
    if caller.is_admin() {
        return Ok(named);
    }
    match named {
        Some(named) if named != caller.tenant => {
            let detail = "the key belongs to another tenant: leave the tenant out";
            Err(Problem::new(Code::MissingScope, detail).at("tenant"))
        }
        Some(_) | None => Ok(Some(caller.tenant.clone())),
    }
}

/// A page with one entry per line.
fn lines(list: &List<AuditView>) -> Result<Response, Problem> {
    let mut text = Vec::new();
    for entry in list.entries() {
        serde_json::to_writer(&mut text, entry).map_err(|_| Problem::internal())?;
        text.push(b'\n');
    }
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(LINES));
    if let Some(cursor) = list.next_cursor() {
        let cursor = HeaderValue::from_str(cursor).map_err(|_| Problem::internal())?;
        response.headers_mut().insert(NEXT_CURSOR, cursor);
    }
    Ok(response)
}
