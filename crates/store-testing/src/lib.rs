//! What tests of a store need: the model in memory, samples of every record, and the suite that every
//! backend must pass.
//!
//! **Nothing of it is shipped.** The simulation runs the real engine on [`memory::MemoryStore`];
//! other crates use it in their tests only.

pub mod conformance;
pub mod memory;
#[expect(clippy::unwrap_used, reason = "a sample that cannot be made should stop the test")]
pub mod samples;
