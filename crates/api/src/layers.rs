//! Layers around every route: security headers, a deadline, and problem documents for unknown paths
//! and methods.

use std::net::IpAddr;

use axum::extract::{MatchedPath, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body::Body as _;
use postrider_engine::LARGE_BYTES;
use tracing::Instrument as _;

use crate::auth::TENANT_HEADER;
use crate::idempotency::IDEMPOTENCY_KEY;
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::workfront;

/// The client's address. The listener inserts it into the extensions of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub IpAddr);

pub(crate) const CORP: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// Marks an answer whose policy names who may frame it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MayBeFramed;

/// A page of more than so many is much work.
const SHORT_PAGE: u32 = 100;

/// The policy for all answers that are not pages: nothing may be loaded, and nothing may frame
/// them.
const CSP: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'");

/// All layers in one function: separate layers would cost every request a copy of everything below.
pub(crate) async fn around(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Response {
    let is_workfront =
        state.settings().workfront && request.uri().path().starts_with(workfront::PREFIX);
    let mut response = match unambiguous(request.headers()) {
        Ok(()) => note(&state, request, next).await,
        Err(problem) => problem.into_response(),
    };
    if is_workfront {
        // Boxed, because a rare case must not make every request's future larger.
        response = Box::pin(workfront::errors::reshape(response)).await;
    }
    secure(&mut response);
    response
}

/// Refuses a request with repeated headers for key, tenant or host: a proxy in front might have
/// used the other one.
fn unambiguous(headers: &HeaderMap) -> Result<(), Problem> {
    for name in [header::AUTHORIZATION, TENANT_HEADER, header::HOST, IDEMPOTENCY_KEY] {
        if headers.get_all(&name).iter().nth(1).is_some() {
            let detail = format!("the header {name} is there more than once: send it once");
            return Err(Problem::new(Code::BadRequest, detail).at(name.as_str()));
        }
    }
    Ok(())
}

/// Sets the security headers for browsers. A header that the route has set stays.
fn secure(response: &mut Response) {
    let may_be_framed = response.extensions().get::<MayBeFramed>().is_some();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (header::CONTENT_SECURITY_POLICY, CSP),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (CORP, HeaderValue::from_static("same-origin")),
    ] {
        if name != header::X_FRAME_OPTIONS || !may_be_framed {
            headers.entry(name).or_insert(value);
        }
    }
}

/// Logs each request: server errors as errors, all others at debug level.
async fn note(state: &ApiState, request: Request, next: Next) -> Response {
    let begun = state.now();
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("", MatchedPath::as_str);
    let response = hurry(state, request, next).await;
    let status = response.status().as_u16();
    let duration_ms = state.now().since(begun).as_millis();
    if response.status().is_server_error() {
        tracing::warn!(%method, path, status, duration_ms, "answered");
    } else {
        tracing::debug!(%method, path, status, duration_ms, "answered");
    }
    response
}

/// Ends requests that take too long.
async fn hurry(state: &ApiState, request: Request, next: Next) -> Response {
    let deadline = state.settings().request_deadline;
    match tokio::time::timeout(deadline, answer(state, request, next)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("no answer after {} s: it may have happened", deadline.as_secs());
            Problem::new(Code::TimedOut, detail).into_response()
        }
    }
}

/// Answers a request; large work runs in the background, so that no other request waits for it.
async fn answer(state: &ApiState, request: Request, next: Next) -> Response {
    if is_large(&request) {
        // Boxed, because a rare case must not make every request's future larger.
        Box::pin(state.engine().background().run(next.run(request).in_current_span())).await
    } else {
        next.run(request).await
    }
}

/// Whether a request has a large body, a body of unknown length, or asks for a long page. Of events
/// of unknown length the size is found out after the caller is known: see [`has_unknown_size`].
fn is_large(request: &Request) -> bool {
    let brings = request.body().size_hint().upper();
    let brings_much = match brings {
        Some(bytes) => bytes >= LARGE_BYTES as u64,
        None => !has_unknown_size(request),
    };
    brings_much || asks_for_a_long_page(request.uri())
}

/// Whether a request brings events, and does not say how many bytes they are.
pub(crate) fn has_unknown_size(request: &Request) -> bool {
    let is_of_events = matches!(request.uri().path(), "/v1/events" | "/v1/events/batch");
    is_of_events
        && *request.method() == Method::POST
        && request.body().size_hint().upper().is_none()
}

/// Decodes the query as the lists do: `%6cimit=%3900` is a limit too.
fn asks_for_a_long_page(uri: &Uri) -> bool {
    let Some(query) = uri.query() else { return false };
    if !query.contains("limit") && !query.contains('%') {
        return false;
    }
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri);
    pairs.is_ok_and(|Query(pairs)| {
        let mut limits = pairs.iter().filter(|(name, _)| name == "limit");
        limits.any(|(_, limit)| limit.parse().is_ok_and(|limit: u32| limit > SHORT_PAGE))
    })
}

/// The answer for an unknown path.
pub(crate) async fn unknown_path(uri: Uri) -> Problem {
    no_such_path(uri.path())
}

/// There is nothing at this path.
pub(crate) fn no_such_path(path: &str) -> Problem {
    let shown: String = path.chars().filter(|c| c.is_ascii_graphic()).take(200).collect();
    Problem::new(Code::UnknownPath, format!("there is no {shown} here"))
}

/// The answer for an unsupported method.
pub(crate) async fn wrong_method(method: Method) -> Problem {
    let shown: String = method.as_str().chars().take(20).collect();
    Problem::new(Code::MethodNotAllowed, format!("this path does not take {shown}"))
}

/// The answer after a panic, which is a bug. The caller is not told the cause.
pub(crate) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    tracing::error!("a request panicked: this is a bug");
    Problem::internal().into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_unknown_length_are_not_large_before_they_are_read() {
        let unknown = || {
            let piece = Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"{}"));
            axum::body::Body::from_stream(futures_util::stream::iter([piece]))
        };
        let request = |method: &str, path: &str, body| {
            Request::builder().method(method).uri(path).body(body).unwrap()
        };
        for (method, path, expected) in [
            ("POST", "/v1/events", false),
            ("POST", "/v1/events/batch", false),
            ("POST", "/v1/filters/test", true),
            ("POST", "/v1/events/evt_1", true),
            ("PATCH", "/v1/subscriptions/sub_1", true),
        ] {
            assert_eq!(is_large(&request(method, path, unknown())), expected, "{path}");
        }
        let large = vec![b'x'; LARGE_BYTES];
        assert!(is_large(&request("POST", "/v1/events", large.into())));
        assert!(!is_large(&request("POST", "/v1/events", "{}".into())));
    }

    #[test]
    fn a_long_page_is_large_however_it_is_written() {
        for (query, expected) in [
            ("", false),
            ("?limit=100", false),
            ("?limit=101", true),
            ("?limit=1000", true),
            ("?state=dead&limit=500&type=a", true),
            ("?limit=%31000", true),
            ("?%6cimit=500", true),
            ("?%6c%69%6d%69%74=%35%30%30", true),
            ("?limit=+500", false),
            ("?limits=500", false),
            ("?cursor=limit%3D500", false),
            ("?limit=7&limit=900", true),
        ] {
            let uri: Uri = format!("/v1/deliveries{query}").parse().unwrap();
            assert_eq!(asks_for_a_long_page(&uri), expected, "{query}");
        }
    }
}
