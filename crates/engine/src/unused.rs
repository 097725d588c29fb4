//! Removes destinations that nothing has used for the retention time.
//!
//! **Until then a destination keeps its circuit**: a URL that is frozen stays so when its subscription is deleted
//! and created again.

use std::sync::Weak;
use std::time::Duration;

use postrider_domain::ids::{DestinationId, TenantId};
use postrider_transport::pause;

use crate::core::Command;
use crate::handle::{CommandError, EngineHandle, Shared};
use crate::upkeep::FIRST_PRUNE_AFTER_MAX;

/// How many destinations are looked at in one step.
const STEP: usize = 500;

/// Removes destinations soon after the start and then at intervals, until the engine has ended. It holds no handle
/// while it waits: an engine ends when nobody has one any more.
pub(crate) async fn remove_unused(engine: Weak<Shared>, every: Duration) {
    let mut wait = every.min(FIRST_PRUNE_AFTER_MAX);
    loop {
        pause(wait).await;
        wait = every;
        let running = engine.upgrade().filter(|shared| shared.ended.borrow().is_none());
        let Some(shared) = running else { return };
        let engine = EngineHandle { shared };
        // After an error, this continues the next time.
        while let Ok(true) = remove_some(&engine).await {
            tokio::task::yield_now().await;
        }
    }
}

/// Removes some destinations of our shards; whether there may be more.
async fn remove_some(engine: &EngineHandle) -> Result<bool, CommandError> {
    let shared = &engine.shared;
    let now = shared.clock.now();
    let keep = shared.policy.borrow().retention.finished;
    let before = now.saturating_sub(keep);
    let found = shared.store.unused_destinations(now, before, STEP).await?;
    let is_full = found.len() >= STEP;
    let leases = engine.leases().await?;
    let mut removed = false;
    // Another node removes those of its own shards.
    for (tenant, id) in found.into_iter().filter(|(_, id)| leases.has(id.shard())) {
        removed |= remove_one(engine, &tenant, id).await?;
    }
    Ok(is_full && removed)
}

async fn remove_one(
    engine: &EngineHandle,
    tenant: &TenantId,
    id: DestinationId,
) -> Result<bool, CommandError> {
    let shared = &engine.shared;
    // No subscription of the tenant comes to it meanwhile.
    let _one_at_a_time = shared.refresher.changing.of(tenant).await;
    let keep = shared.policy.borrow().retention.finished;
    let before = shared.clock.now().saturating_sub(keep);
    let is_removed = shared.store.remove_destination(tenant, id, before).await?;
    if is_removed {
        engine.tell(Command::Forget { destination: id })?;
    }
    Ok(is_removed)
}
