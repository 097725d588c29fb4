//! The transport against receivers, resolvers and proxies that misbehave.
//!
//! All traffic stays on loopback, or in a network namespace of the test's own. Deadlines are short;
//! tests assert how a request ended, never how long it took.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod dns;
#[cfg(test)]
mod egress;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod http2;
#[cfg(test)]
mod namespace;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod resources;
#[cfg(test)]
mod reuse;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tls;
