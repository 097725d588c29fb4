//! Every variant of every record is read back as it was written.

use postrider_domain::circuit::{
    Circuit, CircuitState, Counters, Evidence, StateName, Suspended, Transition,
};
use postrider_domain::delivery::{CancelReason, DeadReason, Delivery, DeliveryState};
use postrider_domain::job_outcomes::ByJob;
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::{Commit, DestinationChange};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acme, at, delivery_id, destination, every_attempt, every_ending, replay_id};

async fn every_attempt_is_read_back_as_it_was_oldest_first(mut ground: Ground) {
    ground.accept("e", at(0), &[(1, 1)]).await;
    let attempts = every_attempt();
    assert_eq!(attempts.len(), every_ending().len());
    for attempt in &attempts {
        let clock = ScheduleClock::starting_at(at(0));
        let slot = Slot::new(attempt.number, at(1_000_000), clock);
        let after = Delivery {
            state: DeliveryState::Waiting(slot),
            attempts: attempt.number,
            last_attempt_at: Some(attempt.started_at),
            ..ground.delivery(1).await
        };
        let change = ground.change_to(after, Some(attempt.clone())).await;
        ground.settle(Commit { deliveries: vec![change], ..Commit::default() }).await;
    }
    for _ in 0..2 {
        let found = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
        assert_eq!(found, attempts);
        ground.reopen().await;
    }
    assert_eq!(ground.store.attempts(&acme(), delivery_id(2)).await.unwrap(), []);
}

async fn a_long_response_is_read_back_whole(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    let body: Vec<u8> = (0..=u8::MAX).cycle().take(16 * 1024).collect();
    let ending = postrider_domain::attempt::Ending::Answered(postrider_domain::attempt::Answer {
        status: 599,
        retry_after: None,
        body: body.clone().into(),
        body_end: postrider_domain::attempt::BodyEnd::Cut,
    });
    ground.attempt(1, 1, ending.clone(), at(10)).await;
    ground.reopen().await;
    let found = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
    assert_eq!(found[0].ending, ending);
}

async fn every_state_of_a_delivery_is_read_back_as_it_was(mut ground: Ground) {
    ground.accept("e", at(0), &[(1, 1)]).await;
    let queued = ground.delivery(1).await;
    let clock = ScheduleClock { anchor_at: at(3), previous_at: at(7) };
    let by_job = |has_failed| Some(ByJob { job: replay_id(1), has_failed });
    let waiting = |number, due_at| DeliveryState::Waiting(Slot::new(number, due_at, clock));
    let states = [
        waiting(0, at(5)),
        waiting(11, at(173_585_600)),
        waiting(u32::MAX, Timestamp::MAX),
        DeliveryState::Waiting(Slot::new(3, at(99), clock).with_attempt_at(at(6))),
        DeliveryState::Waiting(Slot::new(u32::MAX, Timestamp::MAX, clock).with_attempt_at(at(6))),
        DeliveryState::Waiting(Slot { by_job: by_job(false), ..Slot::new(0, at(7), clock) }),
        DeliveryState::Waiting(Slot {
            by_job: by_job(true),
            ..Slot::new(3, at(99), clock).with_attempt_at(at(6))
        }),
        DeliveryState::Delivered { at: at(9) },
        DeliveryState::Dead { at: at(10), reason: DeadReason::Exhausted },
        DeliveryState::Dead { at: at(11), reason: DeadReason::NotAdmitted },
        DeliveryState::Cancelled { at: at(12), reason: CancelReason::Asked },
        DeliveryState::Cancelled { at: at(13), reason: CancelReason::SubscriptionDeleted },
        waiting(1, at(14)),
    ];
    for (n, state) in (0u32..).zip(states) {
        let last_attempt_at = (n > 0).then(|| at(u64::from(n)));
        let after = Delivery { state, attempts: n, last_attempt_at, ..queued.clone() };
        ground.change(after.clone()).await;
        for _ in 0..2 {
            assert_eq!(ground.delivery(1).await, after);
            ground.reopen().await;
        }
    }
}

