//! `/v1/filters/test`

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
    let api = Api::new().await;
    let condition = json!({"field": "data.x", "op": "contains_only", "value": [1]});
    let groups: Vec<_> = (0..9).map(|_| json!({"all": vec![condition.clone(); 20]})).collect();
    let event = json!({"type": "a", "data": {"x": vec![1; 100_000]}});
    let body = json!({"filter": {"all": groups}, "event": event});
    let verdict = api.post("/v1/filters/test", body).expect(200).await;
    let expected = json!({
        "matches": true, "over_budget": true, "steps": 4_000_000, "steps_max": 4_000_000,
    });
    assert_eq!(verdict, expected);
    let body = json!({"filter": condition, "event": event});
    let verdict = api.post("/v1/filters/test", body).expect(200).await;
    assert_eq!((&verdict["matches"], &verdict["over_budget"]), (&json!(true), &json!(false)));
}
