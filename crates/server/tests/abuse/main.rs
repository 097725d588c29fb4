//! The abuse suite: attacks on a real `postrider` from outside, one test each.
//!
//! Every test prints one line (`abuse: NAME: held: FIGURES` or `abuse: NAME: NOT HELD: …`). The
//! tests check outcomes: answered or not, closed or not, bytes of memory, counts. Ratios of times
//! are checked in the long form only. `cargo xtask abuse` runs the long form; `ABUSE_BINARY` names
//! another binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bodies;
mod connections;
mod files;
mod filters;
mod flows;
mod http2;
mod idempotency;
mod keys;
mod kit;
mod lists;
mod memory;
mod neighbour;
mod receivers;
mod rules;
mod scene;
mod schemas;
mod secrets;
mod storm;
mod streams;
#[expect(dead_code, reason = "the tests with one server use more of it")]
#[path = "../end_to_end/support/mod.rs"]
mod support;
mod wire;
