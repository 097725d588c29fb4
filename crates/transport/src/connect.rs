//! Opens a connection, to a vetted address only.
//!
//! Every address is vetted right before the connection is opened, and the peer's address again
//! afterwards. There is no way around this: address literals and proxied connections take the same
//! path.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use postrider_domain::attempt::{FailureClass, OwnFaultKind, Phase};
use postrider_domain::egress::{vet_address, vet_again};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::clock::instant_now;
use crate::egress::Egress;
use crate::fault::{self, Fault};
use crate::options::{ProxyOptions, TransportOptions};
use crate::pool::Gauges;
use crate::proxy;
use crate::request::Target;
use crate::stream::Stream;
use crate::tls::Tls;
use crate::transport::Progress;

/// Opens connections.
#[derive(Debug)]
pub(crate) struct Connector {
    egress: Egress,
    proxy: Option<ProxyOptions>,
    stagger: Duration,
    tls: Tls,
    gauges: Arc<Gauges>,
}

impl Connector {
    pub(crate) fn new(options: &TransportOptions, tls: Tls, gauges: Arc<Gauges>) -> Self {
        Connector {
            egress: Egress::from(options.egress.clone()),
            proxy: options.proxy.clone(),
            stagger: options.connect_stagger,
            tls,
            gauges,
        }
    }

    /// The egress policy in effect.
    pub(crate) fn egress(&self) -> &Egress {
        &self.egress
    }

    /// Vets the URL of a target again: its subscription may have been created under another policy.
    pub(crate) fn vet_target(&self, target: &Target) -> Result<(), Fault> {
        vet_again(target.url(), &self.egress.policy())
            .map_err(|refusal| Fault::theirs(FailureClass::Blocked, refusal.to_string()))
    }

    /// Vets all addresses of a target: a single blocked address refuses it.
    pub(crate) fn vet(&self, addresses: &[IpAddr]) -> Result<(), Fault> {
        let policy = self.egress.policy();
        for &address in addresses {
            vet_address(address, &policy)?;
        }
        Ok(())
    }

    /// Opens a connection to one of these addresses, encrypted if the target needs it; returns the
    /// peer's address too.
    pub(crate) async fn open(
        &self,
        target: &Target,
        addresses: &[IpAddr],
        progress: &mut Progress,
    ) -> Result<(Stream, IpAddr), Fault> {
        self.vet(addresses)?;
        let begun_at = progress.enter(Phase::Connect);
        let addresses: Vec<_> =
            addresses.iter().map(|&ip| SocketAddr::new(ip, target.key.port)).collect();
        let counted = self.gauges.connection();
        let (stream, address) = match &self.proxy {
            None => self.connect(&addresses).await?,
            Some(options) => connect_through(options, &addresses, progress).await?,
        };
        // Without TCP_NODELAY sends may be delayed, but the socket still works.
        drop(stream.set_nodelay(true));
        progress.timings.connect = Some(instant_now() - begun_at);
        if !target.key.https {
            return Ok((Stream::plain(stream, counted), address.ip()));
        }
        let begun_at = progress.enter(Phase::Tls);
        let config = self
            .tls
            .config(target.identity())
            .map_err(|error| Fault::ours(OwnFaultKind::Internal, error.to_string()))?;
        let encrypted = TlsConnector::from(config)
            .connect(target.server_name.clone(), stream)
            .await
            .map_err(|error| fault::of_handshake(&error))?;
        progress.timings.tls = Some(instant_now() - begun_at);
        Ok((Stream::tls(encrypted, counted), address.ip()))
    }

