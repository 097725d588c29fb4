//! The policy of a subscription: given, shown, changed, refused, and seen wherever its deliveries are.

use serde_json::{Value, json};

use crate::support::{Api, id};

fn own() -> Value {
    json!({
        "attempt": {"deadline_seconds": 12},
        "retry": {"unit_seconds": 30.5, "max": 4},
        "recovery": {"mode": "drain", "dead": "replay", "dead_max_age_seconds": 3600},
    })
}

/// A receiver that always fails.
fn wish(policy: &Value) -> Value {
    json!({"url": "https://hooks.example.com/500", "types": ["task.*"], "policy": policy})
}

#[tokio::test]
async fn a_policy_is_shown_as_given_and_as_it_holds() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", wish(&own())).expect(201).await;
    assert_eq!(created["policy"], own_with_decimals());
    let effective = &created["effective_policy"];
    assert_eq!(effective["attempt_deadline_seconds"], 12.0);
    assert_eq!(effective["retry"]["offsets_ms"], json!([30_500, 91_500, 213_500, 457_500]));
    assert_eq!(
        (&effective["dead"], &effective["dead_max_age_seconds"]),
        (&json!("replay"), &json!(3_600.0))
    );
    let path = format!("/v1/subscriptions/{}", id(&created));
    let shown = api.get(&path).expect(200).await;
    assert_eq!(shown["policy"], created["policy"]);
    assert_eq!(
        api.get("/v1/subscriptions").expect(200).await["data"][0]["policy"],
        shown["policy"]
    );

    let plain = api.subscribe("200").await;
    let nothing = json!({
        "attempt": {"deadline_seconds": null},
        "retry": {"unit_seconds": null, "max": null},
        "recovery": {"mode": null, "dead": null, "dead_max_age_seconds": null},
    });
    assert_eq!(plain["policy"], nothing);
    let server = api.get("/v1/policy").expect(200).await;
    assert_eq!(plain["effective_policy"]["retry"], server["retry"]);
    assert_eq!(server["subscription_limits"]["retry_max"], 20);
}

fn own_with_decimals() -> Value {
    json!({
        "attempt": {"deadline_seconds": 12.0},
        "retry": {"unit_seconds": 30.5, "max": 4},
        "recovery": {"mode": "drain", "dead": "replay", "dead_max_age_seconds": 3600.0},
    })
}

#[tokio::test]
async fn a_change_of_a_policy_leaves_what_it_does_not_name() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", wish(&own())).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let changed = api.patch(&path, json!({"types": ["task.a"]})).expect(200).await;
    assert_eq!(changed["policy"], own_with_decimals());
    let change = json!({"policy": {"retry": {"max": null}, "recovery": null}});
    let changed = api.patch(&path, change).expect(200).await;
    let expected = json!({
        "attempt": {"deadline_seconds": 12.0},
        "retry": {"unit_seconds": 30.5, "max": null},
        "recovery": {"mode": null, "dead": null, "dead_max_age_seconds": null},
    });
    assert_eq!(changed["policy"], expected);
    assert_eq!(changed["effective_policy"]["retry"]["max"], 11);
    let reset = api.patch(&path, json!({"policy": null})).expect(200).await;
    let server = api.get("/v1/policy").expect(200).await;
    assert_eq!(reset["effective_policy"]["retry"], server["retry"]);
}

