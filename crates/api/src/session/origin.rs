//! Tells whether a request was made by a page of this server or by a page of another site.
//!
//! A browser attaches the cookie to any request to this server, whichever page makes it. So a
//! request with a cookie must show that one of our own pages made it, by `Sec-Fetch-Site` or
//! `Origin`, which no script can set. A request with a key in its header needs no such proof: no
//! other page has the key.

use std::net::IpAddr;

use axum::extract::FromRequestParts;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, Uri, header};

use crate::problem::{Code, Problem};

/// Whether the client's request came over TLS, to this server or to a trusted proxy. The listener
/// puts this into the extensions of each request; a request without it counts as plain http.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverTls(pub bool);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses a request that a page of another site made. If `needs_proof`, a request with neither
/// `Sec-Fetch-Site` nor `Origin` is refused too.
pub(crate) fn refuse_cross_site(request: &Request, needs_proof: bool) -> Result<(), Problem> {
    let own = OwnOrigin::new(request.uri(), request.headers(), request.extensions());
    let is_ours = judge(request.headers(), own.as_ref(), needs_proof);
    is_ours.then_some(()).ok_or_else(|| {
        let detail = "a request with a session must come from a page of this server: its Origin (or \
                      Sec-Fetch-Site) says otherwise; programs send a key as Authorization: Bearer";
        Problem::new(Code::CrossSite, detail)
    })
}

fn judge(headers: &HeaderMap, own: Option<&OwnOrigin>, needs_proof: bool) -> bool {
    match headers.get(SEC_FETCH_SITE).map(|value| value.as_bytes()) {
        Some(b"same-origin") => return true,
        // `none`: the user typed the address or opened a bookmark.
        Some(b"none") if !needs_proof => return true,
        Some(_) => return false,
        None => {}
    }
    match headers.get(header::ORIGIN) {
        Some(origin) => own.is_some_and(|own| origin.as_bytes() == own.0.as_bytes()),
        None => !needs_proof,
    }
}

/// Refuses a request whose answer sets a cookie that the browser would not keep: over plain http,
/// browsers keep a `__Host-` cookie only from loopback.
pub(crate) fn require_tls(request: &Request) -> Result<(), Problem> {
    let host = host(request.uri(), request.headers()).unwrap_or_default();
    if is_over_tls(request.extensions()) || is_loopback(host) {
        return Ok(());
    }
    let detail = "browsers keep no session over plain http: give the server a certificate \
                  (server.tls_cert, server.tls_key), or put a proxy with TLS in front of it that sends \
                  x-forwarded-proto, and name its address in server.trusted_proxies; on the machine itself, \
                  http://127.0.0.1 works";
    Err(Problem::new(Code::TlsNeeded, detail))
}

/// The origin of this server, as the client of a request sees it: `https://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnOrigin(pub(crate) String);

impl OwnOrigin {
    fn new(uri: &Uri, headers: &HeaderMap, extensions: &Extensions) -> Option<Self> {
        let scheme = if is_over_tls(extensions) { "https" } else { "http" };
        let host = host(uri, headers)?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        host.chars().all(is_host).then(|| OwnOrigin(format!("{scheme}://{host}")))
    }
}

impl<S: Sync> FromRequestParts<S> for OwnOrigin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        OwnOrigin::new(&parts.uri, &parts.headers, &parts.extensions).ok_or_else(|| {
            Problem::new(Code::BadRequest, "the header host names no host: send it").at("host")
        })
    }
}

fn is_over_tls(extensions: &Extensions) -> bool {
    extensions.get::<OverTls>().is_some_and(|over| over.0)
}

/// The host that a request names: in its target with HTTP/2, in the header `host` with HTTP/1.1.
fn host<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    let of_target = uri.authority().map(|authority| authority.as_str());
    let host = of_target.or_else(|| headers.get(header::HOST)?.to_str().ok());
    host.filter(|host| !host.is_empty() && !host.contains('@'))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_local_name = name == "localhost" || name.ends_with(".localhost");
    is_local_name || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_pages_are_believed() {
        let own = OwnOrigin("https://hooks.example.com".to_owned());
        for (site, origin, safe, unsafe_) in [
            (None, None, true, false),
            (Some("same-origin"), None, true, true),
            (Some("same-origin"), Some("https://hooks.example.com"), true, true),
            (Some("none"), None, true, false),
            (Some("same-site"), Some("https://hooks.example.com"), false, false),
            (Some("cross-site"), None, false, false),
            (None, Some("https://hooks.example.com"), true, true),
            (None, Some("http://hooks.example.com"), false, false),
            (None, Some("https://hooks.example.com:8443"), false, false),
            (None, Some("https://evil.example"), false, false),
            (None, Some("null"), false, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(site) = site {
                headers.insert(SEC_FETCH_SITE, site.parse().unwrap());
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            let judged = [false, true].map(|proof| judge(&headers, Some(&own), proof));
            assert_eq!(judged, [safe, unsafe_], "{site:?} {origin:?}");
        }
    }

    #[test]
    fn loopback_is_told_from_other_hosts() {
        for host in
            ["localhost", "localhost:8080", "a.localhost", "127.0.0.1:1", "[::1]:80", "[::1]"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.com", "10.0.0.1", "localhost.example.com", "[2001:db8::1]:80"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
