//! The engine on paused time, with a scripted transport and the store in memory. Each sentence of
//! the contract has a test that is named after it.

#![expect(clippy::disallowed_methods, reason = "tests drive tokio's paused clock")]
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod bulk_retry;
mod circuit;
mod crash;
mod embedded;
mod fairness;
mod forecast;
mod handover;
mod life;
mod memory;
mod nothing_lost;
mod own_policies;
mod recovery;
mod replay;
mod residence;
mod retry_now;
mod schedule;
mod soak;
mod tenants;
mod traces;
mod world;
