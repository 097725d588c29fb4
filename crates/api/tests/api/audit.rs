//! The audit log

use std::time::Duration;

use postrider_store::{Audit as _, AuditFilter, PageRequest};
use serde_json::{Value, json};

use crate::support::{Api, document, id};

/// Mutating methods that are not in the log, each for its reason: events are their own record, a filter
/// that is tried and a simulation change nothing, and who cannot sign in is nobody (who can is in the log:
/// `session.rs`).
const NOT_LOGGED: [&str; 6] = [
    "/v1/events",
    "/v1/events/batch",
    "/v1/filters/test",
    "/v1/filters/test/events",
    "/v1/session",
    "/v1/simulate",
];

/// Advances the clock: entries of one millisecond have no order.
fn pass(api: &Api) {
    api.clock.advance(Duration::from_millis(1));
}

async fn entries(api: &Api, query: &str) -> Vec<Value> {
    let list = api.get(&format!("/v1/audit{query}")).expect(200).await;
    list["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn dry_run_of_a_replay_leaves_no_entry() {
    let api = Api::new().await;
    let before = entries(&api, "").await.len();
    let dry = json!({"state": "dead", "dry_run": true});
    api.call("POST", "/v1/replays").json(dry).expect(200).await;
    assert_eq!(entries(&api, "").await.len(), before);
}

#[tokio::test]
async fn every_mutating_route_leaves_an_entry_with_a_name_of_its_own() {
    let api = Api::new().await;
    let mut actions = Vec::new();
    for (path, item) in document()["paths"].as_object().unwrap() {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let is_there = item.get(method.to_lowercase()).is_some();
            if !is_there || NOT_LOGGED.contains(&path.as_str()) {
                continue;
            }
            let before = entries(&api, "").await.len();
            pass(&api);
            let call = api.call(method, &path.replace("{id}", "nothing")).json(json!({"x": 1}));
            let answer = call.send().await;
            let after = entries(&api, "").await;
            assert_eq!(after.len(), before + 1, "{method} {path} leaves no entry: {}", answer.text);
            let entry = &after[0];
            assert_eq!(entry["status"], answer.status.as_u16(), "{entry}");
            let action = entry["action"].as_str().unwrap().to_owned();
            assert!(!action.contains(' '), "{method} {path} has no name: add it to ACTIONS");
            let target = path.contains("{id}").then_some("nothing");
            assert_eq!(entry["target"].as_str(), target, "{entry}");
            actions.push(action);
        }
    }
    assert!(actions.len() >= 18, "{actions:?}");
    let all = actions.len();
    actions.sort_unstable();
    actions.dedup();
    assert_eq!(actions.len(), all, "each has a name of its own");
}

#[tokio::test]
async fn entry_names_actor_action_tenant_and_target() {
    let api = Api::new().await;
    pass(&api);
    api.tenant("acme").await;
    pass(&api);
    let body = json!({"tenant": "acme", "name": "deploy", "scopes": ["manage"]});
    let made = api.post("/v1/keys", body).expect(201).await;
    let key = made["key"].as_str().unwrap();
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    pass(&api);
    let created = api.post("/v1/subscriptions", body.clone()).key(key).expect(201).await;
    pass(&api);
    api.post("/v1/subscriptions", body).key(key).expect(409).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    pass(&api);
    api.delete(&path).key(key).expect(204).await;
    pass(&api);
    api.delete("/v1/keys/nothing").key(key).expect(403).await;
    let shown: Vec<_> = entries(&api, "")
        .await
        .iter()
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or("-").to_owned();
            (text("tenant"), text("key_name"), text("action"), text("target"), text("problem"))
        })
        .collect();
    let of = |tenant: &str, name: &str, action: &str, target: &str, problem: &str| {
        let text = str::to_owned;
        (text(tenant), text(name), text(action), text(target), text(problem))
    };
    let (key_id, subscription) = (id(&made), id(&created));
    let first = api.admin.split('_').nth(1).unwrap();
    let admin = "first admin key";
    assert_eq!(
        shown,
        [
            of("acme", "deploy", "key.delete", "nothing", "missing_scope"),
            of("acme", "deploy", "subscription.delete", &subscription, "-"),
            of("acme", "deploy", "subscription.create", "-", "twin_subscription"),
            of("acme", "deploy", "subscription.create", &subscription, "-"),
            of("acme", admin, "key.create", &key_id, "-"),
            of("acme", admin, "tenant.create", "acme", "-"),
            of("-", "-", "key.create", first, "-"),
        ]
    );
    let by_key = entries(&api, &format!("?key={key_id}&action=subscription.create")).await;
    assert_eq!(by_key.len(), 2);
    let about = entries(&api, &format!("?target={subscription}")).await;
    assert_eq!(about.len(), 2, "its creation and its deletion");
}

