//! Completes the collected document with what the routes cannot say: names that a person would choose, the schema of
//! filters, named items of lists, scopes, examples, the address of the server, and the webhooks.

use postrider_domain::filter::operators;
use postrider_domain::limits::{FILTER_CONDITIONS_MAX, FILTER_FIELD_CHARS_MAX, PAGE_MAX};
use serde_json::{Map, Value, json};

use super::{examples, webhooks};
use crate::scopes::scopes_of;

const LIST: &str = "List_";
const SCHEMAS: &str = "#/components/schemas/";
/// Schemas with a field `filter`, and whether it may be null.
const FILTERED: [(&str, bool); 5] = [
    ("NewSubscription", true),
    ("SubscriptionChange", true),
    ("Subscription", true),
    ("FilterTest", false),
    ("FilterTrial", false),
];
/// Names of calls whose summary makes no good name.
const NAMES: [(&str, &str, &str); 9] = [
    ("get", "/docs", "showReference"),
    ("get", "/healthz", "checkLiveness"),
    ("get", "/metrics", "showMetrics"),
    ("get", "/openapi.json", "showDocument"),
    ("get", "/readyz", "checkReadiness"),
    ("get", "/v1/events/{id}/matches", "listEventMatches"),
    ("get", "/v1/deliveries/{id}/attempts", "listAttempts"),
    ("post", "/v1/backup", "startBackup"),
    ("post", "/v1/events/batch", "sendEvents"),
];

/// Completes the document.
pub(super) fn finish(document: &mut Value) {
    name_lists(document);
    describe_filters(document);
    let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    for (path, method, operation) in operations(document) {
        operation["operationId"] = name_of(&method, &path, operation).into();
        if let Some(scopes) = scopes_of(&method, &path) {
            let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
            operation["x-required-scopes"] = scopes.into();
        }
        describe_parameters(operation);
        examples::add(&method, &path, &schemas, operation);
    }
    document["servers"] = json!([{
        "url": "http://127.0.0.1:8080",
        "description": "The default address; yours is where the server listens.",
    }]);
    webhooks::add(document);
}

/// Every operation with its path and method.
fn operations(document: &mut Value) -> Vec<(String, String, &mut Value)> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let all = paths.flat_map(|(path, item)| {
        let methods = item.as_object_mut().into_iter().flatten();
        methods.map(move |(method, operation)| (path.clone(), method.clone(), operation))
    });
    all.filter(|(_, method, _)| ["get", "post", "patch", "delete"].contains(&method.as_str()))
        .collect()
}

/// The name of a call, from its summary: `Show a destination's timeline` is `showDestinationTimeline`.
fn name_of(method: &str, path: &str, operation: &Value) -> String {
    let chosen = NAMES.iter().find(|(of, at, _)| (*of, *at) == (method, path));
    if let Some((.., name)) = chosen {
        return (*name).to_owned();
    }
    let summary = operation["summary"].as_str().unwrap_or_default().replace("'s", "");
    let words = summary.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !["", "a", "an", "the"].contains(word));
    camel(words)
}

/// The words as one, each but the first with a capital.
pub(super) fn camel<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut name = String::new();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        let first = if name.is_empty() { first.to_lowercase() } else { first.to_uppercase() };
        name.push_str(&first);
        name.push_str(rest);
    }
    name
}

/// `List_Delivery` becomes `DeliveryList`, whose items are of the schema `Delivery`.
fn name_lists(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let lists: Vec<String> =
        schemas.keys().filter(|name| name.starts_with(LIST)).cloned().collect();
    for list in &lists {
        let Some(mut schema) = schemas.remove(list) else { continue };
        let item = list.trim_start_matches(LIST);
        let items = &mut schema["properties"]["data"]["items"];
        if items.get("$ref").is_none() {
            let inline = std::mem::replace(items, reference(item));
            schemas.entry(item).or_insert(inline);
        }
        schemas.insert(format!("{item}List"), schema);
    }
    rename(document, &|target| {
        let item = target.strip_prefix(SCHEMAS)?.strip_prefix(LIST)?;
        Some(format!("{SCHEMAS}{item}List"))
    });
}

/// Changes references.
fn rename(value: &mut Value, new: &impl Fn(&str) -> Option<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), &mut *value) {
                    ("$ref", Value::String(target)) => {
                        if let Some(renamed) = new(target) {
                            *target = renamed;
                        }
                    }
                    _ => rename(value, new),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, new)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(super) fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("{SCHEMAS}{schema}") })
}

