//! Bulk retry: a job that has all deliveries that wait for a retry attempted now.

use std::collections::HashMap;

use postrider_domain::attempt::Turn;
use postrider_domain::delivery::StateName;
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::Policy;
use postrider_engine::{CommandError, NewReplay, Options};
use postrider_store::{DeliveryFilter, ReplayJob, ReplayState, Replays};

use crate::world::{HOUR, MINUTE, Mood, OK, TEN_MINUTES, World, ms, never_disabled, slot, tenant};

const URL: &str = "https://hooks.example.com/in";
const OTHER: &str = "https://hooks.example.com/other";

/// A world in which so many wait for their first retry; the receiver is well now.
async fn with_waiting(n: usize) -> World {
    let mut world = World::with(never_disabled(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, n).await;
    assert_eq!(world.count(StateName::Waiting).await, n);
    world.pass(ms(10_000)).await;
    world.script.set(URL, OK);
    world.script.forget();
    world
}

fn waiting(per_second: Option<u32>) -> NewReplay {
    let filter = DeliveryFilter { state: Some(StateName::Waiting), ..DeliveryFilter::default() };
    NewReplay { filter, per_second, ..NewReplay::default() }
}

fn waiting_for(url: &str) -> NewReplay {
    let mut wish = waiting(None);
    wish.filter.destination = Some(DestinationId::of(&tenant(), url));
    wish
}

fn each_once(world: &World) -> usize {
    let mut counts = HashMap::new();
    for sent in world.script.sent() {
        *counts.entry(sent.delivery).or_insert(0) += 1;
    }
    assert!(counts.values().all(|&n| n == 1), "each delivery once");
    counts.len()
}

async fn job(world: &World, job: &ReplayJob) -> ReplayJob {
    world.store.replay(&tenant(), job.id).await.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn waiting_deliveries_are_sent_once_and_before_their_slots() {
    let world = with_waiting(300).await;
    assert_eq!(world.engine.count_replay(&tenant(), &waiting(None)).await.unwrap(), 300);
    assert_eq!(world.script.sent().len(), 0, "a dry run sends nothing");
    let started = world.engine.start_replay(&tenant(), waiting(None)).await.unwrap();
    assert_eq!((started.total, started.state), (300, ReplayState::Running));
    world.pass(ms(10_000)).await;
    assert_eq!(each_once(&world), 300);
    assert_eq!(world.count(StateName::Delivered).await, 300);
    let ended = job(&world, &started).await;
    assert_eq!((ended.done, ended.state), (300, ReplayState::Finished));
    assert_eq!(ended.outcomes.0, [0, 0, 300, 0, 0], "all were delivered");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn delivery_that_fails_again_keeps_its_slot_and_is_not_sent_twice() {
    let world = with_waiting(5).await;
    world.script.set(URL, crate::world::FAIL);
    let before = world.deliveries().await;
    let started = world.engine.start_replay(&tenant(), waiting(None)).await.unwrap();
    world.pass(ms(30_000)).await;
    assert_eq!(each_once(&world), 5);
    for (before, after) in before.iter().zip(world.deliveries().await) {
        assert_eq!((after.attempts, slot(&after)), (2, 1));
        assert_eq!(after.next_attempt_at(), before.next_attempt_at(), "the slot stays");
        assert_eq!(world.attempts(after.id).await[1].turn, Turn::Manual);
    }
    let ended = job(&world, &started).await;
    assert_eq!((ended.done, ended.outcomes.0), (5, [0, 5, 0, 0, 0]), "all failed and wait");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_repeated_takes_what_still_waits() {
    let world = with_waiting(5).await;
    world.script.set(URL, crate::world::FAIL);
    let first = world.engine.start_replay(&tenant(), waiting(None)).await.unwrap();
    world.pass(ms(1_000)).await;
    world.script.set(URL, OK);
    let again = world.engine.start_replay(&tenant(), waiting(None)).await.unwrap();
    world.pass(ms(1_000)).await;
    assert_eq!(world.count(StateName::Delivered).await, 5);
    let ended = job(&world, &again).await;
    assert_eq!((again.total, ended.done, ended.outcomes.0), (5, 5, [0, 0, 5, 0, 0]));
    let outcomes = job(&world, &first).await.outcomes;
    assert_eq!(outcomes.0, [0, 0, 0, 0, 5], "the later job sent them");
}

#[tokio::test(start_paused = true)]
async fn bulk_retry_keeps_its_pace_and_its_filter() {
    let mut world = with_waiting(60).await;
    world.subscribe(OTHER).await;
    world.script.set(OTHER, Mood::Answers(500, ms(0)));
    world.send_many(1).await;
    world.run_ready_tasks().await;
    world.script.forget();
    let mut wish = waiting_for(URL);
    wish.per_second = Some(20);
    let started = world.engine.start_replay(&tenant(), wish).await.unwrap();
    world.pass(ms(999)).await;
    assert_eq!(world.script.sent().len(), 20);
    world.engine.pause_replay(&tenant(), started.id).await.unwrap();
    world.pass(ms(10_000)).await;
    assert_eq!(world.script.sent().len(), 20, "paused");
    world.engine.resume_replay(&tenant(), started.id).await.unwrap();
    world.pass(ms(1_000)).await;
    world.engine.cancel_replay(&tenant(), started.id).await.unwrap();
    let sent = each_once(&world);
    assert!((21..=60).contains(&sent), "{sent}");
    assert!(world.script.sent_to(OTHER).is_empty(), "another destination");
    world.pass(ms(10_000)).await;
    assert_eq!(each_once(&world), sent, "cancelled");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn bulk_retry_survives_restarts_and_sends_each_once() {
    let mut world = with_waiting(200).await;
    let started = world.engine.start_replay(&tenant(), waiting(Some(20))).await.unwrap();
    for n in 0..8 {
        world.pass(ms(1_000 + n * 13)).await;
        world.crash().await;
    }
    world.pass(ms(20_000)).await;
    assert_eq!(each_once(&world), 200);
    let ended = job(&world, &started).await;
    assert_eq!((ended.done, ended.state), (200, ReplayState::Finished));
    world.check_ledger().await;
}

/// What was accepted after the job began is not its own.
#[tokio::test(start_paused = true)]
async fn delivery_accepted_after_the_bulk_retry_waits_for_its_slot() {
    let world = with_waiting(50).await;
    world.script.set(URL, crate::world::FAIL);
    let started = world.engine.start_replay(&tenant(), waiting(Some(10))).await.unwrap();
    world.pass(ms(1_500)).await;
    let later = world.send().await;
    world.pass(ms(20_000)).await;
    assert_eq!(world.delivery(&later).await.attempts, 1);
    assert_eq!(job(&world, &started).await.done, 50);
}

#[tokio::test(start_paused = true)]
async fn at_a_disabled_destination_one_is_the_probe_and_the_others_follow_its_success() {
    let mut world = World::with(Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 110).await;
    // Their next slots are 44 minutes after the first attempt.
    world.pass(MINUTE * 25).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.script.forget();
    let all = world.count(StateName::Waiting).await;
    let started = world.engine.start_replay(&tenant(), waiting_for(URL)).await.unwrap();
    world.pass(MINUTE).await;
    assert_eq!(job(&world, &started).await.done, 110);
    assert_eq!(world.script.sent().len(), 0, "not past the circuit");
    world.script.set(URL, OK);
    world.pass(TEN_MINUTES - MINUTE).await;
    assert_eq!(each_once(&world), all, "before their slots");
    assert_eq!(world.count(StateName::Delivered).await, all);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn where_the_probe_fails_the_others_follow_their_slots_again() {
    let mut world = World::with(Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 110).await;
    world.pass(MINUTE * 25).await;
    assert_eq!(world.state(URL).await, "disabled");
    let before: HashMap<_, _> =
        world.deliveries().await.iter().map(|one| (one.id, one.next_attempt_at())).collect();
    world.script.forget();
    world.engine.start_replay(&tenant(), waiting_for(URL)).await.unwrap();
    world.pass(ms(660_000)).await;
    let probes = world.script.sent().len();
    assert!((1..=2).contains(&probes), "{probes}: probes alone");
    let after = world.deliveries().await;
    let asked = after.iter().filter(|one| one.is_asked_for()).count();
    assert!(asked <= 1, "{asked}: one at most is the next probe");
    let kept = after.iter().filter(|one| one.next_attempt_at() == before[&one.id]).count();
    assert!(kept > 0, "slots that were still to come stay");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn frozen_destinations_are_refused_by_name_and_skipped_otherwise() {
    let mut world = with_waiting(3).await;
    world.subscribe(OTHER).await;
    world.script.set(OTHER, Mood::Answers(500, ms(0)));
    world.send_many(2).await;
    world.run_ready_tasks().await;
    let frozen = DestinationId::of(&tenant(), OTHER);
    world.engine.freeze(&tenant(), frozen, Some("enough".to_owned())).await.unwrap();
    let refused = world.engine.start_replay(&tenant(), waiting_for(OTHER)).await;
    assert!(matches!(refused, Err(CommandError::Frozen { .. })), "{refused:?}");
    let refused = world.engine.count_replay(&tenant(), &waiting_for(OTHER)).await;
    assert!(matches!(refused, Err(CommandError::Frozen { .. })), "{refused:?}");
    world.script.forget();
    let started = world.engine.start_replay(&tenant(), waiting(None)).await.unwrap();
    world.pass(ms(10_000)).await;
    assert!(world.script.sent_to(OTHER).is_empty());
    assert_eq!(world.script.sent_to(URL).len(), 3);
    let ended = job(&world, &started).await;
    assert_eq!((ended.total, ended.done, ended.state), (5, 3, ReplayState::Finished));
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn queued_and_in_flight_deliveries_are_not_for_a_job() {
    let world = with_waiting(1).await;
    for state in [StateName::Queued, StateName::InFlight] {
        let filter = DeliveryFilter { state: Some(state), ..DeliveryFilter::default() };
        let wish = NewReplay { filter, ..NewReplay::default() };
        let wrong = world.engine.start_replay(&tenant(), wish).await;
        assert!(matches!(wrong, Err(CommandError::NotReplayable)), "{wrong:?}");
    }
    // One that is in flight is attempted without the job.
    world.script.set(URL, Mood::Hangs);
    let one = world.deliveries().await.remove(0);
    world.engine.retry(&tenant(), one.id).await.unwrap();
    world.run_ready_tasks().await;
    let started = world.engine.start_replay(&tenant(), waiting(None)).await.unwrap();
    world.pass(ms(1_000)).await;
    assert_eq!(world.script.sent().len(), 1);
    assert_eq!(job(&world, &started).await.done, 0);
    world.pass(HOUR).await;
    world.check_ledger().await;
}
