//! A request and its target.
//!
//! A [`Target`] is created once per destination and kept: everything that can be parsed or
//! formatted in advance is in it. A [`Request`] is what one attempt adds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Method, Version};
use postrider_domain::egress::{DestinationUrl, Host};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::payload::Body;
use rustls::pki_types::ServerName;

use crate::payload::Payload;
use crate::tls::ClientIdentity;

const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("postrider/", env!("CARGO_PKG_VERSION")));
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");

/// The URL cannot be used in a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the URL cannot be put into a request: {0}")]
pub struct InvalidTarget(String);

/// One POST. Neither its headers nor its body are ever printed: they may contain a token.
#[derive(Clone)]
pub struct Request {
    /// The destination.
    pub target: Arc<Target>,
    /// Headers except those of the transport: `host`, `user-agent`, `accept-encoding`, and those
    /// that frame a message.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The body.
    pub body: Body,
    /// The time limit of the whole request.
    pub deadline: Duration,
    /// How much of the response's body is kept.
    pub response_body_bytes_max: usize,
}

/// A destination of a tenant, with the client certificate to use.
#[derive(Debug)]
pub struct Target {
    destination: DestinationId,
    url: DestinationUrl,
    identity: Option<Arc<ClientIdentity>>,
    host_header: HeaderValue,
    origin_form: Uri,
    absolute_form: Uri,
    pub(crate) host: TargetHost,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) key: Arc<PoolKey>,
}

/// The host of a target, as it is resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TargetHost {
    Name(Arc<str>),
    Address(std::net::IpAddr),
}

/// The key of the connection pool: only requests with equal keys share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub(crate) tenant: TenantId,
    pub(crate) https: bool,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    pub(crate) identity: Option<[u8; 32]>,
}

impl Target {
    /// Prepares requests to a destination.
    ///
    /// # Errors
    ///
    /// If the URL cannot be used in a request, which never happens with a vetted URL.
    pub fn new(
        tenant: TenantId,
        destination: DestinationId,
        url: DestinationUrl,
        identity: Option<Arc<ClientIdentity>>,
    ) -> Result<Self, InvalidTarget> {
        let invalid = |error: &dyn std::fmt::Display| InvalidTarget(error.to_string());
        let host_text = url.host().to_string();
        let default_port = if url.is_https() { 443 } else { 80 };
        let authority_text = match url.port_or_default() {
            port if port == default_port => host_text.clone(),
            port => format!("{host_text}:{port}"),
        };
        let (host, server_name) = match url.host() {
            Host::Domain(name) => {
                let server_name = ServerName::try_from(name.trim_end_matches('.').to_owned());
                (TargetHost::Name(name.into()), server_name.map_err(|error| invalid(&error))?)
            }
            Host::Ipv4(address) => {
                (TargetHost::Address(address.into()), ServerName::IpAddress(address.into()))
            }
            Host::Ipv6(address) => {
                (TargetHost::Address(address.into()), ServerName::IpAddress(address.into()))
            }
        };
        let path: PathAndQuery = url.path_and_query().parse().map_err(|e| invalid(&e))?;
        let authority: Authority = authority_text.parse().map_err(|e| invalid(&e))?;
        let absolute_form = Uri::builder()
            .scheme(if url.is_https() { Scheme::HTTPS } else { Scheme::HTTP })
            .authority(authority)
            .path_and_query(path.clone())
            .build()
            .map_err(|error| invalid(&error))?;
        let key = PoolKey {
            tenant,
            https: url.is_https(),
            host: host_text.into(),
            port: url.port_or_default(),
            identity: identity.as_ref().map(|identity| identity.fingerprint()),
        };
        Ok(Target {
            destination,
            identity,
            host_header: HeaderValue::try_from(authority_text).map_err(|e| invalid(&e))?,
            origin_form: Uri::from(path),
            absolute_form,
            host,
            server_name,
            key: Arc::new(key),
            url,
        })
    }

    /// The tenant of the destination.
    pub fn tenant(&self) -> &TenantId {
        &self.key.tenant
    }

    /// The destination.
    pub fn destination(&self) -> DestinationId {
        self.destination
    }

    /// Its URL.
    pub fn url(&self) -> &DestinationUrl {
        &self.url
    }

    pub(crate) fn identity(&self) -> Option<&ClientIdentity> {
        self.identity.as_deref()
    }
}

impl Request {
    /// The request as HTTP/1.1 sends it.
    pub(crate) fn to_http1(&self) -> http::Request<Payload> {
        let mut request = self.to_http(self.target.origin_form.clone());
        request.headers_mut().insert(header::HOST, self.target.host_header.clone());
        request
    }

    /// The headers as HTTP/1.1 sends them. Those that hold a secret are marked as sensitive.
    pub fn sent_headers(&self) -> HeaderMap {
        std::mem::take(self.to_http1().headers_mut())
    }

