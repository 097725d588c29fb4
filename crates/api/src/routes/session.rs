//! Signing in and out.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use postrider_domain::time::Timestamp;

use crate::audit;
use crate::auth::{self, Anybody, GivenAdmin, Identity};
use crate::body;
use crate::layers::ClientAddress;
use crate::problem::{Code, Problem, ProblemBody};
use crate::rates;
use crate::session::{self, Grant, LinkBody, Opened, cookie, link, origin};
use crate::settings::SIGN_IN_BYTES_MAX;
use crate::state::ApiState;
use crate::wire::portal::ThemeView;
use crate::wire::session::{SessionToken, SessionView, SignInBody};

/// Sign in
///
/// Exchanges a key, or the token of a link, for a session. A browser gets it as a cookie
/// (`__Host-postrider`), which it takes over TLS, and over plain http from loopback alone. A session has the
/// scopes of its key and ends with it, at the latest after `session.lifetime`. `Idempotency-Key` is ignored.
#[utoipa::path(
    post, path = "/v1/session", tag = "session", security(()),
    request_body = SignInBody,
    responses(
        (status = 200, body = SessionToken, description = "Signed in, with a token to be held in memory"),
        (status = 204, description = "Signed in, with a cookie"),
        (status = 400, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `invalid_json`, `bad_request`"),
        (status = 401, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `unauthorized`"),
        (status = 403, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `cross_site`, `tls_needed`"),
        (status = 408, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `body_too_slow`"),
        (status = 410, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `link_gone`"),
        (status = 413, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `body_too_large`"),
        (status = 415, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `unsupported_media_type`"),
        (status = 422, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `invalid_field`, `unknown_field`, `missing_field`"),
        (status = 429, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `rate_limited`"),
        (status = 500, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `internal`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `server_limit_reached`, `unavailable`, `overloaded`")
    )
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    request: Request,
) -> Result<Response, Problem> {
    let now = state.now();
    let address = request.extensions().get::<ClientAddress>().map(|client| client.0);
    state
        .sign_in_rates()
        .take(&auth::network_of(address), now)
        .map_err(|seconds| rates::refusal("address", seconds))?;
    origin::refuse_cross_site(&request, false)?;
    let has_tls = origin::require_tls(&request);
    body::require_json(request.headers())?;
    let bytes = body::read(request.into_body(), SIGN_IN_BYTES_MAX, &state).await?;
    let wish: SignInBody = body::parse(&bytes)?;
    if !wish.in_memory {
        // Checked before the link is used up: a link works once, and the browser would not keep the
        // cookie.
        has_tls?;
    }
    let (grant, who) = granted(&state, &wish, address, now).await.inspect_err(|problem| {
        let address = address.map(|address| address.to_string());
        tracing::warn!(address, code = problem.code().as_str(), "somebody could not sign in");
    })?;
    let opened = session::open(&state, grant, &who, wish.in_memory, now).await?;
    audit::signed(&state, &who, "session.create", address, StatusCode::NO_CONTENT).await;
    answer(opened, wish.in_memory, now)
}

/// Checks the key or token of a sign-in and returns its right and its identity. A link is used up
/// by this.
async fn granted(
    state: &ApiState,
    wish: &SignInBody,
    peer: Option<IpAddr>,
    now: Timestamp,
) -> Result<(Grant, Identity), Problem> {
    match (&wish.key, &wish.token) {
        (Some(key), None) => {
            if wish.in_memory {
                let why = "for portal links only: send the key itself as Authorization: Bearer";
                return Err(Problem::field("in_memory", why));
            }
            let who = auth::identify(state, key.0.trim().as_bytes(), peer, now).await;
            let who = who.map_err(not_valid)?;
            let grant = match (&*who.key_id, state.given_admin()) {
                (GivenAdmin::KEY_ID, Some(given)) => {
                    Grant::Given { mark: given.mark(state.vault()) }
                }
                (id, _) => Grant::Key { id: id.to_owned() },
            };
            Ok((grant, who))
        }
        (None, Some(token)) => {
            let found = link::find(state, token.0.as_bytes(), now).await?;
            if wish.in_memory && !matches!(found.grant, Grant::Portal { .. }) {
                return Err(Problem::field("in_memory", "for portal links only: leave it out"));
            }
            link::redeem(state, &found, now).await?;
            Ok((found.grant, found.who))
        }
        (None, None) => Err(Problem::missing("key")),
        (Some(_), Some(_)) => Err(Problem::field("token", "a key or a token, not both")),
    }
}

/// Words the refusal of a key for the sign-in page.
fn not_valid(problem: Problem) -> Problem {
    if problem.code() != Code::Unauthorized {
        return problem;
    }
    let detail = "this key is not valid: it is misspelt, was deleted, or has expired";
    Problem::new(Code::Unauthorized, detail)
}

fn answer(opened: Opened, in_memory: bool, now: Timestamp) -> Result<Response, Problem> {
    let Opened { text, expires_at } = opened;
    if in_memory {
        return Ok(Json(SessionToken { token: text.to_string(), expires_at }).into_response());
    }
    let cookie = cookie::set(&text, expires_at.since(now).as_secs())?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// Show the session
///
/// Who is signed in, and what may be done. Answers for a key too, so that a program can learn its tenant and
/// scopes.
#[utoipa::path(
    get, path = "/v1/session", tag = "session",
    responses((status = 200, body = SessionView, description = "Who is signed in"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    Anybody(caller): Anybody,
) -> Result<Json<SessionView>, Problem> {
    let session = caller.session.as_deref();
    let theme = match session.and_then(session::Session::portal) {
        None => None,
        Some(link) => {
            let pass = state.passes().get(&state, link, state.now()).await?;
            let body = pass.and_then(|pass| LinkBody::of(&pass));
            body.map(|body| ThemeView::of(&body.theme))
        }
    };
    let is_portal = session.is_some_and(|session| session.portal().is_some());
    Ok(Json(SessionView {
        tenant: caller.bound_to().map(ToString::to_string),
        scopes: caller.scopes.iter().map(|scope| scope.as_str()).collect(),
        kind: if is_portal { "portal" } else { "key" },
        expires_at: session.map(session::Session::expires_at),
        theme,
    }))
}

/// Sign out
///
/// Ends the session and removes the cookie; on other nodes of a cluster it ends within seconds. Answers alike
/// where there is no session.
#[utoipa::path(
    delete, path = "/v1/session", tag = "session", security(()),
    responses(
        (status = 204, description = "Signed out"),
        (status = 403, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `cross_site`"),
        (status = 429, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `rate_limited`"),
        (status = 500, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `internal`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `unavailable`, `overloaded`")
    )
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    request: Request,
) -> Result<Response, Problem> {
    let has_cookie = cookie::read(request.headers()).is_some();
    let has_bearer = auth::bearer(request.headers()).is_some();
    origin::refuse_cross_site(&request, has_cookie && !has_bearer)?;
    let address = request.extensions().get::<ClientAddress>().map(|client| client.0);
    let headers = request.headers().clone();
    drop(request);
    if let Some(who) = session::close(&state, &headers, address, state.now()).await? {
        audit::signed(&state, &who, "session.delete", address, StatusCode::NO_CONTENT).await;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie::clear())]).into_response())
}
