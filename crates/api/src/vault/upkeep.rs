//! Going through everything that is sealed: at the start, and after a key was added.

use postrider_domain::destination::Destination;
use postrider_store::{PageRequest, Store, StoreError, SubscriptionRecord};

use super::{Vault, VaultError};
use crate::credentials::Credentials;

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

/// Seals everything anew that was not sealed with the newest key, and says how much that was.
pub async fn reseal_all(store: &dyn Store, vault: &Vault) -> Result<usize, VaultError> {
    let mut resealed = 0;
    for record in store.all_subscriptions().await.map_err(store_error)? {
        if record.deleted_at.is_some() || !Credentials::is_stale(vault, &record.credentials) {
            continue;
        }
        let credentials = Credentials::open(vault, &record)?;
        let subscription = &record.subscription;
        let sealed = credentials.seal(vault, &subscription.tenant, subscription.id)?;
        let destination = Destination::new(
            subscription.tenant.clone(),
            subscription.url.clone(),
            subscription.created_at,
        );
        let record = SubscriptionRecord { credentials: sealed, ..record };
        store.put_subscription(&record, &destination).await.map_err(store_error)?;
        resealed += 1;
    }
    Ok(resealed)
}

fn store_error(error: StoreError) -> VaultError {
    VaultError::Store(error.to_string())
}
