//! Subscriptions with a policy of their own: schedule, deadline, recovery and what becomes of the dead,
//! alone and beside others that share their URL.

use std::time::Duration;

use postrider_domain::attempt::{Ending, FailureClass};
use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{
    DeadRecovery, Policy, PolicySource, RecoveryMode, SubscriptionPolicy,
};
use postrider_domain::subscription::{RateLimit, Subscription};
use postrider_engine::Options;
use postrider_store::{PageRequest, Replays, SubscriptionRecord};

use crate::world::{
    FAIL, HOUR, MINUTE, Mood, OFFSETS_MS, OK, TEN_MINUTES, World, ms, never_disabled, slot, tenant,
};

const URL: &str = "https://hooks.example.com/in";
const OTHER: &str = "https://other.example.com/in";

fn schedule(unit: Duration, max: u32) -> SubscriptionPolicy {
    SubscriptionPolicy {
        retry_unit: Some(unit),
        retry_max: Some(max),
        ..SubscriptionPolicy::default()
    }
}

fn wish(world: &mut World, url: &str, policy: SubscriptionPolicy) -> SubscriptionRecord {
    let mut record = world.wish(url);
    record.subscription.policy = policy;
    record
}

async fn subscribe(world: &mut World, url: &str, policy: SubscriptionPolicy) -> Subscription {
    let record = wish(world, url, policy);
    world.put(record).await
}

