//! `/v1/portal-links`, and what a portal session sees

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_api::ApiSettings;
use serde_json::{Value, json};

use crate::session::{cookie_of, from_page, sign_in, with};
use crate::support::{Api, id};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....";

pub(crate) async fn link(api: &Api, tenant: &str, body: Value) -> Value {
    let call = api.post("/v1/portal-links", body).tenant(tenant).header("host", "localhost:8080");
    call.expect(201).await
}

fn token_of(link: &Value) -> String {
    let url = link["url"].as_str().unwrap();
    let (page, token) = url.split_once("#/signin?token=").unwrap();
    assert_eq!(page, "http://localhost:8080/portal");
    token.to_owned()
}

pub(crate) async fn open(api: &Api, link: &Value) -> String {
    cookie_of(&sign_in(api, json!({"token": token_of(link)})).await)
}

#[tokio::test]
async fn portal_shows_one_tenant_with_its_theme() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let theme = json!({"name": "Acme", "logo": STANDARD.encode(PNG), "accent": "#0A7D4b",
                       "mode": "dark"});
    let made = link(&api, "acme", json!({"access": "read", "theme": theme})).await;
    assert_eq!(
        (&made["tenant"], &made["access"], &made["expires_at"], &made["used_at"]),
        (&json!("acme"), &json!("read"), &json!("2025-11-15T09:40:00.000Z"), &json!(null))
    );
    let cookie = open(&api, &made).await;
    let shown = with(api.get("/v1/session"), &cookie).expect(200).await;
    let logo = shown["theme"]["logo"].as_str().unwrap().to_owned();
    assert_eq!(
        shown,
        json!({"tenant": "acme", "scopes": ["read"], "kind": "portal",
               "expires_at": "2025-11-15T21:30:00.000Z",
               "theme": {"name": "Acme", "logo": logo, "accent": "#0a7d4b", "mode": "dark"}})
    );
    let picture = api.get(&format!("/{logo}")).without_key().response().await;
    assert_eq!(picture.status(), 200);
    assert_eq!(picture.headers()["content-type"], "image/png");
    assert_eq!(picture.headers()["x-content-type-options"], "nosniff");
    for path in ["/portal/logos/x", "/portal/logos/lg_00000000000000000000000000000000"] {
        api.get(path).without_key().refused(404, "not_found", None).await;
    }
    let plain = link(&api, "acme", json!({"access": "manage"})).await;
    let plain = open(&api, &plain).await;
    let shown = with(api.get("/v1/session"), &plain).expect(200).await;
    assert_eq!(shown["scopes"], json!(["manage", "read"]));
    assert_eq!(shown["theme"], json!({"name": null, "logo": null, "accent": null, "mode": null}));
}

#[tokio::test]
async fn portal_link_works_once_and_for_its_time() {
    let api = Api::new().await;
    let made = link(&api, "default", json!({"access": "read", "expires_in": 60})).await;
    open(&api, &made).await;
    let again = json!({"token": token_of(&made)});
    let call = || from_page(api.post("/v1/session", again.clone()).without_key());
    let problem = call().refused(410, "link_gone", None).await;
    assert!(problem["detail"].as_str().unwrap().contains("used already"), "{problem}");
    let late = link(&api, "default", json!({"access": "read", "expires_in": 60})).await;
    api.clock.advance(Duration::from_secs(60));
    let late = json!({"token": token_of(&late)});
    let call = from_page(api.post("/v1/session", late).without_key());
    let problem = call.refused(410, "link_gone", None).await;
    assert!(problem["detail"].as_str().unwrap().contains("expired"), "{problem}");
}

#[tokio::test]
async fn portal_is_closed_where_the_operator_works() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let made = link(&api, "acme", json!({"access": "manage"})).await;
    let cookie = open(&api, &made).await;
    for path in ["/v1/keys", "/v1/tenants", "/v1/audit", "/v1/backup", "/v1/portal-links"] {
        with(api.get(path), &cookie).refused(403, "missing_scope", None).await;
    }
    let more = json!({"access": "manage"});
    let call = with(api.post("/v1/portal-links", more), &cookie);
    call.refused(403, "missing_scope", None).await;
    let key = json!({"scopes": ["read"]});
    with(api.post("/v1/keys", key), &cookie).refused(403, "missing_scope", None).await;
    let path = format!("/v1/portal-links/{}", id(&made));
    with(api.delete(&path), &cookie).refused(403, "missing_scope", None).await;
    let event = json!({"type": "a", "data": 1});
    with(api.post("/v1/events", event), &cookie).refused(403, "missing_scope", None).await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    with(api.post("/v1/subscriptions", body.clone()), &cookie).expect(201).await;
    let read = link(&api, "acme", json!({"access": "read"})).await;
    let read = open(&api, &read).await;
    with(api.post("/v1/subscriptions", body), &read).refused(403, "missing_scope", None).await;
    with(api.get("/v1/subscriptions"), &read).expect(200).await;
}

