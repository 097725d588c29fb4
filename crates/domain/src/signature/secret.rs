//! A signing secret: its text form, and the key state that is computed from it once.
//!
//! Only [`SigningSecret::expose`] returns the secret. No error, `Debug` output or comparison
//! reveals anything of it, and its memory is overwritten when the last clone is dropped.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ed25519_dalek::{SigningKey, VerifyingKey};
use hmac::{Hmac, KeyInit as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

pub(super) const SYMMETRIC_PREFIX: &str = "whsec_";
pub(super) const ASYMMETRIC_PREFIX: &str = "whsk_";
pub(super) const PUBLIC_PREFIX: &str = "whpk_";

/// The shortest and the longest HMAC key, in bytes.
const SYMMETRIC_BYTES_MIN: usize = 24;
const SYMMETRIC_BYTES_MAX: usize = 64;

/// Standard base64 whose padding may be left out, as people often do when they copy a secret.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A secret to sign with: `whsec_…` (HMAC-SHA256) or `whsk_…` (ed25519).
///
/// A clone is cheap and shares the key state; moving it copies no secret bytes.
#[derive(Clone)]
pub struct SigningSecret(Arc<Key>);

/// The precomputed key state.
pub(super) enum Key {
    /// HMAC-SHA256. `schedule` is the state after the key; it is cloned for each message.
    Symmetric { bytes: Zeroizing<Vec<u8>>, schedule: Hmac<Sha256> },
    /// ed25519, with its public key.
    Asymmetric(SigningKey),
}

/// Why a text is not a key. Never contains any of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// An unknown prefix.
    #[error("a signing secret begins with whsec_ (HMAC-SHA256) or whsk_ (ed25519)")]
    Prefix,
    /// A public key where the secret key is needed.
    #[error("a whpk_ key is public and can only verify; to sign, give the whsk_ one")]
    Public,
    /// Not base64 after the prefix.
    #[error("what follows the prefix is not standard base64")]
    Encoding,
    /// An HMAC key that is too short or too long.
    #[error(
        "a whsec_ secret holds {SYMMETRIC_BYTES_MIN} to {SYMMETRIC_BYTES_MAX} bytes, in base64"
    )]
    SymmetricLength,
    /// An ed25519 secret of another size.
    #[error(
        "a whsk_ secret holds 32 bytes (the seed) or 64 (the seed and the public key), in base64"
    )]
    AsymmetricLength,
    /// The second half of a 64-byte secret is not the public key of the first.
    #[error("the public key in this whsk_ secret does not belong to its seed")]
    MismatchedHalves,
    /// An ed25519 public key of another size.
    #[error("a whpk_ key holds 32 bytes, in base64")]
    PublicLength,
    /// Not a point of the curve, or a weak one for which anybody can make signatures.
    #[error("this whpk_ key is not a usable ed25519 public key")]
    PublicKey,
}

impl SigningSecret {
    /// A new HMAC-SHA256 secret, from random bytes.
    pub fn generate_symmetric(random: [u8; 32]) -> Self {
        let random = Zeroizing::new(random);
        SigningSecret::symmetric(random.as_slice())
    }

    /// A new ed25519 secret, from random bytes.
    pub fn generate_asymmetric(seed: [u8; 32]) -> Self {
        let seed = Zeroizing::new(seed);
        SigningSecret(Arc::new(Key::Asymmetric(SigningKey::from_bytes(&seed))))
    }

    /// The secret as text, to be shown once and to be encrypted by a store. An ed25519 secret is
    /// shown as its seed, whichever form was given.
    pub fn expose(&self) -> Zeroizing<String> {
        let (prefix, bytes) = match &*self.0 {
            Key::Symmetric { bytes, .. } => (SYMMETRIC_PREFIX, bytes.as_slice()),
            Key::Asymmetric(key) => (ASYMMETRIC_PREFIX, key.as_bytes().as_slice()),
        };
        // Allocate enough at once: a string that grows leaves its old bytes in freed memory.
        let mut text = Zeroizing::new(String::with_capacity(128));
        text.push_str(prefix);
        STANDARD.encode_string(bytes, &mut text);
        text
    }

