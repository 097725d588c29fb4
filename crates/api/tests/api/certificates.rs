//! Client certificates and authorities of a subscription: what is accepted, shown, and when they
//! are removed. Their use is tested with the real binary (`mutual_tls.rs` of the server).

use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

use crate::support::{Api, id};

const URL: &str = "https://hooks.example.com/in";

/// A certificate with its key, in PEM.
pub(crate) fn certificate(name: &str, year: i32) -> (String, String) {
    let mut params = CertificateParams::new(vec!["client.example".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, "Example");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn body(more: &Value) -> Value {
    let mut body = json!({"url": URL, "types": ["*"]});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test]
async fn certificates_are_shown_by_subject_expiry_and_fingerprint_and_the_key_not_at_all() {
    let api = Api::new().await;
    let (chain, key) = certificate("client", 2090);
    let (root, _) = certificate("authority", 2091);
    let two = format!("{root}{}", certificate("another", 2092).0);
    let given = json!({"client_certificate": chain, "client_key": key, "ca_certificates": two});
    let created = api.post("/v1/subscriptions", body(&given)).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    for shown in [&created, &api.get(&path).expect(200).await] {
        let client = &shown["client_certificate"];
        assert_eq!(client["subject"], "CN=client, O=Example");
        assert_eq!(client["expires_at"], "2090-01-01T00:00:00.000Z");
        assert_eq!(client["fingerprint"].as_str().unwrap().len(), 64);
        assert_eq!(client.as_object().unwrap().len(), 3);
        let subjects: Vec<_> = shown["ca_certificates"].as_array().unwrap().iter().collect();
        assert_eq!(subjects[0]["subject"], "CN=authority, O=Example");
        assert_eq!(subjects[1]["expires_at"], "2092-01-01T00:00:00.000Z");
        assert_eq!(shown.get("client_key"), None);
    }
    // Absent fields stay unchanged.
    let changed = api.patch(&path, json!({"enabled": false})).expect(200).await;
    assert_eq!(changed["client_certificate"], created["client_certificate"]);
    // Null removes each field separately.
    let changed = api.patch(&path, json!({"client_certificate": null})).expect(200).await;
    assert_eq!(changed["client_certificate"], Value::Null);
    assert_eq!(changed["ca_certificates"], created["ca_certificates"]);
    let changed = api.patch(&path, json!({"ca_certificates": null})).expect(200).await;
    assert_eq!(changed["ca_certificates"], json!([]));
    // The certificates can be given again.
    let given = json!({"client_certificate": chain, "client_key": key});
    let changed = api.patch(&path, given).expect(200).await;
    assert_eq!(changed["client_certificate"], created["client_certificate"]);
}

#[tokio::test]
async fn another_url_drops_them_unless_they_are_given_again() {
    let api = Api::new().await;
    let (chain, key) = certificate("client", 2090);
    let given = json!({"client_certificate": chain, "client_key": key, "ca_certificates": chain});
    let created = api.post("/v1/subscriptions", body(&given)).expect(201).await;
    let path = format!("/v1/subscriptions/{}", id(&created));
    let same = api.patch(&path, json!({"url": URL})).expect(200).await;
    assert_eq!(same["client_certificate"], created["client_certificate"], "it is the same URL");
    let mut moved = given.clone();
    moved["url"] = json!("https://hooks.example.com/two");
    let with_them = api.patch(&path, moved).expect(200).await;
    assert_eq!(with_them["client_certificate"], created["client_certificate"]);
    let url = json!({"url": "https://hooks.example.com/three"});
    let without = api.patch(&path, url).expect(200).await;
    assert_eq!(without["client_certificate"], Value::Null);
    assert_eq!(without["ca_certificates"], json!([]));
}

#[tokio::test]
async fn unusable_certificate_is_refused_with_its_field_and_without_the_key() {
    let api = Api::new().await;
    let (chain, key) = certificate("client", 2090);
    let (other, other_key) = certificate("other", 2090);
    let expired = certificate("client", 2021);
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let cases = [
        (json!({"client_certificate": "x", "client_key": key}), "client_certificate", "no cert"),
        (json!({"client_certificate": garbage, "client_key": key}), "client_certificate", "cannot"),
        (json!({"client_certificate": chain, "client_key": "x"}), "client_key", "no private key"),
        (json!({"client_certificate": chain, "client_key": chain}), "client_key", "no private key"),
        (json!({"client_certificate": chain, "client_key": encrypted}), "client_key", "encrypted"),
        (
            json!({"client_certificate": chain, "client_key": other_key}),
            "client_key",
            "not the key",
        ),
        (json!({"client_certificate": other, "client_key": key}), "client_key", "not the key"),
        (json!({"client_certificate": chain}), "client_key", "together"),
        (json!({"client_key": key}), "client_certificate", "together"),
        (
            json!({"client_certificate": expired.0, "client_key": expired.1}),
            "client_certificate",
            "expired at 2021-01-01",
        ),
        (json!({"ca_certificates": "not PEM"}), "ca_certificates", "no certificate"),
        (json!({"ca_certificates": garbage}), "ca_certificates", "certificate 1 cannot be used"),
        (json!({"ca_certificates": "x".repeat(65_537)}), "ca_certificates", "at most 65536"),
    ];
    for (given, field, words) in cases {
        let call = api.post("/v1/subscriptions", body(&given));
        let problem = call.refused(422, "invalid_field", Some(field)).await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{detail}");
        for line in key.lines().filter(|line| !line.starts_with('-')) {
            assert!(!problem.to_string().contains(line), "{problem}");
        }
    }
    assert_eq!(api.get("/v1/subscriptions").expect(200).await["data"], json!([]));
}
