//! Changes that are not durable yet: batches that are written in order, one at a time.
//!
//! A change is effective in memory at once. While one commit is written, the next one collects
//! changes. Changed deliveries are remembered as dirty, so that a read of the store never brings
//! back an older state.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{Delivery, DeliveryState, Lane};
use postrider_domain::destination::Destination;
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, Shard, SubscriptionId, TenantId};
use postrider_domain::trace::TraceContext;
use postrider_store::{
    Commit, DeliveryChange, DestinationChange, Epoch, ReplayJob, ShardLeases, ShardSet,
};

use super::destinations::{DestIx, LoadId};
use super::ids::IdMap;
use super::messages::Reply;
use crate::handle::CommandError;
use crate::options::Options;

/// What to do when a batch is durable.
pub(super) enum Ack {
    /// Send a probe.
    Probe(DeliveryId),
    /// Answer a command on this destination: with `true` if it is done, with `false` if another
    /// node owns the destination now and nothing was changed.
    Answer(DestinationId, Box<dyn FnOnce(bool) + Send>),
    /// Continue a replay job.
    Replay(ReplayId),
    /// Read the next unfinished deliveries of a deleted subscription: the cancelled ones are no
    /// longer in the result.
    Unfinished(TenantId, SubscriptionId),
    /// Store a replay job that somebody changed.
    PutReplay(Box<ReplayJob>, Reply<ReplayJob>),
    /// Read a lane from the store again: deliveries that are handled already are no longer in the
    /// result.
    ReadBack(DestIx, Lane),
    /// Give back the shards of this decision.
    GiveBack(u64),
}

/// All changes that are not durable yet.
pub(super) struct Commits {
    batches: VecDeque<Batch>,
    under_way: bool,
    /// The leases when the last commit began.
    leases: Arc<ShardLeases>,
    next_number: u64,
    dirty: IdMap<DeliveryId, Dirty>,
    /// Durable deliveries, but a read that began before may still return their old state.
    released: VecDeque<(u64, u64, Vec<DeliveryId>)>,
    /// Destinations of which read rows are kept in memory, with the deliveries that changed since
    /// the read.
    watched: HashMap<DestinationId, HashSet<DeliveryId>>,
    unpersisted: usize,
    changes_max: usize,
    pause: Duration,
    pause_min: Duration,
    pause_max: Duration,
}

/// Changes that are written in one commit.
#[derive(Default)]
struct Batch {
    number: u64,
    commit: Commit,
    circuits: HashMap<DestIx, usize>,
    acks: Vec<Ack>,
    sealed: bool,
}

struct Dirty {
    batch: u64,
    delivery: Delivery,
}

impl Commits {
    pub(super) fn new(options: &Options) -> Self {
        Commits {
            batches: VecDeque::new(),
            under_way: false,
            leases: Arc::default(),
            next_number: 0,
            dirty: IdMap::default(),
            released: VecDeque::new(),
            watched: HashMap::new(),
            unpersisted: 0,
            changes_max: options.commit_changes_max.max(1),
            pause: options.store_retry_min,
            pause_min: options.store_retry_min,
            pause_max: options.store_retry_max,
        }
    }

