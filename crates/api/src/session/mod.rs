//! Sessions: a browser signs in once instead of sending a key with every request.
//!
//! A browser exchanges a key, or a link, for a session. **The key is never kept in the browser**:
//! the cookie holds a random token, of which the store has a keyed hash. **A session never has more
//! rights than its key or portal link**: that key or link is looked up for every request. So the
//! session ends when the key or link is revoked or expires, and it has the scopes that the key has
//! now.
//!
//! | question | module |
//! |---|---|
//! | what does the browser hold? | `cookie`, `token` |
//! | may another site make this request? | `origin` |
//! | what does the store hold? | `grant` |
//! | how is a link made, and used once? | `link` |
//! | which passes were looked up a moment ago? | `cache` |

mod cache;
pub(crate) mod cookie;
mod grant;
pub(crate) mod link;
pub(crate) mod logo;
pub(crate) mod origin;
mod token;

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Pass, PassKind, PassLimits, PassPut, StoreError};
use zeroize::Zeroizing;

pub(crate) use cache::PassCache;
pub(crate) use grant::{Access, Grant, LinkBody, Mode, Theme};

use self::grant::SessionBody;
use crate::audit;
use crate::auth::{self, Identity};
use crate::draw::Draw;
use crate::problem::{Code, Problem};
use crate::state::ApiState;

/// Parts of the API that a portal session must not call, by the first segment after `/v1/`: they
/// belong to the operator and the application, not to the application's customers. (Calls that need
/// the scope `admin` are refused anyway.)
const CLOSED_TO_PORTALS: [&str; 7] =
    ["keys", "tenants", "backup", "audit", "config", "server", "portal-links"];

/// Parts of the API that a portal session reads and must not change: they decide what becomes of the
/// events that the application sends. A customer who changes the catalogue can have them refused; one
/// who erases them takes the application's record of what it sent.
const READ_ONLY_TO_PORTALS: [&str; 3] = ["catalogue", "event-types", "erasures"];

/// The session that a request was made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    id: String,
    expires_at: Timestamp,
    /// The portal link that opened the session; `None` if a key did.
    portal: Option<String>,
}

impl Session {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// The portal link that opened the session; `None` if a key did.
    pub(crate) fn portal(&self) -> Option<&str> {
        self.portal.as_deref()
    }

    /// Refuses a call that a portal session must not make.
    pub(crate) fn permits(&self, method: &Method, path: &str) -> Result<(), Problem> {
        let resource = path.strip_prefix("/v1/").unwrap_or(path).split('/').next();
        let is_one_of = |closed: &[&str]| resource.is_some_and(|name| closed.contains(&name));
        let detail = if self.portal.is_none() {
            return Ok(());
        } else if is_one_of(&CLOSED_TO_PORTALS) {
            "this is closed to portal sessions: use a key, or sign in with one"
        } else if audit::is_mutation(method) && is_one_of(&READ_ONLY_TO_PORTALS) {
            "portal sessions read this and do not change it: use a key, or sign in with one"
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::MissingScope, detail))
    }
}

/// A session that was just opened. Its token, in `text`, is shown once.
pub(crate) struct Opened {
    pub(crate) text: Zeroizing<String>,
    pub(crate) expires_at: Timestamp,
}

/// Whether a bearer token is a session's token, and not a key.
pub(crate) fn is_token(token: &[u8]) -> bool {
    token.starts_with(token::SESSION.as_bytes())
}

/// The identity behind a session token that a script sent as a bearer token.
pub(crate) async fn by_bearer(
    state: &ApiState,
    token: &[u8],
    peer: Option<IpAddr>,
    now: Timestamp,
) -> Result<Identity, Problem> {
    identify(state, token, (peer, now), true).await
}

/// The identity behind the token in a cookie. The caller has checked that no other site made the
/// request: see [`origin`].
pub(crate) async fn by_cookie(
    state: &ApiState,
    token: &str,
    peer: Option<IpAddr>,
    now: Timestamp,
) -> Result<Identity, Problem> {
    identify(state, token.as_bytes(), (peer, now), false).await
}

async fn identify(
    state: &ApiState,
    token: &[u8],
    (peer, now): (Option<IpAddr>, Timestamp),
    in_memory: bool,
) -> Result<Identity, Problem> {
    let (id, secret) = token::parse(token::SESSION, token).ok_or_else(over)?;
    let id = format!("{}{id}", token::SESSION);
    let stranger = match state.passes().has(&id) {
        true => None,
        false => Some(state.strangers().admit(peer, now)?),
    };
    let found = state.passes().get(state, &id, now).await;
    if let Some(stranger) = stranger
        && !matches!(found, Ok(None))
    {
        state.strangers().give_back(&stranger);
    }
    let pass = found?.ok_or_else(over)?;
    let body = SessionBody::of(&pass).ok_or_else(over)?;
    // A bearer token must not work as a cookie, and a cookie's token must not work as a bearer
    // token.
    if body.in_memory != in_memory || !token::is_secret_of(state.vault(), &id, secret, &body.hash) {
        return Err(over());
    }
    valid(state, &pass, now).await?.ok_or_else(over)
}

fn over() -> Problem {
    Problem::new(Code::Unauthorized, "the session has ended: sign in again")
}

