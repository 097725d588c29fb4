//! Giving shards away without a trace: nothing new is sent in them, what is in flight ends and is
//! settled, and only when all of that is durable are they given back. So the node that gets them sends
//! nothing that was sent here.

use postrider_domain::ids::Shard;
use postrider_store::ShardSet;

use super::commits::Ack;
use super::probe::ProbeStage;
use super::queue::DestIx;
use super::{Action, Core};

/// Shards that another node should have.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    shards: ShardSet,
    /// Which decision of the store this is: one that was overtaken must not be acted on.
    decision: u64,
    /// Destinations in them that have something under way.
    busy: Vec<DestIx>,
    /// Whether nothing is under way any more, but for what becomes durable.
    is_through: bool,
}

impl Core {
    /// Another node should have these shards, and no others that were to leave before.
    pub(super) fn leave(&mut self, shards: ShardSet, decision: u64) {
        if decision == self.leaving.decision {
            return;
        }
        let before = std::mem::take(&mut self.leaving).shards;
        let in_shards = |core: &Core, set: &ShardSet, ix: DestIx| {
            let dest = &core.dests[ix.get()];
            !dest.lost && set.has(dest.record.id.shard())
        };
        let all = || (0..self.dests.len()).map(DestIx::new);
        let busy = all().filter(|ix| in_shards(self, &shards, *ix)).collect();
        let stays = |ix: &DestIx| in_shards(self, &before, *ix) && !in_shards(self, &shards, *ix);
        let staying: Vec<DestIx> = all().filter(stays).collect();
        self.leaving = Leaving { shards, decision, busy, is_through: false };
        // Whoever was to get them is gone: they go on here.
        for ix in staying {
            self.activate(ix);
            self.probe_when_overdue(ix);
        }
    }

    /// Whether nothing new may be begun in a shard, because another node is to have it.
    pub(super) fn is_leaving(&self, shard: Shard) -> bool {
        self.leaving.shards.has(shard)
    }

    /// Gives the shards back as soon as everything that was under way in them is durable.
    pub(super) fn look_at_leaving(&mut self) {
        if self.leaving.is_through || self.leaving.shards.is_empty() {
            return;
        }
        let dests = &self.dests;
        self.leaving.busy.retain(|ix| {
            let dest = &dests[ix.get()];
            !dest.lost && (dest.in_flight > 0 || matches!(dest.probe, ProbeStage::Chosen(_)))
        });
        if self.leaving.busy.is_empty() {
            self.leaving.is_through = true;
            self.commits.when_durable(Ack::Left(self.leaving.decision));
        }
    }

    /// Everything is durable that was under way when this was decided.
    pub(super) fn left(&mut self, decision: u64) {
        if decision == self.leaving.decision {
            self.actions.push(Action::GiveBack(decision));
        }
    }
}
