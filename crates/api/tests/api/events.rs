//! `/v1/events`

use insta::assert_json_snapshot;
use serde_json::{Value, json};

use crate::support::{Api, id};

#[tokio::test]
async fn an_event_is_accepted_with_its_deliveries() {
    let api = Api::new().await;
    api.subscribe("a").await;
    api.subscribe("b").await;
    let accepted = api.send_event().await;
    assert_json_snapshot!(accepted, {".id" => "[id]"});
    api.idle().await;
    let event = api.get(&format!("/v1/events/{}", id(&accepted))).expect(200).await;
    assert_json_snapshot!(event, {
        ".id" => "[id]", ".deliveries[].id" => "[id]", ".deliveries[].event_id" => "[id]",
        ".deliveries[].subscription_id" => "[id]", ".deliveries[].destination_id" => "[id]",
    });
    let list = api.get("/v1/events?type=task.updated").expect(200).await;
    assert_json_snapshot!(list, {".data[].id" => "[id]"});
}

#[tokio::test]
async fn the_same_id_is_the_same_event_and_other_content_is_a_conflict() {
    let api = Api::new().await;
    api.subscribe("a").await;
    let event = json!({"type": "task.updated", "data": {"n": 1}, "id": "order-1"});
    let first = api.post("/v1/events", event.clone()).expect(202).await;
    assert_eq!(first, json!({"id": "order-1", "deliveries": 1}));
    let again = api.post("/v1/events", event).expect(202).await;
    assert_eq!(again, json!({"id": "order-1", "deliveries": 1, "duplicate": true}));
    let other = json!({"type": "task.updated", "data": {"n": 2}, "id": "order-1"});
    let conflict =
        api.post("/v1/events", other).refused(409, "event_id_conflict", Some("id")).await;
    assert_json_snapshot!(conflict);
    api.idle().await;
    assert_eq!(api.get("/v1/ledger").expect(200).await["accepted"], 1);
}

#[tokio::test]
async fn an_event_is_delivered_byte_for_byte() {
    let api = Api::new().await;
    let url = "https://hooks.example.com/a";
    let raw = json!({"url": url, "types": ["*"], "format": "raw"});
    api.post("/v1/subscriptions", raw).expect(201).await;
    let data = "{ \"z\": 1.50, \"a\":\"\\u00e9\",\n\"n\": 12345678901234567890123 }";
    let body = format!("{{\"type\": \"task.updated\", \"data\": {data}}}");
    api.call("POST", "/v1/events").raw(body).expect(202).await;
    api.idle().await;
    let requests = api.receiver.requests.lock().unwrap();
    assert_eq!(requests[0].2, data);
}

#[tokio::test]
async fn invalid_event_is_refused_with_the_reason() {
    let api = Api::new().await;
    let good = json!({"type": "task.updated", "data": {}});
    let with = |field: &str, value: Value| {
        let mut event = good.clone();
        event[field] = value;
        event
    };
    for (event, code, field) in [
        (json!({"data": {}}), "missing_field", Some("type")),
        (json!({"type": "a"}), "missing_field", Some("data")),
        (with("type", json!("a..b")), "invalid_field", Some("type")),
        (with("type", json!("postrider.delivery.dead")), "reserved_type", Some("type")),
        (with("id", json!("with space")), "invalid_field", Some("id")),
        (with("time", json!("yesterday")), "invalid_field", Some("time")),
        (with("object", json!(7)), "invalid_field", Some("object")),
        (with("surprise", json!(1)), "unknown_field", Some("surprise")),
        (json!([1]), "invalid_field", Some("[0]")),
    ] {
        api.post("/v1/events", event).refused(422, code, field).await;
    }
    api.call("POST", "/v1/events").raw("{\"type\":").refused(400, "invalid_json", None).await;
    api.call("POST", "/v1/events").refused(400, "invalid_json", None).await;
    let xml = api.call("POST", "/v1/events").header("content-type", "text/xml").raw("<a/>");
    xml.refused(415, "unsupported_media_type", Some("content-type")).await;
}

#[tokio::test]
async fn a_body_beyond_a_mebibyte_is_refused_at_the_door() {
    let api = Api::new().await;
    let body = |length: usize| {
        let frame = "{\"type\":\"a.b\",\"data\":\"\"}".len();
        format!("{{\"type\":\"a.b\",\"data\":\"{}\"}}", "x".repeat(length - frame))
    };
    api.call("POST", "/v1/events").raw(body(1024 * 1024)).expect(202).await;
    let call = api.call("POST", "/v1/events").raw(body(1024 * 1024 + 1));
    call.refused(413, "body_too_large", None).await;
}

