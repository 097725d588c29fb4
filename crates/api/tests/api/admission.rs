//! Scope before body, requests in progress, and bytes in memory

use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::http::Request;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use postrider_api::{ApiSettings, Quota};
use serde_json::json;
use tower::ServiceExt as _;

use crate::support::{Api, document};

/// A body of this many bytes that then stalls.
fn held(bytes: usize) -> Body {
    let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(first.chain(stream::pending()))
}

/// An API with these limits, and a tenant `acme` beside `default`.
async fn with(settings: ApiSettings) -> Api {
    let api = Api::with(settings).await;
    api.tenant("acme").await;
    api
}

/// Sends a request that stalls after this many bytes of body; resolves when they have been read.
async fn hold(api: &Api, bytes: usize) -> tokio::task::JoinHandle<()> {
    let request = Request::post("/v1/events")
        .header("authorization", format!("Bearer {}", api.admin))
        .body(held(bytes))
        .unwrap();
    let router = api.router.clone();
    let task = tokio::spawn(async move { drop(router.oneshot(request).await) });
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    task
}

#[tokio::test(start_paused = true)]
async fn body_is_not_read_where_the_key_lacks_the_scope() {
    let api = Api::new().await;
    for (path, item) in document()["paths"].as_object().unwrap() {
        for method in ["POST", "PATCH", "DELETE"] {
            if item.get(method.to_lowercase()).is_none() {
                continue;
            }
            let path = path.replace("{id}", "x");
            for scope in ["read", "manage", "ingest"] {
                let key = api.key("default", &[scope]).await;
                let plain = api.call(method, &path).key(&key).response().await.status();
                let call = api.call(method, &path).key(&key).header("idempotency-key", "once");
                let slow = call.raw(held(1)).response().await.status();
                assert_eq!(slow == 403, plain == 403, "{method} {path} {scope}: {slow}, {plain}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_requests_of_one_tenant_take_only_its_own_places() {
    let in_progress = Quota { per_tenant: 2, in_total: 3 };
    let api = with(ApiSettings { in_progress, ..ApiSettings::default() }).await;
    let slow = [hold(&api, 1).await, hold(&api, 1).await];
    let answer = api.get("/v1/ledger").send().await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, Some("2")));
    assert_eq!(answer.json["code"], "too_many_at_once");
    api.get("/v1/ledger").tenant("acme").expect(200).await;
    slow.iter().for_each(tokio::task::JoinHandle::abort);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    api.get("/v1/ledger").expect(200).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_of_bodies_are_limited_per_tenant_and_in_total() {
    let request_bytes = Quota { per_tenant: 10_000, in_total: 15_000 };
    let api = with(ApiSettings { request_bytes, ..ApiSettings::default() }).await;
    let slow = hold(&api, 9_000).await;
    let large = json!({"type": "a", "data": "x".repeat(2_000)});
    let call = api.post("/v1/events", large.clone());
    call.refused(429, "too_many_at_once", None).await;
    api.post("/v1/events", large.clone()).tenant("acme").expect(202).await;
    let larger = json!({"type": "a", "data": "x".repeat(7_000)});
    let call = api.post("/v1/events", larger).tenant("acme");
    call.refused(503, "overloaded", None).await;
    slow.abort();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    api.post("/v1/events", large).expect(202).await;
}

#[tokio::test]
async fn answers_that_nobody_reads_are_limited_per_tenant() {
    let answer_bytes = Quota { per_tenant: 150, in_total: 1000 };
    let api = with(ApiSettings { answer_bytes, ..ApiSettings::default() }).await;
    let unread = api.get("/v1/ledger").response().await;
    assert_eq!(unread.status(), 200);
    assert!(unread.body().size_hint().exact().is_some(), "the answer has a length");
    api.get("/v1/ledger").refused(429, "too_many_at_once", None).await;
    api.get("/v1/ledger").tenant("acme").expect(200).await;
    // A change is always answered, whatever the budget.
    api.post("/v1/events", json!({"type": "a", "data": 1})).expect(202).await;
    drop(unread);
    api.get("/v1/ledger").expect(200).await;
}

#[tokio::test]
async fn header_that_decides_something_may_be_there_once() {
    let api = Api::new().await;
    let key = format!("Bearer {}", api.admin);
    for name in ["authorization", "postrider-tenant", "host", "idempotency-key"] {
        let value = if name == "authorization" { &key } else { "default" };
        let mut request = Request::get("/v1/ledger").header(name, value).header(name, value);
        if name != "authorization" {
            request = request.header("authorization", &key);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = api.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 400, "{name}");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&problem["code"], &problem["field"]), (&json!("bad_request"), &json!(name)));
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_waits_too_long_for_a_permit_is_refused() {
    let in_progress = Quota { per_tenant: 1, in_total: 1 };
    let api = with(ApiSettings { in_progress, ..ApiSettings::default() }).await;
    let slow = hold(&api, 1).await;
    let answer = api.get("/v1/ledger").tenant("acme").send();
    let answer = tokio::time::timeout(Duration::from_secs(3), answer).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.json["code"].as_str()), (503, Some("overloaded")));
    slow.abort();
}
