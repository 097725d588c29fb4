//! `verify`: is this webhook from Postrider, unchanged and fresh? For receivers.
//!
//! Signatures are those of Standard Webhooks. Give it the raw body: the signature covers its exact
//! bytes, and JSON that was parsed and written again has others.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use sha2::Sha256;
use zeroize::Zeroizing;

/// How far the sender's clock may be from ours.
const TOLERANCE: Duration = Duration::from_secs(300);
/// A longer list of signatures is not one of Postrider.
const SIGNATURES_MAX: usize = 32;

/// Why a webhook is not to be trusted. Holds neither the secret nor the expected signature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerificationError {
    /// A header is missing.
    #[error("the header {0} is missing")]
    MissingHeader(&'static str),
    /// A header is there twice, or cannot be read.
    #[error("the header {0} is malformed")]
    MalformedHeader(&'static str),
    /// It was signed longer ago than the tolerance.
    #[error("the webhook was signed too long ago")]
    TooOld,
    /// It was signed further in the future than the tolerance.
    #[error("the webhook was signed in the future")]
    TooNew,
    /// No known secret has signed it.
    #[error("no signature of the webhook was made with a known secret")]
    NoMatchingSignature,
    /// A secret of the receiver itself cannot be read.
    #[error(transparent)]
    Secret(#[from] VerifierError),
}

impl VerificationError {
    /// The failure as a word that all clients share, such as `too_old`.
    pub fn code(&self) -> &'static str {
        match self {
            VerificationError::MissingHeader(_) => "missing_header",
            VerificationError::MalformedHeader(_) => "malformed_header",
            VerificationError::TooOld => "too_old",
            VerificationError::TooNew => "too_new",
            VerificationError::NoMatchingSignature => "no_matching_signature",
            VerificationError::Secret(_) => "bad_secret",
        }
    }
}

/// Why a secret is of no use to a receiver. The message does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifierError {
    /// A `whsec_` secret of another length, or not in base64.
    #[error("a whsec_ secret holds 24 to 64 bytes, in base64")]
    Symmetric,
    /// A `whpk_` key that is none.
    #[error("a whpk_ key holds the 32 bytes of an ed25519 key, in base64")]
    PublicKey,
    /// A secret that signs.
    #[error("a whsk_ secret signs; a receiver needs the subscription's public_key (whpk_…)")]
    SigningKey,
    /// Anything else.
    #[error("a secret begins with whsec_ (HMAC-SHA256) or whpk_ (ed25519)")]
    Unknown,
}

/// What a verified webhook says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// `webhook-id`: the same for each attempt of a delivery. Use it to recognise a repeat.
    pub id: String,
    /// When this attempt was made.
    pub timestamp: SystemTime,
}

enum Key {
    Symmetric(Zeroizing<Vec<u8>>),
    Public(VerifyingKey),
}

/// The secrets of a receiver, parsed once. Give both while one replaces the other.
pub struct Verifier {
    keys: Vec<Key>,
    tolerance: Duration,
}

impl Verifier {
    /// Parses secrets: `whsec_…`, or a subscription's public key `whpk_…`.
    ///
    /// # Errors
    /// Where one is neither.
    pub fn new<S: AsRef<str>>(
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<Verifier, VerifierError> {
        let keys =
            secrets.into_iter().map(|secret| parse(secret.as_ref())).collect::<Result<_, _>>();
        Ok(Verifier { keys: keys?, tolerance: TOLERANCE })
    }

    /// Accepts a clock that is off by so much, instead of 300 s.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Verifier {
        self.tolerance = tolerance;
        self
    }

    /// Whether one of the secrets has signed exactly this body at about the present time.
    ///
    /// # Errors
    /// Where the webhook is not to be trusted.
    #[expect(clippy::disallowed_methods, reason = "a receiver compares with its machine's clock")]
    pub fn verify(&self, body: &[u8], headers: &HeaderMap) -> Result<Verified, VerificationError> {
        self.verify_at(body, headers, SystemTime::now())
    }