#[tokio::test]
async fn portal_reads_the_catalogue_and_erasures_and_changes_neither() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let kind = json!({"name": "order.paid"});
    api.post("/v1/event-types", kind.clone()).tenant("acme").expect(201).await;
    let made = link(&api, "acme", json!({"access": "manage"})).await;
    let cookie = open(&api, &made).await;
    for path in ["/v1/catalogue", "/v1/event-types", "/v1/event-types/order.paid", "/v1/erasures"] {
        with(api.get(path), &cookie).expect(200).await;
    }
    for call in [
        api.patch("/v1/catalogue", json!({"unknown_types": "refuse"})),
        api.post("/v1/event-types", json!({"name": "order.new"})),
        api.patch("/v1/event-types/order.paid", json!({"schema": false})),
        api.delete("/v1/event-types/order.paid"),
        api.post("/v1/erasures", json!({"object": "order-7"})),
    ] {
        let problem = with(call, &cookie).refused(403, "missing_scope", None).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with("portal sessions read this"), "{problem}");
    }
    let types = api.get("/v1/event-types").tenant("acme").expect(200).await;
    assert_eq!(types["data"].as_array().unwrap().len(), 1, "{types}");
    assert_eq!(types["data"][0]["schema"], json!(null));
    let event = json!({"type": "anything.else", "data": 1});
    api.post("/v1/events", event).tenant("acme").expect(202).await;
    // The application itself makes these calls with a key.
    let key = api.key("acme", &["read", "manage"]).await;
    api.post("/v1/erasures", json!({"object": "order-7"})).key(&key).expect(202).await;
}

#[tokio::test]
async fn portal_finds_nothing_of_another_tenant() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let delivery = api.delivery("500").await;
    let made = link(&api, "acme", json!({"access": "manage"})).await;
    let cookie = open(&api, &made).await;
    for (kind, field) in [
        ("deliveries", "id"),
        ("events", "event_id"),
        ("subscriptions", "subscription_id"),
        ("destinations", "destination_id"),
    ] {
        let path = format!("/v1/{kind}/{}", delivery[field].as_str().unwrap());
        with(api.get(&path), &cookie).refused(404, "not_found", None).await;
        let list = with(api.get(&format!("/v1/{kind}")), &cookie).expect(200).await;
        assert_eq!(list["data"], json!([]), "{kind}");
    }
    let replay = format!("/v1/deliveries/{}/replay", id(&delivery));
    with(api.call("POST", &replay), &cookie).refused(404, "not_found", None).await;
    let call = with(api.get("/v1/deliveries"), &cookie).tenant("default");
    call.refused(404, "unknown_tenant", Some("postrider-tenant")).await;
}

#[tokio::test]
async fn revoked_link_ends_its_session_and_only_its_tenant_sees_it() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let (one, two) = (
        link(&api, "acme", json!({"access": "read", "theme": {"name": "One"}})).await,
        link(&api, "acme", json!({"access": "manage"})).await,
    );
    let cookie = open(&api, &one).await;
    let list = api.get("/v1/portal-links").tenant("acme").expect(200).await;
    let entries = list["data"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    let used = entries.iter().find(|entry| entry["id"] == one["id"]).unwrap();
    assert_eq!(used["used_at"], "2025-11-15T09:30:00.000Z");
    assert_eq!(used["session_expires_at"], "2025-11-15T21:30:00.000Z");
    assert_eq!(used["theme"]["name"], "One");
    assert!(!list.to_string().contains("pt_"), "no list shows a link: {list}");
    assert_eq!(api.get("/v1/portal-links").expect(200).await["data"], json!([]));
    let path = |link: &Value| format!("/v1/portal-links/{}", id(link));
    api.delete(&path(&one)).refused(404, "not_found", None).await;
    api.delete(&path(&one)).tenant("acme").expect(204).await;
    with(api.get("/v1/session"), &cookie).refused(401, "unauthorized", None).await;
    api.delete(&path(&one)).tenant("acme").refused(404, "not_found", None).await;
    api.delete(&path(&two)).tenant("acme").expect(204).await;
    let revoked = json!({"token": token_of(&two)});
    let call = from_page(api.post("/v1/session", revoked).without_key());
    call.refused(410, "link_gone", None).await;
    let log = api.get("/v1/audit?limit=100&action=portal_link.delete").expect(200).await;
    let entries = log["data"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["target"] == two["id"]), "{log}");
}

