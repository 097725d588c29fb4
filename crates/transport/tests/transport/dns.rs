//! Names that resolve, that do not, and that change.

use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::op::ResponseCode;
use postrider_domain::attempt::{Connection, FailureClass, OwnFaultKind, Phase};
use postrider_domain::egress::EgressPolicy;
use postrider_transport::{DnsOptions, HttpTransport, Nameservers, Transport};
use tokio::net::UdpSocket;

use crate::support::*;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn asking(nameserver: &Nameserver) -> HttpTransport {
    let mut options = dev_options();
    options.dns = nameserver.options();
    transport_with(options)
}

/// A policy that refuses everything that is not public, including loopback, except two addresses:
/// these stand for public ones, so that nothing leaves the machine if the check fails.
fn strict(nameserver: &Nameserver) -> HttpTransport {
    let mut options = dev_options();
    options.egress = EgressPolicy {
        allow_http: true,
        allow: ["127.0.0.2/32", "127.0.0.4/32"].map(|text| text.parse().unwrap()).to_vec(),
        ..EgressPolicy::default()
    };
    options.dns = nameserver.options();
    transport_with(options)
}

#[tokio::test]
async fn a_name_is_resolved_and_tried_address_by_address() {
    let receiver = Receiver::answering(OK).await;
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    // The receiver listens on 127.0.0.1 only.
    for addresses in [
        &["127.0.0.1"][..],
        &["127.0.0.2", "127.0.0.3", "127.0.0.1"],
        &["::1", "127.0.0.1"],
        &["::1", "127.0.0.2", "127.0.0.1"],
    ] {
        let nameserver = Nameserver::start(move |_, _| Reply::addresses(addresses)).await;
        let finished = post(&asking(&nameserver), &url).await;
        assert_eq!(answer(&finished).status, 200, "{addresses:?}");
        assert!(finished.timings.dns.is_some());
    }
    let nameserver = Nameserver::start(|_, _| Reply::addresses(&["127.0.0.2", "127.0.0.3"])).await;
    assert_eq!(class(&post(&asking(&nameserver), &url).await), FailureClass::Refused);
}

#[tokio::test]
async fn one_bad_answer_refuses_the_name() {
    let receiver = Receiver::answering(OK).await;
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    let cases: [&[&str]; 7] = [
        &["127.0.0.1"],
        &["::1"],
        &["127.0.0.2", "127.0.0.1"],
        &["127.0.0.1", "127.0.0.2"],
        &["127.0.0.2", "127.0.0.4", "::1"],
        &["127.0.0.3", "127.0.0.1"],
        &["::ffff:127.0.0.1"],
    ];
    for addresses in cases {
        let nameserver = Nameserver::start(move |_, _| Reply::addresses(addresses)).await;
        let finished = post(&strict(&nameserver), &url).await;
        assert_eq!(class(&finished), FailureClass::Blocked, "{addresses:?}");
        assert_eq!(finished.ending.to_string(), "blocked");
    }
    let nameserver = Nameserver::start(|_, _| {
        Reply::Alias("internal.example.", vec!["127.0.0.1".parse().unwrap()])
    })
    .await;
    let finished = post(&strict(&nameserver), &url).await;
    assert_eq!(class(&finished), FailureClass::Blocked);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_that_changes_its_answer_at_every_query_gains_nothing() {
    let receiver = Receiver::answering(OK).await;
    let url = format!("http://rebind.example.com:{}/", receiver.address.port());
    // Nothing listens on 127.0.0.2.
    let nameserver = Nameserver::start(|_, n| {
        Reply::addresses(if n % 2 == 0 { &["127.0.0.2"] } else { &["127.0.0.1"] })
    })
    .await;
    let transport = strict(&nameserver);
    let (mut blocked, mut tried) = (0, 0);
    for _ in 0..10 {
        let finished = post(&transport, &url).await;
        blocked += usize::from(class(&finished) == FailureClass::Blocked);
        tried += usize::from(class(&finished) == FailureClass::Refused);
    }
    assert_eq!((blocked, tried), (5, 5));
    assert_eq!(nameserver.questions(), 10);
    assert_eq!(receiver.connections(), 0);
    println!("rebinding: 10 answers that change, {blocked} blocked, 0 forbidden connections");
}

#[tokio::test]
async fn a_connection_is_not_used_again_for_an_address_that_the_name_no_longer_has() {
    let receiver = Receiver::answering(OK).await;
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    let nameserver = Nameserver::start(|_, n| {
        Reply::addresses(match n {
            0 | 1 => &["127.0.0.1"],
            2 => &["127.0.0.2"],
            _ => &["127.0.0.1", "::ffff:127.0.0.1"],
        })
    })
    .await;
    let transport = asking(&nameserver);
    assert_eq!(post(&transport, &url).await.timings.connection, Connection::Fresh);
    assert_eq!(post(&transport, &url).await.timings.connection, Connection::Reused);
    let moved = post(&transport, &url).await;
    assert_eq!(
        (class(&moved), moved.timings.connection),
        (FailureClass::Refused, Connection::Fresh)
    );
    assert_eq!(class(&post(&transport, &url).await), FailureClass::Blocked);
    assert_eq!(receiver.connections(), 1);
}

#[tokio::test]
async fn a_name_without_addresses_is_the_destinations_failure() {
    let cases = [
        Reply::Code(ResponseCode::NXDomain),
        Reply::Code(ResponseCode::NoError),
        Reply::Code(ResponseCode::ServFail),
        Reply::addresses(&[]),
        Reply::Alias("nowhere.example.", Vec::new()),
    ];
    for reply in cases {
        let shown = format!("{reply:?}");
        let nameserver = Nameserver::start(move |_, _| reply.clone()).await;
        let finished = post(&asking(&nameserver), "https://hooks.example.com/").await;
        assert_eq!(class(&finished), FailureClass::Dns, "{shown}");
    }
    let too_many = Reply::Addresses((0..=64).map(|n| [127, 0, 1, n].into()).collect(), 60);
    let nameserver = Nameserver::start(move |_, _| too_many.clone()).await;
    let finished = post(&asking(&nameserver), "https://hooks.example.com/").await;
    assert_eq!(class(&finished), FailureClass::Dns);
    assert_eq!(detail(&finished), "the name has too many addresses");
}

#[tokio::test]
async fn a_name_whose_servers_are_silent_is_the_destinations_failure() {
    let nameserver = Nameserver::start(|name, _| match name {
        "." => Reply::Code(ResponseCode::NoError),
        _ => Reply::Silence,
    })
    .await;
    let mut options = dev_options();
    options.dns = DnsOptions { timeout: SHORT, ..nameserver.options() };
    let finished = post(&transport_with(options), "https://hooks.example.com/").await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Dns));
}

