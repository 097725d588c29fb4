//! A certificate authority for tests.

use std::sync::Arc;

use postrider_transport::ClientIdentity;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Signs certificates.
pub(crate) struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let name = format!("authority {:?}", &key.public_key_raw()[..8]);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// The root certificate to trust.
    pub(crate) fn root(&self) -> CertificateDer<'static> {
        self.certificate.der().clone()
    }

    /// A certificate with its key, for names or addresses.
    fn sign(&self, names: &[&str], expired: bool) -> (Certificate, KeyPair) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// The acceptor of a server for these names.
    pub(crate) fn server(&self, names: &[&str]) -> TlsAcceptor {
        self.acceptor(self.sign(names, false), None, &[b"http/1.1"])
    }

    /// The acceptor of an HTTP/2 server.
    pub(crate) fn http2_server(&self, names: &[&str]) -> TlsAcceptor {
        self.acceptor(self.sign(names, false), None, &[b"h2", b"http/1.1"])
    }

    /// The acceptor of a server with an expired certificate.
    pub(crate) fn expired_server(&self, names: &[&str]) -> TlsAcceptor {
        self.acceptor(self.sign(names, true), None, &[])
    }

    /// The acceptor of a server that requires a client certificate of this authority.
    pub(crate) fn strict_server(&self, names: &[&str]) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(self.root()).unwrap();
        self.acceptor(self.sign(names, false), Some(roots), &[])
    }

    /// The acceptor of an HTTP/2 server that requires a client certificate.
    pub(crate) fn strict_http2_server(&self, names: &[&str]) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(self.root()).unwrap();
        self.acceptor(self.sign(names, false), Some(roots), &[b"h2"])
    }

    /// The client identity for a server that requires a certificate.
    pub(crate) fn identity(&self) -> Arc<ClientIdentity> {
        let (certificate, key) = self.sign(&["client.example"], false);
        let (chain, key) = (certificate.pem(), key.serialize_pem());
        let pair = Some((chain.as_bytes(), key.as_bytes()));
        let root = self.certificate.pem();
        Arc::new(ClientIdentity::from_pem(pair, Some(root.as_bytes())).unwrap())
    }

    fn acceptor(
        &self,
        (certificate, key): (Certificate, KeyPair),
        clients: Option<RootCertStore>,
        protocols: &[&[u8]],
    ) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .unwrap(),
            ),
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Accepts a connection; `None` if the handshake fails.
pub(crate) async fn accept_tls(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> Option<TlsStream<TcpStream>> {
    acceptor.accept(stream).await.ok()
}
