//! The fields of the core, and the one question that many modules ask. The behaviour is in the
//! other modules.

use std::sync::Arc;

use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_store::ShardLeases;

use super::alarms::Alarms;
use super::commits::Commits;
use super::lookup::Lookups;
use super::messages::Action;
use super::payloads::Payloads;
use super::reads::Reads;
use super::replay::Jobs;
use super::shards::Shards;
use super::shutdown::Shutdown;
use super::suspensions::Suspensions;
use super::table::Table;
use super::turns::Rings;
use super::window::Window;
use crate::directory::Directory;
use crate::inbox::Inbox;
use crate::options::Options;

/// The state machine. What a module alone changes is private to it; `tidy` checks that no module
/// uses the state of one that comes after it.
pub(crate) struct Core {
    // What the shell gives it.
    pub(super) options: Options,
    pub(super) policy: Arc<Policy>,
    /// The subscriptions.
    pub(super) directory: Arc<Directory>,
    /// Deliveries that were accepted and are not in the lanes yet.
    pub(super) inbox: Arc<Inbox>,
    /// The time of the last input.
    pub(super) now: Timestamp,
    /// Whether anybody listens: attempts are published only then.
    pub(crate) listened: bool,

    // What it gives the shell.
    pub(super) actions: Vec<Action>,

    // Its state, in the order of the modules.
    /// Destinations, tenants and deliveries in memory, and the numbers in flight.
    pub(super) table: Table,
    /// The shards that this node owns.
    pub(super) shards: Shards,
    /// Whether the mass-failure guard suspends transitions.
    pub(super) suspensions: Suspensions,
    /// Timers.
    pub(super) alarms: Alarms,
    /// Changes that are not durable yet.
    pub(super) commits: Commits,
    pub(super) shutdown: Shutdown,
    /// The bytes of events in memory.
    pub(super) payloads: Payloads,
    /// Running reads of the store.
    pub(super) reads: Reads,
    /// Whose turn it is, in both lanes.
    pub(super) rings: Rings,
    /// Waiting deliveries in memory, by due time.
    pub(super) window: Window,
    /// Destinations that are being read, and what waits for them.
    pub(super) lookups: Lookups,
    /// Bulk jobs.
    pub(super) jobs: Jobs,
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
        let suspensions = Suspensions::new(&policy.mass_failure);
        Core {
            commits: Commits::new(&options),
            options,
            policy,
            directory,
            inbox,
            now,
            listened: false,
            actions: Vec::new(),
            table: Table::default(),
            shards: Shards::new(leases),
            suspensions,
            alarms: Alarms::default(),
            shutdown: Shutdown::default(),
            payloads: Payloads::default(),
            reads: Reads::default(),
            rings: Rings::default(),
            window: Window::default(),
            lookups: Lookups::default(),
            jobs: Jobs::default(),
        }
    }

    /// Whether nothing may be sent: the engine is shutting down, the leases may be invalid, or too
    /// many changes are not durable yet.
    pub(super) fn is_quiet(&self) -> bool {
        self.shutdown.is_begun()
            || self.shards.are_unsure()
            || self.commits.unpersisted() >= self.options.unpersisted_max
    }
}
