//! Moving everything from one store to another.
//!
//! The source is read batch by batch, in an order that the source defines. The target writes each
//! batch in one transaction together with the position that was reached. **So a transfer that was
//! interrupted goes on where it stopped, and nothing is written twice.** Values are transferred,
//! not rows. At the end both sides are read again in full, and their counts and checksums are
//! compared by kind of record and by tenant. Secrets stay sealed: a transfer never has their keys.
//!
//! The target is empty, or has the beginning of the same transfer. Until the transfer is finished, no
//! server opens it.

mod digest;
mod run;

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::attempt_tally::AttemptHour;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_domain::ledger::Ledger;
use serde::{Deserialize, Serialize};

pub use self::digest::{Difference, Digest, RecordKind, Summed};
pub use self::run::{Moved, Phase, TransferError, Watch, transfer};
use crate::audit::AuditEntry;
use crate::documents::Document;
use crate::error::StoreError;
use crate::records::{
    DestinationRecord, EventRecord, IdempotentAnswer, Key, ReplayJob, SubscriptionRecord, Tally,
    Tenant,
};

/// A batch is full once it has this many records (**4,000**),
pub const RECORDS_MAX: usize = 4_000;
/// or this many bytes of payloads and answers.
pub(crate) const BYTES_MAX: usize = 8 << 20;

/// The parts of a store, in the order in which they are transferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Tenants.
    Tenants,
    /// API keys.
    Keys,
    /// Subscriptions with their sealed credentials, deleted ones included until they are removed.
    Subscriptions,
    /// Destinations with their circuits and counters.
    Destinations,
    /// The timelines of destinations.
    Transitions,
    /// Stored answers for idempotency keys.
    Answers,
    /// The audit log.
    Audit,
    /// Bulk replay jobs.
    Replays,
    /// Event types and jobs that erase payloads.
    Documents,
    /// Events, each with its deliveries and their attempts.
    Events,
    /// The ledger of every tenant.
    Ledgers,
    /// The counts of every minute.
    Tallies,
    /// The attempts of each destination, summed up by the hour.
    AttemptHours,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Part; 13] = [
        Part::Tenants,
        Part::Keys,
        Part::Subscriptions,
        Part::Destinations,
        Part::Transitions,
        Part::Answers,
        Part::Audit,
        Part::Replays,
        Part::Documents,
        Part::Events,
        Part::Ledgers,
        Part::Tallies,
        Part::AttemptHours,
    ];

    /// The next part; `None` after the last.
    pub fn next(self) -> Option<Part> {
        Part::ALL.into_iter().find(|part| *part > self)
    }

    /// The name, for messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Part::Tenants => "tenants",
            Part::Keys => "keys",
            Part::Subscriptions => "subscriptions",
            Part::Destinations => "destinations",
            Part::Transitions => "transitions",
            Part::Answers => "answers",
            Part::Audit => "audit",
            Part::Replays => "replays",
            Part::Documents => "documents",
            Part::Events => "events",
            Part::Ledgers => "ledgers",
            Part::Tallies => "tallies",
            Part::AttemptHours => "hours of attempts",
        }
    }
}

/// A record that is transferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A tenant.
    Tenant(Tenant),
    /// A key.
    Key(Key),
    /// A subscription.
    Subscription(Box<SubscriptionRecord>),
    /// A destination.
    Destination(Box<DestinationRecord>),
    /// An entry of a timeline. The entries of a timeline come in order.
    Transition {
        /// The tenant of the destination.
        tenant: TenantId,
        /// The destination.
        destination: DestinationId,
        /// Its index in the timeline, from 0.
        number: u64,
        /// The transition.
        transition: Box<Transition>,
    },
    /// A stored answer for an idempotency key.
    Answer {
        /// The tenant that made the request.
        tenant: TenantId,
        /// The idempotency key.
        key: String,
        /// The stored answer.
        answer: IdempotentAnswer,
    },
    /// An entry of the audit log.
    Audit(Box<AuditEntry>),
    /// A replay job.
    Replay(Box<ReplayJob>),
    /// An event type, a tenant's choice about them, or a job that erases payloads.
    Document(Box<Document>),
    /// An event with its deliveries and their attempts.
    Event(Box<WholeEvent>),
    /// A tenant's ledger, in which nothing is in flight.
    Ledger {
        /// The tenant.
        tenant: TenantId,
        /// The ledger.
        ledger: Ledger,
    },
    /// The counts of a minute.
    Tally {
        /// The tenant.
        tenant: TenantId,
        /// The minute, counted from the Unix epoch.
        minute: i64,
        /// The counts.
        tally: Tally,
    },
    /// The attempts of a destination in one hour, summed up.
    AttemptHour {
        /// The tenant of the destination.
        tenant: TenantId,
        /// The destination.
        destination: DestinationId,
        /// The hour, counted from the Unix epoch.
        hour: i64,
        /// The sums of that hour.
        attempts: Box<AttemptHour>,
    },
}

