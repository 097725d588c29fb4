//! The messages of the core: inputs and commands, actions, reads of the store. Data only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use postrider_domain::attempt::Finished;
use postrider_domain::delivery::{Delivery, Lane};
use postrider_domain::destination::Destination;
use postrider_domain::event::Event;
use postrider_domain::explain::Standing;
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ReplayId, SubscriptionId, TenantId,
};
use postrider_domain::policy::Policy;
use postrider_domain::steady::Step;
use postrider_domain::subscription::RateLimit;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Commit, DeliveryFilter, DueMark, ReplayJob, ShardLeases, ShardSet, StoreError,
};
use postrider_transport::Target;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::destinations::{DestIx, LoadId};
use super::table::TenantOverlay;
use crate::directory::Prepared;
use crate::handle::CommandError;
use crate::inbox::Handover;
use crate::live::EngineEvent;
use crate::loaded::Loaded;

/// An input of the core.
pub(crate) enum Input {
    /// Deliveries were accepted and are durable.
    Accepted(Handover),
    /// An attempt ended.
    Finished(DeliveryId, Attempted),
    /// A read of the store has ended. The number is that of the next acceptance, taken after the
    /// read.
    Loaded(LoadId, Vec<Delivery>, u64),
    /// A read of the store has ended, with the events of its deliveries.
    Fetched(Fetch, Events),
    /// The running commit has ended.
    Settled(Result<(), StoreError>),
    /// A command.
    Command(Command),
    /// These destinations have more deliveries in the store than were handed over.
    Spilled(BTreeMap<DestinationId, TenantId>),
    /// The events of these deliveries were read; `None` for an event that the store does not have.
    EventsRead(Vec<(DeliveryId, Option<Arc<Event>>)>),
    /// Another node may have accepted deliveries in these shards, at this time or later.
    Work(ShardSet, Timestamp),
}

/// The outcome of an attempt.
pub(crate) enum Attempted {
    /// The request was made.
    Ended(Finished),
    /// The event is not in the store, so no request was made.
    NoEvent,
}

/// An action that the shell carries out.
#[derive(Debug)]
pub(crate) enum Action {
    /// Make an attempt and report its outcome.
    Send(Outgoing),
    /// Write this commit and report the result. The next one comes only after that.
    Commit(Box<Commit>),
    /// Read from the store and report the result.
    Load(LoadId, Load),
    /// Read the events of these deliveries, which hold in-flight capacity, and report the result.
    ReadEvents(Vec<WantedEvent>),
    /// Read the events of deliveries that were read, and report the result.
    Fetch(Fetch),
    /// Publish an event to listeners.
    Publish(EngineEvent),
    /// Remove the record of a deleted subscription: it has no unfinished deliveries any more.
    Forget(TenantId, SubscriptionId),
    /// Store a replay job that somebody changed, and report the result.
    PutReplay(Box<ReplayJob>, Reply<ReplayJob>),
    /// Read a destination that this node owns and that is not in memory, and report the result.
    ReadDestination(LoadId, TenantId, DestinationId),
    /// Have these deliveries of a job replayed by the nodes that own them, and report the result.
    /// The flag says whether these are the last ones.
    ReplayElsewhere(Box<ReplayJob>, Vec<Delivery>, bool),
    /// A destination is back: keep this job for what died of the outage, where anything did, and report it.
    ReplayDead(Box<ReplayJob>),
    /// Renew the leases; the core has dropped its state of these shards, so read them again.
    RenewLeases(ShardLeases),
    /// Give back the shards of this decision: nothing is in flight there any more.
    GiveBack(u64),
    /// The store has stopped: the process must end.
    Stop(String),
}

/// A delivery whose event is to be read.
#[derive(Debug)]
pub(crate) struct WantedEvent {
    pub(crate) delivery: DeliveryId,
    pub(crate) tenant: TenantId,
    pub(crate) event: EventId,
}

/// An attempt to be made.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) delivery: DeliveryId,
    /// The number of the attempt of this delivery, from 1.
    pub(crate) number: u32,
    pub(crate) event: Arc<Loaded>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) target: Option<Arc<Target>>,
}

/// The channel for the answer to a command.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// A command of the API, of another node, or of the engine's own tasks.
pub(crate) enum Command {
    /// A subscription uses this destination.
    Destination {
        record: Box<Destination>,
        reply: oneshot::Sender<()>,
    },
    /// A destination that nothing used was removed from the store.
    Forget {
        destination: DestinationId,
    },
    /// A destination has this rate limit now.
    Rate {
        destination: DestinationId,
        rate: Option<RateLimit>,
    },
    /// Cancel all unfinished deliveries of a deleted subscription.
    CancelAll {
        tenant: TenantId,
        subscription: SubscriptionId,
    },
    /// A command on a destination, which is read first if it is not in memory.
    OnDestination(OnDestination),
    /// A command on one delivery, which is read first if it is not in memory.
    OnDelivery(OnDelivery),
    /// Something with a bulk replay.
    OnReplay(OnReplay),
    /// A read-only view.
    View(View),
    /// A test send gives its in-flight capacity back.
    EndTrial {
        trial: Trial,
    },
    /// The time of day was set: alert the operator.
    ClockStepped {
        step: Step,
    },
    Policy {
        policy: Arc<Policy>,
    },
    /// The leases as of the last renewal.
    Leases(Box<RenewedLeases>),
    /// The result of the lookup of a destination.
    DestinationRead {
        read: LoadId,
        id: DestinationId,
        record: Option<Box<Destination>>,
    },
    Shutdown {
        done: oneshot::Sender<usize>,
    },
    Abandon,
    Stop {
        why: String,
    },
}

