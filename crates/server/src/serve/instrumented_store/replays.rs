//! Replay jobs and counts for quotas, as they are.

use async_trait::async_trait;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{ReplayId, TenantId};
use postrider_store::{Page, PageRequest, ReplayJob, Replays, StoreError, Usage, Usages};

use super::InstrumentedStore;

#[async_trait]
impl Replays for InstrumentedStore {
    async fn put_replay(&self, job: &ReplayJob) -> Result<(), StoreError> {
        self.store.put_replay(job).await
    }

    async fn replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<Option<ReplayJob>, StoreError> {
        self.store.replay(tenant, id).await
    }

    async fn replays(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<ReplayJob>, StoreError> {
        self.store.replays(tenant, page).await
    }

    async fn running_replays(&self) -> Result<Vec<ReplayJob>, StoreError> {
        self.store.running_replays().await
    }

    async fn replay_candidates(
        &self,
        job: &ReplayJob,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.replay_candidates(job, limit).await
    }
}

#[async_trait]
impl Usages for InstrumentedStore {
    async fn usage(&self, tenant: Option<&TenantId>) -> Result<Usage, StoreError> {
        self.store.usage(tenant).await
    }

    async fn tenant_count(&self) -> Result<u64, StoreError> {
        self.store.tenant_count().await
    }

    async fn forget_replays(&self, tenant: &TenantId, keep: u64) -> Result<u64, StoreError> {
        self.store.forget_replays(tenant, keep).await
    }
}
