//! Secrets at rest: sealed before they reach the store, opened only where they are used.
//!
//! XChaCha20-Poly1305 with a random nonce. A sealed secret is bound to its tenant, its owner and
//! its field, so that no ciphertext can be used in another context. It contains the name of its
//! key; if that key is not in the ring, the error names it.
//!
//! ```text
//! sealed = version (1) | length of the key's name | the key's name | nonce (24) | ciphertext, tag
//! ```

mod keyring;
mod upkeep;

use std::sync::{Arc, PoisonError, RwLock};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use postrider_domain::ids::TenantId;
use sha2::Sha256;
use zeroize::Zeroizing;

pub use keyring::{KeyRing, KeyRingError};
pub use upkeep::{Resealed, check_all, is_ring_needed, reseal_all, seal_clear_headers};

use crate::random::{self, NoRandomness};

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;

/// Seals and opens with the keys of a ring. Clones share it.
#[derive(Clone)]
pub struct Vault(Arc<RwLock<KeyRing>>);

/// What a sealed secret is bound to. It cannot be opened with another context.
#[derive(Debug, Clone, Copy)]
pub struct SealContext<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The owner, such as a subscription's identifier.
    pub owner: &'a str,
    /// The field.
    pub field: &'a str,
}

/// Why a secret cannot be sealed or opened. Reveals nothing of the contents.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// The ring lacks the key that sealed it.
    #[error(
        "a secret was sealed with the key {id}, which is not in the key ring: restore the key ring \
         that has it"
    )]
    MissingKey {
        /// The name of the key.
        id: String,
    },
    /// The bytes are damaged, or were sealed for another context.
    #[error("a sealed secret is damaged, or was moved from where it belongs")]
    Damaged,
    /// No random nonce can be generated.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The store failed while all secrets were checked.
    #[error("the store failed: {0}")]
    Store(String),
}

impl Vault {
    /// A vault with these keys.
    pub fn new(ring: KeyRing) -> Self {
        Vault(Arc::new(RwLock::new(ring)))
    }

    /// Seals with the newest key.
    pub fn seal(&self, context: SealContext<'_>, plaintext: &[u8]) -> Result<Vec<u8>, VaultError> {
        let nonce = random::bytes::<NONCE_BYTES>()?;
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let (id, key) = ring.newest();
        let id_length = u8::try_from(id.len()).map_err(|_| VaultError::Damaged)?;
        let payload = Payload { msg: plaintext, aad: &context.bytes() };
        let ciphertext = XChaCha20Poly1305::new(key.into())
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| VaultError::Damaged)?;
        Ok([&[VERSION, id_length], id.as_bytes(), &nonce, &ciphertext].concat())
    }

    /// Opens what was sealed for this context.
    pub fn open(
        &self,
        context: SealContext<'_>,
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let (id, rest) = key_id(sealed).ok_or(VaultError::Damaged)?;
        let (nonce, ciphertext) =
            rest.split_first_chunk::<NONCE_BYTES>().ok_or(VaultError::Damaged)?;
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let key = ring.get(id).ok_or_else(|| VaultError::MissingKey { id: id.to_owned() })?;
        let payload = Payload { msg: ciphertext, aad: &context.bytes() };
        XChaCha20Poly1305::new(key.into())
            .decrypt(&XNonce::from(*nonce), payload)
            .map(Zeroizing::new)
            .map_err(|_| VaultError::Damaged)
    }

    /// Whether a secret was sealed with a key other than the newest.
    pub fn is_stale(&self, sealed: &[u8]) -> bool {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        key_id(sealed).is_none_or(|(id, _)| id != ring.newest().0)
    }

    /// A keyed hash, for values that must be recognised but never read back. It does not change
    /// when keys are added to the ring.
    pub fn keyed_hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut mac = Hmac::<Sha256>::new_from_slice(ring.hash_key())
            .expect("HMAC takes a key of any length");
        for part in parts {
            // The length is hashed too, so that different lists of parts give different bytes.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// A copy of the ring, to add a key to.
    pub fn ring(&self) -> KeyRing {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses another ring from now on, for example one with a new key.
    pub fn replace(&self, ring: KeyRing) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ring;
    }
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vault(****)")
    }
}

