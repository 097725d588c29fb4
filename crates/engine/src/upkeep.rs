//! Tasks beside the lanes: pruning, renewing leases, and sending operational events. Also the only
//! place that sleeps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::destination::Destination;
use postrider_domain::event::Event;
use postrider_domain::ids::{EventId, Shard, TenantId};
use postrider_domain::limits::ATTEMPT_HOURS_KEPT;
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::{Epoch, ReplayJob, ShardLeases, ShardSet, Store, StoreError};
use postrider_transport::{Clock, pause};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::instant;
use crate::core::{Command, Input, RenewedLeases};
use crate::ingest::{Ingest, NewEvent};
use crate::live::{EngineEvent, operational};
use crate::options::Options;

/// Starts the tasks that run beside the core.
pub(crate) fn begin(
    tasks: &mut JoinSet<()>,
    (happened, ingest): (mpsc::Receiver<EngineEvent>, &Arc<Ingest>),
    (store, clock): (&Arc<dyn Store>, &Arc<dyn Clock>),
    policy: &watch::Sender<Arc<Policy>>,
    options: &Options,
) {
    tasks.spawn(tell_tenants(happened, Arc::clone(ingest), options.clone()));
    tasks.spawn(follow_ingest(Arc::clone(ingest)));
    let (store, clock) = (Arc::clone(store), Arc::clone(clock));
    tasks.spawn(prune(store, clock, policy.subscribe(), options.prune_every));
}

/// The longest wait from the start to the first round of pruning, and of removing unused
/// destinations. With the full interval, a server that restarts more often than that would never do
/// it.
pub(crate) const FIRST_PRUNE_AFTER_MAX: Duration = Duration::from_secs(10);

