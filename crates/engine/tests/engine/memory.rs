//! Memory does not grow with the backlog: however many deliveries are due at once, the earliest are
//! in memory first, and none is late because of it.

use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{Policy, RecoveryMode, RecoveryPolicy};
use postrider_domain::time::Timestamp;
use postrider_engine::Options;

use crate::world::{
    FAIL, HOUR, MINUTE, Mood, OFFSETS_MS, OK, START, World, event, ms, never_disabled, tenant,
};

const URL: &str = "https://hooks.example.com/in";

fn small() -> Options {
    Options {
        resident_max: 40,
        lane_resident_max: 10,
        page: 7,
        due_window: Duration::from_secs(300),
        ..Options::default()
    }
}

fn url(n: usize) -> String {
    format!("https://hooks{n}.example.com/in")
}

/// A world with `n` destinations, each with its own type of events.
async fn with_destinations(n: usize, options: Options) -> World {
    let mut world = World::with(never_disabled(), options).await;
    for n in 0..n {
        let mut record = world.wish(&url(n));
        record.subscription.types = serde_json::from_str(&format!("[\"task.n{n}\"]")).unwrap();
        world.put(record).await;
    }
    world
}

async fn send(world: &World, to: usize, count: usize) {
    let mut one = event("1");
    one.kind = format!("task.n{to}").parse().unwrap();
    world.engine.ingest(&tenant(), vec![one; count]).await.unwrap();
    world.run_ready_tasks().await;
}

/// Checks that there are no more deliveries in memory than the limit, one for each lane, and those
/// in flight.
async fn check_memory(world: &World, options: &Options, destinations: usize) {
    let gauges = world.engine.gauges().await.unwrap();
    let in_flight = gauges.in_flight_first + gauges.in_flight_retry;
    let most = options.resident_max + 2 * destinations + options.page + in_flight;
    assert!(gauges.resident <= most, "{gauges:?}");
    assert!(gauges.due <= options.resident_max / 2, "{gauges:?}");
}

fn sent_since(world: &World, since: Timestamp) -> Vec<Timestamp> {
    world.script.sent().iter().map(|one| one.at).filter(|at| *at > since).collect()
}

