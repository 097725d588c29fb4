//! Going through everything that is sealed: at the start, and after a key was added.

use postrider_store::{PageRequest, Store, StoreError, SubscriptionRecord};

use super::{Vault, VaultError};
use crate::credentials::{Credentials, HeaderForm};

/// Whether a store holds anything that needs the key ring that it was made with. Where it does, a
/// server that finds no key ring must not make a new one.
pub async fn is_ring_needed(store: &dyn Store) -> Result<bool, VaultError> {
    let page = PageRequest { limit: 1, cursor: None };
    let has_admin = !store.keys(None, &page).await.map_err(store_error)?.items.is_empty();
    Ok(has_admin || !store.all_subscriptions().await.map_err(store_error)?.is_empty())
}

/// Opens every sealed secret once. A server does this before it starts: one that cannot open what
/// it will need refuses to start, and says which key is missing.
pub async fn check_all(store: &dyn Store, vault: &Vault) -> Result<(), VaultError> {
    for record in store.all_subscriptions().await.map_err(store_error)? {
        Credentials::open(vault, &record)?;
    }
    Ok(())
}

/// What [`reseal_all`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Records that had been sealed with an older key.
    pub stale: usize,
    /// Records whose custom headers had been in clear.
    pub clear: usize,
}

/// Seals everything anew that was not sealed with the newest key, and the custom headers that an older
/// version left in clear. A record that somebody changes at the same time is left as they made it.
///
/// Where headers were in clear, the store then erases what it freed: see [`Upkeep::erase_freed`].
///
/// [`Upkeep::erase_freed`]: postrider_store::Upkeep::erase_freed
pub async fn reseal_all(store: &dyn Store, vault: &Vault) -> Result<Resealed, VaultError> {
    reseal(store, vault, |record| Credentials::is_stale(vault, &record.credentials)).await
}

/// Seals the custom headers that an older version left in clear, as [`reseal_all`] does, and nothing
/// else; `None` while a node of that version may still read them. For a store with several nodes,
/// where the others may not have the newest key yet.
pub async fn seal_clear_headers(
    store: &dyn Store,
    vault: &Vault,
) -> Result<Option<usize>, VaultError> {
    match HeaderForm::of(store).await.map_err(store_error)? {
        HeaderForm::Clear => Ok(None),
        HeaderForm::Sealed => Ok(Some(reseal(store, vault, |_| false).await?.clear)),
    }
}

async fn reseal(
    store: &dyn Store,
    vault: &Vault,
    is_stale: impl Fn(&SubscriptionRecord) -> bool,
) -> Result<Resealed, VaultError> {
    let form = HeaderForm::of(store).await.map_err(store_error)?;
    let mut resealed = Resealed::default();
    for record in store.all_subscriptions().await.map_err(store_error)? {
        let is_clear = form == HeaderForm::Sealed && !record.subscription.headers.is_empty();
        if !is_clear && !is_stale(&record) {
            continue;
        }
        let credentials = Credentials::open(vault, &record)?;
        let sealed = credentials.record(vault, &record.subscription, form)?;
        let sealed = SubscriptionRecord { deleted_at: record.deleted_at, ..sealed };
        if store.reseal_subscription(&record, &sealed).await.map_err(store_error)? {
            let count = if is_clear { &mut resealed.clear } else { &mut resealed.stale };
            *count += 1;
        }
    }
    if resealed.clear > 0 {
        store.erase_freed().await.map_err(store_error)?;
    }
    Ok(resealed)
}

fn store_error(error: StoreError) -> VaultError {
    VaultError::Store(error.to_string())
}
