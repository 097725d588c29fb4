//! The OpenAPI document matches the router: every route is in it, and it is complete.

use std::collections::BTreeSet;

use postrider_api::scopes_of;
use serde_json::{Value, json};

use crate::support::{Api, document};

const METHODS: [&str; 4] = ["get", "post", "patch", "delete"];

fn operations() -> Vec<(String, &'static str, &'static Value)> {
    let paths = document()["paths"].as_object().unwrap();
    let each = paths.iter().flat_map(|(path, item)| {
        METHODS.into_iter().filter_map(|method| Some((path.clone(), method, item.get(method)?)))
    });
    each.collect()
}

/// Whether a call needs a key or a session: all under `/v1` do but signing in and out.
fn is_guarded(path: &str, method: &str) -> bool {
    let is_signing = path == "/v1/session" && !method.eq_ignore_ascii_case("get");
    path.starts_with("/v1/") && !is_signing
}

#[test]
fn every_call_of_the_contract_is_there() {
    let documented: BTreeSet<String> =
        operations().iter().map(|(path, method, _)| format!("{method} {path}")).collect();
    insta::assert_snapshot!(documented.into_iter().collect::<Vec<_>>().join("\n"));
}

#[tokio::test]
async fn every_documented_call_is_served_and_no_other_method_is() {
    let api = Api::new().await;
    for (path, item) in document()["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "x");
        for (method, name) in [
            ("GET", "get"),
            ("POST", "post"),
            ("PATCH", "patch"),
            ("DELETE", "delete"),
            ("PUT", "put"),
        ] {
            let status = api.call(method, &path).response().await.status();
            let is_served = status != 405;
            assert_eq!(is_served, item.get(name).is_some(), "{method} {path}: {status}");
        }
    }
}

#[tokio::test]
async fn every_route_requires_a_key_and_a_scope() {
    let api = Api::new().await;
    let ingest = api.key("default", &["ingest"]).await;
    let all = api.key("default", &["ingest", "manage", "read"]).await;
    for (path, method, operation) in operations() {
        let method = METHODS.iter().position(|known| *known == method).unwrap();
        let method = ["GET", "POST", "PATCH", "DELETE"][method];
        let call = || api.call(method, &path.replace("{id}", "x"));
        let status = call().without_key().response().await.status().as_u16();
        assert_eq!(status == 401, is_guarded(&path, method), "{method} {path}: {status}");
        // Whoever has a key may ask what it may do.
        if !is_guarded(&path, method) || path == "/v1/session" {
            continue;
        }
        let is_ingest = method == "POST" && path.starts_with("/v1/events");
        let status = call().key(&ingest).response().await.status().as_u16();
        assert_eq!(status != 403, is_ingest, "{method} {path}: {status}");
        let is_for_admins = operation["tags"][0] == "administration";
        let status = call().key(&all).response().await.status().as_u16();
        assert_eq!(status == 403, is_for_admins, "{method} {path}: {status}");
    }
}

#[tokio::test]
async fn the_scope_that_is_documented_is_the_one_that_a_call_asks_for() {
    let api = Api::new().await;
    for scope in ["ingest", "manage", "read"] {
        let key = api.key("default", &[scope]).await;
        for (path, method, _) in operations() {
            let Some(needed) = scopes_of(method, &path) else { continue };
            let name = METHODS.iter().position(|known| *known == method).unwrap();
            let name = ["GET", "POST", "PATCH", "DELETE"][name];
            let call = api.call(name, &path.replace("{id}", "x")).key(&key);
            let status = call.response().await.status().as_u16();
            let is_enough = needed.iter().all(|needed| needed.as_str() == scope);
            assert_eq!(status != 403, is_enough, "{scope} {method} {path}");
        }
    }
}

