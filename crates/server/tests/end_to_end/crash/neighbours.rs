//! Healthy destinations beside very many that hang.

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use crate::crash::{count, figure, percentile};
use crate::support::server::Server;
use crate::support::{Receiver, Start, balances, http};

/// Sends events one after the other, and measures the time from each request to its arrival.
pub(super) struct Pulse;

impl Pulse {
    /// Sends this many events, ten milliseconds apart, and waits until all have arrived.
    #[expect(clippy::disallowed_methods, reason = "how long it takes is what is measured")]
    pub(super) fn send(
        server: &Server,
        receiver: &Receiver,
        events: usize,
        kind: impl Fn(usize) -> String,
    ) -> Vec<Duration> {
        let before = receiver.count();
        let mut sent = Vec::with_capacity(events);
        for n in 0..events {
            let event = json!({ "type": kind(n), "data": { "pulse": n } });
            sent.push(Instant::now());
            let answer =
                http::request(server.address, &server.key, "POST", "/v1/events", Some(&event));
            assert_eq!(answer.unwrap().0, 202);
            thread::park_timeout(Duration::from_millis(10));
        }
        let arrived = receiver.wait_for(before + events);
        let latencies = arrived[before..].iter().map(|arrived| {
            let body: Json = serde_json::from_slice(&arrived.body).unwrap();
            let n = usize::try_from(body["data"]["pulse"].as_u64().unwrap()).unwrap();
            arrived.at.duration_since(sent[n])
        });
        latencies.collect()
    }
}

/// Percentiles of latencies.
pub(super) struct Latency {
    p50: Duration,
    pub(super) p99: Duration,
}

pub(super) fn in_order(latencies: &mut [Duration]) -> Latency {
    Latency { p50: percentile(latencies, 50), p99: percentile(latencies, 99) }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", ms(self.p50), ms(self.p99))
    }
}

/// A receiver that accepts every connection and request, and never answers.
pub(super) fn black_hole() -> SocketAddr {
    let (sender, address) = std::sync::mpsc::channel();
    drop(thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                drop(tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(1..) = stream.read(&mut buffer).await {}
                }));
            }
        });
    }));
    address.recv().unwrap()
}

#[test]
fn hanging_destinations_do_not_slow_healthy_ones() {
    let holes = count("CRASH_HOLES", 100);
    let waiting = count("CRASH_HOLES_WAITING", 5_000);
    let healthy = count("CRASH_HEALTHY", 20);
    let pulses = count("CRASH_PULSES", 300);
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let (hole, receiver) = (black_hole(), Receiver::start(200));
    let mut server = Start::dev().with(&["--set", "telemetry.attempts=false"]).fresh();
    for n in 0..holes {
        server.subscribe_to(&format!("http://{hole}/{n}"), &format!("hole.n{n}"));
    }
    for n in 0..healthy {
        server.subscribe_to(&receiver.url_of(&n.to_string()), &format!("healthy.n{n}"));
    }
    let kind = |n: usize| format!("healthy.n{}", n % healthy);
    let mut quiet = Pulse::send(&server, &receiver, pulses, kind);

    let events: Vec<_> = (0..waiting)
        .map(|n| json!({ "type": format!("hole.n{}", n % holes), "data": { "n": n } }))
        .collect();
    for batch in events.chunks(1000) {
        server.ask("POST", "/v1/events/batch", Some(&json!(batch)), 202);
    }
    server.wait("the black holes to be full", |server| {
        let in_flight = server.ledger()["in_flight"].as_u64().unwrap();
        (in_flight >= u64::try_from(holes).unwrap()).then_some(())
    });
    let mut beside = Pulse::send(&server, &receiver, pulses, kind);
    let ledger = server.ledger();
    assert!(balances(&ledger), "{ledger}");
    let unfinished = u64::try_from(waiting).unwrap();
    let delivered = u64::try_from(pulses * 2).unwrap();
    assert_eq!(ledger["accepted"], unfinished + delivered, "{ledger}");
    let (quiet, beside) = (in_order(&mut quiet), in_order(&mut beside));
    // The machine may have other load; the figure is for the long form, on a quiet machine.
    assert!(beside.p99 < quiet.p99 * 2 + Duration::from_secs(1), "{beside}, quiet {quiet}");
    figure(&format!(
        "neighbours: {holes} black holes with {waiting} deliveries ({} in flight) beside {healthy} \
         healthy destinations: {beside}; quiet {quiet}; memory at most {} MiB",
        ledger["in_flight"],
        server.peak_memory_kib() / 1024
    ));
}
