//! Which shards are ours. What another node owns now is forgotten at once; nothing of it is sent.

use std::sync::Arc;

use postrider_domain::destination::Destination;
use postrider_domain::ids::Shard;
use postrider_store::Holding;

use super::alarms::Alarm;
use super::queue::DestIx;
use super::state::Place;
use super::{Action, Core};

impl Core {
    /// The store says that a shard is not ours any more.
    pub(super) fn lose_shard(&mut self, shard: Shard) {
        let mut holding = Holding::clone(&self.holding);
        holding.shards.retain(|(held, _)| *held != shard);
        self.holding = Arc::new(holding);
        let lost: Vec<DestIx> = (0..self.dests.len())
            .map(DestIx::new)
            .filter(|ix| self.dests[ix.get()].record.id.shard() == shard)
            .collect();
        for &ix in &lost {
            let dest = &mut self.dests[ix.get()];
            dest.lost = true;
            self.dest_by_id.remove(&dest.record.id);
            self.stop_ramp(ix);
            for alarm in [Alarm::Probe(ix), Alarm::Freeze(ix), Alarm::Tokens(ix)] {
                self.alarms.clear(alarm);
            }
        }
        let ids: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| lost.contains(&entry.dest))
            .filter(|(_, entry)| !matches!(entry.place, Place::InFlight(_)))
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
            dest.first.len = 0;
            dest.retry.len = 0;
        }
        self.drop_changes(|destination| destination.shard() == shard);
    }

    /// The shards were held anew; these destinations came with shards that are new.
    pub(crate) fn hold(&mut self, holding: Holding, gained: Vec<Destination>) {
        let before = Arc::clone(&self.holding);
        for (shard, epoch) in &before.shards {
            if !holding.shards.contains(&(*shard, *epoch)) {
                self.lose_shard(*shard);
            }
        }
        self.holding = Arc::new(holding);
        if gained.is_empty() {
            return;
        }
        for record in gained {
            let rate = self.directory.rate_limit(&record.tenant, record.id);
            self.add_destination(record, rate);
        }
        // Everything of the new shards is to be found: read from the beginning.
        self.rescan();
    }

    fn rescan(&mut self) {
        self.begin_backlog();
        self.due.forget_mark();
    }

    /// Says that the engine cannot go on.
    pub(crate) fn stop(&mut self, why: String) {
        self.actions.push(Action::Stop(why));
    }
}
