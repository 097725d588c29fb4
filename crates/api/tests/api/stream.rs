//! `/v1/stream`

use std::time::Duration;

use axum::body::BodyDataStream;
use axum::http::header;
use axum::response::Response;
use futures_util::StreamExt as _;
use postrider_api::{ApiSettings, Quota};
use postrider_domain::ids::TenantId;
use postrider_store::Configuration as _;
use serde_json::{Value, json};

use crate::support::{Api, id};

/// A stream that is read. Several events may come together.
pub(crate) struct Stream {
    frames: BodyDataStream,
    text: String,
}

impl Stream {
    pub(crate) fn of(response: Response) -> Stream {
        Stream { frames: response.into_body().into_data_stream(), text: String::new() }
    }

    /// The next event: its name and its data.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let found = field("event: ").zip(field("data: "));
                let found = found
                    .map(|(name, data)| (name.to_owned(), serde_json::from_str(data).unwrap()));
                self.text = rest.to_owned();
                if found.is_some() {
                    return found;
                }
            }
            let frame = self.frames.next().await?.unwrap();
            self.text.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }
}

#[tokio::test]
async fn attempts_and_transitions_are_streamed_as_they_happen() {
    let api = Api::new().await;
    let response = api.get("/v1/stream").response().await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut stream = Stream::of(response);
    let delivery = api.delivery("500").await;
    let (name, data) = stream.next().await.unwrap();
    assert_eq!(name, "attempt");
    assert_eq!(data["delivery"]["id"], delivery["id"]);
    assert_eq!(data["attempt"]["status"], 500);
    let path = format!("/v1/destinations/{}/freeze", delivery["destination_id"].as_str().unwrap());
    api.post(&path, json!({"reason": "enough"})).expect(200).await;
    let (name, data) = stream.next().await.unwrap();
    assert_eq!((name.as_str(), &data["transition"]["to"]), ("transition", &json!("frozen")));
}

#[tokio::test]
async fn a_stream_tells_nothing_of_other_tenants() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let response = api.get("/v1/stream").tenant("acme").response().await;
    let mut stream = Stream::of(response);
    api.delivery("200").await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["*"]});
    let own = api.post("/v1/subscriptions", body).tenant("acme").expect(201).await;
    let event = json!({"type": "a", "data": 1});
    api.post("/v1/events", event).tenant("acme").expect(202).await;
    let (_, data) = stream.next().await.unwrap();
    assert_eq!(data["delivery"]["subscription_id"], json!(id(&own)));
}

#[tokio::test]
async fn all_streams_of_a_tenant_tell_the_same_in_order() {
    let api = Api::new().await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(Stream::of(api.get("/v1/stream").response().await));
    }
    api.subscribe("200").await;
    let batch: Vec<Value> = (0..100).map(|n| json!({"type": "task.a", "data": n})).collect();
    api.post("/v1/events/batch", json!(batch)).expect(202).await;
    api.idle().await;
    let mut told = Vec::new();
    for stream in &mut streams {
        let mut ids = Vec::new();
        for _ in 0..100 {
            let (name, data) = stream.next().await.unwrap();
            assert_eq!(name, "attempt");
            ids.push(data["delivery"]["id"].as_str().unwrap().to_owned());
        }
        told.push(ids);
    }
    let distinct: std::collections::BTreeSet<_> = told[0].iter().collect();
    assert_eq!(distinct.len(), 100);
    assert!(told.iter().all(|ids| *ids == told[0]));
    // A stream that is opened after all others were closed gets later events.
    streams.clear();
    let mut later = Stream::of(api.get("/v1/stream").response().await);
    let delivery = api.delivery("500").await;
    // The first subscription gets the event too, and either may be first.
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(later.next().await.unwrap().1["delivery"]["id"].clone());
    }
    assert!(told.contains(&delivery["id"]), "{told:?}");
}

