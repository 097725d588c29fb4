//! The loop that moves deliveries: ingest → queue → dispatch → attempt → settle.
//!
//! **No SQL, no HTTP server, no clock of its own**: the clock, the transport, the store and the
//! source of random bytes are parameters. One task owns the run-time state (`core`, a state machine
//! without a single await) and processes all inputs one by one; the shell around it carries out its
//! actions. Everything else is in the store or can be rebuilt from it: an accepted delivery is
//! never lost, whenever the process ends.

mod attempt;
mod background;
mod backlog;
mod cluster;
mod core;
mod dead_replays;
mod directory;
mod enabling;
mod entropy;
mod handle;
mod handovers;
mod heavy;
mod inbox;
mod ingest;
mod live;
mod loaded;
mod misfits;
mod new_replay;
mod notices;
mod operational_events;
mod options;
mod own_limits;
mod quotas;
mod rebuilt;
mod refusal;
mod shell;
mod spans;
mod subscribing;
mod trial;
mod unused;
mod upkeep;

pub use crate::core::Gauges;
pub use background::{Background, LARGE_BYTES};
pub use directory::{Credentials, CredentialsError, OpenCredentials};
pub use enabling::Enabling;
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use handle::{CommandError, DestinationView, Ended, EngineHandle};
pub use heavy::Busy;
pub use ingest::{IngestError, Ingested, NewEvent};
pub use live::EngineEvent;
pub use misfits::MisfitCounts;
pub use new_replay::NewReplay;
pub use operational_events::{Field, FieldKind, OPERATIONAL_EVENTS, OperationalEvent};
pub use options::{IngestRate, Options};
pub use own_limits::TenantLimits;
pub use quotas::{Quota, QuotaReached, QuotaUse, Quotas, Whose};
pub use rebuilt::RebuiltRequest;
pub use shell::{Parts, start};
pub use spans::{AcceptedSpan, AttemptSpan, Spans};
