//! `/v1/keys`, and the scopes of keys

use std::collections::BTreeSet;
use std::time::Duration;

use insta::assert_json_snapshot;
use postrider_store::Configuration as _;
use serde_json::json;

use crate::support::{Api, id};

#[tokio::test]
async fn a_key_is_created_and_shown_once() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let body = json!({
        "tenant": "acme", "scopes": ["read", "ingest", "read"], "name": "CI",
        "expires_at": "2026-01-01T00:00:00Z",
    });
    let created = api.post("/v1/keys", body).expect(201).await;
    let text = created["key"].as_str().unwrap();
    assert!(text.starts_with(&format!("pr_{}_", id(&created))), "{text}");
    assert_json_snapshot!(created, {".id" => "[id]", ".key" => "[key]"});
    let shown = api.get(&format!("/v1/keys/{}", id(&created))).expect(200).await;
    assert_eq!(shown.get("key"), None);
    let list = api.get("/v1/keys?tenant=acme").expect(200).await;
    assert_eq!(list["data"], json!([shown]));
    assert_eq!(api.get("/v1/keys").tenant("acme").expect(200).await["data"], json!([shown]));
    let admins = api.get("/v1/keys?scope=admin").expect(200).await;
    assert_eq!(admins["data"][0]["tenant"], json!(null));
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say() {
    let api = Api::new().await;
    let event = json!({"type": "a", "data": 1});
    let subscription = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    for (scope, ingest, manage, read) in
        [("ingest", 202, 403, 403), ("manage", 403, 201, 403), ("read", 403, 403, 200)]
    {
        let key = api.key("default", &[scope]).await;
        api.post("/v1/events", event.clone()).key(&key).expect(ingest).await;
        api.post("/v1/subscriptions", subscription.clone()).key(&key).expect(manage).await;
        api.get("/v1/subscriptions").key(&key).expect(read).await;
        for path in ["/v1/keys", "/v1/tenants"] {
            let problem = api.get(path).key(&key).refused(403, "missing_scope", None).await;
            assert!(problem["detail"].as_str().unwrap().contains("`admin`"));
        }
    }
    let admin = api.post("/v1/keys", json!({"scopes": ["admin"]})).expect(201).await;
    let admin = admin["key"].as_str().unwrap();
    api.get("/v1/subscriptions").key(admin).expect(200).await;
    api.post("/v1/events", event).key(admin).tenant("default").expect(202).await;
}

/// A key that was never created.
fn unknown(n: u32) -> String {
    format!("pr_{n:016x}_wrong")
}

