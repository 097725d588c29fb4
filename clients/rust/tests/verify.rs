//! `verify` decides every case of `clients/verify-cases.json` as the table says.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use postrider_client::{Verifier, VerifierError, verify};
use serde_json::Value;

fn table() -> Value {
    serde_json::from_str(include_str!("../../verify-cases.json")).unwrap()
}

fn headers(case: &Value) -> HeaderMap {
    let pair = |(name, value): (&String, &Value)| {
        let name: HeaderName = name.parse().unwrap();
        (name, HeaderValue::from_bytes(value.as_str().unwrap().as_bytes()).unwrap())
    };
    case["headers"].as_object().unwrap().iter().map(pair).collect()
}

fn secrets(case: &Value) -> Vec<&str> {
    case["secrets"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

#[test]
fn every_case_of_the_table_is_decided_as_it_says() {
    let table = table();
    let cases = table["cases"].as_array().unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let name = &case["name"];
        let body = STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap();
        let now = UNIX_EPOCH + Duration::from_secs(case["now"].as_u64().unwrap());
        let tolerance = Duration::from_secs(case["tolerance_seconds"].as_u64().unwrap());
        let verifier = Verifier::new(secrets(case)).unwrap().tolerance(tolerance);
        let decided = match verifier.verify_at(&body, &headers(case), now) {
            Ok(verified) => {
                assert_eq!(verified.id, case["headers"]["webhook-id"].as_str().unwrap());
                "ok"
            }
            Err(error) => {
                let shown = format!("{error} {error:?}");
                assert!(!secrets(case).iter().any(|secret| shown.contains(&secret[6..])));
                error.code()
            }
        };
        assert_eq!(decided, case["expected"].as_str().unwrap(), "{name}");
    }
}

#[test]
fn secrets_of_no_use_to_a_receiver_are_refused_without_being_repeated() {
    let table = table();
    for bad in table["bad_secrets"].as_array().unwrap() {
        let secret = bad["secret"].as_str().unwrap();
        let error = Verifier::new([secret]).err().unwrap_or_else(|| panic!("{bad} was accepted"));
        assert!(secret.is_empty() || !error.to_string().contains(secret));
        let refused = verify(b"", &HeaderMap::new(), [secret]).unwrap_err();
        assert_eq!(refused.code(), "bad_secret");
    }
    assert_eq!(Verifier::new(["whsk_x"]).err(), Some(VerifierError::SigningKey));
}

#[test]
fn a_header_that_is_there_twice_is_malformed_and_an_old_webhook_too_old() {
    let table = table();
    let case = &table["cases"][0];
    let body = STANDARD.decode(case["body_base64"].as_str().unwrap()).unwrap();
    let mut twice = headers(case);
    assert_eq!(verify(&body, &twice, secrets(case)).unwrap_err().code(), "too_old");
    twice.append("webhook-id", HeaderValue::from_static("other"));
    assert_eq!(verify(&body, &twice, secrets(case)).unwrap_err().code(), "malformed_header");
}
