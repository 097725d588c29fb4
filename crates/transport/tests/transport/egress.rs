//! The address check at connect time, without the check of the URL: it must hold alone.
//!
//! Only addresses of this machine are used here, so that nothing leaves it even if the check fails;
//! all others are tested in the namespace of [`crate::namespace`].

use std::net::IpAddr;

use postrider_domain::attempt::FailureClass;
use postrider_domain::egress::{EgressPolicy, vet_address};
use postrider_transport::{HttpTransport, TransportOptions};
use tokio::net::TcpListener;

use crate::support::*;

fn strict() -> TransportOptions {
    let egress = EgressPolicy { allow_http: true, ..EgressPolicy::default() };
    TransportOptions { egress, ..TransportOptions::default() }
}

/// A listener on every address of this machine, in both families.
async fn listen_everywhere() -> (TcpListener, u16) {
    let listener = TcpListener::bind("[::]:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Whether nothing has connected.
fn is_untouched(listener: TcpListener) -> bool {
    let listener = listener.into_std().unwrap();
    listener.accept().is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

/// The forbidden addresses that lead to this machine itself.
fn forbidden_here() -> Vec<IpAddr> {
    let is_here = |address: &IpAddr| {
        let canonical = address.to_canonical();
        canonical.is_loopback() || canonical.is_unspecified()
    };
    forbidden().into_iter().filter(is_here).collect()
}

async fn is_blocked(transport: &HttpTransport, url: &str) -> bool {
    let finished = post(transport, url).await;
    // The text for a tenant contains no address.
    assert_eq!(finished.ending.to_string(), "blocked", "{url}");
    class(&finished) == FailureClass::Blocked
}

#[tokio::test]
async fn an_address_that_is_not_public_is_never_connected_to() {
    let (listener, port) = listen_everywhere().await;
    let transport = transport_with(strict());
    let mut refused = 0;
    for address in forbidden_here() {
        assert!(is_blocked(&transport, &literal_url(address, port)).await, "{address}");
        refused += 1;
    }
    assert!(refused > 3, "only {refused} addresses were tried");
    assert!(is_untouched(listener));
    assert_eq!(transport.pool_stats().open, 0);
    println!("connect guard: {refused} literal addresses refused, 0 connections");
}

#[tokio::test]
async fn name_with_an_address_that_is_not_public_is_never_connected_to() {
    let (listener, port) = listen_everywhere().await;
    let addresses = forbidden_here();
    let count = addresses.len();
    let nameserver = Nameserver::start(move |name, _| {
        let index: usize = name.split('.').next().unwrap()[1..].parse().unwrap();
        Reply::Addresses(vec![addresses[index]], 60)
    })
    .await;
    let transport = transport_with(TransportOptions { dns: nameserver.options(), ..strict() });
    for index in 0..count {
        assert!(is_blocked(&transport, &format!("http://n{index}.example.com:{port}/")).await);
    }
    assert!(is_untouched(listener));
    println!("connect guard: {count} names refused, 0 connections");
}

#[tokio::test]
async fn trusted_network_is_connected_to_and_nothing_else() {
    let (listener, port) = listen_everywhere().await;
    let mut options = strict();
    options.egress.allow = vec!["127.0.0.2/32".parse().unwrap()];
    let transport = transport_with(options);
    let accepting = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await.unwrap();
        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        tokio::io::AsyncWriteExt::write_all(&mut stream, ok).await.unwrap();
        (listener, request)
    });
    assert!(is_blocked(&transport, &format!("http://127.0.0.1:{port}/")).await);
    assert!(is_blocked(&transport, &format!("http://127.0.0.3:{port}/")).await);
    let finished = post(&transport, &format!("http://127.0.0.2:{port}/")).await;
    assert_eq!(answer(&finished).status, 200);
    let (listener, request) = accepting.await.unwrap();
    assert_eq!(request.headers["host"], format!("127.0.0.2:{port}"));
    assert!(is_untouched(listener));
}

#[tokio::test]
async fn plain_http_is_refused_at_connect_time_too() {
    let (listener, port) = listen_everywhere().await;
    let mut options = strict();
    options.egress =
        EgressPolicy { allow: vec!["127.0.0.1/32".parse().unwrap()], ..EgressPolicy::default() };
    assert!(is_blocked(&transport_with(options), &format!("http://127.0.0.1:{port}/")).await);
    assert!(is_untouched(listener));
}

#[tokio::test]
async fn port_of_an_internal_service_is_refused_at_connect_time_too() {
    let mut options = strict();
    options.egress.allow = vec!["127.0.0.0/8".parse().unwrap()];
    let transport = transport_with(options);
    for port in [22, 25, 5432, 6379, 9200, 27017] {
        let finished = post(&transport, &format!("http://127.0.0.1:{port}/")).await;
        assert_eq!(class(&finished), FailureClass::Blocked, "{port}");
        assert!(detail(&finished).contains(&format!("port {port} is not allowed")), "{port}");
    }
    assert_eq!(transport.pool_stats().open, 0);
}

#[tokio::test]
async fn address_that_becomes_our_own_is_refused_from_then_on() {
    let mut options = strict();
    options.egress.allow = vec!["198.51.100.0/24".parse().unwrap()];
    let transport = transport_with(options);
    let (egress, address) = (transport.egress(), "198.51.100.7".parse().unwrap());
    assert!(vet_address(address, &egress.policy()).is_ok());
    assert!(egress.own(vec![address]), "it is a change");
    assert!(!egress.own(vec![address]), "it is none");
    assert!(is_blocked(&transport, &literal_url(address, 8080)).await);
    egress.own(Vec::new());
    assert!(vet_address(address, &egress.policy()).is_ok(), "the interface is gone");
}
