//! Several tenants: turns, shares of the in-flight capacity, test sends, and what a due delivery
//! waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_domain::delivery::{DeliveryState, StateName};
use postrider_domain::explain::{Standing, Wait};
use postrider_domain::ids::TenantId;
use postrider_domain::payload::Format;
use postrider_domain::policy::Policy;
use postrider_domain::subscription::RateLimit;
use postrider_domain::workfront::{Version, WorkfrontOptions};
use postrider_engine::{
    CommandError, Entropy, IngestError, NewEvent, Options, Parts, Quota, Quotas, SeededEntropy,
};
use postrider_store::Change;

use crate::world::{MINUTE, Mood, OK, World, event, ms, never_disabled, start, tenant};

const URL: &str = "https://hooks.example.com/in";
const OTHER: &str = "https://other.example.com/in";

fn other() -> TenantId {
    "other".parse().unwrap()
}

/// Limits without a reserve for either lane, so that the tenants' shares are visible.
fn options(in_flight_max: usize) -> Options {
    let (first_lane_reserved, retry_lane_reserved) = (0, 0);
    Options { in_flight_max, first_lane_reserved, retry_lane_reserved, ..Options::default() }
}

/// A world in which one tenant has `destinations` destinations, and another tenant has one.
async fn crowded(options: Options, destinations: usize, mood: &Mood) -> World {
    let mut world = World::with(never_disabled(), options).await;
    for n in 0..destinations {
        let url = format!("https://flood.example.com/{n}");
        world.subscribe(&url).await;
        world.script.set(&url, mood.clone());
    }
    let record = world.wish_of(&other(), OTHER);
    world.put(record).await;
    world
}

/// An event of about this many bytes.
fn large(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes))
}

#[tokio::test(start_paused = true)]
async fn tenant_with_many_destinations_gets_no_more_turns_than_one_with_a_single_one() {
    let quick = Mood::Answers(200, ms(10));
    let world = crowded(options(4), 100, &quick).await;
    world.script.set(OTHER, quick);
    world.send_many(20).await;
    world.engine.ingest(&other(), vec![event("1"); 20]).await.unwrap();
    world.pass(ms(200)).await;
    assert_eq!(world.script.sent_to(OTHER).len(), 20, "every second turn is its own");
    world.pass(MINUTE).await;
    assert_eq!(world.count(StateName::Delivered).await, 2_000);
}

