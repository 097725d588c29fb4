//! `/v1/deliveries`

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::portal;
use crate::session::with;
use crate::stream::Stream;
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
async fn delivery_that_is_being_attempted_is_in_flight() {
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
    let replay = api.call("POST", &format!("{path}/replay"));
    let refused = replay.refused(409, "wrong_state", None).await;
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("in_flight") && detail.contains("wait for the outcome"), "{detail}");
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
async fn queued_delivery_is_explained_by_what_it_waits_for() {
    let api = Api::new().await;
    api.subscribe("hang").await;
    for _ in 0..10 {
        api.send_event().await;
    }
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == 8).await;
    let queued = api.get("/v1/deliveries?state=queued").expect(200).await;
    assert_eq!(queued["data"].as_array().unwrap().len(), 2, "newest first");
    for (delivery, ahead) in queued["data"].as_array().unwrap().iter().zip([1, 0]) {
        let path = format!("/v1/deliveries/{}/explain", id(delivery));
        let explained = api.get(&path).expect(200).await;
        let words = "the destination has 8 attempts in flight, and may have 8 at a time";
        let standing = &explained["standing"];
        assert_eq!((&standing["ahead"], &standing["stored"]), (&json!(ahead), &json!(false)));
        let wait = &standing["waits_for"][0];
        assert_eq!((&wait["reason"], &wait["what"]), (&json!("destination_limit"), &json!(words)));
        assert_eq!((&wait["in_flight"], &wait["limit"]), (&json!(8), &json!(8)));
        assert_eq!(
            (&explained["because"][0], &explained["next"]["at"]),
            (&json!(words), &Value::Null)
        );
    }
}

#[tokio::test]
async fn waiting_delivery_can_be_retried_now_and_keeps_its_slot() {
    let api = Api::new().await;
    let delivery = api.delivery("500").await;
    api.idle().await;
    let path = format!("/v1/deliveries/{}", id(&delivery));
    let waiting = api.get(&path).expect(200).await;
    assert_eq!((&waiting["state"], &waiting["attempts"]), (&json!("waiting"), &json!(1)));
    let asked = api.call("POST", &format!("{path}/retry")).expect(202).await;
    assert_eq!(asked["state"], "waiting");
    api.idle().await;
    let after = api.get(&path).expect(200).await;
    assert_eq!((&after["state"], &after["attempts"]), (&json!("waiting"), &json!(2)));
    assert_eq!(after["next_attempt_at"], waiting["next_attempt_at"], "its slot stays");
    let log = api.get(&format!("{path}/attempts")).expect(200).await;
    assert_eq!(log["data"][1]["turn"], "manual");
    // Two requests with one idempotency key have one effect.
    for _ in 0..2 {
        let retry = api.call("POST", &format!("{path}/retry")).header("idempotency-key", "again");
        retry.expect(202).await;
        api.idle().await;
    }
    assert_eq!(api.get(&path).expect(200).await["attempts"], 3);
    let destination = delivery["destination_id"].as_str().unwrap();
    let freeze = format!("/v1/destinations/{destination}/freeze");
    api.post(&freeze, json!({"reason": "enough"})).expect(200).await;
    api.call("POST", &format!("{path}/retry")).refused(409, "wrong_state", None).await;
    api.call("POST", &format!("{path}/cancel")).expect(200).await;
    api.call("POST", &format!("{path}/retry")).refused(409, "wrong_state", None).await;
}

