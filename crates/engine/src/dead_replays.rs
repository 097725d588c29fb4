//! Replays the dead deliveries of an outage when it is over, if the policy says so.
//!
//! When a destination has recovered, the core sends a replay job for its dead deliveries. This task
//! counts these deliveries and stores the job, as soon as the limits of such jobs allow one more.
//! Until then the circuit keeps the start of the outage, so neither a crash nor a full quota loses
//! the replay.

use std::collections::{HashSet, VecDeque};
use std::sync::Weak;
use std::time::Duration;

use postrider_domain::ids::TenantId;
use postrider_store::ReplayJob;
use postrider_transport::pause;
use tokio::sync::mpsc;

use crate::core::{Command, OnReplay};
use crate::handle::{CommandError, EngineHandle, Shared};
use crate::quotas::StartedBy;

/// The pause before another try to store a job that the quotas or the store refused.
const AGAIN: Duration = Duration::from_secs(5);

/// Stores the jobs that the core sends, until the engine has shut down. It holds no engine handle
/// while it waits, because the engine shuts down only when the last handle is dropped.
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

/// Stores the jobs that the quotas allow now. After a tenant's job was refused, its other jobs are
/// not tried in this round.
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

/// Counts the deliveries of a job and stores the job; `None` if there is nothing to replay, or
/// if the job runs already. A job that is stored already is returned as it is: a crash came before
/// the circuit forgot the outage.
async fn keep_one(
    engine: &EngineHandle,
    job: &ReplayJob,
) -> Result<Option<ReplayJob>, CommandError> {
    let store = &engine.shared.store;
    // Ask before the read: what the store says of a job that runs is out of date.
    let runs = |reply| Command::OnReplay(OnReplay::IsRunning { id: job.id, reply });
    if engine.ask(runs).await? {
        return Ok(None);
    }
    if let Some(stored) = store.replay(&job.tenant, job.id).await? {
        return Ok(Some(stored));
    }
    let total = store.count_replayable(&job.tenant, &job.filter).await?;
    if total == 0 {
        return Ok(None);
    }
    let job = ReplayJob { total, ..job.clone() };
    let _one_at_a_time = engine.shared.ingest.backlog.admitting.lock().await;
    engine.admit_replay(&job.tenant, StartedBy::Itself, true).await?;
    store.put_replay(&job).await?;
    Ok(Some(job))
}
