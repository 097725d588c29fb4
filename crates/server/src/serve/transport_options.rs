//! The options of the transport, from the configuration: proxy, certificates, own addresses.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postrider_transport::{
    ClientIdentity, Egress, ProxyCredentials, ProxyKind, ProxyOptions, TlsOptions, TransportOptions,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use crate::config::Config;

/// How often the interfaces are listed.
const OWN_ADDRESSES_EVERY: Duration = Duration::from_secs(15);

impl Config {
    /// The configured proxy.
    pub(crate) fn proxy_options(&self) -> anyhow::Result<Option<ProxyOptions>> {
        let Some(text) = &self.proxy.url else { return Ok(None) };
        let url = Url::parse(text).context("not a URL")?;
        let kind = match url.scheme() {
            "http" => ProxyKind::HttpConnect,
            "socks5" => ProxyKind::Socks5,
            _ => anyhow::bail!("the scheme must be http or socks5"),
        };
        // `postrider config` shows this setting, so it must not contain a password.
        anyhow::ensure!(url.username().is_empty() && url.password().is_none(), "has a user name");
        let host = url.host_str().context("has no host")?.to_owned();
        let port = url.port_or_known_default().context("has no port")?;
        let credentials = self.proxy.user.clone().map(|user| ProxyCredentials {
            user,
            password: self.proxy.password.clone().unwrap_or_default(),
        });
        Ok(Some(ProxyOptions { kind, host, port, credentials }))
    }

    /// All options of the transport. Reads certificate files and interface addresses.
    pub(crate) fn transport_options(&self) -> anyhow::Result<TransportOptions> {
        let mut egress = self.egress.clone();
        egress.own_addresses = self.own_addresses();
        Ok(TransportOptions {
            egress,
            dns: self.dns.clone(),
            proxy: self.proxy_options()?,
            tls: self.tls_options()?,
            pool: self.transport.pool.clone(),
            http2: self.transport.http2,
            connect_stagger: self.transport.connect_stagger,
        })
    }

    /// The addresses of this server: the configured ones and those of its interfaces.
    fn own_addresses(&self) -> Vec<IpAddr> {
        let mut all = self.egress.own_addresses.clone();
        all.extend(interface_addresses());
        all
    }

    fn tls_options(&self) -> anyhow::Result<TlsOptions> {
        let extra_roots = match &self.tls.extra_roots {
            Some(path) => roots(path)?,
            None => Vec::new(),
        };
        let identity = match (&self.tls.client_certificate, &self.tls.client_key) {
            (Some(certificate), Some(key)) => {
                let identity =
                    ClientIdentity::from_pem(Some((&read(certificate)?, &read(key)?)), None)
                        .with_context(|| {
                            format!("{} and {}", certificate.display(), key.display())
                        })?;
                Some(Arc::new(identity))
            }
            (None, _) | (_, None) => None,
        };
        Ok(TlsOptions { extra_roots, identity })
    }
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

fn roots(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let roots = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let roots = roots.with_context(|| format!("{}: not certificates in PEM", path.display()))?;
    anyhow::ensure!(!roots.is_empty(), "{} has no certificate", path.display());
    Ok(roots)
}

/// Keeps the addresses of this server up to date, because interfaces change at run time.
pub(super) async fn follow_own_addresses(config: Config, egress: Egress) {
    let mut ticks = tokio::time::interval(OWN_ADDRESSES_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let config = config.clone();
        let Ok(own) = tokio::task::spawn_blocking(move || config.own_addresses()).await else {
            continue;
        };
        let count = own.len();
        if egress.own(own) {
            tracing::info!(
                count,
                "the addresses of this server changed; deliveries to them are blocked"
            );
        }
    }
}

/// The addresses of this machine's interfaces, which are never contacted.
fn interface_addresses() -> Vec<IpAddr> {
    match if_addrs::get_if_addrs() {
        Ok(interfaces) => interfaces.iter().map(if_addrs::Interface::ip).collect(),
        Err(error) => {
            tracing::warn!(%error, "cannot list own addresses; set egress.own_addresses");
            Vec::new()
        }
    }
}
