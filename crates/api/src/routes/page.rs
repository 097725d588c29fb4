//! The web page: files, and nothing that a key would be needed for. It calls the API like everybody else.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use postrider_dashboard::{FILES, File};

use crate::problem::Problem;
use crate::state::ApiState;

/// Scripts, styles and pictures of our own, calls to ourselves, and nothing else.
const CSP: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ASK_FIRST: HeaderValue = HeaderValue::from_static("no-cache");
const NO_PAGE: &str =
    "This binary was built without the dashboard: `cargo xtask serve` builds one with it.\n";

/// The paths of the page: its files by their names, and those with a hash below `/assets/`.
pub(crate) fn routes() -> axum::Router<ApiState> {
    let router = axum::Router::new().route("/", get(index)).route("/assets/{name}", get(asset));
    let top = FILES.iter().filter(|file| !file.path.contains('/') && file.path != "index.html");
    top.fold(router, |router, file| {
        let serve = async move |headers: HeaderMap| answer(file, &headers);
        router.route(&format!("/{}", file.path), get(serve))
    })
}

async fn index(headers: HeaderMap) -> Response {
    match postrider_dashboard::file("") {
        Some(file) => answer(file, &headers),
        None => ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], NO_PAGE).into_response(),
    }
}

async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    let path = format!("assets/{name}");
    let file = postrider_dashboard::file(&path);
    let file = file.ok_or_else(|| crate::layers::no_such_path(&format!("/{path}")))?;
    Ok(answer(file, &headers))
}

fn answer(file: &'static File, asked: &HeaderMap) -> Response {
    let is_known = lists(asked, header::IF_NONE_MATCH, |tag| tag == file.etag || tag == "*");
    let takes_gzip = lists(asked, header::ACCEPT_ENCODING, accepts_gzip);
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

/// Whether one of the elements of a list in the request is as wanted. A proxy that compresses by itself
/// marks entity tags as weak, which changes nothing here.
fn lists(asked: &HeaderMap, name: header::HeaderName, is_wanted: impl Fn(&str) -> bool) -> bool {
    let values = asked.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut elements = values.flat_map(|value| value.split(',')).map(str::trim);
    elements.any(|element| is_wanted(element.strip_prefix("W/").unwrap_or(element)))
}

fn accepts_gzip(element: &str) -> bool {
    let mut parts = element.split(';').map(str::trim);
    let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
    let is_refused = parts.any(|part| {
        part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()).is_some_and(|q| q <= 0.0)
    });
    is_gzip && !is_refused
}

#[cfg(test)]
mod tests {
    use super::*;

    static FILE: File = File {
        path: "assets/page-abc.js",
        content_type: "text/javascript",
        etag: "\"tag\"",
        has_hash: true,
        bytes: b"plain",
        gzip: b"packed",
    };

    fn asked(name: header::HeaderName, value: &'static str) -> Response {
        answer(&FILE, &HeaderMap::from_iter([(name, HeaderValue::from_static(value))]))
    }

    async fn body(response: Response) -> Vec<u8> {
        axum::body::to_bytes(response.into_body(), 100).await.unwrap().to_vec()
    }

    #[tokio::test]
    async fn file_is_compressed_for_those_who_accept_it() {
        for accepting in ["gzip", "br, gzip;q=0.5", "deflate, GZIP"] {
            let response = asked(header::ACCEPT_ENCODING, accepting);
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip", "{accepting}");
            assert_eq!(body(response).await, b"packed");
        }
        for refusing in ["br", "gzip;q=0", "identity", "xgzip"] {
            let response = asked(header::ACCEPT_ENCODING, refusing);
            assert!(!response.headers().contains_key(header::CONTENT_ENCODING), "{refusing}");
            assert_eq!(body(response).await, b"plain");
        }
    }

    #[tokio::test]
    async fn known_file_is_not_sent_again() {
        for known in ["\"tag\"", "\"other\", W/\"tag\"", "*"] {
            let response = asked(header::IF_NONE_MATCH, known);
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert_eq!(response.headers()[header::ETAG], "\"tag\"");
            assert_eq!(body(response).await, b"");
        }
        assert_eq!(asked(header::IF_NONE_MATCH, "\"other\"").status(), StatusCode::OK);
    }

    #[test]
    fn only_files_with_a_hash_are_kept_for_ever() {
        static PAGE: File = File { has_hash: false, ..FILE };
        let none = HeaderMap::new();
        assert_eq!(answer(&FILE, &none).headers()[header::CACHE_CONTROL], FOR_EVER);
        assert_eq!(answer(&PAGE, &none).headers()[header::CACHE_CONTROL], ASK_FIRST);
    }

    #[test]
    fn policy_allows_nothing_inline_and_nothing_from_elsewhere() {
        let response = answer(&FILE, &HeaderMap::new());
        let policy =
            response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        for hole in ["unsafe", "*", "http", "data:", "blob:"] {
            assert!(!policy.contains(hole), "{policy}");
        }
    }

    /// With the page in the binary, and without.
    #[tokio::test]
    async fn the_top_is_the_page_or_says_how_to_get_it() {
        let response = index(HeaderMap::new()).await;
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        let text = String::from_utf8(body_of_any_size(response).await).unwrap();
        match kind.as_str() {
            "text/html; charset=utf-8" => assert!(text.contains("<div id=\"app\">"), "{text}"),
            _ => assert_eq!(text, NO_PAGE),
        }
    }

    async fn body_of_any_size(response: Response) -> Vec<u8> {
        axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
    }
}
