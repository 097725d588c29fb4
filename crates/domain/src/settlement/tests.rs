//! One outcome changes everything that it should, at once, and nothing else.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::attempt::{Answer, BodyEnd, Ending, Failure, FailureClass, OwnFault, OwnFaultKind};
use crate::attempt::{RetryAfter, Timings};
use crate::circuit::{Circuit, Evidence, StateName as CircuitName};
use crate::delivery::{DeadReason, DeliveryState, StateName};
use crate::event::{Event, RawJson};
use crate::ids::{DeliveryId, SubscriptionId, TenantId};
use crate::ledger::{Ledger, LedgerMove, movement};
use crate::policy::CircuitPolicy;

const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

fn at(ms: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(ms))
}

fn status(status: u16) -> Ending {
    let retry_after = (status == 429).then_some(RetryAfter::Delay(Duration::from_secs(3_600)));
    Ending::Answered(Answer { status, retry_after, body: Bytes::new(), body_end: BodyEnd::Whole })
}

fn refused() -> Ending {
    Ending::Failed(Failure { class: FailureClass::Refused, detail: String::new() })
}

fn our_fault() -> Ending {
    Ending::OwnFault(OwnFault { kind: OwnFaultKind::Resolver, detail: String::new() })
}

fn finished(started_at: Timestamp, ending: Ending) -> Finished {
    Finished { started_at, timings: Timings::default(), ending }
}

