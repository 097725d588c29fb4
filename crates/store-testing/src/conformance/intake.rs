//! Accepting events: a batch as a whole or not at all, and each event once.

use std::sync::Arc;

use bytes::Bytes;
use postrider_domain::delivery::DeliveryState;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::EventId;
use postrider_domain::ledger::Ledger;
use postrider_domain::limits;
use postrider_domain::trace::TraceContext;
use postrider_store::{Acceptance, Accepted, DeliveryFilter, EventFilter};

use super::Ground;
use super::ground::{ALL, numbers};
use crate::samples::{acceptance, acme, at, delivery_id, digest, event, json, random, umbrella};

fn owed(id: &str, deliveries: &[(u64, u64)]) -> Acceptance {
    acceptance(event(&acme(), id), at(0), deliveries)
}

async fn accepted(ground: &Ground) -> u64 {
    ground.store.ledger(Some(&acme())).await.unwrap().accepted
}

async fn what_is_accepted_is_there_with_all_its_deliveries(mut ground: Ground) {
    let batch = vec![owed("a", &[(1, 1), (2, 2)]), owed("b", &[(3, 1)])];
    let expected: Vec<_> = batch.iter().flat_map(|event| event.deliveries.clone()).collect();
    let answers = ground.store.accept(batch).await.unwrap();
    assert_eq!(answers, [Accepted::New, Accepted::New]);
    ground.reopen().await;
    for delivery in expected {
        assert_eq!(delivery.state, DeliveryState::Queued);
        let found = ground.store.delivery(&acme(), delivery.id).await.unwrap();
        assert_eq!(found, Some(delivery));
    }
    let record = ground.store.event(&acme(), &"a".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(*record.event, event(&acme(), "a"));
    assert_eq!((record.accepted_at, record.deliveries), (at(0), 2));
    let ledger = Ledger { accepted: 3, queued: 3, ..Ledger::default() };
    assert_eq!(ground.store.ledger(Some(&acme())).await.unwrap(), ledger);
}

async fn a_batch_with_a_conflict_leaves_nothing_behind(mut ground: Ground) {
    ground.accept("old", at(0), &[(1, 1)]).await;
    let conflict = Acceptance { fingerprint: digest(2), ..owed("old", &[(8, 1)]) };
    let batch = vec![owed("a", &[(2, 1)]), owed("old", &[(3, 1)]), conflict, owed("b", &[(4, 2)])];
    let answers = ground.store.accept(batch).await.unwrap();
    let repeated = Accepted::Duplicate { deliveries: 1 };
    assert_eq!(answers, [Accepted::New, repeated, Accepted::Conflict, Accepted::New]);
    for _ in 0..2 {
        assert_eq!(accepted(&ground).await, 1);
        let events = ground.store.list_events(&acme(), &EventFilter::default(), &ALL).await;
        assert_eq!(events.unwrap().items.len(), 1);
        let everything = DeliveryFilter::default();
        let found = ground.store.list_deliveries(&acme(), &everything, &ALL).await.unwrap();
        assert_eq!(numbers(&found.items), [1]);
        ground.reopen().await;
    }
    let again = ground.store.accept(vec![owed("a", &[(2, 1)])]).await.unwrap();
    assert_eq!(again, [Accepted::New], "what was not written is no repeat");
}

async fn a_repeat_is_answered_with_what_was_owed_then(mut ground: Ground) {
    ground.accept("a", at(0), &[(1, 1), (2, 2)]).await;
    for _ in 0..2 {
        let repeated = owed("a", &[(7, 1), (8, 1), (9, 1)]);
        let answers = ground.store.accept(vec![repeated]).await.unwrap();
        assert_eq!(answers, [Accepted::Duplicate { deliveries: 2 }]);
        assert_eq!(accepted(&ground).await, 2, "nothing new is owed");
        assert_eq!(ground.store.delivery(&acme(), delivery_id(7)).await.unwrap(), None);
        ground.reopen().await;
    }
}

async fn a_repeat_is_one_after_its_deliveries_have_ended(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("a", at(0), &[(1, 1)]).await;
    ground.attempt(1, 1, crate::samples::answered(200), at(5)).await;
    for _ in 0..2 {
        let answers = ground.store.accept(vec![owed("a", &[(2, 1)])]).await.unwrap();
        assert_eq!(answers, [Accepted::Duplicate { deliveries: 1 }]);
        ground.reopen().await;
    }
    assert_eq!(ground.delivery(1).await.state, DeliveryState::Delivered { at: at(5) });
}

async fn the_same_identifier_twice_in_a_batch_is_a_repeat_of_the_first(ground: Ground) {
    let batch = vec![owed("a", &[(1, 1)]), owed("b", &[]), owed("a", &[(2, 1), (3, 1)])];
    let answers = ground.store.accept(batch).await.unwrap();
    let repeated = Accepted::Duplicate { deliveries: 1 };
    assert_eq!(answers, [Accepted::New, Accepted::New, repeated]);
    assert_eq!(accepted(&ground).await, 1);
    assert_eq!(ground.store.delivery(&acme(), delivery_id(2)).await.unwrap(), None);
}

async fn the_same_identifier_for_something_else_in_a_batch_is_a_conflict(ground: Ground) {
    let other = Acceptance { fingerprint: digest(2), ..owed("a", &[(2, 1)]) };
    let answers = ground.store.accept(vec![owed("a", &[(1, 1)]), other]).await.unwrap();
    assert_eq!(answers, [Accepted::New, Accepted::Conflict]);
    assert_eq!(accepted(&ground).await, 0);
    let found = ground.store.event(&acme(), &"a".parse().unwrap()).await.unwrap();
    assert_eq!(found, None);
}

async fn an_identifier_is_unique_in_its_tenant_alone(ground: Ground) {
    ground.accept("a", at(0), &[(1, 1)]).await;
    ground.accept_for(&umbrella(), "a", at(0), &[(2, 1)]).await;
    let conflict = Acceptance { fingerprint: digest(2), ..owed("A", &[]) };
    let answers = ground.store.accept(vec![conflict]).await.unwrap();
    assert_eq!(answers, [Accepted::New], "another case is another identifier");
}

async fn an_identifier_that_postrider_made_is_a_repeat_when_it_is_given_later(mut ground: Ground) {
    let id = EventId::new(at(0), random(5));
    let made = Acceptance { id_given: false, ..owed(id.as_str(), &[(1, 1)]) };
    let given = Acceptance { id_given: true, ..made.clone() };
    let other = Acceptance { fingerprint: digest(2), ..given.clone() };
    assert_eq!(ground.store.accept(vec![made]).await.unwrap(), [Accepted::New]);
    for _ in 0..2 {
        let answers = ground.store.accept(vec![given.clone()]).await.unwrap();
        assert_eq!(answers, [Accepted::Duplicate { deliveries: 1 }]);
        let answers = ground.store.accept(vec![other.clone()]).await.unwrap();
        assert_eq!(answers, [Accepted::Conflict]);
        ground.reopen().await;
    }
}

async fn an_event_that_nobody_wants_is_kept_all_the_same(mut ground: Ground) {
    ground.accept("a", at(0), &[]).await;
    ground.reopen().await;
    let record = ground.store.event(&acme(), &"a".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(record.deliveries, 0);
    assert_eq!(accepted(&ground).await, 0);
    let answers = ground.store.accept(vec![owed("a", &[(1, 1)])]).await.unwrap();
    assert_eq!(answers, [Accepted::Duplicate { deliveries: 0 }]);
}

async fn an_empty_batch_is_no_fault(ground: Ground) {
    assert_eq!(ground.store.accept(Vec::new()).await.unwrap(), []);
}

async fn an_event_is_read_back_byte_for_byte(mut ground: Ground) {
    let large = format!("\"{}\"", "é".repeat(limits::EVENT_BODY_BYTES_MAX / 2 - 1));
    assert_eq!(large.len(), limits::EVENT_BODY_BYTES_MAX);
    let texts = [
        " {\"b\": 1.0e2,\t\"a\":[true , null]}\r\n ",
        "\"\\u0000 \\ud83d\\ude00 \u{1f600} ü \u{202e}\"",
        "0",
        "null",
        "{\"a\":1,\"a\":2}",
        "12345678901234567890.000",
        &large,
    ];
    for (n, text) in texts.into_iter().enumerate() {
        let id = format!("!~{n}");
        let sent = Event {
            data: json(text),
            old: (n % 2 == 0).then(|| json(text)),
            trace: TraceContext::new([u8::try_from(n).unwrap(); 16], [7; 8], n % 2 == 0),
            object: (n % 2 == 1).then(|| "größer 'als' \"x\"".parse().unwrap()),
            ..event(&acme(), &id)
        };
        let number = u64::try_from(n).unwrap();
        let new = acceptance(sent.clone(), at(number), &[(number, 1)]);
        assert_eq!(ground.store.accept(vec![new]).await.unwrap(), [Accepted::New]);
        for _ in 0..2 {
            let record = ground.store.event(&acme(), &sent.id).await.unwrap().unwrap();
            assert_eq!(record.event.data.as_bytes(), text.as_bytes());
            assert_eq!(*record.event, sent);
            let ids = [(acme(), sent.id.clone())];
            let found = ground.store.events(&ids).await.unwrap();
            assert_eq!(found, [Some(Arc::new(sent.clone()))]);
            ground.reopen().await;
        }
    }
}

async fn a_thousand_events_are_accepted_together(mut ground: Ground) {
    let max = u64::try_from(limits::BATCH_EVENTS_MAX).unwrap();
    let data = RawJson::from_trusted(Bytes::from(format!("\"{}\"", "x".repeat(8_000))));
    let one = |n: u64| {
        let event = Event { data: data.clone(), ..event(&acme(), &format!("e{n}")) };
        acceptance(event, at(n), &[(2 * n, n % 5), (2 * n + 1, 5)])
    };
    let answers = ground.store.accept((0..max).map(one).collect()).await.unwrap();
    assert_eq!(answers.len(), limits::BATCH_EVENTS_MAX);
    assert!(answers.iter().all(|answer| *answer == Accepted::New));
    ground.reopen().await;
    assert_eq!(accepted(&ground).await, 2 * max);
    let everything = DeliveryFilter::default();
    assert_eq!(ground.store.count_deliveries(&acme(), &everything).await.unwrap(), 2 * max);
    let answers = ground.store.accept((0..max).map(one).collect()).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Accepted::Duplicate { deliveries: 2 }));
    assert_eq!(accepted(&ground).await, 2 * max);
}

