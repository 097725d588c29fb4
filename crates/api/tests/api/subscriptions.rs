//! `/v1/subscriptions`

use insta::assert_json_snapshot;
use postrider_domain::signature::{SigningSecret, VerifyKey};
use serde_json::{Value, json};

use crate::support::{Api, id};

fn full() -> Value {
    json!({
        "url": "https://Hooks.Example.com/in",
        "types": ["task.*", "note.added", "task.*"],
        "object": "T-1",
        "filter": {"all": [{"field": "data.status", "op": "eq", "value": "CUR"}]},
        "format": "cloudevents",
        "auth_token": "tok_12345678",
        "headers": {"X-Team": "blue"},
        "rate_limit": 2.5,
        "enabled": false,
    })
}

#[tokio::test]
async fn a_subscription_is_created_shown_and_listed() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", full()).expect(201).await;
    assert_json_snapshot!(created, {
        ".id" => "[id]", ".destination_id" => "[id]", ".secret" => "[secret]",
    });
    assert!(created["secret"].as_str().unwrap().parse::<SigningSecret>().is_ok());
    let shown = api.get(&format!("/v1/subscriptions/{}", id(&created))).expect(200).await;
    let mut expected = created.clone();
    expected.as_object_mut().unwrap().remove("secret");
    assert_eq!(shown, expected, "everything but the secret");
    let list = api.get("/v1/subscriptions").expect(200).await;
    assert_eq!(list, json!({"data": [shown], "next_cursor": null}));
}

#[tokio::test]
async fn a_given_secret_is_used_and_shown_once() {
    let api = Api::new().await;
    let secret = SigningSecret::generate_asymmetric([7; 32]);
    let mut body = full();
    body["secret"] = json!(*secret.expose());
    let created = api.post("/v1/subscriptions", body).expect(201).await;
    assert_eq!(created["secret"], json!(*secret.expose()));
    assert_eq!(created["public_key"], json!(secret.public_key()));
    let rotate = format!("/v1/subscriptions/{}/secret/rotate", id(&created));
    let rotated = api.call("POST", &rotate).expect(200).await;
    assert!(rotated["secret"].as_str().unwrap().starts_with("whsk_"), "of the same kind");
}

#[tokio::test]
async fn invalid_subscription_is_refused_with_the_field() {
    let api = Api::new().await;
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        ("url", json!("http://hooks.example.com/"), "url_refused", "url"),
        ("url", json!("https://localhost/"), "url_refused", "url"),
        ("url", json!("https://10.0.0.1/"), "url_refused", "url"),
        ("url", json!("https://hooks.example.com:22/"), "url_refused", "url"),
        ("url", json!("nonsense"), "url_refused", "url"),
        ("url", json!(null), "missing_field", "url"),
        ("types", json!([]), "invalid_field", "types"),
        ("types", json!(["a", "b c"]), "invalid_field", "types[1]"),
        ("types", json!("a"), "invalid_field", "types"),
        ("object", json!(""), "invalid_field", "object"),
        ("format", json!("xml"), "invalid_field", "format"),
        ("auth_token", json!("with space"), "invalid_field", "auth_token"),
        ("auth_token", json!(""), "invalid_field", "auth_token"),
        ("headers", json!({"Host": "x"}), "invalid_field", "headers.Host"),
        ("headers", json!({"X": "1", "x": "2"}), "invalid_field", "headers"),
        ("headers", json!([]), "invalid_field", "headers"),
        ("secret", json!("hunter2"), "invalid_field", "secret"),
        ("rate_limit", json!(0), "invalid_field", "rate_limit"),
        ("enabled", json!("yes"), "invalid_field", "enabled"),
        ("enabled", json!(null), "invalid_field", "enabled"),
        ("surprise", json!(1), "unknown_field", "surprise"),
        ("filter", json!({"field": "data.a", "op": "is"}), "invalid_field", "filter.op"),
        (
            "filter",
            json!({"all": [{"field": "data.a", "op": "changed"}, {"any": [{"field": "x"}]}]}),
            "invalid_field",
            "filter.all[1].any[0].field",
        ),
    ];
    for (field, value, code, place) in cases {
        let mut body = full();
        body[field] = value;
        api.post("/v1/subscriptions", body).refused(422, code, Some(place)).await;
    }
    let problem =
        api.post("/v1/subscriptions", json!({"url": "https://10.0.0.1/", "types": ["a"]}));
    assert_json_snapshot!(problem.expect(422).await);
}

#[tokio::test]
async fn a_twin_is_refused_and_named() {
    let api = Api::new().await;
    let first = api.post("/v1/subscriptions", full()).expect(201).await;
    let mut twin = full();
    twin["types"] = json!(["note.added", "task.*"]);
    twin["auth_token"] = json!(null);
    let problem =
        api.post("/v1/subscriptions", twin.clone()).refused(409, "twin_subscription", None);
    let problem = problem.await;
    assert_eq!(problem["existing_id"], first["id"]);
    assert!(problem["detail"].as_str().unwrap().contains(&id(&first)));
    twin["format"] = json!("raw");
    let other = api.post("/v1/subscriptions", twin).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&other));
    let back = api.patch(&path, json!({"format": "cloudevents"}));
    back.refused(409, "twin_subscription", None).await;
    api.delete(&format!("/v1/subscriptions/{}", id(&first))).expect(204).await;
    api.patch(&path, json!({"format": "cloudevents"})).expect(200).await;
}

