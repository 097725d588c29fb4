//! Tools for testing stores: the in-memory model, samples of every record, and the conformance
//! suite for all backends.
//!
//! **Never part of a release build.** The simulation runs the real engine on
//! [`memory::MemoryStore`]; other crates use it in their tests only.

pub mod conformance;
pub mod memory;
#[expect(clippy::unwrap_used, reason = "a sample that cannot be made should stop the test")]
pub mod samples;
