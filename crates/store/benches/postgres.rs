//! How many events a second PostgreSQL takes in and settles, at fan-out 5, and what that costs.
//!
//! `cargo bench -p postrider-store --bench postgres [-- EVENTS]` starts a server of its own (sync on)
//! and prints one line for each phase with the processor time of both sides.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench talks and does not recover")]

#[path = "../tests/postgres/server.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod server;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_domain::attempt::Turn;
use postrider_domain::circuit::Suspension;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::policy::Policy;
use postrider_domain::settlement::settle;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{
    Acceptance, Accepted, Commit, Configuration, DeliveryChange, DestinationChange, History,
    Intake, ShardLeases, Upkeep, Work,
};
use postrider_store_testing::samples::{
    self, acceptance, acme, answered, at, destination, event, finished,
};

const FAN_OUT: u64 = 5;
const CALLERS: u64 = 64;
const DESTINATIONS: u64 = 50;
/// Deliveries settled in one commit, as many as the engine settles.
const COMMIT: usize = 500;

/// A reading of the clocks and counters; two readings give the cost of a phase.
#[derive(Clone, Copy)]
struct Spent {
    at: Instant,
    client: Duration,
    server: Duration,
    /// Bytes of write-ahead log that the server has written; a standby receives the same bytes.
    wal: u64,
}

impl Spent {
    fn now(server: &server::Server) -> Self {
        let pid = std::fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
        let postmaster: u32 = pid.lines().next().unwrap().parse().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let spent = all.filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (parent, spent) = processor_time(&stat)?;
            (parent == postmaster).then_some(spent)
        });
        let own = std::fs::read_to_string(Path::new("/proc/self/stat")).unwrap();
        let client = processor_time(&own).unwrap().1;
        let written = server.sql("postgres", "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn");
        Spent { at: now(), client, server: spent.sum(), wal: written.parse().unwrap() }
    }

    fn print(self, server: &server::Server, what: &str, events: u64) {
        let end = Spent::now(server);
        let seconds = (end.at - self.at).as_secs_f64();
        let deliveries = events * FAN_OUT;
        let each = |spent: Duration| spent.as_micros() / u128::from(deliveries);
        println!(
            "postgres {what}: {:.0} events/s = {:.0} deliveries/s; processor time per delivery: \
             {} µs here, {} µs in the server; {} bytes of log",
            events as f64 / seconds,
            deliveries as f64 / seconds,
            each(end.client - self.client),
            each(end.server - self.server),
            (end.wal - self.wal) / deliveries,
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

/// Parent and processor time, from a line of `/proc/<pid>/stat`, in ticks of 10 ms.
fn processor_time(stat: &str) -> Option<(u32, Duration)> {
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some((fields.get(1)?.parse().ok()?, Duration::from_millis(ticks * 10)))
}

fn owed(n: u64) -> Acceptance {
    let first = n * FAN_OUT;
    let owed: Vec<_> = (first..first + FAN_OUT).map(|d| (d, d % DESTINATIONS)).collect();
    let data = RawJson::from_trusted(Bytes::from(format!("\"{}\"", "x".repeat(600))));
    let event = Event { data, old: None, ..event(&acme(), &format!("evt_{n:032x}")) };
    Acceptance { id_given: false, ..acceptance(event, at(n), &owed) }
}

/// Accepts the events from `from` to `to`, one event per call, from many concurrent callers.
async fn accept(store: &Arc<PostgresStore>, from: u64, to: u64) {
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                let mut n = from + caller;
                while n < to {
                    assert_eq!(store.accept(vec![owed(n)]).await.unwrap(), [Accepted::New]);
                    n += CALLERS;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

/// Settles all queued deliveries as delivered, in commits of the engine's size.
async fn settle_all(store: &Arc<PostgresStore>, leases: &ShardLeases, wanted: u64) {
    let (mut settled, mut after) = (0, None);
    let mut places: BTreeMap<_, _> =
        (0..DESTINATIONS).map(|n| destination(&acme(), n)).map(|place| (place.id, place)).collect();
    while settled < wanted {
        let queued = store.queued(leases, after, COMMIT).await.unwrap();
        let mut commit = Commit::default();
        for delivery in queued {
            after =
                Some(postrider_store::DueMark { at: delivery.created_at, delivery: delivery.id });
            let place = places.get_mut(&delivery.destination).unwrap();
            let (done, now) = (finished(at(7), answered(200)), at(9));
            let policy = Policy::default();
            let done = settle(&delivery, place, Turn::First, done, now, Suspension::Off, &policy);
            *place = done.destination;
            commit.deliveries.push(DeliveryChange {
                before: delivery.state.name(),
                by_job: None,
                delivery: done.delivery,
                attempt: Some(done.attempt),
            });
        }
        if commit.deliveries.is_empty() {
            after = None;
            tokio::task::yield_now().await;
            continue;
        }
        settled += u64::try_from(commit.deliveries.len()).unwrap();
        commit.destinations.extend(places.values().map(|place| DestinationChange {
            tenant: place.tenant.clone(),
            id: place.id,
            circuit: place.circuit.clone(),
            transitions: Vec::new(),
        }));
        store.settle(leases, commit).await.unwrap();
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let events = std::env::args().filter_map(|word| word.parse().ok()).next().unwrap_or(20_000u64);
    let server = server::Server::start();
    let url = server.database("bench");
    let options = PostgresOptions { lease: Duration::from_secs(600), ..PostgresOptions::default() };
    let store = PostgresStore::connect(&url, options).await.unwrap();
    for n in 0..DESTINATIONS {
        let record = samples::subscription(&acme(), n, n);
        store.put_subscription(&record, &destination(&acme(), n)).await.unwrap();
    }
    let leases = store.hold_shards().await.unwrap();
    accept(&store, 0, 200).await;
    settle_all(&store, &leases, 200 * FAN_OUT).await;

    let before = Spent::now(&server);
    accept(&store, 200, 200 + events).await;
    before.print(&server, "accept (64 callers, single events)", events);
    let before = Spent::now(&server);
    settle_all(&store, &leases, events * FAN_OUT).await;
    before.print(&server, "settle (commits of 500)", events);

    let (from, to) = (200 + events, 200 + 2 * events);
    let before = Spent::now(&server);
    let both = tokio::spawn({
        let (store, leases) = (Arc::clone(&store), leases.clone());
        async move { settle_all(&store, &leases, events * FAN_OUT).await }
    });
    accept(&store, from, to).await;
    both.await.unwrap();
    before.print(&server, "accept and settle together", events);
    let bytes: u64 = server.sql("postgres", "SELECT pg_database_size('bench')").parse().unwrap();
    let deliveries = (200 + 2 * events) * FAN_OUT;
    println!("postgres kept: {} bytes per delivery, with a fifth of its event", bytes / deliveries);
    let ledger = store.ledger(None).await.unwrap();
    assert!(ledger.balances() && ledger.delivered == (200 + 2 * events) * FAN_OUT, "{ledger:?}");
}
