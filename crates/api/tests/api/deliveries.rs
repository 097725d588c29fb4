//! `/v1/deliveries`

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Api, id};

#[tokio::test]
async fn a_delivery_has_the_record_of_what_was_tried() {
    let api = Api::new().await;
    let delivery = api.delivery("503").await;
    let shown = api.get(&format!("/v1/deliveries/{}", id(&delivery))).expect(200).await;
    assert_json_snapshot!(shown, {
        ".id" => "[id]", ".event_id" => "[id]", ".subscription_id" => "[id]",
        ".destination_id" => "[id]",
    });
}

#[tokio::test]
async fn deliveries_are_found_by_everything_that_is_known_of_them() {
    let api = Api::new().await;
    let delivered = api.delivery("200").await;
    let text = |field: &str| delivered[field].as_str().unwrap().to_owned();
    let count = async |query: &str| {
        let list = api.get(&format!("/v1/deliveries?{query}")).expect(200).await;
        list["data"].as_array().unwrap().len()
    };
    for (query, found) in [
        (String::new(), 1),
        ("state=delivered".to_owned(), 1),
        ("state=dead".to_owned(), 0),
        ("state=in_flight".to_owned(), 0),
        (format!("destination={}", text("destination_id")), 1),
        (format!("subscription={}", text("subscription_id")), 1),
        (format!("event={}", text("event_id")), 1),
        ("event=unknown".to_owned(), 0),
        ("type=task.updated".to_owned(), 1),
        ("type=task.created".to_owned(), 0),
        ("since=2025-11-15T09:30:00Z".to_owned(), 1),
        ("until=2025-11-15T09:30:00Z".to_owned(), 0),
    ] {
        assert_eq!(count(&query).await, found, "{query}");
    }
    for (query, field) in [
        ("state=lost", "state"),
        ("destination=dst_1", "destination"),
        ("subscription=x", "subscription"),
        ("type=a.*", "type"),
    ] {
        let call = api.get(&format!("/v1/deliveries?{query}"));
        call.refused(422, "invalid_field", Some(field)).await;
    }
}

#[tokio::test]
async fn what_is_being_attempted_is_in_flight() {
    let api = Api::new().await;
    api.subscribe("hang").await;
    api.send_event().await;
    api.until(async |api| !api.receiver.requests.lock().unwrap().is_empty()).await;
    let list = api.get("/v1/deliveries?state=in_flight").expect(200).await;
    let delivery = &list["data"][0];
    assert_eq!(delivery["state"], "in_flight");
    assert_eq!(list["next_cursor"], Value::Null);
    let bad = api.get("/v1/deliveries?state=in_flight&cursor=eHg");
    bad.refused(422, "invalid_field", Some("cursor")).await;
    let queued = api.get("/v1/deliveries?state=queued").expect(200).await;
    assert_eq!(queued["data"], json!([]));
    let ledger = api.get("/v1/ledger").expect(200).await;
    assert_eq!((&ledger["in_flight"], &ledger["queued"]), (&json!(1), &json!(0)));
    let path = format!("/v1/deliveries/{}", id(delivery));
    assert_eq!(api.get(&path).expect(200).await["state"], "in_flight");
    let explained = api.get(&format!("{path}/explain")).expect(200).await;
    assert_eq!(explained["summary"], "a request to the receiver is under way");
    api.receiver.release.notify_one();
    api.idle().await;
    assert_eq!(api.get(&path).expect(200).await["state"], "delivered");
}

#[tokio::test]
async fn pages_of_what_is_in_flight_are_full_and_hold_each_once() {
    let api = Api::new().await;
    let wanted = api.subscribe("hang").await;
    api.subscribe("else/hang").await;
    for _ in 0..5 {
        api.send_event().await;
    }
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == 10).await;
    let mut path = "/v1/deliveries?state=in_flight&limit=3".to_owned();
    let (mut sizes, mut found) = (Vec::new(), Vec::new());
    loop {
        let page = api.get(&path).expect(200).await;
        let ids = page["data"].as_array().unwrap().iter().map(id);
        found.extend(ids);
        sizes.push(page["data"].as_array().unwrap().len());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/deliveries?state=in_flight&limit=3&cursor={cursor}");
    }
    assert_eq!(sizes, [3, 3, 3, 1]);
    assert!(found.is_sorted_by(|one, next| one > next), "newest first: {found:?}");
    let path = format!("/v1/deliveries?state=in_flight&subscription={}", id(&wanted));
    assert_eq!(api.get(&path).expect(200).await["data"].as_array().unwrap().len(), 5);
    api.tenant("other").await;
    let other = api.get("/v1/deliveries?state=in_flight").tenant("other");
    assert_eq!(other.expect(200).await["data"], json!([]));
}

#[tokio::test]
async fn a_delivery_is_explained_in_words_and_data() {
    let api = Api::new().await;
    let delivery = api.delivery("503").await;
    let path = format!("/v1/deliveries/{}/explain", id(&delivery));
    assert_json_snapshot!(api.get(&path).expect(200).await, {
        ".delivery.id" => "[id]", ".delivery.event_id" => "[id]",
        ".delivery.subscription_id" => "[id]", ".delivery.destination_id" => "[id]",
    });
}

#[tokio::test]
async fn what_waits_can_be_cancelled_and_what_has_ended_replayed() {
    let api = Api::new().await;
    let delivery = api.delivery("503").await;
    let path = format!("/v1/deliveries/{}", id(&delivery));
    api.call("POST", &format!("{path}/replay")).refused(409, "wrong_state", None).await;
    let cancelled = api.call("POST", &format!("{path}/cancel")).expect(200).await;
    assert_eq!((&cancelled["state"], &cancelled["reason"]), (&json!("cancelled"), &json!("asked")));
    let again = api.call("POST", &format!("{path}/cancel")).refused(409, "wrong_state", None).await;
    assert!(again["detail"].as_str().unwrap().contains("cancelled already"), "{again}");
    let replayed = api.call("POST", &format!("{path}/replay")).expect(202).await;
    assert_eq!(replayed["state"], "waiting");
    api.until(async |api| api.get(&path).expect(200).await["attempts"] == 2).await;
}

#[tokio::test]
async fn a_tenant_sees_the_class_of_a_failure_and_never_an_address() {
    let api = Api::new().await;
    let delivery = api.delivery("refused").await;
    let key = api.key("default", &["read", "manage"]).await;
    let path = format!("/v1/deliveries/{}", id(&delivery));
    let test = format!("/v1/subscriptions/{}/test", delivery["subscription_id"].as_str().unwrap());
    for call in [
        api.get(&path).key(&key),
        api.get(&format!("{path}/explain")).key(&key),
        api.call("POST", &test).key(&key),
    ] {
        let answer = call.send().await;
        assert!(answer.text.contains("refused"), "{}", answer.text);
        assert!(!answer.text.contains("192.0.2.7"), "{}", answer.text);
    }
    let for_admin = api.get(&path).expect(200).await;
    assert_eq!(for_admin["attempt_log"][0]["error"], "refused");
    assert_eq!(for_admin["attempt_log"][0]["detail"], "connect to 192.0.2.7:443: refused");
}
