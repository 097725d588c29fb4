//! The PostgreSQL store on private servers: conformance suite, several nodes, lost connections,
//! TLS.
#![expect(clippy::unwrap_used, reason = "these are tests, though not every function says so")]

mod bouncer;
mod clocks;
mod cluster;
mod conformance;
mod cuts;
mod erasing;
mod lists;
mod nodes;
mod proxy;
mod server;
mod set_clock;
mod standby;
mod tls;
mod transfer;
mod upkeep;