    /// The same at another time, for tests of a receiver.
    ///
    /// # Errors
    /// Where the webhook is not to be trusted.
    pub fn verify_at(
        &self,
        body: &[u8],
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<Verified, VerificationError> {
        let id = header(headers, "webhook-id")?;
        let timestamp = header(headers, "webhook-timestamp")?;
        let signatures = header(headers, "webhook-signature")?;
        // With a dot in the id, the same signed text could be read as another id, time and body.
        if !id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.') {
            return Err(VerificationError::MalformedHeader("webhook-id"));
        }
        let sent = self.check_time(timestamp, now)?;
        let list: Vec<&str> = signatures.split(' ').collect();
        let is_signature =
            |one: &&str| one.contains(',') && one.bytes().all(|b| b.is_ascii_graphic());
        if list.len() > SIGNATURES_MAX || !list.iter().all(is_signature) {
            return Err(VerificationError::MalformedHeader("webhook-signature"));
        }
        let head = format!("{id}.{timestamp}.");
        let parts = [head.as_bytes(), body];
        match self.keys.iter().any(|key| list.iter().any(|one| key.has_made(one, parts))) {
            true => Ok(Verified { id: id.to_owned(), timestamp: sent }),
            false => Err(VerificationError::NoMatchingSignature),
        }
    }

    fn check_time(&self, text: &str, now: SystemTime) -> Result<SystemTime, VerificationError> {
        let malformed = VerificationError::MalformedHeader("webhook-timestamp");
        if text.len() > 15 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(malformed);
        }
        let sent: u64 = text.parse().map_err(|_| malformed.clone())?;
        // Whole seconds are compared, as the header has them.
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let tolerance = self.tolerance.as_secs();
        if now.saturating_sub(sent) > tolerance {
            return Err(VerificationError::TooOld);
        }
        if sent.saturating_sub(now) > tolerance {
            return Err(VerificationError::TooNew);
        }
        UNIX_EPOCH.checked_add(Duration::from_secs(sent)).ok_or(malformed)
    }
}

/// Whether one of the secrets (`whsec_…`, or `whpk_…` for ed25519) has signed exactly this body at
/// about the present time. For many webhooks, keep a [`Verifier`].
///
/// # Errors
/// Where the webhook is not to be trusted, or a secret cannot be read.
pub fn verify<S: AsRef<str>>(
    body: &[u8],
    headers: &HeaderMap,
    secrets: impl IntoIterator<Item = S>,
) -> Result<Verified, VerificationError> {
    Verifier::new(secrets)?.verify(body, headers)
}

impl Key {
    /// Whether this key has made this signature, such as `v1,…`, of the parts together.
    fn has_made(&self, signature: &str, parts: [&[u8]; 2]) -> bool {
        match self {
            Key::Symmetric(secret) => {
                let Some(given) = signature.strip_prefix("v1,").and_then(canonical) else {
                    return false;
                };
                let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
                parts.iter().for_each(|part| mac.update(part));
                // Compares in constant time, and the whole length only.
                mac.verify_slice(&given).is_ok()
            }
            Key::Public(key) => {
                let given = signature.strip_prefix("v1a,").and_then(canonical);
                let Some(given) = given.and_then(|bytes| Signature::from_slice(&bytes).ok()) else {
                    return false;
                };
                key.verify_strict(&parts.concat(), &given).is_ok()
            }
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<&'a str, VerificationError> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(VerificationError::MissingHeader(name))?;
    if values.next().is_some() {
        return Err(VerificationError::MalformedHeader(name));
    }
    match value.to_str() {
        Ok("") => Err(VerificationError::MissingHeader(name)),
        Ok(text) => Ok(text),
        Err(_) => Err(VerificationError::MalformedHeader(name)),
    }
}

fn parse(secret: &str) -> Result<Key, VerifierError> {
    let text = secret.trim();
    if let Some(rest) = text.strip_prefix("whsec_") {
        let bytes = Zeroizing::new(padded(rest).ok_or(VerifierError::Symmetric)?);
        return match bytes.len() {
            24..=64 => Ok(Key::Symmetric(bytes)),
            _ => Err(VerifierError::Symmetric),
        };
    }
    if let Some(rest) = text.strip_prefix("whpk_") {
        let bytes = padded(rest).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok());
        return key.map(Key::Public).ok_or(VerifierError::PublicKey);
    }
    match text.starts_with("whsk_") {
        true => Err(VerifierError::SigningKey),
        false => Err(VerifierError::Unknown),
    }
}

/// The bytes of canonical base64 with its padding.
fn canonical(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The same where people left out the padding when they copied a secret.
fn padded(text: &str) -> Option<Vec<u8>> {
    let bare = text.trim_end_matches('=');
    let padding = "=".repeat(bare.len().next_multiple_of(4) - bare.len());
    canonical(&Zeroizing::new(format!("{bare}{padding}")))
}
