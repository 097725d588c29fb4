//! Authentication and authorization.
//!
//! A request shows a key, or the session that a key or a portal link was exchanged for
//! ([`crate::session`]). A handler that needs a scope says so by taking `CanRead`, `CanManage`, `CanIngest` or
//! `IsAdmin`; there is no other way to learn the tenant of a request. Keys are compared by their
//! keyed hash, in constant time, and never stored or logged.

mod bootstrap;
mod key;
mod key_cache;
mod strangers;

use std::net::IpAddr;
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
use postrider_store::{Key, StoreError};

pub use bootstrap::{Bootstrap, BootstrapError, GivenAdmin, bootstrap_admin, reset_admin};
pub(crate) use key::{NewKey, new_key};
pub(crate) use key_cache::KeyCache;
pub(crate) use strangers::{Strangers, network_of};

use crate::admission;
use crate::audit;
use crate::layers::ClientAddress;
use crate::problem::{Code, Problem};
use crate::rates;
use crate::session::{self, Session, cookie, origin};
use crate::settings::Rate;
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
    /// The session that the request was made with; `None` where it was made with the key itself.
    pub session: Option<Arc<Session>>,
    /// How the request came to its tenant.
    pub view: View,
}

/// Whose records a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Those of the key's tenant, or of the tenant `default` where an admin key names none.
    Own,
    /// Those of the tenant that the header names.
    Named,
    /// Those of all tenants, to look at: an admin key named `*`.
    All,
}

/// The name by which an admin key asks for all tenants.
pub(crate) const ALL_TENANTS: &str = "*";

impl Caller {
    /// Whether the key may do everything, for every tenant.
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }

    /// The tenant that the key is bound to; `None` for an admin key.
    pub(crate) fn bound_to(&self) -> Option<&TenantId> {
        (!self.is_admin()).then_some(&self.tenant)
    }

    fn require(self, scope: Scope) -> Result<Self, Problem> {
        self.permits(scope)?;
        // What administrators do is not about one tenant.
        if self.view == View::All && scope != Scope::Admin {
            return Err(one_tenant("this call is about one tenant"));
        }
        Ok(self)
    }

    /// Whether the request asks for the records of all tenants.
    pub(crate) fn sees_all(&self) -> bool {
        self.view == View::All
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

/// A caller with the scope `read`, who may ask for the records of all tenants: the handler must look at
/// [`Caller::sees_all`].
#[derive(Debug, Clone)]
pub(crate) struct CanReadAll(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for CanReadAll {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned().ok_or_else(unauthorized)?;
        caller.permits(Scope::Read).map(|()| CanReadAll(caller))
    }
}

/// Any caller that is authenticated.
#[derive(Debug, Clone)]
pub(crate) struct Anybody(pub(crate) Caller);

impl<S: Sync> FromRequestParts<S> for Anybody {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Caller>().cloned().map(Anybody).ok_or_else(unauthorized)
    }
}

