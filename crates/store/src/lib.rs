//! What Postrider remembers.
//!
//! One contract ([`Store`]) whose methods are whole transactions, in the order of an event's life;
//! the backends mirror each other, and one conformance suite holds both to it. **No decision is
//! made here**: what changes is decided in `postrider-domain` and arrives as values. **No method
//! without a tenant** where the caller acts for one. Secrets are opaque bytes: whoever seals them
//! is above.

mod audit;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
pub mod embedded;
mod error;
mod fair_semaphore;
pub mod memory;
mod nodes;
pub mod postgres;
mod records;
pub mod transfer;

pub use audit::{Actor, ActorKind, Audit, AuditEntry, AuditFilter};
pub use contract::{Configuration, History, Intake, Replays, Store, Upkeep, Usages, Work};
pub use error::StoreError;
pub use nodes::{Change, Changes, FORMAT, Hint, Letter, Member, Nodes, PROGRAM, ShardSet};
pub use records::*;