#[tokio::test]
async fn a_policy_outside_of_the_operators_limits_is_refused_with_the_limit() {
    let api = Api::new().await;
    for (policy, field, words) in [
        (
            json!({"retry": {"unit_seconds": 0.5}}),
            "policy.retry.unit_seconds",
            "from 1 to 604800 s",
        ),
        (json!({"retry": {"unit_seconds": -1}}), "policy.retry.unit_seconds", "seconds"),
        (json!({"retry": {"unit_seconds": 1e300}}), "policy.retry.unit_seconds", "seconds"),
        (json!({"retry": {"max": 21}}), "policy.retry.max", "policy_limits.retry_max"),
        (json!({"retry": {"max": 15}}), "policy.retry.max", "policy_limits.retry_span_max"),
        (
            json!({"attempt": {"deadline_seconds": 60}}),
            "policy.attempt.deadline_seconds",
            "to 20 s",
        ),
        (
            json!({"recovery": {"dead_max_age_seconds": 3e6}}),
            "policy.recovery.dead_max_age_seconds",
            "policy_limits.dead_max_age_max",
        ),
        (json!({"recovery": {"mode": "now"}}), "policy.recovery.mode", "drain"),
        (json!("quick"), "policy", ""),
    ] {
        let call = api.post("/v1/subscriptions", wish(&policy));
        let problem = call.refused(422, "invalid_field", Some(field)).await;
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    let call = api.post("/v1/subscriptions", wish(&json!({"circuit": {}})));
    call.refused(422, "unknown_field", Some("policy.circuit")).await;
}

#[tokio::test]
async fn a_delivery_and_its_explanation_follow_the_policy_of_its_subscription() {
    let api = Api::new().await;
    api.post("/v1/subscriptions", wish(&own())).expect(201).await;
    api.send_event().await;
    api.idle().await;
    let delivery = api.get("/v1/deliveries").expect(200).await["data"][0].clone();
    let path = format!("/v1/deliveries/{}", id(&delivery));
    let shown = api.get(&path).expect(200).await;
    let schedule = &shown["schedule"];
    assert_eq!(schedule["own_policy"], true);
    assert_eq!(schedule["slots"].as_array().unwrap().len(), 5);
    assert_eq!(shown["next_attempt_at"], "2025-11-15T09:30:30.500Z");
    assert_eq!(schedule["slots"][4]["due_at"], "2025-11-15T09:37:37.500Z");
    let explained = api.get(&format!("{path}/explain")).expect(200).await;
    assert_eq!(explained["slot"]["max"], 4);
    let because = explained["because"].to_string();
    assert!(because.contains("a schedule of its own: 4 retries, the first 30.5 s"), "{because}");
}

#[tokio::test]
async fn a_destination_shows_its_recovery_and_rate_with_where_they_come_from() {
    let api = Api::new().await;
    let first = api.post("/v1/subscriptions", wish(&own())).expect(201).await;
    let path = format!("/v1/destinations/{}", first["destination_id"].as_str().unwrap());
    let shown = api.get(&path).expect(200).await;
    let from_first =
        json!({"mode": "drain", "from": "subscription", "subscription_id": first["id"]});
    assert_eq!((&shown["recovery"], &shown["rate_limit"]), (&from_first, &json!(null)));
    let mut second = wish(&json!({"recovery": {"mode": "slots"}}));
    second["format"] = json!("raw");
    second["rate_limit"] = json!(2.5);
    let second = api.post("/v1/subscriptions", second).expect(201).await;
    let shown = api.get(&path).expect(200).await;
    let from = json!({"mode": "slots", "from": "subscription", "subscription_id": second["id"]});
    assert_eq!(shown["recovery"], from);
    let rate = json!({"per_second": 2.5, "from": "subscription", "subscription_id": second["id"]});
    assert_eq!(shown["rate_limit"], rate);
    let plain = api.subscribe("200").await;
    let path = format!("/v1/destinations/{}", plain["destination_id"].as_str().unwrap());
    let of_server = json!({"mode": "slots", "from": "server", "subscription_id": null});
    assert_eq!(api.get(&path).expect(200).await["recovery"], of_server);
}

#[tokio::test]
async fn an_outage_is_simulated_with_the_policy_of_a_subscription() {
    let api = Api::new().await;
    let none = json!({"retry": {"max": 0}});
    let subscription = api.post("/v1/subscriptions", wish(&none)).expect(201).await;
    let body = json!({
        "outage_seconds": 3_600, "deliveries": 1, "subscription": subscription["id"],
        "presets": ["server"],
    });
    let answer = api.post("/v1/simulate", body.clone()).expect(200).await;
    let plans = answer["plans"].as_array().unwrap();
    assert_eq!((&plans[0]["name"], &plans[1]["name"]), (&json!("subscription"), &json!("server")));
    assert!(plans[0]["dead"].as_u64() > Some(3_000), "{}", plans[0]["dead"]);
    assert_eq!(plans[1]["dead"], 0);
    api.post("/v1/tenants", json!({"id": "acme"})).expect(201).await;
    let key = api.key("acme", &["read"]).await;
    let other = api.post("/v1/simulate", body).key(&key);
    other.refused(422, "invalid_field", Some("subscription")).await;
}
