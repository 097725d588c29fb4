//! One POST to an operator's URL: signed JSON, or what Slack takes.
//!
//! The URL is the operator's own, so it may be internal: **the egress rules do not apply to it**, and
//! no tenant can choose it. Redirects are not followed, and the answer's body is not read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper_util::rt::TokioIo;
use postrider_domain::signature::{self, SigningSecret};
use postrider_domain::time::Timestamp;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use url::{Position, Url};

/// The time limit of one message.
const DEADLINE: Duration = Duration::from_secs(20);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A URL to post to.
pub(super) struct Webhook {
    url: Url,
    /// Signs the messages; `None` for Slack.
    secret: Option<SigningSecret>,
    tls: Arc<rustls::ClientConfig>,
}

impl Webhook {
    pub(super) fn new(
        url: Url,
        secret: Option<SigningSecret>,
        tls: Arc<rustls::ClientConfig>,
    ) -> Self {
        Webhook { url, secret, tls }
    }

    /// Posts a body. The error has no part of the URL but its host.
    pub(super) async fn post(&self, id: &str, body: Bytes, now: Timestamp) -> Result<(), String> {
        match tokio::time::timeout(DEADLINE, self.try_post(id, body, now)).await {
            Ok(result) => result,
            Err(_) => Err(format!("no answer within {} s", DEADLINE.as_secs())),
        }
    }

    async fn try_post(&self, id: &str, body: Bytes, now: Timestamp) -> Result<(), String> {
        let request = self.request(id, body, now)?;
        let stream = self.connect().await?;
        let lost = |error: hyper::Error| format!("the connection failed: {error}");
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(lost)?;
        // The task ends with the answer; errors are reported by the answer.
        drop(tokio::spawn(connection));
        let answer = sender.send_request(request).await.map_err(lost)?;
        let status = answer.status();
        if status.is_success() { Ok(()) } else { Err(format!("it answered {}", status.as_u16())) }
    }

    fn request(
        &self,
        id: &str,
        body: Bytes,
        now: Timestamp,
    ) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::post(&self.url[Position::BeforePath..Position::AfterQuery])
            .header(HOST, &self.url[Position::BeforeHost..Position::AfterPort])
            .header(USER_AGENT, concat!("postrider/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json");
        if let Some(secret) = &self.secret {
            let seconds = now.as_unix_seconds();
            let signed = signature::sign([secret], id, seconds, &body);
            request = request
                .header(signature::ID_HEADER, id)
                .header(signature::TIMESTAMP_HEADER, seconds)
                .header(signature::SIGNATURE_HEADER, signed);
        }
        request.body(Full::new(body)).map_err(|_| "the URL cannot be requested".to_owned())
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, String> {
        let host = self.url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = self.url.port_or_known_default().unwrap_or(443);
        let connected = TcpStream::connect((bare, port)).await;
        let stream = connected.map_err(|error| format!("cannot connect to {host}: {error}"))?;
        if self.url.scheme() == "http" {
            return Ok(Box::new(stream));
        }
        let refused = |error: &dyn std::fmt::Display| format!("no TLS with {host}: {error}");
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| refused(&error))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&self.tls));
        let stream = connector.connect(name, stream).await.map_err(|error| refused(&error))?;
        Ok(Box::new(stream))
    }
}
