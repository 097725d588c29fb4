//! The contract on replays.

use std::collections::HashMap;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::{DestinationId, ReplayId};
use postrider_domain::job_outcomes::Outcome;
use postrider_domain::policy::{Policy, RetryPolicy};
use postrider_engine::{CommandError, NewReplay, Options};
use postrider_store::{DeliveryFilter, ReplayState, Replays};

use crate::world::{FAIL, HOUR, MINUTE, OK, World, ms, slot, tenant};

const URL: &str = "https://hooks.example.com/in";

/// A world with `n` dead deliveries, whose receiver works again.
async fn with_dead(n: usize) -> World {
    let retry = RetryPolicy { max: 1, ..RetryPolicy::default() };
    let mut policy = Policy { retry, ..Policy::default() };
    policy.circuit.disable_grace = u64::MAX;
    let mut world = World::with(policy, Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, n).await;
    world.pass(ms(90_000)).await;
    assert_eq!(world.count(StateName::Dead).await, n);
    world.script.set(URL, OK);
    world.script.forget();
    world
}

fn all(per_second: Option<u32>) -> NewReplay {
    NewReplay { per_second, ..NewReplay::default() }
}

fn each_once(world: &World) -> usize {
    let mut counts = HashMap::new();
    for sent in world.script.sent() {
        *counts.entry(sent.delivery).or_insert(0) += 1;
    }
    assert!(counts.values().all(|&n| n == 1), "each delivery once");
    counts.len()
}

