//! Checks or reseals all sealed secrets: at the start, and after a key was added.

use postrider_store::{PageRequest, Store, StoreError, SubscriptionRecord};

use super::{Vault, VaultError};
use crate::credentials::{Credentials, HeaderForm};

/// Whether a store has records that need its key ring. If so, a server without a key ring must not
/// create a new one.
pub async fn is_ring_needed(store: &dyn Store) -> Result<bool, VaultError> {
    let page = PageRequest { limit: 1, cursor: None };
    let has_admin = !store.keys(None, &page).await.map_err(store_error)?.items.is_empty();
    Ok(has_admin || !store.all_subscriptions().await.map_err(store_error)?.is_empty())
}

/// Opens every sealed secret once. A server does this at its start: if a secret cannot be opened,
/// it refuses to start, and names the missing key.
pub async fn check_all(store: &dyn Store, vault: &Vault) -> Result<(), VaultError> {
    for record in store.all_subscriptions().await.map_err(store_error)? {
        Credentials::open(vault, &record)?;
    }
    Ok(())
}

/// The result of [`reseal_all`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Resealed {
    /// Records that were sealed with an older key.
    pub stale: usize,
    /// Records whose custom headers were in plain text.
    pub clear: usize,
}

/// Seals again all secrets that were not sealed with the newest key, and the custom headers that an
/// older version stored in plain text. A record that is changed at the same time is left alone.
///
/// If headers were in plain text, the store then erases the freed space: see
/// [`Upkeep::erase_freed`].
///
/// [`Upkeep::erase_freed`]: postrider_store::Upkeep::erase_freed
pub async fn reseal_all(store: &dyn Store, vault: &Vault) -> Result<Resealed, VaultError> {
    reseal(store, vault, |record| Credentials::is_stale(vault, &record.credentials)).await
}

/// Seals only the custom headers that an older version stored in plain text; `None` while a node of
/// that version may still read them. For a store with several nodes, where the others may not have
/// the newest key yet.
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