#[tokio::test(start_paused = true)]
async fn tenant_never_has_all_places_and_others_find_some_free() {
    let world = crowded(options(80), 200, &Mood::Hangs).await;
    world.send_many(2).await;
    assert_eq!(world.script.in_flight(), 70, "seven eighths, alone");
    for _ in 0..20 {
        let now = world.now();
        world.engine.ingest(&other(), vec![event("1"); 4]).await.unwrap();
        world.run_ready_tasks().await;
        assert!(world.script.sent_to(OTHER).iter().rev().take(4).all(|one| one.at == now));
        world.pass(ms(700)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_in_flight_are_bounded_and_a_tenant_at_its_share_delays_only_itself() {
    let (destination_in_flight_start, in_flight_bytes_max) = (64, 1024 * 1024);
    let options = Options { destination_in_flight_start, in_flight_bytes_max, ..options(4096) };
    let world = crowded(options, 1, &Mood::Hangs).await;
    for _ in 0..20 {
        world.engine.ingest(&tenant(), vec![event(&large(100_000))]).await.unwrap();
    }
    world.run_ready_tasks().await;
    assert_eq!(world.script.in_flight(), 10, "an event counts once where its bytes are the body");
    assert!(world.engine.gauges().await.unwrap().in_flight_bytes <= 1024 * 1024);
    let now = world.now();
    world.engine.ingest(&other(), vec![event("1")]).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent_to(OTHER)[0].at, now);
    world.script.set("https://flood.example.com/0", OK);
    world.pass(MINUTE * 60 * 49).await;
    assert_eq!(world.count(StateName::Delivered).await, 20);
    assert_eq!(world.engine.gauges().await.unwrap().in_flight_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn deliveries_of_one_event_share_its_body_also_when_they_are_retried() {
    let in_flight_bytes_max = 1024 * 1024;
    let options = Options { in_flight_bytes_max, payload_bytes_max: 300_000, ..options(4096) };
    let world = crowded(options, 40, &Mood::Hangs).await;
    world.engine.ingest(&tenant(), vec![event(&large(200_000))]).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.script.in_flight(), 40, "one event counts once");
    world.pass(ms(84_900)).await;
    let sent = world.script.sent();
    assert_eq!(sent.len(), 80, "and so it does when it is read for the retries");
    for round in [&sent[..40], &sent[40..]] {
        let first = round[0].body.as_ptr();
        assert!(round.iter().all(|one| one.body.as_ptr() == first), "the same memory");
    }
}

/// The formats of a body, each with the bytes that are kept for it of an event without an old state.
fn formats(bytes: usize) -> Vec<(Format, Option<WorkfrontOptions>, usize)> {
    let (around, in_base64) = (40, bytes / 3 * 4 + 12);
    let states = Version::ALL.into_iter().flat_map(|version| {
        [(false, bytes + around), (true, in_base64 + around)].map(|(base64, kept)| {
            let options = WorkfrontOptions { version, base64, ..WorkfrontOptions::default() };
            (Format::Workfront, Some(options), kept)
        })
    });
    let others = [(Format::Standard, bytes), (Format::CloudEvents, bytes), (Format::Raw, 0)];
    others.map(|(format, kept)| (format, None, kept)).into_iter().chain(states).collect()
}

#[tokio::test(start_paused = true)]
async fn each_form_of_an_event_counts_once_however_many_attempts_share_it() {
    let data = large(100_000);
    let mut world = World::with(never_disabled(), options(4096)).await;
    let (mut expected, mut urls) = (data.len(), Vec::new());
    for (n, (format, workfront, kept)) in formats(data.len()).into_iter().enumerate() {
        expected += kept;
        for m in 0..3 {
            let url = format!("https://flood.example.com/{n}/{m}");
            let mut record = world.wish(&url);
            record.subscription.format = format;
            record.subscription.workfront = workfront.clone().map(Box::new);
            world.put(record).await;
            world.script.set(&url, Mood::Hangs);
            urls.push(url);
        }
    }
    world.engine.ingest(&tenant(), vec![event(&data)]).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.script.in_flight(), 21);
    assert_eq!(world.engine.gauges().await.unwrap().in_flight_bytes, expected);
    urls.iter().for_each(|url| world.script.set(url, OK));
    world.pass(MINUTE * 60 * 49).await;
    assert_eq!(world.count(StateName::Delivered).await, 21);
    assert_eq!(world.engine.gauges().await.unwrap().in_flight_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn events_in_many_formats_take_as_many_bytes_in_flight_as_they_need() {
    let in_flight_bytes_max = 1024 * 1024;
    let mut world =
        World::with(never_disabled(), Options { in_flight_bytes_max, ..options(4096) }).await;
    for (n, (format, workfront, _)) in formats(0).into_iter().enumerate() {
        let url = format!("https://flood.example.com/{n}");
        let mut record = world.wish(&url);
        record.subscription.format = format;
        record.subscription.workfront = workfront.map(Box::new);
        world.put(record).await;
        world.script.set(&url, Mood::Hangs);
    }
    for _ in 0..10 {
        world.engine.ingest(&tenant(), vec![event(&large(100_000))]).await.unwrap();
    }
    world.run_ready_tasks().await;
    let in_flight_bytes = world.engine.gauges().await.unwrap().in_flight_bytes;
    assert!((700_000..=in_flight_bytes_max).contains(&in_flight_bytes), "{in_flight_bytes}");
    let together = world.script.in_flight();
    assert!((7..14).contains(&together), "one event in all its forms, and not two: {together}");
}

#[tokio::test(start_paused = true)]
async fn event_larger_than_the_whole_budget_is_sent_alone() {
    let world = crowded(Options { in_flight_bytes_max: 1000, ..options(4096) }, 1, &OK).await;
    for _ in 0..3 {
        world.engine.ingest(&tenant(), vec![event(&large(100_000))]).await.unwrap();
    }
    world.run_ready_tasks().await;
    assert_eq!(world.count(StateName::Delivered).await, 3);
}

#[tokio::test(start_paused = true)]
async fn test_send_takes_a_place_of_its_destination_and_is_refused_where_none_is_free() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    let subscription = world.subscribe(URL).await;
    world.script.set(URL, Mood::Hangs);
    let mut tests = Vec::new();
    for _ in 0..8 {
        let (engine, id) = (world.engine.clone(), subscription.id);
        tests.push(tokio::spawn(async move { engine.test_send(&tenant(), id, event("1")).await }));
    }
    world.run_ready_tasks().await;
    assert_eq!(world.engine.gauges().await.unwrap().in_flight_first, 8);
    let refused = world.engine.test_send(&tenant(), subscription.id, event("1")).await;
    assert!(matches!(&refused, Err(CommandError::Full { is_own: true, .. })), "{refused:?}");
    world.send().await;
    assert_eq!(world.script.in_flight_at(URL), 8, "deliveries wait for the same places");
    world.pass(ms(5_100)).await;
    for test in tests {
        assert!(test.await.unwrap().is_ok());
    }
    assert_eq!(world.script.in_flight_at(URL), 1, "the delivery has its turn");
    world.pass(ms(5_100)).await;
    assert_eq!(world.engine.gauges().await.unwrap().in_flight_first, 0);
}

#[tokio::test(start_paused = true)]
async fn frozen_destination_is_not_attempted_by_a_test_send() {
    let mut world = World::new().await;
    let subscription = world.subscribe(URL).await;
    let why = Some("moved away".to_owned());
    world.engine.freeze(&tenant(), subscription.destination, why).await.unwrap();
    let refused = world.engine.test_send(&tenant(), subscription.id, event("1")).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, CommandError::Frozen { .. }), "{error:?}");
    assert!(error.to_string().contains("moved away"), "{error}");
    assert_eq!(world.script.sent().len(), 0);
}

/// Counts how often random bytes are requested: once for each created delivery.
struct CountedEntropy(SeededEntropy, AtomicUsize);

impl Entropy for CountedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.fill(bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn event_that_a_quota_refuses_makes_no_deliveries() {
    let entropy = Arc::new(CountedEntropy(SeededEntropy::new(1), AtomicUsize::new(0)));
    let quotas = Quotas { tenant_queued: 4, ..Quotas::default() };
    let options = Options { quotas, ..Options::default() };
    let drawn_from = Arc::clone(&entropy) as Arc<dyn Entropy>;
    let alter = |parts| Parts { entropy: drawn_from, ..parts };
    let mut world = World::altered(options, alter).await;
    for n in 0..3 {
        let url = format!("https://hooks.example.com/{n}");
        world.script.set(&url, Mood::Hangs);
        world.subscribe(&url).await;
    }
    let named = |id: &str| NewEvent { id: Some(id.parse().unwrap()), ..event("1") };
    entropy.1.store(0, Ordering::Relaxed);
    world.engine.ingest(&tenant(), vec![named("first")]).await.unwrap();
    assert_eq!(entropy.1.swap(0, Ordering::Relaxed), 3, "one identifier for each delivery");
    let refused = world.engine.ingest(&tenant(), vec![named("second")]).await;
    assert!(matches!(&refused, Err(IngestError::Quota(_))), "{refused:?}");
    assert_eq!(entropy.1.load(Ordering::Relaxed), 0, "nothing is made of what is refused");
}

/// What the newest queued delivery of the first tenant waits for.
async fn standing(world: &World) -> Standing {
    let queued = |state| matches!(state, DeliveryState::Queued);
    let mut waiting = Vec::new();
    for delivery in world.deliveries().await.into_iter().filter(|one| queued(one.state)) {
        let found = world.engine.standing(&delivery).await.unwrap();
        waiting.extend(found.map(|found| (delivery.id, found)));
    }
    waiting.into_iter().max_by_key(|(_, found)| found.ahead).unwrap().1
}

#[tokio::test(start_paused = true)]
async fn queued_delivery_names_the_limit_of_its_destination_and_its_place() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Hangs);
    world.send_many(11).await;
    let waits = vec![Wait::DestinationLimit { in_flight: 8, limit: 8 }];
    assert_eq!(standing(&world).await, Standing { ahead: 2, is_stored: false, waits });
}

