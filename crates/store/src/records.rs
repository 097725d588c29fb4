//! The values that go into a store and come out of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_domain::access::Scope;
use postrider_domain::attempt::Attempt;
use postrider_domain::catalogue::EventMark;
use postrider_domain::circuit::{Circuit, Transition};
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::event::{Event, EventType};
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ObjectId, ReplayId, Shard, SubscriptionId, TenantId,
};
use postrider_domain::job_outcomes::{ByJob, JobOutcomes};
use postrider_domain::subscription::{Metadata, Subscription};
use postrider_domain::time::Timestamp;
use postrider_domain::trace::TraceContext;
use serde::{Deserialize, Serialize};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its identifier.
    pub id: TenantId,
    /// Its display name.
    pub name: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its description and its own limits.
    pub details: TenantDetails,
}

/// The description and the own limits of a tenant. All of it is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantDetails {
    /// A longer text than the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Pairs that the operator keeps here.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// Quotas by name, instead of the server's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<String, u64>,
    /// The most requests per second, instead of the server's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
    /// The most events per second, instead of the server's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events_per_second: Option<u32>,
}

impl TenantDetails {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == TenantDetails::default()
    }
}

/// An API key. The key itself is never stored, only the keyed hash of its secret part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The public part of the key.
    pub id: String,
    /// The tenant that it belongs to; `None` for an admin key, whose requests name the tenant.
    pub tenant: Option<TenantId>,
    /// The display name.
    pub name: Option<String>,
    /// The operations that it allows.
    pub scopes: Vec<Scope>,
    /// The keyed hash of its secret part.
    pub hash: [u8; 32],
    /// When it was created.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, with a delay of some seconds or minutes.
    pub last_used_at: Option<Timestamp>,
}

/// A subscription with its sealed credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRecord {
    /// The subscription.
    pub subscription: Subscription,
    /// Secrets and token, sealed by the caller. Opaque to the store.
    pub credentials: Vec<u8>,
    /// When it was deleted: it receives no further events, and is removed once its unfinished
    /// deliveries are cancelled.
    pub deleted_at: Option<Timestamp>,
}

/// The result of creating or changing a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubscriptionPut {
    /// The subscription is stored, and so is its destination.
    Stored,
    /// An identical subscription exists already.
    Twin(SubscriptionId),
    /// Another subscription of the tenant has the `uid`.
    UidTaken(SubscriptionId),
}

/// A destination as it is stored; the same type as in the domain.
pub type DestinationRecord = postrider_domain::destination::Destination;

/// An accepted event, as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The event.
    pub event: Arc<Event>,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The number of deliveries that the event had.
    pub deliveries: u32,
    /// The note that the store keeps with the event.
    pub mark: EventMark,
}

/// An event to be accepted, with all its deliveries.
#[derive(Debug, Clone)]
pub struct Acceptance {
    /// The event.
    pub event: Arc<Event>,
    /// When it is accepted.
    pub accepted_at: Timestamp,
    /// A digest of the application's request, to distinguish a repeat from a conflict.
    pub fingerprint: [u8; 32],
    /// Whether the application chose the identifier. An identifier that Postrider made cannot be a
    /// repeat, so a store need not look it up. It is stored all the same: the application may send
    /// it later, which is then a repeat.
    pub id_given: bool,
    /// What is noted about it, such as why it does not fit the catalogue.
    pub mark: EventMark,
    /// Its deliveries. All of them are queued.
    pub deliveries: Vec<Delivery>,
}

/// The result of accepting one event of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// The event and all its deliveries are durable, unless another event of the batch is a conflict.
    New,
    /// The same event was accepted before. No delivery is added.
    Duplicate {
        /// How many deliveries it had when it was accepted.
        deliveries: u32,
    },
    /// The identifier belongs to a different event. Nothing of the whole batch was written.
    Conflict,
}

/// The changes that follow from some outcomes: applied all or nothing.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Deliveries after the change, each at most once.
    pub deliveries: Vec<DeliveryChange>,
    /// Destinations after the change, each at most once.
    pub destinations: Vec<DestinationChange>,
    /// The progress of a replay job after this commit. The store takes `done` and `position`;
    /// `state` and `finished_at` only if the stored job is still running. So a job that was paused
    /// or cancelled meanwhile stays so.
    pub replay: Option<ReplayJob>,
    /// The trace contexts of events whose deliveries were attempted, for the log. They are not stored:
    /// the event has them.
    pub traces: Vec<(DeliveryId, TraceContext)>,
}

/// The change of a delivery.
#[derive(Debug, Clone)]
pub struct DeliveryChange {
    /// Its state before, for the ledger.
    pub before: StateName,
    /// The bulk job that counted its outcome before, for the outcomes of jobs.
    pub by_job: Option<ByJob>,
    /// The delivery after the change.
    pub delivery: Delivery,
    /// The attempt that changed it; `None` for a change without an attempt: not admitted, cancelled
    /// or replayed.
    pub attempt: Option<Attempt>,
}

