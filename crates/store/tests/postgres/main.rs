//! The PostgreSQL store on servers of its own: the suite, several nodes, lost connections.

mod conformance;
mod server;
