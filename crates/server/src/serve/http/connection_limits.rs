//! Who may connect: connections in total and per address, and requests per forwarded address.
//!
//! Where a limit is reached, the oldest idle connections give way, so connections that do nothing never
//! keep others out. Behind a trusted proxy all connections have the proxy's address, so requests of
//! each forwarded address are counted instead.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use ipnet::IpNet;
use tokio::time::Instant;

use super::connection::{Connection, now};
use super::forwarded;

/// The limits of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionLimits {
    /// Connections in total.
    pub(crate) connections_max: usize,
    /// Connections of one address; behind a trusted proxy, its requests at the same time.
    pub(crate) per_address_max: usize,
    /// Networks of proxies whose forwarding headers are used.
    pub(crate) trusted_proxies: Vec<IpNet>,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// The server's.
    Total,
    /// That of one address.
    Address,
}

impl LimitReached {
    /// The setting that was reached, for the log.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            LimitReached::Total => "http.connections_max",
            LimitReached::Address => "http.connections_per_address_max",
        }
    }
}

/// One network: an IPv4 address, or the /64 network of an IPv6 address, which is what one customer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ClientNetwork(IpAddr);

impl ClientNetwork {
    fn of(address: IpAddr) -> ClientNetwork {
        match address.to_canonical() {
            v4 @ IpAddr::V4(_) => ClientNetwork(v4),
            IpAddr::V6(v6) => {
                ClientNetwork(IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)))
            }
        }
    }
}

/// The open connections of one listener.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    limits: ConnectionLimits,
    epoch: Instant,
    open: Mutex<OpenConnections>,
    requests: Mutex<HashMap<ClientNetwork, usize>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    last: u64,
    connections: HashMap<u64, (Arc<Connection>, Option<ClientNetwork>)>,
    networks: HashMap<ClientNetwork, HashSet<u64>>,
}

impl ConnectionTable {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<ConnectionTable> {
        Arc::new(ConnectionTable {
            limits,
            epoch: now(),
            open: Mutex::default(),
            requests: Mutex::default(),
        })
    }

    /// A place for a connection of this peer.
    pub(super) fn admit(
        self: &Arc<Self>,
        peer: IpAddr,
    ) -> Result<AdmittedConnection, LimitReached> {
        let network = (!self.is_proxy(peer)).then(|| ClientNetwork::of(peer));
        let connection = Connection::new(self.epoch);
        let mut open = self.open();
        let max = self.limits.per_address_max;
        if network.is_some_and(|network| open.count(network) >= max)
            && !open.make_room(network, 1 + max / 64)
        {
            return Err(LimitReached::Address);
        }
        let max = self.limits.connections_max;
        if open.connections.len() >= max && !open.make_room(None, 1 + max / 64) {
            return Err(LimitReached::Total);
        }
        open.last += 1;
        let id = open.last;
        open.connections.insert(id, (Arc::clone(&connection), network));
        if let Some(network) = network {
            open.networks.entry(network).or_default().insert(id);
        }
        Ok(AdmittedConnection { table: Arc::clone(self), id, connection })
    }

    /// Evicts some idle connections.
    pub(super) fn relieve(&self) {
        let mut open = self.open();
        let wanted = 1 + open.connections.len() / 64;
        open.make_room(None, wanted);
    }

    /// Whether a trusted proxy says that its client came over TLS.
    pub(super) fn is_forwarded_tls(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        self.is_proxy(peer) && forwarded::is_tls(headers)
    }

    /// The address that a request comes from, and its place among the requests of that address.
    pub(super) fn request(
        self: &Arc<Self>,
        peer: IpAddr,
        headers: &HeaderMap,
    ) -> Result<(IpAddr, Option<ForwardedRequest>), LimitReached> {
        if !self.is_proxy(peer) {
            return Ok((peer.to_canonical(), None));
        }
        let client = forwarded::client(peer, headers, &self.limits.trusted_proxies);
        let network = ClientNetwork::of(client);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let count = requests.entry(network).or_insert(0);
        if *count >= self.limits.per_address_max {
            return Err(LimitReached::Address);
        }
        *count += 1;
        Ok((client, Some(ForwardedRequest { table: Arc::clone(self), network })))
    }

