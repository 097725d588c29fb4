//! A receiver that requires a client certificate of its own authority: reached with a
//! subscription's certificate, or with the operator's.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use postrider_test_support::receiver::{answer, answer_each, listen};
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value as Json, json};

use crate::support::server::Server;
use crate::support::{Start, text};

/// A certificate authority.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str) -> (Certificate, KeyPair) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }
}

/// Answers 200 to clients with a certificate of the authority; counts the connections that were
/// established.
fn strict_receiver(authority: &Authority) -> (String, Arc<Mutex<usize>>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let (certificate, key) = authority.sign("127.0.0.1");
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let (config, stood) = (Arc::new(config), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&stood);
    let address = listen(move |stream| {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        if stream.conn.complete_io(&mut stream.sock).is_ok() {
            *counted.lock().unwrap() += 1;
            answer_each(stream, |_| answer(200));
        }
    });
    (format!("https://{address}/hook"), stood)
}

/// The outcome of a test event.
fn tried(server: &Server, subscription: &Json) -> (String, Json) {
    let path = format!("/v1/subscriptions/{}/test", text(subscription, "id"));
    let outcome = server.ask("POST", &path, None, 200);
    (text(&outcome, "outcome"), outcome)
}

#[test]
fn a_receiver_that_demands_a_certificate_gets_the_subscriptions_own() {
    let authority = Authority::new("the receiver's authority");
    let (url, stood) = strict_receiver(&authority);
    let (certificate, key) = authority.sign("client.example");
    let mut server = Start::dev().fresh();
    let wish = json!({
        "url": url, "types": ["a.*"], "ca_certificates": authority.certificate.pem(),
        "client_certificate": certificate.pem(), "client_key": key.serialize_pem(),
    });
    let with = server.ask("POST", "/v1/subscriptions", Some(&wish), 201);
    assert_eq!(with["client_certificate"]["subject"], "CN=client.example");
    let event = json!({"type": "a.b", "data": 1});
    server.ask("POST", "/v1/events", Some(&event), 202);
    server.wait("the delivery", |server| (server.ledger()["delivered"] == 1).then_some(()));
    assert_eq!(*stood.lock().unwrap(), 1);

    // Other subscriptions of the same tenant with the same URL do not use its connection.
    for (n, lacking) in ["client_certificate", "ca_certificates"].into_iter().enumerate() {
        let mut wish = wish.clone();
        wish["types"] = json!([format!("b{n}")]);
        wish[lacking] = Json::Null;
        if lacking == "client_certificate" {
            wish["client_key"] = Json::Null;
        }
        let without = server.ask("POST", "/v1/subscriptions", Some(&wish), 201);
        let (outcome, detail) = tried(&server, &without);
        assert_eq!((outcome.as_str(), detail["error"].as_str()), ("failed", Some("tls")));
    }
    assert_eq!(*stood.lock().unwrap(), 1);

    // The certificate survives a restart, and is removed when the URL changes.
    let server = server.restart(Start::dev());
    assert_eq!(tried(&server, &with).0, "delivered");
    let path = format!("/v1/subscriptions/{}", text(&with, "id"));
    let moved = json!({"url": format!("{url}/moved")});
    let moved = server.ask("PATCH", &path, Some(&moved), 200);
    assert_eq!(moved["client_certificate"], Json::Null);
    assert_eq!(tried(&server, &with).1["error"], "tls");
}

#[test]
fn the_operators_certificate_and_authority_serve_every_subscription() {
    let authority = Authority::new("the operator's authority");
    let (url, _) = strict_receiver(&authority);
    let (certificate, key) = authority.sign("postrider.example");
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, pem: String| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    };
    let files = [
        ("TLS__EXTRA_ROOTS", write("ca.pem", authority.certificate.pem())),
        ("TLS__CLIENT_CERTIFICATE", write("client.pem", certificate.pem())),
        ("TLS__CLIENT_KEY", write("client.key", key.serialize_pem())),
    ];
    let start = files.iter().fold(Start::dev(), |start, (name, path)| {
        start.variable(&format!("POSTRIDER_{name}"), path.to_str().unwrap())
    });
    let server = start.fresh();
    let wish = json!({"url": url, "types": ["a"]});
    let created = server.ask("POST", "/v1/subscriptions", Some(&wish), 201);
    assert_eq!(tried(&server, &created).0, "delivered");
    // A subscription with its own authority still uses the operator's client certificate.
    let wish = json!({"url": url, "types": ["b"], "ca_certificates": authority.certificate.pem()});
    let created = server.ask("POST", "/v1/subscriptions", Some(&wish), 201);
    assert_eq!(tried(&server, &created).0, "delivered");
    drop(server);

    // A key that does not match is refused at the start, and the files are named.
    std::fs::write(&files[2].1, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let start = files.iter().fold(Start::dev(), |start, (name, path)| {
        start.variable(&format!("POSTRIDER_{name}"), path.to_str().unwrap())
    });
    let output = start.command(&directory.path().join("data")).output().unwrap();
    let words = crate::support::stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("client.key") && words.contains("not the key"), "{words}");
}
