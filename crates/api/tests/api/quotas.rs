//! Quotas: who is refused when one is reached, and how it is freed.

use postrider_engine::{Quota, Quotas};
use serde_json::{Value, json};

use crate::support::{Api, id};

const FEW: Quotas = Quotas {
    tenant_subscriptions: 2,
    tenant_keys: 2,
    tenants: 3,
    tenant_destinations: 2,
    tenant_replays_running: 1,
    tenant_replays: 3,
    tenant_unfinished: 3,
    ..Quotas::SENSIBLE
};

fn wish(path: &str) -> Value {
    json!({"url": format!("https://hooks.example.com/{path}"), "types": ["task.*"]})
}

/// The current use of a limit, and the limit.
async fn used(api: &Api, key: &str, name: &str) -> (u64, u64) {
    let limits = api.get("/v1/limits").key(key).expect(200).await;
    let all = limits["data"].as_array().unwrap();
    let one = all.iter().find(|one| one["name"] == name).unwrap();
    (one["used"].as_u64().unwrap(), one["limit"].as_u64().unwrap())
}

#[tokio::test]
async fn subscriptions_over_the_limit_are_refused_with_its_name_and_a_deletion_makes_room() {
    let api = Api::with_quotas(FEW).await;
    api.tenant("other").await;
    let key = api.key("default", &["read", "manage"]).await;
    let other = api.key("other", &["read", "manage"]).await;
    let first = api.post("/v1/subscriptions", wish("a")).key(&key).expect(201).await;
    api.post("/v1/subscriptions", wish("b")).key(&key).expect(201).await;
    let refused = api.post("/v1/subscriptions", wish("a?c")).key(&key).send().await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.headers["retry-after"], "60");
    let problem: Value = serde_json::from_str(&refused.text).unwrap();
    assert_eq!(problem["code"], "quota_reached");
    let detail = problem["detail"].as_str().unwrap();
    for part in ["limits.tenant_subscriptions", "limit of 2 ", "delete some"] {
        assert!(detail.contains(part), "{part} is not in {detail}");
    }
    assert_eq!(used(&api, &key, "subscriptions").await, (2, 2));
    api.post("/v1/subscriptions", wish("a")).key(&other).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&first));
    api.patch(&path, json!({"enabled": false})).key(&key).expect(200).await;
    api.delete(&path).key(&key).expect(204).await;
    api.post("/v1/subscriptions", wish("a")).key(&key).expect(201).await;
    let refusals = api.engine.quota_refusals();
    assert!(refusals.contains(&(Quota::TenantSubscriptions, 1)), "{refusals:?}");
}

#[tokio::test]
async fn subscriptions_are_limited_in_bytes_and_one_that_shrinks_is_never_refused() {
    let few = Quotas { tenant_subscription_bytes: 3_000, ..Quotas::SENSIBLE };
    let api = Api::with_quotas(few).await;
    let with = |bytes: usize| {
        let mut wish = wish("a");
        wish["filter"] = json!({"field": "data.a", "op": "eq", "value": "x".repeat(bytes)});
        wish
    };
    api.post("/v1/subscriptions", with(4_000)).refused(429, "quota_reached", None).await;
    let created = api.post("/v1/subscriptions", with(1_500)).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let larger = json!({"filter": with(4_000)["filter"]});
    api.patch(&path, larger).refused(429, "quota_reached", None).await;
    let smaller = json!({"filter": with(10)["filter"]});
    api.patch(&path, smaller).expect(200).await;
    let (used, limit) = used(&api, &api.admin, "subscription_bytes").await;
    assert!((100..1_000).contains(&used) && limit == 3_000, "{used} of {limit}");
}