#[tokio::test]
async fn who_may_look_cannot_change_and_who_may_change_cannot_look() {
    let api = Api::new().await;
    for (scope, may) in [("read", "GET"), ("manage", "other")] {
        let key = api.key("default", &[scope]).await;
        for (path, method, operation) in operations() {
            let is_other =
                operation["tags"][0] == "administration" || path.starts_with("/v1/events");
            // The audit log and portal links are for those who change things; a session for everybody.
            let is_other = is_other
                || path.starts_with("/v1/filters/")
                || ["/v1/simulate", "/v1/audit", "/v1/portal-links", "/v1/session"]
                    .contains(&path.as_str());
            if !path.starts_with("/v1/") || is_other {
                continue;
            }
            let method = METHODS.iter().position(|known| *known == method).unwrap();
            let method = ["GET", "POST", "PATCH", "DELETE"][method];
            let call = api.call(method, &path.replace("{id}", "x")).key(&key);
            let status = call.response().await.status().as_u16();
            assert_eq!(
                status != 403,
                (method == "GET") == (may == "GET"),
                "{scope} {method} {path}"
            );
        }
    }
}

#[test]
fn every_call_says_who_may_make_it_and_how_it_can_be_refused() {
    for (path, method, operation) in operations() {
        let is_guarded = is_guarded(&path, method);
        let summary = operation["summary"].as_str().unwrap_or_default();
        assert!(!summary.is_empty(), "{method} {path} has no summary");
        assert!(!operation["tags"].as_array().unwrap().is_empty());
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
        for status in ["401", "403", "404", "429", "500", "503"] {
            assert!(!is_guarded || responses.contains_key(status), "{method} {path} {status}");
        }
        for (status, response) in responses.iter().filter(|(status, _)| status.as_str() >= "400") {
            let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/Problem", "{method} {path} {status}");
        }
        let names: Vec<&str> = operation["parameters"]
            .as_array()
            .map_or(Vec::new(), |list| list.iter().filter_map(|p| p["name"].as_str()).collect());
        assert_eq!(names.contains(&"postrider-tenant"), is_guarded, "{method} {path}");
        assert_eq!(names.contains(&"idempotency-key"), is_guarded && method != "get");
        assert_eq!(names.contains(&"id"), path.contains("{id}"), "{method} {path}");
    }
}

/// The parameters of queries of calls that change nothing, with the path and the schema.
fn query_parameters() -> Vec<(String, &'static str, &'static Value)> {
    let mut found = Vec::new();
    for (path, method, operation) in operations() {
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        for parameter in parameters.filter(|one| one["in"] == "query" && method == "get") {
            found.push((path.clone(), parameter["name"].as_str().unwrap(), &parameter["schema"]));
        }
    }
    found
}