/// Adds the schema of filters, and uses it.
fn describe_filters(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let names: Vec<&str> = operators().map(|operator| operator.name).collect();
    let group = |which: &str, meaning: &str| {
        json!({
            "type": "object",
            "description": meaning,
            "required": [which],
            "properties": {which: {
                "type": "array", "items": reference("Filter"), "minItems": 1, "maxItems": FILTER_CONDITIONS_MAX,
            }},
            "additionalProperties": false,
        })
    };
    let condition = json!({
        "type": "object",
        "description": "One condition on an event.",
        "required": ["field", "op"],
        "properties": {
            "field": {
                "type": "string",
                "description": "`data`, `old`, `object` or `type`; `data` and `old` with a path of words joined by dots.",
                "example": "data.status",
                "maxLength": FILTER_FIELD_CHARS_MAX,
            },
            "op": {"type": "string", "enum": names, "description": "How the field is compared."},
            "value": {"description": "Any JSON; what it may be depends on `op`."},
            "as": {
                "type": "string",
                "enum": ["time"],
                "description": "Beside `gt`, `gte`, `lt` and `lte`: both sides are read as times, also with an offset without a colon.",
            },
        },
        "example": examples::condition(),
        "additionalProperties": false,
    });
    let filter = json!({
        "description": "A condition, or a group of conditions and groups.",
        "oneOf": [reference("FilterCondition"), reference("FilterAll"), reference("FilterAny")],
        "example": examples::filter(),
    });
    let added = [
        ("Filter", filter),
        ("FilterCondition", condition),
        ("FilterAll", group("all", "Every one must hold.")),
        ("FilterAny", group("any", "At least one must hold.")),
    ];
    schemas.extend(added.map(|(name, schema)| (name.to_owned(), schema)));
    for (name, is_nullable) in FILTERED {
        let Some(field) = schemas.get_mut(name).and_then(|schema| filter_field(schema)) else {
            continue;
        };
        let description = field.get("description").cloned();
        *field = match is_nullable {
            true => json!({ "oneOf": [reference("Filter"), { "type": "null" }] }),
            false => reference("Filter"),
        };
        if let Some(description) = description {
            field["description"] = description;
        }
    }
}

/// The field `filter` of a schema or of one of its parts.
fn filter_field(schema: &mut Value) -> Option<&mut Value> {
    let is_here = schema["properties"].get("filter").is_some();
    if is_here {
        return schema["properties"].get_mut("filter");
    }
    let parts = schema.get_mut("allOf")?.as_array_mut()?;
    parts.iter_mut().find_map(filter_field)
}

/// Numbers are numbers.
fn describe_parameters(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["in"] == "query" && parameter["name"] == "limit" {
            parameter["schema"] = json!({"type": "integer", "minimum": 1, "maximum": PAGE_MAX});
        }
    }
}

/// An object of these fields, for a schema.
pub(super) fn fields<'a>(all: impl Iterator<Item = (&'a str, Value)>) -> Value {
    Value::Object(all.map(|(name, schema)| (name.to_owned(), schema)).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use postrider_domain::filter::{CONDITION_KEYS, Filter};

    use super::*;

    #[test]
    fn name_of_a_call_is_its_summary_without_articles() {
        for (summary, name) in [
            ("List destinations", "listDestinations"),
            ("Show a destination's timeline", "showDestinationTimeline"),
            ("Test a filter on an event", "testFilterOnEvent"),
            ("Sign in", "signIn"),
        ] {
            assert_eq!(name_of("get", "/v1/x", &json!({ "summary": summary })), name);
        }
        assert_eq!(name_of("get", "/healthz", &json!({})), "checkLiveness");
    }

    #[test]
    fn items_of_lists_have_names() {
        let document = crate::openapi();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let lists: Vec<_> = schemas.iter().filter(|(name, _)| name.ends_with("List")).collect();
        assert!(lists.len() >= 10, "{lists:?}");
        for (name, list) in lists {
            let item = name.trim_end_matches("List");
            assert_eq!(list["properties"]["data"]["items"], reference(item));
            assert!(schemas.contains_key(item), "{item}");
        }
        assert!(!document.to_string().contains(LIST));
    }

    #[test]
    fn every_filter_has_the_schema_of_filters() {
        let document = crate::openapi();
        for (name, _) in FILTERED {
            let mut schema = document["components"]["schemas"][name].clone();
            let field = filter_field(&mut schema).unwrap().to_string();
            assert!(field.contains("schemas/Filter\""), "{name}: {field}");
        }
        for example in [examples::filter(), examples::condition()] {
            let filter = Filter::compile(&example);
            assert!(filter.is_ok(), "{filter:?}");
        }
    }

    #[test]
    fn condition_schema_names_the_keys_that_the_domain_accepts() {
        let document = crate::openapi();
        let properties = &document["components"]["schemas"]["FilterCondition"]["properties"];
        let described: BTreeSet<&str> =
            properties.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(described, BTreeSet::from(CONDITION_KEYS));
        // Each of them is accepted in the example, and a key that the schema does not have is refused.
        let example = examples::condition();
        let used: BTreeSet<&str> =
            example.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(used, described);
        let mut unknown = example;
        unknown["unit"] = json!("s");
        assert!(Filter::compile(&unknown).is_err());
    }
}
