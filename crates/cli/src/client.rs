//! The client of the API that the other commands use.
//!
//! One request, one connection, one answer; nothing is retried, and no proxy is taken from the
//! environment. Kinds of failures are distinguished, because scripts check the exit code.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use url::Url;

use crate::exit::Failure;

/// A longer answer does not come from a Postrider server.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// If the server does not answer within this time, it counts as unreachable.
const DEADLINE: Duration = Duration::from_secs(60);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A connection's parameters: server, key and tenant.
#[derive(Clone)]
pub struct Client {
    server: Url,
    key: Option<String>,
    tenant: Option<String>,
}

impl Client {
    /// A client of the server at this URL.
    pub fn new(
        server: &str,
        key: Option<String>,
        tenant: Option<String>,
    ) -> Result<Client, Failure> {
        let url = Url::parse(server).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host().is_some()
                && url.query().is_none()
        });
        match url {
            Some(server) => Ok(Client { server, key, tenant }),
            None => Err(Failure::usage("--server must be a URL such as http://127.0.0.1:8080")),
        }
    }

    /// The server's URL.
    pub fn server(&self) -> &Url {
        &self.server
    }

    /// Sends a request, and returns the answer as JSON; `null` if it has no body.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Option<Bytes>,
    ) -> Result<Json, Failure> {
        let answer = self.send(method, path, query, body.unwrap_or_default());
        let (status, bytes) = tokio::time::timeout(DEADLINE, answer)
            .await
            .map_err(|_| Failure::unreachable(&self.server, "no answer within a minute"))??;
        let json = if bytes.is_empty() { Json::Null } else { parse(&bytes) };
        if status.is_success() { Ok(json) } else { Err(Failure::answered(status, &json)) }
    }

    /// Sends a request for text, such as `/metrics` and `/healthz`.
    pub async fn text(&self, path: &str) -> Result<(StatusCode, String), Failure> {
        let answer = self.send(Method::GET, path, &[], Bytes::new());
        let (status, bytes) = tokio::time::timeout(DEADLINE, answer)
            .await
            .map_err(|_| Failure::unreachable(&self.server, "no answer within a minute"))??;
        Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Begins a stream of server-sent events.
    pub async fn follow(&self, path: &str, query: &[(&str, String)]) -> Result<Incoming, Failure> {
        let response = self.open(Method::GET, path, query, Bytes::new()).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let bytes = self.collect(response).await?;
        Err(Failure::answered(status, &parse(&bytes)))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let response = self.open(method, path, query, body).await?;
        let status = response.status();
        Ok((status, self.collect(response).await?))
    }

    async fn collect(&self, response: Response<Incoming>) -> Result<Bytes, Failure> {
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok(body.map_err(|error| self.lost(error))?.to_bytes())
    }

    async fn open(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let request = self.request(method, path, query, body)?;
        let stream = self.connect().await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.lost(error))?;
        // The task ends when the answer is read or dropped; errors are reported by the answer.
        drop(tokio::spawn(connection));
        sender.send_request(request).await.map_err(|error| self.lost(error))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, String)],
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut url = self.server.clone();
        url.set_path(&format!("{}{path}", self.server.path().trim_end_matches('/')));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, authority)
            .header("user-agent", concat!("postrider/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        if let Some(tenant) = &self.tenant {
            request = request.header("postrider-tenant", tenant);
        }
        request
            .body(Full::new(body))
            .map_err(|_| Failure::usage("the key, the tenant or an argument has characters that a header or URL cannot have"))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Failure> {
        let host = self.server.host_str().unwrap_or_default();
        let port = self.server.port_or_known_default().unwrap_or(80);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, port)).await.map_err(|error| self.lost(error))?;
        if self.server.scheme() == "http" {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| self.lost(error))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(self.tls()?));
        let stream = connector.connect(name, stream).await.map_err(|error| self.lost(error))?;
        Ok(Box::new(stream))
    }

    fn tls(&self) -> Result<rustls::ClientConfig, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        let (_, _) =
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| self.lost(error))?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }

    fn lost(&self, error: impl std::fmt::Display) -> Failure {
        Failure::unreachable(&self.server, &error.to_string())
    }
}

/// Parses the body of an answer; text stays text.
fn parse(bytes: &[u8]) -> Json {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Json::String(String::from_utf8_lossy(bytes).into_owned()))
}
