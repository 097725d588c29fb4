//! The promise of the contract (nothing is lost), and the limits of memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_domain::delivery::{DeliveryState, StateName};
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{Policy, Retention};
use postrider_domain::subscription::Subscription;
use postrider_engine::{CommandError, Ended, Gauges, IngestError, Ingested, Options};
use postrider_store::{History, Upkeep};
use postrider_store_testing::memory::{Delay, Fault, MemoryOptions, MemoryStore};
use tokio::task::JoinHandle;

use crate::world::{FAIL, HOUR, MINUTE, Mood, OK, World, event, ms, tenant};

const URL: &str = "https://hooks.example.com/in";

#[tokio::test(start_paused = true)]
async fn the_ledger_balances_at_every_step() {
    let mut world = World::new().await;
    for n in 0..5 {
        let url = format!("https://hooks.example.com/{n}");
        world.subscribe(&url).await;
        let mood = [OK, FAIL, Mood::Hangs, Mood::Refuses, Mood::Answers(200, ms(300))][n].clone();
        world.script.set(&url, mood);
    }
    for step in 0..300u64 {
        world.send_many(3).await;
        world.check_ledger().await;
        world.pass(ms(step * 37 % 1000)).await;
        world.check_ledger().await;
    }
    world.pass(HOUR * 60).await;
    let ledger = world.engine.ledger(Some(&tenant())).await.unwrap();
    assert!(ledger.balances());
    assert_eq!(ledger.accepted, 4500);
    assert_eq!(ledger.delivered + ledger.dead, 4500, "{ledger:?}");
    assert_eq!(world.engine.ledger(None).await.unwrap(), ledger);
}

#[tokio::test(start_paused = true)]
async fn cancelled_is_what_somebody_cancelled() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let waiting = world.send().await;
    let waiting = world.delivery(&waiting).await;
    let cancelled = world.engine.cancel(&tenant(), waiting.id).await.unwrap();
    assert_eq!(cancelled.state.name(), StateName::Cancelled);
    world.pass(HOUR).await;
    assert_eq!(world.script.sent().len(), 1, "it is not attempted any more");
    let again = world.engine.cancel(&tenant(), waiting.id).await;
    assert!(matches!(again, Err(CommandError::WrongState(_))), "{again:?}");
    let other = "other".parse().unwrap();
    let foreign = world.engine.cancel(&other, waiting.id).await;
    assert!(matches!(foreign, Err(CommandError::NotFound)), "{foreign:?}");

    // In flight: the attempt is logged, the delivery stays cancelled.
    world.script.set(URL, Mood::Gated(200));
    let in_flight = world.send().await;
    let in_flight = world.delivery(&in_flight).await;
    assert_eq!(world.engine.in_flight(vec![in_flight.id]).await.unwrap(), [true]);
    world.engine.cancel(&tenant(), in_flight.id).await.unwrap();
    assert_eq!(world.engine.in_flight(vec![in_flight.id]).await.unwrap(), [false]);
    world.check_ledger().await;
    world.script.open_gate();
    world.run_ready_tasks().await;
    let ended = world.store.delivery(&tenant(), in_flight.id).await.unwrap().unwrap();
    assert!(matches!(ended.state, DeliveryState::Cancelled { .. }));
    assert_eq!(world.attempts(in_flight.id).await.len(), 1);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_far_slot_that_is_not_in_memory_can_be_cancelled() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let ingested = world.send().await;
    world.pass(HOUR * 2).await;
    assert_eq!(world.engine.gauges().await.unwrap().resident, 0);
    let id = world.delivery(&ingested).await.id;
    world.engine.cancel(&tenant(), id).await.unwrap();
    let sent = world.script.sent().len();
    world.pass(HOUR * 60).await;
    assert_eq!(world.script.sent().len(), sent);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_what_does_not_fit_is_sent_once_in_its_turn() {
    let options = Options {
        resident_max: 100,
        lane_resident_max: 20,
        handover_batches_max: 2,
        handover_deliveries_max: 50,
        payload_bytes_max: 100,
        page: 7,
        ..Options::default()
    };
    let mut world = World::with(Policy::default(), options).await;
    for n in 0..5 {
        let url = format!("https://hooks.example.com/{n}");
        world.subscribe(&url).await;
        world.script.set(&url, Mood::Answers(200, ms(5)));
    }
    for _ in 0..20 {
        world.send_many(100).await;
        let gauges = world.engine.gauges().await.unwrap();
        // Attempts in flight have limits of their own: here 64 for each destination.
        let in_flight = gauges.in_flight_first + gauges.in_flight_retry;
        assert!(in_flight <= 5 * 64, "{gauges:?}");
        assert!(gauges.resident - in_flight <= 100 + 5 + 40, "{gauges:?}");
        assert!(gauges.payload_bytes <= 100, "{gauges:?}");
        world.check_ledger().await;
        world.pass(ms(10)).await;
    }
    world.pass(MINUTE * 10).await;
    assert_eq!(world.count(StateName::Delivered).await, 10_000);
    let sent = world.script.sent();
    let different: HashSet<_> = sent.iter().map(|one| one.delivery).collect();
    assert_eq!((sent.len(), different.len()), (10_000, 10_000), "each once");
}