    fn is_proxy(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.limits.trusted_proxies.iter().any(|network| network.contains(&peer))
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenConnections {
    fn count(&self, network: ClientNetwork) -> usize {
        self.networks.get(&network).map_or(0, HashSet::len)
    }

    /// Evicts up to so many idle connections (of one network, where one is named); whether there was any.
    /// Several at once, so that a flood does not search the whole table for each connection.
    fn make_room(&mut self, of: Option<ClientNetwork>, wanted: usize) -> bool {
        let candidate = |id: &u64| Some((self.connections.get(id)?.0.expendable()?, *id));
        let mut idle: Vec<_> = match of {
            Some(network) => {
                self.networks.get(&network).into_iter().flatten().filter_map(candidate).collect()
            }
            None => self.connections.keys().filter_map(candidate).collect(),
        };
        let wanted = wanted.min(idle.len());
        if wanted == 0 {
            return false;
        }
        idle.select_nth_unstable(wanted - 1);
        idle.truncate(wanted);
        for (_, id) in idle {
            self.leave(id).inspect(|connection| connection.evict());
        }
        true
    }

    /// Forgets a connection; `None` where it was evicted before.
    fn leave(&mut self, id: u64) -> Option<Arc<Connection>> {
        let (connection, network) = self.connections.remove(&id)?;
        if let Some(network) = network
            && let Some(ids) = self.networks.get_mut(&network)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.networks.remove(&network);
            }
        }
        Some(connection)
    }
}

/// A place for a connection, given back when it is dropped.
#[derive(Debug)]
pub(super) struct AdmittedConnection {
    table: Arc<ConnectionTable>,
    id: u64,
    pub(super) connection: Arc<Connection>,
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        // `None` where it was evicted.
        drop(self.table.open().leave(self.id));
    }
}

/// A place for a request of a forwarded address, given back when it is dropped.
#[derive(Debug)]
pub(super) struct ForwardedRequest {
    table: Arc<ConnectionTable>,
    network: ClientNetwork,
}

impl Drop for ForwardedRequest {
    fn drop(&mut self) {
        let mut requests = self.table.requests.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = requests.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                requests.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn table(connections_max: usize, per_address_max: usize) -> Arc<ConnectionTable> {
        let trusted_proxies = vec!["192.0.2.0/24".parse().unwrap()];
        ConnectionTable::new(ConnectionLimits { connections_max, per_address_max, trusted_proxies })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn busy_connections_of_one_address_keep_only_that_address_out() {
        let table = table(10, 2);
        let first = table.admit(ip("10.0.0.1")).unwrap();
        let second = table.admit(ip("10.0.0.1")).unwrap();
        let (_a, _b) = (first.connection.begin(), second.connection.begin());
        assert_eq!(table.admit(ip("10.0.0.1")).unwrap_err(), LimitReached::Address);
        assert_eq!(table.admit(ip("::ffff:10.0.0.1")).unwrap_err(), LimitReached::Address);
        table.admit(ip("10.0.0.2")).unwrap();
        drop(second);
        table.admit(ip("10.0.0.1")).unwrap();
    }

    #[test]
    fn ipv6_addresses_of_one_network_are_counted_together() {
        let table = table(10, 1);
        let only = table.admit(ip("2001:db8:0:1::1")).unwrap();
        let _busy = only.connection.begin();
        assert_eq!(table.admit(ip("2001:db8:0:1:ffff::2")).unwrap_err(), LimitReached::Address);
        table.admit(ip("2001:db8:0:2::1")).unwrap();
    }

    #[test]
    fn idle_connections_give_way_and_those_that_never_asked_go_first() {
        let table = table(2, 2);
        let asked = table.admit(ip("10.0.0.1")).unwrap();
        drop(asked.connection.begin());
        let silent = table.admit(ip("10.0.0.2")).unwrap();
        let third = table.admit(ip("10.0.0.3")).unwrap();
        assert!(silent.connection.expendable().is_none(), "evicted");
        assert!(asked.connection.expendable().is_some(), "still there");
        let (_a, _b) = (asked.connection.begin(), third.connection.begin());
        assert_eq!(table.admit(ip("10.0.0.4")).unwrap_err(), LimitReached::Total);
        drop(third);
        table.admit(ip("10.0.0.4")).unwrap();
        drop((asked, silent));
        assert!(table.open().networks.is_empty() && table.open().connections.is_empty());
    }

    #[test]
    fn behind_a_proxy_requests_are_counted_by_forwarded_address() {
        let table = table(10, 1);
        let proxy = ip("192.0.2.1");
        for _ in 0..5 {
            std::mem::forget(table.admit(proxy).unwrap());
        }
        let from = |client: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", HeaderValue::from_static(client));
            headers
        };
        let (client, place) = table.request(proxy, &from("198.51.100.1")).unwrap();
        assert_eq!(client, ip("198.51.100.1"));
        assert_eq!(table.request(proxy, &from("198.51.100.1")).unwrap_err(), LimitReached::Address);
        table.request(proxy, &from("198.51.100.2")).unwrap();
        drop(place);
        table.request(proxy, &from("198.51.100.1")).unwrap();
        let (client, place) = table.request(ip("10.0.0.1"), &from("198.51.100.9")).unwrap();
        assert_eq!((client, place.is_none()), (ip("10.0.0.1"), true), "not a proxy of ours");
    }
}
