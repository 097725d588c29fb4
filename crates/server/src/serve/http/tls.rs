//! TLS of the API: the certificate and its key, reloaded when the files change.
//!
//! The two files are read again every second. A changed pair is used if certificate and key match;
//! otherwise the old pair stays in use. Open connections keep their certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::config::Config;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate that can be replaced while it is in use.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    files: Files,
    current: Arc<Current>,
    taken: Pair,
}

#[derive(Debug, Clone)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// The contents of the two files.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair(****)")
    }
}

#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Tls {
    /// The configured pair; `None` if there is none.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Option<Tls>> {
        let (Some(certificate), Some(key)) = (&config.server.tls_cert, &config.server.tls_key)
        else {
            return Ok(None);
        };
        Tls::open(certificate, key).context("cannot serve the API with TLS").map(Some)
    }

    /// Loads the pair, or says what is wrong with it.
    fn open(certificate: &Path, key: &Path) -> anyhow::Result<Tls> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let taken = files.read()?;
        let current = Arc::new(Current(RwLock::new(Arc::new(files.load(&taken)?))));
        Ok(Tls { files, current, taken })
    }

    /// The TLS acceptor: HTTP/2 or HTTP/1.1, as the client prefers.
    pub(super) fn acceptor(&self) -> anyhow::Result<TlsAcceptor> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let resolver = Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Applies changes of the files until told to stop.
    pub(crate) async fn follow(mut self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut judged = Ok(self.taken.clone());
        let mut seen = None;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let files = self.files.clone();
            let read = tokio::task::spawn_blocking(move || files.read()).await;
            let found = match read {
                Ok(Ok(pair)) => Ok(pair),
                Ok(Err(why)) => Err(format!("{why:#}")),
                Err(why) => Err(why.to_string()),
            };
            // The two files are not written at the same moment: a change counts when it was seen
            // twice.
            let has_settled = seen.as_ref() == Some(&found);
            if has_settled && found != judged {
                self.take(found.clone());
                judged.clone_from(&found);
            }
            seen = Some(found);
        }
    }

    fn take(&mut self, found: Result<Pair, String>) {
        let loaded = found.and_then(|pair| {
            let loaded = self.files.load(&pair).map_err(|why| format!("{why:#}"))?;
            Ok((pair, loaded))
        });
        match loaded {
            Ok((pair, _)) if pair == self.taken => {}
            Ok((pair, loaded)) => {
                *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
                self.taken = pair;
                tracing::info!("new connections get the new TLS certificate");
            }
            Err(error) => {
                tracing::error!(error, "the new TLS certificate is not usable: the old one stays");
            }
        }
    }
}

impl Files {
    fn read(&self) -> anyhow::Result<Pair> {
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        Ok(Pair { certificate: read(&self.certificate)?, key: read(&self.key)? })
    }

    fn load(&self, pair: &Pair) -> anyhow::Result<CertifiedKey> {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let chain = CertificateDer::pem_slice_iter(&pair.certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| anyhow::anyhow!("{certificate} is not PEM: {error}"))?;
        anyhow::ensure!(!chain.is_empty(), "{certificate} has no certificate in PEM");
        // Do not repeat the parser's error: the file is secret.
        let der = PrivateKeyDer::from_pem_slice(&pair.key)
            .map_err(|_| anyhow::anyhow!("{key} has no private key in PEM"))?;
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        CertifiedKey::from_der(chain, der, &provider).map_err(|error| {
            if matches!(error, rustls::Error::InconsistentKeys(_)) {
                anyhow::anyhow!("{key} is not the key of the certificate in {certificate}")
            } else {
                anyhow::anyhow!("{certificate} and {key} cannot be used: {error}")
            }
        })
    }
}
