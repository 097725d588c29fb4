//! A cache of keys and tenants, so that a request does not cost a query.
//!
//! Entries are valid for a few seconds, and removed at once if this node deletes the record. That a
//! key does not exist is cached too, so that a client that repeats a deleted key costs no query
//! each time; identifiers are random, so none is asked for before its key is created.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Key, StoreError};

use crate::settings::REMEMBERED_MAX;
use crate::state::ApiState;

/// The cache, and which keys were used.
#[derive(Debug, Default)]
pub(crate) struct KeyCache {
    keys: Mutex<HashMap<String, (Arc<Key>, Timestamp)>>,
    /// Identifiers without a key, and when they were looked up.
    missing: Mutex<HashMap<String, Timestamp>>,
    tenants: Mutex<HashMap<TenantId, Timestamp>>,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    at: HashMap<String, Timestamp>,
    written_at: Option<Timestamp>,
}

impl KeyCache {
    /// Whether a look-up of this identifier needs no budget: its key was found before, however long
    /// ago, or it is known to have none.
    pub(super) fn has_seen(&self, state: &ApiState, id: &str, now: Timestamp) -> bool {
        locked(&self.keys).contains_key(id) || self.is_missing(state, id, now)
    }

    fn is_missing(&self, state: &ApiState, id: &str, now: Timestamp) -> bool {
        let ttl = state.settings().key_memory;
        locked(&self.missing).get(id).is_some_and(|at| is_fresh(*at, now, ttl))
    }

    /// The key with this identifier.
    pub(super) async fn key(
        &self,
        state: &ApiState,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Key>>, StoreError> {
        let ttl = state.settings().key_memory;
        if let Some((key, at)) = locked(&self.keys).get(id)
            && is_fresh(*at, now, ttl)
        {
            return Ok(Some(Arc::clone(key)));
        }
        if self.is_missing(state, id, now) {
            return Ok(None);
        }
        let found = state.store().key(id).await?.map(Arc::new);
        if found.is_none() {
            let mut missing = locked(&self.missing);
            make_room(&mut missing, |at| is_fresh(*at, now, ttl));
            missing.insert(id.to_owned(), now);
        }
        let mut keys = locked(&self.keys);
        make_room(&mut keys, |(_, at)| is_fresh(*at, now, ttl));
        match &found {
            Some(key) => keys.insert(id.to_owned(), (Arc::clone(key), now)),
            None => keys.remove(id),
        };
        Ok(found)
    }

    /// Whether the tenant exists.
    pub(crate) async fn has_tenant(
        &self,
        state: &ApiState,
        id: &TenantId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let ttl = state.settings().key_memory;
        if locked(&self.tenants).get(id).is_some_and(|at| is_fresh(*at, now, ttl)) {
            return Ok(true);
        }
        let exists = state.store().tenant(id).await?.is_some();
        if exists {
            let mut tenants = locked(&self.tenants);
            make_room(&mut tenants, |at| is_fresh(*at, now, ttl));
            tenants.insert(id.clone(), now);
        }
        Ok(exists)
    }

    /// Removes a deleted key.
    pub(crate) fn forget_key(&self, id: &str) {
        locked(&self.keys).remove(id);
    }

    /// Removes a deleted tenant with its keys.
    pub(crate) fn forget_tenant(&self, id: &TenantId) {
        locked(&self.tenants).remove(id);
        locked(&self.keys).retain(|_, (key, _)| key.tenant.as_ref() != Some(id));
    }

    /// Clears the cache: any key or tenant may have been deleted.
    pub(crate) fn forget_all(&self) {
        locked(&self.tenants).clear();
        locked(&self.keys).clear();
        locked(&self.missing).clear();
    }

    /// Records that a key was used. Written to the store in batches, not by the request itself.
    pub(super) fn touch(&self, state: &ApiState, id: &str, now: Timestamp) {
        let mut used = locked(&self.used);
        match used.at.get_mut(id) {
            Some(at) => *at = now,
            None => {
                used.at.insert(id.to_owned(), now);
            }
        }
        let written_at = *used.written_at.get_or_insert(now);
        let is_due = now.since(written_at) >= state.settings().touch_every;
        if !is_due && used.at.len() < REMEMBERED_MAX {
            return;
        }
        used.written_at = Some(now);
        let batch: Vec<(String, Timestamp)> = std::mem::take(&mut used.at).into_iter().collect();
        let store = Arc::clone(state.store());
        // The time of last use is approximate, so a failed batch is not repeated.
        tokio::spawn(async move { store.touch_keys(&batch).await.ok() });
    }
}

/// Drops entries that are not fresh where the map is full, and all where nearly all are fresh.
fn make_room<K: Eq + Hash, V>(entries: &mut HashMap<K, V>, is_fresh: impl Fn(&V) -> bool) {
    if entries.len() >= REMEMBERED_MAX {
        entries.retain(|_, entry| is_fresh(entry));
        if entries.len() >= REMEMBERED_MAX / 10 * 9 {
            entries.clear();
        }
    }
}

fn is_fresh(at: Timestamp, now: Timestamp, ttl: Duration) -> bool {
    now >= at && now.since(at) < ttl
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
