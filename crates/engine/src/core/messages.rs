//! What goes into the core and what comes out: inputs and commands, actions, reads of the store. Data only.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use postrider_domain::attempt::Finished;
use postrider_domain::delivery::{Delivery, Lane};
use postrider_domain::destination::Destination;
use postrider_domain::event::Event;
use postrider_domain::explain::Standing;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
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

/// Something happened.
pub(crate) enum Input {
    /// Deliveries were accepted and are durable.
    Accepted(Handover),
    /// An attempt ended.
    Finished(DeliveryId, Attempted),
    /// A read of the store has ended; the number is that of the next acceptance, taken after it.
    Loaded(LoadId, Vec<Delivery>, u64),
    /// The same, with events that were read as well.
    Fetched(Fetch, Events),
    /// The commit that was under way has ended.
    Settled(Result<(), StoreError>),
    /// Somebody wants something.
    Command(Command),
    /// These destinations have more in the store than was handed over.
    Spilled(BTreeMap<DestinationId, TenantId>),
    /// The events of these deliveries were read; `None` where the store has none.
    EventsRead(Vec<(DeliveryId, Option<Arc<Event>>)>),
    /// Another node may have accepted something in these shards, then or later.
    Work(ShardSet, Timestamp),
}

/// How an attempt ended.
pub(crate) enum Attempted {
    /// It was made.
    Ended(Finished),
    /// Its event is not in the store.
    NoEvent,
}

