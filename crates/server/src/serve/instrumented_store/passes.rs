//! Forwards the calls about passes to the store. They are not measured.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Page, PageRequest, Pass, PassKind, PassLimits, PassPut, Passes, StoreError};

use super::InstrumentedStore;

#[async_trait]
impl Passes for InstrumentedStore {
    async fn put_pass(&self, pass: &Pass, limits: PassLimits) -> Result<PassPut, StoreError> {
        self.store.put_pass(pass, limits).await
    }

    async fn pass(&self, id: &str) -> Result<Option<Pass>, StoreError> {
        self.store.pass(id).await
    }

    async fn passes(
        &self,
        tenant: &TenantId,
        kind: PassKind,
        page: &PageRequest,
    ) -> Result<Page<Pass>, StoreError> {
        self.store.passes(tenant, kind, page).await
    }

    async fn use_pass(
        &self,
        id: &str,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.use_pass(id, now, keep_until).await
    }

    async fn delete_pass(&self, id: &str) -> Result<bool, StoreError> {
        self.store.delete_pass(id).await
    }

    async fn prune_passes(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.store.prune_passes(before).await
    }
}
