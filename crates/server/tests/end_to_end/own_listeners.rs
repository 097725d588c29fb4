//! Separate listeners for health and metrics, and TLS.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value as Json;

use crate::support::server::Server;
use crate::support::{PATIENCE, Start, http, run, stderr, stdout};

/// The address of a listener other than the API's, from the log.
fn apart(server: &mut Server, what: &str) -> SocketAddr {
    let what = format!("\"{what}\"");
    let line = server.wait_for_line(|line| {
        line.contains("listening apart from the API") && line.contains(&what)
    });
    let line: Json = serde_json::from_str(&line).unwrap();
    line["address"].as_str().unwrap().parse().unwrap()
}

fn status(address: SocketAddr, key: &str, path: &str) -> u16 {
    http::request(address, key, "GET", path, None).unwrap().0
}

#[test]
fn health_answers_while_the_api_has_no_place_left() {
    let mut server = Start::dev().with(&["--set", "http.connections_max=1"]).fresh();
    let health = apart(&mut server, "health");
    let mut busy = TcpStream::connect(server.address).unwrap();
    let key = &server.key;
    let head = format!("GET /v1/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    busy.write_all(head.as_bytes()).unwrap();
    busy.read_exact(&mut [0; 12]).unwrap();
    assert_eq!(status(server.address, key, "/healthz"), 503);
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(status(health, "", path), 200, "{path}");
    }
    assert_eq!(status(health, key, "/v1/ledger"), 404);
}

#[test]
fn metrics_have_a_key_and_an_address_of_their_own() {
    let key = "metrics.key=only for the collector, canary";
    let mut server =
        Start::dev().with(&["--set", key, "--set", "metrics.listen=127.0.0.1:0"]).fresh();
    let metrics = apart(&mut server, "metrics");
    let health = apart(&mut server, "health");
    assert_eq!(status(metrics, "only for the collector, canary", "/metrics"), 200);
    assert_eq!(status(metrics, &server.key, "/metrics"), 401);
    assert_eq!(status(metrics, "", "/healthz"), 404);
    for address in [server.address, health] {
        assert_eq!(status(address, "only for the collector, canary", "/metrics"), 404);
    }
    server.signal("TERM");
    assert!(!server.ended().1.contains("canary"), "a secret is never logged");
}

/// A certificate for 127.0.0.1, with its key.
fn certificate() -> (rcgen::Certificate, String) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap(), key.serialize_pem())
}

/// A connection to a server that must present this certificate.
fn secured(
    server: &Server,
    expected: &CertificateDer<'static>,
    protocol: &[u8],
) -> Result<StreamOwned<ClientConnection, TcpStream>, std::io::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(expected.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    stream.conn.complete_io(&mut stream.sock)?;
    assert_eq!(stream.conn.alpn_protocol(), Some(protocol));
    Ok(stream)
}

/// Requests the health over HTTP/1.1, on a connection that is kept.
fn is_healthy(stream: &mut StreamOwned<ClientConnection, TcpStream>) {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 200 OK\r\n");
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    reader.read_exact(&mut [0; 15]).unwrap();
}

/// Sends a PING on an HTTP/2 connection and waits for its acknowledgement.
fn is_alive(stream: &mut StreamOwned<ClientConnection, TcpStream>) {
    stream.write_all(b"\0\0\x08\x06\0\0\0\0\0pingping").unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        stream.read_exact(&mut vec![0; length]).unwrap();
        if head[3..5] == [6, 1] {
            return;
        }
    }
}

