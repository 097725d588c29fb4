//! Time, rate and size

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use postrider_api::{ApiSettings, Rate};
use serde_json::json;

use crate::support::Api;

#[tokio::test(start_paused = true)]
async fn a_slow_body_is_cut_at_ten_seconds() {
    let api = Api::new().await;
    let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from("{\"type\":"))]);
    let slow = Body::from_stream(first.chain(stream::pending()));
    let answer = api.call("POST", "/v1/events").raw(slow).send().await;
    assert_eq!((answer.status.as_u16(), answer.json["code"].as_str()), {
        (408, Some("body_too_slow"))
    });
    assert_eq!(answer.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_bad_request() {
    let api = Api::new().await;
    let broken = stream::iter([
        Ok(Bytes::from("{")),
        Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "gone")),
    ]);
    let call = api.call("POST", "/v1/events").raw(Body::from_stream(broken));
    call.refused(400, "bad_request", None).await;
}

#[tokio::test]
async fn a_body_without_a_length_is_counted_as_it_comes() {
    let api = Api::new().await;
    let endless = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 65_536])));
    let call = api.call("POST", "/v1/events").raw(Body::from_stream(endless));
    call.refused(413, "body_too_large", None).await;
    let large = "x".repeat(256 * 1024);
    let call = api.post("/v1/tenants", json!({"id": "a", "name": large}));
    call.refused(413, "body_too_large", None).await;
}

#[tokio::test]
async fn a_key_and_a_tenant_are_held_to_their_rate() {
    let rate = |per_second, burst| Some(Rate { per_second, burst });
    let settings = ApiSettings { key_rate: rate(1, 3), ..ApiSettings::default() };
    let api = Api::with(settings).await;
    let key = api.key("default", &["read"]).await;
    for _ in 0..3 {
        api.get("/v1/ledger").key(&key).expect(200).await;
    }
    let answer = api.get("/v1/ledger").key(&key).send().await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (429, Some("1")));
    assert_eq!(answer.json["code"], "rate_limited");
    api.get("/v1/ledger").expect(200).await;
    api.clock.advance(Duration::from_secs(1));
    api.get("/v1/ledger").key(&key).expect(200).await;

    let settings = ApiSettings { tenant_rate: rate(1, 2), ..ApiSettings::default() };
    let api = Api::with(settings).await;
    api.tenant("acme").await;
    api.get("/v1/ledger").expect(200).await;
    let call = api.get("/v1/ledger");
    let problem = call.refused(429, "rate_limited", None).await;
    assert!(problem["detail"].as_str().unwrap().starts_with("the tenant"));
    api.get("/v1/ledger").tenant("acme").expect(200).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_ended() {
    let api = Api::new().await;
    let subscription = api.subscribe("hang").await;
    let path = format!("/v1/subscriptions/{}/test", subscription["id"].as_str().unwrap());
    let answer = api.call("POST", &path).send().await;
    assert_eq!((answer.status.as_u16(), answer.json["code"].as_str()), (503, Some("timed_out")));
    assert!(answer.header("retry-after").is_some());
}
