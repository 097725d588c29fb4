//! Every request and answer that Workfront's public documentation shows, as data: `documented.json`.
//!
//! A step is a request and its answer. `<name>` in an answer takes a value that later steps can use;
//! `<any>` and `<time>` accept any value and any time of Workfront's form.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{call, workfront};

type Names = BTreeMap<String, String>;

/// A text without its angle brackets.
fn name_of(text: &str) -> Option<&str> {
    text.strip_prefix('<')?.strip_suffix('>')
}

/// Puts known values into the place of their names.
fn filled(value: &Value, names: &Names) -> Value {
    match value {
        Value::String(text) => {
            let mut text = text.clone();
            for (name, value) in names {
                text = text.replace(&format!("<{name}>"), value);
            }
            Value::String(text)
        }
        Value::Array(items) => items.iter().map(|item| filled(item, names)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), filled(value, names))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000000"
}

/// Compares an answer with the documented one, field by field: none more, none less.
fn compare(place: &str, wanted: &Value, found: &Value, names: &mut Names) {
    match (wanted, found) {
        (Value::String(wanted), found) if name_of(wanted) == Some("any") => {
            assert!(!found.is_null(), "{place}");
        }
        (Value::String(wanted), Value::String(found)) => match name_of(wanted) {
            Some("time") => assert!(is_time(found), "{place}: {found}"),
            Some(name) => {
                let known = names.entry(name.to_owned()).or_insert_with(|| found.clone());
                assert_eq!(known, found, "{place}");
            }
            None => assert_eq!(wanted, found, "{place}"),
        },
        (Value::Object(wanted), Value::Object(found)) => {
            let keys = |object: &serde_json::Map<String, Value>| -> Vec<String> {
                object.keys().cloned().collect()
            };
            assert_eq!(keys(wanted), keys(found), "{place}");
            for (key, wanted) in wanted {
                compare(&format!("{place}.{key}"), wanted, &found[key], names);
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            assert_eq!(wanted.len(), found.len(), "{place}");
            for (n, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                compare(&format!("{place}[{n}]"), wanted, found, names);
            }
        }
        (wanted, found) => assert_eq!(wanted, found, "{place}"),
    }
}

#[tokio::test]
async fn documented_requests_get_the_documented_answers() {
    let api = workfront().await;
    let steps: Value = serde_json::from_str(include_str!("documented.json")).unwrap();
    let mut names = Names::from([("key".to_owned(), api.admin.clone())]);
    for step in steps.as_array().unwrap() {
        let what = step["what"].as_str().unwrap();
        // Identifiers of one millisecond have no order.
        api.clock.advance(Duration::from_millis(1));
        let path = filled(&step["path"], &names);
        let body = step.get("body").map(|body| filled(body, &names));
        let header = step["header"].as_str().unwrap_or("sessionID: <key>");
        let (name, value) = header.split_once(": ").unwrap_or((header, ""));
        let value = filled(&Value::from(value), &names);
        let headers = [(name, value.as_str().unwrap())];
        let method = step["method"].as_str().unwrap();
        let answered = call(&api, method, path.as_str().unwrap(), &headers, body.as_ref()).await;
        assert_eq!(answered.status, step["status"], "{what}: {}", answered.body);
        match step.get("answer") {
            Some(wanted) => compare(what, wanted, &answered.body, &mut names),
            None if answered.status >= 400 => {}
            None => assert_eq!(answered.body, Value::Null, "{what}"),
        }
        if let Some(location) = step.get("location") {
            let location = filled(location, &names);
            assert_eq!(answered.headers["location"], location.as_str().unwrap(), "{what}");
        }
    }
}