    /// The public key (`whpk_…`) that verifies the signatures of an ed25519 secret; `None` for
    /// HMAC.
    pub fn public_key(&self) -> Option<String> {
        match &*self.0 {
            Key::Symmetric { .. } => None,
            Key::Asymmetric(key) => {
                let mut text = PUBLIC_PREFIX.to_owned();
                STANDARD.encode_string(key.verifying_key().as_bytes(), &mut text);
                Some(text)
            }
        }
    }

    pub(super) fn key(&self) -> &Key {
        &self.0
    }

    fn symmetric(bytes: &[u8]) -> Self {
        let schedule = Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length");
        let bytes = Zeroizing::new(bytes.to_vec());
        SigningSecret(Arc::new(Key::Symmetric { bytes, schedule }))
    }

    fn parse_symmetric(base64: &str) -> Result<Self, InvalidSecret> {
        let bytes = decode(base64, InvalidSecret::SymmetricLength)?;
        if (SYMMETRIC_BYTES_MIN..=SYMMETRIC_BYTES_MAX).contains(&bytes.len()) {
            Ok(SigningSecret::symmetric(&bytes))
        } else {
            Err(InvalidSecret::SymmetricLength)
        }
    }

    fn parse_asymmetric(base64: &str) -> Result<Self, InvalidSecret> {
        let bytes = decode(base64, InvalidSecret::AsymmetricLength)?;
        let (seed, public) =
            bytes.split_first_chunk::<32>().ok_or(InvalidSecret::AsymmetricLength)?;
        let key = SigningKey::from_bytes(seed);
        match public.len() {
            0 => {}
            32 if key.verifying_key().as_bytes() == public => {}
            32 => return Err(InvalidSecret::MismatchedHalves),
            _ => return Err(InvalidSecret::AsymmetricLength),
        }
        Ok(SigningSecret(Arc::new(Key::Asymmetric(key))))
    }
}

impl FromStr for SigningSecret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        if let Some(base64) = text.strip_prefix(SYMMETRIC_PREFIX) {
            SigningSecret::parse_symmetric(base64)
        } else if let Some(base64) = text.strip_prefix(ASYMMETRIC_PREFIX) {
            SigningSecret::parse_asymmetric(base64)
        } else if text.starts_with(PUBLIC_PREFIX) {
            Err(InvalidSecret::Public)
        } else {
            Err(InvalidSecret::Prefix)
        }
    }
}

impl PartialEq for SigningSecret {
    fn eq(&self, other: &Self) -> bool {
        match (&*self.0, &*other.0) {
            (Key::Symmetric { bytes: a, .. }, Key::Symmetric { bytes: b, .. }) => {
                a.as_slice().ct_eq(b.as_slice()).into()
            }
            (Key::Asymmetric(a), Key::Asymmetric(b)) => a == b,
            (Key::Symmetric { .. }, Key::Asymmetric(_))
            | (Key::Asymmetric(_), Key::Symmetric { .. }) => false,
        }
    }
}

impl Eq for SigningSecret {}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Key::Symmetric { .. } => "SigningSecret(whsec_****)",
            Key::Asymmetric(_) => "SigningSecret(whsk_****)",
        })
    }
}

/// Parses a `whpk_` key without its prefix.
pub(super) fn parse_public(base64: &str) -> Result<VerifyingKey, InvalidSecret> {
    let bytes = decode(base64, InvalidSecret::PublicLength)?;
    let bytes = bytes.as_slice().try_into().map_err(|_| InvalidSecret::PublicLength)?;
    let key = VerifyingKey::from_bytes(bytes).map_err(|_| InvalidSecret::PublicKey)?;
    // For a point of small order anybody can compute valid signatures.
    if key.is_weak() { Err(InvalidSecret::PublicKey) } else { Ok(key) }
}