impl DeliveryChange {
    /// The change from `before` to `after`, by this attempt or without one.
    pub fn of(before: &Delivery, after: Delivery, attempt: Option<Attempt>) -> Self {
        let (by_job, before) = (before.by_job(), before.state.name());
        DeliveryChange { before, by_job, delivery: after, attempt }
    }

    /// Whether it changes the outcomes of a job.
    pub fn moves_outcome(&self) -> bool {
        self.by_job != self.delivery.by_job()
    }
}

/// The change of a destination.
#[derive(Debug, Clone)]
pub struct DestinationChange {
    /// The tenant of the destination.
    pub tenant: TenantId,
    /// The destination.
    pub id: DestinationId,
    /// Its circuit after the change.
    pub circuit: Circuit,
    /// The transitions of the circuit, oldest first, for the timeline.
    pub transitions: Vec<Transition>,
}

/// A position in the order of due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueMark {
    /// The due time.
    pub at: Timestamp,
    /// The delivery, to order deliveries with the same due time.
    pub delivery: DeliveryId,
}

/// The order in which the waiting deliveries of a destination are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingOrder {
    /// Deliveries that were never attempted first, then by last attempt, oldest first.
    ProbeRank,
    /// By acceptance, oldest first.
    Oldest,
    /// By due time, soonest first.
    Due,
}

/// The shards that a node holds, each with the epoch of its lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardLeases {
    /// Shard and epoch, ordered by shard.
    pub shards: Vec<(Shard, Epoch)>,
}

impl ShardLeases {
    /// Whether this node holds the shard.
    pub fn has(&self, shard: Shard) -> bool {
        self.epoch(shard).is_some()
    }

    /// The epoch of this shard's lease, where it is among them.
    pub fn epoch(&self, shard: Shard) -> Option<Epoch> {
        let place = self.shards.binary_search_by_key(&shard, |(held, _)| *held).ok()?;
        self.shards.get(place).map(|(_, epoch)| *epoch)
    }
}

/// The number of a shard's ownership: 1 at first, one more with every change of owner. A write with
/// an older epoch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries, newest first unless the list says otherwise.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` if this page is the last one.
    pub next: Option<Cursor>,
}

/// The position at which a page begins. Only the store that issued it understands it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cursor(pub String);

/// Selects a page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The most entries of the page, at least one.
    pub limit: usize,
    /// The cursor of the page; `None` for the first page.
    pub cursor: Option<Cursor>,
}

/// Selects deliveries; every condition that is set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    /// Deliveries in this state. `InFlight` selects nothing: a store does not know which are in
    /// flight.
    pub state: Option<StateName>,
    /// Deliveries to this destination.
    pub destination: Option<DestinationId>,
    /// Deliveries for this subscription.
    pub subscription: Option<SubscriptionId>,
    /// Deliveries of this event.
    pub event: Option<EventId>,
    /// Deliveries of events of this type.
    pub kind: Option<EventType>,
    /// Deliveries accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Deliveries accepted before this time.
    pub until: Option<Timestamp>,
    /// Ended at or after. One that has not ended does not match.
    pub ended_since: Option<Timestamp>,
}

impl DeliveryFilter {
    /// Whether the filter selects a delivery.
    pub fn matches(&self, delivery: &Delivery) -> bool {
        self.state.is_none_or(|state| state == delivery.state.name())
            && self.destination.is_none_or(|id| id == delivery.destination)
            && self.subscription.is_none_or(|id| id == delivery.subscription)
            && self.event.as_ref().is_none_or(|id| *id == delivery.event)
            && self.kind.as_ref().is_none_or(|kind| *kind == delivery.kind)
            && self.since.is_none_or(|since| since <= delivery.created_at)
            && self.until.is_none_or(|until| delivery.created_at < until)
            && self.ended_since.is_none_or(|since| {
                delivery.finished_at().is_some_and(|ended_at| since <= ended_at)
            })
    }
}

/// Selects events; every condition that is set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Events of this type.
    pub kind: Option<EventType>,
    /// Events of this object.
    pub object: Option<ObjectId>,
    /// Events accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Events accepted before this time.
    pub until: Option<Timestamp>,
}

impl EventFilter {
    /// Whether the filter selects an event.
    pub fn matches(&self, record: &EventRecord) -> bool {
        self.kind.as_ref().is_none_or(|kind| *kind == record.event.kind)
            && (self.object.is_none() || self.object == record.event.object)
            && self.since.is_none_or(|since| since <= record.accepted_at)
            && self.until.is_none_or(|until| record.accepted_at < until)
    }
}

