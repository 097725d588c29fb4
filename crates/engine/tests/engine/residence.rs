//! Idle destinations are evicted from memory without visible effect: their deliveries are on time,
//! their circuits are kept, and commands work.

use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::Policy;
use postrider_engine::{NewReplay, Options};
use postrider_store::{Configuration as _, DeliveryFilter};

use crate::world::{FAIL, HOUR, MINUTE, Mood, OK, START, TEN_MINUTES, World, event, ms, tenant};

const URL: &str = "https://hooks.example.com/in";
/// Long enough that each destination was checked after ten idle minutes.
const WHILE: Duration = Duration::from_secs(12 * 60);

async fn in_memory(world: &World) -> usize {
    world.engine.gauges().await.unwrap().destinations
}

fn id() -> DestinationId {
    DestinationId::of(&tenant(), URL)
}

/// A world with one destination that had one delivery and was evicted.
async fn with_evicted_destinations(options: Options) -> World {
    let mut world = World::with(Policy::default(), options).await;
    world.subscribe(URL).await;
    world.send().await;
    world.pass(WHILE).await;
    assert_eq!(in_memory(&world).await, 0);
    world.script.forget();
    world
}

#[tokio::test(start_paused = true)]
async fn idle_destinations_leave_memory_and_come_back_when_something_is_owed() {
    let mut world = World::new().await;
    let url = |n: usize| format!("https://hooks{n}.example.com/in");
    for n in 0..50 {
        let mut record = world.wish(&url(n));
        record.subscription.types = serde_json::from_str(&format!("[\"task.n{n}\"]")).unwrap();
        world.put(record).await;
    }
    let send = async |n: usize| {
        let mut one = event("1");
        one.kind = format!("task.n{n}").parse().unwrap();
        world.engine.ingest(&tenant(), vec![one]).await.unwrap();
        world.run_ready_tasks().await;
    };
    for n in 0..50 {
        send(n).await;
    }
    world.pass(TEN_MINUTES - ms(1)).await;
    assert_eq!(in_memory(&world).await, 50);
    // One destination is in use all the time.
    for _ in 0..4 {
        send(7).await;
        world.pass(MINUTE).await;
    }
    assert_eq!(in_memory(&world).await, 1, "one is in use");
    let before = world.script.sent().len();
    send(3).await;
    let sent = world.script.sent().split_off(before);
    assert_eq!((sent.len(), sent[0].at), (1, world.now()), "at once");
    assert_eq!(in_memory(&world).await, 2);
    let counters = world.destination(&url(3)).await.circuit.counters;
    assert_eq!((counters.attempts, counters.successes), (2, 2), "its counters go on");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_delivery_of_an_evicted_destination_is_sent_on_the_millisecond() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.first(URL, [Mood::Later(503, HOUR), OK]);
    let later = world.send().await;
    world.send().await;
    world.pass(MINUTE * 30).await;
    assert_eq!(in_memory(&world).await, 0, "its slot is far away");
    let due = world.delivery(&later).await.next_attempt_at().unwrap();
    assert_eq!(due, START.saturating_add(HOUR));
    world.pass_until(due).await;
    assert_eq!(world.script.sent().pop().unwrap().at, due);
    assert_eq!(world.delivery(&later).await.state.name(), StateName::Delivered);
}

#[tokio::test(start_paused = true)]
async fn one_against_which_failures_stand_stays() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    world.send().await;
    world.pass(HOUR * 60).await;
    assert_eq!(world.count(StateName::Dead).await, 1);
    assert_eq!(in_memory(&world).await, 1);
}

#[tokio::test(start_paused = true)]
async fn more_than_waits_for_a_destination_at_rest_is_read_back() {
    let options = Options { handover_deliveries_max: 300, ..Options::default() };
    let world = with_evicted_destinations(options).await;
    for _ in 0..3 {
        // Some deliveries are handed over and some are not.
        let batches = (0..5).map(|_| {
            let engine = world.engine.clone();
            tokio::spawn(async move { engine.ingest(&tenant(), vec![event("1"); 200]).await })
        });
        for accepted in batches.collect::<Vec<_>>() {
            accepted.await.unwrap().unwrap();
        }
    }
    world.pass(MINUTE).await;
    assert_eq!(world.script.sent().len(), 3_000, "each once");
    assert_eq!(world.count(StateName::Delivered).await, 3_001);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn commands_on_an_evicted_destination_work() {
    let world = with_evicted_destinations(Options::default()).await;
    let delivery = world.deliveries().await.remove(0).id;
    world.engine.replay(&tenant(), delivery).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), 1, "replayed");
    world.pass(WHILE).await;
    assert_eq!(in_memory(&world).await, 0);
    let filter = DeliveryFilter { state: Some(StateName::Delivered), ..DeliveryFilter::default() };
    let wish = NewReplay { filter, ..NewReplay::default() };
    let job = world.engine.start_replay(&tenant(), wish).await.unwrap();
    world.pass(ms(1_000)).await;
    assert_eq!(world.script.sent().len(), 2, "replayed by a job: {job:?}");
    world.pass(WHILE).await;
    assert_eq!(in_memory(&world).await, 0);
    let seen = world.engine.destination(&tenant(), id()).await.unwrap().unwrap();
    assert_eq!(seen.destination.circuit.counters.attempts, 3);
    world.pass(WHILE).await;
    world.engine.freeze(&tenant(), id(), None).await.unwrap();
    world.pass(WHILE).await;
    assert_eq!(world.state(URL).await, "frozen");
    assert_eq!(in_memory(&world).await, 1, "only what is well leaves");
    world.engine.enable(&tenant(), id(), None).await.unwrap();
    world.pass(WHILE).await;
    assert_eq!((in_memory(&world).await, world.state(URL).await), (0, "enabled"));
    let unknown = DestinationId::of(&tenant(), "https://nobody.example.com/");
    assert!(world.engine.enable(&tenant(), unknown, None).await.is_err());
    assert!(world.engine.enable(&"other".parse().unwrap(), id(), None).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn delivery_cancelled_while_its_destination_is_read_stays_cancelled() {
    let world = with_evicted_destinations(Options::default()).await;
    world.engine.ingest(&tenant(), vec![event("1"); 3]).await.unwrap();
    world.script.set(URL, FAIL);
    let subscription = world.deliveries().await[0].subscription;
    world.engine.delete_subscription(&tenant(), subscription).await.unwrap();
    world.pass(HOUR).await;
    let finished =
        world.count(StateName::Delivered).await + world.count(StateName::Cancelled).await;
    assert_eq!(finished, 4);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn unused_destination_is_removed_soon_after_a_start_however_long_the_interval() {
    let mut policy = Policy::default();
    policy.retention.finished = HOUR;
    let options = Options { prune_every: HOUR * 1_000, ..Options::default() };
    let mut world = World::with(policy, options).await;
    let subscription = world.subscribe(URL).await;
    world.engine.delete_subscription(&tenant(), subscription.id).await.unwrap();
    world.pass(HOUR * 2).await;
    let stored = async |world: &World| world.store.destination(&tenant(), id()).await.unwrap();
    assert!(stored(&world).await.is_some(), "the next round is in a thousand hours");
    world.crash().await;
    world.pass(MINUTE).await;
    assert_eq!(stored(&world).await, None);
}
