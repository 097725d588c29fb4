//! Connections to the server: TCP, and TLS for https. No proxy is taken from the environment.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Error;

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl Connector {
    /// For a URL with this scheme. Reads the platform's certificates for https only.
    pub(crate) fn new(scheme: &str) -> Result<Connector, Error> {
        let tls = if scheme == "https" { Some(Arc::new(tls()?)) } else { None };
        Ok(Connector { tls })
    }
}

/// Trusts what the platform trusts; the bundled roots where the platform has none.
fn tls() -> Result<rustls::ClientConfig, Error> {
    let mut roots = rustls::RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if added == 0 {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Usage(format!("TLS: {error}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl tower::Service<Uri> for Connector {
    type Response = Conversation;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Conversation>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.tls.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
            let stream = TcpStream::connect((bare.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            let Some(tls) = tls else {
                return Ok(Conversation::Plain(TokioIo::new(stream)));
            };
            let name = ServerName::try_from(bare).map_err(io::Error::other)?;
            let stream = TlsConnector::from(tls).connect(name, stream).await?;
            Ok(Conversation::Tls(Box::new(TokioIo::new(stream))))
        })
    }
}

/// A connection, with or without TLS.
pub(crate) enum Conversation {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Conversation {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Conversation {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Conversation::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Conversation::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl Write for Conversation {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Conversation::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Conversation::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Conversation::Plain(stream) => Pin::new(stream).poll_flush(context),
            Conversation::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Conversation::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Conversation::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Conversation::Plain(stream) => stream.is_write_vectored(),
            Conversation::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Conversation::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Conversation::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }
}
