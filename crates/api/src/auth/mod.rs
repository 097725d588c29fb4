//! Authentication and authorization.
//!
//! A handler requires a scope by taking `CanRead`, `CanManage`, `CanIngest` or `IsAdmin` as an
//! argument; only these give it the tenant of a request. Keys are compared by their keyed hash, in
//! constant time, and never stored or logged.

mod bootstrap;
mod key;
mod key_cache;

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::Key;

pub use bootstrap::{Bootstrap, BootstrapError, GivenAdmin, bootstrap_admin};
pub(crate) use key::{NewKey, new_key};
pub(crate) use key_cache::KeyCache;

use crate::admission;
use crate::problem::{Code, Problem};
use crate::rates;
use crate::state::ApiState;

/// The header by which an admin key names the tenant.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("postrider-tenant");

/// The authenticated caller, and the tenant that the request is for.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The tenant of the request.
    pub tenant: TenantId,
    /// The scopes of the key.
    pub scopes: Arc<[Scope]>,
    /// The key's public part.
    pub key_id: Arc<str>,
    /// The display name of the key.
    pub key_name: Option<Arc<str>>,
}

impl Caller {
    /// Whether the key may do everything, for every tenant.
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    fn require(self, scope: Scope) -> Result<Self, Problem> {
        self.permits(scope).map(|()| self)
    }

    /// Checks that the key has this scope.
    pub(crate) fn permits(&self, scope: Scope) -> Result<(), Problem> {
        if self.is_admin() || self.scopes.contains(&scope) {
            return Ok(());
        }
        let detail = format!("the key lacks the scope `{scope}`: use one that has it");
        Err(Problem::new(Code::MissingScope, detail))
    }
}

macro_rules! extractors {
    ($($(#[$doc:meta])* $name:ident needs $scope:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $name(pub(crate) Caller);

        impl<S: Sync> FromRequestParts<S> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
                // Only `authenticate` inserts a caller; a route without it refuses everybody.
                let caller = parts.extensions.get::<Caller>().cloned();
                caller.ok_or_else(unauthorized)?.require(Scope::$scope).map($name)
            }
        }
    )*};
}

extractors! {
    /// A caller with the scope `read`.
    CanRead needs Read;
    /// A caller with the scope `manage`.
    CanManage needs Manage;
    /// A caller with the scope `ingest`.
    CanIngest needs Ingest;
    /// A caller with an admin key.
    IsAdmin needs Admin;
}

/// Authenticates the caller, before anything else of the request is read.
pub(crate) async fn authenticate(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    match caller(&state, request.headers()).await {
        Ok(caller) => admission::admit(&state, caller, request, next)
            .await
            .unwrap_or_else(Problem::into_response),
        Err(problem) => problem.into_response(),
    }
}

/// Whether the key of an authenticated caller is still valid, and its tenant still exists. If the
/// store cannot be reached, `true`.
pub(crate) async fn is_still_valid(state: &ApiState, caller: &Caller) -> bool {
    let now = state.now();
    let cache = state.key_cache();
    let is_valid = match &*caller.key_id {
        GivenAdmin::KEY_ID => Ok(true),
        id => cache.key(state, id, now).await.map(|key| {
            key.is_some_and(|key| key.expires_at.is_none_or(|expires_at| now < expires_at))
        }),
    };
    is_valid.unwrap_or(true) && cache.has_tenant(state, &caller.tenant, now).await.unwrap_or(true)
}

/// Refuses a request without the metrics key, if the operator set one.
pub(crate) fn check_metrics_key(state: &ApiState, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(key) = state.metrics_key() else { return Ok(()) };
    let is_it = bearer(headers).is_some_and(|token| key.is(state.vault(), token));
    let detail = "the metrics need their own key: send it as Authorization: Bearer";
    is_it.then_some(()).ok_or_else(|| Problem::new(Code::Unauthorized, detail))
}

async fn caller(state: &ApiState, headers: &HeaderMap) -> Result<Caller, Problem> {
    let now = state.now();
    let token = bearer(headers).ok_or_else(unauthorized)?;
    let (key_id, key_name, bound_to, scopes) = identify(state, token, now).await?;
    state.key_rates().take(&key_id, now).map_err(|seconds| rates::refusal("key", seconds))?;
    let tenant = tenant(state, headers, bound_to, now).await?;
    let tenant_rates = state.tenant_rates();
    tenant_rates.take(tenant.as_str(), now).map_err(|seconds| rates::refusal("tenant", seconds))?;
    Ok(Caller { tenant, scopes, key_id, key_name })
}

