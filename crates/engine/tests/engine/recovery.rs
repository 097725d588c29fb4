//! A destination is back: what waits is drained where somebody asks for it, and what died of the outage
//! is replayed.

use std::collections::HashMap;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{DeadRecovery, Policy, RecoveryMode, RetryPolicy};
use postrider_domain::time::Timestamp;
use postrider_engine::{Enabling, Options};
use postrider_store::{PageRequest, ReplayJob, ReplayState, Replays};

use crate::world::{HOUR, MINUTE, OK, START, TEN_MINUTES, World, ms, tenant};

const URL: &str = "https://hooks.example.com/in";

fn destination() -> DestinationId {
    DestinationId::of(&tenant(), URL)
}

/// Two retries, so that deliveries die within minutes; disabled after ten failures.
fn quick() -> Policy {
    let retry = RetryPolicy { max: 2, ..RetryPolicy::default() };
    let mut policy = Policy { retry, ..Policy::default() };
    policy.circuit.disable_grace = 10;
    policy
}

fn replaying() -> Policy {
    let mut policy = quick();
    policy.recovery.dead = DeadRecovery::Replay;
    policy
}

/// A world whose destination is disabled, with so many that are dead and some that wait.
async fn disabled(policy: Policy, dead: usize) -> World {
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, dead).await;
    world.pass(MINUTE * 6).await;
    assert_eq!(world.state(URL).await, "disabled");
    assert_eq!(world.count(StateName::Dead).await, dead);
    world.script.forget();
    world
}

async fn jobs(world: &World) -> Vec<ReplayJob> {
    let page = PageRequest { limit: 100, cursor: None };
    world.store.replays(&tenant(), &page).await.unwrap().items
}

fn each_once(world: &World) -> usize {
    let mut counts = HashMap::new();
    for sent in world.script.sent() {
        *counts.entry(sent.delivery).or_insert(0) += 1;
    }
    assert!(counts.values().all(|&n| n == 1), "each delivery once: {counts:?}");
    counts.len()
}

