//! The one place that holds the truth at run time: a state machine that turns what happens into
//! what is to be done.
//!
//! [`Core::handle`] takes one input at a time, in the order in which the shell gives them, and
//! pushes [`Action`]s that the shell carries out. **Nothing here awaits, reads a clock or draws a
//! random number**; what is decided is decided in `postrider-domain`.
//!
//! ```text
//!   Accepted ─▶ queue ─▶ dispatch ─▶ Send ┄▶ Finished ─▶ settle ─▶ Commit
//!   Loaded   ─▶ due   ──────┘                              │
//!                ▲──────────────────────────────────────────┘ (waits for its next slot)
//! ```

mod alarms;
mod commands;
mod commits;
mod dispatch;
mod due;
mod find;
mod ids;
mod leaving;
pub(crate) mod limiter;
mod loads;
mod payloads;
mod probe;
mod queue;
mod recovery;
mod replay;
mod rest;
mod settle;
mod shards;
mod shutdown;
mod standing;
mod state;
mod trial;
mod turns;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use postrider_domain::attempt::Finished;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{Delivery, DeliveryState};
use postrider_domain::event::Event;
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ReplayId, Shard, SubscriptionId, TenantId,
};
use postrider_domain::mass_failure::MassFailureGuard;
use postrider_domain::policy::Policy;
use postrider_domain::subscription::RateLimit;
use postrider_domain::time::Timestamp;
use postrider_store::{Commit, Holding, ReplayJob, ShardSet, StoreError};
use postrider_transport::Target;
use tokio::time::Instant;

use crate::directory::{Directory, Prepared};
use crate::inbox::{Handover, Inbox};
use crate::live::EngineEvent;
use crate::loaded::Loaded;
use crate::options::Options;
use alarms::Alarms;
pub(crate) use commands::{Command, ReplayChange, Reply};
use commits::Commits;
use due::Due;
use find::Findings;
pub(crate) use loads::{Events, Fetch, Load, LoadId};
use loads::{Loads, Seen};
use payloads::{FlyingBytes, Known};
use queue::{Dest, DestIx};
use replay::Job;
use rest::Dests;
pub use state::Gauges;
pub(crate) use state::{DestinationOverlay, TenantOverlay};
use state::{Entries, Entry, InFlight, Place, TenantState};
pub(crate) use trial::Trial;
use turns::Rings;

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
    /// The events of attempts that are to be made were read.
    Read(Vec<(Outgoing, Option<Arc<Event>>)>),
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
    HoldAnew(Holding),
    /// Nothing is under way any more in the shards that are to leave by this decision: give them back.
    GiveBack(u64),
    /// The store has stopped: the process must end.
    Stop(String),
}

/// An attempt that is to be made.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) delivery: DeliveryId,
    /// Which attempt of it, from 1.
    pub(crate) number: u32,
    pub(crate) tenant: TenantId,
    pub(crate) event_id: EventId,
    /// To be read from the store where it is not in memory any more.
    pub(crate) event: Option<Arc<Loaded>>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) target: Option<Arc<Target>>,
}

/// The state machine.
pub(crate) struct Core {
    options: Options,
    policy: Arc<Policy>,
    directory: Arc<Directory>,
    inbox: Arc<Inbox>,
    holding: Arc<Holding>,
    /// When the shards are not surely ours any more; `None` where nobody else could take them.
    pub(crate) held_until: Option<Instant>,
    /// Whether the shards are surely ours: nothing is sent otherwise.
    pub(crate) is_leased: bool,
    /// The store refused a settlement: until the shards are held anew, nobody knows whose they are.
    is_doubted: bool,
    /// Shards that another node should have.
    leaving: leaving::Leaving,
    /// Destinations that are not in memory and are being read.
    finding: Findings,
    /// Reads that began before these do not count in shards that were another node's then.
    held_since: HashMap<Shard, LoadId>,
    /// Whether somebody looks on: attempts are told of only then.
    pub(crate) listened: bool,
    now: Timestamp,
    dests: Dests,
    dest_by_id: HashMap<DestinationId, DestIx>,
    tenants: Vec<TenantState>,
    tenant_by_id: HashMap<TenantId, usize>,
    entries: Entries,
    rings: Rings,
    due: Due,
    alarms: Alarms,
    in_flight: InFlight,
    flying_bytes: FlyingBytes,
    known: Known,
    payload_bytes: usize,
    /// Deliveries that ramps have read and not sent yet.
    read_ahead: usize,
    commits: Commits,
    loads: Loads,
    seen: Seen,
    guard: MassFailureGuard,
    /// Destinations to ask again when the guard lets go.
    held_back: BTreeSet<DestIx>,
    jobs: HashMap<ReplayId, Job>,
    shutdown: shutdown::Shutdown,
    actions: Vec<Action>,
}

