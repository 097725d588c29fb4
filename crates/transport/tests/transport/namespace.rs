//! Checks real connections in a network namespace where every address answers.
//!
//! The test runs itself once more inside of a namespace whose only interface is loopback and where
//! all addresses, of both families, are local. A sink accepts every connection and records its
//! destination address: so the test sees which addresses were really contacted.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use postrider_domain::attempt::FailureClass;
use postrider_domain::egress::{DestinationUrl, EgressPolicy};
use postrider_transport::{HttpTransport, Transport, TransportOptions};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::*;

const CONTROLS: [&str; 4] = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001::5"];
const HOSTILE_URLS: [&str; 2] = [
    include_str!("../../../domain/tests/hostile_urls.tsv"),
    include_str!("../../../domain/tests/hostile_urls_more.tsv"),
];
const SET_UP: &str = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && \
     ip -6 route add local ::/0 dev lo && exec \"$0\" --exact namespace::inside_of_the_namespace \
     --ignored --nocapture";

#[test]
fn in_a_network_where_every_address_answers_only_public_ones_are_contacted() {
    let can = |command: &[&str]| {
        Command::new(command[0]).args(&command[1..]).output().is_ok_and(|out| out.status.success())
    };
    let unshare: &[&str] = if can(&["unshare", "-n", "ip", "link"]) {
        &["-n"]
    } else if can(&["unshare", "-rn", "ip", "link"]) {
        &["-rn"]
    } else {
        println!(
            "egress oracle: skipped, this machine permits no network namespace or has no `ip`"
        );
        return;
    };
    let this = std::env::current_exe().unwrap();
    let child = Command::new("unshare").args(unshare).args(["sh", "-c", SET_UP]).arg(this).output();
    let child = child.unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "{stdout}\n{stderr}");
    let figure = stdout.lines().find_map(|line| line.split_once("egress oracle:"));
    let (_, figure) = figure.unwrap_or_else(|| panic!("no figure in {stdout}"));
    println!("egress oracle:{figure}");
    assert!(figure.contains(" 0 forbidden connections"));
}

/// Records the destination addresses of all connections.
struct Sink {
    port: u16,
    contacted: Arc<Mutex<Vec<IpAddr>>>,
}

impl Sink {
    async fn start() -> Self {
        let listener = TcpListener::bind("[::]:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let contacted = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&contacted);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                log.lock().unwrap().push(stream.local_addr().unwrap().ip().to_canonical());
                tokio::spawn(async move {
                    while read_request(&mut stream).await.is_some() {
                        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        stream.write_all(ok).await.unwrap();
                    }
                });
            }
        });
        Sink { port, contacted }
    }

    fn take(&self) -> Vec<IpAddr> {
        std::mem::take(&mut *self.contacted.lock().unwrap())
    }
}

