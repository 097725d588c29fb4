//! Measures how many deliveries per second the engine alone moves: the store is in memory, and
//! receivers answer at once. `cargo run --release -p postrider-engine --example throughput`

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock of the machine")]
#![expect(clippy::print_stdout, reason = "a measurement prints its figures")]
#![expect(clippy::unwrap_used, reason = "a measurement that fails may panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_domain::attempt::{Answer, BodyEnd, Ending, Finished, Timings};
use postrider_domain::event::RawJson;
use postrider_domain::ids::{SubscriptionId, TenantId};
use postrider_domain::policy::Policy;
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_domain::time::Timestamp;
use postrider_engine::{
    Background, Credentials, CredentialsError, EngineHandle, NewEvent, OpenCredentials, Options,
    Parts, SeededEntropy,
};
use postrider_store::SubscriptionRecord;
use postrider_store_testing::memory::MemoryStore;
use postrider_test_support::samples;
use postrider_transport::{Request, SystemClock, Transport};

const BATCH: usize = 100;

struct Answers(AtomicUsize);

impl Transport for Answers {
    async fn send(&self, _request: Request) -> Finished {
        self.0.fetch_add(1, Ordering::Relaxed);
        let body_end = BodyEnd::Whole;
        Finished {
            started_at: Timestamp::EPOCH,
            timings: Timings::default(),
            ending: Ending::Answered(Answer {
                status: 200,
                retry_after: None,
                body: Bytes::new(),
                body_end,
            }),
        }
    }
}

struct Same;

impl Credentials for Same {
    fn open(&self, _: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError> {
        let secret = SigningSecret::generate_symmetric([7; 32]);
        Ok(OpenCredentials {
            secrets: SigningSecrets::new(secret),
            token: None,
            headers: Vec::new(),
            identity: None,
        })
    }
}

fn record(n: usize) -> SubscriptionRecord {
    let tenant = TenantId::default_tenant();
    let url = format!("https://hooks.example.com/{n}");
    let now = Timestamp::EPOCH;
    let mut random = [0; 10];
    random[2..].copy_from_slice(&n.to_be_bytes());
    let id = SubscriptionId::new(now, random);
    let subscription = samples::subscription(id, &tenant, &url, &[&format!("task.n{n}")], now);
    SubscriptionRecord { subscription, credentials: Vec::new(), deleted_at: None }
}

async fn feed(engine: EngineHandle, destinations: usize, batches: usize, offset: usize) {
    let data = format!("{{\"text\":\"{}\"}}", "x".repeat(500));
    let data = RawJson::parse(Bytes::from(data)).unwrap();
    for batch in 0..batches {
        let events = (0..BATCH).map(|n| NewEvent {
            id: None,
            kind: format!("task.n{}", (batch * BATCH + n + offset) % destinations).parse().unwrap(),
            object: None,
            data: data.clone(),
            old: None,
            time: None,
            trace: None,
            flagged: None,
        });
        engine.ingest(&TenantId::default_tenant(), events.collect()).await.unwrap();
    }
}

async fn measure(destinations: usize, deliveries: usize) {
    let answers = Arc::new(Answers(AtomicUsize::new(0)));
    let parts = Parts {
        store: Arc::new(MemoryStore::default()),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SeededEntropy::new(1)),
        credentials: Arc::new(Same),
        policy: Policy::default(),
        options: Options::default(),
        spans: None,
        background: Background::default(),
    };
    let engine = postrider_engine::start(parts, Arc::clone(&answers)).await.unwrap();
    for n in 0..destinations {
        engine.put_subscription(record(n)).await.unwrap();
    }
    let begin = Instant::now();
    let callers: Vec<_> = (0..4)
        .map(|n| tokio::spawn(feed(engine.clone(), destinations, deliveries / BATCH / 4, n)))
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let accepted = begin.elapsed();
    while engine.ledger(None).await.unwrap().delivered < u64::try_from(deliveries).unwrap() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = begin.elapsed();
    println!(
        "{destinations} destinations: {deliveries} deliveries in {all:?} = {:.0}/s, accepted \
         within {accepted:?}, {} sent",
        f64::from(u32::try_from(deliveries).unwrap()) / all.as_secs_f64(),
        answers.0.load(Ordering::Relaxed),
    );
    engine.shutdown(Duration::from_secs(5)).await;
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    for destinations in [1, 100, 10_000] {
        measure(destinations, 200_000).await;
    }
}
