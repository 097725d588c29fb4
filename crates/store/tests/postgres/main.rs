//! The PostgreSQL store on servers of its own: the suite, several nodes, lost connections, TLS.
#![expect(clippy::unwrap_used, reason = "these are tests, though not every function says so")]

mod cluster;
mod conformance;
mod cuts;
mod nodes;
mod proxy;
mod server;
mod tls;
mod transfer;
