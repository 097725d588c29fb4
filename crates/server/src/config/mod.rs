//! The configuration and the origin of each value.
//!
//! Defaults, then the file, then the environment, then flags: the later one wins. Every setting is
//! defined once, in [`settings`]; an unknown setting or a bad value is refused with its file and
//! line, variable or flag. This module is the only one of the workspace that reads the environment.

mod alerts;
mod check;
pub(crate) mod describe;
mod environment;
mod fault;
mod file;
mod settings;
pub(crate) mod show;
mod value;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use postrider_api::ApiSettings;
use postrider_domain::egress::EgressPolicy;
use postrider_domain::policy::{Policy, Share};
use postrider_engine::{Options as EngineOptions, Quotas};
use postrider_transport::{DnsOptions, PoolOptions};

pub(crate) use alerts::{
    AlertSettings, AlertTarget, SendTo, SmtpSettings, SmtpTls, server_and_port,
};
pub(crate) use environment::Environment;
pub(crate) use fault::{ConfigError, Fault, Origin};
pub(crate) use show::Shown;
use value::Raw;
pub(crate) use value::{parse_duration, show_duration};

/// All settings.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: PathBuf,
    pub(crate) store: StoreChoice,
    pub(crate) node: Option<String>,
    pub(crate) postgres: PostgresSettings,
    pub(crate) admin_key: Option<String>,
    pub(crate) keyring: Option<PathBuf>,
    pub(crate) dev: bool,
    pub(crate) time_scale: NonZeroU32,
    pub(crate) policy: Policy,
    pub(crate) egress: EgressPolicy,
    pub(crate) proxy: ProxySettings,
    pub(crate) dns: DnsOptions,
    pub(crate) tls: TlsSettings,
    pub(crate) transport: TransportSettings,
    pub(crate) engine: EngineOptions,
    pub(crate) limits: LimitSettings,
    pub(crate) api: ApiSettings,
    pub(crate) http: HttpSettings,
    pub(crate) server: ServerSettings,
    pub(crate) metrics: MetricsSettings,
    pub(crate) shutdown: ShutdownSettings,
    pub(crate) telemetry: TelemetrySettings,
    pub(crate) alerts: AlertSettings,
}

/// Settings of the PostgreSQL store.
#[derive(Debug, Clone)]
pub(crate) struct PostgresSettings {
    pub(crate) connections: usize,
    pub(crate) listen_url: Option<String>,
}

/// The store to use. `Debug` shows it without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    /// The embedded store in the data directory.
    Embedded,
    /// The PostgreSQL database at this address.
    Postgres(String),
}

impl std::fmt::Debug for StoreChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreChoice::Embedded => f.write_str("Embedded"),
            StoreChoice::Postgres(url) => f.write_str(&postrider_store::postgres::masked(url)),
        }
    }
}

/// The proxy for all deliveries.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProxySettings {
    pub(crate) url: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Paths of certificate files, in PEM.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsSettings {
    pub(crate) extra_roots: Option<PathBuf>,
    pub(crate) client_certificate: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
}

/// Outgoing connections, except DNS, proxy and certificates.
#[derive(Debug, Clone)]
pub(crate) struct TransportSettings {
    pub(crate) http2: bool,
    pub(crate) connect_stagger: Duration,
    pub(crate) pool: PoolOptions,
}

/// Rate limits of incoming requests, per second; `None` for no limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitSettings {
    pub(crate) tenant_events: Option<u32>,
    pub(crate) tenant_requests: Option<u32>,
    pub(crate) key_requests: Option<u32>,
}

/// Incoming connections of the API.
#[derive(Debug, Clone)]
pub(crate) struct HttpSettings {
    pub(crate) header_read_timeout: Duration,
    pub(crate) headers_max: usize,
    pub(crate) header_bytes_max: usize,
    pub(crate) connections_max: usize,
    pub(crate) connections_per_address_max: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) write_timeout: Duration,
    pub(crate) discard_bytes_max: usize,
    pub(crate) discard_timeout: Duration,
}

/// The address of the separate listener for health and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HealthListen {
    /// On loopback, at a fixed distance from the API's port.
    #[default]
    BesideTheApi,
    /// No separate listener: they are on the API's address only.
    Off,
    /// At this address.
    At(SocketAddr),
}

/// The metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricsSettings {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) key: Option<String>,
}

/// The listeners of the server.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerSettings {
    pub(crate) health_listen: HealthListen,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) trusted_proxies: Vec<IpNet>,
}

/// The shutdown of the server.
#[derive(Debug, Clone)]
pub(crate) struct ShutdownSettings {
    pub(crate) deadline: Duration,
}