#[tokio::test]
async fn pages_of_links_come_newest_first() {
    let api = Api::new().await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(id(&link(&api, "default", json!({"access": "read"})).await));
        api.clock.advance(Duration::from_secs(1));
    }
    made.reverse();
    let first = api.get("/v1/portal-links?limit=2").expect(200).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = api.get(&format!("/v1/portal-links?limit=2&cursor={cursor}")).expect(200).await;
    let ids =
        |page: &Value| -> Vec<String> { page["data"].as_array().unwrap().iter().map(id).collect() };
    assert_eq!([ids(&first), ids(&second)].concat(), made);
    assert_eq!(second["next_cursor"], json!(null));
}

#[tokio::test]
async fn framed_portal_holds_its_token_in_memory() {
    let api = Api::new().await;
    let made = link(&api, "default", json!({"access": "read"})).await;
    let body = json!({"token": token_of(&made), "in_memory": true});
    // No cookie is set, so a frame of a page over plain http works too.
    let call = api.post("/v1/session", body).without_key().header("host", "192.0.2.7:8080");
    let answer = call.header("origin", "http://192.0.2.7:8080").send().await;
    assert_eq!((answer.status.as_u16(), answer.header("set-cookie")), (200, None));
    let token = answer.json["token"].as_str().unwrap();
    api.get("/v1/ledger").key(token).expect(200).await;
    let shown = api.get("/v1/session").key(token).expect(200).await;
    assert_eq!(shown["kind"], "portal");
    let cookie = format!("__Host-postrider={token}");
    with(api.get("/v1/ledger"), &cookie).refused(401, "unauthorized", None).await;
    api.delete("/v1/session").key(token).expect(204).await;
    api.get("/v1/ledger").key(token).refused(401, "unauthorized", None).await;
}

#[tokio::test]
async fn nobody_gives_away_what_they_do_not_have() {
    let api = Api::new().await;
    for (scopes, status) in [
        (vec!["read", "manage"], 201),
        (vec!["manage"], 403),
        (vec!["read"], 403),
        (vec!["ingest"], 403),
    ] {
        let key = api.key("default", &scopes).await;
        let call = api.post("/v1/portal-links", json!({"access": "read"})).key(&key);
        call.header("host", "localhost").expect(status).await;
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_portal_link_is_said() {
    let api = Api::new().await;
    let logo = |bytes: &[u8]| json!({"access": "read", "theme": {"logo": STANDARD.encode(bytes)}});
    let svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>";
    for (body, code, field) in [
        (json!({}), "missing_field", "access"),
        (json!({"access": "admin"}), "invalid_field", "access"),
        (json!({"access": "read", "expires_in": 9}), "invalid_field", "expires_in"),
        (json!({"access": "read", "expires_in": 86_401}), "invalid_field", "expires_in"),
        (json!({"access": "read", "theme": {"accent": "red"}}), "invalid_field", "theme.accent"),
        (json!({"access": "read", "theme": {"accent": "#12345g"}}), "invalid_field", {
            "theme.accent"
        }),
        (json!({"access": "read", "theme": {"mode": "pink"}}), "invalid_field", "theme.mode"),
        (json!({"access": "read", "theme": {"name": "a\nb"}}), "invalid_field", "theme.name"),
        (json!({"access": "read", "theme": {"css": "x"}}), "unknown_field", "theme.css"),
        (logo(svg), "invalid_field", "theme.logo"),
        (logo(&[PNG, &[0; 32 * 1024]].concat()), "invalid_field", "theme.logo"),
        (json!({"access": "read", "tenant": "acme"}), "unknown_field", "tenant"),
    ] {
        let call = api.post("/v1/portal-links", body).header("host", "localhost");
        call.refused(422, code, Some(field)).await;
    }
}

#[tokio::test]
async fn repeated_request_makes_one_link_and_the_oldest_gives_way() {
    let settings = ApiSettings {
        tenant_portal_links_max: 2,
        public_url: Some("https://hooks.example.com".parse().unwrap()),
        ..ApiSettings::default()
    };
    let api = Api::with(settings).await;
    let make = || {
        let call = api.post("/v1/portal-links", json!({"access": "read"}));
        call.header("host", "postrider.internal")
    };
    let first = make().header("idempotency-key", "one").expect(201).await;
    let again = make().header("idempotency-key", "one").expect(201).await;
    assert_eq!(first, again);
    let url = first["url"].as_str().unwrap();
    assert!(url.starts_with("https://hooks.example.com/portal#/signin?token=pt_"), "{url}");
    for _ in 0..2 {
        api.clock.advance(Duration::from_secs(1));
        make().expect(201).await;
    }
    let list = api.get("/v1/portal-links").expect(200).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    assert!(!list.to_string().contains(&id(&first)));
}
