//! A fixed amount of work, whose instructions are counted: `cargo xtask budget` runs it under
//! callgrind. By hand: `budget <part> <deliveries> [<directory>]`.
//!
//! Clock, random bytes, payloads and the order of everything are fixed, there is one thread but for
//! the embedded store's own, and nothing depends on how fast the machine is.

#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]
#![expect(clippy::print_stdout, reason = "it tells what it did")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request as HttpRequest, StatusCode};
use bytes::Bytes;
use postrider_api::process::{About, Disk, Process, Setting};
use postrider_api::{
    ApiParts, ApiSettings, ApiState, Bootstrap, KeyRing, Vault, bootstrap_admin, router,
};
use postrider_domain::attempt::{Answer, BodyEnd, Ending, Finished, Timings};
use postrider_domain::egress::{DestinationUrl, EgressPolicy};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_engine::{Background, EngineHandle, Options, Parts, SeededEntropy};
use postrider_store::Store;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store_testing::memory::MemoryStore;
use postrider_transport::{
    Clock, HttpTransport, Request, SystemClock, Target, Transport, TransportOptions,
};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower::ServiceExt as _;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const BATCH: usize = 100;
const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

/// A process that nothing is asked of.
struct NoProcess;

impl Process for NoProcess {
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    fn about(&self) -> About {
        About { version: "", started_at: START, time_scale: 1, store: "embedded" }
    }

    fn disk(&self) -> Option<Disk> {
        None
    }
}

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        START
    }
}

/// A receiver that answers at once.
struct Answers;

impl Transport for Answers {
    async fn send(&self, request: Request) -> Finished {
        drop(request);
        let body = Bytes::from_static(b"ok");
        let answer = Answer { status: 200, retry_after: None, body, body_end: BodyEnd::Whole };
        let timings = Timings { total: Duration::from_millis(1), ..Timings::default() };
        Finished { started_at: START, timings, ending: Ending::Answered(answer) }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [part, deliveries, rest @ ..] = arguments.as_slice() else {
        println!("budget <part> <deliveries> [<directory>]");
        return;
    };
    let deliveries: usize = deliveries.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match part.as_str() {
            // Accepting events without a subscription: one per request, or a hundred.
            "accept_single" => accept(&Server::in_memory(false).await, deliveries, 1).await,
            "accept_batch" => accept(&Server::in_memory(false).await, deliveries, BATCH).await,
            // Accepting events with one subscription, and everything up to the transport and back.
            "deliver" => deliver(&Server::in_memory(true).await, deliveries, BATCH).await,
            "deliver_single" => deliver(&Server::in_memory(true).await, deliveries, 1).await,
            // Accepting and delivering on the embedded store.
            "embedded" => {
                let directory = rest.first().map_or("postrider-budget", String::as_str);
                let server = Server::embedded(Path::new(directory)).await;
                deliver(&server, deliveries, BATCH).await;
            }
            // The transport alone, over loopback.
            "post" => post(deliveries).await,
            other => panic!("no such part: {other}"),
        }
    });
    println!("{part}: {deliveries}");
}

struct Server {
    router: Router,
    engine: EngineHandle,
    store: Arc<dyn Store>,
    key: String,
    /// Whether the store has its own threads.
    has_threads: bool,
}

impl Server {
    async fn in_memory(subscribed: bool) -> Server {
        Server::start(Arc::new(MemoryStore::default()), subscribed).await
    }

    async fn embedded(directory: &Path) -> Server {
        let store = EmbeddedStore::open(directory, EmbeddedOptions::default()).unwrap();
        Server { has_threads: true, ..Server::start(store, true).await }
    }