    /// The request as HTTP/2 sends it.
    pub(crate) fn to_http2(&self) -> http::Request<Payload> {
        let mut request = self.to_http(self.target.absolute_form.clone());
        *request.version_mut() = Version::HTTP_2;
        request
    }

    fn to_http(&self, uri: Uri) -> http::Request<Payload> {
        let mut request = http::Request::new(Payload::new(&self.body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let mut headers = HeaderMap::with_capacity(self.headers.len() + 4);
        headers.insert(header::USER_AGENT, USER_AGENT);
        for (name, value) in &self.headers {
            if name == header::USER_AGENT {
                headers.insert(header::USER_AGENT, value.clone());
            } else if name == header::AUTHORIZATION {
                let mut secret = value.clone();
                secret.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, secret);
            } else if !is_ours(name) {
                headers.append(name.clone(), value.clone());
            }
        }
        headers.insert(header::ACCEPT_ENCODING, IDENTITY);
        *request.headers_mut() = headers;
        request
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("url", &self.target.url)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// Headers that frame a message or belong to the transport. They are already refused when a
/// subscription is created; this is a second check.
fn is_ours(name: &HeaderName) -> bool {
    const OURS: [HeaderName; 9] = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::EXPECT,
        header::TE,
        header::TRAILER,
        header::ACCEPT_ENCODING,
    ];
    OURS.contains(name)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn target(url: &str) -> Target {
        let tenant = TenantId::default_tenant();
        let url = DestinationUrl::from_trusted(url).unwrap();
        let destination = DestinationId::of(&tenant, url.as_str());
        Target::new(tenant, destination, url, None).unwrap()
    }

    #[test]
    fn a_url_becomes_a_request_line_and_a_host() {
        let cases = [
            ("https://hooks.example.com", "/", "hooks.example.com"),
            ("https://hooks.example.com:443/a?b=c", "/a?b=c", "hooks.example.com"),
            ("http://hooks.example.com:8080/a//b", "/a//b", "hooks.example.com:8080"),
            ("http://hooks.example.com:443/", "/", "hooks.example.com:443"),
            ("https://[2606:4700::1]:8443/x", "/x", "[2606:4700::1]:8443"),
            ("https://8.8.8.8/x", "/x", "8.8.8.8"),
            (
                "https://a.example/p|^`{}\"<>?q=`{}|^'\"<>",
                "/p|^%60%7B%7D%22%3C%3E?q=`{}|^%27%22%3C%3E",
                "a.example",
            ),
        ];
        for (url, path, host) in cases {
            let target = target(url);
            assert_eq!(target.origin_form.to_string(), path, "{url}");
            assert_eq!(target.host_header, host, "{url}");
            assert_eq!(target.absolute_form.authority().unwrap().as_str(), host, "{url}");
        }
    }

    #[test]
    fn headers_that_frame_a_message_are_never_taken_over() {
        let pair = |name: &str, value: &str| {
            (HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap())
        };
        let request = Request {
            target: Arc::new(target("https://hooks.example.com/in")),
            headers: vec![
                pair("webhook-id", "dlv_1"),
                pair("content-length", "1"),
                pair("transfer-encoding", "chunked"),
                pair("host", "internal"),
                pair("connection", "upgrade"),
                pair("accept-encoding", "gzip"),
                pair("x-a", "1"),
                pair("x-a", "2"),
                pair("authorization", "Bearer secret"),
            ],
            body: Bytes::from_static(b"{}").into(),
            deadline: Duration::from_secs(5),
            response_body_bytes_max: 16,
        };
        assert!(!format!("{request:?}").contains("secret"));
        let sent = request.to_http1();
        assert!(sent.headers()["authorization"].is_sensitive());
        assert!(!format!("{sent:?}").contains("secret"));
        let mut lines: Vec<_> = sent
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        lines.sort();
        assert_eq!(
            lines,
            [
                "accept-encoding: identity",
                "authorization: Bearer secret",
                "host: hooks.example.com",
                concat!("user-agent: postrider/", env!("CARGO_PKG_VERSION")),
                "webhook-id: dlv_1",
                "x-a: 1",
                "x-a: 2",
            ]
        );
        assert_eq!(request.to_http2().headers().get("host"), None);
    }

    #[test]
    fn connections_are_never_shared_between_tenants_or_identities() {
        let url = || DestinationUrl::from_trusted("https://hooks.example.com/a").unwrap();
        let key = |tenant: &str, identity| {
            let tenant: TenantId = tenant.parse().unwrap();
            let destination = DestinationId::of(&tenant, url().as_str());
            Target::new(tenant, destination, url(), identity).unwrap().key
        };
        let identity = Arc::new(ClientIdentity::from_pem(None, None).unwrap());
        assert_eq!(key("a", None), key("a", None));
        assert_ne!(key("a", None), key("b", None));
        assert_ne!(key("a", None), key("a", Some(identity)));
        assert_eq!(target("https://h.example/a").key, target("https://h.example/b").key);
        assert_ne!(target("https://h.example/a").key, target("http://h.example/a").key);
    }
}