#[tokio::test]
async fn unknown_keys_of_an_address_are_refused_after_its_budget_and_known_ones_are_not() {
    let api = Api::new().await;
    let (attacker, other) = ("192.0.2.1", "192.0.2.2");
    let seen = api.key("default", &["read"]).await;
    let late = api.key("default", &["read"]).await;
    let list = |key: &str, from: &str| api.get("/v1/subscriptions").key(key).from(from);
    list(&seen, attacker).expect(200).await;
    for n in 0..300 {
        list(&unknown(n), attacker).refused(401, "unauthorized", None).await;
    }
    api.store.fail_next_reads(u64::MAX);
    let refused = list(&unknown(300), attacker).send().await;
    assert_eq!(
        (refused.status.as_u16(), refused.json["code"].as_str()),
        (429, Some("rate_limited"))
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    list(&unknown(299), attacker).refused(401, "unauthorized", None).await;
    api.store.heal();
    // A known key is looked up again when it was not for some seconds.
    api.clock.advance(Duration::from_secs(6));
    for n in 301..421 {
        list(&unknown(n), attacker).refused(401, "unauthorized", None).await;
    }
    list(&unknown(421), attacker).refused(429, "rate_limited", None).await;
    list(&seen, attacker).expect(200).await;
    list(&late, other).expect(200).await;
    list(&late, attacker).expect(200).await;
    list(&unknown(421), other).refused(401, "unauthorized", None).await;
}

#[tokio::test]
async fn keys_that_exist_cost_no_budget_however_many_there_are() {
    let api = Api::new().await;
    for _ in 0..310 {
        let key = api.key("default", &["read"]).await;
        api.get("/v1/subscriptions").key(&key).from("192.0.2.1").expect(200).await;
    }
}

#[tokio::test]
async fn unknown_sessions_have_the_budget_of_unknown_keys() {
    let api = Api::new().await;
    let session = |n: u32| format!("ps_{n:016x}_{}", "0".repeat(64));
    let list = |n| api.get("/v1/subscriptions").key(&session(n)).from("192.0.2.1");
    for n in 0..300 {
        list(n).refused(401, "unauthorized", None).await;
    }
    list(300).refused(429, "rate_limited", None).await;
    let sign_out = api.delete("/v1/session").key(&session(301)).from("192.0.2.1");
    sign_out.refused(429, "rate_limited", None).await;
}

#[tokio::test]
async fn a_key_stops_working_when_it_is_deleted_and_when_it_expires() {
    let api = Api::new().await;
    let body = json!({"scopes": ["read"], "expires_at": "2025-11-15T10:30:00Z"});
    let created = api.post("/v1/keys", body).expect(201).await;
    let key = created["key"].as_str().unwrap();
    api.get("/v1/ledger").key(key).expect(200).await;
    api.clock.advance(Duration::from_secs(3600));
    let problem = api.get("/v1/ledger").key(key).refused(401, "unauthorized", None).await;
    assert!(problem["detail"].as_str().unwrap().contains("expired"));
    let other = api.post("/v1/keys", json!({"scopes": ["read"]})).expect(201).await;
    let key = other["key"].as_str().unwrap();
    api.get("/v1/ledger").key(key).expect(200).await;
    api.delete(&format!("/v1/keys/{}", id(&other))).expect(204).await;
    api.get("/v1/ledger").key(key).refused(401, "unauthorized", None).await;
    api.delete(&format!("/v1/keys/{}", id(&other))).refused(404, "not_found", None).await;
}

#[tokio::test]
async fn a_key_cannot_delete_itself() {
    let api = Api::new().await;
    let own = api.admin.split('_').nth(1).unwrap();
    api.delete(&format!("/v1/keys/{own}")).refused(409, "key_in_use", None).await;
}

#[tokio::test]
async fn the_last_use_is_written_down_in_batches() {
    let api = Api::new().await;
    let created = api.post("/v1/keys", json!({"scopes": ["read"]})).expect(201).await;
    let key = created["key"].as_str().unwrap();
    api.get("/v1/ledger").key(key).expect(200).await;
    let used = async |api: &Api| api.store.key(&id(&created)).await.unwrap().unwrap().last_used_at;
    assert_eq!(used(&api).await, None, "not for each request");
    api.clock.advance(Duration::from_secs(60));
    api.get("/v1/ledger").key(key).expect(200).await;
    api.until(async |api| used(api).await.is_some()).await;
}

#[tokio::test]
async fn request_without_a_valid_key_learns_nothing() {
    let api = Api::new().await;
    let good = api.key("default", &["read"]).await;
    let mut wrong = good.clone();
    wrong.pop();
    wrong.push(if good.ends_with('0') { '1' } else { '0' });
    for call in [
        api.get("/v1/ledger").without_key(),
        api.get("/v1/ledger").header("authorization", "Basic abc"),
        api.get("/v1/ledger").key(""),
        api.get("/v1/ledger").key("pr_unknown_secret"),
        api.get("/v1/ledger").key(&wrong),
        api.get("/v1/ledger").key(&good[..good.len() - 1]),
        api.post("/v1/events", json!({"surprise": 1})).without_key(),
        api.get("/v1/deliveries/nonsense").without_key(),
    ] {
        let answer = call.send().await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"postrider\""));
        assert_eq!(answer.json["code"], "unauthorized");
    }
}

