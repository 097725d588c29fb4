//! Counts for quotas.

use async_trait::async_trait;
use postrider_domain::ids::{ReplayId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{ReplayJob, ReplayState, StoreError, Usage, Usages};

use super::MemoryStore;

#[async_trait]
impl Usages for MemoryStore {
    async fn usage(&self, tenant: Option<&TenantId>) -> Result<Usage, StoreError> {
        self.read(|state| {
            let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
            let of_tenant = |whose: &TenantId| Some(whose) == tenant;
            let jobs = || state.replays.values().filter(|job| of_tenant(&job.tenant));
            let running = jobs().filter(|job| job.state == ReplayState::Running);
            Ok(Usage {
                keys: count(state.keys.values().filter(|k| k.tenant.as_ref() == tenant).count()),
                destinations: count(
                    state.destinations.keys().filter(|(whose, _)| of_tenant(whose)).count(),
                ),
                replays: count(jobs().count()),
                replays_running: count(running.count()),
            })
        })
        .await
    }

    async fn tenant_count(&self) -> Result<u64, StoreError> {
        self.read(|state| Ok(u64::try_from(state.tenants.len()).unwrap_or(u64::MAX))).await
    }

    async fn forget_replays(&self, tenant: &TenantId, keep: u64) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.write(move |state| {
            let has_ended = |job: &&ReplayJob| match job.state {
                ReplayState::Running | ReplayState::Paused => false,
                ReplayState::Finished | ReplayState::Cancelled => true,
            };
            let theirs = state.replays.values().filter(|job| job.tenant == tenant);
            let mut ended: Vec<(Timestamp, ReplayId)> =
                theirs.filter(has_ended).map(|job| (job.created_at, job.id)).collect();
            ended.sort_unstable_by(|one, other| other.cmp(one));
            let keep = usize::try_from(keep).unwrap_or(usize::MAX).min(ended.len());
            for (_, id) in &ended[keep..] {
                state.replays.remove(&(tenant.clone(), *id));
            }
            Ok(u64::try_from(ended.len() - keep).unwrap_or(u64::MAX))
        })
        .await
    }
}