/// Commands on a destination.
pub(crate) enum OnDestination {
    Enable {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
        how: Reopening,
        reply: Reply<Destination>,
    },
    Freeze {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
        reply: Reply<Destination>,
    },
    Look {
        tenant: TenantId,
        destination: DestinationId,
        reply: oneshot::Sender<Option<DestinationOverlay>>,
    },
    /// Reserve in-flight capacity for a test send.
    BeginTrial { tenant: TenantId, destination: DestinationId, reply: Reply<Trial> },
}

impl OnDestination {
    pub(super) fn subject(&self) -> (TenantId, DestinationId) {
        let (OnDestination::Enable { tenant, destination, .. }
        | OnDestination::Freeze { tenant, destination, .. }
        | OnDestination::Look { tenant, destination, .. }
        | OnDestination::BeginTrial { tenant, destination, .. }) = self;
        (tenant.clone(), *destination)
    }

    fn refuse(self, error: CommandError) {
        // The caller may have gone away.
        match self {
            OnDestination::Enable { reply, .. } | OnDestination::Freeze { reply, .. } => {
                drop(reply.send(Err(error)));
            }
            OnDestination::Look { reply, .. } => drop(reply.send(None)),
            OnDestination::BeginTrial { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}

/// What is to be sent when somebody enables a destination.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Reopening {
    /// Whether what waits is drained; as the policy says where it is `None`.
    pub(crate) drains: Option<bool>,
    /// Whether a replay of dead deliveries was requested with the enabling. It shares the pace with
    /// the one of the policy.
    pub(crate) replays_dead: bool,
}

/// What is wanted of a delivery.
pub(crate) struct OnDelivery {
    pub(crate) tenant: TenantId,
    pub(crate) delivery: DeliveryId,
    pub(crate) change: DeliveryCommand,
    pub(crate) reply: Reply<Delivery>,
}

/// The kinds of commands on a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryCommand {
    Cancel,
    Replay,
    /// Replay for a job; `None` for one of an earlier version on another node.
    ReplayFor {
        job: Option<ReplayId>,
    },
    /// Retry now, before the slot.
    Retry,
    /// The same, for a job that was created then, unless it has been attempted since.
    RetryUnlessAttempted {
        job: Option<ReplayId>,
        since: Timestamp,
    },
}

impl OnDelivery {
    pub(super) fn refuse(self, error: CommandError) {
        // The caller may have gone away.
        drop(self.reply.send(Err(error)));
    }
}

/// A command that waits until its destination is in memory.
pub(super) enum Parked {
    OnDestination(OnDestination),
    OnDelivery(OnDelivery),
}

impl Parked {
    /// Answers the command with an error, because the destination cannot be read.
    pub(super) fn refuse(self, error: CommandError) {
        match self {
            Parked::OnDestination(command) => command.refuse(error),
            Parked::OnDelivery(command) => command.refuse(error),
        }
    }
}

/// Commands on a bulk replay.
pub(crate) enum OnReplay {
    /// Store a job and, if its state is running, start it or continue it.
    Run {
        job: Box<ReplayJob>,
        reply: Reply<ReplayJob>,
    },
    Change {
        job: Box<ReplayJob>,
        change: ReplayChange,
        reply: Reply<ReplayJob>,
    },
    /// Whether a job runs on this node.
    IsRunning {
        id: ReplayId,
        reply: oneshot::Sender<bool>,
    },
    /// The job that replays what died at a destination is kept; `None` where nothing had died.
    DeadCounted {
        destination: DestinationId,
        id: ReplayId,
        job: Option<Box<ReplayJob>>,
    },
    /// The owners of a job's next deliveries have replayed so many of them.
    ReplayedElsewhere {
        job: Box<ReplayJob>,
        last: Option<DeliveryId>,
        replayed: u64,
        is_all: bool,
    },
}

/// Read-only views of the core.
pub(crate) enum View {
    Tenant {
        tenant: Option<TenantId>,
        reply: oneshot::Sender<TenantOverlay>,
    },
    /// A tenant's deliveries in flight that match a filter, newest first.
    InFlightOf {
        tenant: TenantId,
        filter: Box<DeliveryFilter>,
        below: Option<DeliveryId>,
        limit: usize,
        reply: oneshot::Sender<Vec<Delivery>>,
    },
    /// Which of these deliveries are in flight.
    InFlight {
        deliveries: Vec<DeliveryId>,
        reply: oneshot::Sender<Vec<bool>>,
    },
    /// What a due delivery waits for.
    Standing {
        delivery: DeliveryId,
        destination: DestinationId,
        lane: Lane,
        reply: oneshot::Sender<Option<Standing>>,
    },
    ShardLeases {
        reply: oneshot::Sender<Arc<ShardLeases>>,
    },
    Gauges {
        reply: oneshot::Sender<Gauges>,
    },
}

/// Renewed leases, with the destinations and jobs of newly owned shards.
pub(crate) struct RenewedLeases {
    pub(crate) leases: ShardLeases,
    pub(crate) gained: Vec<Destination>,
    pub(crate) jobs: Vec<ReplayJob>,
    pub(crate) until: Option<Instant>,
    /// The shards to hand over to other nodes, and the number of that decision.
    pub(crate) to_give_back: (ShardSet, u64),
}

/// The changes of a replay job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum ReplayChange {
    Pause,
    Resume,
    Cancel,
}

