//! The contract on fairness.

use std::time::Duration;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::TenantId;
use postrider_domain::policy::Policy;
use postrider_domain::subscription::RateLimit;
use postrider_engine::{IngestError, IngestRate, Options};

use crate::world::{FAIL, MINUTE, Mood, OK, World, event, ms, never_disabled, tenant};

const URL: &str = "https://hooks.example.com/in";
const OTHER: &str = "https://other.example.com/in";

/// Creates a subscription to one type of events.
async fn subscribe_to(world: &mut World, url: &str, kind: &str) {
    let mut record = world.wish(url);
    record.subscription.types = serde_json::from_str(&format!("[\"{kind}\"]")).unwrap();
    world.put(record).await;
}

async fn send(world: &World, kind: &str, n: usize) {
    let mut left = n;
    while left > 0 {
        let batch = left.min(1000);
        left -= batch;
        let mut one = event("1");
        one.kind = kind.parse().unwrap();
        world.engine.ingest(&tenant(), vec![one; batch]).await.unwrap();
    }
    world.run_ready_tasks().await;
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_hangs_holds_its_own_slots_only() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    subscribe_to(&mut world, URL, "task.slow").await;
    subscribe_to(&mut world, OTHER, "task.quick").await;
    world.script.set(URL, Mood::Hangs);
    send(&world, "task.slow", 3000).await;
    assert_eq!(world.script.in_flight_at(URL), 8, "what a destination gets that is not known");
    for _ in 0..20 {
        let now = world.now();
        send(&world, "task.quick", 10).await;
        let sent = world.script.sent_to(OTHER);
        assert!(sent.iter().rev().take(10).all(|one| one.at == now), "not held up at all");
        world.pass(ms(1_000)).await;
        assert!(world.script.in_flight_at(URL) <= 8);
    }
    assert_eq!(world.script.in_flight_at(URL), 1, "and after some timeouts it gets one at a time");
}

#[tokio::test(start_paused = true)]
async fn the_in_flight_limit_adapts_up_to_64_while_answers_are_quick() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Answers(200, ms(10)));
    world.send_many(20_000).await;
    assert_eq!(world.script.in_flight_at(URL), 8);
    world.pass(ms(20_000)).await;
    let most = world.script.sent().iter().map(|one| one.together).max();
    assert_eq!(most, Some(64));
    assert_eq!(world.count(StateName::Delivered).await, 20_000);
}

#[tokio::test(start_paused = true)]
async fn a_destination_with_a_million_waiting_gets_no_more_turns_than_one_with_one() {
    let options = Options { in_flight_max: 4, retry_lane_reserved: 0, ..Options::default() };
    let mut world = World::with(never_disabled(), options).await;
    subscribe_to(&mut world, URL, "task.many").await;
    for url in [URL, OTHER] {
        world.script.set(url, Mood::Answers(200, ms(10)));
    }
    send(&world, "task.many", 10_000).await;
    for n in 0..20 {
        let url = format!("https://single.example.com/{n}");
        subscribe_to(&mut world, &url, &format!("task.single{n}")).await;
        world.script.set(&url, Mood::Answers(200, ms(10)));
    }
    world.pass(ms(5)).await;
    let before = world.script.sent_to(URL).len();
    for n in 0..20 {
        send(&world, &format!("task.single{n}"), 1).await;
    }
    world.pass(ms(70)).await;
    let sent = world.script.sent();
    let singles = sent.iter().filter(|one| one.url.contains("single")).count();
    assert_eq!(singles, 20, "each had its turn");
    let last = sent.iter().rposition(|one| one.url.contains("single")).unwrap();
    let many = sent[..last].iter().filter(|one| one.url == URL).count() - before;
    assert!(many <= 6, "while the one with thousands had {many}");
}