/// Prunes finished deliveries after the retention time, and old statistics: soon after the start,
/// then at intervals.
async fn prune(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    policy: watch::Receiver<Arc<Policy>>,
    every: Duration,
) {
    let mut wait = every.min(FIRST_PRUNE_AFTER_MAX);
    loop {
        pause(wait).await;
        wait = every;
        let keep = policy.borrow().retention.finished;
        let before = clock.now().saturating_sub(keep);
        // After an error, pruning continues the next time.
        while let Ok(pruned) = store.prune(before).await {
            if pruned.events == 0 && pruned.deliveries == 0 && pruned.attempts == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        // Statistics are kept for a time of their own. After an error, they are forgotten the next time.
        drop(store.forget_attempt_hours(clock.now().saturating_sub(ATTEMPT_HOURS_KEPT)).await);
    }
}

/// Messages of the core to the task that renews the leases.
#[derive(Debug)]
pub(crate) enum ToLeaseHolder {
    /// Renew the leases; the core has dropped its state of these shards, so read them again.
    Renew(ShardLeases),
    /// Nothing is in flight any more in the shards of this decision.
    GiveBack(u64),
}

/// Renews the leases at intervals.
pub(crate) struct LeaseHolder {
    store: Arc<dyn Store>,
    inputs: mpsc::UnboundedSender<Input>,
    /// The leases that the core knows.
    held: ShardLeases,
    every: Duration,
    handover: HandoverDecision,
    told: mpsc::UnboundedReceiver<ToLeaseHolder>,
}

/// Shards to hand over to another node. They are given back after the core has settled its attempts
/// there.
#[derive(Default)]
struct HandoverDecision {
    shards: ShardSet,
    /// Incremented whenever the set of shards changes.
    decision: u64,
    /// When the shards are given back in any case.
    until: Option<Instant>,
    /// Whether the core has nothing in flight in the shards any more.
    is_through: bool,
}

/// Treat a lease as expired one tenth early.
const LEASE_MARGIN: u32 = 10;

impl LeaseHolder {
    /// Starts with the current leases.
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        inputs: &mpsc::UnboundedSender<Input>,
        held: ShardLeases,
        every: Duration,
        told: mpsc::UnboundedReceiver<ToLeaseHolder>,
    ) -> LeaseHolder {
        let every = store.lease().map_or(every, |lease| lease / 4);
        let handover = HandoverDecision::default();
        LeaseHolder {
            store: Arc::clone(store),
            inputs: inputs.clone(),
            held,
            every,
            handover,
            told,
        }
    }

    /// Until when the leases are valid, if they were requested at `asked`.
    pub(crate) fn until(store: &dyn Store, asked: Instant) -> Option<Instant> {
        store.lease().map(|lease| asked + (lease - lease / LEASE_MARGIN))
    }

    /// Renews the leases and informs the core, until the store has stopped.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::select! {
                biased;
                Some(told) = self.told.recv() => {
                    self.hear(told);
                    while let Ok(told) = self.told.try_recv() {
                        self.hear(told);
                    }
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

    fn hear(&mut self, told: ToLeaseHolder) {
        match told {
            ToLeaseHolder::Renew(forgotten) => {
                self.held.shards.retain(|held| !forgotten.shards.contains(held));
            }
            // An outdated decision is about other shards.
            ToLeaseHolder::GiveBack(decision) => {
                self.handover.is_through |= decision == self.handover.decision;
            }
        }
    }

    async fn hold(&mut self) -> Result<(), StoreError> {
        self.give_back().await?;
        let asked = instant();
        let (leases, to_give_back) = self.store.hold_and_keep().await?;
        let until = LeaseHolder::until(&*self.store, asked);
        if until.is_none() && leases == self.held && to_give_back == self.handover.shards {
            return Ok(());
        }
        self.decide(to_give_back, asked);
        let is_kept = |&(shard, epoch): &(Shard, Epoch)| self.held.epoch(shard) == Some(epoch);
        let (kept, new): (Vec<_>, Vec<_>) = leases.shards.iter().copied().partition(is_kept);
        // Inform the core of the kept shards at once, however long reading the new ones takes.
        self.held = ShardLeases { shards: kept };
        self.tell(self.held.clone(), Vec::new(), Vec::new(), until);
        if new.is_empty() {
            return Ok(());
        }
        let new = ShardLeases { shards: new };
        let gained = self.store.held_destinations(&new).await?;
        let mut jobs = self.store.running_replays().await?;
        jobs.retain(|job| new.has(job.shard()));
        self.held = leases;
        self.tell(self.held.clone(), gained, jobs, until);
        Ok(())
    }

    /// Gives back the shards to hand over, if nothing is in flight there or the wait was long
    /// enough: the next owner must not wait for a slow receiver.
    async fn give_back(&mut self) -> Result<(), StoreError> {
        let is_late = self.handover.until.is_some_and(|until| instant() >= until);
        if !self.handover.shards.is_empty() && (self.handover.is_through || is_late) {
            self.store.give_back(&self.handover.shards).await?;
        }
        Ok(())
    }

    fn decide(&mut self, shards: ShardSet, asked: Instant) {
        if shards != self.handover.shards {
            let until = self.store.lease().map(|lease| asked + lease / 4 * 3);
            let decision = self.handover.decision + 1;
            self.handover = HandoverDecision { shards, decision, until, is_through: false };
        }
    }

    fn tell(
        &self,
        leases: ShardLeases,
        gained: Vec<Destination>,
        jobs: Vec<ReplayJob>,
        until: Option<Instant>,
    ) {
        let to_give_back = (self.handover.shards, self.handover.decision);
        let renewed = RenewedLeases { leases, gained, jobs, until, to_give_back };
        // Sending fails only after the engine has shut down.
        drop(self.inputs.send(Input::Command(Command::Leases(Box::new(renewed)))));
    }
}

/// Sends operational events to tenants and to the operator, if a subscription wants them.
async fn tell_tenants(
    mut happened: mpsc::Receiver<EngineEvent>,
    ingest: Arc<Ingest>,
    options: Options,
) {
    let mut events = Vec::new();
    loop {
        tokio::select! {
            biased;
            received = happened.recv_many(&mut events, options.page.clamp(1, 1000)) => {
                if received == 0 {
                    return;
                }
            }
            () = pause(FLUSH_EVERY), if ingest.notices.are_pending() => {}
        }
        let now = ingest.clock.now();
        ingest.notices.flush(now);
        let mut by_tenant: BTreeMap<TenantId, Vec<NewEvent>> = BTreeMap::new();
        for event in events.drain(..) {
            let Some((owner, event)) = operational(&event, now) else { continue };
            let operator =
                options.operator_tenant.clone().filter(|one| owner.as_ref() != Some(one));
            for tenant in owner.into_iter().chain(operator) {
                if is_wanted(&ingest, &tenant, &event, now).await {
                    by_tenant.entry(tenant).or_default().push(event.clone());
                }
            }
        }
        for (tenant, events) in by_tenant {
            // If the store fails, the event is lost; the timeline and the log still have the
            // information.
            drop(ingest.accept(&tenant, events).await);
        }
    }
}

/// How often pending notices are checked.
const FLUSH_EVERY: Duration = Duration::from_secs(10 * 60);

/// Keeps the counts of unfinished deliveries up to date.
async fn follow_ingest(ingest: Arc<Ingest>) {
    ingest.follow_backlog().await;
}

/// Whether any subscription wants this event; otherwise it is not stored.
async fn is_wanted(ingest: &Ingest, tenant: &TenantId, event: &NewEvent, now: Timestamp) -> bool {
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
    let matched = ingest.matched(tenant, &[Arc::new(event)]).await;
    matched.is_ok_and(|matched| matched.iter().any(|one| !one.subscriptions.is_empty()))
}
