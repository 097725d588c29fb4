//! What goes on beside the lanes: removing what is too old, holding the shards, telling tenants of
//! what happened to their destinations. And the one place that waits for time to pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::destination::Destination;
use postrider_domain::event::Event;
use postrider_domain::ids::{EventId, Shard, TenantId};
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::{Epoch, Holding, ReplayJob, Store, StoreError};
use postrider_transport::Clock;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::cluster::instant;
use crate::core::{Command, Input};
use crate::ingest::{Ingest, NewEvent};
use crate::live::{EngineEvent, operational};
use crate::options::Options;

/// Waits for time to pass.
#[expect(clippy::disallowed_methods, reason = "the one place of the engine that waits for time")]
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Removes what has been finished for longer than it is kept, now and then.
pub(crate) async fn prune(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    policy: watch::Receiver<Arc<Policy>>,
    every: Duration,
) {
    loop {
        pause(every).await;
        let keep = policy.borrow().retention.finished;
        let before = clock.now().saturating_sub(keep);
        // What fails now is done the next time.
        while let Ok(pruned) = store.prune(before).await {
            if pruned.events == 0 && pruned.deliveries == 0 && pruned.attempts == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Holds the shards, again and again.
pub(crate) struct Holder {
    store: Arc<dyn Store>,
    inputs: mpsc::UnboundedSender<Input>,
    /// What the core knows.
    held: Holding,
    every: Duration,
    /// Shards that the core has forgotten.
    forgotten: mpsc::UnboundedReceiver<Holding>,
}

/// A lease is taken to end so much earlier than it does.
const LEASE_MARGIN: u32 = 10;

impl Holder {
    /// Holds on to what is held.
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        inputs: &mpsc::UnboundedSender<Input>,
        held: Holding,
        every: Duration,
        forgotten: mpsc::UnboundedReceiver<Holding>,
    ) -> Holder {
        let every = store.lease().map_or(every, |lease| lease / 4);
        Holder { store: Arc::clone(store), inputs: inputs.clone(), held, every, forgotten }
    }

    /// Until when the shards are surely ours, where they were asked for then.
    pub(crate) fn until(store: &dyn Store, asked: Instant) -> Option<Instant> {
        store.lease().map(|lease| asked + (lease - lease / LEASE_MARGIN))
    }

    /// Holds the shards and tells the core, until the store has stopped.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                Some(forgotten) = self.forgotten.recv() => {
                    self.held.shards.retain(|held| !forgotten.shards.contains(held));
                }
                () = pause(self.every) => {}
            }
            match self.hold().await {
                Ok(()) => {}
                Err(StoreError::Stopped(why)) => {
                    drop(self.inputs.send(Input::Command(Command::Stop { why })));
                    return;
                }
                // Without an answer the lease ends, and nothing is sent until there is one.
                Err(_) => {}
            }
        }
    }

    async fn hold(&mut self) -> Result<(), StoreError> {
        let asked = instant();
        let holding = self.store.hold_shards().await?;
        let until = Holder::until(&*self.store, asked);
        if until.is_none() && holding == self.held {
            return Ok(());
        }
        let is_kept = |&(shard, epoch): &(Shard, Epoch)| self.held.epoch(shard) == Some(epoch);
        let (kept, new): (Vec<_>, Vec<_>) = holding.shards.iter().copied().partition(is_kept);
        // What is kept goes on at once, whatever reading the rest takes.
        self.held = Holding { shards: kept };
        self.tell(self.held.clone(), Vec::new(), Vec::new(), until);
        if new.is_empty() {
            return Ok(());
        }
        let new = Holding { shards: new };
        let gained = self.store.held_destinations(&new).await?;
        let mut jobs = self.store.running_replays().await?;
        jobs.retain(|job| new.has(job.shard()));
        self.held = holding;
        self.tell(self.held.clone(), gained, jobs, until);
        Ok(())
    }

    fn tell(
        &self,
        holding: Holding,
        gained: Vec<Destination>,
        jobs: Vec<ReplayJob>,
        until: Option<Instant>,
    ) {
        let command = Command::Held { holding, gained, jobs, until };
        // Nobody takes it only where the engine has ended.
        drop(self.inputs.send(Input::Command(command)));
    }
}

/// Tells tenants, and the operator, of what happened, as ordinary events, where a subscription wants
/// them.
pub(crate) async fn tell_tenants(
    mut happened: mpsc::Receiver<EngineEvent>,
    ingest: Arc<Ingest>,
    options: Options,
) {
    let mut events = Vec::new();
    while happened.recv_many(&mut events, options.page.clamp(1, 1000)).await > 0 {
        let now = ingest.clock.now();
        let mut by_tenant: BTreeMap<TenantId, Vec<NewEvent>> = BTreeMap::new();
        for event in events.drain(..) {
            let Some((owner, event)) = operational(&event, now) else { continue };
            let operator =
                options.operator_tenant.clone().filter(|one| owner.as_ref() != Some(one));
            for tenant in owner.into_iter().chain(operator) {
                if is_wanted(&ingest, &tenant, &event, now) {
                    by_tenant.entry(tenant).or_default().push(event.clone());
                }
            }
        }
        for (tenant, events) in by_tenant {
            // A store that does not take it now: the timeline and the log have it all the same.
            drop(ingest.accept(&tenant, events).await);
        }
    }
}

/// Whether some subscription wants this; what nobody wants is not kept.
fn is_wanted(ingest: &Ingest, tenant: &TenantId, event: &NewEvent, now: Timestamp) -> bool {
    let event = Event {
        id: EventId::new(now, [0; 10]),
        tenant: tenant.clone(),
        kind: event.kind.clone(),
        object: None,
        data: event.data.clone(),
        old: None,
        time: now,
        trace: None,
    };
    !ingest.refresher.directory.matches(&event).is_empty()
}
