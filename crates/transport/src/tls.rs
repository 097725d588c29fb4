//! Whom do we believe, and as whom do we come?
//!
//! Certificates are always verified, against the name of the URL; there is no switch to turn that
//! off. What failed is described by kind, never by printing key material.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{CertificateError, ClientConfig, RootCertStore};

use crate::options::TlsOptions;

/// Why certificates or keys that were configured cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// Not PEM, or nothing in it.
    #[error("not a certificate or key in PEM: {0}")]
    Pem(#[from] pem::Error),
    /// A list of certificates without any.
    #[error("no certificate found")]
    NoCertificate,
    /// A key that does not fit, a root that cannot be read.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// As whom a subscription's requests come, and whom they believe: a client certificate with its
/// key, and roots beside the usual ones.
pub struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: Option<PrivateKeyDer<'static>>,
    extra_roots: Vec<CertificateDer<'static>>,
    /// Tells connections of different identities apart.
    fingerprint: u64,
    /// Made at first use, with the transport's own roots.
    config: OnceLock<Arc<ClientConfig>>,
}

impl ClientIdentity {
    /// Reads a certificate chain with its key (both or neither), and roots to believe beside the
    /// usual ones; all PEM.
    ///
    /// # Errors
    ///
    /// Where something cannot be read.
    pub fn from_pem(
        chain_and_key: Option<(&[u8], &[u8])>,
        extra_roots: Option<&[u8]>,
    ) -> Result<Self, TlsSetupError> {
        let (chain, key) = match chain_and_key {
            Some((chain, key)) => {
                (read_certificates(chain)?, Some(PrivateKeyDer::from_pem_slice(key)?))
            }
            None => (Vec::new(), None),
        };
        let extra_roots = extra_roots.map(read_certificates).transpose()?.unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (&chain, &extra_roots).hash(&mut hasher);
        key.as_ref().map(PrivateKeyDer::secret_der).hash(&mut hasher);
        let fingerprint = hasher.finish();
        Ok(ClientIdentity { chain, key, extra_roots, fingerprint, config: OnceLock::new() })
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificates", &self.chain.len())
            .field("extra_roots", &self.extra_roots.len())
            .finish_non_exhaustive()
    }
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsSetupError> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    if certificates.is_empty() { Err(TlsSetupError::NoCertificate) } else { Ok(certificates) }
}

/// Makes the configurations of TLS connections.
#[derive(Debug)]
pub(crate) struct Tls {
    roots: RootCertStore,
    http2: bool,
    default: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn new(options: &TlsOptions, http2: bool) -> Result<Self, TlsSetupError> {
        let mut roots = RootCertStore::empty();
        // Some platforms have certificates that cannot be read; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for root in &options.extra_roots {
            roots.add(root.clone())?;
        }
        let default = Arc::new(configure(&roots, http2, options.identity.as_deref())?);
        Ok(Tls { roots, http2, default })
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
        let config = Arc::new(configure(&self.roots, self.http2, Some(identity))?);
        Ok(Arc::clone(identity.config.get_or_init(|| config)))
    }
}

fn configure(
    roots: &RootCertStore,
    http2: bool,
    identity: Option<&ClientIdentity>,
) -> Result<ClientConfig, TlsSetupError> {
    let mut roots = roots.clone();
    for root in identity.map_or(&[][..], |identity| &identity.extra_roots) {
        roots.add(root.clone())?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let mut config = match identity.and_then(|identity| Some((identity, identity.key.as_ref()?))) {
        Some((identity, key)) => {
            builder.with_client_auth_cert(identity.chain.clone(), key.clone_key())?
        }
        None => builder.with_no_client_auth(),
    };
    let offered: &[&[u8]] = if http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// What is wrong, in words for somebody who has to repair it.
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