#[tokio::test(start_paused = true)]
async fn ten_times_more_retries_than_fit_into_memory_are_all_sent_on_the_millisecond() {
    let options = small();
    let world = with_destinations(4, options.clone()).await;
    for n in 0..4 {
        world.script.set(&url(n), FAIL);
        send(&world, n, 100).await;
        check_memory(&world, &options, 4).await;
    }
    assert_eq!(sent_since(&world, Timestamp::EPOCH), vec![START; 400]);
    for slot in &OFFSETS_MS[..4] {
        let due = START.saturating_add(ms(*slot));
        world.pass_until(due).await;
        check_memory(&world, &options, 4).await;
        let before = Timestamp::from_unix_ms(due.as_unix_ms() - 1);
        assert_eq!(sent_since(&world, before), vec![due; 400], "slot at {slot} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_due_sooner_evicts_one_due_later() {
    let options = small();
    let world = with_destinations(2, options.clone()).await;
    world.script.set(&url(0), FAIL);
    world.script.set(&url(1), FAIL);
    send(&world, 0, 60).await;
    world.pass_until(START.saturating_add(ms(OFFSETS_MS[0]))).await;
    // Their second retries are due at 254 s; as many as fit are in memory already.
    world.pass_until(START.saturating_add(Duration::from_secs(150))).await;
    let later = world.now();
    send(&world, 1, 60).await;
    check_memory(&world, &options, 2).await;
    world.pass_until(later.saturating_add(ms(OFFSETS_MS[0]))).await;
    let sent: Vec<_> = world.script.sent_to(&url(1)).iter().map(|one| one.at).collect();
    assert_eq!(sent[60..], vec![later.saturating_add(ms(OFFSETS_MS[0])); 60]);
    let due = START.saturating_add(ms(OFFSETS_MS[1]));
    world.pass_until(due).await;
    let sent: Vec<_> = world.script.sent_to(&url(0)).iter().map(|one| one.at).collect();
    assert_eq!(sent[120..], vec![due; 60], "and those that gave way are on time as well");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_comes_back_with_many_is_on_time_beside_much_that_is_due_later() {
    let options = small();
    let world = with_destinations(2, options.clone()).await;
    send(&world, 1, 1).await;
    world.script.set(&url(0), FAIL);
    world.script.set(&url(1), FAIL);
    send(&world, 0, 15).await;
    // Their fourth retries are due in two minutes, and take more than half of the memory.
    world.pass_until(START.saturating_add(ms(OFFSETS_MS[3]) - 2 * MINUTE)).await;
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!(gauges.destinations, 1, "the other one is at rest");
    assert!(gauges.due > options.resident_max / 4, "{gauges:?}");
    // More deliveries arrive for the other destination than fit into memory: the rest is read from
    // the store.
    let begun = world.now();
    send(&world, 1, 100).await;
    check_memory(&world, &options, 2).await;
    let due = begun.saturating_add(ms(OFFSETS_MS[0]));
    world.pass_until(due).await;
    let sent: Vec<_> = world.script.sent_to(&url(1)).iter().map(|one| one.at).collect();
    assert_eq!(sent[1..], [vec![begun; 100], vec![due; 100]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_mass_of_failures_does_not_stay_in_memory() {
    let options = Options { resident_max: 1_000, ..Options::default() };
    let world = with_destinations(1, options.clone()).await;
    world.script.set(&url(0), FAIL);
    for _ in 0..10 {
        send(&world, 0, 1_000).await;
        world.pass(ms(1_000)).await;
    }
    assert_eq!(world.count(StateName::Waiting).await, 10_000);
    let gauges = world.engine.gauges().await.unwrap();
    assert!(gauges.resident <= 1_000, "{gauges:?}");
    world.script.set(&url(0), OK);
    world.pass(2 * MINUTE).await;
    assert_eq!(world.count(StateName::Delivered).await, 10_000);
}

#[tokio::test(start_paused = true)]
async fn due_deliveries_are_found_behind_older_ones_that_are_not_due() {
    let options = small();
    let mut world = World::with(never_disabled(), options.clone()).await;
    world.subscribe(URL).await;
    // A hundred old deliveries whose receiver asks for a pause of an hour …
    world.script.set(URL, Mood::Later(503, HOUR));
    world.send_many(100).await;
    world.pass(MINUTE).await;
    // … and then many more that are due together, more than the lane holds.
    world.script.set(URL, FAIL);
    let begun = world.now();
    world.send_many(100).await;
    world.script.set(URL, Mood::Answers(200, ms(10)));
    world.script.forget();
    world.pass_until(begun.saturating_add(ms(OFFSETS_MS[0]))).await;
    world.pass(ms(1_000)).await;
    assert_eq!(world.script.sent_to(URL).len(), 100, "the lane is read back by what is due");
    assert_eq!(world.count(StateName::Delivered).await, 100);
    check_memory(&world, &options, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_that_does_not_fit_into_its_lane_is_not_forgotten() {
    let options = Options { lane_resident_max: 1, resident_max: 4, page: 3, ..Options::default() };
    let mut world = World::with(never_disabled(), options).await;
    world.subscribe(URL).await;
    let sent = world.send_many(30).await;
    world.pass(ms(10)).await;
    assert_eq!(world.count(StateName::Delivered).await, 30);
    world.script.forget();
    world.script.set(URL, Mood::Answers(200, ms(50)));
    let ids: Vec<_> = world.deliveries().await.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), sent.len());
    let engine = world.engine.clone();
    let replays = ids.into_iter().map(|id| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.replay(&tenant(), id).await })
    });
    for replay in replays.collect::<Vec<_>>() {
        replay.await.unwrap().unwrap();
    }
    world.pass(MINUTE).await;
    assert_eq!(world.script.sent().len(), 30);
    assert_eq!(world.count(StateName::Delivered).await, 30);
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_finds_no_room_does_not_read_the_store_over_and_over() {
    // Other destinations fill the memory; a lane with a rate limit may have two there.
    let options = Options { resident_max: 20, page: 5, ..Options::default() };
    let world = with_destinations(12, options).await;
    for n in 0..12 {
        world.script.set(&url(n), FAIL);
        send(&world, n, 30).await;
    }
    for n in 0..12 {
        world.script.set(&url(n), Mood::Hangs);
    }
    world.pass_until(START.saturating_add(ms(OFFSETS_MS[0]))).await;
    let before = world.store.operations().reads;
    world.pass(MINUTE).await;
    let reads = world.store.operations().reads - before;
    let sent = world.script.sent().len();
    assert!(reads < 2_000, "{reads} reads in a minute in which at most {sent} were sent");
}

#[tokio::test(start_paused = true)]
async fn deliveries_that_a_drain_reads_ahead_count_as_memory() {
    let recovery = RecoveryPolicy { mode: RecoveryMode::Drain, ..RecoveryPolicy::default() };
    let options = Options { page: 100, ..small() };
    let policy = Policy { recovery, ..Policy::default() };
    let mut world = World::with(policy, options.clone()).await;
    for n in 0..3 {
        let url = url(n);
        world.subscribe(&url).await;
        world.engine.freeze(&tenant(), DestinationId::of(&tenant(), &url), None).await.unwrap();
        world.script.set(&url, Mood::Answers(200, ms(300)));
    }
    world.send_many(200).await;
    for n in 0..3 {
        let id = DestinationId::of(&tenant(), &url(n));
        world.engine.enable(&tenant(), id, None).await.unwrap();
    }
    for _ in 0..60 {
        let gauges = world.engine.gauges().await.unwrap();
        let in_flight = gauges.in_flight_first + gauges.in_flight_retry;
        // One step of each ramp is read in any case.
        let most = options.resident_max + 3 * 64 + in_flight;
        assert!(gauges.resident <= most, "{gauges:?}");
        world.pass(ms(500)).await;
    }
    assert_eq!(world.count(StateName::Delivered).await, 600, "long before the slots");
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!(gauges.resident, 0);
}
