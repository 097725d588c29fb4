//! One HTTP request out, safely.
//!
//! This crate enforces the egress policy and the deadline, and knows nothing of retries, circuits
//! or stores. Every outcome of a request is a [`Finished`](postrider_domain::attempt::Finished)
//! value: there is no error that could be forgotten. No connection is ever opened to an address
//! that [`vet_address`](postrider_domain::egress::vet_address) refuses, whatever the name of the
//! URL resolved to when the subscription was created.
//!
//! The life of a request: `transport` asks `resolve` for addresses and vets them, takes a
//! connection from `pool` or has `connect` open one (`proxy`, `tls`), sends over `http1` or
//! `http2`, and `fault` classifies errors.

mod certificate;
mod clock;
mod connect;
mod egress;
mod fault;
mod http1;
mod http2;
mod options;
mod payload;
mod pool;
mod proxy;
mod request;
mod resolve;
mod stream;
mod tls;
mod transport;

pub use certificate::CertificateFacts;
pub use clock::{Clock, SystemClock, pause};
pub use egress::Egress;
pub use options::{
    DnsOptions, Nameservers, PoolOptions, ProxyCredentials, ProxyKind, ProxyOptions, TlsOptions,
    TransportOptions,
};
pub use pool::PoolStats;
pub use request::{InvalidTarget, Request, Target};
pub use resolve::{ResolverSetupError, resolver_answers};
pub use tls::{ClientIdentity, Part, TlsSetupError};
pub use transport::{HttpTransport, SetupError, Transport};
