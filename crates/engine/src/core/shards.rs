//! Which shards are ours. What another node owns now is forgotten at once; nothing of it is sent, and
//! nothing of it is settled.

use std::sync::Arc;

use postrider_domain::destination::Destination;
use postrider_domain::ids::Shard;
use postrider_domain::time::Timestamp;
use postrider_store::{Holding, ReplayJob, ShardSet};
use tokio::time::Instant;

use super::alarms::Alarm;
use super::queue::{Dest, DestIx};
use super::state::Place;
use super::{Action, Core};

impl Core {
    /// These shards are not ours any more.
    pub(super) fn lose(&mut self, shards: &ShardSet) {
        let mut holding = Holding::clone(&self.holding);
        holding.shards.retain(|(held, _)| !shards.has(*held));
        self.holding = Arc::new(holding);
        let is_lost = |dest: &Dest| !dest.lost && shards.has(dest.record.id.shard());
        let lost = self.dests.iter().filter(|(_, dest)| is_lost(dest));
        let lost: Vec<DestIx> = lost.map(|(ix, _)| ix).collect();
        for &ix in &lost {
            self.stop_ramp(ix);
            let dest = &mut self.dests[ix.get()];
            dest.lost = true;
            self.dest_by_id.remove(&dest.record.id);
            for alarm in [Alarm::Probe(ix), Alarm::Freeze(ix), Alarm::Tokens(ix)] {
                self.alarms.clear(alarm);
            }
        }
        let is_gone = |place| !matches!(place, Place::InFlight(_));
        let entries = self.entries.iter();
        let ids: Vec<_> = entries
            .filter(|(_, entry)| self.dests[entry.dest.get()].lost && is_gone(entry.place))
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            self.set_place(id, Place::Probe);
            if let Some(entry) = self.entries.remove(&id) {
                self.forget_payload(entry.event.as_deref());
            }
        }
        for &ix in &lost {
            let dest = &mut self.dests[ix.get()];
            for queue in [&mut dest.first, &mut dest.retry] {
                queue.ids = std::collections::VecDeque::new();
                queue.len = 0;
                queue.spilled = false;
            }
        }
        self.lose_findings(shards);
        self.lose_jobs(shards);
        self.drop_changes(shards);
    }

    /// The store refused to settle in a shard: another node owns it, or our lease has ended.
    pub(super) fn fenced(&mut self, shard: Shard) {
        let fenced = ShardSet::from_iter([shard]);
        match self.holding.epoch(shard) {
            None => self.drop_changes(&fenced),
            // Where it was lost and found meanwhile, what was lost is forgotten already.
            Some(epoch) if self.commits.epoch(shard) != Some(epoch) => {}
            Some(_) if self.held_until.is_none() => self.lose(&fenced),
            Some(_) => {
                // Holding the shards anew says which. Where nobody else had it, all goes on.
                self.is_doubted = true;
                self.actions.push(Action::HoldAnew(Holding::default()));
            }
        }
    }

    /// What is known of these shards is not how they are stored.
    pub(super) fn lose_and_hold_anew(&mut self, lost: &ShardSet) {
        let mut known = Holding::clone(&self.holding);
        known.shards.retain(|(shard, _)| lost.has(*shard));
        self.lose(lost);
        self.actions.push(Action::HoldAnew(known));
    }

    /// The shards were held anew, until then; these destinations and jobs came with shards that are
    /// new.
    pub(crate) fn hold(
        &mut self,
        holding: Holding,
        gained: Vec<Destination>,
        jobs: Vec<ReplayJob>,
        until: Option<Instant>,
    ) {
        let before = Arc::clone(&self.holding);
        let is_lost = |(shard, epoch): &&(_, _)| holding.epoch(*shard) != Some(*epoch);
        let lost: ShardSet =
            before.shards.iter().filter(is_lost).map(|(shard, _)| *shard).collect();
        if !lost.is_empty() {
            self.lose(&lost);
        }
        let is_new = |(shard, _): &(_, _)| self.holding.epoch(*shard).is_none();
        let new: Vec<Shard> =
            holding.shards.iter().filter(|held| is_new(held)).map(|(shard, _)| *shard).collect();
        self.held_since.extend(new.iter().map(|shard| (*shard, self.loads.next())));
        self.holding = Arc::new(holding);
        self.held_until = until;
        self.is_doubted = false;
        for record in gained {
            let rate = self.directory.rate_limit(&record.tenant, record.id);
            self.add_destination(record, rate);
        }
        for job in jobs {
            if !self.jobs.contains_key(&job.id) {
                self.run_job(job);
            }
        }
        if !new.is_empty() {
            // Everything of the new shards is to be found: read from the beginning.
            self.begin_backlog();
            self.due.forget_mark();
        }
    }

    /// Another node may have accepted something for us.
    pub(super) fn look_for_work(&mut self, shards: &ShardSet, since: Timestamp) {
        if self.holding.shards.iter().any(|(shard, _)| shards.has(*shard)) {
            self.scan_from(since);
        }
    }

    /// Says that the engine cannot go on.
    pub(crate) fn stop(&mut self, why: String) {
        self.actions.push(Action::Stop(why));
    }
}
