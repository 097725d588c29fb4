//! All tenants together: `postrider-tenant: *`.

use serde_json::{Value, json};

use crate::support::{Api, document, id};

async fn fill(api: &Api) {
    for (tenant, path) in [("acme", "200"), ("umbrella", "refused")] {
        api.tenant(tenant).await;
        let body = json!({"url": format!("https://{tenant}.example.com/{path}"), "types": ["*"]});
        api.post("/v1/subscriptions", body).tenant(tenant).expect(201).await;
        let event = json!({"type": "a", "data": 1, "id": "e"});
        api.post("/v1/events", event).tenant(tenant).expect(202).await;
        api.idle().await;
    }
}

fn tenants(list: &Value) -> Vec<&str> {
    let all = list["data"].as_array().unwrap();
    let mut all: Vec<&str> = all.iter().map(|one| one["tenant"].as_str().unwrap()).collect();
    all.sort_unstable();
    all
}

#[tokio::test]
async fn admin_key_lists_the_records_of_all_tenants_with_their_tenants() {
    let api = Api::new().await;
    fill(&api).await;
    for path in ["/v1/subscriptions", "/v1/destinations", "/v1/events", "/v1/deliveries"] {
        let list = api.get(path).tenant("*").expect(200).await;
        assert_eq!(tenants(&list), ["acme", "umbrella"], "{path}");
        let first = api.get(&format!("{path}?limit=1")).tenant("*").expect(200).await;
        let cursor = first["next_cursor"].as_str().unwrap();
        let next = format!("{path}?limit=1&cursor={cursor}");
        let second = api.get(&next).tenant("*").expect(200).await;
        let both = json!([first["data"][0], second["data"][0]]);
        assert_eq!(both, list["data"], "{path}");
        api.get(&next).refused(422, "invalid_field", Some("cursor")).await;
        // A list of one tenant names none.
        let own = api.get(path).tenant("acme").expect(200).await;
        assert_eq!(own["data"][0].get("tenant"), None, "{path}");
    }
    let state = async |state: &str| {
        let path = format!("/v1/deliveries?state={state}&since=2020-01-01T00:00:00Z");
        let list = api.get(&path).tenant("*").expect(200).await;
        tenants(&list).join(" ")
    };
    assert_eq!(state("delivered").await, "acme");
    assert_eq!(state("waiting").await, "umbrella");
    assert_eq!(state("dead").await, "");
}

