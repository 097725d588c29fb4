//! TLS of outgoing connections: trusted roots and client certificates.
//!
//! Certificates are always verified against the name in the URL; this cannot be turned off. Errors
//! are described by kind and never print key material.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use sha2::{Digest as _, Sha256};

use crate::options::TlsOptions;

/// Why configured certificates or keys cannot be used. Never contains key material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct TlsSetupError {
    /// The part that is invalid.
    pub part: Part,
    what: String,
}

/// A part of a TLS configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The client certificate.
    Certificate,
    /// The key of the client certificate.
    Key,
    /// The trusted roots.
    Roots,
}

impl TlsSetupError {
    pub(crate) fn new(part: Part, what: impl fmt::Display) -> Self {
        TlsSetupError { part, what: what.to_string() }
    }
}

/// The TLS identity of a subscription: a client certificate with its key, and roots to trust
/// instead of the default ones.
pub struct ClientIdentity {
    client: Option<Arc<CertifiedKey>>,
    roots: Option<Arc<RootCertStore>>,
    /// Distinguishes connections of different identities.
    fingerprint: [u8; 32],
    /// Built at first use, with the transport's roots.
    config: OnceLock<Arc<ClientConfig>>,
}

impl ClientIdentity {
    /// Parses a certificate chain with its key (both or neither), and the roots to trust instead of
    /// the default ones; all PEM.
    ///
    /// # Errors
    ///
    /// If a part cannot be parsed, or the key does not match the certificate.
    pub fn from_pem(
        chain_and_key: Option<(&[u8], &[u8])>,
        roots: Option<&[u8]>,
    ) -> Result<Self, TlsSetupError> {
        let mut hash = Sha256::new();
        let client = match chain_and_key {
            Some((chain, key)) => {
                hash.update(b"client");
                hash.update(Sha256::digest(chain));
                hash.update(Sha256::digest(key));
                let key = read_key(key)?;
                Some(Arc::new(certify(read_certificates(chain, Part::Certificate)?, key)?))
            }
            None => None,
        };
        let roots = match roots {
            Some(pem) => {
                hash.update(b"roots");
                hash.update(Sha256::digest(pem));
                let mut roots = RootCertStore::empty();
                for (n, root) in read_certificates(pem, Part::Roots)?.into_iter().enumerate() {
                    let bad = |error| {
                        let what = format!("certificate {} cannot be used: {error}", n + 1);
                        TlsSetupError::new(Part::Roots, what)
                    };
                    roots.add(root).map_err(bad)?;
                }
                Some(Arc::new(roots))
            }
            None => None,
        };
        let fingerprint = hash.finalize().into();
        Ok(ClientIdentity { client, roots, fingerprint, config: OnceLock::new() })
    }

    pub(crate) fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificates", &self.client.as_ref().map_or(0, |client| client.cert.len()))
            .field("roots", &self.roots.as_ref().map_or(0, |roots| roots.len()))
            .finish_non_exhaustive()
    }
}

/// Parses the certificates of a PEM; at least one.
pub(crate) fn read_certificates(
    pem: &[u8],
    part: Part,
) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates =
        read.map_err(|error| TlsSetupError::new(part, format!("not PEM: {error}")))?;
    if certificates.is_empty() {
        let what = "no certificate in it: PEM begins with -----BEGIN CERTIFICATE-----";
        return Err(TlsSetupError::new(part, what));
    }
    Ok(certificates)
}

fn read_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsSetupError> {
    let encrypted = b"ENCRYPTED";
    let bad = |what: &str| TlsSetupError::new(Part::Key, what);
    if pem.windows(encrypted.len()).any(|window| window == encrypted) {
        return Err(bad("the key is encrypted: give it without a passphrase"));
    }
    // The parser's error may contain parts of the key, so it is not repeated.
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        bad("no private key in it: PEM begins with -----BEGIN PRIVATE KEY-----, or RSA or EC before PRIVATE")
    })
}