#[tokio::test]
#[ignore = "runs in the namespace that the test above makes"]
async fn inside_of_the_namespace() {
    let interfaces = std::fs::read_to_string("/proc/net/dev").unwrap();
    let is_alone = interfaces.lines().skip(2).all(|line| line.trim_start().starts_with("lo:"));
    if !is_alone {
        println!("not in a namespace: nothing is sent");
        return;
    }
    let sink = Sink::start().await;
    let answering = count_what_answers(&sink).await;
    let addresses = forbidden();
    let count = addresses.len();
    // `n<i>` resolves to address i, `mixed<i>` also to a public one, `rebind<i>` first to a public
    // one.
    let nameserver = Nameserver::start(move |name, question| {
        let label = name.split('.').next().unwrap().to_ascii_lowercase();
        let digits = label.trim_start_matches(|c: char| !c.is_ascii_digit());
        let index = digits.parse().unwrap_or(0).min(addresses.len() - 1);
        let public = CONTROLS[0].parse().unwrap();
        match label.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "mixed" => Reply::Addresses(vec![public, addresses[index]], 60),
            "rebind" if question % 2 == 0 => Reply::Addresses(vec![public], 60),
            _ => Reply::Addresses(vec![addresses[index]], 60),
        }
    })
    .await;
    let egress = EgressPolicy { allow_http: true, ..EgressPolicy::default() };
    let options = TransportOptions { egress, dns: nameserver.options(), ..Default::default() };
    let transport = transport_with(options);

    let mut refused = 0;
    for (index, address) in forbidden().into_iter().enumerate() {
        for url in [
            literal_url(address, sink.port),
            format!("http://n{index}.example.com:{}/", sink.port),
            format!("http://mixed{index}.example.com:{}/", sink.port),
        ] {
            assert_eq!(class(&post(&transport, &url).await), FailureClass::Blocked, "{url}");
            refused += 1;
        }
    }
    assert_eq!(sink.take(), Vec::<IpAddr>::new());
    let (rebound, public) = rebind(&transport, &sink, count).await;
    let urls = hostile_urls(&transport, &sink).await;

    let mut controls = BTreeSet::new();
    for control in CONTROLS {
        let control: IpAddr = control.parse().unwrap();
        let finished = post(&transport, &literal_url(control, sink.port)).await;
        assert_eq!(answer(&finished).status, 200, "{control}");
        assert_eq!(sink.take(), [control]);
        controls.insert(control);
    }
    println!(
        "egress oracle: {} hostile connects refused ({refused} addresses and names, {rebound} \
         rebinding, {urls} hostile URLs), 0 forbidden connections; {} controls connected, {public} \
         connections to the public side of rebinding names; unguarded, {answering} of {count} \
         forbidden addresses answer",
        refused + rebound + urls,
        controls.len(),
    );
}

/// How many of the forbidden addresses answer a client without the check.
async fn count_what_answers(sink: &Sink) -> usize {
    let mut answering = 0;
    for address in forbidden() {
        let connected = timeout(SHORT, TcpStream::connect((address, sink.port))).await;
        answering += usize::from(matches!(connected, Ok(Ok(_))));
    }
    until(|| sink.contacted.lock().unwrap().len() >= answering).await;
    sink.take();
    assert!(answering > 50, "the oracle is blind: only {answering} answer");
    answering
}

/// Names that resolve to a public address first and to a forbidden one next: returns how many were
/// refused, and how many connections the public address got.
async fn rebind(transport: &HttpTransport, sink: &Sink, count: usize) -> (usize, usize) {
    let (mut refused, mut answered) = (0, 0);
    for index in 0..count {
        for _ in 0..2 {
            let url = format!("http://rebind{index}.example.com:{}/", sink.port);
            let finished = post(transport, &url).await;
            match finished.ending.status() {
                Some(200) => answered += 1,
                _ => {
                    assert_eq!(class(&finished), FailureClass::Blocked, "{url}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0 && answered > 0, "{refused} refused, {answered} answered");
    let contacted = sink.take();
    let public: IpAddr = CONTROLS[0].parse().unwrap();
    assert!(contacted.iter().all(|&address| address == public), "{contacted:?}");
    (refused, contacted.len())
}

/// The tables of hostile URLs, with names that all resolve to forbidden addresses. Returns how many
/// were refused; none may be answered.
async fn hostile_urls(transport: &HttpTransport, sink: &Sink) -> usize {
    let mut refused = 0;
    let lines = HOSTILE_URLS.iter().flat_map(|table| table.lines().skip(1));
    for line in lines.filter(|line| line.split('\t').nth(2) == Some("refuse")) {
        let text = line.split('\t').next().unwrap();
        let Ok(url) = DestinationUrl::from_trusted(text) else { continue };
        if url.host().to_string().is_empty() {
            continue;
        }
        // Always with the sink's port, which would answer.
        let url = format!("http://{}:{}/", url.host(), sink.port);
        if public_literal(&url) {
            continue;
        }
        // A URL that cannot be used in a request is refused as well.
        if let Ok(request) = try_request_of("default", &url, None) {
            let finished = transport.send(request).await;
            assert_eq!(finished.ending.status(), None, "{text}");
        }
        refused += 1;
    }
    assert_eq!(sink.take(), Vec::<IpAddr>::new());
    refused
}

/// URLs that are refused for another reason than their address: a port, user and password.
fn public_literal(url: &str) -> bool {
    CONTROLS.iter().any(|control| url.contains(control))
}