fn every_evidence() -> Vec<Evidence> {
    vec![
        Evidence::FailureShare,
        Evidence::ConsecutiveFailures,
        Evidence::NoSuccess { since: at(4) },
        Evidence::Gone,
        Evidence::ProbeSent { delivery: delivery_id(3) },
        Evidence::ProbeFailed,
        Evidence::ProbeLost,
        Evidence::Success { by_probe: true },
        Evidence::Success { by_probe: false },
        Evidence::ByHand { reason: None },
        Evidence::ByHand { reason: Some(String::new()) },
        Evidence::ByHand { reason: Some("wegen \"Umzug\"\n'; --".into()) },
    ]
}

async fn every_circuit_is_read_back_as_it_was(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let mut states = vec![CircuitState::Closed];
    for evidence in every_evidence() {
        states.push(CircuitState::Open {
            since: at(1),
            evidence: evidence.clone(),
            probe_at: at(2),
        });
        states.push(CircuitState::HalfOpen {
            since: at(1),
            evidence: evidence.clone(),
            probe: delivery_id(3),
            probed_at: at(2),
        });
        states.push(CircuitState::Frozen { since: at(1), evidence });
    }
    for (n, state) in (0u64..).zip(states) {
        let counters = Counters {
            attempts: n,
            successes: 1 << 40,
            failures: n * 3,
            consecutive_failures: n * 2,
        };
        let circuit = Circuit {
            state,
            counters,
            last_success_at: at(n),
            ever_succeeded: n % 2 == 0,
            draining: n % 3 == 0,
            failing_since: (n % 2 == 1).then(|| at(n)),
            down_since: (n % 3 == 1).then(|| at(n + 1)),
            replay_dead_since: (n % 3 == 2).then(|| at(n + 2)),
            recovered_at: (n % 3 == 2).then(|| at(n + 3)),
            next_probe: (n % 2 == 1).then(|| delivery_id(n)),
            suspended: Suspended { failures: n / 4, consecutive: n / 8 },
        };
        let change = DestinationChange {
            tenant: acme(),
            id: destination(&acme(), 1).id,
            circuit: circuit.clone(),
            transitions: Vec::new(),
        };
        ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
        assert_eq!(ground.destination(1).await.circuit, circuit);
        if n % 5 == 0 {
            ground.reopen().await;
            assert_eq!(ground.destination(1).await.circuit, circuit);
        }
    }
}

async fn every_transition_is_read_back_as_it_was(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let names = [StateName::Closed, StateName::Open, StateName::HalfOpen, StateName::Frozen];
    let transitions: Vec<Transition> = (0u64..)
        .zip(every_evidence())
        .zip(names.into_iter().cycle().zip(names.into_iter().cycle().skip(1)))
        .map(|((n, evidence), (from, to))| {
            let counters =
                Counters { attempts: n, successes: 1, failures: 2, consecutive_failures: 3 };
            Transition { at: at(n), from, to, evidence, counters }
        })
        .collect();
    let id = destination(&acme(), 1).id;
    let circuit = Circuit::new(at(9));
    let change =
        DestinationChange { tenant: acme(), id, circuit, transitions: transitions.clone() };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
    ground.reopen().await;
    let found = ground.store.transitions(&acme(), id, &ALL).await.unwrap();
    let newest_first: Vec<_> = transitions.into_iter().rev().collect();
    assert_eq!(found.items, newest_first);
}

suite! { $ records, conformance_records:
    every_attempt_is_read_back_as_it_was_oldest_first,
    a_long_response_is_read_back_whole,
    every_state_of_a_delivery_is_read_back_as_it_was,
    every_circuit_is_read_back_as_it_was,
    every_transition_is_read_back_as_it_was,
}