type Identity = (Arc<str>, Option<Arc<str>>, Option<TenantId>, Arc<[Scope]>);

/// Identifies a key.
async fn identify(state: &ApiState, token: &[u8], now: Timestamp) -> Result<Identity, Problem> {
    if let Some(given) = state.given_admin()
        && given.is(state.vault(), token)
    {
        return Ok((Arc::from(GivenAdmin::KEY_ID), None, None, Arc::from([Scope::Admin])));
    }
    let (id, secret) = key::parse(token).ok_or_else(unauthorized)?;
    let known = state.key_cache().key(state, id, now).await?;
    let known = known.filter(|key| key::is_secret_of(state.vault(), key, secret));
    let known = known.ok_or_else(unauthorized)?;
    if known.expires_at.is_some_and(|at| at <= now) {
        return Err(Problem::new(Code::Unauthorized, "the key has expired: use another one"));
    }
    state.key_cache().touch(state, id, now);
    let name = known.name.as_deref().map(Arc::from);
    Ok((Arc::from(known.id.as_str()), name, known.tenant.clone(), scopes_of(&known)))
}

/// The scopes of a key. A tenant's key is never an admin key, whatever its record says.
fn scopes_of(key: &Key) -> Arc<[Scope]> {
    let is_held = |scope: &&Scope| **scope != Scope::Admin || key.tenant.is_none();
    key.scopes.iter().filter(is_held).copied().collect()
}

/// The tenant of a request: that of the key, or the one that an admin names.
async fn tenant(
    state: &ApiState,
    headers: &HeaderMap,
    bound_to: Option<TenantId>,
    now: Timestamp,
) -> Result<TenantId, Problem> {
    let named = match headers.get(&TENANT_HEADER) {
        None => return Ok(bound_to.unwrap_or_else(TenantId::default_tenant)),
        Some(name) => name.to_str().ok().and_then(|name| name.parse::<TenantId>().ok()),
    };
    // To a tenant's key, other tenants do not exist.
    let exists = match (&named, &bound_to) {
        (None, _) => false,
        (Some(named), Some(own)) => named == own,
        (Some(named), None) => state.key_cache().has_tenant(state, named, now).await?,
    };
    named.filter(|_| exists).ok_or_else(unknown_tenant)
}

fn unknown_tenant() -> Problem {
    Problem::new(Code::UnknownTenant, "the tenant that the header names does not exist")
        .at(TENANT_HEADER.as_str())
}

fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "no valid key: send Authorization: Bearer with a key")
}

/// The token after `Bearer`.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        for (value, token) in [
            ("Bearer abc", Some("abc")),
            ("bearer  abc ", Some("abc")),
            ("BEARER a b", Some("a b")),
            ("Basic abc", None),
            ("Bearer", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            assert_eq!(bearer(&headers), token.map(str::as_bytes), "{value}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_key_of_a_tenant_is_never_an_admin_key() {
        let key = |tenant| Key {
            id: "k".to_owned(),
            tenant,
            name: None,
            scopes: vec![Scope::Read, Scope::Admin],
            hash: [0; 32],
            created_at: Timestamp::EPOCH,
            expires_at: None,
            last_used_at: None,
        };
        assert_eq!(*scopes_of(&key(None)), [Scope::Read, Scope::Admin]);
        assert_eq!(*scopes_of(&key(Some(TenantId::default_tenant()))), [Scope::Read]);
    }

    #[test]
    fn a_scope_permits_itself_and_admin_permits_all() {
        for held in Scope::ALL {
            let tenant = TenantId::default_tenant();
            let (scopes, key_id) = (Arc::from([held]), Arc::from("k"));
            let caller = Caller { tenant, scopes, key_id, key_name: None };
            for needed in Scope::ALL {
                let permitted = caller.clone().require(needed).is_ok();
                assert_eq!(permitted, held == needed || held == Scope::Admin, "{held} {needed}");
            }
        }
    }
}