#[tokio::test]
async fn a_resolver_that_does_not_answer_is_our_own_fault() {
    let nameserver = Nameserver::start(|_, _| Reply::Silence).await;
    let mut options = dev_options();
    options.dns = DnsOptions { timeout: SHORT, liveness_timeout: SHORT, ..nameserver.options() };
    let finished = post(&transport_with(options), "https://hooks.example.com/").await;
    assert_eq!(own_fault(&finished), OwnFaultKind::Resolver);

    let nameserver = Nameserver::start(|_, _| Reply::Code(ResponseCode::Refused)).await;
    let finished = post(&asking(&nameserver), "https://hooks.example.com/").await;
    assert_eq!(own_fault(&finished), OwnFaultKind::Resolver);

    // Nothing listens at the address of the resolver.
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let mut options = dev_options();
    let nameservers = Nameservers::Only(vec![address]);
    options.dns = DnsOptions {
        nameservers,
        timeout: SHORT,
        liveness_timeout: SHORT,
        ..DnsOptions::default()
    };
    let finished = post(&transport_with(options), "https://hooks.example.com/").await;
    assert_eq!(own_fault(&finished), OwnFaultKind::Resolver);
}

#[tokio::test]
async fn the_deadline_may_come_while_a_name_is_looked_up() {
    let nameserver = Nameserver::start(|_, _| Reply::Silence).await;
    let mut options = dev_options();
    options.dns = nameserver.options();
    let finished = post_in_haste(&transport_with(options), "https://hooks.example.com/").await;
    assert_eq!(class(&finished), FailureClass::Timeout(Phase::Dns));
}

#[tokio::test]
async fn answers_are_remembered_and_asked_for_once() {
    let receiver = Receiver::answering(OK).await;
    let nameserver = Nameserver::start(|_, _| Reply::addresses(&["127.0.0.1"])).await;
    let mut options = dev_options();
    options.dns =
        DnsOptions { ttl_max: Duration::from_secs(60), cache_names_max: 2, ..nameserver.options() };
    let transport = Arc::new(transport_with(options));
    let post_to = |name: &str| {
        let url = format!("http://{name}:{}/", receiver.address.port());
        let transport = Arc::clone(&transport);
        async move { transport.send(request(&url)).await }
    };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        tasks.spawn(post_to("a.example.com"));
    }
    for finished in tasks.join_all().await {
        assert_eq!(answer(&finished).status, 200);
    }
    assert_eq!(nameserver.questions(), 1);
    // The cache has room for two names.
    for (name, questions) in [("b", 2), ("a", 2), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("e", 5)]
    {
        post_to(&format!("{name}.example.com")).await;
        assert_eq!(nameserver.questions(), questions, "{name}");
    }
}

#[tokio::test]
async fn an_answer_is_kept_no_longer_than_it_lives() {
    let receiver = Receiver::answering(OK).await;
    let nameserver =
        Nameserver::start(|_, _| Reply::Addresses(vec![[127, 0, 0, 1].into()], 0)).await;
    let mut options = dev_options();
    options.dns = DnsOptions { ttl_max: Duration::from_secs(60), ..nameserver.options() };
    let transport = transport_with(options);
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    for n in 1..=3 {
        post(&transport, &url).await;
        assert_eq!(nameserver.questions(), n);
    }
    let defaults = DnsOptions::default();
    let bounds = (defaults.ttl_min, defaults.ttl_max);
    assert_eq!(bounds, (Duration::from_secs(1), Duration::from_secs(60)));
}
