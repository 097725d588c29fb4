//! What receivers get: the documented payloads, filters on real events, and both versions after a
//! change.

use std::time::Duration;

use serde_json::{Value, json};

use super::{SUBSCRIPTIONS, ask, subscribe, workfront};
use crate::support::Api;

/// The bodies that were sent to `https://hooks.example.com/<path>`, in order.
fn bodies(api: &Api, path: &str) -> Vec<Value> {
    let url = format!("https://hooks.example.com/{path}");
    let requests = api.receiver.requests.lock().unwrap();
    let sent = requests.iter().filter(|(to, ..)| *to == url);
    sent.map(|(_, _, body)| serde_json::from_slice(body).unwrap()).collect()
}

async fn send(api: &Api, event: Value, deliveries: u64) {
    api.clock.advance(Duration::from_millis(1));
    let accepted = api.post("/v1/events", event).expect(202).await;
    assert_eq!(accepted["deliveries"], deliveries, "{accepted}");
    api.idle().await;
}

fn state(name: &str) -> Value {
    json!({
        "ID": "59d7ddf7000002322d791eb08bafddfb",
        "name": name,
        "objCode": "PROJ",
        "accessorIDs": ["544820df0000142362741fc0c368de19"],
        "lastUpdateDate": "2017-10-06T13:48:56.980-0600",
        "sponsorID": null,
        "priority": 0,
        "status": "CUR",
        "parameterValues": {},
    })
}

fn update() -> Value {
    json!({
        "type": "PROJ.UPDATE",
        "object": "59d7ddf7000002322d791eb08bafddfb",
        "time": "2017-10-06T19:48:56.998Z",
        "data": state("EventSub Test updated"),
        "old": state("EventSub Test"),
    })
}

#[tokio::test]
async fn an_update_is_delivered_as_documented_with_token_and_signature() {
    let api = workfront().await;
    let id = subscribe(&api, "plain", json!({})).await;
    send(&api, update(), 1).await;
    let expected = json!({
        "eventType": "UPDATE",
        "subscriptionId": id,
        "eventTime": {"nano": 998_000_000, "epochSecond": 1_507_319_336},
        "eventVersion": "v2",
        "subscriptionVersion": "v2",
        "newState": state("EventSub Test updated"),
        "oldState": state("EventSub Test"),
    });
    assert_eq!(bodies(&api, "plain"), [expected]);
    let requests = api.receiver.requests.lock().unwrap();
    let headers = &requests[0].1;
    for header in [
        "authorization: Bearer EauthTokenWorkfrontRocks1234_",
        "content-type: application/json",
        "webhook-signature: v1,",
    ] {
        assert!(headers.contains(header), "{headers}");
    }
}

#[tokio::test]
async fn a_creation_has_an_empty_old_state() {
    let api = workfront().await;
    subscribe(&api, "created", json!({"eventType": "CREATE"})).await;
    let mut created = update();
    created["type"] = json!("PROJ.CREATE");
    created.as_object_mut().unwrap().remove("old");
    send(&api, created, 1).await;
    let body = &bodies(&api, "created")[0];
    assert_eq!(body["eventType"], "CREATE");
    assert_eq!(body["oldState"], json!({}));
    assert_eq!(body["newState"], state("EventSub Test updated"));
}

