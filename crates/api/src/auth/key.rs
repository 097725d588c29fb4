//! A key's text: `pr_<id>_<secret>`. The identifier finds the record; only a keyed hash of the
//! secret is stored.

use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::Key;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::draw::Draw;
use crate::random::NoRandomness;
use crate::vault::Vault;

const PREFIX: &str = "pr_";
/// Separates the hashes of keys from other keyed hashes.
const PURPOSE: &[u8] = b"key";
/// The longest identifier that is looked up.
const ID_CHARS_MAX: usize = 64;

/// The properties of a new key.
pub(crate) struct NewKey {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) name: Option<String>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires_at: Option<Timestamp>,
}

/// Creates a key: its record, and its text, which is shown once.
pub(crate) fn new_key(
    vault: &Vault,
    wish: NewKey,
    now: Timestamp,
    draw: &Draw,
) -> Result<(Key, Zeroizing<String>), NoRandomness> {
    let id = hex(&draw.bytes::<8>("key id")?);
    let secret = hex(draw.secret_bytes::<32>("key secret")?.as_slice());
    let hash = hash(vault, &id, secret.as_bytes());
    let text = Zeroizing::new(format!("{PREFIX}{}_{}", *id, *secret));
    let NewKey { tenant, name, scopes, expires_at } = wish;
    let id = id.to_string();
    let key =
        Key { id, tenant, name, scopes, hash, created_at: now, expires_at, last_used_at: None };
    Ok((key, text))
}

/// Splits a key's text into identifier and secret.
pub(super) fn parse(token: &[u8]) -> Option<(&str, &[u8])> {
    let rest = token.strip_prefix(PREFIX.as_bytes())?;
    let end = rest.iter().position(|byte| *byte == b'_')?;
    let (id, secret) = (&rest[..end], &rest[end + 1..]);
    let is_id = (1..=ID_CHARS_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_alphanumeric);
    let id = std::str::from_utf8(id).ok().filter(|_| is_id && !secret.is_empty())?;
    Some((id, secret))
}

/// Whether this is the secret of that key. Compared in constant time.
pub(super) fn is_secret_of(vault: &Vault, key: &Key, secret: &[u8]) -> bool {
    hash(vault, &key.id, secret).ct_eq(&key.hash).into()
}

fn hash(vault: &Vault, id: &str, secret: &[u8]) -> [u8; 32] {
    vault.keyed_hash(&[PURPOSE, id.as_bytes(), secret])
}

/// A secret in hexadecimal digits, overwritten when dropped.
fn hex(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(postrider_domain::hex::encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::KeyRing;

    #[test]
    fn a_key_is_recognised_and_nothing_else_is() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let wish = || NewKey { tenant: None, name: None, scopes: vec![], expires_at: None };
        let (key, text) = new_key(&vault, wish(), Timestamp::EPOCH, &Draw::default()).unwrap();
        let (id, secret) = parse(text.as_bytes()).unwrap();
        assert_eq!(id, key.id);
        assert!(is_secret_of(&vault, &key, secret));
        let (other, _) = new_key(&vault, wish(), Timestamp::EPOCH, &Draw::default()).unwrap();
        assert!(!is_secret_of(&vault, &other, secret));
        assert!(!is_secret_of(&vault, &key, &secret[1..]));
        let elsewhere = Vault::new(KeyRing::generate().unwrap());
        assert!(!is_secret_of(&elsewhere, &key, secret), "the hash is keyed");
        assert!(!format!("{key:?}").contains(std::str::from_utf8(secret).unwrap()));
    }

    #[test]
    fn malformed_keys_are_rejected() {
        for text in ["", "pr_", "pr_a", "pr_a_", "pr__b", "pr_a-b_c", "PR_a_b", "x_a_b", "pr_\0_b"]
        {
            assert!(parse(text.as_bytes()).is_none(), "{text:?}");
        }
        assert_eq!(parse(b"pr_a_b_c"), Some(("a", b"b_c".as_slice())));
        assert!(parse(format!("pr_{}_b", "a".repeat(65)).as_bytes()).is_none());
    }
}
