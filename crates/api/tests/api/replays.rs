//! `/v1/replays`

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Api, id};

#[tokio::test]
async fn a_dry_run_counts_and_a_replay_replays() {
    let api = Api::new().await;
    for _ in 0..3 {
        api.send_event().await;
    }
    let delivery = api.delivery("200").await;
    for _ in 0..2 {
        api.send_event().await;
    }
    api.idle().await;
    let wish = json!({"state": "delivered", "subscription": delivery["subscription_id"]});
    let mut dry = wish.clone();
    dry["dry_run"] = json!(true);
    let counted = api.post("/v1/replays", dry).expect(200).await;
    assert_eq!(counted, json!({"dry_run": true, "total": 3}));
    let list = api.get("/v1/replays").expect(200).await;
    assert_eq!(list["data"], json!([]), "nothing was started");
    let job = api.post("/v1/replays", wish).expect(201).await;
    let path = format!("/v1/replays/{}", id(&job));
    api.until(async |api| api.get(&path).expect(200).await["state"] == "finished").await;
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == 6).await;
    let settled = |job: &Value| job["outcomes"]["pending"] == 0;
    api.until(async |api| settled(&api.get(&path).expect(200).await)).await;
    let done = api.get(&path).expect(200).await;
    assert_json_snapshot!(done, {".id" => "[id]", ".filter.subscription" => "[id]"});
    assert_eq!(api.get("/v1/replays").expect(200).await["data"], json!([done]));
    for action in ["pause", "resume", "cancel"] {
        let call = api.call("POST", &format!("{path}/{action}"));
        call.refused(409, "wrong_state", None).await;
    }
}

#[tokio::test]
async fn a_paced_replay_can_be_paused_resumed_and_cancelled() {
    let api = Api::new().await;
    api.delivery("200").await;
    for _ in 0..4 {
        api.send_event().await;
    }
    api.idle().await;
    let job = api.post("/v1/replays", json!({"state": "delivered", "per_second": 1}));
    let path = format!("/v1/replays/{}", id(&job.expect(201).await));
    let state = async |action: &str| {
        let job = api.call("POST", &format!("{path}/{action}")).expect(200).await;
        job["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state("pause").await, "paused");
    assert_eq!(state("resume").await, "running");
    assert_eq!(state("cancel").await, "cancelled");
}

#[tokio::test]
async fn invalid_replay_is_refused_with_the_reason() {
    let api = Api::new().await;
    for (body, code, field) in [
        (json!({"state": "queued"}), "invalid_field", "state"),
        (json!({"state": "in_flight"}), "invalid_field", "state"),
        (
            json!({"state": "waiting", "ended_since": "2025-11-15T09:30:00Z"}),
            "invalid_field",
            "ended_since",
        ),
        (json!({"ended_since": "now"}), "invalid_field", "ended_since"),
        (json!({"state": "lost"}), "invalid_field", "state"),
        (json!({"destination": "x"}), "invalid_field", "destination"),
        (json!({"per_second": 0}), "invalid_field", "per_second"),
        (json!({"per_second": -1}), "invalid_field", "per_second"),
        (json!({"since": "now"}), "invalid_field", "since"),
        (json!({"dry_run": "yes"}), "invalid_field", "dry_run"),
        (json!({"all": true}), "unknown_field", "all"),
    ] {
        api.post("/v1/replays", body).refused(422, code, Some(field)).await;
    }
}

#[tokio::test]
async fn dry_run_counts_no_delivery_of_a_deleted_subscription() {
    let api = Api::new().await;
    let gone = api.delivery("200").await;
    let dry = json!({"state": "delivered", "dry_run": true});
    let counted = api.post("/v1/replays", dry.clone()).expect(200).await;
    assert_eq!(counted["total"], 1);
    let subscription = gone["subscription_id"].as_str().unwrap();
    api.delete(&format!("/v1/subscriptions/{subscription}")).expect(204).await;
    let counted = api.post("/v1/replays", dry).expect(200).await;
    assert_eq!(counted["total"], 0, "a replay would refuse it");
    let job = api.post("/v1/replays", json!({"state": "delivered"})).expect(201).await;
    let path = format!("/v1/replays/{}", id(&job));
    api.until(async |api| api.get(&path).expect(200).await["state"] == "finished").await;
    let done = api.get(&path).expect(200).await;
    assert_eq!((&done["total"], &done["done"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn what_waits_is_retried_in_bulk_and_skipped_where_it_is_frozen() {
    let api = Api::new().await;
    let one = api.delivery("500").await;
    api.send_event().await;
    api.idle().await;
    let dry = json!({"state": "waiting", "dry_run": true});
    assert_eq!(api.post("/v1/replays", dry).expect(200).await["total"], 2);
    let before = api.receiver.requests.lock().unwrap().len();
    let job = api.post("/v1/replays", json!({"state": "waiting"})).expect(201).await;
    assert_eq!((&job["filter"]["state"], &job["skipped"]), (&json!("waiting"), &json!(null)));
    let path = format!("/v1/replays/{}", id(&job));
    api.until(async |api| api.get(&path).expect(200).await["state"] == "finished").await;
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == before + 2).await;
    api.idle().await;
    let done = api.get(&path).expect(200).await;
    assert_eq!((&done["done"], &done["skipped"]), (&json!(2), &json!(0)));
    let none = json!({"pending": 0, "failed": 0, "delivered": 0, "dead": 0, "withdrawn": 0});
    assert_eq!(job["outcomes"], none, "at the start");
    let mut failed = none;
    failed["failed"] = json!(2);
    assert_eq!(done["outcomes"], failed, "both were attempted, and wait for their slots");
    let after = api.get(&format!("/v1/deliveries/{}", id(&one))).expect(200).await;
    assert_eq!((&after["attempts"], &after["state"]), (&json!(2), &json!("waiting")));
    assert_eq!(after["next_attempt_at"], one["next_attempt_at"], "the slot stays");

    let destination = one["destination_id"].as_str().unwrap();
    let freeze = format!("/v1/destinations/{destination}/freeze");
    api.call("POST", &freeze).expect(200).await;
    let named = json!({"state": "waiting", "destination": destination});
    let refused = api.post("/v1/replays", named).refused(409, "wrong_state", None).await;
    assert!(refused["detail"].as_str().unwrap().contains("enable it"), "{refused}");
    let job = api.post("/v1/replays", json!({"state": "waiting"})).expect(201).await;
    let path = format!("/v1/replays/{}", id(&job));
    api.until(async |api| api.get(&path).expect(200).await["state"] == "finished").await;
    let done = api.get(&path).expect(200).await;
    assert_eq!(
        (&done["total"], &done["done"], &done["skipped"]),
        (&json!(2), &json!(0), &json!(2))
    );
}
