//! Clusters of real processes on a private PostgreSQL, with all kinds of faults.
//!
//! Each test prints one line with its figure. `POSTRIDER_CLUSTER_ROUNDS=20` makes each of them go
//! through its faults twenty times instead of once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alerts;
mod clocks;
mod faults;
mod fixtures;
mod inspecting;
mod keys;
mod neighbours;
#[path = "../../../store/tests/postgres/proxy.rs"]
mod proxy;
mod receiver;
mod recovery;
mod scene;
#[expect(dead_code, reason = "the tests of the store use more of it")]
#[path = "../../../store/tests/postgres/server.rs"]
mod server;
#[path = "../../../store/tests/postgres/set_clock.rs"]
mod set_clock;
mod skew;
#[expect(dead_code, unused_imports, reason = "the tests with one server use more of it")]
#[path = "../end_to_end/support/mod.rs"]
mod support;
mod upgrade;