impl SealContext<'_> {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in [self.tenant.as_str(), self.owner, self.field] {
            bytes.extend((part.len() as u64).to_be_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes
    }
}

/// The name of the key of a sealed secret, and the rest.
fn key_id(sealed: &[u8]) -> Option<(&str, &[u8])> {
    let [VERSION, id_length, rest @ ..] = sealed else { return None };
    let (id, rest) = rest.split_at_checked(usize::from(*id_length))?;
    Some((std::str::from_utf8(id).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context<'a>(tenant: &'a TenantId, owner: &'a str, field: &'a str) -> SealContext<'a> {
        SealContext { tenant, owner, field }
    }

    #[test]
    fn sealed_secret_opens_only_with_its_own_context() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let (tenant, other) = (TenantId::default_tenant(), "other".parse().unwrap());
        let here = context(&tenant, "sub_1", "token");
        let sealed = vault.seal(here, b"s3cret").unwrap();
        assert_eq!(vault.open(here, &sealed).unwrap().as_slice(), b"s3cret");
        assert!(!sealed.windows(6).any(|window| window == b"s3cret"));
        for elsewhere in [
            context(&other, "sub_1", "token"),
            context(&tenant, "sub_2", "token"),
            context(&tenant, "sub_1", "secrets"),
            context(&tenant, "sub_1t", "oken"),
        ] {
            assert_eq!(vault.open(elsewhere, &sealed), Err(VaultError::Damaged));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let tenant = TenantId::default_tenant();
        let here = context(&tenant, "sub_1", "token");
        let sealed = vault.seal(here, b"s3cret").unwrap();
        for n in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[n] ^= 1;
            assert!(vault.open(here, &flipped).is_err(), "byte {n}");
            assert!(vault.open(here, &sealed[..n]).is_err(), "cut at {n}");
        }
    }

    #[test]
    fn older_keys_open_and_the_newest_seals() {
        let mut ring = KeyRing::generate().unwrap();
        let vault = Vault::new(ring.clone());
        let tenant = TenantId::default_tenant();
        let here = context(&tenant, "sub_1", "token");
        let old = vault.seal(here, b"s3cret").unwrap();
        let hash = vault.keyed_hash(&[b"a"]);
        ring.add_key().unwrap();
        vault.replace(ring);
        let new = vault.seal(here, b"s3cret").unwrap();
        assert!(vault.is_stale(&old) && !vault.is_stale(&new));
        assert!(vault.open(here, &old).is_ok() && vault.open(here, &new).is_ok());
        assert_eq!(vault.keyed_hash(&[b"a"]), hash, "keys that exist go on working");
    }

    #[test]
    fn a_key_that_is_not_in_the_ring_is_named() {
        let tenant = TenantId::default_tenant();
        let here = context(&tenant, "sub_1", "token");
        let ring = KeyRing::generate().unwrap();
        let id = ring.newest().0.to_owned();
        let sealed = Vault::new(ring).seal(here, b"s3cret").unwrap();
        let other = Vault::new(KeyRing::generate().unwrap());
        assert_eq!(other.open(here, &sealed), Err(VaultError::MissingKey { id }));
        assert_eq!(format!("{other:?}"), "Vault(****)");
    }

    #[test]
    fn a_keyed_hash_depends_on_the_key_and_on_where_parts_end() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        assert_ne!(vault.keyed_hash(&[b"ab", b"c"]), vault.keyed_hash(&[b"a", b"bc"]));
        let other = Vault::new(KeyRing::generate().unwrap());
        assert_ne!(vault.keyed_hash(&[b"a"]), other.keyed_hash(&[b"a"]));
    }
}