async fn acceptances_at_the_same_time_are_all_there(ground: Ground) {
    let tasks: Vec<_> = (0..50u64)
        .map(|n| {
            let store = Arc::clone(&ground.store);
            let batch = vec![owed(&format!("e{}", n / 2), &[(n, n % 3)])];
            async move { store.accept(batch).await.unwrap() }
        })
        .collect();
    let answers = super::ground::together(tasks).await;
    let new = answers.iter().filter(|answer| ***answer == [Accepted::New]).count();
    assert_eq!(new, 25, "of each two with the same identifier, one is new: {answers:?}");
    assert_eq!(accepted(&ground).await, 25);
}

suite! { $ intake, conformance_intake:
    what_is_accepted_is_there_with_all_its_deliveries,
    a_batch_with_a_conflict_leaves_nothing_behind,
    a_repeat_is_answered_with_what_was_owed_then,
    a_repeat_is_one_after_its_deliveries_have_ended,
    the_same_identifier_twice_in_a_batch_is_a_repeat_of_the_first,
    the_same_identifier_for_something_else_in_a_batch_is_a_conflict,
    an_identifier_is_unique_in_its_tenant_alone,
    an_identifier_that_postrider_made_is_a_repeat_when_it_is_given_later,
    an_event_that_nobody_wants_is_kept_all_the_same,
    an_empty_batch_is_no_fault,
    an_event_is_read_back_byte_for_byte,
    a_thousand_events_are_accepted_together,
    acceptances_at_the_same_time_are_all_there,
}
