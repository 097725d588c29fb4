//! The types have the fields of the OpenAPI document, each with its kind.
//!
//! A sample with every field is made from the document, read into the type and written again: a
//! field that the type lacks is lost on the way, and one that the document lacks is added.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;

fn document() -> Value {
    let text = include_str!("../../../openapi.json");
    serde_json::from_str(text).unwrap()
}

/// A value that fits the schema; every property is there.
fn sample(document: &Value, schema: &Value, name: &str) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = reference.trim_start_matches('#');
        return sample(document, document.pointer(target).unwrap(), name);
    }
    if let Some(word) = schema["enum"].get(0) {
        return word.clone();
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let objects = parts.iter().map(|part| sample(document, part, name));
        return Value::Object(objects.flat_map(|part| part.as_object().unwrap().clone()).collect());
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        return sample(document, &choices[0], name);
    }
    let kinds = schema["type"].as_array();
    let named = kinds.and_then(|kinds| kinds.iter().find(|kind| *kind != "null"));
    let kind = named.unwrap_or(&schema["type"]).as_str();
    match (kind, schema["format"].as_str()) {
        (Some("string"), Some("date-time")) => json!("2025-11-15T09:30:00.12Z"),
        (Some("string"), _) if matches!(name, "secret" | "key") => json!("[secret]"),
        (Some("string"), _) => json!("text"),
        (Some("integer"), _) => json!(202),
        (Some("number"), _) => json!(1.5),
        (Some("boolean"), _) => json!(true),
        (Some("array"), _) => json!([sample(document, &schema["items"], name)]),
        (Some("object"), _) => properties(document, schema),
        _ => json!({ "any": ["JSON"] }),
    }
}

fn properties(document: &Value, schema: &Value) -> Value {
    let Some(properties) = schema["properties"].as_object() else {
        let values = &schema["additionalProperties"];
        let value = if values.is_object() { sample(document, values, "") } else { json!("b") };
        return json!({ "a": value });
    };
    let one = |(name, schema): (&String, &Value)| (name.clone(), sample(document, schema, name));
    Value::Object(properties.iter().map(one).collect::<Map<_, _>>())
}

fn check<T: DeserializeOwned + Serialize>(name: &str) {
    let document = document();
    let schema = &document["components"]["schemas"][name];
    assert!(schema.is_object(), "the document has no {name}");
    let expected = sample(&document, schema, "");
    let read: T = serde_json::from_value(expected.clone())
        .unwrap_or_else(|error| panic!("{name}: {error}: {expected}"));
    assert_eq!(serde_json::to_value(&read).unwrap(), expected, "{name}");
}

#[test]
fn answers_have_the_fields_of_the_openapi_document() {
    check::<Tenant>("Tenant");
    check::<Key>("Key");
    check::<KeyCreated>("KeyCreated");
    check::<EventAccepted>("EventAccepted");
    check::<EventSummary>("EventSummary");
    check::<Misfit>("Misfit");
    // Raw JSON cannot be read from a parsed value: read the text.
    let document = document();
    let detail = sample(&document, &document["components"]["schemas"]["EventDetail"], "");
    let read: EventDetail = serde_json::from_str(&detail.to_string()).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap().parse::<Value>().unwrap(), detail);
    check::<Match>("Match");
    check::<FilterVerdict>("FilterVerdict");
    check::<Subscription>("Subscription");
    check::<SubscriptionWithSecret>("SubscriptionWithSecret");
    check::<WorkfrontOptions>("WorkfrontOptions");
    check::<TestOutcome>("TestOutcome");
    check::<Delivery>("Delivery");
    check::<DeliveryDetail>("DeliveryDetail");
    check::<Attempt>("Attempt");
    check::<Explanation>("Explanation");
    check::<Destination>("Destination");
    check::<Transition>("Transition");
    check::<Replay>("Replay");
    check::<Ledger>("Ledger");
    check::<Stats>("Stats");
    check::<Limit>("Limit");
    check::<AuditEntry>("AuditEntry");
    check::<SimulationAnswer>("SimulationAnswer");
}

