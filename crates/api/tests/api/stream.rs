//! `/v1/stream`

use axum::body::BodyDataStream;
use axum::http::header;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::{Api, id};

/// The next event of a stream: its name and its data.
async fn next(stream: &mut BodyDataStream) -> Option<(String, Value)> {
    loop {
        let frame = stream.next().await?.unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
            return Some((name.to_owned(), serde_json::from_str(data).unwrap()));
        }
    }
}

#[tokio::test]
async fn attempts_and_transitions_are_told_as_they_happen() {
    let api = Api::new().await;
    let response = api.get("/v1/stream").response().await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let delivery = api.delivery("500").await;
    let (name, data) = next(&mut stream).await.unwrap();
    assert_eq!(name, "attempt");
    assert_eq!(data["delivery"]["id"], delivery["id"]);
    assert_eq!(data["attempt"]["status"], 500);
    let path = format!("/v1/destinations/{}/freeze", delivery["destination_id"].as_str().unwrap());
    api.post(&path, json!({"reason": "enough"})).expect(200).await;
    let (name, data) = next(&mut stream).await.unwrap();
    assert_eq!((name.as_str(), &data["transition"]["to"]), ("transition", &json!("frozen")));
}

#[tokio::test]
async fn a_stream_tells_nothing_of_other_tenants() {
    let api = Api::new().await;
    api.tenant("acme").await;
    let response = api.get("/v1/stream").tenant("acme").response().await;
    let mut stream = response.into_body().into_data_stream();
    api.delivery("200").await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["*"]});
    let own = api.post("/v1/subscriptions", body).tenant("acme").expect(201).await;
    let event = json!({"type": "a", "data": 1});
    api.post("/v1/events", event).tenant("acme").expect(202).await;
    let (_, data) = next(&mut stream).await.unwrap();
    assert_eq!(data["delivery"]["subscription_id"], json!(id(&own)));
}

#[tokio::test]
async fn who_reads_too_slowly_is_told_so_and_let_go() {
    let api = Api::new().await;
    let response = api.get("/v1/stream").response().await;
    let mut stream = response.into_body().into_data_stream();
    api.subscribe("200").await;
    let batch: Vec<Value> = (0..1000).map(|n| json!({"type": "task.a", "data": n})).collect();
    for _ in 0..5 {
        api.post("/v1/events/batch", json!(batch)).expect(202).await;
        api.idle().await;
    }
    let (name, data) = next(&mut stream).await.unwrap();
    assert_eq!(name, "lagged");
    assert!(data["missed"].as_u64().unwrap() > 0);
    assert_eq!(next(&mut stream).await, None, "the stream has ended");
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
async fn so_many_streams_and_no_more() {
    let api = Api::new().await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        open.push(api.get("/v1/stream").response().await);
    }
    api.get("/v1/stream").refused(503, "unavailable", None).await;
    open.pop();
    assert_eq!(api.get("/v1/stream").response().await.status(), 200);
}