#[tokio::test]
async fn values_outside_the_schema_of_a_parameter_are_refused_and_no_others() {
    let api = Api::new().await;
    let delivery = api.delivery("200").await;
    api.post("/v1/event-types", json!({"name": "task.updated"})).expect(201).await;
    let mut tried = 0;
    for (path, name, schema) in query_parameters() {
        let id = match path.split('/').nth(2) {
            Some("deliveries") => &delivery["id"],
            Some("destinations") => &delivery["destination_id"],
            Some("events") => &delivery["event_id"],
            _ => &json!("task.updated"),
        };
        let path = path.replace("{id}", id.as_str().unwrap());
        let ask = |value: &str| api.get(&format!("{path}?{name}={value}"));
        let is_free = *schema == json!({"type": "string"});
        // No number, no word, no identifier, no time; too long, and with control characters.
        let wrong = "%07".repeat(2000);
        if is_free {
            ask(&wrong).expect(200).await;
        } else {
            ask(&wrong).refused(422, "invalid_field", Some(name)).await;
        }
        let mut right: Vec<String> = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|word| word.as_str().unwrap().to_owned())
            .collect();
        if schema["type"] == "integer" {
            let (min, max) =
                (schema["minimum"].as_i64().unwrap(), schema["maximum"].as_i64().unwrap());
            right.extend([min, max].map(|value| value.to_string()));
            for beyond in [min - 1, max + 1] {
                ask(&beyond.to_string()).refused(422, "invalid_field", Some(name)).await;
            }
        }
        if schema["format"] == "date-time" && path != "/v1/stats" {
            right.push("2026-11-15T09:30:00.000Z".to_owned());
        }
        for value in right {
            // The body of a stream has no end.
            let status = ask(&value).response().await.status();
            let is_other_scope = name == "scope" && value == "server" && status == 404;
            assert!(status == 200 || is_other_scope, "{path} {name}={value}: {status}");
        }
        tried += 1;
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn every_operation_has_a_name_of_its_own() {
    let mut seen = BTreeSet::new();
    for (path, method, operation) in operations() {
        let name = operation["operationId"].as_str().unwrap();
        assert!(seen.insert(name), "{name} of {method} {path} is taken");
    }
    assert!(seen.contains("explainDelivery") && seen.contains("listDestinations"));
    let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    assert!(seen.iter().all(is_plain), "{seen:?}");
}

#[test]
fn every_reference_resolves() {
    fn walk(value: &Value, seen: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    seen.insert(target.clone());
                }
                fields.values().for_each(|value| walk(value, seen));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, seen)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut references = BTreeSet::new();
    walk(document(), &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(document().pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

/// Every example of the document with its schema and its place. `properties` has names, not keywords.
fn examples<'a>(
    place: &str,
    (key, value): (&str, &'a Value),
    found: &mut Vec<(String, &'a Value, &'a Value)>,
) {
    let place = format!("{place}/{key}");
    match value {
        Value::Object(fields) => {
            if let (Some(example), false) = (fields.get("example"), key == "properties") {
                found.push((place.clone(), fields.get("schema").unwrap_or(value), example));
            }
            for (name, inner) in fields {
                if key == "properties" || name != "example" {
                    examples(&place, (name, inner), found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| examples(&place, ("", item), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_example_fits_its_schema() {
    let mut found = Vec::new();
    examples("", ("", document()), &mut found);
    assert!(found.len() > 90, "{}", found.len());
    for (place, schema, example) in found {
        let mut whole = schema.clone();
        whole["components"] = document()["components"].clone();
        let validator = jsonschema::draft202012::new(&whole).unwrap();
        let faults: Vec<String> =
            validator.iter_errors(example).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{place}: {faults:?}");
        // A schema permits fields that it does not name; an example has none of those.
        crate::schema::check(&place, schema, example);
    }
}

#[test]
fn every_json_body_has_an_example() {
    for (path, method, operation) in operations() {
        let answers = operation["responses"].as_object().unwrap().iter();
        let answers = answers.filter(|(status, _)| status.starts_with('2')).map(|(_, one)| one);
        for body in answers.chain(operation.get("requestBody")) {
            for (kind, content) in body["content"].as_object().into_iter().flatten() {
                let is_text = ["text/html", "image/png"].contains(&kind.as_str());
                assert!(content.get("example").is_some() || is_text, "{method} {path}: {kind}");
            }
        }
    }
}

/// The fields of a schema, including those of its parts.
fn schema_fields(name: &str) -> BTreeSet<String> {
    let schema = &document()["components"]["schemas"][name];
    let parts = schema["allOf"].as_array().cloned().unwrap_or_else(|| vec![schema.clone()]);
    let mut fields = BTreeSet::new();
    for part in parts {
        match part["$ref"].as_str() {
            Some(target) => fields.extend(schema_fields(target.rsplit('/').next().unwrap())),
            None => fields.extend(part["properties"].as_object().unwrap().keys().cloned()),
        }
    }
    fields
}

#[test]
fn fields_that_others_rely_on_are_in_their_schemas() {
    fn fields_of(name: &str, expected: &[&str]) {
        let fields = schema_fields(name);
        for field in expected {
            assert!(fields.contains(*field), "{name} has no {field}: {fields:?}");
        }
    }
    fields_of(
        "Destination",
        &[
            "id",
            "url",
            "state",
            "reason",
            "attempts",
            "successes",
            "failures",
            "consecutive_failures",
            "last_success_at",
            "disabled_at",
            "frozen_at",
            "next_probe_at",
            "waiting",
        ],
    );
    let delivery = [
        "id",
        "event_id",
        "subscription_id",
        "destination_id",
        "type",
        "state",
        "attempts",
        "next_attempt_at",
        "created_at",
        "finished_at",
    ];
    fields_of("Delivery", &delivery);
    fields_of("DeliveryDetail", &delivery);
    fields_of("DeliveryDetail", &["attempt_log"]);
    fields_of(
        "Attempt",
        &["number", "started_at", "duration_ms", "outcome", "status", "error", "response_body"],
    );
    fields_of(
        "Ledger",
        &["accepted", "queued", "in_flight", "waiting", "delivered", "dead", "cancelled"],
    );
    fields_of("Problem", &["type", "title", "status", "code", "detail", "field"]);
}