/// Authenticates the caller, before anything else of the request is read.
pub(crate) async fn authenticate(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    // A request with a key needs no proof of its origin, nor the work of finding it out.
    let from_own_page = match bearer(request.headers()) {
        Some(_) => Ok(()),
        None => origin::refuse_cross_site(&request, audit::is_mutation(request.method())),
    };
    let peer = request.extensions().get::<ClientAddress>().map(|client| client.0);
    match caller(&state, request.headers(), peer, from_own_page).await {
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
    let is_valid = match (&caller.session, &*caller.key_id) {
        (Some(session), _) => Ok(session::is_still_valid(state, session, now).await),
        (None, GivenAdmin::KEY_ID) => Ok(true),
        (None, id) => cache.key(state, id, now).await.map(|key| {
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

async fn caller(
    state: &ApiState,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
    from_own_page: Result<(), Problem>,
) -> Result<Caller, Problem> {
    let now = state.now();
    let identity = match bearer(headers) {
        // In a box: sessions are few, and must not make the future of every request larger.
        Some(token) if session::is_token(token) => {
            Box::pin(session::by_bearer(state, token, peer, now)).await?
        }
        Some(token) => identify(state, token, peer, now).await?,
        None => {
            let token = cookie::read(headers).ok_or_else(unauthorized)?;
            from_own_page?;
            Box::pin(session::by_cookie(state, token, peer, now)).await?
        }
    };
    let Identity { key_id, key_name, bound_to, scopes, session, .. } = identity;
    state.key_rates().take(&key_id, now).map_err(|seconds| rates::refusal("key", seconds))?;
    let (tenant, view) = tenant(state, headers, bound_to, now).await?;
    let own = state.engine().limits_of(&tenant).requests_per_second;
    let own = own.map(|per_second| Rate { per_second, burst: per_second });
    let taken = state.tenant_rates().take_within(tenant.as_str(), own, now);
    taken.map_err(|seconds| rates::refusal("tenant", seconds))?;
    Ok(Caller { tenant, scopes, key_id, key_name, session, view })
}

/// Whose key it is, and what it may do.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) key_id: Arc<str>,
    pub(crate) key_name: Option<Arc<str>>,
    /// The tenant that the key belongs to; `None` for an admin key.
    pub(crate) bound_to: Option<TenantId>,
    pub(crate) scopes: Arc<[Scope]>,
    /// When the key expires.
    pub(crate) expires_at: Option<Timestamp>,
    /// The session that stands for it.
    pub(crate) session: Option<Arc<Session>>,
}

impl Identity {
    fn of_key(key: &Key) -> Self {
        Identity {
            key_id: Arc::from(key.id.as_str()),
            key_name: key.name.as_deref().map(Arc::from),
            bound_to: key.tenant.clone(),
            scopes: scopes_of(key),
            expires_at: key.expires_at,
            session: None,
        }
    }

    fn of_given() -> Self {
        Identity {
            key_id: Arc::from(GivenAdmin::KEY_ID),
            key_name: None,
            bound_to: None,
            scopes: Arc::from([Scope::Admin]),
            expires_at: None,
            session: None,
        }
    }
}

/// Whose key this is. `peer` is the address that sent it.
pub(crate) async fn identify(
    state: &ApiState,
    token: &[u8],
    peer: Option<IpAddr>,
    now: Timestamp,
) -> Result<Identity, Problem> {
    if let Some(given) = state.given_admin()
        && given.is(state.vault(), token)
    {
        return Ok(Identity::of_given());
    }
    let (id, secret) = key::parse(token).ok_or_else(unauthorized)?;
    let stranger = match state.key_cache().has_seen(state, id, now) {
        true => None,
        false => Some(state.strangers().admit(peer, now)?),
    };
    let known = state.key_cache().key(state, id, now).await;
    if let Some(stranger) = stranger
        && !matches!(known, Ok(None))
    {
        state.strangers().give_back(&stranger);
    }
    let known = known?.filter(|key| key::is_secret_of(state.vault(), key, secret));
    let known = known.ok_or_else(unauthorized)?;
    if known.expires_at.is_some_and(|at| at <= now) {
        return Err(Problem::new(Code::Unauthorized, "the key has expired: use another one"));
    }
    state.key_cache().touch(state, id, now);
    Ok(Identity::of_key(&known))
}

/// Who a session of this key stands for; `None` where the key was revoked or has expired.
pub(crate) async fn identity_of_key(
    state: &ApiState,
    id: &str,
    now: Timestamp,
) -> Result<Option<Identity>, StoreError> {
    let known = state.key_cache().key(state, id, now).await?;
    let known = known.filter(|key| key.expires_at.is_none_or(|at| now < at));
    if known.is_some() {
        state.key_cache().touch(state, id, now);
    }
    Ok(known.map(|key| Identity::of_key(&key)))
}

/// Who a session of the admin key with this mark stands for; `None` where the operator has chosen another.
pub(crate) fn identity_of_given(state: &ApiState, mark: &str) -> Option<Identity> {
    let given = state.given_admin()?;
    (given.mark(state.vault()) == mark).then(Identity::of_given)
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
) -> Result<(TenantId, View), Problem> {
    let named = match headers.get(&TENANT_HEADER) {
        None => return Ok((bound_to.unwrap_or_else(TenantId::default_tenant), View::Own)),
        Some(name) if name == ALL_TENANTS => {
            // What the request takes of limits counts for the tenant `default`.
            let detail = "only an admin key sees all tenants: leave the header out, or use one";
            return match bound_to {
                None => Ok((TenantId::default_tenant(), View::All)),
                Some(_) => Err(Problem::new(Code::MissingScope, detail).at(TENANT_HEADER.as_str())),
            };
        }
        Some(name) => name.to_str().ok().and_then(|name| name.parse::<TenantId>().ok()),
    };
    // To a tenant's key, other tenants do not exist.
    let exists = match (&named, &bound_to) {
        (None, _) => false,
        (Some(named), Some(own)) => named == own,
        (Some(named), None) => state.key_cache().has_tenant(state, named, now).await?,
    };
    let named = named.filter(|_| exists).ok_or_else(unknown_tenant)?;
    Ok((named, View::Named))
}

/// The problem of a request for all tenants that must name one.
pub(crate) fn one_tenant(why: &str) -> Problem {
    let detail = format!("{why}: name it in the header postrider-tenant, instead of `*`");
    Problem::new(Code::OneTenantNeeded, detail).at(TENANT_HEADER.as_str())
}

fn unknown_tenant() -> Problem {
    Problem::new(Code::UnknownTenant, "the tenant that the header names does not exist")
        .at(TENANT_HEADER.as_str())
}

fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "no valid key: send Authorization: Bearer with a key")
}

/// The key in the `Authorization` header: the text after `Bearer`.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
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
            let (key_name, session, view) = (None, None, View::Own);
            let caller = Caller { tenant, scopes, key_id, key_name, session, view };
            for needed in Scope::ALL {
                let permitted = caller.clone().require(needed).is_ok();
                assert_eq!(permitted, held == needed || held == Scope::Admin, "{held} {needed}");
            }
        }
    }
}
