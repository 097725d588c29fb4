//! The life of a delivery as traces: the inputs, and the slot after each of them.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::event::{Event, RawJson};
use crate::policy::MeasuredFrom;

const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

fn at(ms: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(ms))
}

fn new_delivery() -> Delivery {
    let event = Event {
        id: "evt_1".parse().unwrap(),
        tenant: TenantId::default_tenant(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: RawJson::from_trusted(Bytes::from_static(b"{}")),
        old: None,
        time: START,
        trace: None,
    };
    Delivery::accepted(
        DeliveryId::new(START, [1; 10]),
        &event,
        SubscriptionId::new(START, [2; 10]),
        DestinationId::of(&event.tenant, "https://hooks.example.com/in"),
        START,
    )
}

/// `queued`, `3@593600` (slot 3, due 593,600 ms after the start), `delivered`, `dead(exhausted)`, …
fn shown(delivery: &Delivery) -> String {
    match delivery.state {
        DeliveryState::Queued => "queued".into(),
        DeliveryState::Waiting(slot) => {
            format!("{}@{}", slot.number, slot.due_at.since(START).as_millis())
        }
        DeliveryState::Delivered { .. } => "delivered".into(),
        DeliveryState::Dead { reason: DeadReason::Exhausted, .. } => "dead(exhausted)".into(),
        DeliveryState::Dead { reason: DeadReason::NotAdmitted, .. } => "dead(not admitted)".into(),
        DeliveryState::Cancelled { .. } => "cancelled".into(),
    }
}

/// Each step is an input at a time in ms after acceptance: `fail@10+5` is an attempt that began at
/// 10 and failed 5 ms later; `probe-fail`, `ok`, `turned-away`, `replay`, `cancel` likewise.
fn run(policy: &RetryPolicy, steps: &str) -> (Delivery, String) {
    let mut delivery = new_delivery();
    let mut trace = Vec::new();
    for step in steps.split_whitespace() {
        let (word, times) = step.split_once('@').unwrap();
        let (begin, took) = times.split_once('+').unwrap_or((times, "0"));
        let begin: u64 = begin.parse().unwrap();
        let end = at(begin + took.parse::<u64>().unwrap());
        let begin = at(begin);
        let turn = delivery.turn();
        delivery = match word {
            "fail" => delivery.failed(turn.unwrap(), begin, None, end, policy),
            "fail-wait-1h" => {
                let wish = end.saturating_add(Duration::from_secs(3_600));
                delivery.failed(turn.unwrap(), begin, Some(wish), end, policy)
            }
            "probe-fail" => delivery.failed(Turn::Probe, begin, None, end, policy),
            "ok" => delivery.delivered(begin, end),
            "turned-away" => delivery.not_admitted(begin, policy),
            "replay" => delivery.replayed(begin).unwrap(),
            "cancel" => delivery.cancelled(CancelReason::Asked, begin).unwrap(),
            other => panic!("what is {other}?"),
        };
        trace.push(shown(&delivery));
    }
    (delivery, trace.join(" "))
}

#[track_caller]
fn check(steps: &str, expected: &str) -> Delivery {
    let (delivery, trace) = run(&RetryPolicy::default(), steps);
    assert_eq!(trace, expected);
    delivery
}

#[test]
fn successful_first_attempt_ends_the_delivery() {
    let delivery = check("ok@3+40", "delivered");
    assert_eq!(delivery.attempts, 1);
    assert_eq!(delivery.last_attempt_at, Some(at(3)));
    assert_eq!(delivery.finished_at(), Some(at(43)));
    assert_eq!((delivery.turn(), delivery.lane(), delivery.next_attempt_at()), (None, None, None));
}

#[test]
fn offsets_count_from_the_start_of_the_first_attempt() {
    check("fail@7+5000 fail@84807+5000 ok@254407", "1@84807 2@254407 delivered");
}

#[test]
fn delivery_is_dead_after_the_first_attempt_and_eleven_retries() {
    let delivery = check(
        "fail@0 fail@84800 fail@254400 fail@593600 fail@1272000 fail@2628800 fail@5342400 \
         fail@10769600 fail@21624000 fail@43332800 fail@86750400 fail@173585600",
        "1@84800 2@254400 3@593600 4@1272000 5@2628800 6@5342400 7@10769600 8@21624000 9@43332800 \
         10@86750400 11@173585600 dead(exhausted)",
    );
    assert_eq!(delivery.attempts, 12);
    assert_eq!(delivery.finished_at(), Some(at(173_585_600)));
}

#[test]
fn delivery_that_is_not_admitted_waits_from_acceptance_without_an_attempt() {
    let delivery =
        check("turned-away@3 turned-away@84800 turned-away@254400", "1@84800 2@254400 3@593600");
    assert_eq!((delivery.attempts, delivery.last_attempt_at), (0, None));
}

#[test]
fn delivery_that_is_not_admitted_in_its_last_slot_is_dead() {
    check("turned-away@86750400 turned-away@173585600", "11@173585600 dead(not admitted)");
    check("fail@0 turned-away@173585600", "1@84800 dead(not admitted)");
    // A circuit that does not admit a delivery before its slot is due spends nothing.
    check("fail@0 turned-away@84799", "1@84800 1@84800");
}

#[test]
fn slots_missed_in_our_downtime_are_made_up_by_one_attempt() {
    // Due at 84,800, but the server was down until 3,000,000: one attempt, then the next future
    // slot.
    check("fail@0 fail@3000000+100", "1@84800 6@5342400");
    // Its last slot fell into the downtime: it still gets its last attempt.
    check("fail@0 fail@200000000+100", "1@84800 dead(exhausted)");
    check("fail@0 ok@200000000+100", "1@84800 delivered");
}

#[test]
fn a_slot_that_falls_due_in_flight_is_spent() {
    check("fail@0+84800", "2@254400");
    check("fail@0+84799", "1@84800");
    check("fail@0 probe-fail@84000+800", "1@84800 2@254400");
    // The same with the last slot: then it is dead.
    check(
        "fail@0 turned-away@86750400 probe-fail@173585000+700",
        "1@84800 11@173585600 dead(exhausted)",
    );
}

#[test]
fn a_probe_takes_no_slot_and_does_not_move_the_clock() {
    let delivery = check("fail@0 probe-fail@600+200 fail@84800", "1@84800 1@84800 2@254400");
    assert_eq!(delivery.attempts, 3, "it counts as an attempt");
    // A new delivery that is taken as the probe: its clock started at acceptance.
    let delivery = check("probe-fail@5+200 fail@84800", "1@84800 2@254400");
    assert_eq!(delivery.attempts, 2);
    check("turned-away@0 probe-fail@600000 ok@1272000", "1@84800 4@1272000 delivered");
}

#[test]
fn retry_after_header_moves_the_retry_later() {
    check("fail-wait-1h@0 fail@3600000", "1@3600000 6@5342400");
    check("fail@0 fail-wait-1h@86750400 fail@173585600", "1@84800 11@173585600 dead(exhausted)");
    check("fail@0 probe-fail@5", "1@84800 1@84800");
}

#[test]
fn a_replay_starts_a_new_schedule_and_keeps_the_count() {
    let delivery = check(
        "fail@0 turned-away@173585600 replay@200000000 fail@200000500 ok@200085300",
        "1@84800 dead(not admitted) 0@200000000 1@200085300 delivered",
    );
    assert_eq!(delivery.attempts, 3);
    // It is in the retry lane from the start; if it is not admitted, its clock starts at the
    // replay.
    let delivery = check("ok@0 replay@10 turned-away@20", "delivered 0@10 1@84810");
    assert_eq!(delivery.lane(), Some(Lane::Retry));
    check("ok@0 replay@10 probe-fail@20", "delivered 0@10 1@84810");
    check("cancel@0 replay@10 ok@20", "cancelled 0@10 delivered");
}

#[test]
fn only_ended_deliveries_are_replayed_and_only_unfinished_ones_cancelled() {
    let queued = new_delivery();
    let refused = queued.replayed(START).unwrap_err();
    assert_eq!(refused, WrongState::Unfinished(StateName::Queued));
    assert!(refused.to_string().contains("its first attempt is made as soon as"), "{refused}");
    let waiting = check("fail@0", "1@84800");
    let refused = waiting.replayed(START).unwrap_err();
    assert_eq!(refused, WrongState::Unfinished(StateName::Waiting));
    assert!(refused.to_string().contains("POST /v1/deliveries/{id}/retry"), "{refused}");
    for (steps, end, name) in [
        ("ok@0", "delivered", StateName::Delivered),
        ("cancel@0", "cancelled", StateName::Cancelled),
        ("turned-away@173585600", "dead(not admitted)", StateName::Dead),
    ] {
        let ended = check(steps, end);
        let refused = ended.cancelled(CancelReason::Asked, START);
        assert_eq!(refused, Err(WrongState::Finished(name)));
        assert!(refused.unwrap_err().to_string().contains(name.as_str()));
        assert!(ended.replayed(START).is_ok());
        assert_eq!(ended.not_admitted(START, &RetryPolicy::default()), ended);
    }
}

#[test]
fn delivery_cancelled_in_flight_stays_cancelled_but_the_attempt_counts() {
    let cancelled = check("fail@0 cancel@84801", "1@84800 cancelled");
    let late = cancelled.delivered(at(84_800), at(84_900));
    assert_eq!(shown(&late), "cancelled");
    assert_eq!(late.attempts, 2);
    let late =
        cancelled.failed(Turn::Retry(1), at(84_800), None, at(84_900), &RetryPolicy::default());
    assert_eq!((shown(&late).as_str(), late.attempts), ("cancelled", 2));
    assert_eq!(late.finished_at(), Some(at(84_801)));
}

#[test]
fn measured_from_the_previous_attempt_a_passed_slot_counts_as_one() {
    let policy =
        RetryPolicy { measured_from: MeasuredFrom::PreviousAttempt, ..RetryPolicy::default() };
    let (_, trace) = run(&policy, "fail@0 fail@100000+10 turned-away@354400 turned-away@948000");
    assert_eq!(trace, "1@84800 2@354400 3@948000 4@2220000");
}

#[test]
fn turns_and_lanes_follow_the_state() {
    let queued = new_delivery();
    assert_eq!((queued.turn(), queued.lane()), (Some(Turn::First), Some(Lane::First)));
    assert_eq!(queued.next_attempt_at(), Some(START));
    assert_eq!(queued.finished_at(), None);
    let waiting = check("fail@0", "1@84800");
    assert_eq!((waiting.turn(), waiting.lane()), (Some(Turn::Retry(1)), Some(Lane::Retry)));
    assert_eq!(waiting.next_attempt_at(), Some(at(84_800)));
    let replayed = check("ok@0 replay@1", "delivered 0@1");
    assert_eq!(replayed.turn(), Some(Turn::First));
}

#[test]
fn the_probe_is_the_one_never_attempted_then_the_one_attempted_longest_ago() {
    let never = check("turned-away@0", "1@84800");
    let long_ago = check("fail@1", "1@84801");
    let lately = check("fail@2", "1@84802");
    let mut waiting = [&lately, &never, &long_ago];
    waiting.sort_by_key(|delivery| delivery.probe_rank());
    assert_eq!(waiting.map(|d| d.last_attempt_at), [None, Some(at(1)), Some(at(2))]);
}

#[test]
fn state_round_trips_through_its_stored_form() {
    for steps in ["fail@0", "ok@0", "cancel@0", "turned-away@173585600", "ok@0 replay@1"] {
        let (delivery, _) = run(&RetryPolicy::default(), steps);
        let json = serde_json::to_string(&delivery.state).unwrap();
        assert_eq!(serde_json::from_str::<DeliveryState>(&json).unwrap(), delivery.state);
        assert!(json.contains(&format!("\"state\":\"{}\"", delivery.state.name())), "{json}");
    }
    assert_eq!(new_delivery().state.name().to_string(), "queued");
    assert_eq!(StateName::InFlight.to_string(), "in_flight");
}

proptest! {
    #[test]
    fn no_more_than_twelve_attempts_and_none_after_the_last_slot(
        steps in proptest::collection::vec((0u8..4, 0u64..6_000, 0u64..30_000_000), 1..200),
    ) {
        let policy = RetryPolicy::default();
        let mut delivery = new_delivery();
        let (mut now, mut ordinary, mut last_due) = (START, 0, None);
        for (what, took, idle) in steps {
            let Some(due_at) = delivery.next_attempt_at() else { break };
            // Probes come early; all other attempts wait for their slot, and may be late.
            if what != 0 {
                now = now.max(due_at).saturating_add(Duration::from_millis(idle));
            }
            let end = now.saturating_add(Duration::from_millis(took));
            let turn = delivery.turn().unwrap();
            let before = delivery.clone();
            delivery = match what {
                0 => delivery.failed(Turn::Probe, now, None, end, &policy),
                1 => delivery.not_admitted(now, &policy),
                _ => {
                    ordinary += 1;
                    delivery.failed(turn, now, None, end, &policy)
                }
            };
            prop_assert!(ordinary <= 12);
            if let DeliveryState::Waiting(slot) = delivery.state {
                prop_assert!(slot.due_at > now, "a slot is always still to come");
                let spent = match before.state {
                    DeliveryState::Waiting(before) => before.number,
                    DeliveryState::Queued
                    | DeliveryState::Delivered { .. }
                    | DeliveryState::Dead { .. }
                    | DeliveryState::Cancelled { .. } => 0,
                };
                prop_assert!(slot.number >= spent);
                if what > 1 {
                    prop_assert!(slot.number > spent);
                    prop_assert!(last_due < Some(slot.due_at), "due times strictly increase");
                    last_due = Some(slot.due_at);
                }
            }
            now = if what == 0 { end } else { now.max(end) };
        }
    }
}

#[test]
fn manual_attempt_takes_no_slot() {
    let policy = RetryPolicy::default();
    let waiting = new_delivery().failed(Turn::First, at(0), None, at(5), &policy);
    let DeliveryState::Waiting(slot) = waiting.state else { panic!("{waiting:?}") };
    let asked = waiting.asked_for(at(1_000)).unwrap();
    assert_eq!(asked.next_attempt_at(), Some(at(1_000)));
    assert_eq!((asked.turn(), asked.lane()), (Some(Turn::Manual), Some(Lane::Retry)));
    assert!(asked.is_asked_for() && !waiting.is_asked_for());
    // A second request replaces the first.
    assert_eq!(asked.asked_for(at(2_000)).unwrap().next_attempt_at(), Some(at(2_000)));
    // The manual attempt fails: the slot stays the same.
    let failed = asked.failed(Turn::Manual, at(1_000), None, at(1_010), &policy);
    assert_eq!(failed.state, DeliveryState::Waiting(slot));
    assert_eq!((failed.attempts, failed.turn()), (2, Some(Turn::Retry(1))));
    // The receiver asks for a later retry: the slot moves as after any failure.
    let wish = Some(at(200_000));
    let failed = asked.failed(Turn::Manual, at(1_000), wish, at(1_010), &policy);
    assert_eq!(failed.next_attempt_at(), wish);
    // The slot passed while the delivery was in flight: it is spent.
    let late = asked.failed(Turn::Manual, at(84_799), None, at(84_801), &policy);
    assert_eq!((late.turn(), late.next_attempt_at()), (Some(Turn::Retry(2)), Some(at(254_400))));
    // The circuit does not admit it: the slot stays the same, or is the next one if it has passed.
    assert_eq!(asked.not_admitted(at(1_000), &policy).state, DeliveryState::Waiting(slot));
    assert_eq!(asked.not_admitted(at(90_000), &policy).turn(), Some(Turn::Retry(2)));
}

#[test]
fn manual_attempt_after_the_slot_changes_nothing() {
    let waiting = new_delivery().failed(Turn::First, at(0), None, at(5), &RetryPolicy::default());
    assert_eq!(waiting.asked_for(at(84_800)).unwrap(), waiting);
    let asked = waiting.asked_for(at(84_799)).unwrap();
    assert_eq!(asked.asked_for(at(84_800)).unwrap(), waiting, "its slot comes first");
}

#[test]
fn manual_attempt_takes_the_place_of_a_slot_that_is_due() {
    let policy = RetryPolicy::default();
    let waiting = new_delivery().failed(Turn::First, at(0), None, at(5), &policy);
    let asked = waiting.asked_for_now(at(90_000)).unwrap();
    assert!(asked.is_asked_for());
    assert_eq!((asked.turn(), asked.next_attempt_at()), (Some(Turn::Manual), Some(at(84_799))));
    assert_eq!(asked.asked_for_now(at(91_000)).unwrap(), asked, "once");
    // Its attempt fails, or is not admitted: the slot is spent.
    let failed = asked.failed(Turn::Manual, at(90_000), None, at(90_001), &policy);
    assert_eq!(failed.turn(), Some(Turn::Retry(2)));
    assert_eq!(asked.not_admitted(at(90_000), &policy).turn(), Some(Turn::Retry(2)));
    // Before its slot the attempt is made now.
    assert_eq!(waiting.asked_for_now(at(7)).unwrap().next_attempt_at(), Some(at(7)));
    assert!(new_delivery().asked_for_now(at(7)).is_err());
}

#[test]
fn only_a_waiting_delivery_can_be_retried_now() {
    let queued = new_delivery();
    assert_eq!(queued.asked_for(at(1)), Err(WrongState::OnItsWay(StateName::Queued)));
    for ended in [
        queued.delivered(at(1), at(2)),
        queued.cancelled(CancelReason::Asked, at(1)).unwrap(),
        Delivery {
            state: DeliveryState::Dead { at: at(9), reason: DeadReason::Exhausted },
            ..queued.clone()
        },
    ] {
        let expected = WrongState::ToBeReplayed(ended.state.name());
        assert_eq!(ended.asked_for(at(10)), Err(expected));
    }
}
