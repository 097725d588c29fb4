//! Erasing payloads: what is gone, what stays, and what is refused.

use std::sync::Arc;

use postrider_domain::attempt::{Answer, BodyEnd, Ending};
use postrider_domain::catalogue::{EventMark, Misfit, MisfitReason};
use postrider_domain::delivery::CancelReason;
use postrider_domain::ids::EventId;
use postrider_store::{Acceptance, Accepted, EventErasure, EventFilter, EventRecord};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acceptance, acme, at, delivery_id, digest, event, json, refused, umbrella};

/// The marker that every payload carries.
const MARKER: &str = "kanarienvogel";

fn marked(id: &str, n: u64, deliveries: &[(u64, u64)]) -> Acceptance {
    let mut event = event(&acme(), id);
    event.data = json(&format!("{{\"name\": \"{MARKER}\"}}"));
    event.old = Some(json(&format!("[\"{MARKER}\"]")));
    event.object = Some("person-7".parse().unwrap());
    acceptance(event, at(n), deliveries)
}

fn echo(status: u16) -> Ending {
    let body = format!("thank you for {MARKER}").into();
    Ending::Answered(Answer { status, retry_after: None, body, body_end: BodyEnd::Whole })
}

async fn accept(ground: &Ground, acceptance: Acceptance) {
    assert_eq!(ground.store.accept(vec![acceptance]).await.unwrap(), [Accepted::New]);
}

async fn found(ground: &Ground, id: &str) -> EventRecord {
    ground.store.event(&acme(), &id.parse().unwrap()).await.unwrap().unwrap()
}

async fn erase(ground: &Ground, id: &str, n: u64) -> EventErasure {
    ground.store.erase_event(&acme(), &id.parse().unwrap(), at(n)).await.unwrap()
}

async fn erased_event_stays_as_a_tombstone_without_its_payload(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    for id in ["e", "evt_019a86d99e3877078707070707070707"] {
        accept(&ground, Acceptance { id_given: id == "e", ..marked(id, 0, &[]) }).await;
        let before = found(&ground, id).await;
        assert_eq!(erase(&ground, id, 5).await, EventErasure::Erased { attempts: 0 });
        for _ in 0..2 {
            let after = found(&ground, id).await;
            assert!(after.event.is_erased() && after.event.old.is_none());
            assert_eq!(after.mark.erased_at, Some(at(5)));
            assert_eq!(after.event.object, before.event.object);
            assert_eq!(after.event.kind, before.event.kind);
            assert_eq!((after.accepted_at, after.event.time), (at(0), before.event.time));
            assert_eq!(erase(&ground, id, 9).await, EventErasure::Already { attempts: 0 });
            ground.reopen().await;
        }
    }
    let listed = ground.store.list_events(&acme(), &EventFilter::default(), &ALL).await.unwrap();
    assert!(listed.items.iter().all(|record| record.event.is_erased()));
    let wanted = [(acme(), "e".parse().unwrap())];
    let read = ground.store.events(&wanted).await.unwrap();
    assert!(read[0].as_ref().unwrap().is_erased(), "there is nothing to send");
}

async fn response_bodies_of_all_attempts_are_erased_with_the_event(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    accept(&ground, marked("e", 0, &[(1, 1), (2, 1)])).await;
    accept(&ground, marked("other", 0, &[(3, 1)])).await;
    for (n, ms) in [(500, 0), (503, 84_800), (200, 254_400)] {
        ground.attempt(1, 1, echo(n), at(ms)).await;
    }
    ground.attempt(2, 1, refused(), at(1)).await;
    ground.attempt(2, 1, echo(200), at(84_801)).await;
    ground.attempt(3, 1, echo(200), at(2)).await;
    let before = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
    let ledger = ground.store.ledger(Some(&acme())).await.unwrap();
    assert_eq!(erase(&ground, "e", 300_000).await, EventErasure::Erased { attempts: 4 });
    for _ in 0..2 {
        for n in [1, 2] {
            let log = ground.store.attempts(&acme(), delivery_id(n)).await.unwrap();
            assert!(!format!("{log:?}").contains(MARKER));
            assert_eq!(log.len(), if n == 1 { 3 } else { 2 });
        }
        let after = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
        let status = |log: &[postrider_domain::attempt::Attempt]| {
            log.iter().map(|one| (one.number, one.ending.status())).collect::<Vec<_>>()
        };
        assert_eq!(status(&after), status(&before));
        let others = ground.store.attempts(&acme(), delivery_id(3)).await.unwrap();
        assert!(matches!(&others[0].ending, Ending::Answered(answer) if !answer.body.is_empty()));
        assert_eq!(ground.store.ledger(Some(&acme())).await.unwrap(), ledger);
        ground.reopen().await;
    }
}

async fn event_with_an_unfinished_delivery_is_not_erased(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    accept(&ground, marked("e", 0, &[(1, 1), (2, 1)])).await;
    assert_eq!(erase(&ground, "e", 1).await, EventErasure::Unfinished);
    ground.attempt(1, 1, echo(200), at(1)).await;
    assert_eq!(erase(&ground, "e", 2).await, EventErasure::Unfinished, "the other one waits");
    assert!(!found(&ground, "e").await.event.is_erased());
    let cancelled = ground.delivery(2).await.cancelled(CancelReason::Asked, at(3)).unwrap();
    ground.change(cancelled).await;
    assert_eq!(erase(&ground, "e", 4).await, EventErasure::Erased { attempts: 1 });
}

