//! Verification of receivers' certificates, and the errors.

use postrider_domain::attempt::{FailureClass, Phase};
use postrider_transport::{HttpTransport, Transport};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsAcceptor;

use crate::support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// A receiver behind TLS.
async fn receiver(acceptor: TlsAcceptor) -> Receiver {
    Receiver::start(move |_, stream| {
        let acceptor = acceptor.clone();
        async move {
            let Some(mut stream) = accept_tls(&acceptor, stream).await else { return };
            while read_request(&mut stream).await.is_some() {
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await
}

/// A transport that trusts an authority, and for which every name resolves to loopback.
async fn believing(authority: &Authority) -> (HttpTransport, Nameserver) {
    let nameserver = Nameserver::start(|_, _| Reply::addresses(&["127.0.0.1"])).await;
    let mut options = dev_options();
    options.dns = nameserver.options();
    options.tls.extra_roots = vec![authority.root()];
    (transport_with(options), nameserver)
}

#[tokio::test]
async fn https_is_verified_against_the_name_or_address_of_the_url() {
    let authority = Authority::new();
    let (transport, _nameserver) = believing(&authority).await;
    let receiver = receiver(authority.server(&["hooks.example.com", "127.0.0.1"])).await;
    let port = receiver.address.port();
    for host in ["hooks.example.com", "hooks.example.com.", "127.0.0.1"] {
        let url = format!("https://{host}:{port}/");
        let finished = post(&transport, &url).await;
        assert_eq!(answer(&finished).status, 200, "{host}");
        assert!(finished.timings.tls.is_some() && finished.timings.connect.is_some());
        assert_eq!(finished.timings.dns.is_some(), host != "127.0.0.1");
        assert!(post(&transport, &url).await.timings.tls.is_none());
    }
    assert_eq!(receiver.connections(), 3);
}

#[tokio::test]
async fn invalid_certificate_is_refused_with_the_reason() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (transport, _nameserver) = believing(&authority).await;
    let name = "hooks.example.com";
    let cases = [
        (authority.expired_server(&[name]), "the certificate has expired"),
        (authority.server(&["other.example.com"]), "the certificate is for another name"),
        (other.server(&[name]), "the certificate's issuer is unknown"),
    ];
    for (acceptor, expected) in cases {
        let receiver = receiver(acceptor).await;
        let url = format!("https://{name}:{}/", receiver.address.port());
        let finished = post(&transport, &url).await;
        assert_eq!(class(&finished), FailureClass::Tls);
        assert!(detail(&finished).starts_with(expected), "{}", detail(&finished));
        assert_eq!(transport.pool_stats().open, 0);
    }
}

#[tokio::test]
async fn server_without_tls_fails_in_the_handshake() {
    let transport = transport();
    let https = |receiver: &Receiver| receiver.url("/").replace("http:", "https:");

    let plain = Receiver::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        drain(&mut stream).await;
    })
    .await;
    assert_eq!(class(&post(&transport, &https(&plain)).await), FailureClass::Tls);

    let closing = Receiver::start(|_, stream| async move { drop(stream) }).await;
    assert_eq!(class(&post(&transport, &https(&closing)).await), FailureClass::Reset);

    let silent = Receiver::start(|_, mut stream| async move {
        drain(&mut stream).await;
    })
    .await;
    let finished = post_in_haste(&transport, &https(&silent)).await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Tls));
    assert_eq!(transport.pool_stats().open, 0);
}

#[tokio::test]
async fn receiver_that_requests_a_client_certificate_gets_it() {
    let authority = Authority::new();
    let receiver = receiver(authority.strict_server(&["127.0.0.1"])).await;
    let url = receiver.url("/").replace("http:", "https:");
    // With the subscription's own certificate, and its own root.
    let identity = authority.identity();
    let transport = transport();
    let finished = transport.send(request_of("default", &url, Some(identity))).await;
    assert_eq!(answer(&finished).status, 200);
    // Without a certificate.
    let (unknown, _nameserver) = believing(&authority).await;
    let finished = post(&unknown, &url).await;
    assert_eq!(class(&finished), FailureClass::Tls);
    assert_eq!(detail(&finished), "the receiver refused: alert CertificateRequired");
    // With the operator's certificate.
    let mut options = dev_options();
    options.tls.identity = Some(authority.identity());
    let finished = post(&transport_with(options), &url).await;
    assert_eq!(answer(&finished).status, 200);
}

#[tokio::test]
async fn an_identity_is_never_printed() {
    let shown = format!("{:?}", Authority::new().identity());
    assert_eq!(shown, "ClientIdentity { certificates: 1, roots: 1, .. }");
}