#[tokio::test(start_paused = true)]
async fn many_that_fall_due_at_once_are_read_back_in_their_turn() {
    let options =
        Options { resident_max: 100, lane_resident_max: 10, page: 50, ..Options::default() };
    let mut policy = Policy::default();
    policy.circuit.disable_grace = u64::MAX;
    let mut world = World::with(policy, options).await;
    world.subscribe(URL).await;
    world.fail(URL, 600).await;
    world.script.forget();
    world.script.set(URL, Mood::Answers(200, ms(20)));
    world.pass(ms(84_800 + 60_000)).await;
    assert_eq!(world.count(StateName::Delivered).await, 600);
    assert_eq!(world.script.sent().len(), 600, "each once");
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!(gauges.resident, 0, "{gauges:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_loses_nothing() {
    let store = slow_store(1);
    let mut world = World::on(store, Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    for patience in 0..10 {
        let engine = world.engine.clone();
        let caller =
            tokio::spawn(async move { engine.ingest(&tenant(), vec![event("1")]).await.is_ok() });
        tokio::time::sleep(ms(patience)).await;
        caller.abort();
        drop(caller.await);
    }
    world.pass(MINUTE).await;
    let deliveries = world.deliveries().await;
    assert!(!deliveries.is_empty());
    assert!(deliveries.iter().all(|one| one.state.name() == StateName::Delivered));
}

pub(crate) fn slow_store(seed: u64) -> MemoryStore {
    let wait = |n: u64| -> Delay { Arc::new(move || Box::pin(tokio::time::sleep(ms(n)))) };
    let options = MemoryOptions {
        sync: Some(wait(3)),
        read: Some(wait(1)),
        seed,
        ..MemoryOptions::default()
    };
    MemoryStore::new(options)
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_drains_without_a_duplicate() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Answers(200, ms(700)));
    world.send_many(50).await;
    assert_eq!(world.script.in_flight(), 8);
    let engine = world.engine.clone();
    let stopping = tokio::spawn(async move { engine.shutdown(ms(10_000)).await });
    world.run_ready_tasks().await;
    let refused = world.engine.ingest(&tenant(), vec![event("1")]).await;
    assert!(matches!(refused, Err(IngestError::Stopping)), "{refused:?}");
    assert_eq!(stopping.await.unwrap(), 0, "nothing was given up");
    assert_eq!(world.engine.ended().await, Ended::Shutdown);
    assert_eq!(world.count(StateName::Delivered).await, 8, "what was in flight is settled");
    let store = world.store.clone();
    world.reopen(store, ms(1_000)).await;
    world.pass(MINUTE).await;
    assert_eq!(world.count(StateName::Delivered).await, 50);
    assert_eq!(world.script.sent().len(), 50, "0 duplicates");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_its_deadline_and_what_hangs_is_attempted_again() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Gated(200));
    world.send().await;
    let begun = world.now();
    assert_eq!(world.engine.shutdown(ms(2_000)).await, 1);
    assert_eq!(world.now().since(begun), ms(2_000));
    world.script.set(URL, OK);
    let store = world.store.clone();
    world.reopen(store, ms(1)).await;
    assert_eq!(world.count(StateName::Delivered).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stops_ends_the_engine_with_the_reason() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.store.fail_later(1, Fault::Stopped, 1);
    world.send().await;
    let Ended::StoreStopped(_) = world.engine.ended().await else { panic!() };
    assert!(matches!(world.engine.gauges().await, Err(CommandError::Stopping)));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stops_is_noticed_also_where_nothing_is_sent() {
    let world = World::new().await;
    drop(world.store.crash());
    world.pass(MINUTE).await;
    let Ended::StoreStopped(_) = world.engine.ended().await else { panic!() };
}

#[tokio::test(start_paused = true)]
async fn state_of_a_shard_that_another_node_owns_is_dropped() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    world.send_many(5).await;
    let before = world.script.sent().len();
    world.store.give_away(DestinationId::of(&tenant(), URL).shard());
    world.script.set(URL, Mood::Answers(200, ms(10)));
    world.pass(ms(84_810)).await;
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!(gauges.unpersisted, 0, "{gauges:?}");
    assert!(world.script.sent().len() >= before);
    world.check_ledger().await;
    // When this node owns the shard again, it continues with the unfinished deliveries.
    world.pass(HOUR * 49).await;
    assert_eq!(world.count(StateName::Delivered).await, 5);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn another_policy_counts_from_now_on() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.fail(URL, 50).await;
    assert_eq!(world.state(URL).await, "enabled");
    let mut policy = Policy::default();
    policy.circuit.disable_grace = 10;
    policy.circuit.probe_interval = MINUTE;
    world.engine.reload_policy(policy.clone()).unwrap();
    assert_eq!(*world.engine.policy(), policy);
    world.send().await;
    assert_eq!(world.state(URL).await, "disabled");
    world.script.set(URL, OK);
    world.pass(MINUTE).await;
    assert_eq!(world.state(URL).await, "enabled");
}

#[tokio::test(start_paused = true)]
async fn reads_that_fail_are_asked_again() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.first(URL, [FAIL]);
    world.send().await;
    world.pass(ms(80_000)).await;
    world.store.fail_next_reads(4);
    world.pass(ms(10_000)).await;
    assert_eq!(world.count(StateName::Delivered).await, 1);
}