#[tokio::test]
async fn a_tenant_sees_its_own_entries_and_needs_the_scope_manage() {
    let api = Api::new().await;
    for tenant in ["acme", "umbrella"] {
        api.tenant(tenant).await;
    }
    let manage = api.key("acme", &["manage"]).await;
    let read = api.key("acme", &["read"]).await;
    let list = api.get("/v1/audit").key(&manage).expect(200).await;
    let list = list["data"].as_array().unwrap();
    assert!(list.len() == 3 && list.iter().all(|entry| entry["tenant"] == "acme"), "{list:?}");
    api.get("/v1/audit?tenant=acme").key(&manage).expect(200).await;
    let other = api.get("/v1/audit?tenant=umbrella").key(&manage);
    other.refused(403, "missing_scope", Some("tenant")).await;
    api.get("/v1/audit").key(&read).refused(403, "missing_scope", None).await;
    let theirs = entries(&api, "?tenant=umbrella").await;
    assert_eq!(theirs.len(), 1, "{theirs:?}");
}

#[tokio::test]
async fn pages_and_lines_have_every_entry_once() {
    let api = Api::new().await;
    for n in 0..5 {
        api.clock.advance(Duration::from_secs(1));
        api.tenant(&format!("t{n}")).await;
    }
    let all = entries(&api, "").await;
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let place = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let lines = api.get(&format!("/v1/audit?limit=4{place}"));
        let lines = lines.header("accept", "application/x-ndjson").send().await;
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
        found.extend(lines.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        cursor = lines.header("postrider-next-cursor").map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, all);
    let since = all[1]["at"].as_str().unwrap();
    assert_eq!(entries(&api, &format!("?since={since}")).await, all[..2]);
    assert_eq!(entries(&api, &format!("?until={since}")).await, all[2..]);
}

#[tokio::test]
async fn a_repeated_request_leaves_one_entry() {
    let api = Api::new().await;
    for _ in 0..3 {
        let call = api.post("/v1/tenants", json!({"id": "acme"})).header("idempotency-key", "k");
        call.expect(201).await;
    }
    assert_eq!(entries(&api, "?action=tenant.create").await.len(), 1);
}

#[tokio::test]
async fn refused_mutations_of_one_tenant_cannot_fill_the_log() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let key = api.key("acme", &["manage"]).await;
    for _ in 0..700 {
        api.post("/v1/subscriptions", json!({})).key(&key).expect(422).await;
    }
    let filter = AuditFilter { tenant: Some("acme".parse().unwrap()), ..AuditFilter::default() };
    let all = PageRequest { limit: 10_000, cursor: None };
    let written = api.store.audit(&filter, &all).await.unwrap().items.len();
    assert_eq!(written, 602, "two that succeeded, and as many refusals as the bucket holds");
    pass(&api);
    let call =
        api.post("/v1/subscriptions", json!({"url": "https://a.example.com/", "types": ["a"]}));
    call.key(&key).expect(201).await;
    let created = entries(&api, "?tenant=acme&action=subscription.create&limit=1").await;
    assert_eq!(created[0]["status"], 201, "what succeeds is always written");
}
