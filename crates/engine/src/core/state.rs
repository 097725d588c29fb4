//! The fields of the core, and the few questions that several modules ask. The behaviour is in the
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

/// The state machine.
pub(crate) struct Core {
    pub(super) options: Options,
    pub(super) policy: Arc<Policy>,
    pub(super) directory: Arc<Directory>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) shards: Shards,
    /// Destinations that are being read.
    pub(super) lookups: Lookups,
    /// Whether anybody listens: attempts are published only then.
    pub(crate) listened: bool,
    pub(super) now: Timestamp,
    pub(super) table: Table,
    pub(super) rings: Rings,
    pub(super) window: Window,
    pub(super) alarms: Alarms,
    pub(super) payloads: Payloads,
    pub(super) commits: Commits,
    pub(super) reads: Reads,
    pub(super) suspensions: Suspensions,
    pub(super) jobs: Jobs,
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
        let suspensions = Suspensions::new(&policy.mass_failure);
        Core {
            commits: Commits::new(&options),
            options,
            policy,
            directory,
            inbox,
            shards: Shards::new(leases),
            lookups: Lookups::default(),
            listened: false,
            now,
            table: Table::default(),
            rings: Rings::default(),
            window: Window::default(),
            alarms: Alarms::default(),
            payloads: Payloads::default(),
            reads: Reads::default(),
            suspensions,
            jobs: Jobs::default(),
            shutdown: Shutdown::default(),
            actions: Vec::new(),
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