/// Something is to be done.
#[derive(Debug)]
pub(crate) enum Action {
    /// Make an attempt and report its end.
    Send(Outgoing),
    /// Make this durable and report it. The next one comes only after that.
    Commit(Commit),
    /// Read from the store and report it.
    Load(LoadId, Load),
    /// Read the events of these deliveries, which have their places, and report it.
    ReadEvents(Vec<WantedEvent>),
    /// Read the events of what was read, and report it.
    Fetch(Fetch),
    /// Tell whoever looks on.
    Publish(EngineEvent),
    /// A deleted subscription has nothing unfinished any more: its record can go.
    Forget(TenantId, SubscriptionId),
    /// Keep a replay job as somebody changed it, and report it.
    PutReplay(Box<ReplayJob>, Reply<ReplayJob>),
    /// A destination of ours is not in memory: read it and report it.
    Find(LoadId, TenantId, DestinationId),
    /// Have these deliveries replayed for a job by whoever owns them, and report it, with whether these
    /// are the last.
    ReplayElsewhere(Box<ReplayJob>, Vec<Delivery>, bool),
    /// These shards may be ours, but not as they are known here: hold them anew.
    HoldAnew(ShardLeases),
    /// Nothing is under way any more in the shards that are to leave by this decision: give them back.
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

/// An attempt that is to be made.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) delivery: DeliveryId,
    /// Which attempt of it, from 1.
    pub(crate) number: u32,
    pub(crate) event: Arc<Loaded>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) target: Option<Arc<Target>>,
}

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// What somebody wants.
pub(crate) enum Command {
    /// A subscription names this destination.
    Destination {
        record: Box<Destination>,
        reply: oneshot::Sender<()>,
    },
    /// The rate limit of a destination is now this.
    Rate {
        destination: DestinationId,
        rate: Option<RateLimit>,
    },
    /// What a deleted subscription is still owed is to be cancelled.
    CancelAll {
        tenant: TenantId,
        subscription: SubscriptionId,
    },
    /// Something with a destination, which is read first where it is not in memory.
    OnDestination(OnDestination),
    /// Something with one delivery, which is read first where it is not in memory.
    OnDelivery(OnDelivery),
    /// Something with a bulk replay.
    OnReplay(OnReplay),
    /// A look that changes nothing.
    View(View),
    /// A test send gives its places back.
    EndTrial {
        trial: Trial,
    },
    /// The time of day was set: the operator is to know.
    ClockStepped {
        step: Step,
    },
    Policy {
        policy: Arc<Policy>,
    },
    /// What the lease holder says about our shards.
    Held(Box<Held>),
    /// A destination that was looked up.
    Found {
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

/// What is wanted of a destination.
pub(crate) enum OnDestination {
    Enable {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
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
    /// A test send is to have its places.
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

/// What is wanted of a delivery.
pub(crate) struct OnDelivery {
    pub(crate) tenant: TenantId,
    pub(crate) delivery: DeliveryId,
    pub(crate) change: DeliveryCommand,
    pub(crate) reply: Reply<Delivery>,
}

/// What is to become of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryCommand {
    Cancel,
    Replay,
    /// An attempt before its slot.
    Retry,
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
    /// The destination does not come into memory: says why.
    pub(super) fn refuse(self, error: CommandError) {
        match self {
            Parked::OnDestination(command) => command.refuse(error),
            Parked::OnDelivery(command) => command.refuse(error),
        }
    }
}

/// What is wanted of a bulk replay.
pub(crate) enum OnReplay {
    /// A job is kept as it is given: it goes on from there where it is running.
    Run {
        job: Box<ReplayJob>,
        reply: Reply<ReplayJob>,
    },
    Change {
        job: Box<ReplayJob>,
        change: ReplayChange,
        reply: Reply<ReplayJob>,
    },
    /// The owners of a job's next deliveries have replayed so many of them.
    ReplayedElsewhere {
        job: Box<ReplayJob>,
        last: Option<DeliveryId>,
        replayed: u64,
        is_all: bool,
    },
}

/// What somebody wants to see.
pub(crate) enum View {
    Tenant {
        tenant: Option<TenantId>,
        reply: oneshot::Sender<TenantOverlay>,
    },
    /// A tenant's deliveries in flight that a filter wants, newest first.
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
    /// What a delivery that is due waits for.
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

/// The shards are held until then; these destinations and jobs came with shards that are new.
pub(crate) struct Held {
    pub(crate) holding: ShardLeases,
    pub(crate) gained: Vec<Destination>,
    pub(crate) jobs: Vec<ReplayJob>,
    pub(crate) until: Option<Instant>,
    /// Those of them that another node should have, and which decision that is.
    pub(crate) leaving: (ShardSet, u64),
}

/// What is to become of a replay job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum ReplayChange {
    Pause,
    Resume,
    Cancel,
}

/// A test send that has its places.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Trial(pub(super) DestIx);

/// Events by what they are called.
pub(crate) type Events = HashMap<(TenantId, EventId), Arc<Event>>;

/// Deliveries that were read, and whose events are to be read as well.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) load: LoadId,
    pub(crate) rows: Vec<Delivery>,
    pub(crate) next_ticket: u64,
    pub(crate) wanted: Vec<(TenantId, EventId)>,
}

/// What is to be read.
#[derive(Debug, Clone)]
pub(crate) enum Load {
    /// Waiting deliveries, by their due time.
    Due { after: Option<DueMark>, until: Timestamp, limit: usize },
    /// Queued deliveries of all destinations.
    Backlog { after: Option<DueMark>, limit: usize },
    /// Queued deliveries of one destination.
    Queued { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, those that are due soonest first.
    Overdue { destination: DestinationId, limit: usize },
    /// Waiting deliveries of one destination, in the rank of probes.
    Probe {
        destination: DestinationId,
        limit: usize,
        /// One that somebody asked for, whatever its rank.
        asked: Option<(TenantId, DeliveryId)>,
    },
    /// Waiting deliveries of one destination, oldest first, to be sent at once.
    Drain { destination: DestinationId, limit: usize },
    /// Unfinished deliveries of a subscription, to be cancelled.
    Unfinished { tenant: TenantId, subscription: SubscriptionId, limit: usize },
    /// What a replay job is to replay next.
    Candidates { job: Box<ReplayJob>, limit: usize },
    /// One delivery.
    One { tenant: TenantId, delivery: DeliveryId },
}

impl Load {
    /// The destination that a read is about, where it is one.
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

/// What is known of a destination now.
#[derive(Debug, Clone)]
pub(crate) struct DestinationOverlay {
    /// The destination with its circuit as it is now.
    pub(crate) destination: Destination,
    /// Attempts in flight.
    pub(crate) in_flight: u32,
    /// How many may be.
    pub(crate) in_flight_limit: u32,
    /// In the first lane and in memory.
    pub(crate) queued: usize,
    /// In the retry lane, due, and in memory.
    pub(crate) ready: usize,
    /// When the oldest in the first lane was accepted.
    pub(crate) oldest_queued_at: Option<Timestamp>,
}

/// What the engine holds right now. All of it but the destinations is zero when nothing is owed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Destinations known.
    pub destinations: usize,
    /// Deliveries in memory.
    pub resident: usize,
    /// First attempts in flight.
    pub in_flight_first: usize,
    /// Retries and probes in flight.
    pub in_flight_retry: usize,
    /// In the first lane and in memory.
    pub queued: usize,
    /// Due in the retry lane.
    pub ready: usize,
    /// Waiting in memory for their slot.
    pub due: usize,
    /// Timers that are set.
    pub alarms: usize,
    /// Changes that are not durable yet.
    pub unpersisted: usize,
    /// Reads of the store that are under way.
    pub loads: usize,
    /// Bytes of payloads in memory that wait for their first attempt.
    pub payload_bytes: usize,
    /// Bytes of payloads in flight.
    pub flying_bytes: usize,
    /// Replay jobs at work.
    pub replays: usize,
    /// Shards that are owned.
    pub shards: usize,
    /// Whether they are surely ours: nothing is sent otherwise.
    pub leased: bool,
    /// How often a filter exceeded its budget since the start.
    pub filters_over_budget: u64,
    /// Whether transitions are held because most destinations fail at once.
    pub held: bool,
    /// Since when.
    pub held_since: Option<Timestamp>,
}
