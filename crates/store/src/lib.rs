//! The durable state of Postrider.
//!
//! One contract ([`Store`]) whose methods are whole transactions, in the order of an event's life.
//! The embedded and the PostgreSQL backend mirror each other, and both pass one conformance suite.
//! **No decision is made here**: `postrider-domain` decides what changes, and the changes arrive as
//! values. **Every method that acts for a tenant takes the tenant as an argument.** Secrets are
//! opaque bytes here: the API seals them.

// The sample records are shared with the tests of other crates and refer to this crate by its name.
#[cfg(test)]
extern crate self as postrider_store;

mod attempt_codec;
mod audit;
mod contract;
mod documents;
pub mod embedded;
mod erasing;
mod error;
mod fair_semaphore;
mod nodes;
mod overview;
mod passes;
pub mod postgres;
mod records;
#[cfg(test)]
#[path = "../../store-testing/src/samples.rs"]
pub mod samples;
mod statistics;
mod summaries;
pub mod transfer;

pub use audit::{Actor, ActorKind, Audit, AuditEntry, AuditFilter};
pub use contract::{Configuration, History, Intake, Replays, Store, Upkeep, Usages, Work};
pub use documents::{Document, DocumentCount, DocumentKind, DocumentOrder, Documents, Expected};
pub use erasing::{Erasing, EventErasure};
pub use error::StoreError;
pub use nodes::{Change, Changes, FORMAT, Hint, Member, Nodes, PROGRAM, PeerMessage, ShardSet};
pub use overview::{Overview, Shown, Span};
pub use passes::{Pass, PassKind, PassLimits, PassPut, Passes};
pub use records::*;
pub use statistics::{AttemptSums, Statistics, SummingUp};
pub use summaries::{
    Counted, DUE_HOURS, DeadGroup, DeadLetters, DeadTally, DueCounts, DueTally, Summaries,
};
