//! The types have the fields of the OpenAPI document, each with its kind.
//!
//! A sample with every field is made from the document, read into the type and written again: a
//! field that the type lacks is lost on the way, and one that the document lacks is added. Samples of
//! the oldest and of a later server are read too.

use std::sync::LazyLock;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;

/// The OpenAPI document.
static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../openapi.json")).unwrap());

/// The fields that the oldest answers had, by schema.
static OLDEST: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../oldest-answers.json")).unwrap());

fn schema(name: &str) -> &'static Value {
    let schema = &DOCUMENT["components"]["schemas"][name];
    assert!(schema.is_object(), "the document has no {name}");
    schema
}

/// The server whose answer is sampled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// This version: every field of the document.
    Full,
    /// The oldest: the fields of `oldest-answers.json`, and null where that may be.
    Old,
    /// A later one: more fields, and a word that nobody knows for each enumerated one.
    New,
}

impl Form {
    /// A sample of a named schema.
    fn of(self, name: &str) -> Value {
        let mut value = self.sample(schema(name), "");
        if let (Form::Old, Some(fields)) = (self, value.as_object_mut()) {
            let known = OLDEST[name].as_array().unwrap();
            fields.retain(|field, _| known.iter().any(|one| one == field));
        }
        value
    }

    /// A value that fits the schema.
    fn sample(self, schema: &Value, name: &str) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let target = reference.rsplit('/').next().unwrap();
            return match self::schema(target)["properties"].is_null() {
                true => self.sample(self::schema(target), name),
                false => self.of(target),
            };
        }
        let kinds = schema["type"].as_array();
        let is_nullable = kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "null"))
            || schema["oneOf"].as_array().is_some_and(|all| all.contains(&json!({"type": "null"})));
        if self == Form::Old && is_nullable {
            return Value::Null;
        }
        if let Some(word) = schema["enum"].get(0) {
            return if self == Form::New { json!("from_the_future") } else { word.clone() };
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let objects = parts.iter().map(|part| self.sample(part, name));
            let fields = objects.flat_map(|part| part.as_object().unwrap().clone());
            return Value::Object(fields.collect());
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            return self.sample(&choices[0], name);
        }
        let named = kinds.and_then(|kinds| kinds.iter().find(|kind| *kind != "null"));
        let kind = named.unwrap_or(&schema["type"]).as_str();
        match (kind, schema["format"].as_str()) {
            (Some("string"), Some("date-time")) => json!("2025-11-15T09:30:00.12Z"),
            (Some("string"), _) if matches!(name, "secret" | "key") => json!("[secret]"),
            (Some("string"), _) => json!("text"),
            (Some("integer"), _) => json!(202),
            (Some("number"), _) => json!(1.5),
            (Some("boolean"), _) => json!(true),
            (Some("array"), _) => json!([self.sample(&schema["items"], name)]),
            (Some("object"), _) => self.properties(schema),
            _ => json!({ "any": ["JSON"] }),
        }
    }

    fn properties(self, schema: &Value) -> Value {
        let Some(properties) = schema["properties"].as_object() else {
            let values = &schema["additionalProperties"];
            let value = if values.is_object() { self.sample(values, "") } else { json!("b") };
            return json!({ "a": value });
        };
        let one = |(name, schema): (&String, &Value)| (name.clone(), self.sample(schema, name));
        let mut fields = properties.iter().map(one).collect::<Map<_, _>>();
        if self == Form::New {
            fields.insert("added_later".to_owned(), json!({ "any": ["JSON"] }));
        }
        Value::Object(fields)
    }
}

/// Reads a sample of each form; the full one is written again without a loss.
fn check<T: DeserializeOwned + Serialize>(name: &str) {
    // By text: raw JSON cannot be read from a parsed value.
    let read = |sample: &Value| -> T {
        serde_json::from_str(&sample.to_string())
            .unwrap_or_else(|error| panic!("{name}: {error}: {sample}"))
    };
    let full = Form::Full.of(name);
    let written = serde_json::to_string(&read(&full)).unwrap();
    assert_eq!(written.parse::<Value>().unwrap(), full, "{name}");
    read(&Form::Old.of(name));
    read(&Form::New.of(name));
}

#[test]
fn answers_of_this_an_older_and_a_newer_server_are_read() {
    check::<Tenant>("Tenant");
    check::<Key>("Key");
    check::<KeyCreated>("KeyCreated");
    check::<EventAccepted>("EventAccepted");
    check::<EventSummary>("EventSummary");
    check::<Misfit>("Misfit");
    check::<EventDetail>("EventDetail");
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
    check::<SentRequest>("SentRequest");
    check::<DestinationSummary>("DestinationSummary");
    check::<DestinationFigures>("DestinationFigures");
    check::<DestinationStats>("DestinationStats");
    check::<RetriesDue>("RetriesDue");
    check::<DeadLetters>("DeadLetters");
    check::<FilterTrialAnswer>("FilterTrialAnswer");
    check::<EventType>("EventType");
    check::<Catalogue>("Catalogue");
    check::<Erasure>("Erasure");
    check::<RateLimit>("RateLimit");
    check::<Policy>("Policy");
    check::<Server>("Server");
    check::<Setting>("Setting");
    check::<Backup>("Backup");
    check::<AlertTarget>("AlertTarget");
    check::<AlertTestResult>("AlertTestResult");
    check::<PortalLink>("PortalLink");
}

/// The fields of a request, and whether the document has them all and no other.
fn check_request(name: &str, full: &impl Serialize, left_out: &[&str]) {
    let known = schema(name)["properties"].as_object().unwrap();
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
    let change = TenantChange::new()
        .name(None)
        .description(None)
        .metadata(&tenant.metadata)
        .quotas(&tenant.quotas)
        .requests_per_second(None)
        .events_per_second(None);
    check_request("TenantChange", &change, &[]);
    let mut kind = NewEventType::new("a.b", json!({}));
    (kind.description, kind.example) = (text(), Some(json!(1)));
    (kind.deprecated, kind.scope) = (Some(true), Some(EventTypeScope::Server));
    check_request("NewEventType", &kind, &[]);
    let change = EventTypeChange::new().deprecated(true).description(None);
    check_request("EventTypeChange", &change.example(None).schema(None), &[]);
    let change = CatalogueChange::new().misfits(None).unknown_types(Some(Conduct::Flag));
    check_request("CatalogueChange", &change, &[]);
    let theme = NewTheme { accent: text(), logo: text(), mode: text(), name: text() };
    check_request("NewTheme", &theme, &[]);
    let link =
        NewPortalLink { access: "read".to_owned(), expires_in: Some(60), theme: Some(theme) };
    check_request("NewPortalLink", &link, &[]);
    check_request("NewErasure", &NewErasure::Event("e".to_owned()), &["object"]);
    check_request("NewErasure", &NewErasure::Object("o".to_owned()), &["event"]);
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
