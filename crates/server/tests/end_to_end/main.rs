//! The real binary, on loopback, from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod alerts;
mod audit;
mod backup;
mod bench;
mod clock;
mod command_line;
mod crash;
mod demo;
mod erasure;
mod error_paths;
mod first_steps;
mod lifecycle;
mod lost_history;
mod mcp;
mod messages;
mod migrate;
mod mutual_tls;
mod operational;
mod own_listeners;
mod private_files;
mod reads;
mod refusals;
mod refused_bodies;
mod secrecy;
#[path = "../../../store/tests/postgres/set_clock.rs"]
mod set_clock;
mod signing_in;
mod slow_clients;
mod support;
mod terminals;
mod way_in;
mod weekend;
mod workfront;
