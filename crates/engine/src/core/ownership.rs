//! Which shards this node owns. State of a shard that another node owns is dropped at once: nothing
//! of it is sent or settled.
//!
//! A hand-over sends nothing twice: the node starts nothing new in the shards, waits until the
//! attempts in flight are settled and durable, and only then gives the shards back.

use std::sync::Arc;

use postrider_domain::ids::{DestinationId, Shard};
use postrider_domain::time::Timestamp;
use postrider_store::{ShardLeases, ShardSet};
use tokio::time::Instant;

use super::alarms::Alarm;
use super::commits::Ack;
use super::destinations::{Dest, DestIx, ProbeStage};
use super::messages::{Action, RenewedLeases};
use super::state::Core;
use crate::handle::CommandError;

impl Core {
    /// Drops the state of shards that this node no longer owns.
    fn lose(&mut self, shards: &ShardSet) {
        let mut leases = ShardLeases::clone(self.shards.leases());
        leases.shards.retain(|(held, _)| !shards.has(*held));
        self.shards.set_leases(leases);
        let is_lost = |dest: &Dest| !dest.lost && shards.has(dest.record.id.shard());
        let lost = self.table.dests.iter().filter(|(_, dest)| is_lost(dest));
        let lost: Vec<DestIx> = lost.map(|(ix, _)| ix).collect();
        for &ix in &lost {
            self.stop_ramp(ix);
            let dest = &mut self.table.dests[ix.get()];
            dest.lost = true;
            // Nothing more of this destination is read from the store.
            (dest.first.spilled, dest.retry.spilled) = (false, false);
            self.table.lose_dest(ix);
            for alarm in [Alarm::Probe(ix), Alarm::Freeze(ix), Alarm::Tokens(ix)] {
                self.alarms.clear(alarm);
            }
        }
        let entries = self.table.entries.iter();
        let ids: Vec<_> = entries
            .filter(|(_, entry)| self.table.dests[entry.dest.get()].lost)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            // A delivery in flight stays until its attempt has ended.
            self.take_out(id);
        }
        for &ix in &lost {
            let dest = &mut self.table.dests[ix.get()];
            for queue in [&mut dest.first, &mut dest.retry] {
                queue.ids = std::collections::VecDeque::new();
                queue.len = 0;
            }
        }
        for lookup in self.end_lookups_in(shards) {
            lookup.commands.into_iter().for_each(|one| one.refuse(CommandError::Moved));
            self.jobs_continue(lookup.jobs);
        }
        self.lose_jobs(shards);
        self.commits.drop_shards(shards);
    }

    /// The store refused a settlement in a shard: another node owns it, or the lease has ended.
    pub(super) fn fenced(&mut self, shard: Shard) {
        let fenced = ShardSet::from_iter([shard]);
        match self.shards.epoch(shard) {
            None => self.commits.drop_shards(&fenced),
            // The shard was lost and taken again meanwhile: its old state is dropped already.
            Some(epoch) if self.commits.epoch(shard) != Some(epoch) => {}
            Some(_) if !self.shards.are_shared() => self.lose(&fenced),
            Some(_) => {
                // Renewing the leases tells which of the two it is. If nobody else had the shard, work continues.
                self.shards.doubt();
                self.actions.push(Action::RenewLeases(ShardLeases::default()));
            }
        }
    }

    /// Drops the state of these shards, which differs from the store, and renews the leases.
    pub(super) fn lose_and_renew(&mut self, lost: &ShardSet) {
        let mut known = ShardLeases::clone(self.shards.leases());
        known.shards.retain(|(shard, _)| lost.has(*shard));
        self.lose(lost);
        self.actions.push(Action::RenewLeases(known));
    }

    /// Applies renewed leases, with the destinations and jobs of newly owned shards.
    pub(super) fn take_leases(&mut self, renewed: RenewedLeases) {
        let RenewedLeases { leases, gained, jobs, until, to_give_back } = renewed;
        let before = Arc::clone(self.shards.leases());
        let is_lost = |(shard, epoch): &&(_, _)| leases.epoch(*shard) != Some(*epoch);
        let lost: ShardSet =
            before.shards.iter().filter(is_lost).map(|(shard, _)| *shard).collect();
        if !lost.is_empty() {
            self.lose(&lost);
        }
        let is_new = |(shard, _): &(_, _)| self.shards.epoch(*shard).is_none();
        let new: Vec<Shard> =
            leases.shards.iter().filter(|held| is_new(held)).map(|(shard, _)| *shard).collect();
        self.shards.own_since(&new, self.reads.next());
        self.shards.set_leases(leases);
        self.shards.renewed(until);
        for record in gained {
            let rate = self.directory.rate_limit(&record.tenant, record.id);
            self.add_destination(record, rate);
        }
        for job in jobs {
            if !self.jobs.has(job.id) {
                self.run_job(job);
            }
        }
        if !new.is_empty() {
            // Read all queued deliveries again, to find those of the new shards.
            self.begin_backlog();
            self.window.forget_mark();
        }
        self.set_shards_to_give_back(to_give_back.0, to_give_back.1);
    }

    /// Another node may have accepted deliveries for shards of this node: reads them.
    pub(super) fn look_for_work(&mut self, shards: &ShardSet, since: Timestamp) {
        if self.shards.leases().shards.iter().any(|(shard, _)| shards.has(*shard)) {
            self.scan_from(since);
        }
    }

    /// Sets the shards to hand over; it replaces an earlier decision.
    fn set_shards_to_give_back(&mut self, shards: ShardSet, decision: u64) {
        let Some(before) = self.shards.replace_shards_to_give_back(shards, decision) else {
            return;
        };
        self.shards.give_back_after(self.known_in(&shards));
        let mut staying = self.known_in(&before);
        staying.retain(|id| !shards.has(id.shard()));
        // The node that was to get these shards has left: their destinations continue here.
        for id in staying {
            if let Some(ix) = self.table.dest_ix(id) {
                self.activate(ix);
                self.probe_when_overdue(ix);
            }
        }
    }

    /// The destinations of these shards in memory, in a deterministic order.
    fn known_in(&self, shards: &ShardSet) -> Vec<DestinationId> {
        let all = self.table.dest_ids();
        let mut known: Vec<_> = all.filter(|id| shards.has(id.shard())).collect();
        known.sort_unstable();
        known
    }

    /// Gives the shards back as soon as everything in flight there is settled and durable.
    pub(super) fn give_back_when_settled(&mut self) {
        let table = &self.table;
        let is_busy = |id| {
            table.dest_ix(id).is_some_and(|ix| {
                let dest = &table.dests[ix.get()];
                dest.in_flight > 0 || matches!(dest.probe, ProbeStage::Chosen(_))
            })
        };
        if let Some(decision) = self.shards.settled(is_busy) {
            self.commits.when_durable(Ack::GiveBack(decision));
        }
    }

    /// Everything that was in flight at this decision is durable: gives the shards back.
    pub(super) fn give_back(&mut self, decision: u64) {
        if self.shards.is_current(decision) {
            self.actions.push(Action::GiveBack(decision));
        }
    }

    /// The leases of this node.
    pub(crate) fn leases(&self) -> Arc<ShardLeases> {
        Arc::clone(self.shards.leases())
    }

    /// The leases are valid until this time; `None` if no other node could take the shards.
    pub(crate) fn leases_valid_until(&mut self, until: Option<Instant>) {
        self.shards.renewed(until);
    }

    /// Updates whether the leases are valid.
    pub(crate) fn check_leases(&mut self, now: Instant) {
        self.shards.check_leases(now);
    }
}