impl Core {
    pub(crate) fn new(
        options: Options,
        policy: Arc<Policy>,
        directory: Arc<Directory>,
        inbox: Arc<Inbox>,
        holding: Holding,
        now: Timestamp,
    ) -> Self {
        let guard = MassFailureGuard::new(policy.mass_failure.clone());
        Core {
            commits: Commits::new(&options),
            options,
            policy,
            directory,
            inbox,
            holding: Arc::new(holding),
            held_until: None,
            is_leased: true,
            is_doubted: false,
            leaving: leaving::Leaving::default(),
            finding: Findings::default(),
            held_since: HashMap::new(),
            listened: false,
            now,
            dests: Dests::default(),
            dest_by_id: HashMap::new(),
            tenants: Vec::new(),
            tenant_by_id: HashMap::new(),
            entries: Entries::default(),
            rings: Rings::default(),
            due: Due::default(),
            alarms: Alarms::default(),
            in_flight: InFlight::default(),
            flying_bytes: FlyingBytes::default(),
            known: Known::default(),
            payload_bytes: 0,
            read_ahead: 0,
            loads: Loads::default(),
            seen: Seen::default(),
            guard,
            held_back: BTreeSet::new(),
            jobs: HashMap::new(),
            shutdown: shutdown::Shutdown::default(),
            actions: Vec::new(),
        }
    }

    /// Takes in what happened. What follows from it is done by [`Core::advance`].
    pub(crate) fn handle(&mut self, input: Input, now: Timestamp) {
        self.now = self.now.max(now);
        match input {
            Input::Accepted(handover) => self.accepted(handover),
            Input::Finished(delivery, attempted) => self.finished(delivery, attempted),
            Input::Loaded(id, rows, next_ticket) => self.loaded(id, rows, next_ticket),
            Input::Fetched(fetch, events) => {
                self.fetched(fetch.load, fetch.rows, fetch.next_ticket, events);
            }
            Input::Settled(result) => self.settled(result),
            Input::Command(command) => self.command(command),
            Input::Spilled(destinations) => self.spilled(&destinations),
            Input::Read(read) => self.events_read(read),
            Input::Work(shards, since) => self.look_for_work(&shards, since),
        }
    }

    /// Does what is due, fills the lanes' places, and begins the next commit.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        self.ring_alarms();
        self.fire_due();
        self.load_due();
        self.scan_backlog();
        self.feed_starved();
        self.pump();
        self.look_at_leaving();
        self.begin_commit();
        self.let_rest();
        self.finish_shutdown();
    }

    /// What is to be done, in order.
    pub(crate) fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When [`Core::advance`] has something to do by itself.
    pub(crate) fn next_wake(&self) -> Option<Timestamp> {
        let due = if self.is_quiet() { None } else { self.due.next_at() };
        [due, self.alarms.next_at()].into_iter().flatten().min()
    }

    /// A destination that this engine owns from now on; its circuit as it is kept, or a new one.
    pub(crate) fn add_destination(
        &mut self,
        record: postrider_domain::destination::Destination,
        rate: Option<RateLimit>,
    ) -> DestIx {
        if let Some(&ix) = self.dest_by_id.get(&record.id) {
            return ix;
        }
        let tenant = self.tenant_ix(&record.tenant);
        let id = record.id;
        let known_since = self.held_since.get(&id.shard()).copied().unwrap_or(0);
        let dest = Dest::new(record, tenant, &self.options, known_since, self.now);
        let ix = self.dests.add(dest);
        self.dest_by_id.insert(id, ix);
        self.set_rate(ix, rate);
        let circuit = &mut self.dests[ix.get()].record.circuit;
        // The suspension ended with the process that had it, or goes on here without these failures.
        let taken_back = circuit.take_back();
        let recovered = circuit.recover(self.now, &self.policy.circuit);
        if taken_back || recovered.is_some() {
            self.circuit_changed(ix, recovered);
        }
        self.arm_circuit(ix);
        self.drain_again(ix);
        ix
    }

    /// The shards that are held.
    pub(crate) fn holding(&self) -> Arc<Holding> {
        Arc::clone(&self.holding)
    }

    fn tenant_ix(&mut self, tenant: &TenantId) -> usize {
        if let Some(&ix) = self.tenant_by_id.get(tenant) {
            return ix;
        }
        let ix = self.tenants.len();
        self.tenants.push(TenantState::default());
        self.tenant_by_id.insert(tenant.clone(), ix);
        ix
    }

    /// A circuit changed: it is to be kept, and a transition to be told.
    fn circuit_changed(&mut self, ix: DestIx, transition: Option<Transition>) {
        if let Some(transition) = &transition {
            let dest = &self.dests[ix.get()];
            self.actions.push(Action::Publish(EngineEvent::Transition {
                tenant: dest.record.tenant.clone(),
                destination: dest.record.id,
                url: Arc::clone(&dest.url),
                transition: transition.clone(),
            }));
        }
        self.commit_circuit(ix, transition);
    }

    /// Puts a delivery where it belongs after a change: to its slot, or out of memory.
    fn place(&mut self, delivery: Delivery, ix: DestIx) {
        match delivery.state {
            DeliveryState::Waiting(slot) if self.due.covers(slot.due_at, delivery.id) => {
                self.due.insert(slot.due_at, delivery.id);
                let entry = Entry { delivery, event: None, dest: ix, place: Place::Due };
                self.entries.insert(entry);
            }
            DeliveryState::Queued => self.enqueue_first(delivery, None, ix),
            DeliveryState::Waiting(_)
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {
                self.entries.remove(&delivery.id);
            }
        }
    }
}
