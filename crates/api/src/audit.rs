//! The audit log: every mutation (a request that changes something) gets an entry with its caller,
//! address, target and outcome. **No entry contains a secret or a payload**: only names,
//! identifiers and codes.
//!
//! The entry is durable before the answer is sent. It is written after the effect, so if the
//! process is killed in between, there is no entry; the caller has no answer either. Refused
//! mutations are logged too, within a rate limit per tenant. Events have no entry: they are stored
//! themselves.

use std::net::IpAddr;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use postrider_domain::ids::{AuditId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{Actor, ActorKind, AuditEntry, Store, StoreError};
use serde::Deserialize;

use crate::auth::{Caller, GivenAdmin, Identity};
use crate::layers::ClientAddress;
use crate::problem::{Code, Problem};
use crate::random::{self, NoRandomness};
use crate::settings::Rate;
use crate::state::ApiState;
use crate::wire::audit::AuditView;

/// The rate of entries for refused mutations of one tenant: 600 at once, and one per second.
pub(crate) const REFUSED_RATE: Rate = Rate { per_second: 1, burst: 600 };

/// The name of a mutation, and the kind of its target.
type ActionName = (&'static str, &'static str);

/// The stable names of all mutations. A path that is not listed is named by its method and path.
const ACTIONS: &[(&str, &str, ActionName)] = &[
    ("POST", "/v1/subscriptions", ("subscription.create", "subscription")),
    ("PATCH", "/v1/subscriptions/{id}", ("subscription.change", "subscription")),
    ("DELETE", "/v1/subscriptions/{id}", ("subscription.delete", "subscription")),
    (
        "POST",
        "/v1/subscriptions/{id}/secret/rotate",
        ("subscription.rotate_secret", "subscription"),
    ),
    ("POST", "/v1/subscriptions/{id}/test", ("subscription.test", "subscription")),
    (
        "POST",
        "/attask/eventsubscription/api/v1/subscriptions",
        ("subscription.create", "subscription"),
    ),
    (
        "DELETE",
        "/attask/eventsubscription/api/v1/subscriptions/{id}",
        ("subscription.delete", "subscription"),
    ),
    (
        "PUT",
        "/attask/eventsubscription/api/v1/subscriptions/{id}/version",
        ("subscription.change", "subscription"),
    ),
    (
        "PUT",
        "/attask/eventsubscription/api/v1/subscriptions/version",
        ("subscription.change", "subscription"),
    ),
    (
        "POST",
        "/attask/eventsubscription/api/v1/subscriptions/{id}/enable",
        ("destination.enable", "subscription"),
    ),
    ("POST", "/v1/destinations/{id}/enable", ("destination.enable", "destination")),
    ("POST", "/v1/destinations/{id}/freeze", ("destination.freeze", "destination")),
    ("POST", "/v1/deliveries/{id}/replay", ("delivery.replay", "delivery")),
    ("POST", "/v1/deliveries/{id}/retry", ("delivery.retry", "delivery")),
    ("POST", "/v1/deliveries/{id}/cancel", ("delivery.cancel", "delivery")),
    ("POST", "/v1/replays", ("replay.start", "replay")),
    ("POST", "/v1/replays/{id}/pause", ("replay.pause", "replay")),
    ("POST", "/v1/replays/{id}/resume", ("replay.resume", "replay")),
    ("POST", "/v1/replays/{id}/cancel", ("replay.cancel", "replay")),
    ("POST", "/v1/event-types", ("event_type.create", "event_type")),
    ("PATCH", "/v1/event-types/{id}", ("event_type.change", "event_type")),
    ("DELETE", "/v1/event-types/{id}", ("event_type.delete", "event_type")),
    ("PATCH", "/v1/catalogue", ("catalogue.change", "catalogue")),
    ("POST", "/v1/erasures", ("erasure.start", "erasure")),
    ("POST", "/v1/tenants", ("tenant.create", "tenant")),
    ("PATCH", "/v1/tenants/{id}", ("tenant.change", "tenant")),
    ("DELETE", "/v1/tenants/{id}", ("tenant.delete", "tenant")),
    ("POST", "/v1/keys", ("key.create", "key")),
    ("DELETE", "/v1/keys/{id}", ("key.delete", "key")),
    ("POST", "/v1/backup", ("backup.start", "backup")),
    ("POST", "/v1/alerts/test", ("alerts.test", "alerts")),
    ("POST", "/v1/portal-links", ("portal_link.create", "portal_link")),
    ("DELETE", "/v1/portal-links/{id}", ("portal_link.delete", "portal_link")),
];

/// Paths with mutating methods that have no entry: events are their own record, and what is only tried
/// changes nothing.
const NOT_LOGGED: &[&str] = &[
    "/v1/events",
    "/v1/events/batch",
    "/v1/filters/test",
    "/v1/filters/test/events",
    "/v1/simulate",
];

/// Marks the answer of a request that changed nothing, such as the dry run of a replay: it has no entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnlyTried;

/// The part of an entry that is known before the mutation is carried out.
pub(crate) struct PendingEntry {
    tenant: Option<TenantId>,
    actor: Actor,
    action: String,
    target_kind: &'static str,
    target: Option<String>,
    address: Option<String>,
}

/// The status of an answer, and the code of its problem document.
type Outcome = (StatusCode, Option<Code>);

fn outcome(response: &Response) -> Outcome {
    (response.status(), response.extensions().get::<Code>().copied())
}

/// Carries a request out and writes its entry.
pub(crate) async fn run(
    state: &ApiState,
    caller: &Caller,
    request: Request,
    next: Next,
) -> Response {
    let Some(begun) = begin(caller, &request) else { return next.run(request).await };
    let begun = begun.of_owner(state).await;
    let response = next.run(request).await;
    if response.extensions().get::<OnlyTried>().is_some() {
        return response;
    }
    let (response, begun) = name_created(response, begun).await;
    begun.end(state, outcome(&response)).await;
    response
}

/// Writes the entry of a mutation that was refused before it was carried out.
pub(crate) async fn refused(state: &ApiState, begun: Option<PendingEntry>, problem: &Problem) {
    if let Some(begun) = begun {
        let outcome = (problem.code().status(), Some(problem.code()));
        begun.of_owner(state).await.end(state, outcome).await;
    }
}

/// Begins the entry of a request; `None` if it is not logged.
pub(crate) fn begin(caller: &Caller, request: &Request) -> Option<PendingEntry> {
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    if NOT_LOGGED.contains(&path) {
        return None;
    }
    let method = request.method().as_str();
    let named = ACTIONS.iter().find(|(of, at, _)| *of == method && *at == path);
    let (action, target_kind) = match named {
        Some((_, _, (action, kind))) => ((*action).to_owned(), *kind),
        None => (format!("{method} {path}"), "other"),
    };
    let target = target_of(path, request.uri().path());
    let tenant = match (target_kind, &target) {
        ("tenant", Some(id)) => id.parse().ok(),
        ("backup" | "alerts", _) => None,
        (_, _) => Some(caller.tenant.clone()),
    };
    let address = request.extensions().get::<ClientAddress>().map(|client| client.0.to_string());
    let actor = actor_of(&caller.key_id, caller.key_name.as_deref());
    Some(PendingEntry { tenant, actor, action, target_kind, target, address })
}

impl PendingEntry {
    /// Adds the tenant of the key that the request is about: after the key is deleted, its tenant
    /// is unknown.
    async fn of_owner(mut self, state: &ApiState) -> PendingEntry {
        if let ("key", Some(id)) = (self.target_kind, &self.target)
            && let Ok(Some(key)) = state.store().key(id).await
        {
            self.tenant = key.tenant;
        }
        self
    }

    /// Writes the entry, if one is needed.
    async fn end(self, state: &ApiState, (status, problem): Outcome) {
        if is_wanted(state, status, &self) {
            write(state, self, status, problem).await;
        }
    }
}

/// Writes the entry of somebody who signed in or out.
pub(crate) async fn signed(
    state: &ApiState,
    who: &Identity,
    action: &str,
    address: Option<IpAddr>,
    status: StatusCode,
) {
    let begun = PendingEntry {
        tenant: who.bound_to.clone(),
        actor: actor_of(&who.key_id, who.key_name.as_deref()),
        action: action.to_owned(),
        target_kind: "session",
        target: None,
        address: address.map(|address| address.to_string()),
    };
    write(state, begun, status, None).await;
}

fn actor_of(key_id: &str, key_name: Option<&str>) -> Actor {
    if *key_id == *GivenAdmin::KEY_ID {
        let kind = ActorKind::Environment;
        return Actor { kind, id: kind.as_str().to_owned(), name: None };
    }
    Actor { kind: ActorKind::Key, id: key_id.to_owned(), name: key_name.map(str::to_owned) }
}

/// The identifier in a path.
fn target_of(template: &str, path: &str) -> Option<String> {
    let place = template.split('/').position(|part| part == "{id}")?;
    let id = path.split('/').nth(place)?;
    // Limit the length of text from the caller.
    Some(id.chars().filter(char::is_ascii_graphic).take(300).collect())
}

/// The fields of an answer that identify a created record.
#[derive(Debug, Deserialize)]
struct Created {
    id: Option<String>,
    tenant: Option<String>,
    /// The directory of a backup.
    to: Option<String>,
}

/// Takes the identifier and the tenant of a created record from the answer.
async fn name_created(response: Response, mut begun: PendingEntry) -> (Response, PendingEntry) {
    if begun.target.is_some() || !response.status().is_success() {
        return (response, begun);
    }
    let (parts, body) = response.into_parts();
    // The body of such an answer is in memory; it cannot fail.
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    if let Ok(created) = serde_json::from_slice::<Created>(&bytes) {
        if begun.target_kind == "tenant" {
            begun.tenant = created.id.as_deref().and_then(|id| id.parse().ok());
        } else if begun.target_kind == "key" {
            begun.tenant = created.tenant.and_then(|tenant| tenant.parse().ok());
        }
        begun.target = created.id.or(created.to);
    }
    (Response::from_parts(parts, Body::from(bytes)), begun)
}

/// Whether an entry is written: not for requests refused for lack of capacity, and for other
/// refusals only within the tenant's rate.
fn is_wanted(state: &ApiState, status: StatusCode, begun: &PendingEntry) -> bool {
    if [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status) {
        return false;
    }
    let tenant = begun.tenant.as_ref().map_or("", TenantId::as_str);
    !status.is_client_error() || state.refusal_rates().take(tenant, state.now()).is_ok()
}

async fn write(state: &ApiState, begun: PendingEntry, status: StatusCode, problem: Option<Code>) {
    let PendingEntry { tenant, actor, action, target_kind, target, address } = begun;
    let at = state.now();
    let Ok(random) = random::bytes() else { return };
    let entry = AuditEntry {
        id: AuditId::new(at, random),
        at,
        tenant,
        actor,
        action,
        target_kind: target_kind.to_owned(),
        target,
        address,
        status: Some(status.as_u16()),
        problem: problem.map(|code| code.as_str().to_owned()),
    };
    if let Err(error) = state.store().put_audit(&entry).await {
        // The change itself is durable, so the entry goes to the operator's log instead.
        let entry = serde_json::to_string(&AuditView::of(entry)).unwrap_or_default();
        tracing::error!(%error, entry, "cannot write an entry of the audit log");
    }
}

/// Why the server's own entry was not written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No random identifier can be generated.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// Writes the entry of something that the server did by itself.
pub async fn note_server(
    store: &dyn Store,
    action: &str,
    target_kind: &str,
    target: Option<&str>,
    now: Timestamp,
) -> Result<(), AuditError> {
    let kind = ActorKind::Server;
    let actor = Actor { kind, id: kind.as_str().to_owned(), name: None };
    note(store, actor, action, target_kind, target, now).await
}

/// Writes the entry of something that the operator did at the machine, without a request: by a
/// signal or an offline command. It is stored with the actor kind `server`, which nodes of the
/// previous version can read.
pub async fn note_operator(
    store: &dyn Store,
    action: &str,
    target_kind: &str,
    target: Option<&str>,
    now: Timestamp,
) -> Result<(), AuditError> {
    let (id, name) = ("operator".to_owned(), Some("operator at the machine".to_owned()));
    let actor = Actor { kind: ActorKind::Server, id, name };
    note(store, actor, action, target_kind, target, now).await
}

async fn note(
    store: &dyn Store,
    actor: Actor,
    action: &str,
    target_kind: &str,
    target: Option<&str>,
    now: Timestamp,
) -> Result<(), AuditError> {
    let entry = AuditEntry {
        id: AuditId::new(now, random::bytes()?),
        at: now,
        tenant: None,
        actor,
        action: action.to_owned(),
        target_kind: target_kind.to_owned(),
        target: target.map(str::to_owned),
        address: None,
        status: None,
        problem: None,
    };
    Ok(store.put_audit(&entry).await?)
}

/// Whether a request may change something.
pub(crate) fn is_mutation(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_the_identifier_in_the_path() {
        let rotate = "/v1/subscriptions/{id}/secret/rotate";
        for (template, path, target) in [
            ("/v1/keys/{id}", "/v1/keys/abc", Some("abc")),
            (rotate, "/v1/subscriptions/sub_1/secret/rotate", Some("sub_1")),
            ("/v1/keys", "/v1/keys", None),
        ] {
            assert_eq!(target_of(template, path).as_deref(), target, "{path}");
        }
    }
}
