//! `/v1/session`: signing in, what a session may do, and every way in which it ends

use std::time::Duration;

use axum::http::StatusCode;
use futures_util::StreamExt as _;
use postrider_api::{ApiSettings, sign_in_token};
use postrider_store::Passes as _;
use serde_json::{Value, json};

use crate::support::{Answer, Api, Call, id};

/// Signs in from a page of our own.
pub(crate) async fn sign_in(api: &Api, body: Value) -> Answer {
    from_page(api.post("/v1/session", body).without_key()).send().await
}

/// A request as a browser sends it from a page of our own.
pub(crate) fn from_page(call: Call<'_>) -> Call<'_> {
    call.header("host", "localhost:8080").header("sec-fetch-site", "same-origin")
}

/// The cookie that an answer sets.
pub(crate) fn cookie_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 204, "{}", answer.text);
    let set = answer.header("set-cookie").unwrap();
    let (cookie, attributes) = set.split_once(';').unwrap();
    for attribute in ["Path=/", "HttpOnly", "Secure", "SameSite=Strict", "Max-Age="] {
        assert!(attributes.contains(attribute), "{attribute} in {attributes}");
    }
    assert!(cookie.starts_with("__Host-postrider=ps_"), "{cookie}");
    cookie.to_owned()
}

async fn session(api: &Api, key: &str) -> String {
    cookie_of(&sign_in(api, json!({ "key": key })).await)
}

/// A request with a cookie from a page of our own.
pub(crate) fn with<'a>(call: Call<'a>, cookie: &str) -> Call<'a> {
    from_page(call.without_key().header("cookie", cookie))
}

#[tokio::test]
async fn session_is_what_its_key_is() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let key = api.key("acme", &["read", "ingest"]).await;
    let answer = sign_in(&api, json!({ "key": key })).await;
    assert!(answer.text.is_empty(), "nothing of the session is in the body");
    let cookie = cookie_of(&answer);
    assert!(!cookie.contains(key.rsplit('_').next().unwrap()), "the key is not in the cookie");
    let shown = with(api.get("/v1/session"), &cookie).expect(200).await;
    assert_eq!(
        shown,
        json!({"tenant": "acme", "scopes": ["ingest", "read"], "kind": "key",
               "expires_at": "2025-11-15T21:30:00.000Z", "theme": null})
    );
    with(api.get("/v1/ledger"), &cookie).expect(200).await;
    let event = json!({"type": "a", "data": 1});
    with(api.post("/v1/events", event), &cookie).expect(202).await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    with(api.post("/v1/subscriptions", body), &cookie).refused(403, "missing_scope", None).await;
    let field = Some("postrider-tenant");
    let other = with(api.get("/v1/ledger"), &cookie).tenant("default");
    other.refused(404, "unknown_tenant", field).await;
    let admin = session(&api, &api.admin).await;
    let shown = with(api.get("/v1/session"), &admin).expect(200).await;
    assert_eq!((&shown["tenant"], &shown["scopes"]), (&json!(null), &json!(["admin"])));
    with(api.get("/v1/keys"), &admin).tenant("acme").expect(200).await;
}

#[tokio::test]
async fn key_itself_is_told_its_scopes_too() {
    let api = Api::new().await;
    let key = api.key("default", &["read"]).await;
    let shown = api.get("/v1/session").key(&key).expect(200).await;
    assert_eq!(
        shown,
        json!({"tenant": "default", "scopes": ["read"], "kind": "key", "expires_at": null,
               "theme": null})
    );
}

#[tokio::test]
async fn wrong_key_opens_nothing_and_is_not_repeated() {
    let api = Api::new().await;
    let good = api.key("default", &["read"]).await;
    let wrong = format!("{}0", &good[..good.len() - 1]);
    for key in [wrong.as_str(), "", "nonsense", "pr_x_y", "ps_0123456789abcdef_x"] {
        let answer = sign_in(&api, json!({ "key": key })).await;
        if good == key {
            continue;
        }
        assert_eq!(answer.status, 401, "{key}: {}", answer.text);
        assert_eq!(answer.header("set-cookie"), None);
        assert!(key.is_empty() || !answer.text.contains(key));
    }
    for (body, status, code, field) in [
        (json!({}), 422, "missing_field", Some("key")),
        (json!({"key": good, "token": "pt_x"}), 422, "invalid_field", Some("token")),
        (json!({"key": good, "in_memory": true}), 422, "invalid_field", Some("in_memory")),
        (json!({"key": 12_345_678}), 422, "invalid_field", Some("key")),
        (json!({"secret": good}), 422, "unknown_field", Some("secret")),
        (json!({"token": "pt_0123456789abcdef_x"}), 410, "link_gone", None),
        (json!({"token": "x"}), 410, "link_gone", None),
    ] {
        let call = from_page(api.post("/v1/session", body).without_key());
        let problem = call.refused(status, code, field).await;
        assert!(!problem.to_string().contains("12345678") && !problem.to_string().contains(&good));
    }
    let large = from_page(api.call("POST", "/v1/session").without_key()).raw("x".repeat(5_000));
    large.refused(413, "body_too_large", None).await;
}