/// A certificate with its key, if they match.
fn certify(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, TlsSetupError> {
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(|error| {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not exhaustive")]
        match error {
            rustls::Error::InconsistentKeys(_) => {
                TlsSetupError::new(Part::Key, "not the key of the certificate")
            }
            rustls::Error::InvalidCertificate(error) => {
                let what = format!("the certificate cannot be used: {error:?}");
                TlsSetupError::new(Part::Certificate, what)
            }
            _ => TlsSetupError::new(Part::Key, "a key of a kind that cannot be used here"),
        }
    })
}

/// Builds the configurations of TLS connections.
#[derive(Debug)]
pub(crate) struct Tls {
    /// Trusts the platform's roots and the operator's.
    verifier: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
    /// The default client certificate.
    client: Option<Arc<CertifiedKey>>,
    http2: bool,
    default: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn new(options: &TlsOptions, http2: bool) -> Result<Self, TlsSetupError> {
        let mut roots = RootCertStore::empty();
        // Some platforms have certificates that cannot be parsed; they are skipped.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for root in &options.extra_roots {
            roots.add(root.clone()).map_err(|error| TlsSetupError::new(Part::Roots, error))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let identity = options.identity.as_deref();
        if let Some(own) = identity.and_then(|identity| identity.roots.as_ref()) {
            roots.extend(own.roots.iter().cloned());
        }
        let verifier = verifier(Arc::new(roots), &provider)?;
        let client = identity.and_then(|identity| identity.client.clone());
        let default = configure(&provider, Arc::clone(&verifier), client.clone(), http2)?;
        Ok(Tls { verifier, provider, client, http2, default: Arc::new(default) })
    }

    /// The configuration for requests of this identity.
    pub(crate) fn config(
        &self,
        identity: Option<&ClientIdentity>,
    ) -> Result<Arc<ClientConfig>, TlsSetupError> {
        let Some(identity) = identity else { return Ok(Arc::clone(&self.default)) };
        if let Some(config) = identity.config.get() {
            return Ok(Arc::clone(config));
        }
        let verifier = match &identity.roots {
            Some(roots) => verifier(Arc::clone(roots), &self.provider)?,
            None => Arc::clone(&self.verifier),
        };
        let client = identity.client.clone().or_else(|| self.client.clone());
        let mut config = configure(&self.provider, verifier, client, self.http2)?;
        // There may be many identities, each for one receiver, so their caches must be small.
        config.resumption = Resumption::in_memory_sessions(SESSIONS_PER_IDENTITY);
        Ok(Arc::clone(identity.config.get_or_init(|| Arc::new(config))))
    }
}

/// Resumable sessions for each subscription with its own identity.
const SESSIONS_PER_IDENTITY: usize = 8;

fn verifier(
    roots: Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsSetupError> {
    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
        .build()
        .map_err(|error| TlsSetupError::new(Part::Roots, error))
}

fn configure(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<WebPkiServerVerifier>,
    client: Option<Arc<CertifiedKey>>,
    http2: bool,
) -> Result<ClientConfig, TlsSetupError> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsSetupError::new(Part::Roots, error))?
        .with_webpki_verifier(verifier);
    let mut config = match client {
        Some(client) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(client))),
        None => builder.with_no_client_auth(),
    };
    let offered: &[&[u8]] = if http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Describes an error for a person who has to fix it.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not exhaustive")]
pub(crate) fn describe(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(certificate) => describe_certificate(certificate),
        rustls::Error::AlertReceived(alert) => format!("the receiver refused: alert {alert:?}"),
        other => other.to_string(),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not exhaustive")]
fn describe_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the certificate is not valid yet".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "the certificate's issuer is unknown, or an intermediate certificate is missing"
                .to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "the certificate is for another name".to_owned()
        }
        other => format!("the certificate is not valid: {other}"),
    }
}
