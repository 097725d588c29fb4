//! The PostgreSQL store on servers of its own: the suite, several nodes, lost connections, TLS.

mod cluster;
mod conformance;
mod cuts;
mod nodes;
mod proxy;
mod server;
mod tls;