#[tokio::test]
async fn without_a_session_nobody_is_signed_in() {
    let api = Api::new().await;
    let cookie = session(&api, &api.admin).await;
    let other_end = if cookie.ends_with('0') { '1' } else { '0' };
    let forged = format!("{}{other_end}", &cookie[..cookie.len() - 1]);
    let two = format!("{cookie}; {forged}");
    for value in ["", "x=1", "__Host-postrider=", "__Host-postrider=ps_1_2", &forged, &two] {
        let call = with(api.get("/v1/session"), value);
        call.refused(401, "unauthorized", None).await;
    }
    // What is a cookie is no bearer token.
    let token = cookie.split_once('=').unwrap().1;
    api.get("/v1/ledger").key(token).refused(401, "unauthorized", None).await;
    // Authentication of a proxy in front does not get in the way.
    let call = with(api.get("/v1/ledger"), &cookie).header("authorization", "Basic eDp5");
    call.expect(200).await;
    // Where a key is sent, it is the key that counts.
    let key = api.key("default", &["read"]).await;
    let call = api.get("/v1/keys").header("cookie", &cookie).key(&key);
    call.refused(403, "missing_scope", None).await;
}

#[tokio::test]
async fn session_expires_however_much_it_is_used() {
    let settings =
        ApiSettings { session_lifetime: Duration::from_secs(3600), ..ApiSettings::default() };
    let api = Api::with(settings).await;
    let answer = sign_in(&api, json!({ "key": api.admin })).await;
    assert!(answer.header("set-cookie").unwrap().contains("Max-Age=3600;"));
    let cookie = cookie_of(&answer);
    for _ in 0..59 {
        api.clock.advance(Duration::from_secs(60));
        with(api.get("/v1/session"), &cookie).expect(200).await;
    }
    api.clock.advance(Duration::from_secs(60));
    with(api.get("/v1/session"), &cookie).refused(401, "unauthorized", None).await;
    with(api.get("/v1/ledger"), &cookie).refused(401, "unauthorized", None).await;
}

#[tokio::test]
async fn session_ends_with_its_key() {
    let api = Api::new().await;
    let expiring = json!({"scopes": ["read"], "expires_at": "2025-11-15T10:30:00Z"});
    let expiring = api.post("/v1/keys", expiring).expect(201).await;
    let short = session(&api, expiring["key"].as_str().unwrap()).await;
    let shown = with(api.get("/v1/session"), &short).expect(200).await;
    assert_eq!(shown["expires_at"], "2025-11-15T10:30:00.000Z", "never longer than its key");
    let created = api.post("/v1/keys", json!({"scopes": ["read"]})).expect(201).await;
    let cookie = session(&api, created["key"].as_str().unwrap()).await;
    with(api.get("/v1/ledger"), &cookie).expect(200).await;
    api.delete(&format!("/v1/keys/{}", id(&created))).expect(204).await;
    with(api.get("/v1/ledger"), &cookie).refused(401, "unauthorized", None).await;
    api.clock.advance(Duration::from_secs(3600));
    with(api.get("/v1/ledger"), &short).refused(401, "unauthorized", None).await;
}

