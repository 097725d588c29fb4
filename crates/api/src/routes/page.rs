//! The web page: static files, for which no key is needed. The page calls the API like any other
//! client.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use postrider_dashboard::{FILES, File};

use crate::layers::{CORP, MayBeFramed};
use crate::problem::Problem;
use crate::settings::Origin;
use crate::state::ApiState;

/// The content security policy: scripts, styles and pictures only from this server, calls only to
/// this server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
const CSP: HeaderValue = HeaderValue::from_static(POLICY);
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_FIRST: HeaderValue = HeaderValue::from_static("no-cache");
const NO_PAGE: &str =
    "This binary was built without the dashboard: `cargo xtask serve` builds one with it.\n";

/// The routes of the page: `/`, `/portal`, files at the top by their names, and files with a hash
/// in their names below `/assets/`.
pub(crate) fn routes() -> axum::Router<ApiState> {
    let router = axum::Router::new()
        .route("/", get(index))
        .route("/portal", get(portal))
        .route("/assets/{name}", get(asset));
    let top = FILES.iter().filter(|file| !file.path.contains('/') && file.path != "index.html");
    top.fold(router, |router, file| {
        let serve = async move |headers: HeaderMap| answer(file, &headers);
        router.route(&format!("/{}", file.path), get(serve))
    })
}

/// Whether the page is in this binary: there is something to sign in to.
pub fn has_page() -> bool {
    postrider_dashboard::file("").is_some()
}

async fn index(headers: HeaderMap) -> Response {
    page(&headers)
}

/// The same page as `/`, for the customers of the application. **Only this path may be framed**, by
/// the origins that the operator lists. `/` never may, so another site cannot hide an operator's
/// session in a frame and have it clicked (clickjacking).
async fn portal(State(state): State<ApiState>, headers: HeaderMap) -> Response {
    let mut response = page(&headers);
    let origins = &state.settings().frame_ancestors.0;
    if let Some(framed) = framed_by(origins) {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, framed);
        // An embedding page with a `Cross-Origin-Embedder-Policy` loads the frame only with this
        // header.
        headers.insert(CORP, HeaderValue::from_static("cross-origin"));
        response.extensions_mut().insert(MayBeFramed);
    }
    response
}

/// The content security policy that lets these origins frame the page; `None` if there are none.
fn framed_by(origins: &[Origin]) -> Option<HeaderValue> {
    if origins.is_empty() {
        return None;
    }
    let origins: Vec<&str> = origins.iter().map(Origin::as_str).collect();
    let framed = format!("frame-ancestors {}", origins.join(" "));
    HeaderValue::from_str(&POLICY.replace("frame-ancestors 'none'", &framed)).ok()
}

fn page(headers: &HeaderMap) -> Response {
    match postrider_dashboard::file("") {
        Some(file) => answer(file, headers),
        None => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], NO_PAGE).into_response(),
    }
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let path = format!("assets/{name}");
    let file = postrider_dashboard::file(&path);
    let file = file.ok_or_else(|| crate::layers::no_such_path(&format!("/{path}")))?;
    Ok(answer(file, &headers))
}

/// The elements of a header whose value is a comma-separated list.
fn parts_of<'h>(asked: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn answer(file: &'static File, asked: &HeaderMap) -> Response {
    let is_known = parts_of(asked, &header::IF_NONE_MATCH)
        .any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == file.etag);
    let takes_gzip = parts_of(asked, &header::ACCEPT_ENCODING).any(|part| {
        let (coding, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        coding.trim() == "gzip" && weight.is_none_or(|weight| weight > 0.0)
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: File = File {
        path: "index.html",
        content_type: "text/html; charset=utf-8",
        etag: "\"abc\"",
        has_hash: false,
        bytes: b"<!doctype html>",
        gzip: b"packed",
    };
    static INDEX: File = PAGE;
    static SCRIPT: File = File {
        path: "assets/index-1a2b.js",
        content_type: "text/javascript; charset=utf-8",
        has_hash: true,
        ..PAGE
    };

    fn asked(file: &'static File, headers: &[(header::HeaderName, &'static str)]) -> Response {
        let mut asked = HeaderMap::new();
        for (name, value) in headers {
            asked.append(name, HeaderValue::from_static(value));
        }
        answer(file, &asked)
    }

    async fn body(response: Response) -> Vec<u8> {
        axum::body::to_bytes(response.into_body(), 1024).await.unwrap().to_vec()
    }

    #[tokio::test]
    async fn page_comes_packed_to_whoever_takes_that() {
        let plain = asked(&INDEX, &[]);
        assert_eq!(plain.status(), 200);
        assert_eq!(plain.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(plain.headers()[header::VARY], "accept-encoding");
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        assert_eq!(body(plain).await, INDEX.bytes);
        for value in ["gzip", "br, gzip;q=0.9", "deflate,gzip"] {
            let packed = asked(&INDEX, &[(header::ACCEPT_ENCODING, value)]);
            assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip", "{value}");
            assert_eq!(body(packed).await, INDEX.gzip);
        }
        for value in ["br", "identity", "gzip;q=0", "gzip; q=0.000"] {
            let plain = asked(&INDEX, &[(header::ACCEPT_ENCODING, value)]);
            assert!(!plain.headers().contains_key(header::CONTENT_ENCODING), "{value}");
        }
    }

    #[tokio::test]
    async fn known_page_is_not_sent_again() {
        for value in ["\"abc\"", "W/\"abc\"", "\"x\", \"abc\"", "*"] {
            let known = asked(&INDEX, &[(header::IF_NONE_MATCH, value)]);
            assert_eq!(known.status(), 304, "{value}");
            assert_eq!(known.headers()[header::ETAG], "\"abc\"");
            assert!(body(known).await.is_empty());
        }
        assert_eq!(asked(&INDEX, &[(header::IF_NONE_MATCH, "\"ab\"")]).status(), 200);
    }

    #[test]
    fn only_files_with_a_hash_in_their_name_are_kept_for_ever() {
        let of = |file| asked(file, &[]).headers()[header::CACHE_CONTROL].clone();
        assert_eq!(of(&INDEX), "no-cache");
        assert_eq!(of(&SCRIPT), "public, max-age=31536000, immutable");
    }

    #[test]
    fn policy_permits_nothing_inline_and_nothing_from_elsewhere() {
        let policy = asked(&INDEX, &[]).headers()[header::CONTENT_SECURITY_POLICY].clone();
        let policy = policy.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        for word in ["unsafe", "*", "http:", "https:", "data:", "blob:"] {
            assert!(!policy.contains(word), "{word} in {policy}");
        }
        for part in policy.split("; ").filter(|part| part.contains("-src")) {
            let (_, sources) = part.split_once(' ').unwrap();
            assert!(["'none'", "'self'"].contains(&sources), "{part}");
        }
        let framed = framed_by(&["https://app.example.com".parse().unwrap()]).unwrap();
        assert!(framed.to_str().unwrap().ends_with("frame-ancestors https://app.example.com"));
        assert_eq!(framed_by(&[]), None);
    }
}