#[tokio::test(start_paused = true)]
async fn queued_delivery_names_the_rate_and_when_the_next_is_sent() {
    let mut world = World::with(Policy::default(), Options::default()).await;
    let mut record = world.wish(URL);
    record.subscription.rate_limit = Some(RateLimit::per_second(0.5).unwrap());
    world.put(record).await;
    world.send_many(3).await;
    let waits =
        vec![Wait::Rate { per_1000_seconds: 500, next_at: world.now().saturating_add(ms(2_000)) }];
    assert_eq!(standing(&world).await, Standing { ahead: 1, is_stored: false, waits });
}

#[tokio::test(start_paused = true)]
async fn queued_delivery_names_the_limits_of_its_tenant_and_of_the_whole() {
    let limited = Options { tenant_in_flight_max: Some(5), ..options(4096) };
    let world = crowded(limited, 10, &Mood::Hangs).await;
    world.send().await;
    let waits = vec![Wait::TenantLimit { in_flight: 5, limit: 5 }];
    assert_eq!(standing(&world).await, Standing { ahead: 0, is_stored: false, waits });

    let world = crowded(options(4), 10, &Mood::Hangs).await;
    world.send().await;
    let waits = vec![Wait::TotalLimit { in_flight: 4, limit: 4 }];
    assert_eq!(standing(&world).await, Standing { ahead: 0, is_stored: false, waits });

    let limited = Options { tenant_in_flight_bytes_max: Some(250_000), ..options(4096) };
    let world = crowded(limited, 1, &Mood::Hangs).await;
    for _ in 0..4 {
        world.engine.ingest(&tenant(), vec![event(&large(100_000))]).await.unwrap();
    }
    world.run_ready_tasks().await;
    let waits = vec![Wait::TenantBytes { bytes: 200_004, limit: 250_000 }];
    assert_eq!(standing(&world).await, Standing { ahead: 1, is_stored: false, waits });
}

