//! The schedule of a delivery, and the requests of its attempts.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, id};

/// Number, state and attempt of the slots that are not ahead.
fn slots(shown: &Value) -> Value {
    let slots = shown["schedule"]["slots"].as_array().unwrap().iter();
    let slots =
        slots.filter(|slot| !["ahead", "unneeded"].contains(&slot["state"].as_str().unwrap()));
    slots.map(|slot| json!([slot["number"], slot["state"], slot["attempt"]])).collect()
}

#[tokio::test]
async fn delivery_has_its_slots() {
    let api = Api::new().await;
    let path = format!("/v1/deliveries/{}", id(&api.delivery("503").await));
    let shown = api.get(&path).expect(200).await;
    assert_eq!(slots(&shown), json!([[0, "failed", 1], [1, "next", null]]));
    let schedule = &shown["schedule"];
    assert_eq!(schedule["slots"].as_array().unwrap().len(), 12);
    assert_eq!(schedule["slots"][1]["due_at"], shown["next_attempt_at"]);
    assert_eq!((&schedule["exact"], &schedule["replay"]), (&json!(true), &json!(false)));
    let explained = api.get(&format!("{path}/explain")).expect(200).await;
    let expected = json!({"number": 1, "max": 11, "due_at": shown["next_attempt_at"]});
    assert_eq!(explained["slot"], expected);
}

#[tokio::test]
async fn replay_begins_a_schedule_of_its_own() {
    let api = Api::new().await;
    let path = format!("/v1/deliveries/{}", id(&api.delivery("200").await));
    let shown = api.get(&path).expect(200).await;
    assert_eq!(slots(&shown), json!([[0, "delivered", 1]]));
    assert_eq!(shown["schedule"]["slots"][1]["state"], "unneeded");
    api.clock.advance(Duration::from_secs(60));
    api.call("POST", &format!("{path}/replay")).expect(202).await;
    api.idle().await;
    api.until(async |api| api.get(&path).expect(200).await["state"] == "delivered").await;
    let shown = api.get(&path).expect(200).await;
    assert_eq!(slots(&shown), json!([[0, "delivered", 2]]));
    assert_eq!(shown["schedule"]["replay"], true);
}

#[tokio::test]
async fn request_of_an_attempt_is_shown_without_its_secrets() {
    let api = Api::new().await;
    let body = json!({
        "url": "https://hooks.example.com/500", "types": ["task.*"],
        "auth_token": "a-very-secret-token-9876", "headers": {"x-key": "another-secret-value-5432"},
    });
    let subscription = api.post("/v1/subscriptions", body).expect(201).await;
    api.send_event().await;
    api.idle().await;
    let list = api.get("/v1/deliveries").expect(200).await;
    let delivery = id(&list["data"][0]);
    let path = format!("/v1/deliveries/{delivery}/attempts/1/request");
    let answer = api.get(&path).send().await;
    assert_eq!(answer.status.as_u16(), 200, "{}", answer.text);
    let shown = &answer.json;
    assert_eq!((&shown["method"], &shown["rebuilt"]), (&json!("POST"), &json!(true)));
    assert_eq!(shown["url"], "https://hooks.example.com/500");
    assert_eq!(shown["changed_since"], false);
    let header = |name: &str| {
        let headers = shown["headers"].as_array().unwrap();
        let found = headers.iter().find(|header| header["name"] == name);
        found.map(|header| header["value"].as_str().unwrap().to_owned())
    };
    assert_eq!(header("webhook-id"), Some(delivery.clone()));
    assert_eq!(header("webhook-timestamp").as_deref(), Some("1763199000"));
    assert_eq!(header("webhook-signature").as_deref(), Some("v1,****"));
    assert_eq!(header("authorization").as_deref(), Some("Bearer ****9876"));
    assert_eq!(header("x-key").as_deref(), Some("****5432"));
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    let sent = api.receiver.requests.lock().unwrap().last().unwrap().2.clone();
    assert_eq!(shown["body"].as_str().unwrap().as_bytes(), &sent[..], "the bytes that were sent");
    assert_eq!(shown["body_bytes"], sent.len());
    for secret in ["a-very-secret-token", "another-secret-value", "whsec_"] {
        assert!(!answer.text.contains(secret), "{secret}");
    }
    // A change of the subscription may have changed what is rendered now.
    api.clock.advance(Duration::from_secs(1));
    let change = json!({"format": "raw"});
    let of_subscription = format!("/v1/subscriptions/{}", id(&subscription));
    api.patch(&of_subscription, change).expect(200).await;
    assert_eq!(api.get(&path).expect(200).await["changed_since"], true);
    for number in ["0", "2", "x", "99999999999"] {
        let path = format!("/v1/deliveries/{delivery}/attempts/{number}/request");
        api.get(&path).refused(404, "not_found", None).await;
    }
}