#[test]
fn tls_certificate_is_followed_and_a_bad_one_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let write = |(certificate, secret): &(rcgen::Certificate, String)| {
        std::fs::write(&cert, certificate.pem()).unwrap();
        std::fs::write(&key, secret).unwrap();
    };
    let (first, second) = (certificate(), certificate());
    write(&first);
    let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let settings = ["--set", "http.header_read_timeout=1m"];
    let mut server = Start::dev().with(&files).with(&settings).fresh();
    let mut old = secured(&server, first.0.der(), b"http/1.1").unwrap();
    is_healthy(&mut old);
    let mut modern = secured(&server, first.0.der(), b"h2").unwrap();
    modern.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut frame = [0; 9];
    modern.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "the first frame of a server is SETTINGS");
    modern.read_exact(&mut vec![0; usize::from(frame[2])]).unwrap();

    write(&second);
    server.wait_for_line(|line| line.contains("new connections get the new TLS certificate"));
    is_healthy(&mut secured(&server, second.0.der(), b"http/1.1").unwrap());
    assert!(secured(&server, first.0.der(), b"http/1.1").is_err(), "the old one is gone");
    // Open connections continue, on both protocols.
    is_healthy(&mut old);
    is_alive(&mut modern);
    std::fs::write(&key, &first.1).unwrap();
    let line = server.wait_for_line(|line| line.contains("the old one stays"));
    assert!(line.contains("is not the key of the certificate"), "{line}");
    is_healthy(&mut secured(&server, second.0.der(), b"http/1.1").unwrap());
    is_healthy(&mut old);
    is_alive(&mut modern);
}

#[test]
fn doctor_finds_a_healthy_server_with_tls_healthy() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let (certificate, secret) = certificate();
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&key, secret).unwrap();
    let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let health = ["--set", "server.health_listen=127.0.0.1:0"];
    let mut server = Start::dev().with(&files).with(&health).fresh();
    let health = format!("server.health_listen={}", apart(&mut server, "health"));
    let data_dir = server.data_dir.to_str().unwrap().to_owned();
    let address = server.address.to_string();
    let words = ["doctor", "--json", "--dev", "--data-dir", &data_dir, "--listen", &address];
    let doctor = |health: &str| {
        let output = run(&[words.as_slice(), &files, &["--set", health]].concat());
        assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
        let checks: Json = serde_json::from_str(&stdout(&output)).unwrap();
        let level = |name: &str| {
            let mut all = checks.as_array().unwrap().iter();
            all.find(|check| check["check"] == name).map(|check| check["level"].clone())
        };
        ["server", "readiness", "ledger"].map(level)
    };
    assert_eq!(doctor(&health), [Some("ok".into()), Some("ok".into()), Some("note".into())]);
    // Without a listener of health there is nothing that it could ask.
    assert_eq!(doctor("server.health_listen=off"), [Some("note".into()), None, None]);
    server.kill();
    let stopped = run(&[words.as_slice(), &files, &["--set", &health]].concat());
    assert_eq!(stopped.status.code(), Some(1), "{}", stdout(&stopped));
}

#[test]
fn tls_handshake_that_does_not_begin_is_ended() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let (certificate, secret) = certificate();
    std::fs::write(&cert, certificate.pem()).unwrap();
    std::fs::write(&key, secret).unwrap();
    let files = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let settings = ["--set", "http.header_read_timeout=50ms"];
    let server = Start::dev().with(&files).with(&settings).fresh();
    let mut silent = TcpStream::connect(server.address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn bad_pair_of_certificate_and_key_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| directory.path().join(name));
    let (first, second) = (certificate(), certificate());
    let cases = [
        (first.0.pem(), second.1.clone(), "is not the key of the certificate in"),
        ("nonsense".to_owned(), first.1.clone(), "has no certificate in PEM"),
        (first.0.pem(), "canary".to_owned(), "has no private key in PEM"),
    ];
    let start = Start::dev().with(&[
        "--tls-cert",
        cert.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ]);
    let output = start.command(&directory.path().join("data")).output().unwrap();
    assert!(stderr(&output).contains("cannot read"), "{}", stderr(&output));
    for (certificate, secret, expected) in cases {
        std::fs::write(&cert, certificate).unwrap();
        std::fs::write(&key, secret).unwrap();
        let output = start.command(&directory.path().join("data")).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert!(!stderr(&output).contains("canary"));
    }
}