#[tokio::test(start_paused = true)]
async fn a_subscription_follows_its_own_schedule_and_others_the_servers() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    subscribe(&mut world, URL, schedule(ms(10_000), 3)).await;
    world.subscribe(OTHER).await;
    world.script.set(URL, FAIL);
    world.script.set(OTHER, FAIL);
    world.send().await;
    world.pass(HOUR * 49).await;
    assert_eq!(world.offsets(URL), [0, 10_000, 30_000, 70_000]);
    let others: Vec<u64> = [0].into_iter().chain(OFFSETS_MS).collect();
    assert_eq!(world.offsets(OTHER), others);
    assert_eq!(world.count(StateName::Dead).await, 2);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn subscriptions_of_one_url_have_each_their_own_schedule() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    let quick = subscribe(&mut world, URL, schedule(ms(1_000), 2)).await;
    let mut plain = world.wish(URL);
    plain.subscription.format = postrider_domain::payload::Format::Standard;
    let plain = world.put(plain).await;
    world.script.set(URL, FAIL);
    world.send().await;
    world.pass(MINUTE * 2).await;
    for delivery in world.deliveries().await {
        if delivery.subscription == quick.id {
            assert_eq!((delivery.state.name(), delivery.attempts), (StateName::Dead, 3));
        } else {
            assert_eq!(delivery.subscription, plain.id);
            assert_eq!((slot(&delivery), delivery.attempts), (2, 2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_without_retries_dies_of_its_first_failure() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    subscribe(&mut world, URL, schedule(ms(1_000), 0)).await;
    world.script.set(URL, FAIL);
    let sent = world.send().await;
    world.run_ready_tasks().await;
    let delivery = world.delivery(&sent).await;
    assert_eq!((delivery.state.name(), delivery.attempts), (StateName::Dead, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_ends_at_the_subscriptions_own_deadline() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    let patient = SubscriptionPolicy { attempt_deadline: Some(ms(12_000)), ..Default::default() };
    subscribe(&mut world, URL, patient).await;
    world.subscribe(OTHER).await;
    world.script.set(URL, Mood::Hangs);
    world.script.set(OTHER, Mood::Hangs);
    world.send().await;
    world.pass(ms(20_000)).await;
    for delivery in world.deliveries().await {
        let attempt = world.attempts(delivery.id).await.remove(0);
        let Ending::Failed(failure) = &attempt.ending else { panic!("{attempt:?}") };
        assert!(matches!(failure.class, FailureClass::Timeout(_)));
        let is_own = delivery.destination == DestinationId::of(&tenant(), URL);
        assert_eq!(attempt.timings.total, ms(if is_own { 12_000 } else { 5_000 }));
    }
}

/// A delivery that waits keeps the slot that it waits for. What comes after follows the new policy, from
/// the same first attempt: slots that have passed by then are spent, and the count is the new one.
#[tokio::test(start_paused = true)]
async fn a_changed_policy_leaves_the_slot_that_a_delivery_waits_for() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    let mut record = wish(&mut world, URL, SubscriptionPolicy::default());
    world.put(record.clone()).await;
    world.script.set(URL, FAIL);
    let sent = world.send().await;
    world.pass(MINUTE).await;
    record.subscription.policy = schedule(ms(10_000), 5);
    world.put(record.clone()).await;
    world.run_ready_tasks().await;
    assert_eq!(slot(&world.delivery(&sent).await), 1);
    world.pass(HOUR).await;
    // Slot 1 at 84.8 s as it was given. Of the new ones 30 s and 70 s have passed: 150 s and 310 s are
    // left.
    assert_eq!(world.offsets(URL), [0, 84_800, 150_000, 310_000]);
    assert_eq!(world.delivery(&sent).await.state.name(), StateName::Dead);
}

#[tokio::test(start_paused = true)]
async fn a_smaller_count_ends_a_schedule_after_the_slot_that_was_given() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    let mut record = wish(&mut world, URL, SubscriptionPolicy::default());
    world.put(record.clone()).await;
    world.script.set(URL, FAIL);
    let sent = world.send().await;
    world.pass(ms(OFFSETS_MS[3])).await;
    assert_eq!(slot(&world.delivery(&sent).await), 5);
    record.subscription.policy.retry_max = Some(2);
    world.put(record).await;
    world.pass(HOUR).await;
    assert_eq!(world.offsets(URL).last(), Some(&OFFSETS_MS[4]));
    let delivery = world.delivery(&sent).await;
    assert_eq!((delivery.state.name(), delivery.attempts), (StateName::Dead, 6));
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn an_own_schedule_survives_a_restart_and_stricter_limits_cut_it() {
    let mut world = World::with(never_disabled(), Options::default()).await;
    subscribe(&mut world, URL, schedule(ms(10_000), 6)).await;
    world.script.set(URL, FAIL);
    world.send().await;
    world.crash().await;
    world.pass(ms(30_000)).await;
    let mut policy = never_disabled();
    policy.limits.retry_max = 3;
    world.engine.reload_policy(policy).unwrap();
    world.pass(HOUR).await;
    assert_eq!(world.offsets(URL), [0, 10_000, 30_000, 70_000]);
    assert_eq!(world.count(StateName::Dead).await, 1);
}

/// Two retries, so that deliveries die within minutes; disabled after ten failures.
fn quick() -> Policy {
    let mut policy = Policy::default();
    policy.retry.max = 2;
    policy.circuit.disable_grace = 10;
    policy
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_the_wish_of_a_subscription_and_another_ones_slots_go_before_it() {
    for (second, drained) in [(None, true), (Some(RecoveryMode::Slots), false)] {
        let mut world = World::with(quick(), Options::default()).await;
        let drain = SubscriptionPolicy {
            recovery_mode: Some(RecoveryMode::Drain),
            ..SubscriptionPolicy::default()
        };
        let first = subscribe(&mut world, URL, drain).await;
        let mut other = world.wish(URL);
        other.subscription.format = postrider_domain::payload::Format::Standard;
        other.subscription.policy.recovery_mode = second;
        let other = world.put(other).await;
        let destination = DestinationId::of(&tenant(), URL);
        let (_, source) = world.engine.destination_policy(&tenant(), destination).recovery_mode;
        let from = if second.is_none() { first.id } else { other.id };
        assert_eq!(source, PolicySource::Subscription(from));
        world.fail(URL, 10).await;
        assert_eq!(world.state(URL).await, "disabled");
        world.script.set(URL, OK);
        world.engine.enable(&tenant(), destination, None).await.unwrap();
        world.script.forget();
        world.pass(ms(20_000)).await;
        assert_eq!(!world.script.sent().is_empty(), drained, "{second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_dead_of_one_subscription_are_replayed_and_those_of_its_neighbour_kept() {
    let mut world = World::with(quick(), Options::default()).await;
    let replay =
        SubscriptionPolicy { dead: Some(DeadRecovery::Replay), ..SubscriptionPolicy::default() };
    let replayed = subscribe(&mut world, URL, replay).await;
    let mut kept = world.wish(URL);
    kept.subscription.format = postrider_domain::payload::Format::Standard;
    let kept = world.put(kept).await;
    world.fail(URL, 20).await;
    world.pass(MINUTE * 6).await;
    assert_eq!(world.count(StateName::Dead).await, 40);
    let late = world.now();
    world.send_many(1).await;
    world.script.set(URL, OK);
    world.pass(TEN_MINUTES).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.pass(MINUTE).await;
    for delivery in world.deliveries().await {
        let is_dead = delivery.state.name() == StateName::Dead;
        let is_kept = delivery.subscription == kept.id && delivery.created_at < late;
        assert_eq!(is_dead, is_kept, "{delivery:?}");
    }
    let page = PageRequest { limit: 10, cursor: None };
    let jobs = world.store.replays(&tenant(), &page).await.unwrap().items;
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0].filter.subscription, jobs[0].done), (Some(replayed.id), 20));
    assert_eq!(world.destination(URL).await.circuit.replay_dead_since, None);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn each_subscription_replays_its_dead_within_its_own_age_after_a_crash_too() {
    let mut world = World::with(quick(), Options::default()).await;
    let mut policy = quick();
    policy.recovery.dead = DeadRecovery::Replay;
    world.policy = policy.clone();
    world.engine.reload_policy(policy).unwrap();
    let young = SubscriptionPolicy { dead_max_age: Some(MINUTE), ..SubscriptionPolicy::default() };
    let young = subscribe(&mut world, URL, young).await;
    let mut plain = world.wish(URL);
    plain.subscription.format = postrider_domain::payload::Format::Standard;
    world.put(plain).await;
    world.fail(URL, 20).await;
    world.pass(MINUTE * 6).await;
    world.script.set(URL, OK);
    let destination = DestinationId::of(&tenant(), URL);
    world.engine.enable(&tenant(), destination, None).await.unwrap();
    world.crash().await;
    world.pass(MINUTE).await;
    for delivery in world.deliveries().await {
        let is_dead = delivery.state.name() == StateName::Dead;
        assert_eq!(is_dead, delivery.subscription == young.id, "{delivery:?}");
    }
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn the_operators_rate_holds_for_every_destination_and_is_taken_at_a_reload() {
    let mut policy = never_disabled();
    policy.limits.rate_limit_max = Some(10);
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    let mut slow = world.wish(OTHER);
    slow.subscription.rate_limit = RateLimit::per_second(2.0).ok();
    let slow = world.put(slow).await;
    world.send_many(60).await;
    world.pass(ms(999)).await;
    let sent = |world: &World, url: &str| world.script.sent_to(url).len();
    assert_eq!((sent(&world, URL), sent(&world, OTHER)), (10, 2));
    let destination = DestinationId::of(&tenant(), OTHER);
    let (_, source) = world.engine.destination_policy(&tenant(), destination).rate_limit.unwrap();
    assert_eq!(source, PolicySource::Subscription(slow.id));
    world.engine.reload_policy(never_disabled()).unwrap();
    world.pass(ms(1_000)).await;
    assert_eq!(sent(&world, URL), 60, "no limit any more");
    assert!(sent(&world, OTHER) <= 5);
}
