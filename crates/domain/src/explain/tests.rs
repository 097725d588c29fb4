//! Every state of a delivery, with every state of its destination.

use std::time::Duration;

use super::*;
use crate::attempt::{
    Answer, BodyEnd, Ending, Failure, FailureClass, Finished, Phase, Timings, Turn, Verdict,
};
use crate::circuit::Suspension;
use crate::event::{Event, RawJson};
use crate::ids::{DeliveryId, SubscriptionId, TenantId};
use crate::policy::CircuitPolicy;

const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

fn later(seconds: u64) -> Timestamp {
    START.saturating_add(Duration::from_secs(seconds))
}

fn destination() -> Destination {
    Destination::new(TenantId::default_tenant(), "https://a.example.com/".to_owned(), START)
}

fn delivery() -> Delivery {
    let event = Event {
        id: "evt_1".parse().unwrap(),
        tenant: TenantId::default_tenant(),
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: RawJson::parse("{}".into()).unwrap(),
        old: None,
        time: START,
        trace: None,
    };
    let subscription = SubscriptionId::from_bytes([2; 16]);
    Delivery::accepted(
        DeliveryId::from_bytes([1; 16]),
        &event,
        subscription,
        destination().id,
        START,
    )
}

fn failed() -> Delivery {
    delivery().failed(Turn::First, START, None, later(1), &Policy::default().retry)
}

fn attempt(ending: Ending) -> Attempt {
    let finished = Finished { started_at: START, timings: Timings::default(), ending };
    let Finished { started_at, timings, ending } = finished;
    Attempt { number: 1, turn: Turn::First, started_at, timings, ending }
}

fn status(status: u16) -> Ending {
    let body = "no".into();
    Ending::Answered(Answer { status, retry_after: None, body, body_end: BodyEnd::Whole })
}

fn disabled() -> Destination {
    let mut destination = destination();
    for _ in 0..101 {
        destination.circuit.learn(
            DeliveryId::from_bytes([9; 16]),
            Verdict::Failure,
            later(1),
            Suspension::Off,
            &CircuitPolicy::default(),
        );
    }
    destination
}

fn frozen() -> Destination {
    let mut destination = destination();
    destination.circuit.freeze(Some("they asked for it".to_owned()), later(2));
    destination
}

fn subscription() -> Subscription {
    serde_json::from_value(serde_json::json!({
        "id": SubscriptionId::from_bytes([2; 16]),
        "tenant": "default",
        "destination": destination().id,
        "url": "https://a.example.com/",
        "types": ["*"],
        "enabled": true,
        "created_at": START,
        "updated_at": START,
    }))
    .unwrap()
}

/// The whole explanation as text, one item per line, while the subscription exists.
fn told(delivery: &Delivery, destination: Option<&Destination>, last: Option<Ending>) -> String {
    told_of(delivery, destination, last, Some(&subscription()))
}

fn told_of(
    delivery: &Delivery,
    destination: Option<&Destination>,
    last: Option<Ending>,
    subscription: Option<&Subscription>,
) -> String {
    let last_attempt = last.map(attempt);
    let facts = Facts {
        delivery,
        in_flight: false,
        destination,
        subscription,
        last_attempt: last_attempt.as_ref(),
        standing: None,
    };
    render(&explain(&facts, later(3), &Policy::default()))
}

fn render(explanation: &Explanation) -> String {
    let mut lines = vec![format!("{}: {}", explanation.state, explanation.summary)];
    lines.extend(explanation.because.iter().map(|why| format!("because {why}")));
    lines.extend(explanation.next.iter().map(|next| {
        let at = next.at.map_or("later".to_owned(), |at| at.to_string());
        format!("next ({at}) {}", next.what)
    }));
    lines.extend(explanation.unblock.iter().map(|hint| format!("can {}", hint.action.as_str())));
    lines.join("\n")
}

fn check(told: &str, expected: &[&str]) {
    assert_eq!(told, expected.join("\n"));
}

#[test]
fn a_new_delivery_waits_for_its_turn() {
    check(
        &told(&delivery(), Some(&destination()), None),
        &[
            "queued: accepted at 2025-11-15T09:30:00.000Z, in the queue of first attempts",
            "next (later) the first attempt is made as soon as it is its turn",
        ],
    );
}