#[tokio::test]
async fn slow_reader_gets_lagged_and_the_stream_ends() {
    let api = Api::new().await;
    let response = api.get("/v1/stream").response().await;
    let mut stream = Stream::of(response);
    api.subscribe("200").await;
    let batch: Vec<Value> = (0..1000).map(|n| json!({"type": "task.a", "data": n})).collect();
    for _ in 0..5 {
        api.post("/v1/events/batch", json!(batch)).expect(202).await;
        api.idle().await;
    }
    let (name, data) = stream.next().await.unwrap();
    assert_eq!(name, "lagged");
    assert!(data["missed"].as_u64().unwrap() > 0);
    assert_eq!(stream.next().await, None, "the stream has ended");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_has_nothing_to_say_shows_that_it_is_alive() {
    let api = Api::new().await;
    let response = api.get("/v1/stream").response().await;
    let mut stream = response.into_body().into_data_stream();
    for _ in 0..3 {
        assert_eq!(stream.next().await.unwrap().unwrap(), ": alive\n\n");
    }
}

#[tokio::test]
async fn streams_are_limited_per_tenant_and_in_total() {
    let streams = Quota { per_tenant: 2, in_total: 3 };
    let api = Api::with(ApiSettings { streams, ..ApiSettings::default() }).await;
    api.tenant("acme").await;
    let mut open = Vec::new();
    for _ in 0..2 {
        open.push(api.get("/v1/stream").response().await);
    }
    api.get("/v1/stream").refused(429, "too_many_at_once", None).await;
    open.push(api.get("/v1/stream").tenant("acme").response().await);
    api.get("/v1/stream").tenant("acme").refused(503, "overloaded", None).await;
    open.clear();
    assert_eq!(api.get("/v1/stream").response().await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn stream_ends_within_seconds_when_its_key_is_revoked_or_expires() {
    let api = Api::new().await;
    let wish =
        json!({"tenant": "default", "scopes": ["read"], "expires_at": "2099-01-01T00:00:00Z"});
    for way in ["revoked here", "revoked on another node", "expired"] {
        let key = api.post("/v1/keys", wish.clone()).expect(201).await;
        let text = key["key"].as_str().unwrap();
        let response = api.get("/v1/stream").key(text).response().await;
        let mut stream = Stream::of(response);
        match way {
            "revoked here" => {
                api.delete(&format!("/v1/keys/{}", id(&key))).expect(204).await;
            }
            "revoked on another node" => {
                let tenant = TenantId::default_tenant();
                assert!(api.store.delete_key(Some(&tenant), &id(&key)).await.unwrap());
                api.clock.advance(Duration::from_secs(5));
            }
            _ => api.clock.advance(Duration::from_secs(100 * 365 * 24 * 60 * 60)),
        }
        let soon = tokio::time::timeout(Duration::from_secs(3), stream.next());
        let (name, data) = soon.await.expect(way).unwrap();
        assert_eq!(name, "closed", "{way}: {data}");
        assert_eq!(stream.next().await, None, "{way}: the stream has ended");
    }
}

#[tokio::test]
async fn stream_tells_only_what_is_asked_for() {
    let api = Api::new().await;
    let ok = api.delivery("200").await;
    let wanted = ok["destination_id"].as_str().unwrap();
    let mut all = Stream::of(api.get("/v1/stream").response().await);
    let mut failed = Stream::of(api.get("/v1/stream?outcome=failed&body=no").response().await);
    let path = format!("/v1/stream?destination={wanted}&outcome=delivered");
    let mut of_one = Stream::of(api.get(&path).response().await);
    // One event goes to both receivers.
    let bad = api.subscribe("500").await;
    api.send_event().await;
    api.idle().await;
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let (_, data) = all.next().await.unwrap();
        assert_eq!(data["attempt"]["response_body"], "seen");
        outcomes.push(data["attempt"]["outcome"].as_str().unwrap().to_owned());
    }
    outcomes.sort();
    assert_eq!(outcomes, ["delivered", "failed"]);
    let (name, data) = failed.next().await.unwrap();
    assert_eq!((name.as_str(), &data["attempt"]["status"]), ("attempt", &json!(500)));
    assert_eq!(data["attempt"]["response_body"], Value::Null);
    let (_, data) = of_one.next().await.unwrap();
    assert_eq!(data["delivery"]["destination_id"], json!(wanted));
    // What is no attempt is told whatever the outcome, but of its destination only.
    for destination in [bad["destination_id"].as_str().unwrap(), wanted] {
        let path = format!("/v1/destinations/{destination}/freeze");
        api.post(&path, json!({"reason": "enough"})).expect(200).await;
    }
    let (name, data) = of_one.next().await.unwrap();
    assert_eq!((name.as_str(), &data["destination_id"]), ("transition", &json!(wanted)));
    let (name, _) = failed.next().await.unwrap();
    assert_eq!(name, "transition");
    for (query, field) in
        [("outcome=lost", "outcome"), ("body=maybe", "body"), ("destination=x", "destination")]
    {
        api.get(&format!("/v1/stream?{query}")).refused(422, "invalid_field", Some(field)).await;
    }
}
