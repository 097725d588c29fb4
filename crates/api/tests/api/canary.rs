//! Secrets, tokens and keys appear only in the answer that shows them once, whatever errors callers
//! make and whatever a receiver echoes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use postrider_domain::signature::SigningSecret;
use postrider_store::Configuration as _;
use serde_json::{Value, json};

use crate::certificates::certificate;
use crate::support::{Api, Call, id};

const TOKEN: &str = "tok_CANARYCANARYCANARY7";
const HEADER: &str = "hdr_CANARYCANARYCANARY9";

/// A secret in every encoding in which it could leak.
fn forms(secret: &str) -> Vec<String> {
    let bare = secret.trim_start_matches("whsec_").trim_end_matches('=');
    let mut forms = Vec::new();
    for text in [secret, bare] {
        let bytes = text.as_bytes();
        forms.push(text.to_owned());
        forms.push(STANDARD.encode(bytes));
        forms.push(STANDARD_NO_PAD.encode(&bytes[..bytes.len() / 3 * 3]));
        forms.push(URL_SAFE_NO_PAD.encode(&bytes[..bytes.len() / 3 * 3]));
        forms.push(postrider_domain::hex::encode(bytes));
        forms.push(bytes.iter().map(|byte| format!("%{byte:02X}")).collect());
    }
    forms
}

fn check_clean(what: &str, text: &str, secrets: &[&str]) {
    for secret in secrets {
        for form in forms(secret) {
            assert!(!text.contains(&form), "{what}: {form} in {text}");
        }
    }
}

#[tokio::test]
async fn no_answer_but_the_first_holds_a_secret() {
    let api = Api::new().await;
    let secret = SigningSecret::generate_symmetric([0xca; 32]).expose().to_string();
    let (chain, client_key) = certificate("client", 2090);
    let body = json!({
        "url": "https://hooks.example.com/echo/500", "types": ["*"],
        "auth_token": TOKEN, "secret": secret, "headers": {"x-key": format!("Basic {HEADER}")},
        "client_certificate": chain, "client_key": client_key,
    });
    let created = api.post("/v1/subscriptions", body.clone()).expect(201).await;
    assert_eq!(created["secret"], json!(secret), "shown once");
    let subscription = format!("/v1/subscriptions/{}", id(&created));
    let rotated = api.call("POST", &format!("{subscription}/secret/rotate")).expect(200).await;
    let rotated = rotated["secret"].as_str().unwrap().to_owned();
    let key = api.key("default", &["read", "manage", "ingest"]).await;
    let key_secret = key.rsplit('_').next().unwrap().to_owned();
    api.send_event().await;
    api.idle().await;
    let delivery = id(&api.get("/v1/deliveries").expect(200).await["data"][0]);

    let wrong = |field: &str, value: Value| {
        let mut body = body.clone();
        body[field] = value;
        api.post("/v1/subscriptions", body)
    };
    let calls: Vec<Call<'_>> = vec![
        api.get("/v1/subscriptions"),
        api.get(&subscription),
        api.patch(&subscription, json!({"enabled": true})),
        api.patch(&subscription, json!({"secret": secret})),
        api.call("POST", &format!("{subscription}/test")),
        api.get("/v1/destinations"),
        api.get("/v1/deliveries"),
        api.get(&format!("/v1/deliveries/{delivery}")),
        api.get(&format!("/v1/deliveries/{delivery}")).key(&key),
        api.get(&format!("/v1/deliveries/{delivery}/explain")),
        api.get("/v1/keys"),
        api.get("/v1/keys?scope=admin"),
        api.get("/metrics"),
        api.get("/v1/audit?limit=1000"),
        api.post("/v1/subscriptions", body.clone()),
        wrong("auth_token", json!([TOKEN])),
        wrong("auth_token", json!(format!("{TOKEN} {TOKEN}"))),
        wrong("secret", json!({"secret": secret})),
        wrong("secret", json!(secret.replace("whsec_", "whsex_"))),
        wrong("client_key", json!([client_key])),
        wrong("client_key", json!(client_key.replace("-----END", "-----"))),
        wrong("client_certificate", json!(client_key)),
        wrong("ca_certificates", json!(client_key)),
        wrong("headers", json!({"x-key": [TOKEN]})),
        wrong("headers", json!({"x-key": format!("{TOKEN}\n")})),
        wrong("url", json!(format!("https://user:{TOKEN}@hooks.example.com/"))),
        api.get("/v1/ledger").key(&format!("{key}x")),
        api.get("/v1/ledger").key(&key_secret),
    ];
    // The middle part of the key.
    let client_key: String = client_key.lines().filter(|line| !line.starts_with('-')).collect();
    let client_key = &client_key[40..100];
    let secrets = [secret.as_str(), &rotated, TOKEN, HEADER, &key_secret, &api.admin, client_key];
    for (n, call) in calls.into_iter().enumerate() {
        let answer = call.send().await;
        check_clean(&format!("call {n}"), &answer.text, &secrets);
        check_clean(&format!("headers of {n}"), &format!("{:?}", answer.headers), &secrets);
    }
    // After all refused requests.
    let audit = api.get("/v1/audit?limit=1000").send().await;
    check_clean("the audit log", &audit.text, &secrets);
    let log = api.get(&format!("/v1/deliveries/{delivery}")).expect(200).await;
    let echoed = log["attempt_log"][0]["response_body"].as_str().unwrap();
    assert!(echoed.contains("****"), "the receiver did echo: {echoed}");
}

#[tokio::test]
async fn the_store_holds_no_secret_in_clear() {
    let api = Api::new().await;
    let body = json!({
        "url": "https://hooks.example.com/", "types": ["*"], "auth_token": TOKEN,
        "headers": {"x-key": HEADER},
    });
    let (chain, key) = certificate("client", 2090);
    let mut body = body;
    body["client_certificate"] = json!(chain);
    body["client_key"] = json!(key);
    let client_key = &key.lines().nth(1).unwrap()[20..60];
    let call = api.post("/v1/subscriptions", body).header("idempotency-key", "k");
    let created = call.expect(201).await;
    let secret = created["secret"].as_str().unwrap();
    let records = api.store.all_subscriptions().await.unwrap();
    let tenant = "default".parse().unwrap();
    let key_id = api.admin.split('_').nth(1).unwrap();
    let kept = api.store.idempotent_answer(&tenant, &format!("{key_id}:k")).await.unwrap();
    let answer = kept.unwrap();
    let key = api.store.key(api.admin.split('_').nth(1).unwrap()).await.unwrap().unwrap();
    let subscription = serde_json::to_vec(&records[0].subscription).unwrap();
    for bytes in [&subscription[..], &records[0].credentials, &answer.body, &key.hash] {
        for secret in [secret, TOKEN, HEADER, &api.admin, client_key] {
            for form in forms(secret) {
                let form = form.as_bytes();
                assert!(!bytes.windows(form.len()).any(|window| window == form));
            }
        }
    }
    check_clean(
        "the record",
        &format!("{records:?} {answer:?} {key:?}"),
        &[secret, TOKEN, HEADER, client_key],
    );
}
