//! The contract on retrying a delivery now, without waiting for its slot.

use postrider_domain::attempt::Turn;
use postrider_domain::delivery::{CancelReason, Delivery, StateName, WrongState};
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::Policy;
use postrider_engine::{CommandError, Options};

use crate::world::{FAIL, MINUTE, Mood, OK, World, ms, slot, tenant};

const URL: &str = "https://hooks.example.com/in";

/// A world with one delivery that failed and waits for its first retry.
async fn with_one_waiting() -> (World, Delivery) {
    let mut world = World::with(Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 1).await;
    let waiting = world.deliveries().await.remove(0);
    assert_eq!(slot(&waiting), 1);
    world.script.forget();
    (world, waiting)
}

/// A world with a disabled destination and waiting deliveries.
async fn with_disabled() -> World {
    let mut world = World::with(Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 110).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.script.forget();
    world
}

#[tokio::test(start_paused = true)]
async fn delivery_is_sent_at_once_and_keeps_its_slot() {
    let (world, waiting) = with_one_waiting().await;
    world.pass(ms(10_000)).await;
    world.engine.retry(&tenant(), waiting.id).await.unwrap();
    world.run_ready_tasks().await;
    let after = world.deliveries().await.remove(0);
    assert_eq!(world.script.sent().len(), 1);
    assert_eq!((after.attempts, slot(&after)), (2, 1));
    assert_eq!(after.next_attempt_at(), waiting.next_attempt_at(), "the slot stays");
    let log = world.attempts(waiting.id).await;
    assert_eq!(log[1].turn, Turn::Manual);
    // The slot stays: nothing is sent before it, and then its retry.
    world.pass(ms(74_000)).await;
    assert_eq!(world.script.sent().len(), 1);
    world.script.set(URL, OK);
    world.pass(ms(1_000)).await;
    assert_eq!(world.count(StateName::Delivered).await, 1);
    assert_eq!(world.attempts(waiting.id).await[2].turn, Turn::Retry(1));
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn successful_retry_delivers_and_is_not_repeated() {
    let (world, waiting) = with_one_waiting().await;
    world.script.set(URL, OK);
    world.engine.retry(&tenant(), waiting.id).await.unwrap();
    world.pass(MINUTE * 10).await;
    assert_eq!(world.script.sent().len(), 1);
    assert_eq!(world.count(StateName::Delivered).await, 1);
    let again = world.engine.retry(&tenant(), waiting.id).await;
    let expected = WrongState::ToBeReplayed(StateName::Delivered);
    assert!(
        matches!(again, Err(CommandError::WrongState(wrong)) if wrong == expected),
        "{again:?}"
    );
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn requested_retry_survives_a_crash() {
    let (mut world, waiting) = with_one_waiting().await;
    world.script.set(URL, Mood::Hangs);
    world.engine.retry(&tenant(), waiting.id).await.unwrap();
    world.run_ready_tasks().await;
    world.script.set(URL, OK);
    world.crash().await;
    assert_eq!(world.count(StateName::Delivered).await, 1, "before its slot");
}

#[tokio::test(start_paused = true)]
async fn at_a_disabled_destination_it_is_the_next_probe() {
    let world = with_disabled().await;
    // The delivery that would be the last one to be probed.
    let all = world.deliveries().await;
    let last = all.iter().max_by_key(|one| one.probe_rank()).unwrap();
    let asked = world.engine.retry(&tenant(), last.id).await.unwrap();
    assert!(asked.next_attempt_at().unwrap() > world.now());
    world.run_ready_tasks().await;
    assert_eq!(world.script.sent().len(), 0, "not before its time");
    world.script.set(URL, OK);
    world.pass(MINUTE * 11).await;
    let first = &world.script.sent()[0];
    assert_eq!(first.delivery, last.id);
    let log = world.attempts(last.id).await;
    assert_eq!(log.last().unwrap().turn, Turn::Probe);
    world.check_ledger().await;
}

/// Of two that were requested, the one that was requested last.
#[tokio::test(start_paused = true)]
async fn it_is_the_next_probe_also_after_a_restart() {
    // The second process begins before the probe is due, and the third after that.
    for downtime in [ms(0), MINUTE * 30] {
        let mut world = with_disabled().await;
        let mut all = world.deliveries().await;
        all.sort_by_key(postrider_domain::delivery::Delivery::probe_rank);
        let [.., before, last] = &all[..] else { panic!("none waits") };
        world.engine.retry(&tenant(), before.id).await.unwrap();
        world.engine.retry(&tenant(), last.id).await.unwrap();
        world.crash_for(downtime).await;
        world.script.set(URL, OK);
        world.pass(MINUTE * 11).await;
        assert_eq!(world.script.sent()[0].delivery, last.id, "after {downtime:?}");
        assert_eq!(world.attempts(last.id).await[1].turn, Turn::Probe);
        assert_eq!(world.destination(URL).await.circuit.next_probe, None);
        world.check_ledger().await;
    }
}

/// A destination that takes one at a time, with one delivery in flight and others that are due.
async fn with_many_due(mood: Mood) -> World {
    let options = Options { destination_in_flight_max: 1, ..Options::default() };
    let mut policy = Policy::default();
    policy.circuit.disable_grace = 10;
    let mut world = World::with(policy, options).await;
    world.subscribe(URL).await;
    world.fail(URL, 10).await;
    world.script.set(URL, mood);
    world.pass(ms(84_900)).await;
    assert_eq!((world.script.in_flight(), world.state(URL).await), (1, "enabled"));
    world
}

#[tokio::test(start_paused = true)]
async fn wish_for_a_delivery_that_is_due_already_survives_the_disabling_of_its_destination() {
    let world = with_many_due(Mood::Hangs).await;
    let waiting = world.deliveries().await;
    let last = waiting.iter().filter(|one| one.attempts == 1).max_by_key(|one| one.id).unwrap();
    let in_flight = waiting.iter().min_by_key(|one| one.id).unwrap();
    assert_ne!(in_flight.id, last.id);
    let asked = world.engine.retry(&tenant(), last.id).await.unwrap();
    assert!(asked.is_asked_for(), "{asked:?}");
    assert_eq!(slot(&asked), 1, "its slot stays");
    // The eleventh failure disables the destination. All others are turned away.
    world.pass(ms(6_000)).await;
    assert_eq!(world.state(URL).await, "disabled");
    world.script.forget();
    world.script.set(URL, OK);
    world.pass(MINUTE * 10).await;
    assert_eq!(world.script.sent()[0].delivery, last.id, "it is the next probe");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn delivery_that_is_due_already_is_attempted_once_when_it_is_requested() {
    let world = with_many_due(Mood::Answers(200, ms(3_000))).await;
    let waiting = world.deliveries().await;
    let last = waiting.iter().filter(|one| one.attempts == 1).max_by_key(|one| one.id).unwrap();
    for _ in 0..3 {
        world.engine.retry(&tenant(), last.id).await.unwrap();
    }
    world.script.set(URL, OK);
    world.pass(ms(6_000)).await;
    assert_eq!(world.attempts(last.id).await.len(), 2, "once, in the place of its slot");
    assert_eq!(world.count(StateName::Delivered).await, 10);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn at_a_frozen_destination_it_is_refused() {
    let (world, waiting) = with_one_waiting().await;
    let id = DestinationId::of(&tenant(), URL);
    world.engine.freeze(&tenant(), id, Some("enough".to_owned())).await.unwrap();
    let refused = world.engine.retry(&tenant(), waiting.id).await;
    assert!(matches!(refused, Err(CommandError::Frozen { .. })), "{refused:?}");
    world.engine.enable(&tenant(), id, None).await.unwrap();
    world.script.set(URL, OK);
    world.engine.retry(&tenant(), waiting.id).await.unwrap();
    world.run_ready_tasks().await;
    assert_eq!(world.count(StateName::Delivered).await, 1);
}

#[tokio::test(start_paused = true)]
async fn retry_of_an_in_flight_ended_or_unknown_delivery_is_refused() {
    let (world, waiting) = with_one_waiting().await;
    world.script.set(URL, Mood::Hangs);
    world.engine.retry(&tenant(), waiting.id).await.unwrap();
    world.run_ready_tasks().await;
    let twice = world.engine.retry(&tenant(), waiting.id).await;
    let expected = WrongState::OnItsWay(StateName::InFlight);
    assert!(
        matches!(twice, Err(CommandError::WrongState(wrong)) if wrong == expected),
        "{twice:?}"
    );
    world.script.set(URL, FAIL);
    world.pass(ms(6_000)).await;
    world.engine.cancel(&tenant(), waiting.id).await.unwrap();
    let ended = world.engine.retry(&tenant(), waiting.id).await;
    assert!(matches!(ended, Err(CommandError::WrongState(_))), "{ended:?}");
    let other = "other".parse().unwrap();
    let unknown = world.engine.retry(&other, waiting.id).await;
    assert!(matches!(unknown, Err(CommandError::NotFound)), "{unknown:?}");
    let cancelled = world.deliveries().await.remove(0);
    assert!(cancelled.cancelled(CancelReason::Asked, world.now()).is_err());
    world.check_ledger().await;
}
