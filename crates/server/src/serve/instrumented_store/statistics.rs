//! Forwards the statistics of destinations to the store. They are not measured.

use async_trait::async_trait;
use postrider_domain::attempt_tally::AttemptTally;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{AttemptSums, Statistics, StoreError};

use super::InstrumentedStore;

#[async_trait]
impl Statistics for InstrumentedStore {
    async fn attempt_sums(
        &self,
        tenant: Option<&TenantId>,
        destinations: &[DestinationId],
        since: [Timestamp; 2],
    ) -> Result<Vec<AttemptSums>, StoreError> {
        self.store.attempt_sums(tenant, destinations, since).await
    }

    async fn attempt_hours(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<(Timestamp, AttemptTally)>, StoreError> {
        self.store.attempt_hours(tenant, destination, since).await
    }

    async fn forget_attempt_hours(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.store.forget_attempt_hours(before).await
    }
}