#[tokio::test(start_paused = true)]
async fn open_stream_ends_with_its_session() {
    let api = Api::new().await;
    let created = api.post("/v1/keys", json!({"scopes": ["read"]})).expect(201).await;
    let key = created["key"].as_str().unwrap();
    let (revoked, signed_out) = (session(&api, key).await, session(&api, &api.admin).await);
    let mut streams = Vec::new();
    for cookie in [&revoked, &signed_out] {
        let response = with(api.get("/v1/stream"), cookie).response().await;
        assert_eq!(response.status(), StatusCode::OK);
        streams.push(response.into_body().into_data_stream());
    }
    api.delete(&format!("/v1/keys/{}", id(&created))).expect(204).await;
    with(api.delete("/v1/session"), &signed_out).expect(204).await;
    for mut stream in streams {
        let mut text = String::new();
        while let Some(frame) = stream.next().await {
            text.push_str(std::str::from_utf8(&frame.unwrap()).unwrap());
        }
        assert!(text.contains("event: closed"), "{text}");
    }
}

#[tokio::test]
async fn session_is_refused_after_signing_out() {
    let api = Api::new().await;
    let (mine, other) = (session(&api, &api.admin).await, session(&api, &api.admin).await);
    let answer = with(api.delete("/v1/session"), &mine).send().await;
    assert_eq!(answer.status, 204);
    let cleared = answer.header("set-cookie").unwrap();
    assert!(cleared.starts_with("__Host-postrider=; Max-Age=0;"), "{cleared}");
    with(api.get("/v1/session"), &mine).refused(401, "unauthorized", None).await;
    with(api.get("/v1/session"), &other).expect(200).await;
    // Again, and without a session.
    with(api.delete("/v1/session"), &mine).expect(204).await;
    from_page(api.delete("/v1/session").without_key()).expect(204).await;
    // The log says who came and went.
    let log = api.get("/v1/audit?limit=100").expect(200).await;
    let entries = log["data"].as_array().unwrap();
    let count = |action: &str| entries.iter().filter(|entry| entry["action"] == action).count();
    assert_eq!((count("session.create"), count("session.delete")), (2, 1));
    assert!(!log.to_string().contains(mine.rsplit('_').next().unwrap()), "no token is in it");
}

#[tokio::test]
async fn another_site_cannot_use_a_session() {
    let api = Api::new().await;
    let cookie = session(&api, &api.admin).await;
    let tenant = |n: u32| api.post("/v1/tenants", json!({"id": format!("t{n}")})).without_key();
    for (n, headers) in (0..).zip([
        vec![],
        vec![("origin", "https://evil.example")],
        vec![("origin", "null")],
        vec![("origin", "http://localhost:3000")],
        vec![("sec-fetch-site", "cross-site")],
        vec![("sec-fetch-site", "same-site"), ("origin", "http://localhost:8080")],
        vec![("sec-fetch-site", "none")],
    ]) {
        let mut call = tenant(n).header("cookie", &cookie).header("host", "localhost:8080");
        for (name, value) in &headers {
            call = call.header(name, value);
        }
        call.refused(403, "cross_site", None).await;
    }
    let own = [("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")];
    for (n, (name, value)) in (100..).zip(own) {
        let call = tenant(n).header("cookie", &cookie).header("host", "localhost:8080");
        call.header(name, value).expect(201).await;
    }
    // What only looks needs no proof, but not from another site.
    let look = || api.get("/v1/session").without_key().header("cookie", &cookie);
    look().expect(200).await;
    look().header("sec-fetch-site", "none").expect(200).await;
    look().header("sec-fetch-site", "cross-site").refused(403, "cross_site", None).await;
    // Nor can it sign anybody in or out.
    let key = json!({ "key": api.admin });
    let call = api.post("/v1/session", key).without_key().header("host", "localhost:8080");
    let call = call.header("origin", "https://evil.example");
    call.refused(403, "cross_site", None).await;
    let call = api.delete("/v1/session").without_key().header("cookie", &cookie);
    call.refused(403, "cross_site", None).await;
    // A request with a key is not a browser's.
    let call = api.post("/v1/tenants", json!({"id": "by-key"}));
    call.header("origin", "https://evil.example").expect(201).await;
}

#[tokio::test]
async fn plain_http_from_elsewhere_is_told_what_to_do() {
    let api = Api::new().await;
    let call = |host: &str| {
        let call = api.post("/v1/session", json!({ "key": api.admin })).without_key();
        call.header("host", host)
    };
    for host in ["hooks.example.com", "192.0.2.7:8080", ""] {
        let problem = call(host).refused(403, "tls_needed", None).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("server.trusted_proxies") && detail.contains("tls_cert"));
    }
    for host in ["localhost", "127.0.0.1:8080", "[::1]:8080"] {
        assert_eq!(call(host).send().await.status, 204, "{host}");
    }
}

