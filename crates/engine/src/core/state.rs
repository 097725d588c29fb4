//! The fields of the core, and the few questions that several modules ask. The behaviour is in the
//! other modules.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use postrider_domain::ids::{ReplayId, Shard};
use postrider_domain::mass_failure::MassFailureGuard;
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::ShardLeases;
use tokio::time::Instant;

use super::alarms::Alarms;
use super::commits::Commits;
use super::destinations::{DestIx, LoadId};
use super::lookup::Lookups;
use super::messages::Action;
use super::ownership::ShardsToGiveBack;
use super::payloads::{InFlightBytes, Known};
use super::reads::{Loads, Seen};
use super::replay::RunningJob;
use super::shutdown::Shutdown;
use super::table::Table;
use super::turns::Rings;
use super::window::Due;
use crate::directory::Directory;
use crate::inbox::Inbox;
use crate::options::Options;

/// The state machine.
pub(crate) struct Core {
    pub(super) options: Options,
    pub(super) policy: Arc<Policy>,
    pub(super) directory: Arc<Directory>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) leases: Arc<ShardLeases>,
    /// Until when the leases are valid; `None` if no other node could take the shards.
    pub(crate) leases_until: Option<Instant>,
    /// Whether the leases are valid: nothing is sent otherwise.
    pub(crate) is_leased: bool,
    /// The store refused a settlement: until the leases are renewed, the ownership is unknown.
    pub(super) is_doubted: bool,
    /// Shards to hand over to other nodes.
    pub(super) to_give_back: ShardsToGiveBack,
    /// Destinations that are being read.
    pub(super) lookups: Lookups,
    /// For each shard, the first read whose results count: another node owned the shard before.
    pub(super) owned_since: HashMap<Shard, LoadId>,
    /// Whether anybody listens: attempts are published only then.
    pub(crate) listened: bool,
    pub(super) now: Timestamp,
    pub(super) table: Table,
    pub(super) rings: Rings,
    pub(super) due: Due,
    pub(super) alarms: Alarms,
    pub(super) in_flight_bytes: InFlightBytes,
    pub(super) known: Known,
    pub(super) payload_bytes: usize,
    pub(super) commits: Commits,
    pub(super) loads: Loads,
    pub(super) seen: Seen,
    pub(super) guard: MassFailureGuard,
    /// Destinations whose freezing was suspended, to be asked again when the suspension ends.
    pub(super) freezes_put_off: BTreeSet<DestIx>,
    pub(super) jobs: HashMap<ReplayId, RunningJob>,
    pub(super) shutdown: Shutdown,
    pub(super) actions: Vec<Action>,
}

impl Core {
    pub(crate) fn new(
        options: Options,
        policy: Arc<Policy>,
        directory: Arc<Directory>,
        inbox: Arc<Inbox>,
        leases: ShardLeases,
        now: Timestamp,
    ) -> Self {
        let guard = MassFailureGuard::new(policy.mass_failure.clone());
        Core {
            commits: Commits::new(&options),
            options,
            policy,
            directory,
            inbox,
            leases: Arc::new(leases),
            leases_until: None,
            is_leased: true,
            is_doubted: false,
            to_give_back: ShardsToGiveBack::default(),
            lookups: Lookups::default(),
            owned_since: HashMap::new(),
            listened: false,
            now,
            table: Table::default(),
            rings: Rings::default(),
            due: Due::default(),
            alarms: Alarms::default(),
            in_flight_bytes: InFlightBytes::default(),
            known: Known::default(),
            payload_bytes: 0,
            loads: Loads::default(),
            seen: Seen::default(),
            guard,
            freezes_put_off: BTreeSet::new(),
            jobs: HashMap::new(),
            shutdown: Shutdown::default(),
            actions: Vec::new(),
        }
    }

    /// The leases of this node.
    pub(crate) fn leases(&self) -> Arc<ShardLeases> {
        Arc::clone(&self.leases)
    }

    /// Whether nothing new may be begun in a shard, because it is being handed over.
    pub(super) fn is_to_give_back(&self, shard: Shard) -> bool {
        self.to_give_back.shards.has(shard)
    }

    /// Whether nothing may be sent: the engine is shutting down, the leases may be invalid, or too
    /// many changes are not durable yet.
    pub(super) fn is_quiet(&self) -> bool {
        self.shutdown.is_begun()
            || !self.is_leased
            || self.is_doubted
            || self.commits.unpersisted() >= self.options.unpersisted_max
    }
}
