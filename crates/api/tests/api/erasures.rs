//! `/v1/erasures`

use std::time::Duration;

use postrider_api::ApiSettings;
use serde_json::{Value, json};

use crate::support::{Api, id};

const MARKER: &str = "kanarienvogel";

/// A server whose task for erasures runs.
async fn erasing() -> Api {
    let settings = ApiSettings { scrub_interval: Duration::ZERO, ..ApiSettings::default() };
    let api = Api::with(settings).await;
    drop(tokio::spawn(api.state.clone().run_erasures()));
    api
}

async fn send(api: &Api, id: &str, object: &str) {
    let body = json!({
        "id": id, "type": "task.updated", "object": object,
        "data": {"name": MARKER}, "old": [MARKER],
    });
    api.post("/v1/events", body).expect(202).await;
}

/// Events erased, erased before, deliveries cancelled, and attempts erased.
fn counts(job: &Value) -> [u64; 4] {
    ["erased", "already", "cancelled", "attempts"].map(|name| job[name].as_u64().unwrap())
}

/// Waits until an erasure has finished.
async fn finished(api: &Api, job: &Value) -> Value {
    let path = format!("/v1/erasures/{}", id(job));
    for _ in 0..600 {
        let job = api.get(&path).expect(200).await;
        if job["state"] == "finished" {
            return job;
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        tokio::task::yield_now().await;
    }
    panic!("it does not finish: {}", api.get(&path).expect(200).await);
}

#[tokio::test(start_paused = true)]
async fn erased_event_shows_no_payload_and_cannot_be_replayed() {
    let api = erasing().await;
    api.subscribe("200").await;
    send(&api, "e1", "person-7").await;
    api.idle().await;
    let delivery = api.get("/v1/deliveries").expect(200).await["data"][0].clone();
    let begun = api.post("/v1/erasures", json!({"event": "e1"})).expect(202).await;
    assert_eq!((&begun["event"], &begun["object"]), (&json!("e1"), &Value::Null));
    let job = finished(&api, &begun).await;
    assert_eq!(counts(&job), [1, 0, 0, 1]);
    let event = api.get("/v1/events/e1").expect(200).await;
    assert_eq!((&event["data"], &event["old"]), (&Value::Null, &Value::Null));
    assert_eq!(event["object"], "person-7");
    assert!(event["erased_at"].is_string());
    let list = api.get("/v1/events").expect(200).await;
    assert_eq!(list["data"][0]["erased_at"], event["erased_at"]);
    let path = format!("/v1/deliveries/{}", id(&delivery));
    let shown = api.get(&path).expect(200).await;
    assert_eq!(shown["state"], "delivered");
    assert_eq!(shown["attempt_log"][0]["status"], 200);
    assert_eq!(shown["attempt_log"][0]["response_body"], "");
    api.call("POST", &format!("{path}/replay")).refused(409, "event_erased", None).await;
    api.get(&format!("{path}/attempts/1/request")).refused(409, "event_erased", None).await;
    let again = json!({"id": "e1", "type": "task.updated", "object": "person-7",
        "data": {"name": MARKER}, "old": [MARKER]});
    api.post("/v1/events", again).refused(409, "event_id_conflict", Some("id")).await;
    let log = api.get("/v1/audit").expect(200).await;
    let started = log["data"].as_array().unwrap().iter().find(|e| e["action"] == "erasure.start");
    assert_eq!(started.unwrap()["target"], begun["id"]);
    assert!(api.engine.ledger(None).await.unwrap().balances());
}

#[tokio::test(start_paused = true)]
async fn unfinished_deliveries_are_cancelled_and_the_ledger_balances() {
    let api = erasing().await;
    api.subscribe("500").await;
    api.subscribe("200").await;
    for (n, object) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
        send(&api, &format!("e{n}"), object).await;
    }
    api.idle().await;
    let begun = api.post("/v1/erasures", json!({"object": "a"})).expect(202).await;
    let job = finished(&api, &begun).await;
    assert_eq!((counts(&job), &job["object"]), ([3, 0, 3, 6], &json!("a")));
    let ledger = api.get("/v1/ledger").expect(200).await;
    assert_eq!((&ledger["cancelled"], &ledger["waiting"]), (&json!(3), &json!(1)));
    assert_eq!((&ledger["delivered"], &ledger["accepted"]), (&json!(4), &json!(8)));
    let shown = api.get("/v1/events/e2").expect(200).await;
    assert_eq!(shown["data"]["name"], MARKER, "another object's stays");
    api.clock.advance(Duration::from_secs(1));
    let again = api.post("/v1/erasures", json!({"object": "a"})).expect(202).await;
    let again = finished(&api, &again).await;
    assert_eq!((&again["erased"], &again["already"]), (&json!(0), &json!(3)));
    let list = api.get("/v1/erasures").expect(200).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    assert_eq!(list["data"][0]["id"], again["id"], "newest first");
}