#[tokio::test]
async fn key_has_so_many_sessions_and_an_address_so_many_attempts() {
    let settings = ApiSettings { key_sessions_max: 2, sessions_max: 3, ..ApiSettings::default() };
    let api = Api::with(settings).await;
    let key = api.key("default", &["read"]).await;
    let first = session(&api, &key).await;
    api.clock.advance(Duration::from_secs(6));
    let second = session(&api, &key).await;
    api.clock.advance(Duration::from_secs(6));
    let third = session(&api, &key).await;
    with(api.get("/v1/session"), &first).refused(401, "unauthorized", None).await;
    for cookie in [&second, &third] {
        with(api.get("/v1/session"), cookie).expect(200).await;
    }
    session(&api, &api.admin).await;
    let other = api.key("default", &["read"]).await;
    let call = from_page(api.post("/v1/session", json!({ "key": other })).without_key());
    call.refused(503, "server_limit_reached", None).await;
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(sign_in(&api, json!({"key": "pr_wrong_key"})).await.status.as_u16());
    }
    assert_eq!(statuses.first(), Some(&401));
    assert_eq!(statuses.last(), Some(&429));
    let answer = sign_in(&api, json!({"key": "pr_wrong_key"})).await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    with(api.get("/v1/session"), &third).expect(200).await;
}

#[tokio::test]
async fn printed_link_signs_in_once_and_not_for_long() {
    let api = Api::new().await;
    let token = sign_in_token(&api.state).await.unwrap().unwrap();
    let body = json!({ "token": *token });
    let in_memory = json!({"token": *token, "in_memory": true});
    let call = from_page(api.post("/v1/session", in_memory).without_key());
    call.refused(422, "invalid_field", Some("in_memory")).await;
    // A request that cannot be answered with a cookie does not use the link up.
    let call = api.post("/v1/session", body.clone()).without_key().header("host", "example.com");
    call.refused(403, "tls_needed", None).await;
    let cookie = cookie_of(&sign_in(&api, body.clone()).await);
    let shown = with(api.get("/v1/session"), &cookie).expect(200).await;
    assert_eq!((&shown["scopes"], &shown["kind"]), (&json!(["admin"]), &json!("key")));
    with(api.get("/v1/keys"), &cookie).expect(200).await;
    let again = from_page(api.post("/v1/session", body).without_key());
    let problem = again.refused(410, "link_gone", None).await;
    assert!(problem["detail"].as_str().unwrap().contains("used already"), "{problem}");
    let late = sign_in_token(&api.state).await.unwrap().unwrap();
    api.clock.advance(Duration::from_secs(600));
    let call = from_page(api.post("/v1/session", json!({ "token": *late })).without_key());
    let problem = call.refused(410, "link_gone", None).await;
    assert!(problem["detail"].as_str().unwrap().contains("expired"), "{problem}");
}

#[tokio::test]
async fn link_of_a_chosen_admin_key_ends_with_that_key() {
    let api = Api::with_given_admin("an admin key that I have chosen").await;
    let token = sign_in_token(&api.state).await.unwrap().unwrap();
    let cookie = cookie_of(&sign_in(&api, json!({ "token": *token })).await);
    with(api.get("/v1/keys"), &cookie).expect(200).await;
    let key = json!({"key": "an admin key that I have chosen"});
    let by_key = cookie_of(&sign_in(&api, key).await);
    with(api.get("/v1/keys"), &by_key).expect(200).await;
    let other = api.with_another_given_admin("an admin key that I chose later");
    for cookie in [&cookie, &by_key] {
        with(other.get("/v1/keys"), cookie).refused(401, "unauthorized", None).await;
    }
}

#[tokio::test]
async fn store_has_no_token_and_forgets_what_has_ended() {
    let api = Api::new().await;
    let cookie = session(&api, &api.admin).await;
    let (_, token) = cookie.split_once('=').unwrap();
    let (id, secret) = token.rsplit_once('_').unwrap();
    let pass = api.store.pass(id).await.unwrap().unwrap();
    let body = String::from_utf8(pass.body).unwrap();
    assert!(!body.contains(secret), "{body}");
    let end = pass.expires_at.saturating_add(Duration::from_millis(1));
    assert_eq!(api.store.prune_passes(end).await.unwrap(), 1);
    assert_eq!(api.store.pass(id).await.unwrap(), None);
}
