//! The first admin key, with which all others are created.

use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Key, PageRequest, Store, StoreError, Tenant, TenantDetails};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::key::{NewKey, new_key};
use crate::audit::{AuditError, note_operator, note_server};
use crate::draw::Draw;
use crate::random::NoRandomness;
use crate::vault::Vault;

const PURPOSE: &[u8] = b"admin";
/// The display name of the first admin key.
const FIRST_KEY: &str = "first admin key";
/// The allowed length of an admin key that the operator chose.
const GIVEN_CHARS: std::ops::RangeInclusive<usize> = 24..=256;

/// An admin key that the operator chose (`POSTRIDER_ADMIN_KEY`), as its keyed hash.
#[derive(Clone)]
pub struct GivenAdmin([u8; 32]);

/// How a server got its first admin key.
#[derive(Debug)]
pub enum Bootstrap {
    /// The operator chose it: pass this to the API's state.
    Given(GivenAdmin),
    /// The key was created just now: show it once and write it to `admin.key`.
    Created(Zeroizing<String>),
    /// The key exists already.
    Exists,
}

/// Why there is no admin key.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The chosen key is not acceptable.
    #[error("the admin key must have 24 to 256 printable characters")]
    Unusable,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No random key can be generated.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl From<AuditError> for BootstrapError {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Store(error) => error.into(),
            AuditError::NoRandomness(error) => error.into(),
        }
    }
}

/// Creates the tenant `default` and an admin key if they are missing. Call it before the first
/// request.
pub async fn bootstrap_admin(
    store: &dyn Store,
    vault: &Vault,
    given: Option<&str>,
    now: Timestamp,
) -> Result<Bootstrap, BootstrapError> {
    let tenant = Tenant {
        id: TenantId::default_tenant(),
        name: None,
        created_at: now,
        details: TenantDetails::default(),
    };
    store.create_tenant(&tenant).await?;
    if let Some(given) = given {
        return GivenAdmin::new(vault, given).map(Bootstrap::Given);
    }
    let page = PageRequest { limit: 1, cursor: None };
    if !store.keys(None, &page).await?.items.is_empty() {
        return Ok(Bootstrap::Exists);
    }
    let (key, text) = first_key(vault, now)?;
    store.create_key(&key).await?;
    note_server(store, "key.create", "key", Some(&key.id), now).await?;
    Ok(Bootstrap::Created(text))
}

fn first_key(vault: &Vault, now: Timestamp) -> Result<(Key, Zeroizing<String>), NoRandomness> {
    let name = Some(FIRST_KEY.to_owned());
    let wish = NewKey { tenant: None, name, scopes: vec![Scope::Admin], expires_at: None };
    new_key(vault, wish, now, &Draw::default())
}

/// Replaces the first admin key, whose text was lost. Call it on a store that no server has open: a
/// server keeps keys in memory. Other admin keys stay.
pub async fn reset_admin(
    store: &dyn Store,
    vault: &Vault,
    now: Timestamp,
) -> Result<Zeroizing<String>, BootstrapError> {
    let (key, text) = first_key(vault, now)?;
    let mut page = PageRequest { limit: 1000, cursor: None };
    let mut replaced = Vec::new();
    loop {
        let keys = store.keys(None, &page).await?;
        let first = keys.items.into_iter().filter(|key| key.name.as_deref() == Some(FIRST_KEY));
        replaced.extend(first.map(|key| key.id));
        match keys.next {
            Some(cursor) => page.cursor = Some(cursor),
            None => break,
        }
    }
    // First the new one, so that a crash leaves the store with a key.
    store.create_key(&key).await?;
    note_operator(store, "key.create", "key", Some(&key.id), now).await?;
    for id in replaced {
        if store.delete_key(None, &id).await? {
            note_operator(store, "key.delete", "key", Some(&id), now).await?;
        }
    }
    Ok(text)
}

impl GivenAdmin {
    /// The identifier that is shown for this key.
    pub const KEY_ID: &'static str = "given";

    /// An admin key with this text.
    pub fn new(vault: &Vault, text: &str) -> Result<Self, BootstrapError> {
        let is_printable = !text.chars().any(char::is_control) && text.trim() == text;
        if !is_printable || !GIVEN_CHARS.contains(&text.chars().count()) {
            return Err(BootstrapError::Unusable);
        }
        Ok(GivenAdmin(vault.keyed_hash(&[PURPOSE, text.as_bytes()])))
    }

    /// Whether the token is this key. Compared in constant time.
    pub(super) fn is(&self, vault: &Vault, token: &[u8]) -> bool {
        vault.keyed_hash(&[PURPOSE, token]).ct_eq(&self.0).into()
    }
}

impl GivenAdmin {
    /// A text by which a session recognises the key that it was made with, without giving it away.
    pub(crate) fn mark(&self, vault: &Vault) -> String {
        let mark = vault.keyed_hash(&[b"session of a chosen key", &self.0]);
        postrider_domain::hex::encode(&mark[..16])
    }
}

impl std::fmt::Debug for GivenAdmin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GivenAdmin(****)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::KeyRing;

    #[test]
    fn a_chosen_key_is_long_and_printable() {
        let vault = Vault::new(KeyRing::generate().unwrap());
        let ok = "a perfectly good admin key!";
        assert!(GivenAdmin::new(&vault, ok).unwrap().is(&vault, ok.as_bytes()));
        assert!(!GivenAdmin::new(&vault, ok).unwrap().is(&vault, b"another"));
        assert!(GivenAdmin::new(&vault, &"k".repeat(256)).is_ok());
        for bad in ["", "short", &"k".repeat(23), &"k".repeat(257), &format!("{ok}\n"), " k"] {
            assert!(GivenAdmin::new(&vault, bad).is_err(), "{bad:?}");
        }
    }
}
