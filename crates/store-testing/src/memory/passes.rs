//! Passes.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Page, PageRequest, Pass, PassKind, PassLimits, PassPut, Passes, StoreError};

use super::MemoryStore;
use super::paging::descending;
use super::state::State;

#[async_trait]
impl Passes for MemoryStore {
    async fn put_pass(&self, pass: &Pass, limits: PassLimits) -> Result<PassPut, StoreError> {
        let pass = pass.clone();
        self.write(move |state| Ok(state.put_pass(pass, limits))).await
    }

    async fn pass(&self, id: &str) -> Result<Option<Pass>, StoreError> {
        self.read(|state| Ok(state.passes.get(id).cloned())).await
    }

    async fn passes(
        &self,
        tenant: &TenantId,
        kind: PassKind,
        page: &PageRequest,
    ) -> Result<Page<Pass>, StoreError> {
        self.read(|state| {
            let of_tenant =
                |pass: &&Pass| pass.kind == kind && pass.tenant.as_ref() == Some(tenant);
            let mut found: Vec<_> = (state.passes.values().filter(of_tenant))
                .map(|pass| ((pass.created_at, pass.id.clone()), pass.clone()))
                .collect();
            found.sort_by(|(a, _), (b, _)| b.cmp(a));
            descending(found.into_iter(), page)
        })
        .await
    }

    async fn use_pass(
        &self,
        id: &str,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(move |state| {
            let unused = state.passes.get_mut(&id).filter(|pass| pass.used_at.is_none());
            let Some(pass) = unused else { return Ok(false) };
            pass.used_at = Some(now);
            pass.expires_at = pass.expires_at.max(keep_until);
            Ok(true)
        })
        .await
    }

    async fn delete_pass(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(move |state| Ok(state.passes.remove(&id).is_some())).await
    }

    async fn prune_passes(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.write(move |state| {
            let all = state.passes.len();
            state.passes.retain(|_, pass| pass.expires_at >= before);
            Ok(u64::try_from(all - state.passes.len()).unwrap_or(u64::MAX))
        })
        .await
    }
}

impl State {
    fn put_pass(&mut self, pass: Pass, limits: PassLimits) -> PassPut {
        if let Some(known) = self.passes.get_mut(&pass.id) {
            known.expires_at = known.expires_at.max(pass.expires_at);
            return PassPut::Stored;
        }
        let of_kind = self.passes.values().filter(|known| known.kind == pass.kind);
        let total = of_kind.clone().count() as u64;
        let mut own: Vec<_> = of_kind
            .filter(|known| known.owner == pass.owner)
            .map(|known| (known.created_at, known.id.clone()))
            .collect();
        own.sort();
        let excess = (own.len() as u64 + 1).saturating_sub(limits.of_owner);
        if total.saturating_sub(excess) >= limits.in_total {
            return PassPut::Full;
        }
        for (_, id) in own.into_iter().take(usize::try_from(excess).unwrap_or(usize::MAX)) {
            self.passes.remove(&id);
        }
        self.passes.insert(pass.id.clone(), pass);
        PassPut::Stored
    }
}
