//! `/v1/filters/test`

use postrider_api::ApiSettings;
use serde_json::json;

use crate::support::Api;

#[tokio::test]
async fn a_filter_is_tried_on_an_event() {
    let api = Api::new().await;
    let filter = json!({"field": "data.status", "op": "eq", "value": "CUR"});
    for (status, matches) in [("CUR", true), ("DED", false)] {
        let event = json!({"type": "task.updated", "data": {"status": status}});
        let body = json!({"filter": filter, "event": event});
        let verdict = api.post("/v1/filters/test", body).expect(200).await;
        assert_eq!(
            (&verdict["matches"], &verdict["over_budget"]),
            (&json!(matches), &json!(false))
        );
        assert!(verdict["steps"].as_u64() < Some(10), "{verdict}");
        assert_eq!(verdict["steps_max"], 4_000_000);
    }
    let event = json!({"type": "a", "data": 1});
    for (body, code, field) in [
        (json!({"event": event}), "missing_field", "filter"),
        (json!({"filter": filter}), "missing_field", "event"),
        (json!({"filter": {"all": []}, "event": event}), "invalid_field", "filter.all"),
        (json!({"filter": filter, "event": {"type": "a"}}), "missing_field", "event.data"),
        (json!({"filter": filter, "event": 7}), "invalid_field", "event"),
    ] {
        api.post("/v1/filters/test", body).refused(422, code, Some(field)).await;
    }
}

#[tokio::test]
async fn filter_that_exceeds_its_budget_answers_so() {
    // The threads that compute have the lowest priority: four million steps in a debug build are a second
    // of processor time, and on a busy machine more than the time limit of a request.
    let settings = ApiSettings { filter_steps_max: 40_000, ..ApiSettings::default() };
    let api = Api::with(settings).await;
    let condition = json!({"field": "data.x", "op": "contains_only", "value": [1]});
    let groups: Vec<_> = (0..9).map(|_| json!({"all": vec![condition.clone(); 20]})).collect();
    let event = json!({"type": "a", "data": {"x": vec![1; 1_000]}});
    let body = json!({"filter": {"all": groups}, "event": event});
    let verdict = api.post("/v1/filters/test", body).expect(200).await;
    let expected = json!({
        "matches": true, "over_budget": true, "steps": 40_000, "steps_max": 40_000,
    });
    assert_eq!(verdict, expected);
    let body = json!({"filter": condition, "event": event});
    let verdict = api.post("/v1/filters/test", body).expect(200).await;
    assert_eq!((&verdict["matches"], &verdict["over_budget"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn filter_is_tried_on_accepted_events_condition_by_condition() {
    let api = Api::new().await;
    let mut ids = Vec::new();
    for (kind, status) in [("task.a", "CUR"), ("task.b", "DED"), ("task.a", "DED")] {
        let event = json!({"type": kind, "data": {"status": status}});
        let accepted = api.post("/v1/events", event).expect(202).await;
        ids.push(accepted["id"].as_str().unwrap().to_owned());
        api.clock.advance(std::time::Duration::from_millis(1));
    }
    api.idle().await;
    let filter = json!({"all": [
        {"field": "data.status", "op": "eq", "value": "CUR"},
        {"field": "data.status", "op": "exists", "value": true},
    ]});
    let tried = async |more: serde_json::Value| {
        let mut body = json!({"filter": filter});
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = api.post("/v1/filters/test/events", body).expect(200).await;
        let data = answer["data"].as_array().unwrap().clone();
        let shown = data.iter().map(|one| json!([one["event_id"], one["matches"]]));
        (shown.collect::<Vec<_>>(), data)
    };
    let (named, data) = tried(json!({"event_ids": [ids[1], ids[0]]})).await;
    assert_eq!(named, [json!([ids[1], false]), json!([ids[0], true])]);
    let expected = json!([
        {"place": "filter.all[0]", "holds": false},
        {"place": "filter.all[1]", "holds": true},
    ]);
    assert_eq!((&data[0]["conditions"], &data[0]["over_budget"]), (&expected, &json!(false)));
    let (newest, _) = tried(json!({"recent": 2})).await;
    assert_eq!(newest, [json!([ids[2], false]), json!([ids[1], false])]);
    let (of_type, _) = tried(json!({"type": "task.a"})).await;
    assert_eq!(of_type, [json!([ids[2], false]), json!([ids[0], true])]);
    for (body, field) in [
        (json!({"filter": filter, "recent": 51}), "recent"),
        (json!({"filter": filter, "recent": 2, "event_ids": []}), "recent"),
        (json!({"filter": filter, "type": "a.*"}), "type"),
        (json!({"filter": filter, "event_ids": vec!["x"; 51]}), "event_ids"),
        (json!({"filter": filter, "event_ids": [ids[0], "evt_unknown"]}), "event_ids[1]"),
        (json!({"filter": {"all": []}}), "filter.all"),
    ] {
        api.post("/v1/filters/test/events", body).refused(422, "invalid_field", Some(field)).await;
    }
    let missing = api.post("/v1/filters/test/events", json!({}));
    missing.refused(422, "missing_field", Some("filter")).await;
    // Another tenant's events are unknown.
    api.tenant("acme").await;
    let body = json!({"filter": filter, "event_ids": [ids[0]]});
    let foreign = api.post("/v1/filters/test/events", body).tenant("acme");
    foreign.refused(422, "invalid_field", Some("event_ids[0]")).await;
}