/// Checks the explanation of a queued delivery that waits for `wait`, with `ahead` deliveries
/// before it.
#[track_caller]
fn check_wait(wait: Wait, ahead: usize, at: Option<Timestamp>, words: &str) {
    let code = wait.as_str();
    let standing = Standing { ahead, is_stored: false, waits: vec![wait] };
    let (delivery, destination) = (delivery(), destination());
    let facts = Facts {
        delivery: &delivery,
        in_flight: false,
        destination: Some(&destination),
        subscription: None,
        last_attempt: None,
        standing: Some(&standing),
    };
    let explanation = explain(&facts, later(3), &Policy::default());
    assert_eq!(explanation.because[0], words, "{code}");
    assert_eq!(explanation.next.unwrap().at, at, "{code}");
    assert_eq!(explanation.standing, Some(standing));
}

#[test]
fn queued_delivery_says_what_it_waits_for_and_when_where_that_is_known() {
    let limit = Wait::DestinationLimit { in_flight: 8, limit: 8 };
    let words = "the destination has 8 attempts in flight, and may have 8 at a time";
    check_wait(limit, 0, None, words);
    let rate = |next_at| Wait::Rate { per_1000_seconds: 2_500, next_at };
    let words =
        format!("the destination's rate limit is 2.5 a second; the next is at {}", later(4));
    check_wait(rate(later(4)), 0, Some(later(4)), &words);
    let fifth = later(4).saturating_add(Duration::from_millis(2_000));
    check_wait(rate(later(4)), 5, Some(fifth), &words);
    let past = format!("the destination's rate limit is 2.5 a second; the next is at {}", later(1));
    check_wait(rate(later(1)), 0, Some(later(3)), &past);
    let tenant = Wait::TenantLimit { in_flight: 30, limit: 30 };
    check_wait(tenant, 0, None, "the tenant has 30 attempts in flight, and may have 30 at a time");
    let bytes = Wait::TenantBytes { bytes: 900, limit: 1000 };
    let words = "the tenant has 900 bytes of payloads in flight, and may have 1000 at a time";
    check_wait(bytes, 0, None, words);
    let total = Wait::TotalLimit { in_flight: 9, limit: 9 };
    check_wait(total, 0, None, "the server has 9 attempts in flight, and may have 9 at a time");
    let turn = Wait::Turn { tenants: 2, destinations: 1 };
    let words = "it is not its turn yet: 2 other tenants and 1 other destinations of its tenant \
                 come before it";
    check_wait(turn, 3, None, words);
    let words = "nothing is sent now: the server is stopping, or waits for its store";
    check_wait(Wait::Pause, 0, None, words);
}

#[test]
fn a_failed_delivery_waits_for_its_slot() {
    check(
        &told(&failed(), Some(&destination()), Some(status(503))),
        &[
            "waiting: waiting for retry 1 of 11, due at 2025-11-15T09:31:24.800Z",
            "because attempt 1 at 2025-11-15T09:30:00.000Z was answered with status 503",
            "because its last retry is due at 2025-11-17T09:43:05.600Z; after that it is kept as dead",
            "next (2025-11-15T09:31:24.800Z) it is attempted at its slot",
            "can fix_receiver",
            "can retry",
        ],
    );
}

#[test]
fn a_disabled_destination_is_probed() {
    check(
        &told(&failed(), Some(&disabled()), None),
        &[
            "waiting: waiting for retry 1 of 11, due at 2025-11-15T09:31:24.800Z",
            "because the destination is disabled since 2025-11-15T09:30:01.000Z (too large a share \
             of its attempts failed); its next probe is not due yet",
            "because its last retry is due at 2025-11-17T09:43:05.600Z; after that it is kept as dead",
            "next (2025-11-15T09:40:01.000Z) one delivery, perhaps this one, is sent to probe the \
             destination; a success enables it again",
            "can fix_receiver",
            "can enable_destination",
            "can retry",
        ],
    );
    let mut probed = disabled();
    probed.circuit.begin_probe(DeliveryId::from_bytes([9; 16]), later(700)).unwrap();
    let told = told(&failed(), Some(&probed), None);
    assert!(told.contains("and a probe is under way"), "{told}");
    assert!(told.contains("next (later) a probe is under way"), "{told}");
}

#[test]
fn a_frozen_destination_is_named_with_its_reason() {
    check(
        &told(&failed(), Some(&frozen()), None),
        &[
            "waiting: waiting for retry 1 of 11, due at 2025-11-15T09:31:24.800Z",
            "because the destination is frozen since 2025-11-15T09:30:02.000Z (by hand: they asked \
             for it): nothing is sent to it",
            "because its last retry is due at 2025-11-17T09:43:05.600Z; after that it is kept as dead",
            "next (2025-11-15T09:31:24.800Z) its slot passes without an attempt while the \
             destination is frozen",
            "can enable_destination",
        ],
    );
}

