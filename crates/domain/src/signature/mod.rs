//! Standard Webhooks signatures: proof for the receiver that a message is ours, whole and fresh.
//!
//! The signed text is `id.timestamp.body`. The body, which may come in parts, is not copied, and key
//! state is computed once per secret, not once per message. Nothing here reads a clock or generates
//! random numbers.
//!
//! ```text
//! webhook-id:        dlv_019a86d99e3877078707070707070707
//! webhook-timestamp: 1763199000
//! webhook-signature: v1,<HMAC-SHA256> v1a,<ed25519> …      one for each secret that is valid
//! ```

mod rotation;
mod secret;
mod verify;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::ed25519::signature::MultipartSigner as _;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use secret::Key;

pub use rotation::{RetiredSecret, SigningSecrets, TooManySecrets};
pub use secret::{InvalidSecret, SigningSecret};
pub use verify::{SignedHeaders, TOLERANCE, Unverified, VerifyKey, verify};

/// The header with the message's identifier.
pub const ID_HEADER: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since the Unix epoch.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// The header with the signatures.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// The prefix of a signature made with HMAC-SHA256.
const SYMMETRIC_VERSION: &str = "v1,";
/// The prefix of a signature made with ed25519.
const ASYMMETRIC_VERSION: &str = "v1a,";
/// The longest signature in a header, with the space before it.
const SIGNATURE_CHARS_MAX: usize = 1 + ASYMMETRIC_VERSION.len() + 88;

/// The value of `webhook-signature` for one message: one signature for each secret, in order,
/// joined by spaces. `id` must not contain a dot: the signed text would be ambiguous.
pub fn sign<'a>(
    secrets: impl IntoIterator<Item = &'a SigningSecret>,
    id: &str,
    unix_seconds: i64,
    body: &[u8],
) -> String {
    sign_parts(secrets, id, unix_seconds, [body, b""])
}

/// As [`sign`] does it, of a body in two parts.
pub fn sign_parts<'a>(
    secrets: impl IntoIterator<Item = &'a SigningSecret>,
    id: &str,
    unix_seconds: i64,
    [body, rest]: [&[u8]; 2],
) -> String {
    let secrets = secrets.into_iter();
    let head = format!("{id}.{unix_seconds}.");
    let parts = [head.as_bytes(), body, rest];
    let mut header = String::with_capacity(secrets.size_hint().0.max(1) * SIGNATURE_CHARS_MAX);
    for secret in secrets {
        if !header.is_empty() {
            header.push(' ');
        }
        match secret.key() {
            Key::Symmetric { schedule, .. } => {
                header.push_str(SYMMETRIC_VERSION);
                STANDARD.encode_string(hmac(schedule, &parts), &mut header);
            }
            Key::Asymmetric(key) => {
                header.push_str(ASYMMETRIC_VERSION);
                let signature = key.multipart_sign(&parts);
                STANDARD.encode_string(signature.to_bytes(), &mut header);
            }
        }
    }
    header
}

/// HMAC-SHA256 of the parts, one after the other.
fn hmac(schedule: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = schedule.clone();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example in the tests of the Standard Webhooks reference libraries.
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const UNIX_SECONDS: i64 = 1_614_265_330;
    const BODY: &[u8] = b"{\"test\": 2432232314}";
    const SYMMETRIC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SYMMETRIC_SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const ASYMMETRIC: &str = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
    const ASYMMETRIC_SIGNED: &str = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUu\
                                     xqtaiHeYGb7KaaBRdM5WqyeFiL8Ag==";

    fn secret(text: &str) -> SigningSecret {
        text.parse().unwrap()
    }

    #[test]
    fn the_published_examples_are_signed_exactly() {
        let (symmetric, asymmetric) = (secret(SYMMETRIC), secret(ASYMMETRIC));
        assert_eq!(sign([&symmetric], ID, UNIX_SECONDS, BODY), SYMMETRIC_SIGNED);
        assert_eq!(sign([&asymmetric], ID, UNIX_SECONDS, BODY), ASYMMETRIC_SIGNED);
        assert_eq!(
            asymmetric.public_key().as_deref(),
            Some("whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g=")
        );
    }

    #[test]
    fn other_keys_and_bodies_agree_with_an_independent_implementation() {
        // Computed with Python's hmac and cryptography over `id + "." + time + "." + body`.
        let (id, unix_seconds) = ("dlv_019a86d99e3877078707070707070707", 1_763_199_000);
        let every_byte: Vec<u8> = (0..=255).collect();
        let longest = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMz\
                       Q1Njc4OTo7PD0+Pw==";
        let sevens = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        let rfc_8032_test_1 = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
        let rfc_8032_test_3 = "whsk_xaqN9D+fg3vtt0QvMdy3sWbThTUHbwlLhc46LgtEWPc=";
        let cases: [(&str, &[u8], &str); 6] = [
            (longest, b"", "v1,tH2kx2pWTC96CZvp4rHnAWOfFuBkQ7VQdDd+WwOaIKc="),
            (longest, &every_byte, "v1,WSfSIlbmGDHLMalY4rN/LE5cJXAzYI04Wle2xarOp2Y="),
            (sevens, b"", "v1,wiD4X0G2EpoBfjvXk/jr0OEsjkrLDWLrh+FerQmPxZ0="),
            (sevens, &every_byte, "v1,ujioQnU0zOIaoW3uen2a+uQ1SIAeMQtCYRFkNDvsM9A="),
            (
                rfc_8032_test_1,
                &every_byte,
                "v1a,czR+YvPFS38tE1Ey5M2EctK42qGiA2hGBIZxEMtcd2Y4jdO25FEAr6xi3CcNHXqqwSKwZLbXrSsibf\
                 50PrW8Cw==",
            ),
            (
                rfc_8032_test_3,
                &every_byte,
                "v1a,B/G9urkZHaZqyY2mPmTVnd3xqFMc1Eau+hCjct6JLGfC7VtTnG+rfDODzFY2C/5QJu0d0Ub2NB6oPp\
                 oaZcb0Dw==",
            ),
        ];
        for (text, body, expected) in cases {
            assert_eq!(sign([&secret(text)], id, unix_seconds, body), expected);
        }
    }

    #[test]
    fn a_body_in_two_parts_has_the_signature_of_the_whole() {
        let secrets = [secret(ASYMMETRIC), secret(SYMMETRIC)];
        let whole = sign(&secrets, ID, UNIX_SECONDS, BODY);
        for at in [0, 7, BODY.len()] {
            let (body, rest) = BODY.split_at(at);
            assert_eq!(sign_parts(&secrets, ID, UNIX_SECONDS, [body, rest]), whole, "{at}");
        }
    }

    #[test]
    fn several_secrets_give_several_signatures_in_their_order() {
        let secrets = [secret(ASYMMETRIC), secret(SYMMETRIC)];
        let header = sign(&secrets, ID, UNIX_SECONDS, BODY);
        assert_eq!(header, format!("{ASYMMETRIC_SIGNED} {SYMMETRIC_SIGNED}"));
        assert_eq!(header.capacity(), 2 * SIGNATURE_CHARS_MAX, "it never had to grow");
        assert_eq!(sign([], ID, UNIX_SECONDS, BODY), "");
    }
}