/// A test send that holds in-flight capacity.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trial(pub(super) DestIx);

/// Events by tenant and identifier.
pub(crate) type Events = HashMap<(TenantId, EventId), Arc<Event>>;

/// Deliveries that were read and whose events are to be read as well.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) load: LoadId,
    pub(crate) rows: Vec<Delivery>,
    pub(crate) next_ticket: u64,
    pub(crate) wanted: Vec<(TenantId, EventId)>,
}

/// The reads of the store.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    /// Waiting deliveries, by their due time.
    Due { after: Option<DueMark>, until: Timestamp, limit: usize },
    /// Queued deliveries of all destinations.
    Backlog { after: Option<DueMark>, limit: usize },
    /// Queued deliveries of one destination.
    Queued { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, earliest due time first.
    Overdue { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, in the order of probes.
    Probe {
        destination: DestinationId,
        limit: usize,
        /// The delivery that somebody wanted retried; it comes first.
        asked: Option<(TenantId, DeliveryId)>,
    },
    /// Waiting deliveries of one destination, oldest first, to be sent at once.
    Drain { destination: DestinationId, limit: usize },
    /// Unfinished deliveries of a subscription, to be cancelled.
    Unfinished { tenant: TenantId, subscription: SubscriptionId, limit: usize },
    /// The next deliveries of a replay job.
    Candidates { job: Box<ReplayJob>, limit: usize },
    /// One delivery.
    One { tenant: TenantId, delivery: DeliveryId },
}

impl Load {
    /// The destination that the read is about, if it is about one.
    pub(super) fn destination(&self) -> Option<DestinationId> {
        match self {
            Load::Queued { destination, .. }
            | Load::Overdue { destination, .. }
            | Load::Probe { destination, .. }
            | Load::Drain { destination, .. } => Some(*destination),
            Load::Due { .. }
            | Load::Backlog { .. }
            | Load::Unfinished { .. }
            | Load::Candidates { .. }
            | Load::One { .. } => None,
        }
    }
}

/// The current state of a destination in memory.
#[derive(Debug, Clone)]
pub(crate) struct DestinationOverlay {
    /// The destination with its circuit as it is now.
    pub(crate) destination: Destination,
    /// Attempts in flight.
    pub(crate) in_flight: u32,
    /// The limit of attempts in flight.
    pub(crate) in_flight_limit: u32,
    /// Deliveries in the first lane and in memory.
    pub(crate) queued: usize,
    /// Due deliveries in the retry lane and in memory.
    pub(crate) ready: usize,
    /// When the oldest delivery in the first lane was accepted.
    pub(crate) oldest_queued_at: Option<Timestamp>,
}

/// Current numbers of the engine. All but the number of destinations are zero when nothing is
/// unfinished.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Destinations in memory.
    pub destinations: usize,
    /// Deliveries in memory.
    pub resident: usize,
    /// First attempts in flight.
    pub in_flight_first: usize,
    /// Retries and probes in flight.
    pub in_flight_retry: usize,
    /// Deliveries in the first lane and in memory.
    pub queued: usize,
    /// Due deliveries in the retry lane.
    pub ready: usize,
    /// Deliveries in memory that wait for their slot.
    pub due: usize,
    /// Timers that are set.
    pub alarms: usize,
    /// Changes that are not durable yet.
    pub unpersisted: usize,
    /// Reads of the store that are running.
    pub loads: usize,
    /// Bytes of payloads in memory that wait for their first attempt.
    pub payload_bytes: usize,
    /// Bytes of payloads in flight.
    pub in_flight_bytes: usize,
    /// Running replay jobs.
    pub replays: usize,
    /// Shards that this node owns.
    pub shards: usize,
    /// Whether the leases are valid: nothing is sent otherwise.
    pub leased: bool,
    /// How often a filter exceeded its budget since the start.
    pub filters_over_budget: u64,
    /// Whether transitions are suspended because most destinations fail at once.
    pub suspended: bool,
    /// Since when.
    pub suspended_since: Option<Timestamp>,
}
