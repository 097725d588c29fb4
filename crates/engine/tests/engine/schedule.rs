//! The contract on the retry schedule.

use postrider_domain::attempt::Turn;
use postrider_domain::delivery::{DeadReason, DeliveryState, StateName};
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{CircuitPolicy, MeasuredFrom, Policy, RetryPolicy, Share};
use postrider_engine::Options;

use crate::world::{
    FAIL, HOUR, MINUTE, Mood, OFFSETS_MS, OK, TEN_MINUTES, World, ms, slot, tenant,
};

const URL: &str = "https://hooks.example.com/in";

#[tokio::test(start_paused = true)]
async fn retries_fall_due_at_their_offsets_from_the_first_attempt_to_the_millisecond() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    // However long an attempt takes, the offsets count from the first one.
    world.script.set(URL, Mood::Hangs);
    let ingested = world.send().await;
    world.pass(HOUR * 49).await;
    let mut expected = vec![0];
    expected.extend(OFFSETS_MS);
    assert_eq!(world.offsets(URL), expected);
    let delivery = world.delivery(&ingested).await;
    assert_eq!(delivery.attempts, 12, "the first one and eleven retries");
    let at = world.script.sent_to(URL)[11].at.saturating_add(ms(5_000));
    assert_eq!(delivery.state, DeliveryState::Dead { at, reason: DeadReason::Exhausted });
    let turns: Vec<_> = world.attempts(delivery.id).await.iter().map(|a| a.turn).collect();
    assert_eq!((turns[0], turns[1], turns[11]), (Turn::First, Turn::Retry(1), Turn::Retry(11)));
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn the_other_reading_counts_from_the_attempt_before_and_ends_at_the_same_time() {
    let retry =
        RetryPolicy { measured_from: MeasuredFrom::PreviousAttempt, ..RetryPolicy::default() };
    let mut world = World::with(Policy { retry, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    world.send().await;
    world.pass(HOUR * 60).await;
    let offsets = world.offsets(URL);
    assert_eq!(offsets[1], 84_800);
    assert_eq!(offsets[2], 84_800 + 254_400);
    assert_eq!(offsets[3], 84_800 + 254_400 + 593_600);
    assert_eq!(*offsets.last().unwrap(), 173_585_600);
}

#[tokio::test(start_paused = true)]
async fn jitter_moves_a_retry_later_and_by_no_more_than_its_share() {
    let retry = RetryPolicy { jitter: Share::percent(50), ..RetryPolicy::default() };
    let mut world = World::with(Policy { retry, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    world.script.first(URL, vec![FAIL; 50]);
    world.send_many(50).await;
    world.pass(TEN_MINUTES).await;
    let retries = world.offsets(URL).split_off(50);
    assert_eq!(retries.len(), 50);
    assert!(retries.iter().all(|&at| (84_800..84_800 + 42_400).contains(&at)), "{retries:?}");
    let mut different = retries.clone();
    different.dedup();
    assert!(different.len() > 40, "they are spread");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_passes_while_the_circuit_is_open_is_spent() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let id = DestinationId::of(&tenant(), URL);
    world.script.first(URL, [FAIL]);
    let ingested = world.send().await;
    world.engine.freeze(&tenant(), id, None).await.unwrap();
    world.pass(ms(100_000)).await;
    let delivery = world.delivery(&ingested).await;
    assert_eq!((delivery.attempts, slot(&delivery)), (1, 2), "slot 1 is spent without an attempt");
    world.engine.enable(&tenant(), id, None).await.unwrap();
    world.pass(ms(254_400 - 100_000)).await;
    assert_eq!(world.offsets(URL), [0, 254_400], "it takes its next slot");
}

#[tokio::test(start_paused = true)]
async fn a_slot_missed_in_downtime_is_made_up_at_once_and_several_by_one_attempt() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let ingested = world.send().await;
    // Slots 1, 2 and 3 are in the downtime.
    world.crash_for(MINUTE * 15).await;
    assert_eq!(world.offsets(URL), [0, 900_000], "made up at once, by one attempt");
    let delivery = world.delivery(&ingested).await;
    assert_eq!((delivery.attempts, slot(&delivery)), (2, 4));
    world.pass(ms(1_272_000 - 900_000)).await;
    assert_eq!(world.offsets(URL), [0, 900_000, 1_272_000], "and then the schedule goes on");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_whose_last_slot_fell_into_downtime_still_gets_its_last_attempt() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let ingested = world.send().await;
    world.pass(HOUR * 25).await;
    assert_eq!(world.script.sent().len(), 11);
    world.crash_for(HOUR * 100).await;
    assert_eq!(world.script.sent().len(), 12);
    assert_eq!(world.delivery(&ingested).await.state.name(), StateName::Dead);

    // If that attempt succeeds, the delivery is delivered.
    world.script.forget();
    let ingested = world.send().await;
    world.pass(HOUR * 25).await;
    world.script.set(URL, OK);
    world.crash_for(HOUR * 100).await;
    assert_eq!(world.delivery(&ingested).await.state.name(), StateName::Delivered);
}

#[tokio::test(start_paused = true)]
async fn retry_after_moves_a_retry_later_never_earlier_and_never_past_the_last_slot() {
    for (status, delay, expected) in [
        (429, ms(200_000), 200_000),
        (503, ms(200_000), 200_000),
        (429, ms(10_000), 84_800),
        (500, ms(200_000), 84_800),
        (429, HOUR * 1000, 173_585_600),
    ] {
        let mut world = World::new().await;
        world.subscribe(URL).await;
        world.script.first(URL, [Mood::Later(status, delay)]);
        world.send().await;
        world.pass(HOUR * 49).await;
        assert_eq!(world.offsets(URL), [0, expected], "{status} after {delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn gone_freezes_the_destination_with_that_reason() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Answers(410, ms(1)));
    let ingested = world.send().await;
    world.pass(ms(1)).await;
    assert_eq!(world.state(URL).await, "frozen");
    let evidence = world.destination(URL).await.evidence().cloned();
    assert_eq!(evidence, Some(postrider_domain::circuit::Evidence::Gone));
    world.pass(HOUR * 49).await;
    assert_eq!(world.script.sent().len(), 1, "never attempted again");
    let delivery = world.delivery(&ingested).await;
    assert!(matches!(delivery.state, DeliveryState::Dead { reason: DeadReason::NotAdmitted, .. }));
}

#[tokio::test(start_paused = true)]
async fn far_slots_wait_in_the_store_and_not_in_memory() {
    let circuit = CircuitPolicy { disable_grace: 100_000, ..CircuitPolicy::default() };
    let mut world = World::with(Policy { circuit, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    world.fail(URL, 500).await;
    world.pass(HOUR * 3 + MINUTE).await;
    let gauges = world.engine.gauges().await.unwrap();
    assert_eq!((gauges.resident, gauges.due), (0, 0), "{gauges:?}");
    assert_eq!(world.count(StateName::Waiting).await, 500);
    world.script.set(URL, OK);
    world.pass(HOUR * 3).await;
    assert_eq!(world.count(StateName::Delivered).await, 500);
}