/// An event with its deliveries and their attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeEvent {
    /// The event as it was accepted.
    pub record: EventRecord,
    /// The digest of the application's request.
    pub fingerprint: [u8; 32],
    /// Its deliveries, by identifier.
    pub deliveries: Vec<Delivery>,
    /// Their attempts, by delivery and number.
    pub attempts: Vec<(DeliveryId, Attempt)>,
}

impl WholeEvent {
    /// How many records the event with its deliveries and attempts is.
    pub(crate) fn records(&self) -> usize {
        1 + self.deliveries.len() + self.attempts.len()
    }

    /// An estimate of its size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let event = &self.record.event;
        let old = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        let answer = |attempt: &Attempt| match &attempt.ending {
            postrider_domain::attempt::Ending::Answered(answer) => answer.body.len(),
            postrider_domain::attempt::Ending::Failed(_)
            | postrider_domain::attempt::Ending::OwnFault(_) => 0,
        };
        let answers: usize = self.attempts.iter().map(|(_, attempt)| answer(attempt)).sum();
        event.data.as_bytes().len() + old + answers
    }
}

/// A position in a source: a part, and a mark that only the source understands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferPosition {
    /// The part that is being moved.
    pub part: Part,
    /// The position in that part; `None` at its beginning.
    pub mark: Option<String>,
}

impl TransferPosition {
    /// The beginning of the first part.
    pub const START: TransferPosition = TransferPosition { part: Part::Tenants, mark: None };
}

/// A batch of records of the source, in its order.
#[derive(Debug)]
pub struct Batch {
    /// The records, all of one part.
    pub items: Vec<Item>,
    /// The mark of the next batch; `None` if this is the last one of its part.
    pub next: Option<String>,
}

/// How many records a store has, to show progress and to notice records that were left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records of every kind.
    pub records: u64,
    /// How many of the records are events.
    pub events: u64,
    /// How many of the records are deliveries.
    pub deliveries: u64,
    /// How many of the records are attempts.
    pub attempts: u64,
}

/// How far a transfer into a target has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The source's identity.
    pub source: String,
    /// Where to continue; `None` when everything is written.
    pub place: Option<TransferPosition>,
    /// How many records have been written.
    pub records: u64,
    /// Whether both sides were compared and agreed.
    pub finished: bool,
}

/// A store from which all records can be read. Nobody writes to it meanwhile.
#[async_trait]
pub trait Source: Send + Sync {
    /// The identity of this store, which no other store has.
    async fn identity(&self) -> Result<String, StoreError>;
    /// Names of servers that run on it now; a store that only one process can open has none.
    async fn running(&self) -> Result<Vec<String>, StoreError>;
    /// How many records there are.
    async fn totals(&self) -> Result<Totals, StoreError>;
    /// The next batch of a part, with about `records_max` records; the mark in `place` comes from
    /// this store.
    async fn read(&self, place: &TransferPosition, records_max: usize)
    -> Result<Batch, StoreError>;
}

/// A store into which records can be transferred.
#[async_trait]
pub trait Target: Source {
    /// The progress of a transfer into this store; `None` if none was begun. After this call an
    /// earlier process that is still running cannot write any more.
    async fn take_over(&self) -> Result<Option<Progress>, StoreError>;
    /// Writes a batch together with the new progress, or nothing.
    async fn write(&self, items: Vec<Item>, progress: &Progress) -> Result<(), StoreError>;
}