/// Decodes at most 66 bytes; longer input is the error `too_long`.
fn decode(base64: &str, too_long: InvalidSecret) -> Result<Zeroizing<Vec<u8>>, InvalidSecret> {
    const BYTES_MAX: usize = 66;
    const TEXT_MAX: usize = BYTES_MAX / 3 * 4;
    if base64.len() > TEXT_MAX {
        return Err(too_long);
    }
    let mut bytes = Zeroizing::new(vec![0; BYTES_MAX]);
    let length = LENIENT.decode_slice(base64, &mut bytes).map_err(|_| InvalidSecret::Encoding)?;
    bytes[length..].zeroize();
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::Verifier as _;
    use ed25519_dalek::ed25519::signature::MultipartSigner as _;

    use super::*;

    const SYMMETRIC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    // Seed and public key of RFC 8032, section 7.1, test 1.
    const SEED: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=";
    const PAIR: &str = "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2DXWpgBgrEKt9VL/tPJZAc6DuFy\
                        89qmIyWvAhpo9wdRGg==";
    const PUBLIC: &str = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";

    fn whsec(bytes: usize) -> String {
        format!("whsec_{}", STANDARD.encode(vec![0xa5; bytes]))
    }

    fn whsk(bytes: usize) -> String {
        format!("whsk_{}", STANDARD.encode(vec![0xa5; bytes]))
    }

    #[test]
    fn a_secret_is_shown_as_it_was_given() {
        for text in [SYMMETRIC, SEED, &whsec(24), &whsec(32), &whsec(64)] {
            let secret: SigningSecret = text.parse().unwrap();
            assert_eq!(secret.expose().as_str(), text);
            assert!(secret.expose().capacity() == 128, "it never had to grow");
            let unpadded = text.trim_end_matches('=');
            assert_eq!(unpadded.parse::<SigningSecret>().unwrap(), secret);
        }
    }

    #[test]
    fn both_forms_of_an_ed25519_secret_are_the_same_secret() {
        let (seed, pair): (SigningSecret, SigningSecret) =
            (SEED.parse().unwrap(), PAIR.parse().unwrap());
        assert_eq!(seed, pair);
        assert_eq!(pair.expose().as_str(), SEED);
        assert_eq!(pair.public_key().as_deref(), Some(PUBLIC));
        assert!(SYMMETRIC.parse::<SigningSecret>().unwrap().public_key().is_none());
    }

    #[test]
    fn errors_contain_nothing_of_the_secret() {
        let mismatched = PAIR.replace("9wdRGg==", "9wdRGw==");
        let cases = [
            ("", InvalidSecret::Prefix),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", InvalidSecret::Prefix),
            (" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", InvalidSecret::Prefix),
            ("WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", InvalidSecret::Prefix),
            (PUBLIC, InvalidSecret::Public),
            ("whsec_", InvalidSecret::SymmetricLength),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw ", InvalidSecret::Encoding),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", InvalidSecret::Encoding),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS-", InvalidSecret::Encoding),
            ("whsec_ä", InvalidSecret::Encoding),
            (&whsec(23), InvalidSecret::SymmetricLength),
            (&whsec(65), InvalidSecret::SymmetricLength),
            (&whsec(5000), InvalidSecret::SymmetricLength),
            ("whsk_", InvalidSecret::AsymmetricLength),
            (&whsk(31), InvalidSecret::AsymmetricLength),
            (&whsk(33), InvalidSecret::AsymmetricLength),
            (&whsk(63), InvalidSecret::AsymmetricLength),
            (&whsk(65), InvalidSecret::AsymmetricLength),
            (&whsk(67), InvalidSecret::AsymmetricLength),
            (&whsk(64), InvalidSecret::MismatchedHalves),
            (&mismatched, InvalidSecret::MismatchedHalves),
            ("whsk_!", InvalidSecret::Encoding),
        ];
        for (text, expected) in cases {
            let error = text.parse::<SigningSecret>().unwrap_err();
            assert_eq!(error, expected, "{text}");
            let said = format!("{error} {error:?}");
            let tail = text.get(text.len().saturating_sub(8)..).unwrap_or(text);
            assert!(tail.len() < 8 || !said.contains(tail), "{said}");
        }
    }

    #[test]
    fn public_keys_must_be_usable() {
        let parse = |text: &str| parse_public(text.strip_prefix(PUBLIC_PREFIX).unwrap());
        assert_eq!(
            parse(PUBLIC).unwrap().as_bytes(),
            SEED.parse::<SigningSecret>().unwrap().verifying().as_bytes()
        );
        let encoded = |bytes: &[u8]| format!("whpk_{}", STANDARD.encode(bytes));
        let mut identity = [0; 32];
        identity[0] = 1;
        let mut no_point = [0; 32];
        no_point[0] = 2;
        for (text, expected) in [
            (encoded(&identity), InvalidSecret::PublicKey),
            (encoded(&[0; 32]), InvalidSecret::PublicKey),
            (encoded(&no_point), InvalidSecret::PublicKey),
            (encoded(&[7; 31]), InvalidSecret::PublicLength),
            (encoded(&[7; 33]), InvalidSecret::PublicLength),
            (encoded(&[7; 99]), InvalidSecret::PublicLength),
            ("whpk_*".to_owned(), InvalidSecret::Encoding),
        ] {
            assert_eq!(parse(&text).unwrap_err(), expected, "{text}");
        }
    }

    impl SigningSecret {
        fn verifying(&self) -> VerifyingKey {
            match self.key() {
                Key::Symmetric { .. } => panic!("no public half"),
                Key::Asymmetric(key) => key.verifying_key(),
            }
        }
    }

    #[test]
    fn ed25519_agrees_with_rfc_8032() {
        // Section 7.1, tests 1 to 3: seed, message, signature.
        let cases = [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "",
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc6\
                 1e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e45\
                 8f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
            (
                "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
                "af82",
                "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae\
                 67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
            ),
        ];
        for (seed, message, expected) in cases {
            let secret = SigningSecret::generate_asymmetric(unhex(seed).try_into().unwrap());
            let Key::Asymmetric(key) = secret.key() else { panic!("an ed25519 secret") };
            let message = unhex(message);
            let signature = key.multipart_sign(&[&message]);
            assert_eq!(signature.to_bytes().as_slice(), unhex(expected));
            assert!(secret.verifying().verify(&message, &signature).is_ok());
        }
    }

    fn unhex(text: &str) -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(pair).collect()
    }

    #[test]
    fn generated_secrets_are_what_they_were_made_from() {
        let symmetric = SigningSecret::generate_symmetric([7; 32]);
        let text = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        assert_eq!(symmetric.expose().as_str(), text);
        let asymmetric = SigningSecret::generate_asymmetric([7; 32]);
        assert_eq!(asymmetric.expose().as_str(), text.replace("whsec_", "whsk_"));
        assert_ne!(symmetric, asymmetric);
        assert_ne!(asymmetric, symmetric);
        assert_ne!(symmetric, SigningSecret::generate_symmetric([8; 32]));
        assert_ne!(asymmetric, SigningSecret::generate_asymmetric([8; 32]));
        assert_eq!(symmetric, symmetric.clone());
    }

    #[test]
    fn debug_never_shows_a_secret() {
        let symmetric: SigningSecret = SYMMETRIC.parse().unwrap();
        let asymmetric: SigningSecret = PAIR.parse().unwrap();
        let shown = format!("{symmetric:?} {:#?} {asymmetric:#?}", Some(&symmetric));
        assert!(!shown.contains("MfKQ") && !shown.contains("nWGx") && !shown.contains("9d61"));
        assert_eq!(format!("{symmetric:?}"), "SigningSecret(whsec_****)");
        assert_eq!(format!("{asymmetric:?}"), "SigningSecret(whsk_****)");
    }

    #[test]
    fn everything_that_holds_key_bytes_is_overwritten_when_dropped() {
        fn is_overwritten<T: zeroize::ZeroizeOnDrop>() {}
        is_overwritten::<Zeroizing<Vec<u8>>>();
        is_overwritten::<SigningKey>();
        // `Hmac` is two hash states and a block; it has no marker of its own, its parts have.
        is_overwritten::<Sha256>();
    }
}