    async fn start(store: Arc<dyn Store>, subscribed: bool) -> Server {
        let clock: Arc<dyn Clock> = Arc::new(Fixed);
        let vault = Vault::new(KeyRing::generate().unwrap());
        let first = bootstrap_admin(&*store, &vault, None, START).await.unwrap();
        let Bootstrap::Created(key) = first else { panic!("the store is not empty") };
        let parts = Parts {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            entropy: Arc::new(SeededEntropy::new(7)),
            credentials: Arc::new(vault.clone()),
            policy: Policy::default(),
            options: Options::default(),
            spans: None,
            background: Background::default(),
        };
        let engine = postrider_engine::start(parts, Arc::new(Answers)).await.unwrap();
        let state = ApiState::new(ApiParts {
            store: Arc::clone(&store),
            engine: engine.clone(),
            vault,
            clock,
            egress: EgressPolicy::default().into(),
            settings: ApiSettings::default(),
            given_admin: None,
            metrics: None,
            metrics_key: None,
            process: Arc::new(NoProcess),
        });
        let server = Server {
            router: router(state),
            engine,
            store,
            key: key.to_string(),
            has_threads: false,
        };
        if subscribed {
            let wish = json!({"url": "https://hooks.example.com/in", "types": ["bench.*"]});
            let body = Bytes::from(wish.to_string());
            server.ask("/v1/subscriptions", "application/json", body, StatusCode::CREATED).await;
        }
        server
    }

    async fn ask(&self, path: &str, kind: &str, body: Bytes, expected: StatusCode) {
        let request = HttpRequest::post(path)
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", kind)
            .body(Body::from(body))
            .unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.status(), expected);
    }
}

fn put_event(out: &mut Vec<u8>, n: usize) {
    let item = "{\"name\":\"Quarterly report\",\"status\":\"CUR\",\"percent\":42.5},".repeat(7);
    let event = format!("{{\"type\":\"bench.k0\",\"data\":{{\"n\":{n},\"items\":[{item}0]}}}}\n");
    out.extend_from_slice(event.as_bytes());
}

async fn accept(server: &Server, events: usize, batch: usize) {
    let (path, kind) = match batch {
        1 => ("/v1/events", "application/json"),
        _ => ("/v1/events/batch", "application/x-ndjson"),
    };
    for first in (0..events).step_by(batch) {
        let mut body = Vec::new();
        (first..first + batch).for_each(|n| put_event(&mut body, n));
        server.ask(path, kind, Bytes::from(body), StatusCode::ACCEPTED).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "threads of the store are waited for without work")]
async fn deliver(server: &Server, deliveries: usize, batch: usize) {
    for _ in (0..deliveries).step_by(BATCH) {
        accept(server, BATCH, batch).await;
        // Everything so far is settled before the next events are sent.
        loop {
            let gauges = server.engine.gauges().await.unwrap();
            if gauges.resident + gauges.unpersisted == 0 {
                break;
            }
            match server.has_threads {
                true => tokio::time::sleep(Duration::from_millis(2)).await,
                false => tokio::task::yield_now().await,
            }
        }
    }
    let owed = u64::try_from(deliveries).unwrap();
    assert_eq!(server.engine.ledger(None).await.unwrap().delivered, owed);
    server.engine.shutdown(Duration::from_secs(60)).await;
    server.store.close().await.unwrap();
}

async fn post(posts: usize) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    drop(tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(1..) = stream.read(&mut buffer).await {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        }
    }));
    let egress = EgressPolicy { dev: true, ..EgressPolicy::default() };
    let options = TransportOptions { egress, ..TransportOptions::default() };
    let transport = HttpTransport::new(options, Arc::new(SystemClock)).unwrap();
    let tenant = TenantId::default_tenant();
    let url = DestinationUrl::from_trusted(&url).unwrap();
    let destination = DestinationId::of(&tenant, url.as_str());
    let target = Arc::new(Target::new(tenant, destination, url, None).unwrap());
    let header = |name: &'static str, value: &'static str| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    };
    for _ in 0..posts {
        let request = Request {
            target: Arc::clone(&target),
            headers: vec![
                header("content-type", "application/json"),
                header("webhook-id", "dlv_019a86d99e3877078707070707070707"),
                header("webhook-timestamp", "1763199000"),
                header("webhook-signature", "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="),
            ],
            body: Bytes::from_static(&[b'x'; 500]).into(),
            deadline: Duration::from_secs(5),
            response_body_bytes_max: 16 * 1024,
        };
        assert_eq!(transport.send(request).await.ending.status(), Some(200));
    }
}