    pub(super) fn unpersisted(&self) -> usize {
        self.unpersisted
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Whether changes of a destination are not durable yet.
    pub(super) fn has(&self, ix: DestIx, id: DestinationId) -> bool {
        self.batches.iter().any(|batch| {
            batch.commit.destinations.iter().any(|change| change.id == id)
                || batch.acks.iter().any(|ack| matches!(ack, Ack::ReadBack(of, _) if *of == ix))
        })
    }

    pub(super) fn is_dirty(&self, id: DeliveryId) -> bool {
        self.dirty.contains_key(&id)
    }

    /// The current state of a delivery, if it is newer than the store's.
    pub(super) fn dirty(&self, id: DeliveryId) -> Option<&Delivery> {
        self.dirty.get(&id).map(|dirty| &dirty.delivery)
    }

    pub(super) fn dirty_of(&self, destination: DestinationId) -> Vec<Delivery> {
        let all = self.dirty.values().map(|dirty| &dirty.delivery);
        all.filter(|delivery| delivery.destination == destination).cloned().collect()
    }

    /// How many deliveries of a destination have changes that are not durable yet.
    pub(super) fn dirty_count(&self, destination: DestinationId) -> usize {
        self.dirty.values().filter(|dirty| dirty.delivery.destination == destination).count()
    }

    /// Every waiting delivery whose state is newer than the store's.
    pub(super) fn dirty_waiting(&self) -> Vec<Delivery> {
        let all = self.dirty.values().map(|dirty| &dirty.delivery);
        all.filter(|delivery| matches!(delivery.state, DeliveryState::Waiting(_)))
            .cloned()
            .collect()
    }

    /// Registers what to do when all changes so far are durable.
    pub(super) fn when_durable(&mut self, ack: Ack) {
        self.open().acks.push(ack);
    }

    /// The batch that collects changes.
    fn open(&mut self) -> &mut Batch {
        if self.batches.back().is_none_or(|batch| batch.sealed) {
            let number = self.next_number;
            self.next_number += 1;
            self.batches.push_back(Batch { number, ..Batch::default() });
        }
        let last = self.batches.len() - 1;
        &mut self.batches[last]
    }

    /// The epoch of a shard when the last commit began.
    pub(super) fn epoch(&self, shard: Shard) -> Option<Epoch> {
        self.leases.epoch(shard)
    }

    /// The shards that the first commit touches.
    pub(super) fn touched(&self) -> ShardSet {
        let Some(Batch { commit, .. }) = self.batches.front() else { return ShardSet::default() };
        let of_deliveries = commit.deliveries.iter().map(|change| change.delivery.destination);
        let ids = of_deliveries.chain(commit.destinations.iter().map(|change| change.id));
        ids.map(|id| id.shard()).chain(commit.replay.iter().map(ReplayJob::shard)).collect()
    }

    fn release(&mut self, batch: u64, ids: &[DeliveryId]) {
        for id in ids {
            if self.dirty.get(id).is_some_and(|dirty| dirty.batch == batch) {
                self.dirty.remove(id);
            }
        }
    }

    /// All reads that began before read `oldest` have ended.
    pub(super) fn reads_ended(&mut self, oldest: u64) {
        while let Some((barrier, batch, ids)) = self.released.pop_front() {
            if barrier > oldest {
                self.released.push_front((barrier, batch, ids));
                return;
            }
            self.release(batch, &ids);
        }
    }

    /// Adds the change of a delivery that was as `before`.
    pub(super) fn delivery(
        &mut self,
        before: &Delivery,
        delivery: Delivery,
        attempt: Option<Attempt>,
    ) {
        if !self.watched.is_empty()
            && let Some(changed) = self.watched.get_mut(&delivery.destination)
        {
            changed.insert(delivery.id);
        }
        let max = self.changes_max;
        let batch = self.open();
        let (number, is_full) = (batch.number, batch.commit.deliveries.len() >= max);
        let is_here = |dirty: &Dirty| dirty.batch == number;
        // A commit has at most one change of a delivery, so the store need not order them.
        if is_full || self.dirty.get(&delivery.id).is_some_and(is_here) {
            self.seal();
        }
        let batch = self.open();
        let dirty = Dirty { batch: batch.number, delivery: delivery.clone() };
        batch.commit.deliveries.push(DeliveryChange::of(before, delivery, attempt));
        self.unpersisted += 1;
        self.dirty.insert(dirty.delivery.id, dirty);
    }

    /// Adds the trace of a change that was just added, for the log.
    pub(super) fn trace(&mut self, delivery: DeliveryId, context: TraceContext) {
        self.open().commit.traces.push((delivery, context));
    }

    /// Adds the change of a destination's circuit.
    pub(super) fn circuit(
        &mut self,
        ix: DestIx,
        record: &Destination,
        transition: Option<Transition>,
    ) {
        let batch = self.open();
        let at = *batch.circuits.entry(ix).or_insert_with(|| {
            batch.commit.destinations.push(DestinationChange {
                tenant: record.tenant.clone(),
                id: record.id,
                circuit: record.circuit.clone(),
                transitions: Vec::new(),
            });
            batch.commit.destinations.len() - 1
        });
        let change = &mut batch.commit.destinations[at];
        change.circuit.clone_from(&record.circuit);
        change.transitions.extend(transition);
    }

    /// Adds the progress of a replay job to the current batch.
    pub(super) fn replay(&mut self, job: ReplayJob) {
        if self.open().commit.replay.is_some() {
            self.seal();
        }
        self.open().commit.replay = Some(job);
    }

    /// Begins a new batch if this one has too many circuits. Never between an attempt and its
    /// circuit: a settlement is one write.
    pub(super) fn seal_when_full(&mut self) {
        let max = self.changes_max;
        if self.open().commit.destinations.len() >= max {
            self.seal();
        }
    }

    /// Closes the current batch: later changes go into another one.
    pub(super) fn seal(&mut self) {
        if let Some(batch) = self.batches.back_mut() {
            batch.sealed = true;
        }
    }

    /// Answers a command when all changes so far are durable.
    pub(super) fn answer_when_durable<T: Send + 'static>(
        &mut self,
        destination: DestinationId,
        reply: Reply<T>,
        answer: T,
    ) {
        // The caller may have gone away.
        let answer = Box::new(move |is_done| {
            drop(reply.send(if is_done { Ok(answer) } else { Err(CommandError::Moved) }));
        });
        self.when_durable(Ack::Answer(destination, answer));
    }

