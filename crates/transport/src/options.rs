//! What an operator may set of the way out.
//!
//! Every cache, pool and wait has a limit here; the defaults are safe.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::egress::EgressPolicy;
use rustls::pki_types::CertificateDer;

use crate::tls::ClientIdentity;

/// All settings of an [`HttpTransport`](crate::HttpTransport).
#[derive(Debug, Clone)]
pub struct TransportOptions {
    /// What may be contacted.
    pub egress: EgressPolicy,
    /// How names are resolved.
    pub dns: DnsOptions,
    /// The proxy that every request goes through, where there is one. Never from the environment.
    pub proxy: Option<ProxyOptions>,
    /// Which certificates are trusted and shown.
    pub tls: TlsOptions,
    /// Which connections are kept.
    pub pool: PoolOptions,
    /// Whether HTTP/2 is offered (by ALPN, so with https only).
    pub http2: bool,
    /// How long one address may take before the next one is tried beside it.
    pub connect_stagger: Duration,
}

impl Default for TransportOptions {
    fn default() -> Self {
        TransportOptions {
            egress: EgressPolicy::default(),
            dns: DnsOptions::default(),
            proxy: None,
            tls: TlsOptions::default(),
            pool: PoolOptions::default(),
            http2: true,
            connect_stagger: Duration::from_millis(250),
        }
    }
}

/// How names are resolved.
#[derive(Debug, Clone)]
pub struct DnsOptions {
    /// Who is asked.
    pub nameservers: Nameservers,
    /// How long a name may take. Shorter than an attempt's deadline, so that a resolver of ours
    /// that does not answer is recognised as such before the deadline blames the destination.
    pub timeout: Duration,
    /// How long the resolver may take to show that it is alive, after a name that timed out.
    pub liveness_timeout: Duration,
    /// Names that are remembered at the same time.
    pub cache_names_max: usize,
    /// An answer is kept at least so long; failures are kept exactly so long.
    pub ttl_min: Duration,
    /// An answer is kept at most so long.
    pub ttl_max: Duration,
}

impl Default for DnsOptions {
    fn default() -> Self {
        DnsOptions {
            nameservers: Nameservers::System,
            timeout: Duration::from_secs(3),
            liveness_timeout: Duration::from_secs(1),
            cache_names_max: 10_000,
            ttl_min: Duration::from_secs(1),
            ttl_max: Duration::from_secs(60),
        }
    }
}

impl DnsOptions {
    /// The default, with waits that fit into an attempt's deadline.
    pub fn within(deadline: Duration) -> Self {
        let (timeout, liveness_timeout) = (deadline / 5 * 3, deadline / 5);
        DnsOptions { timeout, liveness_timeout, ..DnsOptions::default() }
    }
}

/// Who is asked for addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nameservers {
    /// Those of the system's configuration, its hosts file first.
    System,
    /// These only, over UDP and TCP; no hosts file.
    Only(Vec<SocketAddr>),
}

/// Which certificates are trusted and shown.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Roots that are trusted beside the platform's (or the bundled ones, where it has none).
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// What we show to receivers that ask who we are, where the request brings nothing of its own.
    pub identity: Option<Arc<ClientIdentity>>,
}

/// Which connections are kept.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// An HTTP/1.1 connection is closed after so long without a request. Common servers close at
    /// 5 s; being first avoids most requests on a connection that is just being closed.
    pub idle_timeout: Duration,
    /// The same for HTTP/2, whose servers announce that they close.
    pub http2_idle_timeout: Duration,
    /// Connections that are being opened to one host of one tenant at the same time. More than a
    /// receiver's queue of new connections holds (128, often) it drops without a word, and what was
    /// dropped is tried again a second later.
    pub opening_per_host_max: usize,
    /// Idle HTTP/1.1 connections to one host of one tenant. One that is idle was in use a moment ago,
    /// and many destinations may be at one host: with fewer than are in flight there, connections are
    /// opened and closed all the time.
    pub idle_per_host_max: usize,
    /// Idle HTTP/1.1 connections in total.
    pub idle_max: usize,
}

impl Default for PoolOptions {
    fn default() -> Self {
        PoolOptions {
            idle_timeout: Duration::from_secs(4),
            http2_idle_timeout: Duration::from_secs(30),
            opening_per_host_max: 64,
            idle_per_host_max: 1024,
            idle_max: 4096,
        }
    }
}

/// The proxy that every request goes through. It is told the vetted address, never the name, so
/// that it has nothing to resolve.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// What it speaks.
    pub kind: ProxyKind,
    /// Its name or address. The operator chose it: it is not vetted.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who we are to it.
    pub credentials: Option<ProxyCredentials>,
}

/// What a proxy speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// HTTP `CONNECT`, for plain http as well.
    HttpConnect,
    /// SOCKS version 5.
    Socks5,
}

/// Who we are to a proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyCredentials {
    /// User name.
    pub user: String,
    /// Password. Never shown.
    pub password: String,
}

impl fmt::Debug for ProxyCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyCredentials").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::policy::AttemptPolicy;

    use super::*;

    #[test]
    fn a_resolver_that_is_down_is_found_out_before_the_deadline() {
        let deadline = AttemptPolicy::default().deadline;
        for dns in [DnsOptions::default(), DnsOptions::within(deadline)] {
            assert_eq!(dns.timeout, Duration::from_secs(3));
            assert_eq!(dns.liveness_timeout, Duration::from_secs(1));
            assert!(dns.timeout + dns.liveness_timeout < deadline);
        }
    }
}
