//! TLS to the database, as `sslmode` asks for it.
//!
//! `disable`: never. `prefer` (also where nothing is said) and `require`: encrypted, by whatever
//! certificate the server shows, as libpq has it. `verify-full`: only a server that proves its name
//! by a certificate of a trusted root (`sslrootcert`, else the system's). `verify-ca` is taken as
//! `verify-full`: there is no reason to trust a certificate for another name.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::error::StoreError;

/// What a database URL says, apart.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) connector: Connector,
}

/// Reads a database URL.
pub(super) fn target(url: &str) -> Result<Target, StoreError> {
    let refuse = |what: String| StoreError::Internal(format!("not a database URL: {what}"));
    let (rest, settings) = split(url);
    let mut config: Config = rest.parse().map_err(|e: tokio_postgres::Error| {
        let source = std::error::Error::source(&e).map(ToString::to_string);
        refuse(source.unwrap_or_else(|| e.to_string()))
    })?;
    let verifies = match settings.mode.as_deref() {
        None | Some("prefer") => {
            config.ssl_mode(SslMode::Prefer);
            false
        }
        Some("disable") => {
            config.ssl_mode(SslMode::Disable);
            false
        }
        Some("require") => {
            config.ssl_mode(SslMode::Require);
            settings.root.is_some()
        }
        Some("verify-ca" | "verify-full") => {
            config.ssl_mode(SslMode::Require);
            true
        }
        Some(other) => {
            let known = "disable, prefer, require or verify-full";
            return Err(refuse(format!("sslmode={other}: give {known}")));
        }
    };
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    if config.get_application_name().is_none() {
        config.application_name("postrider");
    }
    let connector = Connector::new(verifies, settings.root.as_deref()).map_err(refuse)?;
    Ok(Target { config, connector })
}

#[derive(Default)]
struct Settings {
    mode: Option<String>,
    root: Option<String>,
}

/// Takes out of a URL's query what is decided here.
fn split(url: &str) -> (String, Settings) {
    let mut settings = Settings::default();
    let Some((base, query)) = url.split_once('?') else { return (url.into(), settings) };
    let mut kept = Vec::new();
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => settings.mode = Some(mode.into()),
            Some(("sslrootcert", path)) => settings.root = Some(path.replace("%2F", "/")),
            Some(_) | None => kept.push(pair),
        }
    }
    let rest = if kept.is_empty() { base.into() } else { format!("{base}?{}", kept.join("&")) };
    (rest, settings)
}

/// Makes TLS connections to the database.
#[derive(Clone)]
pub(super) struct Connector(Arc<ClientConfig>);

impl Connector {
    fn new(verifies: bool, root: Option<&str>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?;
        let config = if verifies {
            builder.with_root_certificates(roots(root)?).with_no_client_auth()
        } else {
            let anyone = Arc::new(Anyone(provider));
            builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
        };
        Ok(Connector(Arc::new(config)))
    }
}

fn roots(file: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(roots);
    };
    let found = CertificateDer::pem_file_iter(file).map_err(|e| format!("sslrootcert: {e}"))?;
    for certificate in found {
        let certificate = certificate.map_err(|e| format!("sslrootcert: {e}"))?;
        roots.add(certificate).map_err(|e| format!("sslrootcert: {e}"))?;
    }
    Ok(roots)
}

/// Encrypts, and believes whatever the server says of itself.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Encrypted<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        let name = ServerName::try_from(domain.to_owned())
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
        Ok(Handshake { config: Arc::clone(&self.0), name })
    }
}

/// One handshake to be.
pub(super) struct Handshake {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connector = tokio_rustls::TlsConnector::from(self.config);
            connector.connect(self.name, stream).await.map(Encrypted)
        })
    }
}

/// A stream to the database that nobody else reads.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_url_says_about_tls_is_taken_out_of_it() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", None, None),
            ("postgres://h/d?sslmode=disable", "postgres://h/d", Some("disable"), None),
            (
                "postgres://h/d?application_name=x&sslmode=verify-full&sslrootcert=%2Froot.pem",
                "postgres://h/d?application_name=x",
                Some("verify-full"),
                Some("/root.pem"),
            ),
        ];
        for (url, rest, mode, root) in cases {
            let (found, settings) = split(url);
            assert_eq!(found, rest);
            assert_eq!((settings.mode.as_deref(), settings.root.as_deref()), (mode, root));
        }
    }

    #[test]
    fn an_unknown_mode_is_refused_with_those_that_are_known() {
        let refused = target("postgres://h/d?sslmode=sometimes").err().unwrap().to_string();
        assert!(refused.contains("sslmode=sometimes"), "{refused}");
        assert!(target("postgres://h/d?sslmode=verify-full&sslrootcert=/none").is_err());
        let secret = target("postgres://u:hunter2@h:port/d").err().unwrap().to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
    }
}
