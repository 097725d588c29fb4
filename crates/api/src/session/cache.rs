//! Caches passes for a few seconds, so that a request with a session does not cost a query.
//!
//! An entry is dropped after a few seconds, as in the cache of keys, and at once if this node
//! changes or deletes the pass. That a pass does not exist is not cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Pass, StoreError};

use crate::settings::REMEMBERED_MAX;
use crate::state::ApiState;

/// The cached passes by identifier, each with the time of its lookup.
#[derive(Debug, Default)]
pub(crate) struct PassCache(Mutex<HashMap<String, (Arc<Pass>, Timestamp)>>);

impl PassCache {
    /// The pass with this identifier, from the cache or from the store.
    pub(crate) async fn get(
        &self,
        state: &ApiState,
        id: &str,
        now: Timestamp,
    ) -> Result<Option<Arc<Pass>>, StoreError> {
        let ttl = state.settings().key_memory;
        let is_fresh = |at: Timestamp| now >= at && now.since(at) < ttl;
        if let Some((pass, at)) = self.lock().get(id)
            && is_fresh(*at)
        {
            return Ok(Some(Arc::clone(pass)));
        }
        let found = state.store().pass(id).await?.map(Arc::new);
        let mut known = self.lock();
        if known.len() >= REMEMBERED_MAX {
            known.retain(|_, (_, at)| is_fresh(*at));
            if known.len() >= REMEMBERED_MAX / 10 * 9 {
                known.clear();
            }
        }
        match &found {
            Some(pass) => known.insert(id.to_owned(), (Arc::clone(pass), now)),
            None => known.remove(id),
        };
        Ok(found)
    }

    /// Whether the pass with this identifier was found before, however long ago.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Drops a pass that was changed or deleted.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Drops the passes of a tenant that was deleted.
    pub(crate) fn forget_tenant(&self, id: &TenantId) {
        self.lock().retain(|_, (pass, _)| pass.tenant.as_ref() != Some(id));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (Arc<Pass>, Timestamp)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
