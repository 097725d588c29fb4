//! The contract on attempts and on the life of a delivery.

use std::time::Duration;

use postrider_domain::attempt::{Ending, OwnFaultKind, Turn};
use postrider_domain::delivery::{DeadReason, DeliveryState, StateName};
use postrider_domain::ids::DestinationId;
use postrider_domain::policy::{Policy, RetryPolicy};
use postrider_domain::signature::{SignedHeaders, TOLERANCE, VerifyKey, verify};
use postrider_domain::subscription::CustomHeader;
use postrider_engine::{EngineEvent, IngestError, NewEvent, Options};
use postrider_store::{Configuration, History};
use postrider_store_testing::memory::{Fault, MemoryStore};

use crate::world::{
    FAIL, MINUTE, Mood, OK, TEN_MINUTES, TOKEN, World, event, ms, secret, slot, tenant,
};

const URL: &str = "https://hooks.example.com/in";

#[tokio::test(start_paused = true)]
async fn accepted_is_durable_before_the_answer_and_then_delivered() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Gated(200));
    let ingested = world.send().await;
    assert_eq!((ingested.deliveries, ingested.duplicate), (1, false));
    // The answer has come and the delivery is in the store, while the attempt is in flight.
    assert_eq!(world.delivery(&ingested).await.state, DeliveryState::Queued);
    let ledger = world.engine.ledger(Some(&tenant())).await.unwrap();
    assert_eq!((ledger.accepted, ledger.in_flight, ledger.queued), (1, 1, 0));
    world.script.open_gate();
    world.run_ready_tasks().await;
    let delivery = world.delivery(&ingested).await;
    assert_eq!(delivery.state, DeliveryState::Delivered { at: world.now() });
    assert_eq!(delivery.attempts, 1);
    assert_eq!(world.script.sent().len(), 1);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn event_that_the_store_refuses_is_not_accepted() {
    let store = MemoryStore::default();
    let mut world = World::on(store, Policy::default(), Options::default()).await;
    world.subscribe(URL).await;
    world.store.fail_next(Fault::DiskFull, 1);
    let refused = world.engine.ingest(&tenant(), vec![event("1"), event("2")]).await;
    assert!(matches!(refused, Err(IngestError::Store(_))), "{refused:?}");
    world.pass(MINUTE).await;
    assert_eq!(world.deliveries().await, []);
    assert_eq!(world.script.sent().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn event_stored_without_an_answer_is_sent() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.store.fail_next(Fault::UnavailableAfter, 1);
    let refused = world.engine.ingest(&tenant(), vec![event("1")]).await;
    assert!(matches!(refused, Err(IngestError::Store(_))), "{refused:?}");
    world.pass(ms(1)).await;
    assert_eq!(world.count(StateName::Delivered).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_signed_authorised_and_carries_the_stored_bytes() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let data = "{\"a\" : 1.50,\n \"b\":\"\\u00e4\", \"a\":2}";
    world.engine.ingest(&tenant(), vec![event(data)]).await.unwrap();
    world.run_ready_tasks().await;
    let sent = world.script.sent().remove(0);
    assert_eq!(sent.body, data.as_bytes(), "byte for byte");
    let header = |name: &str| sent.headers.get(name).map(String::as_str);
    assert_eq!(header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert_eq!(header("content-type"), Some("application/json"));
    let key = VerifyKey::from(&secret());
    let headers = SignedHeaders {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signature: header("webhook-signature"),
    };
    assert_eq!(verify([&key], headers, &sent.body, world.now(), TOLERANCE), Ok(()));
    assert_eq!(header("webhook-id"), Some(&*world.deliveries().await[0].id.to_string()));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_of_a_delivery_has_the_same_webhook_id_and_body() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.subscribe("https://hooks.example.com/other").await;
    world.script.first(URL, [FAIL, Mood::Refuses, Mood::Hangs]);
    world.send().await;
    world.pass(MINUTE * 30).await;
    let sent = world.script.sent_to(URL);
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|one| one.delivery == sent[0].delivery && one.body == sent[0].body));
    let other = world.script.sent_to("https://hooks.example.com/other");
    assert_ne!(other[0].delivery, sent[0].delivery, "two deliveries of an event differ");
}

#[tokio::test(start_paused = true)]
async fn a_response_is_logged_without_the_credentials_it_echoes() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Says("you sent Bearer tok_secret_of_the_receiver, thanks"));
    let ingested = world.send().await;
    let delivery = world.delivery(&ingested).await;
    let attempts = world.attempts(delivery.id).await;
    let Ending::Answered(answer) = &attempts[0].ending else { panic!("{attempts:?}") };
    assert_eq!(answer.body, "you sent Bearer ****, thanks");
}