#[tokio::test(start_paused = true)]
async fn answer_of_an_attempt_that_was_in_flight_is_erased_too() {
    let api = erasing().await;
    api.subscribe("echo/hang").await;
    send(&api, "e1", "a").await;
    api.until(async |api| api.engine.ledger(None).await.unwrap().in_flight == 1).await;
    let begun = api.post("/v1/erasures", json!({"event": "e1"})).expect(202).await;
    let path = format!("/v1/erasures/{}", id(&begun));
    api.until(async |api| api.get("/v1/events/e1").expect(200).await["erased_at"].is_string())
        .await;
    assert_ne!(api.get(&path).expect(200).await["state"], "finished", "an attempt is in flight");
    api.receiver.release.notify_one();
    let job = finished(&api, &begun).await;
    assert_eq!((&job["cancelled"], &job["attempts"]), (&json!(1), &json!(1)));
    let delivery = api.get("/v1/deliveries?event=e1").expect(200).await["data"][0].clone();
    let shown = api.get(&format!("/v1/deliveries/{}", id(&delivery))).expect(200).await;
    assert_eq!(shown["state"], "cancelled");
    assert_eq!(shown["attempt_log"][0]["response_body"], "");
}

#[tokio::test(start_paused = true)]
async fn bulk_replay_sends_nothing_of_an_erased_event() {
    let api = erasing().await;
    api.subscribe("200").await;
    send(&api, "e1", "a").await;
    send(&api, "e2", "b").await;
    api.idle().await;
    let begun = api.post("/v1/erasures", json!({"event": "e1"})).expect(202).await;
    finished(&api, &begun).await;
    let sent = || api.receiver.requests.lock().unwrap().len();
    let before = sent();
    let job = api.post("/v1/replays", json!({"state": "delivered"})).expect(201).await;
    let path = format!("/v1/replays/{}", id(&job));
    api.until(async |api| api.get(&path).expect(200).await["state"] == "finished").await;
    api.until(async |api| {
        let ledger = api.engine.ledger(None).await.unwrap();
        ledger.delivered + ledger.cancelled == 2 && ledger.balances()
    })
    .await;
    assert_eq!(sent(), before + 1, "only the other one is sent again");
    let state = async |event: &str| {
        let list = api.get(&format!("/v1/deliveries?event={event}")).expect(200).await;
        list["data"][0]["state"].clone()
    };
    assert_eq!((state("e1").await, state("e2").await), (json!("cancelled"), json!("delivered")));
}

#[tokio::test]
async fn bad_erasures_are_refused() {
    let api = Api::new().await;
    for (body, code, field) in [
        (json!({}), "missing_field", "event"),
        (json!({"event": "a b"}), "invalid_field", "event"),
        (json!({"event": "a", "object": "b"}), "invalid_field", "object"),
        (json!({"tenant": "a"}), "unknown_field", "tenant"),
    ] {
        api.post("/v1/erasures", body).refused(422, code, Some(field)).await;
    }
    api.post("/v1/erasures", json!({"event": "e9"})).refused(404, "not_found", Some("event")).await;
    let key = api.key("default", &["read", "ingest"]).await;
    let body = json!({"object": "a"});
    api.post("/v1/erasures", body).key(&key).refused(403, "missing_scope", None).await;
}

#[tokio::test(start_paused = true)]
async fn job_of_a_server_that_died_is_finished_by_the_next_one() {
    let api = Api::new().await;
    send(&api, "e1", "a").await;
    let begun = api.post("/v1/erasures", json!({"object": "a"})).expect(202).await;
    assert_eq!(begun["state"], "erasing");
    // Nobody runs it in this server; another one on the same store does.
    let next = api.with_another_given_admin("another-admin-key-of-the-operator");
    drop(tokio::spawn(next.state.clone().run_erasures()));
    let job = finished(&api, &begun).await;
    assert_eq!(job["erased"], 1);
}