#[tokio::test(start_paused = true)]
async fn retries_can_never_take_the_first_lanes_share() {
    let options = Options {
        in_flight_max: 40,
        first_lane_reserved: 10,
        retry_lane_reserved: 2,
        ..Options::default()
    };
    let mut world = World::with(never_disabled(), options).await;
    for n in 0..100 {
        let url = format!("https://failing.example.com/{n}");
        subscribe_to(&mut world, &url, "task.failing").await;
        world.script.set(&url, FAIL);
    }
    subscribe_to(&mut world, OTHER, "task.quick").await;
    send(&world, "task.failing", 5).await;
    world.pass(ms(100)).await;
    for n in 0..100 {
        world.script.set(&format!("https://failing.example.com/{n}"), Mood::Hangs);
    }
    // Five hundred retries are due and hang.
    world.pass(ms(84_800)).await;
    for _ in 0..50 {
        assert!(world.script.in_flight() <= 30, "{} retries", world.script.in_flight());
        let now = world.now();
        send(&world, "task.quick", 8).await;
        let sent = world.script.sent_to(OTHER);
        assert!(sent.iter().rev().take(8).all(|one| one.at == now));
        world.pass(ms(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn neither_lane_of_a_destination_starves_the_other() {
    let options = Options { destination_in_flight_max: 1, ..Options::default() };
    let mut world = World::with(never_disabled(), options).await;
    world.subscribe(URL).await;
    world.fail(URL, 50).await;
    world.script.set(URL, Mood::Answers(200, ms(100)));
    world.script.forget();
    world.pass(ms(84_000)).await;
    // More new deliveries than it can take, while its retries are due.
    for _ in 0..20 {
        world.send_many(20).await;
        world.pass(ms(1_000)).await;
    }
    let mut retries = 0;
    for sent in world.script.sent() {
        retries += usize::from(world.attempts(sent.delivery).await.len() > 1);
    }
    let first = world.script.sent().len() - retries;
    assert!(retries >= 15, "{retries} retries");
    assert!(first >= 120, "{first} first attempts");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_is_kept_over_both_lanes() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    let mut record = world.wish(URL);
    record.subscription.rate_limit = Some(RateLimit::per_second(5.0).unwrap());
    world.put(record.clone()).await;
    world.send_many(60).await;
    world.pass(ms(9_999)).await;
    let times: Vec<_> = world.script.sent().iter().map(|one| one.at).collect();
    assert_eq!(times.len(), 50);
    for pair in times.windows(2) {
        assert_eq!(pair[1].since(pair[0]), ms(200));
    }
    // The strictest rate limit of a destination's subscriptions applies, and a change applies at
    // once.
    record.subscription.rate_limit = None;
    world.put(record).await;
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_floods_is_held_to_its_own_rate() {
    let rate = IngestRate { per_second: 10, burst: 20 };
    let options = Options { tenant_ingest: Some(rate), ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    world.subscribe(URL).await;
    let other: TenantId = "other".parse().unwrap();
    world.engine.ingest(&tenant(), vec![event("1"); 20]).await.unwrap();
    let refused = world.engine.ingest(&tenant(), vec![event("1")]).await;
    let Err(IngestError::TooFast { retry_after }) = refused else { panic!("{refused:?}") };
    assert_eq!(retry_after, ms(100));
    assert!(world.engine.ingest(&other, vec![event("1"); 20]).await.is_ok());
    world.pass(retry_after).await;
    assert!(world.engine.ingest(&tenant(), vec![event("1")]).await.is_ok());
    world.run_ready_tasks().await;
    assert_eq!(world.count(StateName::Delivered).await, 21);
}

#[tokio::test(start_paused = true)]
async fn a_tenants_share_of_what_is_in_flight_leaves_the_rest_to_others() {
    let (tenant_in_flight_max, retry_lane_reserved) = (Some(30), 0);
    let options = Options {
        in_flight_max: 60,
        tenant_in_flight_max,
        retry_lane_reserved,
        ..Options::default()
    };
    let mut world = World::with(never_disabled(), options).await;
    for n in 0..50 {
        let url = format!("https://flood.example.com/{n}");
        world.subscribe(&url).await;
        world.script.set(&url, Mood::Hangs);
    }
    let other: TenantId = "other".parse().unwrap();
    let record = world.wish_of(&other, OTHER);
    world.put(record).await;
    world.send_many(20).await;
    assert_eq!(world.script.in_flight(), 30);
    for _ in 0..10 {
        let now = world.now();
        world.engine.ingest(&other, vec![event("1"); 4]).await.unwrap();
        world.run_ready_tasks().await;
        assert!(world.script.sent_to(OTHER).iter().rev().take(4).all(|one| one.at == now));
        world.pass(ms(700)).await;
    }
    world.script.set(URL, OK);
    world.pass(MINUTE * 10).await;
    world.check_ledger().await;
}

/// The 99th percentile of the time from acceptance to success at a healthy destination.
async fn healthy_p99(hanging: usize) -> Duration {
    let mut world = World::with(never_disabled(), Options::default()).await;
    for n in 0..hanging {
        let url = format!("https://hanging.example.com/{n}");
        subscribe_to(&mut world, &url, "task.hanging").await;
        world.script.set(&url, Mood::Hangs);
    }
    for n in 0..10 {
        let url = format!("https://healthy.example.com/{n}");
        subscribe_to(&mut world, &url, "task.healthy").await;
        world.script.set(&url, Mood::Answers(200, ms(3)));
    }
    for _ in 0..60 {
        if hanging > 0 {
            send(&world, "task.hanging", 1).await;
        }
        send(&world, "task.healthy", 5).await;
        world.pass(ms(100)).await;
    }
    world.pass(ms(10_000)).await;
    let mut waits = Vec::new();
    for delivery in world.deliveries().await {
        if delivery.kind.as_str() == "task.healthy" {
            waits.push(delivery.finished_at().unwrap().since(delivery.created_at));
        }
    }
    assert_eq!(waits.len(), 3000);
    waits.sort_unstable();
    waits[waits.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn healthy_destinations_are_as_quick_beside_a_thousand_that_hang() {
    let (quiet, beside) = (healthy_p99(0).await, healthy_p99(1000).await);
    println!("healthy p99 in virtual time: quiet {quiet:?}, beside 1,000 that hang {beside:?}");
    assert!(beside * 10 <= quiet * 11, "quiet {quiet:?}, beside 1,000 that hang {beside:?}");
}
