//! A destination is back: what waits is drained where somebody asks for it, and what died of the outage
//! is replayed.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use postrider_domain::circuit::Circuit;
use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{DeadRecovery, Policy, RecoveryMode, RetryPolicy};
use postrider_domain::subscription::RateLimit;
use postrider_domain::time::Timestamp;
use postrider_engine::{CommandError, Enabling, NewReplay, Options, Quota};
use postrider_store::{
    Commit, DestinationChange, PageRequest, ReplayJob, ReplayState, Replays, Work as _,
};
use postrider_store_testing::memory::Fault;

use crate::nothing_lost::slow_store;
use crate::world::{FAIL, HOUR, MINUTE, OK, START, TEN_MINUTES, World, ms, tenant};

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

/// The receiver takes ten a second, and what died would be replayed at a hundred a second.
#[tokio::test(start_paused = true)]
async fn what_falls_due_goes_before_what_died_and_what_is_due_later_does_not_hold_it_up() {
    for by_policy in [true, false] {
        let policy = if by_policy { replaying() } else { quick() };
        let mut world = World::with(policy, Options::default()).await;
        let mut record = world.wish(URL);
        record.subscription.rate_limit = RateLimit::per_second(10.0).ok();
        world.put(record).await;
        world.fail(URL, 200).await;
        world.pass(MINUTE * 8).await;
        assert_eq!((world.state(URL).await, world.count(StateName::Dead).await), ("disabled", 200));
        // Their slots are 84.8 seconds from now.
        let sent = world.send_many(5).await;
        world.pass(ms(79_800)).await;
        let mut waiting = HashSet::new();
        for one in &sent {
            waiting.insert(world.delivery(one).await.id);
        }
        world.script.set(URL, OK);
        world.script.forget();
        let wish = Enabling { dead_since: (!by_policy).then_some(START), ..Enabling::default() };
        world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
        world.pass(ms(4_500)).await;
        let early = world.script.sent().len();
        assert!((40..=50).contains(&early), "{early} dead ones before the slots");
        world.pass(ms(2_500)).await;
        let sent = world.script.sent();
        let due = sent.iter().filter(|one| waiting.contains(&one.delivery));
        assert_eq!(due.count(), 5, "within two seconds of their slots");
        world.pass(MINUTE).await;
        assert_eq!(each_once(&world), 205);
        assert_eq!(world.count(StateName::Delivered).await, 205);
        world.check_ledger().await;
    }
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
    let outcomes: Vec<_> = jobs(&world).await.into_iter().map(|job| job.outcomes.0).collect();
    assert_eq!(outcomes, [[0, 0, 200, 0, 0]]);
    world.check_ledger().await;
}