async fn attempt_that_is_logged_after_the_erasure_is_erased_by_the_next_one(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    accept(&ground, marked("e", 0, &[(1, 1)])).await;
    let (settled, _) = ground.settlement(1, 1, echo(200), at(5)).await;
    let cancelled = ground.delivery(1).await.cancelled(CancelReason::Asked, at(3)).unwrap();
    ground.change(cancelled.clone()).await;
    assert_eq!(erase(&ground, "e", 4).await, EventErasure::Erased { attempts: 0 });
    let change = ground.change_to(cancelled, Some(settled.attempt)).await;
    ground.settle(postrider_store::Commit { deliveries: vec![change], ..Default::default() }).await;
    assert_eq!(erase(&ground, "e", 6).await, EventErasure::Already { attempts: 1 });
    let log = ground.store.attempts(&acme(), delivery_id(1)).await.unwrap();
    assert!(matches!(&log[0].ending, Ending::Answered(answer) if answer.body.is_empty()));
}

async fn repeat_of_an_erased_event_is_a_conflict(ground: Ground) {
    accept(&ground, marked("e", 0, &[])).await;
    erase(&ground, "e", 1).await;
    let repeat = ground.store.accept(vec![marked("e", 0, &[])]).await.unwrap();
    assert_eq!(repeat, [Accepted::Conflict]);
    let other = Acceptance { fingerprint: digest(9), ..marked("e", 0, &[]) };
    assert_eq!(ground.store.accept(vec![other]).await.unwrap(), [Accepted::Conflict]);
}

async fn event_of_another_tenant_is_not_erased(ground: Ground) {
    accept(&ground, marked("e", 0, &[])).await;
    let id: EventId = "e".parse().unwrap();
    let nobodys = ground.store.erase_event(&umbrella(), &id, at(1)).await.unwrap();
    assert_eq!(nobodys, EventErasure::NotFound);
    assert_eq!(erase(&ground, "f", 1).await, EventErasure::NotFound);
    assert!(!found(&ground, "e").await.event.is_erased());
}

async fn fault_of_an_event_is_kept_and_its_place_is_erased(mut ground: Ground) {
    let misfit = Misfit {
        reason: MisfitReason::Payload,
        pointer: Some(format!("/{MARKER}")),
        detail: "value is not a number".to_owned(),
    };
    let mark = EventMark { flagged: Some(misfit.clone()), erased_at: None };
    let mut traced = marked("e", 0, &[]);
    let context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let mut event = (*traced.event).clone();
    event.trace = postrider_domain::trace::TraceContext::parse(context);
    traced.event = Arc::new(event);
    traced.mark = mark.clone();
    accept(&ground, traced).await;
    accept(&ground, Acceptance { mark: mark.clone(), ..marked("f", 1, &[]) }).await;
    for id in ["e", "f"] {
        assert_eq!(found(&ground, id).await.mark, mark);
        ground.reopen().await;
        let stored = found(&ground, id).await;
        assert_eq!((stored.mark, stored.event.trace.is_some()), (mark.clone(), id == "e"));
        erase(&ground, id, 5).await;
        let after = found(&ground, id).await;
        let expected = EventMark { flagged: Some(misfit.erased()), erased_at: Some(at(5)) };
        assert_eq!((after.mark, after.event.trace.is_some()), (expected, id == "e"));
    }
}

async fn scrubbing_changes_nothing_that_is_shown(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.store.scrub_erased().await.unwrap();
    for n in 0..200 {
        accept(&ground, marked(&format!("e{n}"), n, &[(n, 1)])).await;
        ground.attempt(n, 1, echo(200), at(n + 1)).await;
    }
    for n in (0..200).step_by(3) {
        let erased = erase(&ground, &format!("e{n}"), 1_000).await;
        assert_eq!(erased, EventErasure::Erased { attempts: 1 });
    }
    for round in 0..3 {
        ground.store.scrub_erased().await.unwrap();
        for n in 0..200 {
            let event = found(&ground, &format!("e{n}")).await.event;
            assert_eq!(event.is_erased(), n % 3 == 0, "{n}");
        }
        let id = format!("after{round}");
        accept(&ground, marked(&id, 900 + round, &[])).await;
        ground.reopen().await;
        assert_eq!(erase(&ground, &id, 1_001).await, EventErasure::Erased { attempts: 0 });
    }
    let ledger = ground.store.ledger(Some(&acme())).await.unwrap();
    assert!(ledger.balances() && ledger.delivered == 200);
}

suite! { $ erasing, conformance_erasing:
    erased_event_stays_as_a_tombstone_without_its_payload,
    response_bodies_of_all_attempts_are_erased_with_the_event,
    event_with_an_unfinished_delivery_is_not_erased,
    attempt_that_is_logged_after_the_erasure_is_erased_by_the_next_one,
    repeat_of_an_erased_event_is_a_conflict,
    event_of_another_tenant_is_not_erased,
    fault_of_an_event_is_kept_and_its_place_is_erased,
    scrubbing_changes_nothing_that_is_shown,
}