#[tokio::test]
async fn waiting_delivery_can_be_cancelled_and_an_ended_one_replayed() {
    let api = Api::new().await;
    let delivery = api.delivery("503").await;
    let path = format!("/v1/deliveries/{}", id(&delivery));
    let refused =
        api.call("POST", &format!("{path}/replay")).refused(409, "wrong_state", None).await;
    let detail = refused["detail"].as_str().unwrap();
    for wanted in ["waiting", "POST /v1/deliveries/{id}/retry", "postrider deliveries retry"] {
        assert!(detail.contains(wanted), "{detail}");
    }
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

/// Paths that may show details of an attempt.
fn paths_of(delivery: &Value) -> Vec<String> {
    let text = |field: &str| delivery[field].as_str().unwrap().to_owned();
    let (id, event, destination) = (text("id"), text("event_id"), text("destination_id"));
    vec![
        format!("/v1/deliveries/{id}"),
        format!("/v1/deliveries/{id}/attempts"),
        format!("/v1/deliveries/{id}/explain"),
        "/v1/deliveries".to_owned(),
        format!("/v1/events/{event}"),
        format!("/v1/destinations/{destination}"),
        format!("/v1/destinations/{destination}/timeline"),
    ]
}

#[tokio::test]
async fn blocked_address_is_shown_to_admin_keys_and_to_no_other() {
    const ADDRESS: &str = "10.1.2.3";
    let api = Api::new().await;
    let delivery = api.delivery("blocked").await;
    let test = format!("/v1/subscriptions/{}/test", delivery["subscription_id"].as_str().unwrap());
    let all = ["read", "manage", "ingest"];
    for scopes in [&all[..1], &all[1..2], &all[2..], &all[..2], &all[..]] {
        let key = api.key("default", scopes).await;
        for path in paths_of(&delivery) {
            let answer = api.get(&path).key(&key).send().await;
            assert!(!answer.text.contains(ADDRESS), "{scopes:?} {path}: {}", answer.text);
            let is_shown = scopes.contains(&"read") && path.ends_with("attempts");
            assert!(!is_shown || answer.text.contains("blocked"), "{path}: {}", answer.text);
        }
        let answer = api.call("POST", &test).key(&key).send().await;
        assert!(!answer.text.contains(ADDRESS), "{scopes:?} test: {}", answer.text);
    }
    for access in ["read", "manage"] {
        let made = portal::link(&api, "default", json!({"access": access})).await;
        let cookie = portal::open(&api, &made).await;
        for path in paths_of(&delivery) {
            let answer = with(api.get(&path), &cookie).send().await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            assert!(!answer.text.contains(ADDRESS), "portal {access} {path}: {}", answer.text);
            let is_shown = path.ends_with("attempts");
            assert!(!is_shown || answer.text.contains("blocked"), "{path}: {}", answer.text);
        }
        let answer = with(api.call("POST", &test), &cookie).send().await;
        assert!(!answer.text.contains(ADDRESS), "portal {access} test: {}", answer.text);
    }
    // An operator needs the address to find the cause, with or without naming the tenant.
    let path = &paths_of(&delivery)[0];
    for call in [api.get(path), api.get(path).tenant("default")] {
        let shown = call.expect(200).await;
        assert_eq!(shown["attempt_log"][0]["error"], "blocked");
        assert_eq!(shown["attempt_log"][0]["detail"], "10.1.2.3 is private");
    }
}

/// Reads a stream until an attempt was blocked, and returns it.
async fn blocked_in(mut stream: Stream) -> Value {
    loop {
        let (name, data) = stream.next().await.unwrap();
        if name == "attempt" && data["attempt"]["error"] == "blocked" {
            return data;
        }
    }
}

#[tokio::test]
async fn blocked_address_is_streamed_to_nobody() {
    const ADDRESS: &str = "10.1.2.3";
    let api = Api::new().await;
    let mut streams = Vec::new();
    for scopes in [&["read"][..], &["read", "manage"], &["read", "manage", "ingest"]] {
        let key = api.key("default", scopes).await;
        streams.push(Stream::of(api.get("/v1/stream").key(&key).response().await));
    }
    for access in ["read", "manage"] {
        let made = portal::link(&api, "default", json!({"access": access})).await;
        let cookie = portal::open(&api, &made).await;
        streams.push(Stream::of(with(api.get("/v1/stream"), &cookie).response().await));
    }
    // A stream is encoded once for all who follow the tenant: admin keys see the address elsewhere.
    streams.push(Stream::of(api.get("/v1/stream").response().await));
    api.delivery("blocked").await;
    for stream in streams {
        let shown = blocked_in(stream).await.to_string();
        assert!(!shown.contains(ADDRESS), "{shown}");
    }
}

#[tokio::test]
async fn attempts_are_a_list_of_their_own() {
    let api = Api::new().await;
    let (delivery, other) = (api.delivery("503").await, api.delivery("500").await);
    let path = format!("/v1/deliveries/{}", id(&delivery));
    let shown = api.get(&path).expect(200).await;
    assert_eq!(shown["attempt_log_cursor"], Value::Null);
    let list = api.get(&format!("{path}/attempts")).expect(200).await;
    assert_eq!(list, json!({"data": shown["attempt_log"], "next_cursor": null}));
    let replayed = api.call("POST", &format!("{path}/cancel")).expect(200).await;
    assert_eq!(replayed["state"], "cancelled");
    api.call("POST", &format!("{path}/replay")).expect(202).await;
    api.idle().await;
    let first = api.get(&format!("{path}/attempts?limit=1")).expect(200).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = api.get(&format!("{path}/attempts?limit=1&cursor={cursor}")).expect(200).await;
    assert_eq!(second["data"][0]["number"], 2);
    let other = format!("/v1/deliveries/{}/attempts?cursor={cursor}", id(&other));
    api.get(&other).refused(422, "invalid_field", Some("cursor")).await;
}