/// The fields of a request, and whether the document has them all and no other.
fn check_request(name: &str, full: &impl Serialize, left_out: &[&str]) {
    let document = document();
    let known = document["components"]["schemas"][name]["properties"].as_object().unwrap().clone();
    let full = serde_json::to_value(full).unwrap();
    let mut expected: Vec<_> = known.keys().map(String::as_str).collect();
    expected.retain(|field| !left_out.contains(field));
    let found: Vec<_> = full.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn requests_have_the_fields_of_the_openapi_document() {
    let at = Some("2025-11-15T09:30:00Z".parse().unwrap());
    let text = || Some("text".to_owned());
    let mut event = NewEvent::new("a.b", json!(1)).old(json!(2)).object("o").id("i");
    event.time = at;
    check_request("NewEvent", &event, &[]);
    let subscription = NewSubscription {
        object: text(),
        format: text(),
        workfront: Some(NewWorkfrontOptions { version: text(), base64: Some(true) }),
        rate_limit: Some(1.0),
        policy: Some(SubscriptionPolicy::default()),
        enabled: Some(true),
        name: text(),
        description: text(),
        metadata: [("a".to_owned(), "b".to_owned())].into(),
        uid: text(),
        client_certificate: text(),
        client_key: Some("k".into()),
        ca_certificates: text(),
        ..NewSubscription::new("https://example.com", ["*"])
            .filter(Filter::exists("data"))
            .secret("s")
            .auth_token("t")
            .header("x", "y")
    };
    check_request("NewSubscription", &subscription, &[]);
    let change = SubscriptionChange::new()
        .url("u")
        .types(["*"])
        .object(None)
        .filter(None)
        .format("raw")
        .workfront(&NewWorkfrontOptions::default())
        .auth_token(None)
        .headers(&subscription.headers)
        .rate_limit(None)
        .policy(None)
        .enabled(true)
        .name(None)
        .description(None)
        .metadata(&subscription.metadata)
        .uid(None)
        .client_certificate(None)
        .ca_certificates(None);
    check_request("SubscriptionChange", &change, &["secret"]);
}

#[test]
fn requests_of_operators_have_the_fields_of_the_openapi_document() {
    let at = Some("2025-11-15T09:30:00Z".parse().unwrap());
    let text = || Some("text".to_owned());
    let tenant = NewTenant {
        description: text(),
        events_per_second: Some(1),
        id: "a".to_owned(),
        metadata: [("a".to_owned(), "b".to_owned())].into(),
        name: text(),
        quotas: [("subscriptions".to_owned(), 1)].into(),
        requests_per_second: Some(1),
    };
    check_request("NewTenant", &tenant, &[]);
    let key = NewKey { expires_at: at, name: text(), scopes: Vec::new(), tenant: text() };
    check_request("NewKey", &key, &[]);
    check_request("Enable", &Enable { dead_since: at, reason: text(), waiting: text() }, &[]);
    let replay = NewReplay {
        destination: text(),
        ended_since: at,
        per_second: Some(1),
        since: at,
        state: text(),
        subscription: text(),
        kind: text(),
        until: at,
    };
    check_request("NewReplay", &replay, &["dry_run"]);
    let simulation = Simulation {
        answer_ms: Some(1),
        enable_after_seconds: Some(1),
        healthy_before_seconds: Some(1),
        per_seconds: Some(1),
        policy: Some(json!({})),
        presets: Some(Vec::new()),
        samples: Some(10),
        subscription: text(),
        ..Simulation::new(1, 1)
    };
    check_request("Simulation", &simulation, &[]);
}

#[test]
fn secrets_are_sent_in_requests_and_shown_nowhere_else() {
    let subscription =
        NewSubscription::new("https://a.example", ["*"]).secret("whsec_x").header("a", "token-x");
    let shown = format!("{subscription:?}");
    assert!(!shown.contains("whsec_x") && !shown.contains("token-x"), "{shown}");
    let sent = serde_json::to_value(&subscription).unwrap();
    assert_eq!((&sent["secret"], &sent["headers"]["a"]), (&json!("whsec_x"), &json!("token-x")));
    let change = SubscriptionChange::new().auth_token(Some("token-x"));
    assert_eq!(format!("{change:?}"), r#"{"auth_token"}"#);
    let answer =
        json!({ "id": "a", "created_at": "2025-11-15T09:30:00Z", "scopes": [], "key": "pr_x_y" });
    let created: KeyCreated = serde_json::from_value(answer).unwrap();
    assert_eq!(created.key.expose(), "pr_x_y");
    assert!(!format!("{created:?}{}", serde_json::to_string(&created).unwrap()).contains("pr_x_y"));
}