#[tokio::test(start_paused = true)]
async fn enabling_with_drain_sends_what_waits_although_the_policy_says_slots() {
    let mut world = disabled(quick(), 20).await;
    world.send_many(30).await;
    world.run_ready_tasks().await;
    world.script.set(URL, OK);
    let wish = Enabling { waiting: Some(RecoveryMode::Drain), ..Enabling::default() };
    let (record, job) = world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    assert!(record.circuit.draining && job.is_none());
    // It is stored, so it goes on after a crash.
    world.crash().await;
    world.pass(ms(10_000)).await;
    assert_eq!(each_once(&world), 30, "long before their slots");
    assert!(!world.destination(URL).await.circuit.draining);
    assert_eq!(world.count(StateName::Dead).await, 20, "the dead are kept");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn enabling_with_slots_leaves_the_slots_although_the_policy_says_drain() {
    let mut policy = quick();
    policy.recovery.mode = RecoveryMode::Drain;
    let world = disabled(policy, 20).await;
    world.send_many(5).await;
    world.run_ready_tasks().await;
    world.script.set(URL, OK);
    let wish = Enabling { waiting: Some(RecoveryMode::Slots), ..Enabling::default() };
    world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    world.pass(ms(10_000)).await;
    assert_eq!(world.script.sent().len(), 0);
    world.pass(MINUTE * 2).await;
    assert_eq!(each_once(&world), 5);
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_is_enabled_already_can_be_drained() {
    let mut world = World::with(Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 5).await;
    world.script.set(URL, OK);
    world.script.forget();
    let wish = Enabling { waiting: Some(RecoveryMode::Drain), ..Enabling::default() };
    world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    world.pass(ms(10_000)).await;
    assert_eq!(each_once(&world), 5);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn enabling_replays_what_died_since_a_time_after_what_waits() {
    let world = disabled(quick(), 20).await;
    let since = world.now();
    world.send_many(30).await;
    world.pass(MINUTE * 5).await;
    assert_eq!(world.count(StateName::Dead).await, 50);
    world.send_many(10).await;
    world.run_ready_tasks().await;
    world.script.set(URL, OK);
    let probes = world.script.sent().len();
    world.script.forget();
    let wish = Enabling {
        waiting: Some(RecoveryMode::Drain),
        dead_since: Some(since),
        ..Enabling::default()
    };
    let (_, job) = world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    let job = job.unwrap();
    assert_eq!((job.total, job.shard()), (30, destination().shard()), "{probes}");
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 40);
    let died: Vec<_> = world.deliveries().await;
    let waited = |at: usize| {
        let id = world.script.sent()[at].delivery;
        died.iter().any(|one| one.id == id && one.attempts == 1)
    };
    assert!((0..10).all(waited), "what waits goes first");
    assert_eq!(world.count(StateName::Dead).await, 20, "those that died before are kept");
    let job = world.store.replay(&tenant(), job.id).await.unwrap().unwrap();
    assert_eq!((job.done, job.state), (30, ReplayState::Finished));
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn what_died_is_kept_unless_the_policy_replays_it() {
    let world = disabled(quick(), 20).await;
    world.send().await;
    world.script.set(URL, OK);
    world.pass(TEN_MINUTES).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.pass(HOUR).await;
    assert_eq!(world.count(StateName::Dead).await, 20);
    assert!(jobs(&world).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_died_of_an_outage_is_replayed_when_a_probe_ends_it() {
    let world = disabled(replaying(), 250).await;
    world.script.set(URL, OK);
    world.send().await;
    // The probe is sent ten minutes after the destination was disabled.
    world.pass(MINUTE * 4 + ms(500)).await;
    assert_eq!(world.state(URL).await, "enabled");
    let sent = world.script.sent().len();
    assert!(sent < 100, "{sent}: it is paced");
    world.pass(ms(10_000)).await;
    assert_eq!(each_once(&world), 251);
    assert_eq!(world.count(StateName::Delivered).await, 251);
    let jobs = jobs(&world).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!((jobs[0].total, jobs[0].done), (250, 250));
    assert_eq!(jobs[0].state, ReplayState::Finished);
    assert_eq!(world.destination(URL).await.circuit.replay_dead_since, None);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn what_died_is_replayed_when_somebody_enables_a_frozen_destination() {
    let world = disabled(replaying(), 20).await;
    world.engine.freeze(&tenant(), destination(), None).await.unwrap();
    world.send_many(10).await;
    world.pass(MINUTE * 6).await;
    assert_eq!(world.count(StateName::Dead).await, 30, "before and after it was frozen");
    world.script.set(URL, OK);
    world.engine.enable(&tenant(), destination(), None).await.unwrap();
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 30);
    assert_eq!(jobs(&world).await.len(), 1);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn what_died_before_the_outage_or_is_too_old_is_kept() {
    let mut policy = replaying();
    policy.recovery.dead_max_age = HOUR;
    policy.circuit.disable_grace = 10;
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    // Three die while the destination stays enabled, and then it is well for a while.
    world.fail(URL, 3).await;
    world.pass(MINUTE * 6).await;
    assert_eq!(world.count(StateName::Dead).await, 3);
    world.script.set(URL, OK);
    world.send().await;
    world.run_ready_tasks().await;
    // Twenty die at the beginning of the outage, five later.
    world.script.forget();
    world.fail(URL, 20).await;
    world.pass(HOUR).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.send_many(5).await;
    world.pass(MINUTE * 6).await;
    assert_eq!(world.count(StateName::Dead).await, 28);
    world.script.set(URL, OK);
    world.script.forget();
    world.engine.enable(&tenant(), destination(), None).await.unwrap();
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 5, "twenty are too old, three died before");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn the_replay_of_the_dead_survives_restarts_and_sends_each_once() {
    let mut policy = replaying();
    policy.recovery.dead_per_second = 20;
    let mut world = disabled(policy, 200).await;
    world.script.set(URL, OK);
    world.engine.enable(&tenant(), destination(), None).await.unwrap();
    for n in 0..10 {
        world.crash().await;
        world.pass(ms(700 + n * 13)).await;
    }
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 200);
    assert_eq!(world.count(StateName::Delivered).await, 200);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_too_many_replays_has_its_dead_replayed_later() {
    let mut options = Options::default();
    options.quotas.tenant_replays_running = 1;
    let mut world = World::with(replaying(), options).await;
    world.subscribe(URL).await;
    world.fail(URL, 20).await;
    world.pass(MINUTE * 6).await;
    let slow = postrider_engine::NewReplay { per_second: Some(1), ..Default::default() };
    let slow = world.engine.start_replay(&tenant(), slow).await.unwrap();
    world.engine.pause_replay(&tenant(), slow.id).await.unwrap();
    world.engine.resume_replay(&tenant(), slow.id).await.unwrap();
    world.script.set(URL, OK);
    world.script.forget();
    world.engine.enable(&tenant(), destination(), None).await.unwrap();
    world.pass(ms(2_000)).await;
    assert_eq!(jobs(&world).await.len(), 1, "no place for another one");
    assert!(world.destination(URL).await.circuit.replay_dead_since.is_some());
    world.engine.cancel_replay(&tenant(), slow.id).await.unwrap();
    world.pass(MINUTE).await;
    assert_eq!(jobs(&world).await.len(), 2);
    assert_eq!(world.count(StateName::Dead).await, 0);
    world.check_ledger().await;
}

/// Friday's failure, a weekend, Monday's recovery, with the numbers of the contract.
#[tokio::test(start_paused = true)]
async fn a_weekend_outage_ends_with_everything_delivered_once() {
    let mut policy = Policy::default();
    policy.recovery.dead = DeadRecovery::Replay;
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    let mut accepted = 0;
    for _ in 0..20 {
        world.send().await;
        accepted += 1;
        world.pass(MINUTE).await;
    }
    assert_eq!(world.count(StateName::Delivered).await, accepted);
    // Friday evening: it fails, and is disabled.
    world.fail(URL, 110).await;
    accepted += 110;
    assert_eq!(world.state(URL).await, "disabled");
    let mut hours = 0;
    while hours < 62 {
        world.send_many(3).await;
        accepted += 3;
        world.pass(HOUR).await;
        world.check_ledger().await;
        hours += 1;
    }
    let dead = world.count(StateName::Dead).await;
    assert!(dead > 110, "{dead} are dead after 48 hours");
    assert!(world.count(StateName::Waiting).await > 0);
    // Monday morning: it is back.
    world.script.set(URL, OK);
    world.script.forget();
    world.pass(TEN_MINUTES * 2).await;
    assert_eq!(world.state(URL).await, "enabled");
    for _ in 0..49 {
        world.pass(HOUR).await;
        world.check_ledger().await;
    }
    assert_eq!(world.count(StateName::Dead).await, 0);
    assert_eq!(world.count(StateName::Delivered).await, accepted);
    assert_eq!(each_once(&world), accepted - 20, "what Friday left, once each");
    let jobs = jobs(&world).await;
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].done, u64::try_from(dead).unwrap());
    assert!(jobs[0].filter.ended_since > Some(START) && jobs[0].created_at > Timestamp::EPOCH);
}
