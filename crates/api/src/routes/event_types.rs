//! The catalogue of event types.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use postrider_domain::access::Scope;
use postrider_domain::catalogue::bounds::SchemaFault;
use postrider_domain::event::EventType;
use postrider_domain::ids::TenantId;
use postrider_domain::limits::SCHEMA_STEPS_MAX;
use postrider_engine::Quota;
use postrider_store::{Cursor, Document, DocumentKind, DocumentOrder, Expected, Page, PageRequest};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::{PathId, busy};
use crate::auth::{Caller, CanManage, CanRead};
use crate::body::Strict;
use crate::catalogue::{Schema, StoredType};
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::event_type::{EventTypeBody, EventTypeChange, EventTypeView, ScopeWord};

const KIND: DocumentKind = DocumentKind::EventType;

/// Selects event types.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TypesQuery {
    /// `server` for those of the server alone, `tenant` for the tenant's own; both by default.
    scope: Option<String>,
    /// Entries per page, 1 to 1000; 50 by default.
    limit: Option<String>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Whose type is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ScopeQuery {
    /// `tenant`, or `server` for the type that all tenants have.
    scope: Option<String>,
}

fn parse_scope(text: Option<&str>) -> Result<Option<ScopeWord>, Problem> {
    match text {
        None => Ok(None),
        Some("tenant") => Ok(Some(ScopeWord::Tenant)),
        Some("server") => Ok(Some(ScopeWord::Server)),
        Some(_) => Err(Problem::field("scope", "one of tenant, server")),
    }
}

/// The tenant whose type is changed; `None` for the server, which takes an admin key.
fn owner<'c>(caller: &'c Caller, scope: Option<&str>) -> Result<Option<&'c TenantId>, Problem> {
    match parse_scope(scope)? {
        None | Some(ScopeWord::Tenant) => Ok(Some(&caller.tenant)),
        Some(ScopeWord::Server) => caller.permits(Scope::Admin).map(|()| None),
    }
}

fn word(owner: Option<&TenantId>) -> ScopeWord {
    if owner.is_some() { ScopeWord::Tenant } else { ScopeWord::Server }
}

/// Add an event type
///
/// To the tenant's catalogue, or with `scope` `server` to the one of all tenants. The schema must be bounded in its
/// work: references stay inside it, and a few keywords are refused. The example must fit it.
#[utoipa::path(
    post, path = "/v1/event-types", tag = "event types",
    request_body = EventTypeBody,
    responses((status = 201, body = EventTypeView, description = "Added"))
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    Strict(body): Strict<EventTypeBody>,
) -> Result<(StatusCode, Json<EventTypeView>), Problem> {
    let owner = owner(&caller, body.scope.as_deref())?.cloned();
    let name = body.name.clone().ok_or_else(|| Problem::missing("name"))?;
    let name: EventType = name.parse().map_err(|error| Problem::field("name", error))?;
    if name.is_reserved() {
        let detail = "types that begin with postrider. are Postrider's own: choose another name";
        return Err(Problem::new(Code::ReservedType, detail).at("name"));
    }
    let stored = body.check(draw.created_at(&state))?;
    check(&state, &caller.tenant, &stored).await?;
    let document = document(owner.clone(), name.as_str(), &stored)?;
    let lock = state.locks().of_quota(Quota::TenantEventTypes.name(), owner.as_ref());
    let _turn = lock.lock().await;
    let there = state.store().document(KIND, owner.as_ref(), name.as_str()).await?;
    // The same one may have been added by an earlier run of this request.
    let is_ours = draw.repeats().is_some() && there.as_ref() == Some(&document);
    if there.is_some() && !is_ours {
        let detail = format!("the type {name} is in the catalogue already: change it by PATCH");
        return Err(Problem::new(Code::AlreadyExists, detail).at("name").existing(name.as_str()));
    }
    if there.is_none() {
        admit(&state, owner.as_ref(), &document, 0).await?;
        state.store().put_document(&document, &Expected::Nothing).await?;
        state.catalogue().forget(owner.as_ref());
    }
    let scope = word(owner.as_ref());
    Ok((StatusCode::CREATED, Json(EventTypeView::of(name.to_string(), scope, stored))))
}

