//! `Idempotency-Key`

use std::time::Duration;

use serde_json::json;

use crate::support::{Api, id};

#[tokio::test]
async fn the_same_request_again_gets_the_same_answer_and_does_nothing() {
    let api = Api::new().await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    let call = || api.post("/v1/subscriptions", body.clone()).header("idempotency-key", "k1");
    let first = call().send().await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (201, None));
    let again = call().send().await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!(again.text, first.text, "the secret included");
    assert_eq!(again.header("content-type"), first.header("content-type"));
    let list = api.get("/v1/subscriptions").expect(200).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn another_request_with_the_same_key_is_refused() {
    let api = Api::new().await;
    let event = |n: u32| json!({"type": "a", "data": n});
    api.post("/v1/events", event(1)).header("idempotency-key", "k1").expect(202).await;
    let field = Some("idempotency-key");
    let other = [
        api.post("/v1/events", event(2)),
        api.post("/v1/events?x=1", event(1)),
        api.post("/v1/tenants", event(1)),
    ];
    for call in other {
        let call = call.header("idempotency-key", "k1");
        call.refused(409, "idempotency_conflict", field).await;
    }
    api.tenant("acme").await;
    let elsewhere = api.post("/v1/events", event(2)).tenant("acme");
    elsewhere.header("idempotency-key", "k1").expect(202).await;
    let bad = api.post("/v1/events", event(1)).header("idempotency-key", "with space");
    bad.refused(422, "invalid_field", field).await;
}

#[tokio::test]
async fn refusals_and_empty_answers_are_repeated_too() {
    let api = Api::new().await;
    let refused = || api.post("/v1/events", json!({})).header("idempotency-key", "k1");
    let first = refused().send().await;
    let again = refused().send().await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    let subscription = api.subscribe("a").await;
    let path = format!("/v1/subscriptions/{}", id(&subscription));
    for replayed in [None, Some("true")] {
        let answer = api.delete(&path).header("idempotency-key", "k2").send().await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("idempotency-replayed")),
            (204, replayed)
        );
        assert_eq!(answer.text, "");
    }
}

#[tokio::test]
async fn what_failed_by_our_own_fault_may_succeed_later() {
    let api = Api::new().await;
    let call =
        || api.post("/v1/events", json!({"type": "a", "data": 1})).header("idempotency-key", "k");
    api.store.fail_next(postrider_store::memory::Fault::DiskFull, 1);
    call().expect(503).await;
    api.store.heal();
    let answer = call().send().await;
    assert_eq!((answer.status.as_u16(), answer.header("idempotency-replayed")), (202, None));
}

#[tokio::test]
async fn two_at_the_same_time_are_one() {
    let api = Api::new().await;
    let call = || {
        let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
        api.post("/v1/subscriptions", body).header("idempotency-key", "k").send()
    };
    let (first, second) = tokio::join!(call(), call());
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.text, second.text);
    let replayed = [&first, &second].map(|answer| answer.header("idempotency-replayed").is_some());
    assert_eq!(replayed.iter().filter(|replayed| **replayed).count(), 1);
}

#[tokio::test]
async fn a_key_is_forgotten_after_a_day() {
    let api = Api::new().await;
    let call = |n: u32| {
        api.post("/v1/events", json!({"type": "a", "data": n})).header("idempotency-key", "k")
    };
    call(1).expect(202).await;
    api.clock.advance(Duration::from_secs(24 * 3600));
    call(2).expect(202).await;
}

#[tokio::test]
async fn nobody_else_gets_the_answer() {
    let api = Api::new().await;
    let key = api.key("default", &["read"]).await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    let call = || api.post("/v1/subscriptions", body.clone()).header("idempotency-key", "k");
    call().expect(201).await;
    call().key(&key).refused(403, "missing_scope", None).await;
}
