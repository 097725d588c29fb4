//! What died of an outage is replayed when it is over, where the policy says so.
//!
//! The core says that a destination is back. Here its dead are counted and a job for them is kept, as soon
//! as the quotas of its tenant allow one more. Until then the circuit remembers that it is to be, so
//! neither a crash nor a full quota loses it.

use std::collections::{HashSet, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use postrider_domain::ids::TenantId;
use postrider_store::ReplayJob;
use tokio::sync::mpsc;

use crate::core::{Command, OnReplay};
use crate::handle::{CommandError, EngineHandle, Shared};
use crate::upkeep::pause;

/// Between two tries to keep a job that the quotas or the store refused.
const AGAIN: Duration = Duration::from_secs(5);

/// Keeps the jobs that the core asks for, until the engine has ended. It holds no handle while it waits:
/// an engine ends when nobody has one any more.
pub(crate) async fn keep(engine: Weak<Shared>, mut jobs: mpsc::UnboundedReceiver<ReplayJob>) {
    let mut pending: VecDeque<ReplayJob> = VecDeque::new();
    loop {
        if pending.is_empty() {
            let Some(job) = jobs.recv().await else { return };
            pending.push_back(job);
        }
        while let Ok(job) = jobs.try_recv() {
            pending.push_back(job);
        }
        let running = engine.upgrade().filter(|shared| shared.ended.borrow().is_none());
        let Some(shared) = running else { return };
        keep_some(&EngineHandle { shared }, &mut pending).await;
        if !pending.is_empty() {
            pause(AGAIN).await;
        }
    }
}

/// Keeps those that may be kept now. A tenant that may have no more is tried once.
async fn keep_some(engine: &EngineHandle, pending: &mut VecDeque<ReplayJob>) {
    let mut full: HashSet<TenantId> = HashSet::new();
    for _ in 0..pending.len() {
        let Some(job) = pending.pop_front() else { return };
        if full.contains(&job.tenant) {
            pending.push_back(job);
            continue;
        }
        match keep_one(engine, &job).await {
            Ok(kept) => {
                let Some(destination) = job.filter.destination else { continue };
                let (id, job) = (job.id, kept.map(Box::new));
                let counted = OnReplay::DeadCounted { destination, id, job };
                // Sending fails only after the engine has shut down.
                drop(engine.tell(Command::OnReplay(counted)));
            }
            Err(_) => {
                full.insert(job.tenant.clone());
                pending.push_back(job);
            }
        }
    }
}

/// Keeps one; `None` where nothing is to be replayed.
async fn keep_one(
    engine: &EngineHandle,
    job: &ReplayJob,
) -> Result<Option<ReplayJob>, CommandError> {
    let store = &engine.shared.store;
    let total = store.count_replayable(&job.tenant, &job.filter).await?;
    if total == 0 {
        return Ok(None);
    }
    let job = ReplayJob { total, ..job.clone() };
    let _one_at_a_time = engine.shared.ingest.backlog.admitting.lock().await;
    engine.admit_replay(&job.tenant, true).await?;
    store.put_replay(&job).await?;
    Ok(Some(job))
}
