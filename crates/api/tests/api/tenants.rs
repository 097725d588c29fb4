//! `/v1/tenants`

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Api, id};

#[tokio::test]
async fn a_tenant_is_created_listed_and_deleted() {
    let api = Api::new().await;
    let body = json!({"id": "acme", "name": "Acme & Co"});
    let created = api.post("/v1/tenants", body.clone()).expect(201).await;
    assert_json_snapshot!(created);
    assert_eq!(api.post("/v1/tenants", body).expect(200).await, created);
    let other = json!({"id": "acme", "name": "Acme"});
    let refusal = api.post("/v1/tenants", other).refused(409, "already_exists", Some("id")).await;
    assert_eq!(refusal["existing_id"], "acme");
    assert_eq!(api.get("/v1/tenants/acme").expect(200).await, created);
    let list = api.get("/v1/tenants").expect(200).await;
    let ids: Vec<String> = list["data"].as_array().unwrap().iter().map(id).collect();
    assert_eq!(ids, ["acme", "default"]);
    api.delete("/v1/tenants/acme").expect(204).await;
    api.get("/v1/tenants/acme").refused(404, "not_found", None).await;
    api.delete("/v1/tenants/acme").refused(404, "not_found", None).await;
    let call = api.get("/v1/ledger").tenant("acme");
    call.refused(404, "unknown_tenant", Some("postrider-tenant")).await;
}

#[tokio::test]
async fn a_tenant_in_use_and_the_default_one_stay() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["*"]});
    let call = api.post("/v1/subscriptions", body).tenant("acme");
    let subscription = call.expect(201).await;
    api.delete("/v1/tenants/acme").refused(409, "tenant_in_use", None).await;
    api.delete("/v1/tenants/default").refused(409, "tenant_in_use", None).await;
    let path = format!("/v1/subscriptions/{}", id(&subscription));
    api.delete(&path).tenant("acme").expect(204).await;
    api.until(async |api| {
        let answer = api.delete("/v1/tenants/acme").send().await;
        answer.status == 204
    })
    .await;
}

#[tokio::test]
async fn invalid_tenant_is_refused_with_the_reason() {
    let api = Api::new().await;
    for (body, code, field) in [
        (json!({}), "missing_field", Some("id")),
        (json!({"id": "Acme"}), "invalid_field", Some("id")),
        (json!({"id": "acme", "name": "x".repeat(101)}), "invalid_field", Some("name")),
        (json!({"id": "acme", "name": "a\nb"}), "invalid_field", Some("name")),
        (json!({"id": "acme", "plan": "gold"}), "unknown_field", Some("plan")),
        (Value::Null, "invalid_field", None),
    ] {
        api.post("/v1/tenants", body).refused(422, code, field).await;
    }
}

#[tokio::test]
async fn tenant_is_described_and_changed() {
    let api = Api::new().await;
    let body = json!({
        "id": "acme", "name": "Acme", "description": "The first one", "metadata": {"plan": "gold"}
    });
    let created = api.post("/v1/tenants", body).expect(201).await;
    assert_eq!(created["metadata"], json!({"plan": "gold"}));
    assert_eq!((&created["quotas"], &created["requests_per_second"]), (&json!({}), &Value::Null));
    let change = json!({"name": null, "quotas": {"subscriptions": 1}});
    let changed = api.patch("/v1/tenants/acme", change).expect(200).await;
    assert_eq!(
        (&changed["name"], &changed["quotas"]),
        (&Value::Null, &json!({"subscriptions": 1}))
    );
    assert_eq!(changed["description"], "The first one");
    assert_eq!(api.get("/v1/tenants/acme").expect(200).await, changed);
    api.patch("/v1/tenants/nobody", json!({})).refused(404, "not_found", None).await;
    for (field, value) in [
        ("name", json!("x".repeat(101))),
        ("metadata", json!({"": "1"})),
        ("quotas", json!({"server_tenants": 1})),
        ("quotas", json!({"x": 1})),
        ("requests_per_second", json!(0)),
        ("events_per_second", json!(1_000_001)),
    ] {
        let call = api.patch("/v1/tenants/acme", json!({field: value}));
        call.refused(422, "invalid_field", Some(field)).await;
    }
    let key = api.key("acme", &["read", "manage"]).await;
    let call = api.patch("/v1/tenants/acme", json!({"quotas": null})).key(&key);
    call.refused(403, "missing_scope", None).await;
}

#[tokio::test]
async fn own_quota_of_a_tenant_holds_for_it_alone_and_is_shown() {
    let api = Api::new().await;
    let body = json!({"id": "acme", "quotas": {"subscriptions": 1, "keys": 0}});
    api.post("/v1/tenants", body).expect(201).await;
    api.tenant("umbrella").await;
    let subscribe = |tenant: &'static str, n: u32| {
        let body = json!({"url": format!("https://hooks.example.com/{n}"), "types": ["*"]});
        api.post("/v1/subscriptions", body).tenant(tenant)
    };
    subscribe("acme", 1).expect(201).await;
    let problem = subscribe("acme", 2).refused(429, "quota_reached", None).await;
    assert!(
        problem["detail"].as_str().unwrap().contains("the limit of 1 subscriptions"),
        "{problem}"
    );
    for n in [1, 2] {
        subscribe("umbrella", n).expect(201).await;
    }
    let key = json!({"tenant": "acme", "scopes": ["read"]});
    api.post("/v1/keys", key.clone()).refused(429, "quota_reached", None).await;
    let limits = api.get("/v1/limits").tenant("acme").expect(200).await;
    let limit = |name: &str| {
        let all = limits["data"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (&limit("subscriptions")["limit"], &limit("subscriptions")["own"]),
        (&json!(1), &json!(true))
    );
    assert_eq!(limit("destinations")["own"], false);
    api.patch("/v1/tenants/acme", json!({"quotas": {}})).expect(200).await;
    subscribe("acme", 2).expect(201).await;
    api.post("/v1/keys", key).expect(201).await;
}

#[tokio::test]
async fn own_rates_of_a_tenant_hold_for_it_alone_and_are_shown() {
    let api = Api::new().await;
    let body = json!({"id": "acme", "requests_per_second": 3, "events_per_second": 2});
    api.post("/v1/tenants", body).expect(201).await;
    let event = |tenant| api.post("/v1/events", json!({"type": "a", "data": 1})).tenant(tenant);
    event("acme").expect(202).await;
    event("acme").expect(202).await;
    event("acme").refused(429, "rate_limited", None).await;
    api.get("/v1/ledger").tenant("acme").refused(429, "rate_limited", None).await;
    for _ in 0..9 {
        event("default").expect(202).await;
    }
    let limits = api.get("/v1/limits").expect(200).await;
    assert_eq!(limits["rates"][0]["limit"], Value::Null);
    api.clock.advance(std::time::Duration::from_secs(2));
    let limits = api.get("/v1/limits").tenant("acme").expect(200).await;
    let rates: Vec<_> = limits["rates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rate| (&rate["limit"], &rate["own"]))
        .collect();
    assert_eq!(rates, [(&json!(3), &json!(true)), (&json!(2), &json!(true))]);
}