#[tokio::test]
async fn a_change_leaves_what_it_does_not_name() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", full()).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let unchanged = api.patch(&path, json!({})).expect(200).await;
    assert_eq!(unchanged["auth_token"], "****5678");
    assert_eq!(unchanged["filter"], created["filter"]);
    let changed = api.patch(
        &path,
        json!({
            "object": null, "filter": null, "format": null, "headers": null, "rate_limit": null,
            "enabled": true, "types": ["a.b"],
        }),
    );
    assert_json_snapshot!(changed.expect(200).await, {".id" => "[id]", ".destination_id" => "[id]"});
    let gone = api.patch(&path, json!({"auth_token": null})).expect(200).await;
    assert_eq!(gone["auth_token"], Value::Null);
    api.patch(&path, json!({"auth_token": "short"})).expect(200).await;
    assert_eq!(api.get(&path).expect(200).await["auth_token"], "****");
    for (field, value) in [("url", json!(null)), ("types", json!(null)), ("secret", json!("x"))] {
        api.patch(&path, json!({ field: value })).refused(422, "invalid_field", Some(field)).await;
    }
}

#[tokio::test]
async fn another_url_drops_token_and_headers_unless_they_are_given_again() {
    let api = Api::new().await;
    let mut body = full();
    body["headers"] = json!({"X-Api-Key": "key_12345678", "X-Team": "blue"});
    let created = api.post("/v1/subscriptions", body).expect(201).await;
    let masked = json!({"x-api-key": "****5678", "x-team": "****"});
    assert_eq!(created["headers"], masked);
    let path = format!("/v1/subscriptions/{}", id(&created));
    // Another spelling of the same URL counts as the same URL.
    let same =
        api.patch(&path, json!({"url": "https://hooks.example.com:443/in"})).expect(200).await;
    assert_eq!(same["auth_token"], "****5678");
    assert_eq!(same["headers"], masked);
    let moved = api.patch(&path, json!({"url": "https://evil.example.com/"})).expect(200).await;
    assert_eq!(moved["auth_token"], Value::Null);
    assert_eq!(moved["headers"], json!({}));
    assert_ne!(moved["destination_id"], created["destination_id"]);
    let both = json!({
        "url": "https://hooks.example.com/in", "auth_token": "tok_abcdefgh",
        "headers": {"X-Api-Key": "key_abcdefgh"},
    });
    let both = api.patch(&path, both).expect(200).await;
    assert_eq!(both["auth_token"], "****efgh");
    assert_eq!(both["headers"], json!({"x-api-key": "****efgh"}));
}

#[tokio::test]
async fn headers_are_sent_to_the_url_that_they_were_given_for_and_to_no_other() {
    let api = Api::new().await;
    let old = "https://hooks.example.com/old/500";
    let body = json!({"url": old, "types": ["*"], "headers": {"x-key": "value-for-the-old"}});
    let created = api.post("/v1/subscriptions", body).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    api.send_event().await;
    api.idle().await;
    let new = "https://hooks.example.com/new";
    let body = json!({"url": new, "headers": {"x-key": "value-for-the-new"}});
    api.patch(&path, body).expect(200).await;
    let delivery = id(&api.get("/v1/deliveries").expect(200).await["data"][0]);
    // A delivery that waits for the old URL is sent there once more.
    api.call("POST", &format!("/v1/deliveries/{delivery}/cancel")).expect(200).await;
    api.call("POST", &format!("/v1/deliveries/{delivery}/replay")).expect(202).await;
    api.send_event().await;
    api.idle().await;
    let requests = api.receiver.requests.lock().unwrap().clone();
    let sent = |url: &str, n: usize| {
        let to = requests.iter().filter(|(to, ..)| to.as_str() == url);
        to.map(|(_, headers, _)| headers.clone()).nth(n).unwrap_or_else(|| panic!("{url} {n}"))
    };
    assert!(sent(old, 0).contains("x-key: value-for-the-old"));
    assert!(!sent(old, 1).contains("x-key"), "{}", sent(old, 1));
    assert!(sent(new, 0).contains("x-key: value-for-the-new"));
}