#[tokio::test(start_paused = true)]
async fn finished_deliveries_are_kept_for_the_retention_time_and_then_removed() {
    let retention = Retention { finished: HOUR * 72 };
    let policy = Policy { retention, ..Policy::default() };
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    let ingested = world.send().await;
    world.pass(HOUR * 71).await;
    assert!(world.store.event(&tenant(), &ingested.id).await.unwrap().is_some());
    world.pass(HOUR * 50).await;
    assert!(world.store.event(&tenant(), &ingested.id).await.unwrap().is_none());
    let ledger = world.engine.ledger(Some(&tenant())).await.unwrap();
    assert_eq!((ledger.accepted, ledger.delivered), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn engine_that_runs_for_half_an_hour_at_a_time_prunes_all_the_same() {
    let retention = Retention { finished: HOUR * 72 };
    let policy = Policy { retention, ..Policy::default() };
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    let ingested = world.send().await;
    world.crash_for(HOUR * 121).await;
    world.pass(MINUTE * 29).await;
    assert!(world.store.event(&tenant(), &ingested.id).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_engine_at_rest_holds_nothing() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.send_many(100).await;
    world.pass(MINUTE).await;
    let gauges = world.engine.gauges().await.unwrap();
    let expected =
        Gauges { destinations: 1, alarms: 1, shards: 256, leased: true, ..Gauges::default() };
    assert_eq!(gauges, expected, "one planned read of what is due, and nothing else");
    world.store.check().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn deliveries_behind_those_of_a_deleted_subscription_are_sent() {
    // Reads are so slow that the deliveries of the deleted subscription have their turn before they
    // are found.
    let slow: Delay = Arc::new(|| Box::pin(tokio::time::sleep(ms(500))));
    let options = MemoryOptions { read: Some(slow), ..MemoryOptions::default() };
    let store = MemoryStore::new(options);
    let mut world = World::on(store, Policy::default(), Options::default()).await;
    let deleted = world.subscribe(URL).await;
    world.script.set(URL, Mood::Gated(200));
    world.send_many(20).await;
    let mut other = world.wish(URL);
    other.subscription.types = serde_json::from_str("[\"note.*\"]").unwrap();
    world.put(other).await;
    let mut note = event("1");
    note.kind = "note.added".parse().unwrap();
    world.engine.ingest(&tenant(), vec![note; 5]).await.unwrap();
    world.engine.delete_subscription(&tenant(), deleted.id).await.unwrap();
    world.script.open_gate();
    world.pass(ms(5_000)).await;
    assert_eq!(world.count(StateName::Queued).await, 0, "nothing is forgotten in its queue");
    assert!(world.count(StateName::Delivered).await >= 5);
}

/// A store in which one sync takes a minute after the switch was set; all others are immediate, and
/// also make the writes durable that wait for the slow one.
fn store_with_one_slow_sync() -> (MemoryStore, Arc<AtomicBool>) {
    let slow = Arc::new(AtomicBool::new(false));
    let is_slow = Arc::clone(&slow);
    let sync: Delay = Arc::new(move || {
        let wait = if is_slow.swap(false, Ordering::SeqCst) { MINUTE } else { Duration::ZERO };
        Box::pin(tokio::time::sleep(wait))
    });
    (MemoryStore::new(MemoryOptions { sync: Some(sync), ..MemoryOptions::default() }), slow)
}

/// A world in which ten deliveries of a subscription are durable, but reach the lanes a minute
/// later.
async fn ten_on_their_way() -> (World, Subscription, JoinHandle<Vec<Ingested>>) {
    let (store, slow) = store_with_one_slow_sync();
    let mut world = World::on(store, Policy::default(), Options::default()).await;
    let subscription = world.subscribe(URL).await;
    slow.store(true, Ordering::SeqCst);
    let engine = world.engine.clone();
    let accepting =
        tokio::spawn(async move { engine.ingest(&tenant(), vec![event("1"); 10]).await.unwrap() });
    world.run_ready_tasks().await;
    // Any other write makes it durable.
    world.subscribe("https://hooks.example.com/other").await;
    assert_eq!(world.count(StateName::Queued).await, 10);
    assert!(!accepting.is_finished() && world.script.sent().is_empty());
    (world, subscription, accepting)
}

#[tokio::test(start_paused = true)]
async fn delivery_cancelled_with_its_subscription_before_it_reaches_the_lanes_is_cancelled_once() {
    let (world, subscription, accepting) = ten_on_their_way().await;
    world.engine.delete_subscription(&tenant(), subscription.id).await.unwrap();
    world.pass(ms(1_000)).await;
    assert_eq!(world.count(StateName::Cancelled).await, 10);
    assert_eq!(accepting.await.unwrap().len(), 10);
    world.pass(HOUR).await;
    let ledger = world.engine.ledger(Some(&tenant())).await.unwrap();
    assert_eq!((ledger.accepted, ledger.cancelled), (10, 10), "{ledger:?}");
    // The store refuses to cancel a cancelled delivery; the commit would be repeated for ever.
    assert_eq!(world.engine.gauges().await.unwrap().unpersisted, 0);
    assert!(world.script.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn delivery_cancelled_before_it_reaches_the_lanes_is_not_sent() {
    let (world, _subscription, accepting) = ten_on_their_way().await;
    let all = world.deliveries().await;
    let (cancelled, kept) = all.split_at(4);
    for delivery in cancelled {
        world.engine.cancel(&tenant(), delivery.id).await.unwrap();
    }
    // A refused change leaves it on its way.
    let refused = world.engine.replay(&tenant(), kept[0].id).await;
    assert!(matches!(refused, Err(CommandError::WrongState(_))), "{refused:?}");
    assert_eq!(accepting.await.unwrap().len(), 10);
    world.pass(HOUR).await;
    let ledger = world.engine.ledger(Some(&tenant())).await.unwrap();
    assert_eq!((ledger.cancelled, ledger.delivered, ledger.accepted), (4, 6, 10), "{ledger:?}");
    assert_eq!(world.script.sent().len(), 6);
}