#[test]
fn ended_delivery_is_explained_with_its_end_and_the_possible_actions() {
    let timeout = || {
        let class = FailureClass::Timeout(Phase::Connect);
        Ending::Failed(Failure { class, detail: "10.0.0.1".to_owned() })
    };
    let done = delivery().delivered(START, later(1));
    check(
        &told(&done, Some(&destination()), Some(status(204))),
        &[
            "delivered: delivered at 2025-11-15T09:30:01.000Z by 1 attempt",
            "because attempt 1 at 2025-11-15T09:30:00.000Z was answered with status 204",
        ],
    );
    let dead = failed().not_admitted(later(1_000_000), &Policy::default().retry);
    check(
        &told(&dead, Some(&frozen()), Some(timeout())),
        &[
            "dead: dead since 2025-11-26T23:16:40.000Z, after 1 attempt; kept and replayable",
            "because its last slot passed while the destination was disabled or frozen, so no \
             attempt was made",
            "because attempt 1 at 2025-11-15T09:30:00.000Z failed: timeout (connect)",
            "can enable_destination",
            "can replay",
        ],
    );
    let cancelled = delivery().cancelled(CancelReason::Asked, later(1)).unwrap();
    check(
        &told(&cancelled, None, None),
        &[
            "cancelled: cancelled at 2025-11-15T09:30:01.000Z, after no attempt",
            "because somebody cancelled it",
            "can replay",
        ],
    );
    let gone = delivery().cancelled(CancelReason::SubscriptionDeleted, later(1)).unwrap();
    for ended in [gone, dead, cancelled] {
        assert!(told_of(&ended, None, None, None).ends_with("can resubscribe"), "{ended:?}");
    }
}

#[test]
fn replayed_delivery_and_one_in_flight_are_distinguished() {
    let done = delivery().delivered(START, later(1));
    let replayed = done.replayed(later(2)).unwrap();
    let said = told(&replayed, Some(&destination()), None);
    assert!(said.starts_with("waiting: replayed, and due at 2025-11-15T09:30:02.000Z"), "{said}");
    assert!(said.contains("it is attempted now, as soon as it is its turn"), "{said}");
    let facts = Facts {
        delivery: &replayed,
        in_flight: true,
        destination: None,
        subscription: None,
        last_attempt: None,
        standing: None,
    };
    let explanation = explain(&facts, later(3), &Policy::default());
    check(
        &render(&explanation),
        &[
            "in_flight: a request to the receiver is under way",
            "next (later) it ends within 5 s, and its outcome is recorded",
        ],
    );
}

#[test]
fn every_kind_of_evidence_has_its_words() {
    let since = START;
    let delivery = DeliveryId::from_bytes([1; 16]);
    for evidence in [
        Evidence::FailureShare,
        Evidence::ConsecutiveFailures,
        Evidence::NoSuccess { since },
        Evidence::Gone,
        Evidence::ProbeSent { delivery },
        Evidence::ProbeFailed,
        Evidence::ProbeLost,
        Evidence::Success { by_probe: true },
        Evidence::Success { by_probe: false },
        Evidence::ByHand { reason: None },
    ] {
        let words = Words(&evidence).to_string();
        assert!(words.len() > 5 && !words.ends_with('.'), "{words}");
    }
}

#[test]
fn an_attempt_that_somebody_asked_for_is_explained() {
    let asked = failed().asked_for(later(60)).unwrap();
    check(
        &told(&asked, Some(&destination()), Some(status(503))),
        &[
            "waiting: somebody asked for an attempt, which is due at 2025-11-15T09:31:00.000Z",
            "because attempt 1 at 2025-11-15T09:30:00.000Z was answered with status 503",
            "because that takes no slot: retry 1 of 11 is due at 2025-11-15T09:31:24.800Z",
            "because its last retry is due at 2025-11-17T09:43:05.600Z; after that it is kept as dead",
            "next (2025-11-15T09:31:00.000Z) it is attempted because somebody asked for it",
            "can fix_receiver",
        ],
    );
    let mut next = disabled();
    next.circuit.next_probe = Some(asked.id);
    let of_next = told(&asked, Some(&next), None);
    assert!(of_next.contains("it is sent to probe the destination, because somebody asked for it"));
    assert!(!of_next.contains("can retry"));
    // Somebody has asked for another one since, or a job asked for many.
    let of_other = told(&asked, Some(&disabled()), None);
    assert!(of_other.contains("it is attempted after the next probe, because somebody asked"));
}