    /// The next commit, if there are changes and no commit is running.
    pub(super) fn begin(&mut self, leases: &Arc<ShardLeases>) -> Option<Commit> {
        if self.under_way {
            return None;
        }
        let batch = self.batches.front_mut()?;
        batch.sealed = true;
        self.under_way = true;
        self.leases = Arc::clone(leases);
        Some(batch.commit.clone())
    }

    /// The running commit has ended, successfully or not.
    pub(super) fn ended(&mut self) {
        self.under_way = false;
    }

    /// The first commit is durable; returns what to do now. A read that began before `barrier` may
    /// still return the old state of its deliveries.
    pub(super) fn durable(&mut self, barrier: Option<LoadId>) -> Vec<Ack> {
        let Some(batch) = self.batches.pop_front() else { return Vec::new() };
        self.pause = self.pause_min;
        let ids: Vec<DeliveryId> =
            batch.commit.deliveries.iter().map(|change| change.delivery.id).collect();
        self.unpersisted -= ids.len();
        match barrier {
            None => self.release(batch.number, &ids),
            Some(barrier) => self.released.push_back((barrier, batch.number, ids)),
        }
        batch.acks
    }

    /// The pause before a failed commit is tried again: longer each time.
    pub(super) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.pause_max);
        pause
    }

    /// Drops all changes of destinations that another node owns now.
    pub(super) fn drop_shards(&mut self, lost: &ShardSet) {
        let is_lost = |id: DestinationId| lost.has(id.shard());
        for batch in &mut self.batches {
            let (gone, kept) = std::mem::take(&mut batch.acks).into_iter().partition(
                |ack| matches!(ack, Ack::Answer(destination, _) if is_lost(*destination)),
            );
            batch.acks = kept;
            let gone: Vec<Ack> = gone;
            for ack in gone {
                if let Ack::Answer(_, answer) = ack {
                    answer(false);
                }
            }
            batch.commit.replay.take_if(|job| lost.has(job.shard()));
            batch.circuits.clear();
            batch.sealed = true;
            batch.commit.destinations.retain(|change| !is_lost(change.id));
            let before = batch.commit.deliveries.len();
            batch.commit.deliveries.retain(|change| !is_lost(change.delivery.destination));
            self.unpersisted -= before - batch.commit.deliveries.len();
        }
        self.dirty.retain(|_, dirty| !is_lost(dirty.delivery.destination));
    }

    /// Starts to record which deliveries of a destination change: rows that were read before are
    /// then outdated.
    pub(super) fn watch(&mut self, destination: DestinationId) {
        self.watched.insert(destination, HashSet::new());
    }

    /// Whether a delivery has changed since its destination is watched.
    pub(super) fn has_changed(&self, destination: DestinationId, id: DeliveryId) -> bool {
        self.watched.get(&destination).is_some_and(|changed| changed.contains(&id))
    }

    pub(super) fn unwatch(&mut self, destination: DestinationId) {
        self.watched.remove(&destination);
    }
}
