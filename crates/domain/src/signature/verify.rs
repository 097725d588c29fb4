//! Verifies a signed message, as a receiver does: authentic, complete and recent.
//!
//! A message passes only if a signature in its header, of exactly the right length and version, is
//! the one that a known key makes of `id.timestamp.body`. HMAC signatures are compared in constant
//! time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::VerifyingKey;
use ed25519_dalek::ed25519::Signature;
use ed25519_dalek::ed25519::signature::MultipartVerifier as _;
use subtle::{Choice, ConstantTimeEq as _};

use super::secret::{InvalidSecret, Key, PUBLIC_PREFIX, SigningSecret, parse_public};
use super::{
    ASYMMETRIC_VERSION, ID_HEADER, SIGNATURE_HEADER, SYMMETRIC_VERSION, TIMESTAMP_HEADER, hmac,
};
use crate::limits;
use crate::time::Timestamp;

/// The default for how far the sender's clock may differ from ours, in either direction.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// A key to verify with: `whsec_…`, `whsk_…`, or `whpk_…`. The last is all that a receiver of
/// ed25519 signatures needs.
#[derive(Clone)]
pub struct VerifyKey(Kind);

#[derive(Clone)]
enum Kind {
    Secret(SigningSecret),
    Public(VerifyingKey),
}

impl FromStr for VerifyKey {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        let kind = match text.strip_prefix(PUBLIC_PREFIX) {
            Some(base64) => Kind::Public(parse_public(base64)?),
            None => Kind::Secret(text.parse()?),
        };
        Ok(VerifyKey(kind))
    }
}

impl From<&SigningSecret> for VerifyKey {
    fn from(secret: &SigningSecret) -> Self {
        VerifyKey(Kind::Secret(secret.clone()))
    }
}

impl fmt::Debug for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Secret(secret) => write!(f, "VerifyKey({secret:?})"),
            Kind::Public(_) => f.write_str("VerifyKey(whpk_…)"),
        }
    }
}

/// The three headers as received; `None` for a missing one.
#[derive(Debug, Clone, Copy)]
pub struct SignedHeaders<'a> {
    /// `webhook-id`
    pub id: Option<&'a str>,
    /// `webhook-timestamp`
    pub timestamp: Option<&'a str>,
    /// `webhook-signature`
    pub signature: Option<&'a str>,
}

/// Why a message is not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// A required header is missing or empty.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// A header is malformed.
    #[error("the header {0} is garbled")]
    Garbled(&'static str),
    /// Signed too long ago: it may be a replayed message.
    #[error("the message is too old")]
    TooOld,
    /// Signed in the future.
    #[error("the message is too new: the sender's clock is ahead of ours")]
    TooNew,
    /// No signature in the header is valid for a known key and this message.
    #[error("no signature matches")]
    NoMatch,
}

/// Verifies a message with every key; one valid signature is enough. Signatures of unknown versions
/// are ignored, as the specification requires.
pub fn verify<'k>(
    keys: impl IntoIterator<Item = &'k VerifyKey>,
    headers: SignedHeaders<'_>,
    body: &[u8],
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), Unverified> {
    let id = present(headers.id, ID_HEADER)?;
    let timestamp = present(headers.timestamp, TIMESTAMP_HEADER)?;
    let signatures = present(headers.signature, SIGNATURE_HEADER)?;
    // With a dot in the id, the same signed text could be split into another id, time and body.
    if !id.bytes().all(|b| b.is_ascii_graphic() && b != b'.') {
        return Err(Unverified::Garbled(ID_HEADER));
    }
    check_time(timestamp, now, tolerance)?;
    check_list(signatures)?;

    let head = format!("{id}.{timestamp}.");
    let mut matches = Choice::from(0);
    for VerifyKey(key) in keys {
        matches |= match key {
            Kind::Public(key) => asymmetric(key, &head, body, signatures),
            Kind::Secret(secret) => match secret.key() {
                Key::Asymmetric(key) => asymmetric(&key.verifying_key(), &head, body, signatures),
                Key::Symmetric { schedule, .. } => {
                    let expected = hmac(schedule, &[head.as_bytes(), body]);
                    decoded::<32>(signatures, SYMMETRIC_VERSION)
                        .fold(Choice::from(0), |found, given| found | given.ct_eq(&expected))
                }
            },
        };
    }
    if matches.into() { Ok(()) } else { Err(Unverified::NoMatch) }
}

