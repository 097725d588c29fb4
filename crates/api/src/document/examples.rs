//! Examples of bodies, by call. A test holds each against the schema of its call.

use serde_json::{Value, json};

/// A filter with a group and two conditions.
pub(super) fn filter() -> Value {
    json!({"all": [
        {"field": "data.status", "op": "eq", "value": "CUR"},
        {"field": "data.priority", "op": "gte", "value": 3},
    ]})
}

fn event() -> Value {
    json!({
        "type": "task.updated",
        "object": "task-17",
        "data": {"status": "CUR", "priority": 4},
        "old": {"status": "NEW", "priority": 4},
    })
}

/// The body of a request.
pub(super) fn request(method: &str, path: &str) -> Option<Value> {
    Some(match (method, path) {
        ("post", "/v1/events") => event(),
        ("post", "/v1/events/batch") => json!([event()]),
        ("post", "/v1/subscriptions") => json!({
            "url": "https://hooks.example.com/tasks",
            "types": ["task.*"],
            "filter": filter(),
        }),
        ("patch", "/v1/subscriptions/{id}") => json!({"enabled": false}),
        ("post", "/v1/filters/test") => json!({"filter": filter(), "event": event()}),
        ("post", "/v1/destinations/{id}/enable") => {
            json!({"reason": "repaired", "waiting": "drain"})
        }
        ("post", "/v1/destinations/{id}/freeze") => json!({"reason": "the customer has left"}),
        ("post", "/v1/replays") => json!({"state": "dead", "type": "task.updated"}),
        ("post", "/v1/tenants") => json!({"id": "acme"}),
        ("post", "/v1/keys") => json!({"scopes": ["ingest"]}),
        _ => return None,
    })
}

/// The status and the body of an answer.
pub(super) fn answer(method: &str, path: &str) -> Option<(&'static str, Value)> {
    Some(match (method, path) {
        ("post", "/v1/events") => {
            ("202", json!({"id": "evt_01a1ec86c85a7eecaf1e16cbc52d8c7e", "deliveries": 2}))
        }
        ("get", "/v1/ledger") => (
            "200",
            json!({
                "accepted": 1200, "queued": 3, "in_flight": 2, "waiting": 15, "delivered": 1178, "dead": 2,
                "cancelled": 0,
            }),
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of an example are those of its schema, and none that is required is missing.
    fn check(document: &Value, schema: &Value, example: &Value, place: &str) {
        let schema = match schema["$ref"].as_str() {
            Some(target) => document.pointer(target.trim_start_matches('#')).unwrap(),
            None => schema,
        };
        let (Some(known), Some(fields)) = (schema["properties"].as_object(), example.as_object())
        else {
            return;
        };
        for name in fields.keys() {
            assert!(known.contains_key(name), "{place}: there is no {name}");
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            let is_there = fields.contains_key(name.as_str().unwrap());
            assert!(is_there || name == "duplicate", "{place}: {name} is missing");
        }
    }

    #[test]
    fn examples_have_the_fields_of_their_schemas() {
        let document = crate::openapi();
        let mut count = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let bodies = [Some(&operation["requestBody"])].into_iter().flatten();
                let answers = operation["responses"].as_object().into_iter().flatten();
                for body in bodies.chain(answers.map(|(_, answer)| answer)) {
                    let content = &body["content"]["application/json"];
                    if let Some(example) = content.get("example") {
                        check(&document, &content["schema"], example, &format!("{method} {path}"));
                        count += 1;
                    }
                }
            }
        }
        assert!(count >= 11, "{count}");
    }
}
