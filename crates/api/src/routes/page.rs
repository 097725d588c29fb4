//! The web page: files, and nothing that a key would be needed for. It calls the API like everybody else.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use postrider_dashboard::File;

use crate::problem::Problem;
use crate::state::ApiState;

/// Scripts, styles and pictures of our own, calls to ourselves, and nothing else.
const CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_FIRST: HeaderValue = HeaderValue::from_static("no-cache");
const NO_PAGE: &str = "This binary was built without the dashboard: `cargo xtask serve` builds it with one. \
                       The API is described at /docs.\n";

/// The paths of the page.
pub(crate) fn routes() -> axum::Router<ApiState> {
    axum::Router::new()
        .route("/", axum::routing::get(index))
        .route("/assets/{name}", axum::routing::get(asset))
        .route("/favicon.svg", axum::routing::get(async |h: HeaderMap| found("favicon.svg", &h)))
        .route(
            "/favicon-alert.svg",
            axum::routing::get(async |h: HeaderMap| found("favicon-alert.svg", &h)),
        )
}

async fn index(headers: HeaderMap) -> Response {
    match postrider_dashboard::file("") {
        Some(file) => answer(file, &headers),
        None => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], NO_PAGE).into_response(),
    }
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    found(&format!("assets/{name}"), &headers)
}

fn found(path: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    let file = postrider_dashboard::file(path).ok_or_else(|| crate::layers::no_such_path(path))?;
    Ok(answer(file, headers))
}

fn answer(file: &'static File, asked: &HeaderMap) -> Response {
    let names = |name: header::HeaderName, what: &str| {
        let values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
        let mut parts = values.flat_map(|value| value.split(','));
        parts.any(|part| part.split(';').next().is_some_and(|part| part.trim() == what))
    };
    let is_known = names(header::IF_NONE_MATCH, file.etag);
    let takes_gzip = names(header::ACCEPT_ENCODING, "gzip");
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        (if takes_gzip { file.gzip } else { file.bytes }).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    headers.insert(header::ETAG, HeaderValue::from_static(file.etag));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CACHE_CONTROL, if file.has_hash { FOR_EVER } else { ASK_FIRST });
    headers.insert(header::CONTENT_SECURITY_POLICY, CSP);
    if takes_gzip && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}
