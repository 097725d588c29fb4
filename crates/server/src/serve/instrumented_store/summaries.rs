//! Summaries of deliveries, as they are.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{DeadLetters, DueCounts, StoreError, Summaries};

use super::InstrumentedStore;

#[async_trait]
impl Summaries for InstrumentedStore {
    async fn due_counts(
        &self,
        tenant: Option<&TenantId>,
        now: Timestamp,
        most: u64,
    ) -> Result<DueCounts, StoreError> {
        self.store.due_counts(tenant, now, most).await
    }

    async fn dead_letters(
        &self,
        tenant: Option<&TenantId>,
        most: usize,
    ) -> Result<DeadLetters, StoreError> {
        self.store.dead_letters(tenant, most).await
    }
}