#[tokio::test]
async fn a_rotation_overlaps_and_both_secrets_sign() {
    let api = Api::new().await;
    let created = api.subscribe("in").await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let rotate = format!("{path}/secret/rotate");
    let rotated = api.call("POST", &rotate).expect(200).await;
    assert_ne!(rotated["secret"], created["secret"]);
    assert_eq!(rotated["retiring_secrets"], 1);
    api.send_event().await;
    api.idle().await;
    let headers = api.receiver.requests.lock().unwrap()[0].1.clone();
    let signatures = headers.lines().find(|line| line.starts_with("webhook-signature")).unwrap();
    assert_eq!(signatures.matches("v1,").count(), 2, "{signatures}");
    api.clock.advance(std::time::Duration::from_secs(24 * 3600));
    assert_eq!(api.get(&path).expect(200).await["retiring_secrets"], 0);
    let at_once = api.post(&rotate, json!({"overlap_seconds": 0})).expect(200).await;
    assert_eq!(at_once["retiring_secrets"], 0);
    let long = api.post(&rotate, json!({"overlap_seconds": 1_000_000_000}));
    long.refused(422, "invalid_field", Some("overlap_seconds")).await;
    let secret: SigningSecret = at_once["secret"].as_str().unwrap().parse().unwrap();
    assert!(matches!(VerifyKey::from(&secret), VerifyKey { .. }));
}

#[tokio::test]
async fn a_shorter_rotation_keeps_the_overlap_that_was_promised_before() {
    let api = Api::new().await;
    let created = api.subscribe("in").await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let rotate = format!("{path}/secret/rotate");
    api.call("POST", &rotate).expect(200).await;
    let rotated = api.post(&rotate, json!({"overlap_seconds": 0})).expect(200).await;
    assert_eq!(rotated["retiring_secrets"], 1, "24 hours were promised");
    api.clock.advance(std::time::Duration::from_secs(24 * 3600 - 1));
    assert_eq!(api.get(&path).expect(200).await["retiring_secrets"], 1);
    api.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!(api.get(&path).expect(200).await["retiring_secrets"], 0);
    for _ in 0..9 {
        api.call("POST", &rotate).expect(200).await;
    }
    api.call("POST", &rotate).refused(429, "too_many_secrets", None).await;
    assert_eq!(api.get(&path).expect(200).await["retiring_secrets"], 9);
}

#[tokio::test]
async fn a_test_shows_what_became_of_it() {
    let api = Api::new().await;
    let created = api.subscribe("500").await;
    let path = format!("/v1/subscriptions/{}/test", id(&created));
    let outcome = api.call("POST", &path).expect(200).await;
    assert_json_snapshot!(outcome, {".subscription_id" => "[id]"});
    let body = api.receiver.requests.lock().unwrap()[0].2.clone();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["type"], "postrider.test");
    assert_eq!(api.get("/v1/ledger").expect(200).await["accepted"], 0, "it counts for nothing");
}

#[tokio::test]
async fn a_test_is_refused_while_its_destination_is_frozen_or_has_no_place() {
    let api = Api::new().await;
    let created = api.subscribe("hang").await;
    let path = format!("/v1/subscriptions/{}/test", id(&created));
    for _ in 0..8 {
        api.send_event().await;
    }
    api.until(async |api| api.receiver.requests.lock().unwrap().len() == 8).await;
    let full = api.call("POST", &path).refused(429, "rate_limited", None).await;
    assert!(full["detail"].as_str().unwrap().contains("8 attempts in flight"), "{full}");
    let destinations = api.get("/v1/destinations").expect(200).await;
    let freeze = format!("/v1/destinations/{}/freeze", id(&destinations["data"][0]));
    api.post(&freeze, json!({"reason": "moving house"})).expect(200).await;
    let frozen = api.call("POST", &path).refused(409, "wrong_state", None).await;
    assert!(frozen["detail"].as_str().unwrap().contains("moving house"), "{frozen}");
}

#[tokio::test]
async fn a_deleted_subscription_is_gone_with_what_it_was_owed() {
    let api = Api::new().await;
    let delivery = api.delivery("500").await;
    assert_eq!(delivery["state"], "waiting");
    let path = format!("/v1/subscriptions/{}", delivery["subscription_id"].as_str().unwrap());
    api.delete(&path).expect(204).await;
    api.delete(&path).refused(404, "not_found", None).await;
    api.get(&path).refused(404, "not_found", None).await;
    api.until(async |api| api.get("/v1/ledger").expect(200).await["cancelled"] == 1).await;
    let delivery = api.get(&format!("/v1/deliveries/{}", id(&delivery))).expect(200).await;
    assert_eq!(delivery["state"], "cancelled");
    assert_eq!(delivery["reason"], "subscription_deleted");
}

#[tokio::test]
async fn two_changes_at_the_same_time_are_both_made() {
    let api = Api::new().await;
    let created = api.post("/v1/subscriptions", full()).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let rotate = format!("{path}/secret/rotate");
    tokio::join!(
        api.patch(&path, json!({"object": "T-2"})).expect(200),
        api.patch(&path, json!({"rate_limit": 7})).expect(200),
        api.patch(&path, json!({"auth_token": "tok_abcdefgh"})).expect(200),
        api.call("POST", &rotate).expect(200),
    );
    let shown = api.get(&path).expect(200).await;
    assert_eq!(shown["object"], "T-2");
    assert_eq!(shown["rate_limit"], 7);
    assert_eq!(shown["auth_token"], "****efgh");
    assert_eq!(shown["retiring_secrets"], 1);
}
