//! Giving shards away without a trace: nothing new is sent in them, what is in flight ends and is
//! settled, and only when all of that is durable are they given back. So the node that gets them sends
//! nothing that was sent here.

use postrider_domain::ids::{DestinationId, Shard};
use postrider_store::ShardSet;

use super::commits::Ack;
use super::probe::ProbeStage;
use super::{Action, Core};

/// Shards that another node should have.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    shards: ShardSet,
    /// Which decision of the store this is: one that was overtaken must not be acted on.
    decision: u64,
    /// Destinations in them that have something under way.
    busy: Vec<DestinationId>,
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
        let busy = self.known_in(&shards);
        let mut staying = self.known_in(&before);
        staying.retain(|id| !shards.has(id.shard()));
        self.leaving = Leaving { shards, decision, busy, is_through: false };
        // Whoever was to get them is gone: they go on here.
        for id in staying {
            if let Some(ix) = self.dest_ix(id) {
                self.activate(ix);
                self.probe_when_overdue(ix);
            }
        }
    }

    /// Destinations of these shards, in an order that does not depend on chance.
    fn known_in(&self, shards: &ShardSet) -> Vec<DestinationId> {
        let all = self.dest_by_id.keys().copied();
        let mut known: Vec<_> = all.filter(|id| shards.has(id.shard())).collect();
        known.sort_unstable();
        known
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
        let (dests, known) = (&self.dests, &self.dest_by_id);
        self.leaving.busy.retain(|id| {
            known.get(id).is_some_and(|ix| {
                let dest = &dests[ix.get()];
                dest.in_flight > 0 || matches!(dest.probe, ProbeStage::Chosen(_))
            })
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
