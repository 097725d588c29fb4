//! The loop that moves deliveries: ingest → queue → dispatch → attempt → settle.
//!
//! **No SQL, no HTTP server, no clock of its own**: the clock, the transport and the store are
//! handed in, and so is the source of random bytes. One task holds the truth at run time (`core`,
//! a state machine without a single await) and linearises everything that happens; the shell around
//! it carries out what it says. Everything that matters is in the store or can be rebuilt from it:
//! what was accepted is delivered, waiting, dead or cancelled, whenever the process ends.

mod attempt;
mod background;
mod backlog;
mod cluster;
mod core;
mod directory;
mod entropy;
mod handle;
mod handovers;
mod heavy;
mod inbox;
mod ingest;
mod live;
mod loaded;
mod new_replay;
mod notices;
mod options;
mod quotas;
mod rebuilt;
mod refusal;
mod shell;
mod spans;
mod subscribing;
mod trial;
mod upkeep;

pub use crate::core::Gauges;
pub use background::{Background, LARGE_BYTES};
pub use directory::{Credentials, CredentialsError, OpenCredentials};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use handle::{CommandError, DestinationView, Ended, EngineHandle};
pub use heavy::Busy;
pub use ingest::{IngestError, Ingested, NewEvent};
pub use live::EngineEvent;
pub use new_replay::NewReplay;
pub use options::{IngestRate, Options};
pub use quotas::{Quota, QuotaReached, QuotaUse, Quotas, Whose};
pub use rebuilt::RebuiltRequest;
pub use shell::{Parts, start};
pub use spans::{AcceptedSpan, AttemptSpan, Spans};