/// The identity that this session signs in as; `None` if the session has ended.
async fn valid(
    state: &ApiState,
    pass: &Pass,
    now: Timestamp,
) -> Result<Option<Identity>, StoreError> {
    let Some(body) = SessionBody::of(pass).filter(|_| now < pass.expires_at) else {
        return Ok(None);
    };
    let Some(mut identity) = behind(state, &body.grant, pass.tenant.as_ref(), now).await? else {
        return Ok(None);
    };
    let portal = match &body.grant {
        Grant::Portal { link, .. } => Some(link.clone()),
        Grant::Key { .. } | Grant::Given { .. } => None,
    };
    let session = Session { id: pass.id.clone(), expires_at: pass.expires_at, portal };
    identity.session = Some(Arc::new(session));
    Ok(Some(identity))
}

/// The identity that a grant stands for now; `None` if its key or link was deleted or has expired.
async fn behind(
    state: &ApiState,
    grant: &Grant,
    tenant: Option<&TenantId>,
    now: Timestamp,
) -> Result<Option<Identity>, StoreError> {
    match grant {
        Grant::Key { id } => auth::identity_of_key(state, id, now).await,
        Grant::Given { mark } => Ok(auth::identity_of_given(state, mark)),
        Grant::Portal { link, access } => {
            let Some(pass) = state.passes().get(state, link, now).await? else { return Ok(None) };
            let Some(body) = LinkBody::of(&pass) else { return Ok(None) };
            let scopes: Arc<[Scope]> = access.scopes().into();
            let name = body.theme.name.as_deref().unwrap_or("portal");
            Ok(Some(Identity {
                key_id: Arc::from(link.as_str()),
                key_name: Some(format!("portal link: {name}").into()),
                bound_to: tenant.cloned(),
                scopes,
                expires_at: None,
                session: None,
            }))
        }
    }
}

/// Whether a session is still valid. If the store cannot be read, the session counts as valid.
pub(crate) async fn is_still_valid(state: &ApiState, session: &Session, now: Timestamp) -> bool {
    if now >= session.expires_at {
        return false;
    }
    match state.passes().get(state, &session.id, now).await {
        Err(_) => true,
        Ok(None) => false,
        Ok(Some(pass)) => !matches!(valid(state, &pass, now).await, Ok(None)),
    }
}

/// Opens a session.
pub(crate) async fn open(
    state: &ApiState,
    grant: Grant,
    who: &Identity,
    in_memory: bool,
    now: Timestamp,
) -> Result<Opened, Problem> {
    let settings = state.settings();
    let expires_at = now.saturating_add(settings.session_lifetime);
    let expires_at = who.expires_at.map_or(expires_at, |end| end.min(expires_at));
    let token = token::new(state.vault(), token::SESSION, token::SESSION, &Draw::default())?;
    let body = SessionBody { hash: token.hash, grant, in_memory };
    let pass = Pass {
        id: token.id,
        kind: PassKind::Session,
        owner: who.key_id.to_string(),
        tenant: who.bound_to.clone(),
        created_at: now,
        expires_at,
        used_at: None,
        body: body.bytes(),
    };
    let limits =
        PassLimits { of_owner: settings.key_sessions_max, in_total: settings.sessions_max };
    match state.store().put_pass(&pass, limits).await? {
        PassPut::Stored => Ok(Opened { text: token.text, expires_at }),
        PassPut::Full => Err(full("sessions", settings.sessions_max)),
    }
}

/// The error for a server that has reached its limit of `most` sessions or links.
pub(crate) fn full(what: &str, most: u64) -> Problem {
    let detail = format!("the server has {most} {what}, which is its limit: try again later");
    Problem::new(Code::ServerFull, detail)
}

/// Ends the session of a request, if it has one. Returns who was signed in.
pub(crate) async fn close(
    state: &ApiState,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
    now: Timestamp,
) -> Result<Option<Identity>, Problem> {
    let bearer = auth::bearer(headers).filter(|token| is_token(token));
    let token = bearer.or_else(|| cookie::read(headers).map(str::as_bytes));
    let Some(token) = token else { return Ok(None) };
    let identity = match identify(state, token, (peer, now), bearer.is_some()).await {
        Ok(identity) => identity,
        // The session has ended already.
        Err(problem) if problem.code() == Code::Unauthorized => return Ok(None),
        Err(problem) => return Err(problem),
    };
    if let Some(session) = &identity.session {
        state.store().delete_pass(session.id()).await?;
        state.passes().forget(session.id());
    }
    Ok(Some(identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portal_is_closed_where_the_operator_works() {
        let session = |portal: Option<&str>| Session {
            id: "ps_1".to_owned(),
            expires_at: Timestamp::EPOCH,
            portal: portal.map(str::to_owned),
        };
        let may = |portal, method, path| session(portal).permits(&method, path).is_ok();
        for path in ["/v1/keys", "/v1/keys/{id}", "/v1/audit", "/v1/portal-links/{id}"] {
            assert!(!may(Some("pl_1"), Method::GET, path), "{path}");
            assert!(may(None, Method::GET, path), "{path}");
        }
        for path in ["/v1/catalogue", "/v1/event-types/{id}", "/v1/erasures"] {
            assert!(may(Some("pl_1"), Method::GET, path), "{path}");
            for method in [Method::POST, Method::PATCH, Method::DELETE] {
                assert!(!may(Some("pl_1"), method.clone(), path), "{method} {path}");
                assert!(may(None, method.clone(), path), "{method} {path}");
            }
        }
        for path in ["/v1/subscriptions", "/v1/session", "/v1/stream", "/v1/deliveries/{id}"] {
            assert!(may(Some("pl_1"), Method::POST, path), "{path}");
        }
    }
}