#[tokio::test]
async fn dead_letters_of_all_tenants_are_listed_with_their_tenants() {
    let api = Api::new().await;
    fill(&api).await;
    // The first failure is the last one.
    let policy = json!({"retry": {"max": 0}});
    for (tenant, path) in [("acme", "500"), ("umbrella", "refused")] {
        let url = format!("https://dead.{tenant}.example.com/{path}");
        let body = json!({"url": url, "types": ["b"], "policy": policy});
        api.post("/v1/subscriptions", body).tenant(tenant).expect(201).await;
        let event = json!({"type": "b", "data": 1});
        api.post("/v1/events", event).tenant(tenant).expect(202).await;
        api.idle().await;
    }
    let list = api.get("/v1/deliveries?state=dead").tenant("*").expect(200).await;
    assert_eq!(tenants(&list), ["acme", "umbrella"], "{list}");
    for dead in list["data"].as_array().unwrap() {
        assert_eq!((&dead["state"], &dead["type"]), (&json!("dead"), &json!("b")), "{dead}");
        // The id names the same delivery for its own tenant, and for no other.
        let (own, path) =
            (dead["tenant"].as_str().unwrap(), format!("/v1/deliveries/{}", id(dead)));
        assert_eq!(api.get(&path).tenant(own).expect(200).await["state"], "dead");
        let other = if own == "acme" { "umbrella" } else { "acme" };
        api.get(&path).tenant(other).refused(404, "not_found", None).await;
    }
    let own = api.get("/v1/deliveries?state=dead").tenant("acme").expect(200).await;
    assert_eq!(own["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn failing_destinations_of_all_tenants_are_listed_by_themselves() {
    let api = Api::new().await;
    fill(&api).await;
    let failing = async || api.get("/v1/destinations?state=failing").tenant("*").expect(200).await;
    assert_eq!(failing().await["data"], json!([]));
    let list = api.get("/v1/destinations").tenant("umbrella").expect(200).await;
    let place = format!("/v1/destinations/{}", id(&list["data"][0]));
    api.post(&format!("{place}/freeze"), json!({})).tenant("umbrella").expect(200).await;
    let found = failing().await;
    assert_eq!(tenants(&found), ["umbrella"]);
    assert_eq!(
        (&found["data"][0]["state"], &found["data"][0]["waiting"]),
        (&json!("frozen"), &json!(1))
    );
    let frozen = api.get("/v1/destinations?state=frozen").tenant("*").expect(200).await;
    assert_eq!(tenants(&frozen), ["umbrella"]);
    let enabled = api.get("/v1/destinations?state=enabled").tenant("*").expect(200).await;
    assert_eq!(tenants(&enabled), ["acme"]);
}

#[tokio::test]
async fn key_of_a_tenant_never_sees_all_tenants() {
    let api = Api::new().await;
    fill(&api).await;
    let key = api.key("acme", &["read", "manage", "ingest"]).await;
    for path in
        ["/v1/subscriptions", "/v1/destinations", "/v1/events", "/v1/deliveries", "/v1/ledger"]
    {
        let call = api.get(path).key(&key).tenant("*");
        call.refused(403, "missing_scope", Some("postrider-tenant")).await;
    }
}

#[tokio::test]
async fn all_tenants_together_cannot_be_changed() {
    let api = Api::new().await;
    fill(&api).await;
    let mut calls = 0;
    for (path, item) in document()["paths"].as_object().unwrap() {
        for method in ["POST", "PATCH", "DELETE"] {
            // Signing in and out is about no tenant.
            if item.get(method.to_lowercase()).is_none()
                || !path.starts_with("/v1/")
                || path == "/v1/session"
            {
                continue;
            }
            let path = path.replace("{id}", "x");
            let call = api.call(method, &path).tenant("*").json(json!({}));
            call.refused(422, "one_tenant_needed", Some("postrider-tenant")).await;
            calls += 1;
        }
    }
    assert!(calls > 20, "{calls}");
}

#[tokio::test]
async fn call_about_one_tenant_says_so() {
    let api = Api::new().await;
    fill(&api).await;
    for path in [
        "/v1/ledger",
        "/v1/limits",
        "/v1/replays",
        "/v1/events/e",
        "/v1/deliveries?type=a",
        "/v1/deliveries?object=a",
        "/v1/deliveries?state=in_flight",
        "/v1/events?type=a",
        "/v1/subscriptions?q=a",
    ] {
        let call = api.get(path).tenant("*");
        call.refused(422, "one_tenant_needed", Some("postrider-tenant")).await;
    }
    api.get("/v1/tenants").tenant("*").expect(200).await;
}

#[tokio::test]
async fn keys_of_all_tenants_are_listed_with_the_admin_key() {
    let api = Api::new().await;
    api.tenant("acme").await;
    api.key("acme", &["read"]).await;
    api.key("default", &["read"]).await;
    let mut seen = Vec::new();
    for list in
        [api.get("/v1/keys").expect(200).await, api.get("/v1/keys").tenant("*").expect(200).await]
    {
        let mut all: Vec<Value> =
            list["data"].as_array().unwrap().iter().map(|key| key["tenant"].clone()).collect();
        all.sort_by_key(ToString::to_string);
        seen.push(Value::from(all));
    }
    let all = json!(["acme", "default", null]);
    assert_eq!(seen, [all.clone(), all]);
    let own = api.get("/v1/keys").tenant("acme").expect(200).await;
    assert_eq!(tenants(&own), ["acme"]);
}
