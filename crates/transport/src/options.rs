//! The settings of outgoing connections.
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
    /// Which addresses may be contacted.
    pub egress: EgressPolicy,
    /// How names are resolved.
    pub dns: DnsOptions,
    /// The proxy for all requests, if there is one. Never taken from the environment.
    pub proxy: Option<ProxyOptions>,
    /// Trusted root certificates, and the client certificate.
    pub tls: TlsOptions,
    /// The limits of the connection pool.
    pub pool: PoolOptions,
    /// Whether HTTP/2 is offered (by ALPN, so with https only).
    pub http2: bool,
    /// How long to wait for one address before the next one is tried in parallel.
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
    /// The name servers.
    pub nameservers: Nameservers,
    /// The time limit for a name. Shorter than an attempt's deadline, so that a failure of our own
    /// resolver is recognised before the deadline passes, which would count against the
    /// destination.
    pub timeout: Duration,
    /// After a name timed out: how long the resolver may take to answer a check query.
    pub liveness_timeout: Duration,
    /// Names in the cache.
    pub cache_names_max: usize,
    /// The shortest time for which an answer is cached; failures are cached exactly this long.
    pub ttl_min: Duration,
    /// The longest time for which an answer is cached.
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
    /// The defaults, with time limits that fit into an attempt's deadline.
    pub fn within(deadline: Duration) -> Self {
        let (timeout, liveness_timeout) = (deadline / 5 * 3, deadline / 5);
        DnsOptions { timeout, liveness_timeout, ..DnsOptions::default() }
    }
}

/// The name servers to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nameservers {
    /// The name servers of the system's configuration, after its hosts file.
    System,
    /// Only these name servers, over UDP and TCP; without a hosts file.
    Only(Vec<SocketAddr>),
}

/// Trusted root certificates, and the client certificate.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Root certificates in addition to the platform's (or the bundled ones, if it has none).
    pub extra_roots: Vec<CertificateDer<'static>>,
    /// The default client certificate for receivers that request one.
    pub identity: Option<Arc<ClientIdentity>>,
}

/// The limits of the connection pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// An HTTP/1.1 connection is closed after this time without a request. Common servers close
    /// after 5 s; closing earlier avoids most requests on a connection that is just being closed.
    pub idle_timeout: Duration,
    /// How long an idle HTTP/2 connection is kept. Its servers announce that they close.
    pub http2_idle_timeout: Duration,
    /// Connections that are being opened to one host of one tenant at the same time. A receiver
    /// drops connections beyond its accept queue (often 128), and TCP retries them only a second
    /// later.
    pub opening_per_host_max: usize,
    /// Idle HTTP/1.1 connections to one host of one tenant. Many destinations may be at one host:
    /// with fewer than are in flight there, connections would be opened and closed all the time.
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

/// The proxy for all requests. It gets the vetted address, never the name, so that it resolves
/// nothing.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// Its protocol.
    pub kind: ProxyKind,
    /// Its name or address. The operator chose it: it is not vetted.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The credentials for the proxy.
    pub credentials: Option<ProxyCredentials>,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    /// HTTP `CONNECT`, also for plain http.
    HttpConnect,
    /// SOCKS version 5.
    Socks5,
}

/// The credentials for a proxy.
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