#[tokio::test]
async fn destinations_are_limited_and_one_that_exists_is_no_new_one() {
    let few = Quotas { tenant_destinations: 2, ..Quotas::SENSIBLE };
    let api = Api::with_quotas(few).await;
    let created = api.post("/v1/subscriptions", wish("a")).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let to = |path: &str| json!({"url": wish(path)["url"]});
    api.patch(&path, to("b")).expect(200).await;
    api.patch(&path, to("c")).refused(429, "quota_reached", None).await;
    api.patch(&path, to("a")).expect(200).await;
    assert_eq!(used(&api, &api.admin, "destinations").await, (2, 2));
}

#[tokio::test]
async fn keys_and_tenants_are_limited() {
    let api = Api::with_quotas(FEW).await;
    api.key("default", &["read"]).await;
    let second = api.key("default", &["read"]).await;
    let body = json!({"tenant": "default", "scopes": ["read"]});
    api.post("/v1/keys", body.clone()).refused(429, "quota_reached", None).await;
    let second = second.split('_').nth(1).unwrap();
    api.delete(&format!("/v1/keys/{second}")).expect(204).await;
    api.post("/v1/keys", body).expect(201).await;
    let before = api.get("/v1/tenants").expect(200).await["data"].as_array().unwrap().len();
    for n in before..3 {
        api.tenant(&format!("t{n}")).await;
    }
    let refused = api.post("/v1/tenants", json!({"id": "one-more"}));
    refused.refused(503, "server_limit_reached", None).await;
    api.delete("/v1/tenants/t2").expect(204).await;
    api.tenant("one-more").await;
}

#[tokio::test]
async fn replays_that_run_are_limited_and_old_ones_make_room() {
    let api = Api::with_quotas(Quotas { tenant_unfinished: 100, ..FEW }).await;
    api.subscribe("500").await;
    for _ in 0..5 {
        api.send_event().await;
    }
    api.idle().await;
    let list = api.get("/v1/deliveries?state=waiting").expect(200).await;
    for delivery in list["data"].as_array().unwrap() {
        api.call("POST", &format!("/v1/deliveries/{}/cancel", id(delivery))).expect(200).await;
    }
    // One per second on a clock that stands still: the first job keeps running.
    let body = json!({"state": "cancelled", "per_second": 1});
    let first = api.post("/v1/replays", body.clone()).expect(201).await;
    api.post("/v1/replays", body.clone()).refused(429, "quota_reached", None).await;
    api.call("POST", &format!("/v1/replays/{}/cancel", id(&first))).expect(200).await;
    let mut last = Value::Null;
    for _ in 0..5 {
        last = api.post("/v1/replays", body.clone()).expect(201).await;
        // It may have ended by itself.
        let path = format!("/v1/replays/{}/cancel", id(&last));
        let status = api.call("POST", &path).send().await.status;
        assert!(status == 200 || status == 409, "{status}");
    }
    let list = api.get("/v1/replays").expect(200).await;
    let kept: Vec<String> = list["data"].as_array().unwrap().iter().map(id).collect();
    assert!(kept.len() <= 3 && kept.contains(&id(&last)), "{kept:?}");
}

#[tokio::test]
async fn events_are_refused_while_too_much_is_unfinished_and_taken_when_some_has_ended() {
    let api = Api::with_quotas(FEW).await;
    api.subscribe("500").await;
    for _ in 0..3 {
        api.send_event().await;
    }
    let event = json!({"type": "task.updated", "data": 1});
    let call = || api.post("/v1/events", event.clone());
    let refused = call().send().await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert!(refused.headers.contains_key("retry-after"));
    assert!(refused.text.contains("limits.tenant_unfinished"), "{}", refused.text);
    let nobody = json!({"type": "note.added", "data": 1});
    api.post("/v1/events", nobody).expect(202).await;
    api.idle().await;
    let list = api.get("/v1/deliveries?state=waiting").expect(200).await;
    let path = format!("/v1/deliveries/{}/cancel", id(&list["data"][0]));
    api.call("POST", &path).expect(200).await;
    api.until(async |_| call().send().await.status == 202).await;
    assert_eq!(used(&api, &api.admin, "unfinished").await, (3, 3));
    api.until(async |_| call().send().await.status == 429).await;
}