/// Enables with `dead_since`, while the process ends this many milliseconds later.
async fn enable_with_dead_and_crash_after(after: u64) {
    let mut world = World::on(slow_store(after), replaying(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 20).await;
    world.pass(MINUTE * 6).await;
    assert_eq!(world.count(StateName::Dead).await, 20);
    world.script.set(URL, OK);
    let (engine, since) = (world.engine.clone(), Some(START));
    let call = tokio::spawn(async move {
        let wish = Enabling { dead_since: since, ..Enabling::default() };
        engine.enable_and_send(&tenant(), destination(), wish).await.map(|_| ())
    });
    tokio::time::sleep(ms(after)).await;
    world.crash().await;
    call.abort();
    if world.state(URL).await == "disabled" {
        world.engine.enable(&tenant(), destination(), None).await.unwrap();
    }
    world.pass(MINUTE).await;
    assert_eq!(world.count(StateName::Dead).await, 0, "after a crash at {after} ms");
    assert_eq!(world.count(StateName::Delivered).await, 20, "after a crash at {after} ms");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_replayed_wherever_the_process_ends_while_somebody_enables_with_dead_since() {
    for after in 0..25 {
        enable_with_dead_and_crash_after(after).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_dead_are_replayed_although_the_job_of_whoever_enables_is_refused() {
    let world = disabled(replaying(), 20).await;
    world.script.set(URL, OK);
    // The enabling is stored; then neither job can be, and that of the policy is tried again.
    world.store.fail_later(1, Fault::UnavailableBefore, 2);
    let wish = Enabling { dead_since: Some(START), ..Enabling::default() };
    let refused = world.engine.enable_and_send(&tenant(), destination(), wish).await;
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(world.state(URL).await, "enabled");
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 20);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_the_policy_and_one_of_a_person_send_each_once_and_keep_the_pace() {
    let mut policy = replaying();
    policy.recovery.dead_per_second = 20;
    let world = disabled(policy, 100).await;
    world.script.set(URL, OK);
    let wish = Enabling { dead_since: Some(START), ..Enabling::default() };
    world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    world.pass(ms(3_000)).await;
    let sent = world.script.sent().len();
    // Two jobs of ten a second, which may come to the same deliveries.
    assert!((30..=66).contains(&sent), "{sent} in three seconds");
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 100);
    let done: u64 = jobs(&world).await.iter().map(|job| job.done).sum();
    assert_eq!(done, 100);
    world.check_ledger().await;
}

/// Deliveries die with their first failure, and the destination is frozen only by hand.
fn dying_at_once() -> Policy {
    let mut policy = replaying();
    policy.retry.max = 0;
    policy.circuit.disable_grace = 10_000;
    policy
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_outage_is_forgotten_leads_to_no_second_job() {
    let mut world = World::with(dying_at_once(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 20).await;
    world.engine.freeze(&tenant(), destination(), None).await.unwrap();
    assert_eq!(world.count(StateName::Dead).await, 20);
    world.script.forget();
    world.pass(MINUTE).await;
    let enabled = world.engine.enable(&tenant(), destination(), None).await.unwrap();
    world.pass(MINUTE).await;
    // All of them were replayed, and died again.
    assert_eq!((each_once(&world), world.count(StateName::Dead).await), (20, 20));
    let job = jobs(&world).await.remove(0);
    assert_eq!((job.done, job.state), (20, ReplayState::Finished));
    // The crash came after the job was stored, and before the circuit without the outage was.
    let circuit = Circuit {
        replay_dead_since: enabled.circuit.replay_dead_since,
        recovered_at: enabled.circuit.recovered_at,
        ..world.destination(URL).await.circuit
    };
    assert!(circuit.replay_dead_since.is_some() && circuit.recovered_at.is_some());
    let (tenant, id) = (tenant(), destination());
    let change = DestinationChange { tenant, id, circuit, transitions: Vec::new() };
    let commit = Commit { destinations: vec![change], ..Commit::default() };
    let leases = world.engine.leases().await.unwrap();
    world.store.settle(&leases, commit).await.unwrap();
    world.crash().await;
    world.pass(MINUTE).await;
    assert_eq!(jobs(&world).await, [job], "no second job");
    assert_eq!(each_once(&world), 20, "and none is replayed twice");
    assert_eq!(world.destination(URL).await.circuit.replay_dead_since, None);
    world.check_ledger().await;
}

const OTHER: &str = "https://hooks.example.com/other";

/// Two destinations with 20 dead deliveries each, both frozen, under limits of one job. What died is
/// replayed at so many a second.
async fn two_frozen(dead_per_second: u32, max_age: Duration) -> World {
    let mut policy = dying_at_once();
    policy.recovery.dead_max_age = max_age;
    policy.recovery.dead_per_second = dead_per_second;
    let mut options = Options::default();
    options.quotas.tenant_replays_running = 1;
    let mut world = World::with(policy, options).await;
    for url in [URL, OTHER] {
        world.subscribe(url).await;
        world.script.set(url, FAIL);
    }
    world.send_many(20).await;
    for _ in 0..20 {
        world.run_ready_tasks().await;
    }
    assert_eq!(world.count(StateName::Dead).await, 40);
    for url in [URL, OTHER] {
        let id = DestinationId::of(&tenant(), url);
        world.engine.freeze(&tenant(), id, None).await.unwrap();
        world.script.set(url, OK);
    }
    world.script.forget();
    world
}

async fn enable(world: &World, url: &str) {
    let id = DestinationId::of(&tenant(), url);
    world.engine.enable(&tenant(), id, None).await.unwrap();
    world.pass(ms(500)).await;
}

#[tokio::test(start_paused = true)]
async fn downtime_after_the_recovery_does_not_make_the_dead_too_old() {
    let mut world = two_frozen(1, HOUR).await;
    world.pass(MINUTE * 50).await;
    enable(&world, OTHER).await;
    // The job of the other destination runs, so this one is stored only after the downtime.
    enable(&world, URL).await;
    assert_eq!(jobs(&world).await.len(), 1);
    world.crash_for(MINUTE * 30).await;
    world.pass(MINUTE).await;
    assert_eq!(world.count(StateName::Dead).await, 0);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn outages_of_many_destinations_are_replayed_one_after_the_other_within_the_limit() {
    let world = two_frozen(2, HOUR).await;
    enable(&world, OTHER).await;
    enable(&world, URL).await;
    assert_eq!(jobs(&world).await.len(), 1, "no place for another one");
    assert!(world.destination(URL).await.circuit.replay_dead_since.is_some());
    world.pass(MINUTE).await;
    assert_eq!((jobs(&world).await.len(), world.count(StateName::Dead).await), (2, 0));
    assert_eq!(each_once(&world), 40);
    assert_eq!(world.destination(URL).await.circuit.replay_dead_since, None);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn replays_of_outages_leave_people_their_own_limit() {
    let world = two_frozen(1, HOUR).await;
    enable(&world, OTHER).await;
    let by_itself = jobs(&world).await.remove(0);
    assert!(by_itself.is_of_outage());
    let used = async || {
        let all = world.engine.quota_use(&tenant()).await.unwrap();
        all.iter().find(|one| one.quota == Quota::TenantReplaysRunning).unwrap().used
    };
    assert_eq!(used().await, 0, "it is not one that somebody asked for");
    let slow = || NewReplay { per_second: Some(1), ..NewReplay::default() };
    let own = world.engine.start_replay(&tenant(), slow()).await.unwrap();
    assert_eq!((own.is_of_outage(), used().await), (false, 1));
    // Each kind has its own limit, also for those that are resumed.
    let refused = world.engine.start_replay(&tenant(), slow()).await;
    assert!(matches!(refused, Err(CommandError::Quota(_))), "{refused:?}");
    world.engine.pause_replay(&tenant(), by_itself.id).await.unwrap();
    world.engine.resume_replay(&tenant(), by_itself.id).await.unwrap();
    world.engine.pause_replay(&tenant(), own.id).await.unwrap();
    let wish = Enabling { dead_since: Some(START), ..Enabling::default() };
    let (_, job) = world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    assert!(job.is_some_and(|job| !job.is_of_outage()));
    let refused = world.engine.resume_replay(&tenant(), own.id).await;
    assert!(matches!(refused, Err(CommandError::Quota(_))), "{refused:?}");
}

/// With so few attempts the share of failures never disables it, so no outage begins or ends.
#[tokio::test(start_paused = true)]
async fn a_receiver_of_few_deliveries_is_never_disabled_and_its_dead_wait_for_a_request() {
    let mut policy = Policy::default();
    policy.recovery.dead = DeadRecovery::Replay;
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 5).await;
    world.pass(HOUR * 49).await;
    assert_eq!(world.state(URL).await, "enabled");
    world.script.set(URL, OK);
    world.script.forget();
    world.send().await;
    world.pass(HOUR).await;
    assert_eq!(world.count(StateName::Dead).await, 5, "not replayed by itself");
    let wish = Enabling { dead_since: Some(START), ..Enabling::default() };
    world.engine.enable_and_send(&tenant(), destination(), wish).await.unwrap();
    world.pass(MINUTE).await;
    assert_eq!((each_once(&world), world.count(StateName::Dead).await), (6, 0));
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
