//! The receiver of the guide, `docs/guide/receiving.md`, is the code between the two marks below.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]
#![expect(clippy::print_stdout, reason = "an example shows what it found")]

// Begin of the receiver.
use http::{HeaderMap, StatusCode};
use postrider_client::verify;

fn handle(raw_body: &[u8], headers: &HeaderMap, secret: &str) -> StatusCode {
    // Or several secrets, during a rotation.
    match verify(raw_body, headers, [secret]) {
        Ok(verified) => {
            println!("genuine {}", verified.id); // the webhook-id
            StatusCode::NO_CONTENT
        }
        Err(error) => {
            println!("forged {}", error.code()); // why
            StatusCode::UNAUTHORIZED
        }
    }
}
// End of the receiver.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// The headers of a webhook that is sent now.
#[expect(clippy::disallowed_methods, reason = "a receiver refuses what is old")]
fn signed(body: &[u8]) -> HeaderMap {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let key = STANDARD.decode(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("dlv_1.{at}.").as_bytes());
    mac.update(body);
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", "dlv_1".parse().unwrap());
    headers.insert("webhook-timestamp", at.to_string().parse().unwrap());
    headers.insert("webhook-signature", signature.parse().unwrap());
    headers
}

#[test]
fn receiver_of_the_guide_takes_what_is_genuine_and_nothing_else() {
    let body = br#"{"type":"task.updated"}"#;
    let headers = signed(body);
    assert_eq!(handle(body, &headers, SECRET), StatusCode::NO_CONTENT);
    assert_eq!(handle(b"{}", &headers, SECRET), StatusCode::UNAUTHORIZED);
    assert_eq!(handle(body, &HeaderMap::new(), SECRET), StatusCode::UNAUTHORIZED);
}

#[test]
fn guide_shows_this_receiver() {
    let guide = include_str!("../../../docs/guide/receiving.md");
    let (_, block) = guide.split_once("```rust\n").unwrap();
    let block = block.split("```").next().unwrap();
    let (_, ours) = include_str!("guide.rs").split_once("// Begin of the receiver.\n").unwrap();
    let ours = ours.split("// End of the receiver.").next().unwrap();
    assert_eq!(block, ours);
}