fn pair() -> (Delivery, Destination) {
    let tenant = TenantId::default_tenant();
    let event = Event {
        id: "evt_1".parse().unwrap(),
        tenant: tenant.clone(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: RawJson::from_trusted(Bytes::from_static(b"{}")),
        old: None,
        time: START,
        trace: None,
    };
    let destination = Destination::new(tenant, "https://hooks.example.com/in".into(), START);
    let subscription = SubscriptionId::new(START, [2; 10]);
    let id = DeliveryId::new(START, [1; 10]);
    (Delivery::accepted(id, &event, subscription, destination.id, START), destination)
}

fn settle_at(turn: Turn, ending: Ending, ms: u64) -> Settlement {
    let (delivery, destination) = pair();
    let policy = Policy::default();
    let done = finished(at(ms), ending);
    settle(&delivery, &destination, turn, done, at(ms + 5), Suspension::Off, &policy)
}

/// The move in the ledger that a settlement causes.
fn step_of(before: StateName, settled: &Settlement) -> Option<LedgerMove> {
    movement(before, &settled.delivery, Some(&settled.attempt)).step
}

#[test]
fn success_delivers_and_updates_the_circuit() {
    let settled = settle_at(Turn::First, status(204), 10);
    assert_eq!(settled.delivery.state, DeliveryState::Delivered { at: at(15) });
    assert_eq!(settled.destination.circuit.counters.successes, 1);
    assert_eq!(settled.destination.circuit.last_success_at, at(15));
    let moved = LedgerMove { from: StateName::Queued, to: StateName::Delivered };
    assert_eq!(step_of(StateName::Queued, &settled), Some(moved));
    assert_eq!((settled.attempt.number, settled.attempt.turn), (1, Turn::First));
    assert_eq!(settled.attempt.started_at, at(10));
    assert_eq!((settled.transition, settled.warning), (None, None));
}

#[test]
fn a_failure_counts_in_all_places_and_schedules_the_retry() {
    for ending in [status(500), status(302), status(404), refused()] {
        let settled = settle_at(Turn::First, ending.clone(), 10);
        assert_eq!(settled.delivery.next_attempt_at(), Some(at(10 + 84_800)));
        assert_eq!(settled.delivery.attempts, 1);
        assert_eq!(settled.destination.circuit.counters.failures, 1);
        assert_eq!(settled.destination.circuit.counters.consecutive_failures, 1);
        let moved = LedgerMove { from: StateName::Queued, to: StateName::Waiting };
        assert_eq!(step_of(StateName::Queued, &settled), Some(moved));
        assert_eq!(settled.attempt.ending, ending);
    }
}

#[test]
fn a_fault_of_our_own_spares_the_destination() {
    let (_, destination) = pair();
    let settled = settle_at(Turn::First, our_fault(), 10);
    assert_eq!(settled.destination, destination);
    assert_eq!(settled.delivery.next_attempt_at(), Some(at(10 + 84_800)));
    assert_eq!(settled.delivery.attempts, 1);
}

#[test]
fn retry_after_of_the_receiver_is_respected() {
    let settled = settle_at(Turn::First, status(429), 10);
    assert_eq!(settled.delivery.next_attempt_at(), Some(at(15 + 3_600_000)));
}

#[test]
fn gone_freezes_the_destination_and_the_delivery_waits() {
    let settled = settle_at(Turn::First, status(410), 10);
    let transition = settled.transition.unwrap();
    assert_eq!((transition.to, &transition.evidence), (CircuitName::Frozen, &Evidence::Gone));
    assert_eq!(settled.delivery.state.name(), StateName::Waiting);
}

#[test]
fn the_hundred_and_first_failure_disables_and_says_so_in_the_same_settlement() {
    let (delivery, mut destination) = pair();
    let policy = Policy::default();
    for n in 1..=101 {
        let done = finished(START, refused());
        let settled =
            settle(&delivery, &destination, Turn::First, done, START, Suspension::Off, &policy);
        assert_eq!(settled.transition.is_some(), n == 101, "failure {n}");
        assert_eq!(settled.warning.is_some(), n == 51 || n == 91, "failure {n}");
        destination = settled.destination;
    }
    let done = finished(START, refused());
    let settled =
        settle(&delivery, &destination, Turn::First, done, START, Suspension::On, &policy);
    assert_eq!(settled.transition, None);
}

#[test]
fn the_last_failure_makes_it_dead() {
    let (delivery, destination) = pair();
    let mut policy = Policy::default();
    policy.retry.max = 0;
    let done = finished(START, refused());
    let settled =
        settle(&delivery, &destination, Turn::First, done, at(5), Suspension::Off, &policy);
    let dead = DeliveryState::Dead { at: at(5), reason: DeadReason::Exhausted };
    assert_eq!(settled.delivery.state, dead);
    let moved = LedgerMove { from: StateName::Queued, to: StateName::Dead };
    assert_eq!(step_of(StateName::Queued, &settled), Some(moved));
}

#[test]
fn a_retry_that_fails_again_moves_nothing_in_the_ledger() {
    let (delivery, destination) = pair();
    let policy = Policy::default();
    let first = finished(START, refused());
    let settled =
        settle(&delivery, &destination, Turn::First, first, START, Suspension::Off, &policy);
    let second = finished(at(84_800), refused());
    let turn = settled.delivery.turn().unwrap();
    let again = settle(
        &settled.delivery,
        &settled.destination,
        turn,
        second,
        at(84_900),
        Suspension::Off,
        &policy,
    );
    assert_eq!(step_of(StateName::Waiting, &again), None);
    assert_eq!((again.attempt.number, again.attempt.turn), (2, Turn::Retry(1)));
}

proptest! {
    /// Any sequence of attempts, cancels and replays of many deliveries of one destination keeps
    /// the ledger in balance, and the ledger agrees with counting the deliveries.
    #[test]
    fn settle_conserves_the_ledger(
        steps in proptest::collection::vec((0usize..8, 0u8..8, 0u64..100_000_000), 1..200),
    ) {
        let policy = Policy::default();
        let (template, mut destination) = pair();
        let mut deliveries: Vec<Delivery> = (0..8u8)
            .map(|n| Delivery { id: DeliveryId::new(START, [n; 10]), ..template.clone() })
            .collect();
        let mut ledger = Ledger::default();
        ledger.accept(8);
        let mut now = START;
        for (which, what, idle) in steps {
            now = now.saturating_add(Duration::from_millis(idle));
            let before = deliveries[which].clone();
            let turn = before.turn().unwrap_or(Turn::Probe);
            let ending = match what {
                0 => Some(status(200)),
                1 => Some(refused()),
                2 => Some(status(429)),
                3 => Some(our_fault()),
                _ => None,
            };
            let (after, moved) = match (ending, what) {
                (Some(ending), _) => {
                    let done = finished(now, ending);
                    let s = settle(&before, &destination, turn, done, now, Suspension::Off, &policy);
                    prop_assert_eq!(s.delivery.attempts, before.attempts + 1);
                    prop_assert_eq!(s.attempt.number, s.delivery.attempts);
                    let moved = step_of(before.state.name(), &s);
                    destination = s.destination;
                    (s.delivery, moved)
                }
                (None, 4 | 5) => {
                    let after = before.not_admitted(now, &policy.retry);
                    let moved = movement(before.state.name(), &after, None).step;
                    (after, moved)
                }
                (None, 6) => {
                    let reason = crate::delivery::CancelReason::Asked;
                    let after = before.cancelled(reason, now).unwrap_or(before.clone());
                    let moved = movement(before.state.name(), &after, None).step;
                    (after, moved)
                }
                (None, _) => {
                    let after = before.replayed(now).unwrap_or(before.clone());
                    let moved = movement(before.state.name(), &after, None).step;
                    (after, moved)
                }
            };
            if let Some(moved) = moved {
                ledger.apply(moved).unwrap();
            }
            deliveries[which] = after;
            prop_assert!(ledger.balances());
            for state in StateName::ALL {
                let counted = deliveries.iter().filter(|d| d.state.name() == state).count();
                prop_assert_eq!(ledger.count(state), u64::try_from(counted).unwrap());
            }
        }
    }
}

#[test]
fn wish_for_the_next_probe_lasts_until_it_is_attempted_or_the_circuit_closes_or_is_frozen() {
    let policy = CircuitPolicy::default();
    let (wished, other) = (DeliveryId::from_bytes([1; 16]), DeliveryId::from_bytes([2; 16]));
    let left_by = |change: &dyn Fn(&mut Circuit) -> Option<Transition>| {
        let mut circuit = Circuit::new(START);
        for _ in 0..101 {
            circuit.learn(other, Verdict::Failure, at(0), Suspension::Off, &policy);
        }
        circuit.next_probe = Some(wished);
        change(&mut circuit);
        circuit.next_probe
    };
    let learn = |id, verdict| {
        left_by(&|circuit| circuit.learn(id, verdict, at(1), Suspension::Off, &policy))
    };
    let probed_by = |id| left_by(&|circuit| circuit.begin_probe(id, at(600_000)));
    assert_eq!([learn(other, Verdict::Failure), probed_by(other)], [Some(wished); 2]);
    let crashed = left_by(&|circuit| {
        circuit.begin_probe(other, at(600_000));
        circuit.recover(at(600_001), &policy)
    });
    assert_eq!(crashed, Some(wished), "the probe that the crash took was another one");
    assert_eq!([learn(wished, Verdict::Failure), probed_by(wished)], [None; 2]);
    assert_eq!(learn(other, Verdict::Success), None);
    assert_eq!(left_by(&|circuit| circuit.enable(None, at(1))), None);
    assert_eq!(left_by(&|circuit| circuit.freeze(None, at(1))), None);
}