/// A bulk replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayJob {
    /// Its identifier.
    pub id: ReplayId,
    /// The tenant whose deliveries are replayed.
    pub tenant: TenantId,
    /// Which deliveries. Its state is a finished one, or waiting: those are retried before their slots.
    pub filter: DeliveryFilter,
    /// The most deliveries replayed per second; `None` for no limit.
    pub per_second: Option<u32>,
    /// When it was created. Only deliveries that had ended by then are replayed, and only those that were
    /// not attempted since are retried. So each is sent once.
    pub created_at: Timestamp,
    /// Its state.
    pub state: ReplayState,
    /// How many deliveries it will replay, as counted at the start.
    pub total: u64,
    /// How many deliveries it has replayed.
    pub done: u64,
    /// The last delivery that it replayed; the job continues after it.
    pub position: Option<DeliveryId>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What became of the deliveries that it sent. Only [`crate::Work::settle`] changes it: a job that is
    /// created has none, and one that is replaced keeps what it has.
    pub outcomes: JobOutcomes,
}

impl ReplayJob {
    /// The shard whose owner runs it.
    pub fn shard(&self) -> Shard {
        let [.., last] = *self.id.as_bytes();
        Shard(last)
    }

    /// Whether the engine started it by itself, when an outage had ended: its identifier follows from
    /// the outage.
    pub fn is_of_outage(&self) -> bool {
        let of_outage =
            |id| ReplayId::of_outage(self.created_at, id, self.filter.subscription) == self.id;
        self.filter.destination.is_some_and(of_outage)
    }

    /// Whether it retries deliveries that wait, and does not replay those that have ended.
    pub fn retries(&self) -> bool {
        self.filter.state == Some(StateName::Waiting)
    }

    /// Whether a delivery, as it is now, is one that this job is still to send. One that it has sent
    /// already is not: it ended, or was attempted, after the job was created.
    pub fn takes(&self, delivery: &Delivery) -> bool {
        let is_left = match (self.retries(), delivery.finished_at()) {
            (true, None) => {
                delivery.created_at <= self.created_at
                    && delivery.last_attempt_at.is_none_or(|at| at <= self.created_at)
            }
            (false, Some(ended_at)) => ended_at <= self.created_at,
            (true, Some(_)) | (false, None) => false,
        };
        is_left && delivery.tenant == self.tenant && self.filter.matches(delivery)
    }
}

/// The state of a replay job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayState {
    /// Running.
    Running,
    /// Paused, until it is resumed.
    Paused,
    /// Finished: every selected delivery is replayed.
    Finished,
    /// Cancelled by a user.
    Cancelled,
}

/// The numbers of a tenant's records that quotas limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Keys.
    pub keys: u64,
    /// Destinations, including those without a subscription.
    pub destinations: u64,
    /// Replay jobs in the store, running or ended.
    pub replays: u64,
    /// Replay jobs that are running.
    pub replays_running: u64,
}

/// Counts of one minute, for charts. A repeated write is counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Deliveries accepted, by the time of acceptance.
    pub accepted: u64,
    /// Deliveries that succeeded, by the time of success.
    pub delivered: u64,
    /// Attempts that did not succeed, including errors on our own side, by the time at which they
    /// began.
    pub failed: u64,
    /// Deliveries that became dead, by the time at which they did.
    pub dead: u64,
}

/// A tally with the start of its time span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TallyAt {
    /// The start of the span.
    pub at: Timestamp,
    /// The counts of the span.
    pub tally: Tally,
}

/// How many records pruning removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Events.
    pub events: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Attempts.
    pub attempts: u64,
}

/// The stored answer to a request with an idempotency key, for repeats of the request. Until there
/// is an answer, it is the note that the request has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentAnswer {
    /// A digest of the request, to distinguish a repeat from another request with the same key.
    pub request: [u8; 32],
    /// The answer's status; [`IdempotentAnswer::BEGUN`] where there is no answer yet.
    pub status: u16,
    /// The answer's body, sealed by the caller if it contains a secret. For a request that has
    /// begun: the seed of its random numbers. Opaque to the store.
    pub body: Vec<u8>,
    /// When the answer was given, or when the request began.
    pub created_at: Timestamp,
}

impl IdempotentAnswer {
    /// The status of a request that has begun and has no answer yet. No real answer has this
    /// status.
    pub const BEGUN: u16 = 0;

    /// Whether this is an answer, and not only the note that the request has begun.
    pub fn is_answer(&self) -> bool {
        self.status != Self::BEGUN
    }

    /// Whether another entry for the same key replaces this one: this one was stored before
    /// `since`, or it is the note that a request has begun and the other one is its answer.
    pub fn gives_way(&self, other: &IdempotentAnswer, since: Timestamp) -> bool {
        self.created_at < since || (!self.is_answer() && other.is_answer())
    }
}