/// Log and traces.
#[derive(Debug, Clone)]
pub(crate) struct TelemetrySettings {
    pub(crate) log: String,
    pub(crate) format: LogFormat,
    pub(crate) attempts: bool,
    pub(crate) access: bool,
    pub(crate) otlp_endpoint: Option<String>,
    pub(crate) otlp_token: Option<String>,
    pub(crate) otlp_sample: Share,
    pub(crate) otlp_metrics: bool,
    pub(crate) otlp_metrics_interval: Duration,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Text on a terminal, otherwise JSON.
    Auto,
    /// Text.
    Human,
    /// One JSON object per line.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            data_dir: PathBuf::from("./postrider-data"),
            store: StoreChoice::Embedded,
            node: None,
            postgres: PostgresSettings { connections: 8, listen_url: None },
            admin_key: None,
            keyring: None,
            dev: false,
            time_scale: NonZeroU32::MIN,
            policy: Policy::default(),
            egress: EgressPolicy::default(),
            proxy: ProxySettings::default(),
            dns: DnsOptions::default(),
            tls: TlsSettings::default(),
            transport: TransportSettings {
                http2: true,
                connect_stagger: Duration::from_millis(250),
                pool: PoolOptions::default(),
            },
            engine: EngineOptions { quotas: Quotas::SENSIBLE, ..EngineOptions::default() },
            limits: LimitSettings::default(),
            api: ApiSettings::default(),
            http: HttpSettings {
                header_read_timeout: Duration::from_secs(10),
                headers_max: 100,
                header_bytes_max: 64 * 1024,
                connections_max: 10_000,
                connections_per_address_max: 1_000,
                idle_timeout: Duration::from_secs(60),
                write_timeout: Duration::from_secs(10),
                discard_bytes_max: 16 * 1024 * 1024,
                discard_timeout: Duration::from_secs(5),
            },
            server: ServerSettings::default(),
            metrics: MetricsSettings::default(),
            shutdown: ShutdownSettings { deadline: Duration::from_secs(30) },
            telemetry: TelemetrySettings {
                log: "info".to_owned(),
                format: LogFormat::Auto,
                attempts: true,
                access: false,
                otlp_endpoint: None,
                otlp_token: None,
                otlp_sample: Share::from_millionths(1_000_000),
                otlp_metrics: false,
                otlp_metrics_interval: Duration::from_secs(60),
            },
            alerts: AlertSettings::default(),
        }
    }
}

/// A value and where it was given.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    key: String,
    raw: Raw,
    origin: Origin,
}

impl Given {
    /// A setting given by a flag.
    pub(crate) fn by_flag(key: &str, value: impl Into<String>, flag: &str) -> Given {
        Given {
            key: key.to_owned(),
            raw: Raw::Untyped(value.into()),
            origin: Origin::Flag(flag.to_owned()),
        }
    }

    /// A setting given as `--set key=value`.
    pub(crate) fn by_set(assignment: &str) -> Result<Given, ConfigError> {
        let key = assignment.split('=').next().unwrap_or_default().trim();
        let is_key = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'));
        // The text may be a secret value whose key was forgotten: do not repeat it.
        let origin = Origin::Flag(if is_key { format!("--set {key}") } else { "--set".into() });
        match assignment.split_once('=') {
            Some((key, value)) => Ok(Given {
                key: key.trim().to_owned(),
                raw: Raw::Untyped(value.to_owned()),
                origin,
            }),
            None => Err(ConfigError::from(Fault::new(
                origin,
                "is not an assignment; write --set key=value, as in --set retry.max=11",
            ))),
        }
    }
}

/// The effective configuration, with the origin of every value that is not a default.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    origins: BTreeMap<&'static str, Origin>,
}

/// The settings that differ after a reload.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Settings that are in effect now.
    pub(crate) taken: Vec<&'static str>,
    /// Settings that need a restart.
    pub(crate) needs_restart: Vec<&'static str>,
}

impl Loaded {
    /// Combines all sources. Reports all errors at once.
    pub(crate) fn new(
        file: Option<&std::path::Path>,
        environment: &Environment,
        flags: Vec<Given>,
    ) -> Result<Loaded, ConfigError> {
        let mut faults = Vec::new();
        let mut given = Vec::new();
        if let Some(path) = file {
            file::read(path, &mut given, &mut faults);
        }
        environment.settings(&mut given, &mut faults);
        given.extend(flags);

        let mut loaded = Loaded { config: Config::default(), origins: BTreeMap::new() };
        for one in given {
            if let Err(fault) = loaded.apply(one) {
                faults.push(fault);
            }
        }
        if faults.is_empty() {
            check::whole(&mut loaded, &mut faults);
        }
        if faults.is_empty() { Ok(loaded) } else { Err(ConfigError(faults)) }
    }

    fn apply(&mut self, given: Given) -> Result<(), Fault> {
        let Some(setting) = settings::find(&given.key) else {
            return Err(Fault::unknown(given.origin, &given.key));
        };
        match (setting.set)(&mut self.config, &given.raw) {
            Ok(()) => {
                self.origins.insert(setting.key, given.origin);
                Ok(())
            }
            Err(expected) => {
                // The value may be a secret, or an address with a password: do not repeat it.
                let is_shown =
                    !setting.secret && !setting.sensitive && !given.raw.may_have_a_password();
                let found = is_shown.then_some(&given.raw);
                Err(Fault::bad(given.origin, setting.key, &expected, found))
            }
        }
    }

    /// The origin of a setting.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or(Origin::Default)
    }

    /// Every setting with its value and origin, in the order of the documentation.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        show::all(self)
    }

    /// Applies the changed live settings of `next`.
    pub(crate) fn take_changes(&mut self, next: &Loaded) -> Changed {
        let mut changed = Changed::default();
        for setting in settings::ALL {
            if (setting.show)(&self.config) == (setting.show)(&next.config) {
                continue;
            }
            if !setting.live {
                changed.needs_restart.push(setting.key);
                continue;
            }
            (setting.copy)(&mut self.config, &next.config);
            match next.origins.get(setting.key) {
                Some(origin) => self.origins.insert(setting.key, origin.clone()),
                None => self.origins.remove(setting.key),
            };
            changed.taken.push(setting.key);
        }
        changed
    }

    /// The effective policy, with its durations divided by `time_scale`.
    pub(crate) fn policy(&self) -> Policy {
        self.config.policy.scaled_by(self.config.time_scale)
    }
}

#[cfg(test)]
mod tests;
