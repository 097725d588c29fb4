//! Any JSON as input: the answer is never a server error and always names the place.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::Api;

/// JSON with the names of real fields, so that random bodies pass the first check.
fn any_json() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("task.updated".to_owned()),
        Just("https://hooks.example.com/".to_owned()),
        Just("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned()),
        Just("dead".to_owned()),
        Just("read".to_owned()),
        Just("2026-11-15T09:30:00Z".to_owned()),
        any::<String>(),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let name = prop_oneof![
            prop::sample::select(vec![
                "type",
                "data",
                "old",
                "object",
                "id",
                "time",
                "url",
                "types",
                "filter",
                "format",
                "auth_token",
                "headers",
                "secret",
                "rate_limit",
                "enabled",
                "scopes",
                "tenant",
                "name",
                "expires_at",
                "reason",
                "overlap_seconds",
                "state",
                "per_second",
                "dry_run",
                "event",
                "field",
                "op",
                "value",
                "all",
                "any",
                "outage_seconds",
                "deliveries",
                "policy",
                "presets",
                "schema",
                "example",
                "unknown_types",
            ])
            .prop_map(str::to_owned),
            any::<String>(),
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Every path that takes a body.
fn targets(subscription: &str, destination: &str) -> Vec<(&'static str, String)> {
    vec![
        ("POST", "/v1/events".to_owned()),
        ("POST", "/v1/events/batch".to_owned()),
        ("POST", "/v1/subscriptions".to_owned()),
        ("PATCH", format!("/v1/subscriptions/{subscription}")),
        ("POST", format!("/v1/subscriptions/{subscription}/secret/rotate")),
        ("POST", format!("/v1/destinations/{destination}/enable")),
        ("POST", "/v1/replays".to_owned()),
        ("POST", "/v1/tenants".to_owned()),
        ("POST", "/v1/keys".to_owned()),
        ("POST", "/v1/filters/test".to_owned()),
        ("POST", "/v1/filters/test/events".to_owned()),
        ("POST", "/v1/simulate".to_owned()),
        ("POST", "/v1/event-types".to_owned()),
        ("PATCH", "/v1/catalogue".to_owned()),
        ("POST", "/v1/erasures".to_owned()),
    ]
}

#[test]
fn random_bodies_are_never_a_server_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (api, targets) = runtime.block_on(async {
        let api = Api::new().await;
        let subscription = api.subscribe("a").await;
        let text = |field: &str| subscription[field].as_str().unwrap().to_owned();
        let targets = targets(&text("id"), &text("destination_id"));
        (api, targets)
    });
    let bodies = (any_json(), prop::collection::vec(any::<u8>(), 0..64), any::<bool>());
    proptest!(ProptestConfig::with_cases(200), |((json, bytes, is_json) in bodies)| {
        let body = if is_json { json.to_string().into_bytes() } else { bytes };
        runtime.block_on(async {
            for (method, path) in &targets {
                let call = api.call(method, path).header("content-type", "application/json");
                let answer = call.raw(body.clone()).send().await;
                let body = String::from_utf8_lossy(&body);
                assert!(!answer.status.is_server_error(), "{method} {path} {body}: {answer:?}");
            }
        });
    });
}

#[test]
fn random_queries_are_never_a_server_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let api = runtime.block_on(Api::new());
    let names = [
        "limit",
        "cursor",
        "type",
        "since",
        "until",
        "state",
        "destination",
        "subscription",
        "event",
        "scope",
        "step_minutes",
        "tenant",
    ];
    let value = prop_oneof!["[a-zA-Z0-9%_=.:-]{0,20}", "[0-9]{1,20}", Just("all".to_owned())];
    let query = prop::collection::vec((prop::sample::select(names.to_vec()), value), 0..4);
    proptest!(ProptestConfig::with_cases(300), |(query in query)| {
        let query: Vec<String> = query.iter().map(|(n, v)| format!("{n}={v}")).collect();
        runtime.block_on(async {
            for path in ["events", "deliveries", "subscriptions", "stats", "ledger", "keys", "tenants"] {
                let path = format!("/v1/{path}?{}", query.join("&"));
                let answer = api.get(&path).send().await;
                assert!(!answer.status.is_server_error(), "{path}: {answer:?}");
            }
        });
    });
}

#[tokio::test]
async fn json_that_is_too_deep_is_refused_everywhere() {
    let api = Api::new().await;
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for levels in [65, 127, 128, 1000, 100_000] {
        let body = format!("{{\"type\": \"a\", \"data\": {}}}", deep(levels));
        let call = api.call("POST", "/v1/events").raw(body);
        call.refused(422, "invalid_field", Some("data")).await;
        let body = format!("{{\"filter\": {}}}", deep(levels));
        api.call("POST", "/v1/subscriptions").raw(body).refused(422, "invalid_field", None).await;
    }
    let body = format!("{{\"type\": \"a\", \"data\": {}}}", deep(64));
    api.call("POST", "/v1/events").raw(body).expect(202).await;
    let filter = json!({"filter": {"field": "data", "op": "eq", "value": [[[[[1]]]]]}, "event": {
        "type": "a", "data": [[[[[1]]]]]
    }});
    assert_eq!(api.post("/v1/filters/test", filter).expect(200).await["matches"], true);
}
