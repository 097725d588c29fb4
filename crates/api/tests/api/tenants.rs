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
    api.post("/v1/tenants", body).refused(409, "already_exists", Some("id")).await;
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