#[tokio::test]
async fn states_are_base64_texts_on_request_and_lists_of_one_are_texts_in_version_one() {
    use base64::Engine as _;
    let api = workfront().await;
    subscribe(&api, "old", json!({"version": "v1", "base64Encoding": true})).await;
    send(&api, update(), 1).await;
    let body = &bodies(&api, "old")[0];
    assert_eq!(body["eventVersion"], "v1");
    let decode = |field: &str| -> Value {
        let text = body[field].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    let mut expected = state("EventSub Test updated");
    expected["accessorIDs"] = json!("544820df0000142362741fc0c368de19");
    assert_eq!(decode("newState"), expected);
    expected["name"] = json!("EventSub Test");
    assert_eq!(decode("oldState"), expected);
}

#[tokio::test]
async fn for_five_minutes_after_a_change_every_event_is_delivered_in_both_versions() {
    let api = workfront().await;
    let id = subscribe(&api, "both", json!({"version": "v1"})).await;
    let versions = |api: &Api| -> Vec<(String, String)> {
        let word = |body: &Value, name: &str| body[name].as_str().unwrap().to_owned();
        let sent = bodies(api, "both");
        let mut found: Vec<_> = sent
            .iter()
            .map(|body| (word(body, "eventVersion"), word(body, "subscriptionVersion")))
            .collect();
        api.receiver.requests.lock().unwrap().clear();
        found.sort();
        found
    };
    let both =
        |own: &str| vec![("v1".to_owned(), own.to_owned()), ("v2".to_owned(), own.to_owned())];
    let one = |own: &str| vec![(own.to_owned(), own.to_owned())];
    send(&api, update(), 1).await;
    assert_eq!(versions(&api), one("v1"));
    let path = format!("{SUBSCRIPTIONS}/{id}/version");
    ask(&api, "PUT", &path, Some(&json!({"version": "v2"})), 200).await;
    for _ in 0..8 {
        send(&api, update(), 2).await;
        assert_eq!(versions(&api), both("v2"));
    }
    // The same version again is no change, and does not begin the five minutes anew.
    api.clock.advance(Duration::from_secs(299));
    ask(&api, "PUT", &path, Some(&json!({"version": "v2"})), 200).await;
    api.clock.advance(Duration::from_secs(1));
    send(&api, update(), 1).await;
    assert_eq!(versions(&api), one("v2"));
    // The other API changes it in the same way, and the test event has the version of the subscription.
    let change = json!({"workfront": {"version": "v1"}});
    let changed = api.patch(&format!("/v1/subscriptions/{id}"), change).expect(200).await;
    assert_eq!(changed["workfront"]["version"], "v1");
    send(&api, update(), 2).await;
    assert_eq!(versions(&api), both("v1"));
    for _ in 0..8 {
        api.post(&format!("/v1/subscriptions/{id}/test"), json!({})).expect(200).await;
        assert_eq!(versions(&api), one("v1"));
    }
    let ledger = api.get("/v1/ledger").expect(200).await;
    assert_eq!((&ledger["accepted"], &ledger["delivered"]), (&json!(20), &json!(20)));
}

#[tokio::test]
async fn a_delivery_keeps_its_version_and_its_webhook_id_through_retries() {
    for later_changes in 0..3 {
        check_kept_versions(later_changes).await;
    }
}

/// Sends an event in both versions, changes the version so many times, and retries both deliveries.
async fn check_kept_versions(later_changes: usize) {
    let api = workfront().await;
    let id = subscribe(&api, "500", json!({})).await;
    let path = format!("{SUBSCRIPTIONS}/{id}/version");
    ask(&api, "PUT", &path, Some(&json!({"version": "v1"})), 200).await;
    send(&api, update(), 2).await;
    for version in ["v2", "v1"].into_iter().take(later_changes) {
        api.clock.advance(Duration::from_millis(1));
        ask(&api, "PUT", &path, Some(&json!({ "version": version })), 200).await;
    }
    let deliveries = api.get("/v1/deliveries").expect(200).await;
    let ids = deliveries["data"].as_array().unwrap().iter().map(|one| one["id"].clone());
    for id in ids {
        let path = format!("/v1/deliveries/{}/retry", id.as_str().unwrap());
        api.post(&path, json!({})).expect(202).await;
    }
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == 4).await;
    let requests = api.receiver.requests.lock().unwrap().clone();
    let seen = |(_, headers, body): &(String, String, bytes::Bytes)| -> (String, String) {
        let id = headers.lines().find_map(|line| line.strip_prefix("webhook-id: ")).unwrap();
        let body: Value = serde_json::from_slice(body).unwrap();
        (id.to_owned(), body["eventVersion"].as_str().unwrap().to_owned())
    };
    let mut pairs: Vec<_> = requests.iter().map(seen).collect();
    pairs.sort();
    let (a, b) = (pairs[0].clone(), pairs[2].clone());
    assert_eq!(pairs, [a.clone(), a.clone(), b.clone(), b.clone()]);
    assert_ne!(a.1, b.1);
}

#[tokio::test]
async fn a_filter_decides_which_events_are_delivered() {
    let api = workfront().await;
    let filters = json!([
        {"fieldName": "percentComplete", "fieldValue": "100", "comparison": "lt"},
        {"type": "group", "connector": "OR", "filters": [
            {"fieldName": "status", "fieldValue": "CUR", "comparison": "eq"},
            {"fieldName": "priority", "fieldValue": "1", "comparison": "eq"},
        ]},
    ]);
    subscribe(&api, "some", json!({"objCode": "TASK", "filters": filters})).await;
    for (data, deliveries) in [
        (json!({"percentComplete": 42, "status": "CUR", "priority": 3}), 1),
        (json!({"percentComplete": 9, "status": "NEW", "priority": 1}), 1),
        (json!({"percentComplete": 100, "status": "CUR", "priority": 1}), 0),
        (json!({"percentComplete": 42, "status": "NEW", "priority": 3}), 0),
    ] {
        send(&api, json!({"type": "TASK.UPDATE", "data": data, "old": {}}), deliveries).await;
    }
    // Only this object code and this event type.
    send(&api, json!({"type": "TASK.CREATE", "data": {"percentComplete": 1, "priority": 1}}), 0)
        .await;
    send(&api, json!({"type": "PROJ.UPDATE", "data": {"percentComplete": 1, "priority": 1}}), 0)
        .await;
}

#[tokio::test]
async fn a_subscription_to_one_object_gets_only_its_events() {
    let api = workfront().await;
    subscribe(&api, "one", json!({"objId": "59d7ddf7000002322d791eb08bafddfb"})).await;
    send(&api, update(), 1).await;
    let mut other = update();
    other["object"] = json!("another");
    send(&api, other, 0).await;
}