#[tokio::test(start_paused = true)]
async fn a_replay_starts_a_new_schedule_and_keeps_the_log() {
    let world = with_dead(1).await;
    let dead = world.deliveries().await.remove(0);
    world.script.set(URL, FAIL);
    let replayed = world.engine.replay(&tenant(), dead.id).await.unwrap();
    assert_eq!(replayed.attempts, 2);
    world.run_ready_tasks().await;
    let replayed_at = world.now();
    let delivery = world.deliveries().await.remove(0);
    assert_eq!((delivery.attempts, slot(&delivery)), (3, 1), "attempts go on counting");
    assert_eq!(delivery.next_attempt_at(), Some(replayed_at.saturating_add(ms(84_800))));
    assert_eq!(world.script.sent()[0].delivery, dead.id, "webhook-id stays");
    assert_eq!(world.attempts(dead.id).await.len(), 3);
    let unfinished = world.engine.replay(&tenant(), dead.id).await;
    assert!(matches!(unfinished, Err(CommandError::WrongState(_))), "{unfinished:?}");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn delivered_can_be_replayed_and_one_of_a_deleted_subscription_cannot() {
    let world = with_dead(1).await;
    let dead = world.deliveries().await.remove(0);
    world.engine.replay(&tenant(), dead.id).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.count(StateName::Delivered).await, 1);
    world.engine.replay(&tenant(), dead.id).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), 2, "a delivered one can be sent again");
    world.engine.delete_subscription(&tenant(), dead.subscription).await.unwrap();
    let gone = world.engine.replay(&tenant(), dead.id).await;
    assert!(matches!(gone, Err(CommandError::SubscriptionGone)), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_bulk_replay_sends_each_once_and_ends() {
    let world = with_dead(900).await;
    assert_eq!(world.engine.count_replay(&tenant(), &all(None)).await.unwrap(), 900);
    assert_eq!(world.script.sent().len(), 0, "a dry run sends nothing");
    let job = world.engine.start_replay(&tenant(), all(None)).await.unwrap();
    assert_eq!((job.total, job.state), (900, ReplayState::Running));
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 900);
    assert_eq!(world.count(StateName::Delivered).await, 900);
    let job = world.store.replay(&tenant(), job.id).await.unwrap().unwrap();
    assert_eq!((job.done, job.state), (900, ReplayState::Finished));
    assert!(job.finished_at.is_some());
    assert_eq!(world.engine.gauges().await.unwrap().replays, 0);
    let ended = world.engine.cancel_replay(&tenant(), job.id).await;
    assert!(matches!(ended, Err(CommandError::JobEnded)), "{ended:?}");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_replay_keeps_its_pace_and_its_filter() {
    let mut world = with_dead(100).await;
    world.subscribe("https://hooks.example.com/other").await;
    let id = DestinationId::of(&tenant(), URL);
    let filter = DeliveryFilter { destination: Some(id), ..DeliveryFilter::default() };
    let wish = NewReplay { filter, per_second: Some(20), ..NewReplay::default() };
    let job = world.engine.start_replay(&tenant(), wish).await.unwrap();
    world.pass(ms(999)).await;
    assert_eq!(world.script.sent().len(), 20);
    world.pass(ms(1_000)).await;
    assert_eq!(world.script.sent().len(), 40);
    let job = world.store.replay(&tenant(), job.id).await.unwrap().unwrap();
    assert_eq!((job.done, job.total), (40, 100), "progress");
    let none = DeliveryFilter {
        destination: Some(DestinationId::of(&tenant(), "https://hooks.example.com/other")),
        ..DeliveryFilter::default()
    };
    let wish = NewReplay { filter: none, ..NewReplay::default() };
    assert_eq!(world.engine.count_replay(&tenant(), &wish).await.unwrap(), 0);
    let wish = NewReplay {
        filter: DeliveryFilter { state: Some(StateName::Queued), ..DeliveryFilter::default() },
        ..NewReplay::default()
    };
    let wrong = world.engine.start_replay(&tenant(), wish).await;
    assert!(matches!(wrong, Err(CommandError::NotReplayable)), "{wrong:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replay_can_be_paused_resumed_and_cancelled() {
    let world = with_dead(100).await;
    let job = world.engine.start_replay(&tenant(), all(Some(10))).await.unwrap();
    world.pass(ms(2_050)).await;
    let paused = world.engine.pause_replay(&tenant(), job.id).await.unwrap();
    assert_eq!(paused.state, ReplayState::Paused);
    let sent = world.script.sent().len();
    world.pass(HOUR).await;
    assert_eq!(world.script.sent().len(), sent, "paused");
    let resumed = world.engine.resume_replay(&tenant(), job.id).await.unwrap();
    assert_eq!(resumed.state, ReplayState::Running);
    world.pass(ms(3_050)).await;
    assert!(world.script.sent().len() > sent + 20);
    let cancelled = world.engine.cancel_replay(&tenant(), job.id).await.unwrap();
    assert_eq!(cancelled.state, ReplayState::Cancelled);
    let sent = each_once(&world);
    world.pass(HOUR).await;
    assert_eq!(each_once(&world), sent);
    let kept = world.store.replay(&tenant(), job.id).await.unwrap().unwrap();
    assert_eq!(kept.state, ReplayState::Cancelled);
    assert_eq!(kept.done, u64::try_from(sent).unwrap());
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_survives_restarts_and_sends_each_once() {
    let mut world = with_dead(300).await;
    let job = world.engine.start_replay(&tenant(), all(Some(20))).await.unwrap();
    for n in 0..12 {
        world.pass(ms(1_000 + n * 13)).await;
        world.crash().await;
    }
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 300);
    let job = world.store.replay(&tenant(), job.id).await.unwrap().unwrap();
    assert_eq!((job.done, job.state), (300, ReplayState::Finished));
    world.check_ledger().await;
}

/// Checks what a job says of its deliveries against the deliveries themselves; returns the counts:
/// pending, failed, delivered, dead, withdrawn.
async fn check_outcomes(world: &World, job: ReplayId) -> [u64; 5] {
    let stored = world.store.replay(&tenant(), job).await.unwrap().unwrap();
    let marks = world.deliveries().await.into_iter().filter_map(|delivery| delivery.by_job());
    let (mut pending, mut failed) = (0, 0);
    for mark in marks.filter(|mark| mark.job == job) {
        *(if mark.has_failed { &mut failed } else { &mut pending }) += 1;
    }
    let outcomes = stored.outcomes;
    assert_eq!(outcomes.sum(), stored.done, "{outcomes:?}");
    let found = (outcomes.of(Outcome::Pending), outcomes.of(Outcome::Failed));
    assert_eq!(found, (pending, failed), "{outcomes:?}");
    outcomes.0
}

#[tokio::test(start_paused = true)]
async fn outcomes_of_a_job_add_up_wherever_the_process_ends() {
    let mut world = with_dead(120).await;
    world.script.set(URL, FAIL);
    let job = world.engine.start_replay(&tenant(), all(Some(100))).await.unwrap().id;
    for n in 0..8 {
        world.pass(ms(90 + n * 23)).await;
        check_outcomes(&world, job).await;
        world.crash().await;
        check_outcomes(&world, job).await;
    }
    world.pass(ms(5_000)).await;
    assert_eq!(check_outcomes(&world, job).await, [0, 120, 0, 0, 0], "all wait for their retry");
    let one = world.deliveries().await.remove(0);
    world.engine.cancel(&tenant(), one.id).await.unwrap();
    world.script.set(URL, OK);
    while world.count(StateName::Delivered).await < 30 {
        world.pass(ms(100)).await;
        check_outcomes(&world, job).await;
    }
    world.script.set(URL, FAIL);
    world.crash().await;
    world.pass(MINUTE * 2).await;
    let [pending, failed, delivered, dead, withdrawn] = check_outcomes(&world, job).await;
    assert_eq!((pending, failed, withdrawn), (0, 0, 1));
    let count = |n: usize| u64::try_from(n).unwrap();
    assert_eq!(delivered, count(world.count(StateName::Delivered).await));
    assert_eq!(dead, count(world.count(StateName::Dead).await));
    assert!(delivered >= 30 && dead > 0, "{delivered} delivered, {dead} dead");
    // What has ended is counted: another job changes nothing of it.
    world.script.set(URL, OK);
    let next = world.engine.start_replay(&tenant(), all(None)).await.unwrap().id;
    world.pass(MINUTE).await;
    assert_eq!(check_outcomes(&world, job).await, [0, 0, delivered, dead, 1]);
    assert_eq!(check_outcomes(&world, next).await, [0, 0, dead, 0, 0]);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_job_stays_paused_through_a_restart() {
    let mut world = with_dead(50).await;
    let job = world.engine.start_replay(&tenant(), all(Some(10))).await.unwrap();
    world.pass(ms(1_050)).await;
    world.engine.pause_replay(&tenant(), job.id).await.unwrap();
    let sent = world.script.sent().len();
    world.crash_for(MINUTE).await;
    world.pass(MINUTE).await;
    assert_eq!(world.script.sent().len(), sent);
    world.engine.resume_replay(&tenant(), job.id).await.unwrap();
    world.pass(MINUTE).await;
    assert_eq!(each_once(&world), 50);
}
