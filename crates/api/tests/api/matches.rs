//! What an event matches and why, and the subscriptions of a destination.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, id};

async fn subscribe(api: &Api, path: &str, more: Value) -> String {
    let url = format!("https://hooks.example.com/{path}");
    let mut body = json!({"url": url, "types": ["task.*"]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    api.clock.advance(Duration::from_millis(1));
    id(&api.post("/v1/subscriptions", body).expect(201).await)
}

#[tokio::test]
async fn event_is_compared_with_every_subscription() {
    let api = Api::new().await;
    let is = |value: &str| json!({"field": "data.status", "op": "eq", "value": value});
    let wanted = [
        (subscribe(&api, "a", json!({})).await, "matched", json!([])),
        (subscribe(&api, "b", json!({"types": ["user.*"]})).await, "type", json!([])),
        (subscribe(&api, "c", json!({"object": "obj_9"})).await, "object", json!([])),
        (subscribe(&api, "d", json!({"enabled": false})).await, "disabled", json!([])),
        (
            subscribe(&api, "e", json!({"filter": {"all": [is("CUR"), is("DED")]}})).await,
            "filter",
            json!([
                {"place": "filter.all[0]", "holds": true},
                {"place": "filter.all[1]", "holds": false},
            ]),
        ),
        (
            subscribe(&api, "f", json!({"filter": is("CUR")})).await,
            "matched",
            json!([{"place": "filter", "holds": true}]),
        ),
    ];
    let event = id(&api.send_event().await);
    let later = subscribe(&api, "g", json!({})).await;
    let path = format!("/v1/events/{event}/matches");
    let list = api.get(&path).expect(200).await;
    let found = list["data"].as_array().unwrap();
    assert_eq!(found.len(), 7);
    assert_eq!(found[0]["subscription_id"], json!(later));
    assert_eq!(found[0]["because"], "created_after");
    for (shown, (subscription, because, conditions)) in found[1..].iter().zip(wanted.iter().rev()) {
        assert_eq!(shown["subscription_id"], json!(subscription));
        assert_eq!((&shown["because"], &shown["conditions"]), (&json!(because), conditions));
        assert_eq!(shown["matched"], json!(*because == "matched"));
    }
    // Page by page the same.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("{path}?limit=3{cursor}")).expect(200).await;
        seen.extend(page["data"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(&seen, found);
    api.get("/v1/events/unknown/matches").refused(404, "not_found", None).await;
}

#[tokio::test]
async fn subscriptions_are_found_by_their_destination() {
    let api = Api::new().await;
    let mut own = Vec::new();
    for n in 0..3 {
        own.insert(0, subscribe(&api, "same", json!({"object": format!("obj_{n}")})).await);
    }
    subscribe(&api, "other", json!({})).await;
    let first = api.get(&format!("/v1/subscriptions/{}", own[0])).expect(200).await;
    let destination = first["destination_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/subscriptions?destination={destination}");
    let ids =
        |list: &Value| -> Vec<String> { list["data"].as_array().unwrap().iter().map(id).collect() };
    let list = api.get(&path).expect(200).await;
    assert_eq!((ids(&list), &list["next_cursor"]), (own.clone(), &Value::Null));
    let page = api.get(&format!("{path}&limit=2")).expect(200).await;
    assert_eq!(ids(&page), own[..2]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let page = api.get(&format!("{path}&limit=2&cursor={cursor}")).expect(200).await;
    assert_eq!((ids(&page), &page["next_cursor"]), (own[2..].to_vec(), &Value::Null));
    let wrong = api.get("/v1/subscriptions?destination=x");
    wrong.refused(422, "invalid_field", Some("destination")).await;
    // Another tenant has nothing there.
    api.tenant("acme").await;
    let foreign = api.get(&path).tenant("acme").expect(200).await;
    assert_eq!(foreign["data"], json!([]));
}

#[tokio::test]
async fn subscription_says_when_its_overlap_ends() {
    let api = Api::new().await;
    let subscription = subscribe(&api, "a", json!({})).await;
    let path = format!("/v1/subscriptions/{subscription}");
    assert_eq!(api.get(&path).expect(200).await["secret_overlap_ends_at"], Value::Null);
    let rotate = json!({"overlap_seconds": 3_600});
    api.post(&format!("{path}/secret/rotate"), rotate).expect(200).await;
    let ends_at = &api.get(&path).expect(200).await["secret_overlap_ends_at"];
    assert_eq!(ends_at, "2025-11-15T10:30:00.001Z");
    api.clock.advance(Duration::from_secs(3_600));
    assert_eq!(api.get(&path).expect(200).await["secret_overlap_ends_at"], Value::Null);
}