/// A header's value, unless it is missing or empty.
fn present<'a>(value: Option<&'a str>, name: &'static str) -> Result<&'a str, Unverified> {
    value.filter(|value| !value.is_empty()).ok_or(Unverified::Missing(name))
}

/// Checks that the timestamp consists of digits and is within the tolerance.
fn check_time(timestamp: &str, now: Timestamp, tolerance: Duration) -> Result<(), Unverified> {
    let garbled = Unverified::Garbled(TIMESTAMP_HEADER);
    if !timestamp.bytes().all(|b| b.is_ascii_digit()) {
        return Err(garbled);
    }
    let sent: i64 = timestamp.parse().map_err(|_| garbled)?;
    let now = now.as_unix_seconds();
    let tolerance = i64::try_from(tolerance.as_secs()).unwrap_or(i64::MAX);
    if now.saturating_sub(sent) > tolerance {
        Err(Unverified::TooOld)
    } else if sent.saturating_sub(now) > tolerance {
        Err(Unverified::TooNew)
    } else {
        Ok(())
    }
}

/// Checks that the list consists of visible texts with a comma each, joined by single spaces, and
/// not too many.
fn check_list(signatures: &str) -> Result<(), Unverified> {
    let is_signature =
        |one: &str| one.contains(',') && one.bytes().all(|byte| byte.is_ascii_graphic());
    let is_list = signatures.split(' ').all(is_signature)
        && signatures.split(' ').count() <= limits::SIGNATURES_MAX;
    if is_list { Ok(()) } else { Err(Unverified::Garbled(SIGNATURE_HEADER)) }
}

/// The signatures of one version that have exactly `N` bytes, in canonical base64.
fn decoded<const N: usize>(
    signatures: &str,
    version: &'static str,
) -> impl Iterator<Item = [u8; N]> {
    signatures.split(' ').filter_map(move |one| {
        let base64 = one.strip_prefix(version)?;
        let mut bytes = [0; N];
        // Refuses input that is too long, missing padding, and non-zero trailing bits.
        let length = STANDARD.decode_slice(base64, &mut bytes).ok()?;
        (length == N).then_some(bytes)
    })
}

