//! `kill -9` on a process that accepts and settles at full speed.
//!
//! The parent knows only what the child printed: each line is one acknowledgement. After each kill
//! it opens the store and checks that everything acknowledged is there, that every settlement is
//! complete or absent, and that the store verifies. `STORE_KILLS=1000` in the environment makes it
//! longer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use postrider_domain::attempt::{Attempt, Ending, Failure, FailureClass, Timings, Turn};
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{Acceptance, Commit, DeliveryChange, History, Intake, Upkeep, Work};

const KILLS: u64 = 20;
const TASKS: u64 = 16;
/// Deliveries per event.
const OWED: u8 = 3;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 1 << 20, reserve_bytes: 1 << 20, ..EmbeddedOptions::default() }
}

fn tenant() -> TenantId {
    TenantId::default_tenant()
}

fn event_id(number: u64) -> EventId {
    format!("n{number}").parse().unwrap()
}

fn delivery_id(number: u64, nth: u8) -> DeliveryId {
    let mut bytes = [nth; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    DeliveryId::from_bytes(bytes)
}

/// The time of an event; it moves on to the next day now and then, so that there are several files.
fn time(number: u64) -> Timestamp {
    let day = i64::try_from(number % 3).unwrap();
    Timestamp::from_unix_ms(1_794_700_800_000 + day * 86_400_000)
}

fn payload(number: u64) -> RawJson {
    let length = usize::try_from(number % 900).unwrap();
    RawJson::from_trusted(format!("\"{number} {}\"", "x".repeat(length)).into())
}

fn acceptance(number: u64) -> Acceptance {
    let at = time(number);
    let event = Arc::new(Event {
        id: event_id(number),
        tenant: tenant(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: payload(number),
        old: None,
        time: at,
        trace: None,
    });
    let (subscription, destination) =
        (SubscriptionId::from_bytes([1; 16]), DestinationId::from_bytes([2; 16]));
    let delivery =
        |nth| Delivery::accepted(delivery_id(number, nth), &event, subscription, destination, at);
    let deliveries = (0..OWED).map(delivery).collect();
    Acceptance {
        accepted_at: at,
        fingerprint: [3; 32],
        id_given: true,
        mark: postrider_domain::catalogue::EventMark::default(),
        deliveries,
        event,
    }
}

/// One commit in which the first delivery succeeds, the second waits and the third dies.
fn commit(number: u64) -> Commit {
    let at = time(number);
    let changes = acceptance(number).deliveries.into_iter().zip(0u8..).map(|(delivery, nth)| {
        let class = FailureClass::Refused;
        let ending = Ending::Failed(Failure { class, detail: String::new() });
        let attempt = Attempt {
            number: 1,
            turn: Turn::First,
            started_at: at,
            timings: Timings::default(),
            ending,
        };
        let state = match nth {
            0 => DeliveryState::Delivered { at },
            1 => {
                let clock = ScheduleClock::starting_at(at);
                DeliveryState::Waiting(Slot::new(1, at, clock))
            }
            _ => {
                delivery
                    .cancelled(postrider_domain::delivery::CancelReason::Asked, at)
                    .unwrap()
                    .state
            }
        };
        let delivery = Delivery { state, attempts: 1, last_attempt_at: Some(at), ..delivery };
        DeliveryChange { before: StateName::Queued, by_job: None, delivery, attempt: Some(attempt) }
    });
    Commit { deliveries: changes.collect(), ..Commit::default() }
}

/// The child process of the test below. Its input names the directory; without a directory it ends
/// at once.
#[test]
#[ignore = "the child of the kill test; it is started by that test"]
fn child_that_accepts_and_settles_until_it_is_killed() {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let mut words = line.split_whitespace();
    let (Some(directory), Some(round)) = (words.next(), words.next()) else { return };
    let round: u64 = round.parse().unwrap();
    let store = EmbeddedStore::open(directory, options()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    let leases = runtime.block_on(store.hold_shards()).unwrap();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, leases) = (Arc::clone(&store), leases.clone());
            runtime.spawn(async move {
                for i in 0.. {
                    let number = (round << 40) | (task << 32) | i;
                    store.accept(vec![acceptance(number)]).await.unwrap();
                    println!("accepted {number}");
                    if !number.is_multiple_of(4) {
                        store.settle(&leases, commit(number)).await.unwrap();
                        println!("settled {number}");
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
}

/// Starts a child and kills it after `kill_after` acknowledgements. Returns each acknowledged
/// event, and whether its settlement was acknowledged too.
fn acknowledged_until_killed(
    directory: &Path,
    round: u64,
    kill_after: usize,
) -> BTreeMap<u64, bool> {
    let name = "child_that_accepts_and_settles_until_it_is_killed";
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{} {round}", directory.display()).unwrap();
    let mut told = BTreeMap::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut killed = false;
    let mut count = 0;
    while let Some(Ok(line)) = lines.next() {
        if let Some((_, number)) = line.split_once("accepted ") {
            told.entry(number.parse().unwrap()).or_insert(false);
        } else if let Some(number) = line.strip_prefix("settled ") {
            told.insert(number.parse().unwrap(), true);
        }
        count += 1;
        if count >= kill_after && !killed {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    told
}

async fn check(store: &EmbeddedStore, told: &BTreeMap<u64, bool>) {
    for (&number, &settled) in told {
        let event = store.event(&tenant(), &event_id(number)).await.unwrap();
        let event = event.unwrap_or_else(|| panic!("event {number} is lost"));
        assert_eq!(event.event.data, payload(number), "event {number}");
        let mut states = Vec::new();
        for nth in 0..OWED {
            let id = delivery_id(number, nth);
            let delivery = store.delivery(&tenant(), id).await.unwrap().unwrap();
            let attempts = store.attempts(&tenant(), id).await.unwrap();
            assert_eq!(attempts.len(), usize::try_from(delivery.attempts).unwrap());
            states.push(delivery.state.name());
        }
        let before = vec![StateName::Queued; usize::from(OWED)];
        let after = [StateName::Delivered, StateName::Waiting, StateName::Cancelled];
        assert!(states == after || (!settled && states == before), "{number}: {states:?}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long it runs is for whoever runs it")]
fn acknowledged_work_survives_a_kill_at_any_moment() {
    let kills = std::env::var("STORE_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap();
    let (mut acknowledged, mut settled, mut unknown) = (0, 0, 0);
    for round in 1..=kills {
        let kill_after = usize::try_from(1 + round * round * 7_919 % 700).unwrap();
        let told = acknowledged_until_killed(&data, round, kill_after);
        let store = EmbeddedStore::open(&data, options()).unwrap();
        runtime.block_on(async {
            check(&store, &told).await;
            store.verify().await.unwrap();
            let ledger = store.ledger(None).await.unwrap();
            assert!(ledger.balances(), "{ledger:?}");
            acknowledged += told.len();
            settled += told.values().filter(|settled| **settled).count();
            unknown = ledger.accepted / u64::from(OWED) - u64::try_from(acknowledged).unwrap();
            store.close().await.unwrap();
        });
    }
    println!(
        "store kill-9: {kills} kills, {acknowledged} events and {settled} settlements \
         acknowledged, 0 lost; {unknown} events that nobody was told of"
    );
}
