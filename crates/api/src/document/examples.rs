//! Examples of bodies. They stand in `examples.json`; answers of a running server were put there.
//!
//! A test holds each against its schema, and another finds a JSON answer that has none.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

/// The end of the names of schemas of lists.
const LIST: &str = "List";

/// The file, as it is compiled in.
fn all() -> &'static Value {
    static ALL: OnceLock<Value> = OnceLock::new();
    // A test reads every part of it, so a fault in the file does not get this far.
    ALL.get_or_init(|| serde_json::from_str(include_str!("examples.json")).unwrap_or_default())
}

/// A filter with a group and two conditions.
pub(super) fn filter() -> Value {
    all()["filter"].clone()
}

/// A condition that has every key.
pub(super) fn condition() -> Value {
    all()["condition"].clone()
}

/// Puts examples into the bodies of one call.
pub(super) fn add(method: &str, path: &str, schemas: &Map<String, Value>, operation: &mut Value) {
    let call = format!("{} {path}", method.to_uppercase());
    if let Some(body) = operation.get_mut("requestBody") {
        set(body, "application/json", all()["requests"].get(&call).cloned());
        set(body, "application/x-ndjson", all()["texts"].get(&call).cloned());
    }
    let answers = operation.get_mut("responses").and_then(Value::as_object_mut);
    for (status, answer) in answers.into_iter().flatten() {
        if !status.starts_with('2') {
            continue;
        }
        let schema = answer["content"]["application/json"]["schema"]["$ref"].as_str();
        let name = schema.and_then(|schema| schema.rsplit('/').next()).unwrap_or_default();
        let example = answer_of(&call, status, name, schemas);
        set(answer, "application/json", example);
        for text in ["application/x-ndjson", "text/event-stream", "text/plain"] {
            set(answer, text, all()["texts"].get(&call).cloned());
        }
    }
}

/// The answer with this status and schema: the call's own, or the one of the schema. A list has one item.
fn answer_of(
    call: &str,
    status: &str,
    schema: &str,
    schemas: &Map<String, Value>,
) -> Option<Value> {
    let own = all()["answers_of_calls"].get(call);
    // Where a call has two answers, its own is the one of what it made.
    let is_own = call != "POST /v1/replays" || status == "201";
    if let Some(own) = own.filter(|_| is_own) {
        return Some(own.clone());
    }
    if let Some(found) = all()["answers"].get(schema) {
        return Some(found.clone());
    }
    let item = all()["answers"].get(schema.strip_suffix(LIST)?)?;
    let mut list = json!({ "data": [item] });
    if schemas.get(schema)?["properties"].get("next_cursor").is_some() {
        list["next_cursor"] = Value::Null;
    }
    Some(list)
}

fn set(body: &mut Value, kind: &str, example: Option<Value>) {
    let content = body.get_mut("content").and_then(|all| all.get_mut(kind));
    if let (Some(content), Some(example)) = (content, example) {
        content["example"] = example;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_example_of_the_file_is_used() {
        let document = crate::openapi();
        let paths = document["paths"].as_object().unwrap();
        let calls: BTreeSet<String> = (paths.iter())
            .flat_map(|(path, item)| {
                let methods = item.as_object().unwrap().keys();
                methods.map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .collect();
        for part in ["requests", "answers_of_calls", "texts"] {
            for call in all()[part].as_object().unwrap().keys() {
                assert!(calls.contains(call), "{part}: there is no {call}");
            }
        }
        let schemas = &document["components"]["schemas"];
        for schema in all()["answers"].as_object().unwrap().keys() {
            assert!(schemas.get(schema).is_some(), "there is no schema {schema}");
        }
    }
}