#[tokio::test]
async fn a_key_of_a_tenant_is_for_that_tenant_alone() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let key = api.key("acme", &["read"]).await;
    api.get("/v1/ledger").key(&key).tenant("acme").expect(200).await;
    // An existing and a missing tenant are answered alike.
    let field = Some("postrider-tenant");
    let other = api.get("/v1/ledger").key(&key).tenant("default");
    let other = other.refused(404, "unknown_tenant", field).await;
    let unknown = api.get("/v1/ledger").key(&key).tenant("nobody");
    assert_eq!(unknown.refused(404, "unknown_tenant", field).await, other);
    for name in ["nobody", "NOT A TENANT", ""] {
        api.get("/v1/ledger").tenant(name).refused(404, "unknown_tenant", field).await;
    }
}

#[tokio::test]
async fn invalid_key_is_refused_with_the_reason() {
    let api = Api::new().await;
    for (body, code, field) in [
        (json!({}), "missing_field", "scopes"),
        (json!({"scopes": []}), "invalid_field", "scopes"),
        (json!({"scopes": ["read", "root"]}), "invalid_field", "scopes[1]"),
        (json!({"scopes": ["read"], "tenant": "nobody"}), "invalid_field", "tenant"),
        (json!({"scopes": ["read"], "tenant": "No Tenant"}), "invalid_field", "tenant"),
        (json!({"scopes": ["admin"], "tenant": "default"}), "invalid_field", "tenant"),
        (json!({"scopes": ["read"], "expires_at": "2020-01-01T00:00:00Z"}), "invalid_field", {
            "expires_at"
        }),
        (json!({"scopes": ["read"], "key": "mine"}), "unknown_field", "key"),
    ] {
        api.post("/v1/keys", body).refused(422, code, Some(field)).await;
    }
    api.get("/v1/keys?scope=read").refused(422, "invalid_field", Some("scope")).await;
}

#[tokio::test]
async fn the_admin_key_that_the_operator_chose_is_listed_and_not_deleted() {
    let chosen = "a key that the operator chose";
    let api = Api::with_given_admin(chosen).await;
    let all = api.get("/v1/keys").key(chosen).expect(200).await;
    let [given, first] = all["data"].as_array().unwrap().as_slice() else { panic!("{all}") };
    assert_eq!((&given["id"], &given["name"]), (&json!("given"), &json!("POSTRIDER_ADMIN_KEY")));
    assert_eq!((&given["tenant"], &given["scopes"]), (&json!(null), &json!(["admin"])));
    assert_eq!(first["name"], "first admin key");
    assert!(!all.to_string().contains(chosen), "{all}");
    let admins = api.get("/v1/keys?scope=admin").key(chosen).expect(200).await;
    assert_eq!(admins, all);
    let of_tenant = api.get("/v1/keys?tenant=default").key(chosen).expect(200).await;
    assert_eq!(of_tenant["data"], json!([]), "it belongs to no tenant");
    assert_eq!(api.get("/v1/keys/given").key(chosen).expect(200).await, *given);
    api.delete("/v1/keys/given").key(chosen).refused(409, "key_in_use", None).await;
    // It takes a place of the first page, and no key is left out.
    api.key("default", &["read"]).await;
    let page = api.get("/v1/keys?limit=2").key(chosen).expect(200).await;
    assert_eq!(page["data"].as_array().unwrap().len(), 2);
    let next = format!("/v1/keys?limit=2&cursor={}", page["next_cursor"].as_str().unwrap());
    let rest = api.get(&next).key(chosen).expect(200).await;
    // The two were created in the same millisecond, so either may come first.
    let rest = rest["data"].as_array().unwrap();
    let shown: BTreeSet<_> = page["data"].as_array().unwrap().iter().chain(rest).map(id).collect();
    assert_eq!((rest.len(), shown.len()), (1, 3), "{page}");

    let without = Api::new().await;
    without.get("/v1/keys/given").refused(404, "not_found", None).await;
    without.delete("/v1/keys/given").refused(404, "not_found", None).await;
    assert_eq!(without.get("/v1/keys").expect(200).await["data"].as_array().unwrap().len(), 1);
}