#[tokio::test(start_paused = true)]
async fn quotas_are_checked_again_when_another_node_has_changed_the_fan_out() {
    let quotas = Quotas { tenant_queued: 4, ..Quotas::default() };
    let mut world = World::with(never_disabled(), Options { quotas, ..options(4096) }).await;
    world.subscribe(URL).await;
    // Another node on the same store, which has four subscriptions more.
    let elsewhere = start(
        Arc::new(world.store.clone()),
        &world.clock,
        &world.script,
        &world.policy,
        &world.options,
        9,
    )
    .await;
    let two = || vec![event("1"), event("2")];
    for n in 0..4 {
        let record = world.wish(&format!("https://hooks.example.com/{n}"));
        let id = record.subscription.id;
        elsewhere.put_subscription(record).await.unwrap();
        world.store.announce(Change::Subscription(tenant(), id));
        let taken = world.engine.ingest(&tenant(), two()).await;
        if n == 0 {
            // Two events for two subscriptions: as many as there may be, each counted once.
            assert_eq!(taken.unwrap().iter().map(|one| one.deliveries).sum::<u32>(), 4);
        } else {
            let Err(IngestError::Quota(reached)) = taken else { panic!("{taken:?}") };
            assert_eq!(reached.quota, Quota::TenantQueued);
        }
        world.pass(MINUTE).await;
    }
    assert_eq!(world.count(StateName::Delivered).await, 4, "what was refused was not stored");
}
