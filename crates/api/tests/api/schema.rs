//! Every answer matches its documented schema: no field more, none less, each of its type.

use serde_json::{Value, json};

use crate::support::{Answer, document};

/// Fails if an answer does not match its documented schema.
pub(crate) fn check_answer(operation: &Value, answer: &Answer) {
    let documented = &operation["responses"][answer.status.as_str()];
    let Some(content) = documented.get("content") else {
        assert_eq!(answer.text, "", "a body that is not documented");
        return;
    };
    let kind = answer.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    let schema = content.get(kind).unwrap_or_else(|| panic!("{kind} is not documented: {content}"));
    let is_json = kind.ends_with("json") && kind != "application/x-ndjson";
    if is_json && schema.get("schema").is_some() {
        check("answer", &schema["schema"], &answer.json);
    }
}

fn resolve(schema: &Value) -> &Value {
    match schema["$ref"].as_str() {
        Some(target) => {
            let found = document().pointer(target.trim_start_matches('#'));
            found.unwrap_or_else(|| panic!("{target} leads nowhere"))
        }
        None => schema,
    }
}

/// The properties and the required fields of a schema, including those of its parts.
fn fields(schema: &Value) -> (Vec<(&String, &Value)>, Vec<&str>) {
    let schema = resolve(schema);
    let (mut properties, mut required) = (Vec::new(), Vec::new());
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let (more, needed) = fields(part);
        properties.extend(more);
        required.extend(needed);
    }
    properties.extend(schema["properties"].as_object().into_iter().flatten());
    let needed = schema["required"].as_array().into_iter().flatten();
    required.extend(needed.filter_map(Value::as_str));
    (properties, required)
}

/// Whether an object has the fields that a choice requires; what is no object has.
fn has_required(choice: &Value, value: &Value) -> bool {
    let (_, required) = fields(choice);
    value.as_object().is_none_or(|object| required.iter().all(|name| object.contains_key(*name)))
}

pub(crate) fn check(place: &str, schema: &Value, value: &Value) {
    let resolved = resolve(schema);
    if let Some(choices) = resolved["oneOf"].as_array() {
        let fits = |choice: &Value| match choice["type"].as_str() {
            Some("null") => value.is_null(),
            Some(_) | None => !value.is_null() && has_required(choice, value),
        };
        let choice = choices.iter().find(|choice| fits(choice));
        return check(place, choice.unwrap_or_else(|| panic!("{place}: {value}")), value);
    }
    if let Some(words) = resolved["enum"].as_array() {
        assert!(words.contains(value), "{place} is {value}, which is not one of {words:?}");
    }
    let kinds: Vec<&str> = match &resolved["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let fits =
        kinds.is_empty() || kinds.contains(&kind) || kind == "integer" && kinds.contains(&"number");
    assert!(fits, "{place} is {value}, which is not one of {kinds:?}");
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&format!("{place}[{n}]"), &resolved["items"], item);
    }
    let (properties, required) = fields(resolved);
    if let (Some(object), false) = (value.as_object(), properties.is_empty()) {
        for name in required {
            assert!(object.contains_key(name), "{place}.{name} is missing");
        }
        for (name, value) in object {
            let known = properties.iter().find(|(known, _)| *known == name);
            let (_, schema) = known.unwrap_or_else(|| panic!("{place}.{name} is not documented"));
            check(&format!("{place}.{name}"), schema, value);
        }
    }
}

#[test]
fn the_check_itself_finds_what_is_wrong() {
    let wrong = |value: Value| {
        let schema = json!({"$ref": "#/components/schemas/Tenant"});
        std::panic::catch_unwind(|| check("tenant", &schema, &value)).is_err()
    };
    let right = json!({
        "id": "a", "name": null, "description": null, "metadata": {}, "quotas": {},
        "requests_per_second": null, "events_per_second": 7,
        "created_at": "2026-11-15T09:30:00.000Z"
    });
    assert!(!wrong(right.clone()));
    for (field, value) in [("id", json!(7)), ("id", Value::Null), ("more", json!(1))] {
        let mut bad = right.clone();
        bad[field] = value;
        assert!(wrong(bad), "{field}");
    }
    assert!(wrong(json!({"id": "a"})), "a missing field");
}
