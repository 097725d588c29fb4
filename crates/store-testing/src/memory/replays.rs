//! Bulk replay jobs.

use async_trait::async_trait;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{ReplayId, TenantId};
use postrider_store::{Page, PageRequest, ReplayJob, ReplayState, Replays, StoreError};

use super::MemoryStore;
use super::paging::descending;

#[async_trait]
impl Replays for MemoryStore {
    async fn put_replay(&self, job: &ReplayJob) -> Result<(), StoreError> {
        let mut job = job.clone();
        self.write(move |state| {
            let key = (job.tenant.clone(), job.id);
            job.outcomes = state.replays.get(&key).map(|job| job.outcomes).unwrap_or_default();
            state.replays.insert(key, job);
            Ok(())
        })
        .await
    }

    async fn replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<Option<ReplayJob>, StoreError> {
        self.read(|state| Ok(state.replays.get(&(tenant.clone(), id)).cloned())).await
    }

    async fn replays(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<ReplayJob>, StoreError> {
        self.read(|state| {
            let theirs = state.replays.values().filter(|job| job.tenant == *tenant);
            let mut jobs: Vec<_> =
                theirs.map(|job| ((job.created_at, job.id), job.clone())).collect();
            jobs.sort_by(|(one, _), (other, _)| other.cmp(one));
            descending(jobs.into_iter(), page)
        })
        .await
    }

    async fn running_replays(&self) -> Result<Vec<ReplayJob>, StoreError> {
        self.read(|state| {
            let jobs = state.replays.values();
            Ok(jobs.filter(|job| job.state == ReplayState::Running).cloned().collect())
        })
        .await
    }

    async fn replay_candidates(
        &self,
        job: &ReplayJob,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.read(|state| {
            let from = job.position.map_or(Unbounded, Excluded);
            let later = state.deliveries.range((from, Unbounded)).map(|(_, delivery)| delivery);
            let candidates = later.filter(|delivery| job.takes(delivery));
            Ok(candidates.take(limit).cloned().collect())
        })
        .await
    }
}