fn asymmetric(key: &VerifyingKey, head: &str, body: &[u8], signatures: &str) -> Choice {
    let message = [head.as_bytes(), body];
    let found = decoded::<64>(signatures, ASYMMETRIC_VERSION)
        .any(|bytes| key.multipart_verify(&message, &Signature::from_bytes(&bytes)).is_ok());
    Choice::from(u8::from(found))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signature::sign;

    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SENT: &str = "1614265330";
    const NOW: Timestamp = Timestamp::from_unix_ms(1_614_265_330_999);
    const BODY: &[u8] = b"{\"test\": 2432232314}";
    const SYMMETRIC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const V1: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const ASYMMETRIC: &str = "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=";
    const PUBLIC: &str = "whpk_ZlN4eg7dSSqi0moX9hQUk3orrOouK3QVQSlJa248c/g=";
    const V1A: &str = "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaB\
                       RdM5WqyeFiL8Ag==";
    const OTHER: &str = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc=";

    fn keys() -> [VerifyKey; 2] {
        [SYMMETRIC.parse().unwrap(), PUBLIC.parse().unwrap()]
    }

    fn headers<'a>(id: &'a str, timestamp: &'a str, signature: &'a str) -> SignedHeaders<'a> {
        SignedHeaders { id: Some(id), timestamp: Some(timestamp), signature: Some(signature) }
    }

    fn check(headers: SignedHeaders<'_>, expected: Result<(), Unverified>) {
        assert_eq!(verify(&keys(), headers, BODY, NOW, TOLERANCE), expected, "{headers:?}");
    }

    #[test]
    fn one_good_signature_among_many_is_enough() {
        let v2 = OTHER.replace("v1,", "v2,");
        for header in [
            V1.to_owned(),
            V1A.to_owned(),
            format!("{V1A} {V1}"),
            format!("{OTHER} {v2} {V1} {OTHER}"),
            format!("{OTHER} v1, v1a, {V1A}"),
            [OTHER; 31].join(" ") + " " + V1,
        ] {
            check(headers(ID, SENT, &header), Ok(()));
        }
    }

    #[test]
    fn each_kind_of_key_verifies_its_own_kind_of_signature_only() {
        for (key, header, expected) in [
            (SYMMETRIC, V1, Ok(())),
            (SYMMETRIC, V1A, Err(Unverified::NoMatch)),
            (ASYMMETRIC, V1A, Ok(())),
            (ASYMMETRIC, V1, Err(Unverified::NoMatch)),
            (PUBLIC, V1A, Ok(())),
            (PUBLIC, V1, Err(Unverified::NoMatch)),
        ] {
            let key: VerifyKey = key.parse().unwrap();
            let verdict = verify([&key], headers(ID, SENT, header), BODY, NOW, TOLERANCE);
            assert_eq!(verdict, expected, "{key:?} {header}");
        }
        let no_keys = verify([], headers(ID, SENT, V1), BODY, NOW, TOLERANCE);
        assert_eq!(no_keys, Err(Unverified::NoMatch));
    }

    #[test]
    fn empty_truncated_overlong_and_mislabelled_signatures_do_not_match() {
        let bare = V1.strip_prefix("v1,").unwrap();
        let bare_a = V1A.strip_prefix("v1a,").unwrap();
        for header in [
            "v1,",
            "v1a,",
            "v1,=",
            ",",
            &V1[..V1.len() - 1],
            &V1[..V1.len() - 2],
            &V1[..7],
            &format!("{V1}="),
            &format!("{V1}AAAA"),
            &format!("{V1},"),
            &format!("{V1},{V1}"),
            &format!("v1,{V1}"),
            &format!("v1,{bare}{bare}"),
            &format!("v1,AAAA{bare}"),
            &format!("v2,{bare}"),
            &format!("V1,{bare}"),
            &format!("v01,{bare}"),
            &format!("v1a,{bare}"),
            &format!("v1,{bare_a}"),
            &format!(",{bare}"),
            &V1A[..V1A.len() - 2],
            &format!("{V1A}AAAA"),
            // The last character differs only in bits that base64 ignores.
            &V1.replace("1OE=", "1OF="),
            &V1.replace('+', "-").replace('/', "_"),
        ] {
            check(headers(ID, SENT, header), Err(Unverified::NoMatch));
        }
    }

    #[test]
    fn games_with_white_space_are_refused() {
        let garbled = Err(Unverified::Garbled(SIGNATURE_HEADER));
        for header in [
            " ",
            &format!(" {V1}"),
            &format!("{V1} "),
            &format!("{V1}  {V1A}"),
            &format!("{V1}\t{V1A}"),
            &format!("{V1}\n"),
            &format!("v1, \t{V1}"),
            &format!("{V1}\u{a0}{V1A}"),
            &format!("{V1} no-comma"),
            &[OTHER; 33].join(" "),
        ] {
            check(headers(ID, SENT, header), garbled);
        }
        // A space splits the signature in two, and neither part is valid.
        check(headers(ID, SENT, &V1.replace("v1,", "v1, ,")), Err(Unverified::NoMatch));
        for id in [&format!(" {ID}"), &format!("{ID} "), "a\tb", "ä", "msg_1.1614265330", "."] {
            check(headers(id, SENT, V1), Err(Unverified::Garbled(ID_HEADER)));
        }
        for sent in [
            " 1614265330",
            "1614265330 ",
            "+1614265330",
            "-1614265330",
            "1614265330.0",
            "0x60378d32",
            "soon",
            "99999999999999999999",
            "١٦١٤٢٦٥٣٣٠",
        ] {
            check(headers(ID, sent, V1), Err(Unverified::Garbled(TIMESTAMP_HEADER)));
        }
        // Another spelling of the same number is another text, for which there is no signature.
        check(headers(ID, "01614265330", V1), Err(Unverified::NoMatch));
    }

    #[test]
    fn a_boundary_moved_between_id_time_and_body_is_refused() {
        // Signed as id `msg_1`, time 1, body `1614265330.{}`: the same text, split elsewhere.
        let secret: SigningSecret = SYMMETRIC.parse().unwrap();
        let header = sign([&secret], "msg_1", 1, b"1614265330.{}");
        let moved = headers("msg_1.1", SENT, &header);
        let verdict = verify(&keys(), moved, b"{}", NOW, TOLERANCE);
        assert_eq!(verdict, Err(Unverified::Garbled(ID_HEADER)));
    }

    #[test]
    fn every_header_is_needed() {
        let whole = headers(ID, SENT, V1);
        for (name, lacking) in [
            (ID_HEADER, SignedHeaders { id: None, ..whole }),
            (ID_HEADER, SignedHeaders { id: Some(""), ..whole }),
            (TIMESTAMP_HEADER, SignedHeaders { timestamp: None, ..whole }),
            (TIMESTAMP_HEADER, SignedHeaders { timestamp: Some(""), ..whole }),
            (SIGNATURE_HEADER, SignedHeaders { signature: None, ..whole }),
            (SIGNATURE_HEADER, SignedHeaders { signature: Some(""), ..whole }),
        ] {
            check(lacking, Err(Unverified::Missing(name)));
            assert!(Unverified::Missing(name).to_string().contains(name));
        }
    }

    #[test]
    fn time_may_differ_by_the_tolerance_and_no_more() {
        let sent = 1_614_265_330;
        for (now, expected) in [
            (sent, Ok(())),
            (sent + 300, Ok(())),
            (sent + 301, Err(Unverified::TooOld)),
            (sent - 300, Ok(())),
            (sent - 301, Err(Unverified::TooNew)),
            (i64::MAX / 1000, Err(Unverified::TooOld)),
            (i64::MIN / 1000, Err(Unverified::TooNew)),
        ] {
            let now = Timestamp::from_unix_ms(now * 1000);
            let verdict = verify(&keys(), headers(ID, SENT, V1), BODY, now, TOLERANCE);
            assert_eq!(verdict, expected, "{now}");
        }
        let forever = Duration::from_secs(u64::MAX);
        let verdict = verify(&keys(), headers(ID, SENT, V1), BODY, Timestamp::MAX, forever);
        assert_eq!(verdict, Ok(()));
    }

    #[test]
    fn debug_never_shows_a_key() {
        let shown = format!("{:?}", [keys(), [ASYMMETRIC.parse().unwrap(), keys()[0].clone()]]);
        assert!(!shown.contains("MfKQ") && !shown.contains("VEVT"), "{shown}");
        assert!(shown.contains("VerifyKey(SigningSecret(whsec_****))"));
        assert!(shown.contains("VerifyKey(whpk_…)"));
        assert_eq!("whpk_".parse::<VerifyKey>().unwrap_err(), InvalidSecret::PublicLength);
        assert_eq!("secret".parse::<VerifyKey>().unwrap_err(), InvalidSecret::Prefix);
    }

    fn any_secret() -> impl Strategy<Value = SigningSecret> {
        let symmetric = prop::collection::vec(any::<u8>(), 24..=64)
            .prop_map(|key| format!("whsec_{}", STANDARD.encode(key)).parse().unwrap());
        let asymmetric = any::<[u8; 32]>().prop_map(SigningSecret::generate_asymmetric);
        prop_oneof![symmetric, asymmetric]
    }

    /// The key that a receiver has: the public key, if there is one.
    fn receiver_key(secret: &SigningSecret) -> VerifyKey {
        secret.public_key().map_or_else(|| secret.into(), |public| public.parse().unwrap())
    }

    fn with_bit_flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let at = bit % (bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
        bytes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn signed_message_verifies_and_no_other_does(
            secrets in prop::collection::vec(any_secret(), 1..4),
            other in any_secret(),
            id in "[!-\\-/-~]{1,40}",
            unix_seconds in 0..4_000_000_000i64,
            body in prop::collection::vec(any::<u8>(), 1..300),
            bit in any::<usize>(),
        ) {
            let now = Timestamp::from_unix_ms(unix_seconds * 1000);
            let sent = unix_seconds.to_string();
            let header = sign(&secrets, &id, unix_seconds, &body);
            let keys: Vec<_> = secrets.iter().map(receiver_key).collect();
            let check = |id: &str, sent: &str, body: &[u8], header: &str| {
                // The time does not matter in this test.
                let tolerance = Duration::from_secs(u64::MAX);
                verify(&keys, headers(id, sent, header), body, now, tolerance)
            };
            for key in &keys {
                let verdict = verify([key], headers(&id, &sent, &header), &body, now, TOLERANCE);
                prop_assert_eq!(verdict, Ok(()));
            }
            let strangers = [receiver_key(&other)];
            let verdict = verify(&strangers, headers(&id, &sent, &header), &body, now, TOLERANCE);
            prop_assert_eq!(verdict, Err(Unverified::NoMatch));

            let body_flipped = with_bit_flipped(&body, bit);
            prop_assert_eq!(check(&id, &sent, &body_flipped, &header), Err(Unverified::NoMatch));
            prop_assert_eq!(check(&id, &sent, &body[1..], &header), Err(Unverified::NoMatch));
            let id_flipped = with_bit_flipped(id.as_bytes(), bit);
            let id_flipped = String::from_utf8_lossy(&id_flipped);
            prop_assert!(check(&id_flipped, &sent, &body, &header).is_err());
            let sent_flipped = with_bit_flipped(sent.as_bytes(), bit);
            let sent_flipped = String::from_utf8_lossy(&sent_flipped);
            prop_assert!(check(&id, &sent_flipped, &body, &header).is_err());
            for one in header.split(' ') {
                let flipped = with_bit_flipped(one.as_bytes(), bit);
                let flipped = String::from_utf8_lossy(&flipped);
                prop_assert!(check(&id, &sent, &body, &flipped).is_err(), "{flipped}");
                // Flip a bit of the signature itself, not of its base64.
                let (version, base64) = one.split_once(',').unwrap();
                let flipped = with_bit_flipped(&STANDARD.decode(base64).unwrap(), bit);
                let flipped = format!("{version},{}", STANDARD.encode(flipped));
                prop_assert_eq!(check(&id, &sent, &body, &flipped), Err(Unverified::NoMatch));
            }
        }

        #[test]
        fn random_headers_never_panic_and_never_verify(
            id in any::<String>(),
            sent in prop_oneof![any::<String>(), "[0-9]{1,25}"],
            header in prop_oneof![any::<String>(), "(v1a?,[A-Za-z0-9+/=]{0,90} ?){0,5}"],
            now in any::<i64>(),
        ) {
            let now = Timestamp::from_unix_ms(now);
            for headers in [headers(&id, &sent, &header), headers(ID, SENT, &header)] {
                prop_assert!(verify(&keys(), headers, BODY, now, TOLERANCE).is_err());
                prop_assert!(verify(&keys(), headers, BODY, NOW, TOLERANCE).is_err());
            }
        }
    }
}