/// List event types
///
/// By name: the tenant's own and the server's. A type that the tenant has too is shown as the tenant has it.
#[utoipa::path(
    get, path = "/v1/event-types", tag = "event types", params(TypesQuery),
    responses((status = 200, body = List<EventTypeView>, description = "A page of event types"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<TypesQuery>,
) -> Result<Json<List<EventTypeView>>, Problem> {
    let filters = [query.scope.as_deref()];
    let list = ListOf { name: "event-types", tenant: Some(&caller.tenant), filters: &filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let scope = parse_scope(query.scope.as_deref())?;
    let own = match scope {
        Some(ScopeWord::Server) => Page { items: Vec::new(), next: None },
        None | Some(ScopeWord::Tenant) => {
            documents(&state, Some(&caller.tenant), &asked.request).await?
        }
    };
    let servers = match scope {
        Some(ScopeWord::Tenant) => Page { items: Vec::new(), next: None },
        None | Some(ScopeWord::Server) => documents(&state, None, &asked.request).await?,
    };
    let found = merged(own, servers, asked.request.limit);
    Ok(Json(List::try_of(&asked, found, view)?))
}

async fn documents(
    state: &ApiState,
    owner: Option<&TenantId>,
    request: &PageRequest,
) -> Result<Page<Document>, Problem> {
    Ok(state.store().documents(KIND, owner, DocumentOrder::Ascending, request).await?)
}

/// One page of two, by name. Of two with one name, the tenant's own is shown.
fn merged(own: Page<Document>, servers: Page<Document>, limit: usize) -> Page<Document> {
    // Beyond the end of a page that goes on, the other list cannot be trusted to be in order.
    let ends = [&own, &servers].map(|page| {
        page.next.as_ref().and_then(|_| page.items.last()).map(|last| last.name.clone())
    });
    let end = ends.iter().flatten().min().cloned();
    let mut all = own.items;
    let is_own = |name: &str, all: &[Document]| all.iter().any(|one| one.name == name);
    for document in servers.items {
        if !is_own(&document.name, &all) {
            all.push(document);
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    let before = all.len();
    if let Some(end) = &end {
        all.retain(|one| one.name <= *end);
    }
    let has_more = end.is_some() || all.len() > limit || all.len() < before;
    all.truncate(limit);
    let next = all.last().filter(|_| has_more).map(|last| Cursor(last.name.clone()));
    Page { items: all, next }
}

/// Show an event type
///
/// The tenant's own, or else the server's.
#[utoipa::path(
    get, path = "/v1/event-types/{id}", tag = "event types",
    params(("id" = String, Path, description = "The name of the type"), ScopeQuery),
    responses((status = 200, body = EventTypeView, description = "The event type"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
    Query(query): Query<ScopeQuery>,
) -> Result<Json<EventTypeView>, Problem> {
    let name: EventType = id.of("event type")?;
    let owners = match parse_scope(query.scope.as_deref())? {
        None => vec![Some(&caller.tenant), None],
        Some(ScopeWord::Tenant) => vec![Some(&caller.tenant)],
        Some(ScopeWord::Server) => vec![None],
    };
    for owner in owners {
        if let Some(found) = state.store().document(KIND, owner, name.as_str()).await? {
            return Ok(Json(view(found)?));
        }
    }
    Err(id.unknown("event type"))
}

/// Change an event type
///
/// The new schema holds for events that come after it; those that were accepted before stay as they are.
#[utoipa::path(
    patch, path = "/v1/event-types/{id}", tag = "event types",
    params(("id" = String, Path, description = "The name of the type"), ScopeQuery),
    request_body = EventTypeChange,
    responses((status = 200, body = EventTypeView, description = "As it is now"))
)]
pub(crate) async fn change(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    Query(query): Query<ScopeQuery>,
    Strict(body): Strict<EventTypeChange>,
) -> Result<Json<EventTypeView>, Problem> {
    let owner = owner(&caller, query.scope.as_deref())?;
    let name: EventType = id.of("event type")?;
    let lock = state.locks().of_quota(Quota::TenantEventTypes.name(), owner);
    let _turn = lock.lock().await;
    let found = state.store().document(KIND, owner, name.as_str()).await?;
    let found = found.ok_or_else(|| id.unknown("event type"))?;
    let after = body.apply(stored(&found)?, draw.created_at(&state))?;
    check(&state, &caller.tenant, &after).await?;
    let document = document(owner.cloned(), name.as_str(), &after)?;
    admit(&state, owner, &document, found.body.len()).await?;
    if !state.store().put_document(&document, &Expected::Body(found.body)).await? {
        let detail = "somebody else changed it at the same moment: look at it and try again";
        return Err(Problem::new(Code::WrongState, detail));
    }
    state.catalogue().forget(owner);
    Ok(Json(EventTypeView::of(name.to_string(), word(owner), after)))
}

/// Delete an event type
///
/// Events of the type stay, and subscriptions to it too; later ones are of an unknown type.
#[utoipa::path(
    delete, path = "/v1/event-types/{id}", tag = "event types",
    params(("id" = String, Path, description = "The name of the type"), ScopeQuery),
    responses((status = 204, description = "Deleted"))
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
    Query(query): Query<ScopeQuery>,
) -> Result<StatusCode, Problem> {
    let owner = owner(&caller, query.scope.as_deref())?;
    let name: EventType = id.of("event type")?;
    let deleted = state.store().delete_document(KIND, owner, name.as_str()).await?;
    state.catalogue().forget(owner);
    // What is gone may have been deleted by an earlier run of this request.
    let is_gone = deleted || draw.repeats().is_some();
    if is_gone { Ok(StatusCode::NO_CONTENT) } else { Err(id.unknown("event type")) }
}

fn stored(document: &Document) -> Result<StoredType, Problem> {
    serde_json::from_str(&document.body).map_err(|_| Problem::internal())
}

fn view(document: Document) -> Result<EventTypeView, Problem> {
    let (stored, scope) = (stored(&document)?, word(document.tenant.as_ref()));
    Ok(EventTypeView::of(document.name, scope, stored))
}

fn document(
    tenant: Option<TenantId>,
    name: &str,
    stored: &StoredType,
) -> Result<Document, Problem> {
    let body = serde_json::to_string(stored).map_err(|_| Problem::internal())?;
    Ok(Document { kind: KIND, tenant, name: name.to_owned(), is_open: false, body })
}

/// Refuses what would exceed a quota. A change that adds nothing is never refused.
async fn admit(
    state: &ApiState,
    owner: Option<&TenantId>,
    document: &Document,
    bytes_before: usize,
) -> Result<(), Problem> {
    let count = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let used = state.store().count_documents(KIND, owner).await?;
    let engine = state.engine();
    if bytes_before == 0 {
        engine.check_quota(owner, Quota::TenantEventTypes, used.count.saturating_add(1))?;
        let all = state.store().count_all_documents(KIND).await?;
        engine.check_quota(owner, Quota::EventTypes, all.count.saturating_add(1))?;
    }
    let bytes = used.bytes.saturating_sub(count(bytes_before)) + count(document.body.len());
    if bytes > used.bytes {
        engine.check_quota(owner, Quota::TenantEventTypeBytes, bytes)?;
    }
    Ok(())
}

/// Checks the schema, and that the example fits it, on the threads for large work.
async fn check(state: &ApiState, tenant: &TenantId, stored: &StoredType) -> Result<(), Problem> {
    let Some(text) = stored.schema.clone() else { return Ok(()) };
    let example = stored.example.clone();
    let work = move || -> Result<(), Problem> {
        let parsed = |text: &str| serde_json::from_str::<Value>(text);
        let schema = parsed(text.get()).map_err(|error| Problem::field("schema", error))?;
        let schema = Schema::compile(&schema).map_err(|fault| schema_problem(&fault))?;
        let Some(example) = example else { return Ok(()) };
        let example = parsed(example.get()).map_err(|error| Problem::field("example", error))?;
        if schema.steps(&example) > SCHEMA_STEPS_MAX {
            return Err(Problem::field("example", "too large to be checked with this schema"));
        }
        match schema.fault(&example) {
            None => Ok(()),
            Some(fault) => {
                let pointer = fault.pointer.unwrap_or_default();
                let detail = format!("the example does not fit the schema: {}", fault.detail);
                Err(Problem::field("example", detail).pointer(pointer))
            }
        }
    };
    state.engine().compute(tenant, work).await.map_err(busy)?
}

fn schema_problem(fault: &SchemaFault) -> Problem {
    let place = if fault.pointer.is_empty() { "the schema" } else { fault.pointer.as_str() };
    Problem::field("schema", format!("{place}: {fault}")).pointer(fault.pointer.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str], tenant: Option<&str>, next: bool) -> Page<Document> {
        let document = |name: &&str| Document {
            kind: KIND,
            tenant: tenant.map(|id| id.parse().unwrap()),
            name: (*name).to_owned(),
            is_open: false,
            body: String::new(),
        };
        let items: Vec<Document> = names.iter().map(document).collect();
        let next = items.last().filter(|_| next).map(|last| Cursor(last.name.clone()));
        Page { items, next }
    }

    #[test]
    fn merged_page_is_in_order_and_skips_nothing() {
        let shown = |page: Page<Document>| {
            let names: Vec<String> = page.items.iter().map(|one| one.name.clone()).collect();
            (names.join(" "), page.next.map(|cursor| cursor.0))
        };
        let own = || listed(&["a", "c", "e"], Some("acme"), false);
        let all = merged(own(), listed(&["b", "c"], None, false), 10);
        assert_eq!(shown(all), ("a b c e".to_owned(), None));
        let cut = merged(own(), listed(&["b", "c"], None, false), 2);
        assert_eq!(shown(cut), ("a b".to_owned(), Some("b".to_owned())));
        let early = merged(own(), listed(&["b"], None, true), 10);
        assert_eq!(shown(early), ("a b".to_owned(), Some("b".to_owned())), "more may come after b");
        let twice = merged(listed(&["c"], Some("acme"), false), listed(&["c"], None, false), 10);
        assert!(twice.items[0].tenant.is_some(), "the tenant's own is shown");
    }
}