    /// Connects to the first address that answers. The next one is tried in parallel after the
    /// stagger time, or at once if the earlier ones have failed.
    async fn connect(&self, addresses: &[SocketAddr]) -> Result<(TcpStream, SocketAddr), Fault> {
        let mut fault = Fault::theirs(FailureClass::Dns, "the name has no address");
        let mut waiting = interleave(addresses).into_iter();
        let mut trying = FuturesUnordered::new();
        if let Some(first) = waiting.next() {
            trying.push(self.connect_one(first));
        }
        loop {
            let tried = match timeout(self.stagger, trying.next()).await {
                Ok(tried) => tried,
                Err(_) if waiting.len() > 0 => None,
                Err(_) => trying.next().await,
            };
            match tried {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => fault = worse(fault, error),
                None => {}
            }
            match waiting.next() {
                Some(next) => trying.push(self.connect_one(next)),
                None if trying.is_empty() => return Err(fault),
                None => {}
            }
        }
    }

    async fn connect_one(&self, address: SocketAddr) -> Result<(TcpStream, SocketAddr), Fault> {
        vet_address(address.ip(), &self.egress.policy())?;
        let at = |error| match fault::of_connect(&error) {
            Fault::Theirs(class, detail) => Fault::Theirs(class, format!("{address}: {detail}")),
            ours @ Fault::Ours(..) => ours,
        };
        let stream = TcpStream::connect(address).await.map_err(at)?;
        let peer = stream.peer_addr().map_err(at)?;
        vet_address(peer.ip(), &self.egress.policy())?;
        if peer.ip() != address.ip() {
            return Err(Fault::theirs(
                FailureClass::Blocked,
                format!("connected to {peer} instead of {address}"),
            ));
        }
        Ok((stream, address))
    }
}

/// Opens a tunnel to the first address that a proxy can connect to. The operator chose the proxy:
/// its own address is not vetted, and its failures are our own fault.
async fn connect_through(
    options: &ProxyOptions,
    addresses: &[SocketAddr],
    progress: &mut Progress,
) -> Result<(TcpStream, SocketAddr), Fault> {
    let mut fault = Fault::theirs(FailureClass::Dns, "the name has no address");
    for address in interleave(addresses) {
        progress.at_proxy = true;
        let connected = TcpStream::connect((options.host.as_str(), options.port)).await;
        progress.at_proxy = false;
        let mut stream = connected.map_err(|error| match fault::is_resources(&error) {
            true => fault::of_connect(&error),
            false => Fault::ours(OwnFaultKind::Proxy, format!("cannot connect: {error}")),
        })?;
        match proxy::tunnel(options, &mut stream, address).await {
            Ok(()) => return Ok((stream, address)),
            Err(theirs @ Fault::Theirs(..)) => fault = worse(fault, theirs),
            Err(ours @ Fault::Ours(..)) => return Err(ours),
        }
    }
    Err(fault)
}

/// Alternates IPv6 and IPv4, beginning with the family of the first address.
fn interleave(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut one, mut other): (Vec<_>, Vec<_>) = addresses
        .iter()
        .rev()
        .copied()
        .partition(|address: &SocketAddr| address.is_ipv6() == first_is_v6);
    let mut ordered = Vec::with_capacity(addresses.len());
    while !(one.is_empty() && other.is_empty()) {
        ordered.extend(one.pop());
        ordered.extend(other.pop());
    }
    ordered
}

/// Which of two faults is reported: a failure of the destination says more than that we could not
/// try, for example over IPv6 on a machine without it.
fn worse(one: Fault, other: Fault) -> Fault {
    match (&one, &other) {
        (Fault::Theirs(FailureClass::Dns, _), _) | (Fault::Ours(..), Fault::Theirs(..)) => other,
        (Fault::Theirs(..) | Fault::Ours(..), _) => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let parse = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let cases: [(&[&str], &[&str]); 4] = [
            (&[], &[]),
            (&["1.1.1.1:1"], &["1.1.1.1:1"]),
            (
                &["[2600::1]:1", "[2600::2]:1", "1.1.1.1:1"],
                &["[2600::1]:1", "1.1.1.1:1", "[2600::2]:1"],
            ),
            (
                &["1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "[2600::1]:1"],
                &["1.1.1.1:1", "[2600::1]:1", "1.1.1.2:1", "1.1.1.3:1"],
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(interleave(&parse(given)), parse(expected));
        }
    }
}
