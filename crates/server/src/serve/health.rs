//! Separate listeners for health and metrics: they answer even while the API's listener is
//! overloaded.
//!
//! They share no connection limits with the API. By default the address is on loopback, so other
//! machines see no more than the API shows.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use postrider_api::ApiState;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::http;
use crate::config::{Config, HealthListen};

/// The distance from the API's port to the default port of health and metrics.
const PORT_OFFSET: u16 = 10_000;
/// The most connections of such a listener: probes and a few collectors.
const CONNECTIONS_MAX: usize = 64;
const CONNECTIONS_PER_ADDRESS_MAX: usize = 32;

/// The bound sockets.
#[derive(Debug, Default)]
pub(super) struct HealthListeners {
    health: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

impl HealthListeners {
    /// Binds the sockets. An address that the operator chose must be free; the default one need not
    /// be.
    pub(super) async fn bind(config: &Config) -> anyhow::Result<HealthListeners> {
        let health = match config.server.health_listen {
            HealthListen::Off => None,
            HealthListen::At(address) => Some(bind(address, "server.health_listen").await?),
            HealthListen::BesideTheApi => match address(config) {
                None => None,
                Some(address) => bind(address, "health and metrics")
                    .await
                    .inspect_err(|error| {
                        tracing::warn!(
                            error = format!("{error:#}"),
                            "health and metrics are on the API's address only: set server.health_listen"
                        );
                    })
                    .ok(),
            },
        };
        let metrics = match config.metrics.listen {
            Some(address) => Some(bind(address, "metrics.listen").await?),
            None => None,
        };
        Ok(HealthListeners { health, metrics })
    }

    /// Serves health and metrics until told to stop.
    pub(super) fn serve(self, config: &Config, state: &ApiState, stop: &watch::Receiver<bool>) {
        let health =
            self.health.map(|it| (it, "health", postrider_api::health_router(state.clone())));
        let metrics =
            self.metrics.map(|it| (it, "metrics", postrider_api::metrics_router(state.clone())));
        for (socket, what, router) in health.into_iter().chain(metrics) {
            if let Ok(address) = socket.local_addr() {
                tracing::info!(%address, what, "listening apart from the API");
            }
            let mut options = http::ListenerOptions::of(config);
            options.limits.connections_max = CONNECTIONS_MAX;
            options.limits.per_address_max = CONNECTIONS_PER_ADDRESS_MAX;
            drop(tokio::spawn(http::serve(socket, router, options, stop.clone())));
        }
    }
}

async fn bind(address: SocketAddr, what: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} ({what})"))
}

/// Where health and metrics are apart from the API; `None` where they are not.
pub(crate) fn address(config: &Config) -> Option<SocketAddr> {
    match config.server.health_listen {
        HealthListen::Off => None,
        HealthListen::At(address) => Some(address),
        HealthListen::BesideTheApi => beside(config.listen),
    }
}

/// The default address of the health listener: on loopback, at a fixed distance from the API's port,
/// or at any free port if the API takes any. `None` if there is no such port.
fn beside(api: SocketAddr) -> Option<SocketAddr> {
    let port = if api.port() == 0 { 0 } else { api.port().checked_add(PORT_OFFSET)? };
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_address_of_health_is_on_loopback_beside_the_api() {
        let beside =
            |address: &str| beside(address.parse().unwrap()).map(|address| address.to_string());
        assert_eq!(beside("0.0.0.0:8080").as_deref(), Some("127.0.0.1:18080"));
        assert_eq!(beside("[::1]:0").as_deref(), Some("127.0.0.1:0"));
        assert_eq!(beside("127.0.0.1:60000"), None);
    }

    #[tokio::test]
    async fn busy_default_port_is_skipped_and_a_busy_chosen_port_is_refused() {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = taken.local_addr().unwrap();
        let mut config = Config::default();
        config.listen.set_port(address.port() - PORT_OFFSET);
        assert!(HealthListeners::bind(&config).await.unwrap().health.is_none());
        config.server.health_listen = HealthListen::At(address);
        let refused = HealthListeners::bind(&config).await.unwrap_err().to_string();
        assert!(refused.contains("server.health_listen"), "{refused}");
    }
}