#[tokio::test(start_paused = true)]
async fn closed_is_attempted_at_once() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.pass(MINUTE).await;
    world.send().await;
    assert_eq!(world.script.sent()[0].at, world.now());
}

#[tokio::test(start_paused = true)]
async fn open_or_frozen_is_not_attempted_and_its_clock_starts_now() {
    for freeze in [true, false] {
        let mut world = World::new().await;
        world.subscribe(URL).await;
        let id = DestinationId::of(&tenant(), URL);
        if freeze {
            world.engine.freeze(&tenant(), id, Some("test".to_owned())).await.unwrap();
        } else {
            world.fail(URL, 101).await;
            assert_eq!(world.state(URL).await, "disabled");
        }
        world.pass(MINUTE).await;
        world.script.forget();
        let ingested = world.send().await;
        let accepted_at = world.now();
        let delivery = world.delivery(&ingested).await;
        assert_eq!(world.script.sent().len(), 0);
        assert_eq!((delivery.attempts, slot(&delivery)), (0, 1));
        assert_eq!(delivery.next_attempt_at(), Some(accepted_at.saturating_add(ms(84_800))));
        world.check_ledger().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_counted_and_placed_in_one_settlement() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.set(URL, Mood::Answers(503, ms(20)));
    let writes = world.store.operations().writes;
    let ingested = world.send().await;
    let first_at = world.now();
    world.pass(ms(20)).await;
    assert_eq!(world.store.operations().writes - writes, 2, "one acceptance, one settlement");
    let delivery = world.delivery(&ingested).await;
    assert_eq!((delivery.attempts, slot(&delivery)), (1, 1));
    assert_eq!(delivery.next_attempt_at(), Some(first_at.saturating_add(ms(84_800))));
    let attempts = world.attempts(delivery.id).await;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].number, attempts[0].turn), (1, Turn::First));
    assert_eq!(attempts[0].started_at, first_at);
    assert_eq!(attempts[0].timings.total, ms(20));
    assert_eq!(attempts[0].ending.status(), Some(503));
    let counters = world.destination(URL).await.circuit.counters;
    assert_eq!((counters.attempts, counters.failures, counters.consecutive_failures), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_not_durable_is_kept_and_tried_again_in_order() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.first(URL, [FAIL]);
    world.store.fail_later(1, Fault::DiskFull, 5);
    let ingested = world.send().await;
    assert_eq!(world.delivery(&ingested).await.state, DeliveryState::Queued, "nothing durable yet");
    world.pass(ms(10_000)).await;
    assert_eq!(slot(&world.delivery(&ingested).await), 1);
    world.pass(MINUTE * 2).await;
    assert_eq!(world.delivery(&ingested).await.state.name(), StateName::Delivered);
    assert_eq!(world.script.sent().len(), 2);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn sending_stops_while_too_many_changes_are_not_durable() {
    let options = Options { unpersisted_max: 5, ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    world.subscribe(URL).await;
    world.store.fail_later(1, Fault::DiskFull, 8);
    world.send_many(100).await;
    let sent = world.script.sent().len();
    assert!(sent <= 5 + 8, "{sent} were sent");
    world.pass(MINUTE).await;
    assert_eq!(world.count(StateName::Delivered).await, 100);
    assert_eq!(world.script.sent().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn no_slot_left_is_dead_with_the_reason() {
    let retry = RetryPolicy { max: 2, ..RetryPolicy::default() };
    let mut world = World::with(Policy { retry, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    world.script.set(URL, FAIL);
    let ingested = world.send().await;
    world.pass(ms(254_400)).await;
    let delivery = world.delivery(&ingested).await;
    let reason = DeadReason::Exhausted;
    assert_eq!(delivery.state, DeliveryState::Dead { at: world.now(), reason });
    assert_eq!(delivery.attempts, 3);

    let id = DestinationId::of(&tenant(), URL);
    world.engine.freeze(&tenant(), id, None).await.unwrap();
    let never = world.send().await;
    world.pass(ms(254_400)).await;
    let delivery = world.delivery(&never).await;
    let reason = DeadReason::NotAdmitted;
    assert_eq!(delivery.state, DeliveryState::Dead { at: world.now(), reason });
    assert_eq!(delivery.attempts, 0);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_nobody_wants_is_accepted_and_kept() {
    let world = World::new().await;
    let ingested = world.send().await;
    assert_eq!(ingested.deliveries, 0);
    world.pass(MINUTE).await;
    let record = world.store.event(&tenant(), &ingested.id).await.unwrap().unwrap();
    assert_eq!(record.deliveries, 0);
    assert_eq!(record.event.data.as_bytes(), "{\"n\": 1}");
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn the_same_event_again_owes_nothing_new_and_another_one_is_a_conflict() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let mut named = event("{\"n\":1}");
    named.id = Some("evt-1".parse().unwrap());
    let first = world.engine.ingest(&tenant(), vec![named.clone()]).await.unwrap();
    let again = world.engine.ingest(&tenant(), vec![named.clone()]).await.unwrap();
    assert_eq!((first[0].deliveries, first[0].duplicate), (1, false));
    assert_eq!((again[0].deliveries, again[0].duplicate), (1, true));
    let mut other = event("{\"n\":2}");
    other.id.clone_from(&named.id);
    let conflict = world.engine.ingest(&tenant(), vec![event("1"), other]).await;
    assert!(matches!(conflict, Err(IngestError::Conflict { index: 1 })), "{conflict:?}");
    world.pass(MINUTE).await;
    assert_eq!(world.script.sent().len(), 1, "nothing of the batch was accepted");
    assert_eq!(world.deliveries().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn applications_cannot_send_postriders_own_events() {
    let world = World::new().await;
    let mut reserved = event("1");
    reserved.kind = "postrider.delivery.dead".parse().unwrap();
    let refused = world.engine.ingest(&tenant(), vec![event("1"), reserved]).await;
    assert!(matches!(refused, Err(IngestError::Reserved { index: 1 })));
    assert_eq!(world.store.ledger(None).await.unwrap().accepted, 0);
}

#[tokio::test(start_paused = true)]
async fn a_changed_subscription_changes_what_comes_and_not_where_the_rest_goes() {
    let mut world = World::new().await;
    let mut record = world.wish(URL);
    let headers = |value| vec![CustomHeader::new("x-key", value).unwrap()];
    record.subscription.headers = headers("old");
    world.put(record.clone()).await;
    world.script.first(URL, [FAIL]);
    let before = world.send().await;
    let moved = "https://hooks.example.com/moved";
    record.subscription.url = moved.to_owned();
    record.subscription.destination = DestinationId::of(&tenant(), moved);
    record.subscription.headers = headers("new");
    world.put(record.clone()).await;
    world.send().await;
    assert_eq!(world.script.sent_to(moved).len(), 1);
    world.pass(ms(84_800)).await;
    let old = world.script.sent_to(URL);
    assert_eq!(old.len(), 2, "what was owed to the old URL goes there");
    assert!(old[0].headers.contains_key("authorization"));
    assert!(!old[1].headers.contains_key("authorization"), "the token is for the new one");
    assert!(world.script.sent_to(moved)[0].headers.contains_key("authorization"));
    assert_eq!(old[0].headers["x-key"], "old");
    assert!(!old[1].headers.contains_key("x-key"), "the header is for the new one");
    assert_eq!(world.script.sent_to(moved)[0].headers["x-key"], "new");
    assert_eq!(world.delivery(&before).await.state.name(), StateName::Delivered);
    record.subscription.enabled = false;
    world.put(record).await;
    assert_eq!(world.send().await.deliveries, 0);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_subscription_cancels_all_that_it_was_owed() {
    let options = Options { page: 3, ..Options::default() };
    let mut world = World::with(Policy::default(), options).await;
    let gone = world.subscribe(URL).await;
    let other = world.subscribe("https://hooks.example.com/stays").await;
    world.script.set(URL, FAIL);
    world.send_many(10).await;
    world.script.set(URL, Mood::Gated(200));
    world.send_many(2).await;
    assert!(world.engine.delete_subscription(&tenant(), gone.id).await.unwrap());
    world.pass(ms(10)).await;
    assert_eq!(world.count(StateName::Cancelled).await, 12);
    world.check_ledger().await;
    // Attempts in flight end and are logged; the deliveries stay cancelled.
    world.script.open_gate();
    world.pass(MINUTE * 60 * 50).await;
    assert_eq!(world.count(StateName::Cancelled).await, 12);
    assert_eq!(world.script.sent_to(URL).len(), 12);
    let gone_now = world.store.all_subscriptions().await.unwrap();
    assert_eq!(gone_now.len(), 1, "its record went with its last delivery");
    assert_eq!(gone_now[0].subscription.id, other.id);
    assert!(!world.engine.delete_subscription(&tenant(), gone.id).await.unwrap());
    assert_eq!(world.send().await.deliveries, 1);
    world.check_ledger().await;
}

#[tokio::test(start_paused = true)]
async fn a_test_is_sent_now_and_leaves_nothing_behind() {
    let mut world = World::new().await;
    let subscription = world.subscribe(URL).await;
    world.script.set(URL, Mood::Answers(404, ms(5)));
    let finished = world.engine.test_send(&tenant(), subscription.id, event("{}")).await.unwrap();
    assert_eq!(finished.ending.status(), Some(404));
    assert_eq!(world.script.sent().len(), 1);
    assert_eq!(world.deliveries().await, []);
    assert_eq!(world.destination(URL).await.circuit.counters.attempts, 0);
    let other = "other".parse().unwrap();
    assert!(world.engine.test_send(&other, subscription.id, event("{}")).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn engine_events_are_published_to_listeners() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    let mut live = world.engine.subscribe();
    world.script.set(URL, Mood::Answers(410, Duration::ZERO));
    world.send().await;
    let began = live.recv().await.unwrap();
    assert!(matches!(began, EngineEvent::Began { turn: Turn::First, .. }), "{began:?}");
    let attempt = live.recv().await.unwrap();
    let EngineEvent::Attempt { attempt, .. } = attempt else { panic!("{attempt:?}") };
    assert_eq!(attempt.ending.status(), Some(410));
    let transition = live.recv().await.unwrap();
    assert!(matches!(transition, EngineEvent::Transition { .. }), "{transition:?}");
}

#[tokio::test(start_paused = true)]
async fn operational_events_go_to_those_who_name_them_and_cause_no_others() {
    let retry = RetryPolicy { max: 1, ..RetryPolicy::default() };
    let mut world = World::with(Policy { retry, ..Policy::default() }, Options::default()).await;
    world.subscribe(URL).await;
    let mut watcher = world.wish("https://watch.example.com/");
    watcher.subscription.types = serde_json::from_str(r#"["postrider.*"]"#).unwrap();
    world.put(watcher).await;
    world.script.set(URL, FAIL);
    world.script.set("https://watch.example.com/", FAIL);
    world.send().await;
    world.pass(TEN_MINUTES * 6 * 50).await;
    // There is an event about the dead delivery, but none about the watcher's own dead delivery.
    let told = world.script.sent_to("https://watch.example.com/");
    assert_eq!(told.len(), 2, "one event, attempted twice");
    let text = String::from_utf8(told[0].body.to_vec()).unwrap();
    assert!(text.contains("\"reason\":\"exhausted\""), "{text}");
    assert_eq!(world.count(StateName::Dead).await, 2);
    world.check_ledger().await;
}

/// A filter that exceeds every budget on [`heavy_event`].
fn heavy_filter() -> serde_json::Value {
    let condition = serde_json::json!({"field": "data", "op": "contains_only", "value": [1]});
    serde_json::json!({"all": vec![condition; 20]})
}

fn heavy_event() -> NewEvent {
    event(&format!("[{}]", vec!["1"; 400_000].join(",")))
}

#[tokio::test]
async fn event_whose_filter_exceeds_its_budget_is_delivered_and_the_owner_is_told_once() {
    let mut world = World::new().await;
    let mut record = world.wish(URL);
    let filter = postrider_domain::filter::Filter::compile(&heavy_filter()).unwrap();
    record.subscription.filter = Some(filter);
    let id = record.subscription.id;
    world.put(record).await;
    let mut watcher = world.wish("https://watch.example.com/");
    watcher.subscription.types = serde_json::from_str(r#"["postrider.*"]"#).unwrap();
    world.put(watcher).await;
    let mut live = world.engine.subscribe();
    for _ in 0..2 {
        let ingested = world.engine.ingest(&tenant(), vec![heavy_event()]).await.unwrap();
        assert_eq!(ingested[0].deliveries, 1, "nothing is lost");
    }
    let mut told = Vec::new();
    while told.len() < 3 {
        match live.recv().await.unwrap() {
            EngineEvent::FilterOverBudget { subscription, events, .. } => {
                assert_eq!((subscription, events), (id, 1));
            }
            EngineEvent::Attempt { delivery, .. } => told.push(delivery.kind.to_string()),
            EngineEvent::Began { .. }
            | EngineEvent::Transition { .. }
            | EngineEvent::Dead { .. }
            | EngineEvent::Warning { .. }
            | EngineEvent::SuspensionChange(_)
            | EngineEvent::ClockStep(_) => {}
        }
    }
    told.sort_unstable();
    let notice = "postrider.subscription.filter_over_budget";
    assert_eq!(told, [notice, "task.updated", "task.updated"]);
    assert_eq!(world.engine.gauges().await.unwrap().filters_over_budget, 2);
}

#[tokio::test(start_paused = true)]
async fn credentials_that_cannot_be_opened_are_our_fault() {
    let mut world = World::new().await;
    let mut record = world.wish(URL);
    record.credentials = b"sealed by another key".to_vec();
    world.put(record).await;
    let ingested = world.send().await;
    assert_eq!(world.script.sent().len(), 0);
    let delivery = world.delivery(&ingested).await;
    assert_eq!((delivery.attempts, slot(&delivery)), (1, 1));
    let attempts = world.attempts(delivery.id).await;
    let Ending::OwnFault(fault) = &attempts[0].ending else { panic!("{attempts:?}") };
    assert_eq!(fault.kind, OwnFaultKind::Internal);
    assert_eq!(world.destination(URL).await.circuit.counters.attempts, 0);
    world.script.set(URL, OK);
}
