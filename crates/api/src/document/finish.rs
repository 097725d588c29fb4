//! Completes the collected document with what the routes cannot say: names that a person would choose, the schema of
//! filters, named items of lists, scopes, examples, the address of the server, and the webhooks.

use postrider_domain::filter::operators;
use postrider_domain::limits::{FILTER_CONDITIONS_MAX, FILTER_FIELD_CHARS_MAX};
use serde_json::{Map, Value, json};

use super::{examples, parameters, webhooks};
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
const NAMES: [(&str, &str, &str); 28] = [
    ("get", "/docs", "showReference"),
    ("get", "/healthz", "checkLiveness"),
    ("get", "/metrics", "showMetrics"),
    ("get", "/openapi.json", "showDocument"),
    ("get", "/readyz", "checkReadiness"),
    ("get", "/v1/events/{id}/matches", "listEventMatches"),
    ("get", "/v1/deliveries/{id}/attempts", "listAttempts"),
    ("post", "/v1/backup", "startBackup"),
    ("post", "/v1/events/batch", "sendEvents"),
    ("get", "/portal/logos/{id}", "showPortalLogo"),
    ("get", "/v1/alerts", "listAlertTargets"),
    ("post", "/v1/alerts/test", "testAlertTargets"),
    ("get", "/v1/catalogue", "showCatalogue"),
    ("patch", "/v1/catalogue", "changeCatalogue"),
    ("get", "/v1/deliveries/{id}/attempts/{number}/request", "showAttemptRequest"),
    ("post", "/v1/deliveries/{id}/retry", "retryDelivery"),
    ("get", "/v1/destinations/stats", "listDestinationStatistics"),
    ("post", "/v1/filters/test", "testFilter"),
    ("post", "/v1/filters/test/events", "testFilterOnStoredEvents"),
    ("get", "/v1/limits", "showLimits"),
    ("get", "/v1/replays", "listReplays"),
    ("post", "/v1/replays", "startReplay"),
    ("get", "/v1/replays/{id}", "showReplay"),
    ("post", "/v1/replays/{id}/cancel", "cancelReplay"),
    ("post", "/v1/replays/{id}/pause", "pauseReplay"),
    ("post", "/v1/replays/{id}/resume", "resumeReplay"),
    ("get", "/v1/stats", "showStatistics"),
    ("get", "/v1/stream", "followStream"),
];

/// Completes the document.
pub(super) fn finish(document: &mut Value) {
    name_lists(document);
    describe_filters(document);
    lift_descriptions(document);
    let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    for (path, method, operation) in operations(document) {
        operation["operationId"] = name_of(&method, &path, operation).into();
        if let Some(scopes) = scopes_of(&method, &path) {
            let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
            operation["x-required-scopes"] = scopes.into();
        }
        parameters::describe(&path, operation);
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
                "description": "Conditions and groups.",
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

/// Gives a field that may be null, or refers to a schema, a description of its own: that of the field, which is inside
/// the choice, and else that of the schema.
fn lift_descriptions(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    let known = schemas.clone();
    for schema in schemas.values_mut() {
        describe_fields(schema, &known);
    }
}

fn describe_fields(schema: &mut Value, known: &Map<String, Value>) {
    let parts = schema.get_mut("allOf").and_then(Value::as_array_mut);
    parts.into_iter().flatten().for_each(|part| describe_fields(part, known));
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, field) in fields.into_iter().flatten() {
        let Some(field) = field.as_object_mut().filter(|field| !field.contains_key("description"))
        else {
            continue;
        };
        let choices = field.get_mut("oneOf").and_then(Value::as_array_mut);
        let inner = choices.into_iter().flatten().filter_map(Value::as_object_mut);
        let inner = inner.filter_map(|choice| choice.remove("description")).last();
        let target = |field: &Map<String, Value>| {
            let choices = field.get("oneOf").and_then(Value::as_array);
            let all = choices.into_iter().flatten().filter_map(|choice| choice["$ref"].as_str());
            all.chain(field.get("$ref").and_then(Value::as_str)).find_map(|target| {
                known.get(target.strip_prefix(SCHEMAS)?)?.get("description").cloned()
            })
        };
        if let Some(description) = inner.or_else(|| target(field)) {
            field.insert("description".to_owned(), description);
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
    fn names_of_calls_are_short_and_every_chosen_one_is_used() {
        let document = crate::openapi();
        for (method, path, name) in NAMES {
            assert_eq!(document["paths"][path][method]["operationId"], name, "{method} {path}");
        }
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                let name = operation["operationId"].as_str().unwrap();
                let words = name.chars().filter(|c| c.is_ascii_uppercase()).count();
                assert!(words <= 4 && name.len() <= 28, "{name} is no name: choose one in NAMES");
                assert!(!name.contains("Of") && !name.contains("That"), "{name}");
            }
        }
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
    fn every_field_has_a_description() {
        fn check(name: &str, schema: &Value, bare: &mut Vec<String>) {
            for part in schema["allOf"].as_array().into_iter().flatten() {
                check(name, part, bare);
            }
            for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
                if schema["description"].as_str().is_none_or(str::is_empty) {
                    bare.push(format!("{name}.{field}"));
                }
            }
        }
        let (document, mut bare) = (crate::openapi(), Vec::new());
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in schemas {
            check(name, schema, &mut bare);
        }
        assert!(schemas.len() > 100, "{}", schemas.len());
        assert!(bare.is_empty(), "describe these by a comment on the field: {bare:?}");
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
