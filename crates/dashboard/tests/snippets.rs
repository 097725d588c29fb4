//! The Rust snippet that the page shows to receivers compiles and decides rightly. `dashboard/tests/unit.test.mjs`
//! runs the ones in other languages.
#![expect(clippy::unwrap_used, reason = "what a test makes is right")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue};
use sha2::Sha256;

#[expect(
    unreachable_pub,
    clippy::disallowed_methods,
    reason = "a receiver pastes it into its own program"
)]
#[path = "../../../dashboard/src/snippets/verify.rs"]
mod snippet;

const SNIPPET: &str = include_str!("../../../dashboard/src/snippets/verify.rs");
const WORKSPACE: &str = include_str!("../../../Cargo.toml");
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

/// What a request with this body has in its headers, sent so long ago.
fn headers(body: &str, age: Duration) -> HeaderMap {
    #[expect(clippy::disallowed_methods, reason = "the snippet reads the clock of the machine")]
    let sent_at = SystemTime::now().checked_sub(age).unwrap();
    let sent_at = sent_at.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut mac = Hmac::<Sha256>::new_from_slice(KEY).unwrap();
    mac.update(format!("dlv_1.{sent_at}.{body}").as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let value = |text: String| HeaderValue::from_str(&text).unwrap();
    HeaderMap::from_iter([
        (http::HeaderName::from_static("webhook-id"), value("dlv_1".to_owned())),
        (http::HeaderName::from_static("webhook-timestamp"), value(sent_at.to_string())),
        (
            http::HeaderName::from_static("webhook-signature"),
            value(format!("v1,AAAA v1,{signature}")),
        ),
    ])
}

#[test]
fn rust_snippet_accepts_a_good_signature_and_refuses_a_changed_or_old_request() {
    let secret = format!("whsec_{}", STANDARD.encode(KEY));
    let fresh = headers("{}", Duration::ZERO);
    assert_eq!(snippet::verify(&secret, &fresh, b"{}"), Some(()));
    assert_eq!(snippet::verify(&secret, &fresh, b"[]"), None);
    assert_eq!(snippet::verify("whsec_AAAA", &fresh, b"{}"), None);
    let old = headers("{}", Duration::from_secs(400));
    assert_eq!(snippet::verify(&secret, &old, b"{}"), None);
    assert_eq!(snippet::verify(&secret, &HeaderMap::new(), b"{}"), None);
}

/// So the versions that a reader copies are those that it is compiled with.
#[test]
fn rust_snippet_names_the_versions_that_it_is_tested_with() {
    let named =
        SNIPPET.lines().next().and_then(|line| line.strip_prefix("//! Cargo.toml: ")).unwrap();
    for one in named.split(", ") {
        let (name, version) = one.split_once(" = ").unwrap();
        let version = version.trim_matches('"');
        let is_it = |line: &str| {
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(" = "));
            value.is_some_and(|value| {
                value.split('"').nth(1).is_some_and(|it| it.starts_with(version))
            })
        };
        assert!(WORKSPACE.lines().any(is_it), "{one}");
    }
}
