//! Which shards this node owns, as far as it knows. Data only; [`ownership`](super::ownership)
//! changes it.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_domain::ids::{DestinationId, Shard};
use postrider_store::{Epoch, ShardLeases, ShardSet};
use tokio::time::Instant;

use super::destinations::LoadId;

/// The shards of this node.
#[derive(Debug)]
pub(super) struct Shards {
    leases: Arc<ShardLeases>,
    /// Until when the leases are valid; `None` if no other node could take the shards.
    until: Option<Instant>,
    /// Whether the leases are valid: nothing is sent otherwise.
    are_leased: bool,
    /// The store refused a settlement: until the leases are renewed, the ownership is unknown.
    are_doubted: bool,
    /// For each shard, the first read whose results count: another node owned the shard before.
    owned_since: HashMap<Shard, LoadId>,
    to_give_back: ToGiveBack,
}

/// Shards to hand over to other nodes.
#[derive(Debug, Default)]
struct ToGiveBack {
    shards: ShardSet,
    /// The number of the decision; an outdated decision must not be acted on.
    decision: u64,
    /// Destinations in these shards with attempts in flight or undurable changes.
    busy: Vec<DestinationId>,
    /// Whether nothing is in flight any more; only durability is awaited.
    is_settled: bool,
}

impl Shards {
    pub(super) fn new(leases: ShardLeases) -> Self {
        Shards {
            leases: Arc::new(leases),
            until: None,
            are_leased: true,
            are_doubted: false,
            owned_since: HashMap::new(),
            to_give_back: ToGiveBack::default(),
        }
    }

    pub(super) fn leases(&self) -> &Arc<ShardLeases> {
        &self.leases
    }

    pub(super) fn set_leases(&mut self, leases: ShardLeases) {
        self.leases = Arc::new(leases);
    }

    /// Whether this node owns a shard.
    pub(super) fn has(&self, shard: Shard) -> bool {
        self.leases.has(shard)
    }

    pub(super) fn epoch(&self, shard: Shard) -> Option<Epoch> {
        self.leases.epoch(shard)
    }

    /// Whether other nodes can take shards.
    pub(super) fn are_shared(&self) -> bool {
        self.until.is_some()
    }

    /// The leases are valid until this time.
    pub(super) fn renewed(&mut self, until: Option<Instant>) {
        self.until = until;
        self.are_doubted = false;
    }

    /// Whether the leases were valid when that was last checked.
    pub(super) fn are_leased(&self) -> bool {
        self.are_leased
    }

    pub(super) fn check_leases(&mut self, now: Instant) {
        self.are_leased = self.until.is_none_or(|until| now < until);
    }

    /// Whether this node may have lost shards without knowing it.
    pub(super) fn are_doubted(&self) -> bool {
        self.are_doubted
    }

    /// Whether nothing may be sent, because another node may own shards that were this node's.
    pub(super) fn are_unsure(&self) -> bool {
        !self.are_leased || self.are_doubted
    }

    pub(super) fn doubt(&mut self) {
        self.are_doubted = true;
    }

    /// The first read whose results count for a shard.
    pub(super) fn owned_since(&self, shard: Shard) -> LoadId {
        self.owned_since.get(&shard).copied().unwrap_or(0)
    }

    /// Results of reads before this one do not count for these shards.
    pub(super) fn own_since(&mut self, shards: &[Shard], read: LoadId) {
        self.owned_since.extend(shards.iter().map(|shard| (*shard, read)));
    }

    /// Whether nothing new may be begun in a shard, because it is being handed over.
    pub(super) fn is_to_give_back(&self, shard: Shard) -> bool {
        self.to_give_back.shards.has(shard)
    }

    /// Sets the shards to hand over, in place of those of an earlier decision, which it returns.
    /// `None`, and nothing changes, if this is the decision that is known.
    pub(super) fn replace_shards_to_give_back(
        &mut self,
        shards: ShardSet,
        decision: u64,
    ) -> Option<ShardSet> {
        if decision == self.to_give_back.decision {
            return None;
        }
        let new = ToGiveBack { shards, decision, ..ToGiveBack::default() };
        Some(std::mem::replace(&mut self.to_give_back, new).shards)
    }

    /// The shards are handed over when nothing of these destinations is in flight any more.
    pub(super) fn give_back_after(&mut self, busy: Vec<DestinationId>) {
        self.to_give_back.busy = busy;
    }

    /// The number of the decision, once, when no destination in the shards is busy any more.
    pub(super) fn settled(&mut self, is_busy: impl Fn(DestinationId) -> bool) -> Option<u64> {
        let to_give_back = &mut self.to_give_back;
        if to_give_back.is_settled || to_give_back.shards.is_empty() {
            return None;
        }
        to_give_back.busy.retain(|id| is_busy(*id));
        to_give_back.is_settled = to_give_back.busy.is_empty();
        to_give_back.is_settled.then_some(to_give_back.decision)
    }

    /// Whether this is still the decision by which shards are handed over.
    pub(super) fn is_current(&self, decision: u64) -> bool {
        decision == self.to_give_back.decision
    }
}