#[tokio::test]
async fn a_batch_is_accepted_as_an_array_and_as_lines() {
    let api = Api::new().await;
    api.subscribe("a").await;
    let batch = json!([
        {"type": "task.created", "data": 1, "id": "a"},
        {"type": "note.created", "data": 2, "id": "b"},
        {"type": "task.created", "data": 1, "id": "a"},
    ]);
    let expected = json!({"results": [
        {"id": "a", "deliveries": 1},
        {"id": "b", "deliveries": 0},
        {"id": "a", "deliveries": 1, "duplicate": true},
    ]});
    assert_eq!(api.post("/v1/events/batch", batch).expect(202).await, expected);
    let lines =
        "{\"type\":\"task.created\",\"data\":1,\"id\":\"c\"}\r\n\n{\"type\":\"x\",\"data\":null}\n";
    let call = api.call("POST", "/v1/events/batch").header("content-type", "application/x-ndjson");
    let answer = call.raw(lines).expect(202).await;
    assert_eq!(answer["results"][0], json!({"id": "c", "deliveries": 1}));
    assert_eq!(answer["results"].as_array().unwrap().len(), 2);
    assert_eq!(api.post("/v1/events/batch", json!([])).expect(202).await["results"], json!([]));
}

#[tokio::test]
async fn a_batch_is_refused_whole_with_the_place_of_its_first_fault() {
    let api = Api::new().await;
    let good = json!({"type": "task.created", "data": 1});
    let mut batch = vec![good.clone(); 20];
    batch[17] = json!({"type": "task created", "data": 1});
    batch[18] = json!({});
    let call = api.post("/v1/events/batch", json!(batch));
    call.refused(422, "invalid_field", Some("[17].type")).await;
    let call = api.post("/v1/events/batch", json!(vec![good.clone(); 1001]));
    call.refused(413, "body_too_large", Some("[1000]")).await;
    let call = api.post("/v1/events/batch", json!({"type": "a", "data": 1}));
    call.refused(422, "invalid_field", None).await;
    let lines = |text: &str| {
        let call = api.call("POST", "/v1/events/batch");
        call.header("content-type", "application/x-ndjson").raw(text.to_owned())
    };
    lines("{\"type\":\"a\",\"data\":1}\n{\"type\"\n")
        .refused(400, "invalid_json", Some("[1]"))
        .await;
    let long = format!("{{\"type\":\"a\",\"data\":\"{}\"}}", "x".repeat(1024 * 1024));
    lines(&long).refused(413, "body_too_large", Some("[0]")).await;
    lines(&" ".repeat(16 * 1024 * 1024 + 1)).refused(413, "body_too_large", None).await;

    let used = json!({"type": "task.created", "data": 1, "id": "x"});
    api.post("/v1/events", used).expect(202).await;
    let conflict = json!([good, {"type": "task.created", "data": 2, "id": "x"}]);
    let call = api.post("/v1/events/batch", conflict);
    call.refused(409, "event_id_conflict", Some("[1].id")).await;
    assert_eq!(api.get("/v1/events").expect(200).await["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn lists_are_paged() {
    let api = Api::new().await;
    for n in 0..5 {
        let event = json!({"type": "a", "data": n, "id": format!("e{n}")});
        api.post("/v1/events", event).expect(202).await;
        api.clock.advance(std::time::Duration::from_millis(1));
    }
    let mut seen = Vec::new();
    let mut path = "/v1/events?limit=2".to_owned();
    loop {
        let page = api.get(&path).expect(200).await;
        seen.extend(page["data"].as_array().unwrap().iter().map(id));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/events?limit=2&cursor={cursor}");
    }
    assert_eq!(seen, ["e4", "e3", "e2", "e1", "e0"]);
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("cursor=%20", "cursor"),
        ("cursor=bm9uZQ", "cursor"),
        ("since=today", "since"),
        ("type=a%20b", "type"),
        ("limit=1&limit=2", "limit"),
    ] {
        let call = api.get(&format!("/v1/events?{query}"));
        call.refused(422, "invalid_field", Some(field)).await;
    }
    let page = api.get("/v1/events?limit=2").expect(200).await;
    let cursor = page["next_cursor"].as_str().unwrap();
    for other in ["/v1/deliveries?", "/v1/subscriptions?", "/v1/events?type=a&"] {
        let call = api.get(&format!("{other}cursor={cursor}"));
        call.refused(422, "invalid_field", Some("cursor")).await;
    }
    api.get("/v1/events?colour=red").refused(422, "unknown_field", Some("colour")).await;
    api.get("/v1/events?limit=%ff").send().await;
}

#[tokio::test]
async fn event_with_very_many_deliveries_shows_where_the_others_are() {
    let api = Api::new().await;
    for n in 0..1_003 {
        api.subscribe(&n.to_string()).await;
    }
    let sent = api.send_event().await;
    let event = id(&sent);
    let shown = api.get(&format!("/v1/events/{event}")).expect(200).await;
    assert_eq!(shown["delivery_count"], 1_003);
    let ids = |list: &Value| -> Vec<String> { list.as_array().unwrap().iter().map(id).collect() };
    let mut seen = ids(&shown["deliveries"]);
    assert_eq!(seen.len(), 1_000);
    let cursor = shown["deliveries_cursor"].as_str().unwrap();
    let path = format!("/v1/deliveries?event={event}&cursor={cursor}");
    let others = api.get(&path).expect(200).await;
    assert_eq!(others["next_cursor"], Value::Null);
    seen.extend(ids(&others["data"]));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 1_003, "each of them once");
    let other = api.send_event().await;
    let path = format!("/v1/deliveries?event={}&cursor={cursor}", id(&other));
    api.get(&path).refused(422, "invalid_field", Some("cursor")).await;
}
