//! `postrider doctor --quick`: is the server of this configuration alive and ready? For health checks
//! of containers.
//!
//! It asks the listener of health, which needs no key, no name and no certificate, and answers also
//! while the API is overloaded. The configuration is the only file that it reads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::{Finding, found};
use crate::client::Client;
use crate::config::Config;
use crate::serve::health_address;

/// For both answers together: less than the timeout of a container's health check.
const PATIENCE: Duration = Duration::from_secs(4);

/// Asks the server, at this URL or where it listens by its configuration.
pub(super) async fn look(url: Option<&str>, config: &Config) -> Vec<Finding> {
    let asked = async { both(&server(url, config)?).await };
    let patient = tokio::time::timeout(PATIENCE, asked).await;
    let silent = || Err(format!("the server says nothing within {PATIENCE:?}"));
    vec![found("server", patient.unwrap_or_else(|_| silent()))]
}

async fn both(server: &str) -> Result<String, String> {
    let client = Client::new(server, None, None).map_err(|failure| failure.to_string())?;
    for path in ["/healthz", "/readyz"] {
        let (status, text) = client.text(path).await.map_err(|failure| failure.to_string())?;
        if !status.is_success() {
            return Err(format!("{server}{path} answers {status}: {}", text.trim()));
        }
    }
    Ok(format!("{server} is ready"))
}

pub(super) fn server(url: Option<&str>, config: &Config) -> Result<String, String> {
    if let Some(url) = url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    match health_address(config) {
        Some(address) if address.port() == 0 => {
            Err("the server takes any free port: name it by --server".to_owned())
        }
        Some(address) => Ok(format!("http://{}", from_here(address))),
        None if config.server.tls_cert.is_some() => Err("health has no listener of its own, and \
             the certificate of the API is for its public name: set server.health_listen, or name \
             the server by --server"
            .to_owned()),
        None => Ok(format!("http://{}", from_here(config.listen))),
    }
}

/// Where this machine reaches a listener: one on all addresses is on loopback too.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HealthListen;

    #[test]
    fn the_listener_of_health_is_asked_where_this_machine_reaches_it() {
        let mut config = Config::default();
        let asked = |config: &Config| server(None, config);
        assert_eq!(asked(&config).unwrap(), "http://127.0.0.1:18080");
        config.listen = "0.0.0.0:9000".parse().unwrap();
        assert_eq!(asked(&config).unwrap(), "http://127.0.0.1:19000");
        config.server.health_listen = HealthListen::At("[::]:81".parse().unwrap());
        assert_eq!(asked(&config).unwrap(), "http://[::1]:81");
        config.server.health_listen = HealthListen::Off;
        assert_eq!(asked(&config).unwrap(), "http://127.0.0.1:9000");
        config.server.tls_cert = Some("cert.pem".into());
        assert!(asked(&config).unwrap_err().contains("server.health_listen"));
        assert_eq!(server(Some("https://a.example/"), &config).unwrap(), "https://a.example");
    }
}
