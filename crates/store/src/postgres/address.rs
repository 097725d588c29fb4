//! Parses the URL of the database.
//!
//! Both forms of libpq are accepted:
//! `postgres://user:password@a,b/database?target_session_attrs=read-write` or `host=a,b
//! dbname=database target_session_attrs=read-write`. Several hosts are tried in their order, so
//! after a failover a new connection finds the one that takes writes. How it is shown is in
//! `shown.rs`.

use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::tls::Connector;
use crate::error::StoreError;

/// How long a connection without any answer counts as alive. A host that died is noticed after
/// about this time, and the outcome of running statements is then reported as unknown.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// The parts of a database URL.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    pub(super) connector: Connector,
    /// The connection goes through a transaction-mode pooler: no statement stays prepared beyond a
    /// transaction, and LISTEN does not work.
    pub(super) is_pooled: bool,
}

/// Parses a database URL.
pub(super) fn target(url: &str) -> Result<Target, StoreError> {
    let refuse = |what: String| StoreError::Internal(format!("not a database URL: {what}"));
    let (rest, settings) = split(url);
    let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        refuse(cause(source.unwrap_or_else(|| error.to_string())))
    })?;
    let verifies = match settings.mode.as_deref() {
        None | Some("prefer") => {
            config.ssl_mode(SslMode::Prefer);
            false
        }
        Some("disable") => {
            config.ssl_mode(SslMode::Disable);
            false
        }
        Some("require") => {
            config.ssl_mode(SslMode::Require);
            settings.root.is_some()
        }
        Some("verify-ca" | "verify-full") => {
            config.ssl_mode(SslMode::Require);
            true
        }
        Some(other) => {
            let known = "disable, prefer, require or verify-full";
            return Err(refuse(format!("sslmode={other}: give {known}")));
        }
    };
    let is_pooled = match settings.pooled.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => return Err(refuse(format!("pgbouncer={other}: give true or false"))),
    };
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(Duration::from_secs(10));
    }
    if config.get_application_name().is_none() {
        config.application_name("postrider");
    }
    if !rest.contains("keepalives") {
        config.keepalives_idle(SILENCE_MAX / 2);
        config.keepalives_interval(SILENCE_MAX / 4);
        config.keepalives_retries(2);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE_MAX);
    }
    let connector = Connector::new(verifies, settings.root.as_deref()).map_err(refuse)?;
    Ok(Target { config, connector, is_pooled })
}

/// The reason why a URL cannot be parsed, without any text of the URL: the name of an unknown
/// setting may be the rest of a password.
fn cause(said: String) -> String {
    if said.contains("option") {
        return "it has a setting that is not known; in a password, write & as %26, ? as %3F, \
                / as %2F and @ as %40"
            .to_owned();
    }
    said
}

#[derive(Default)]
struct Settings {
    mode: Option<String>,
    root: Option<String>,
    pooled: Option<String>,
}

impl Settings {
    /// Takes a setting that Postrider handles itself; returns whether it is one.
    fn take(&mut self, name: &str, value: &str) -> bool {
        let slot = match name {
            "sslmode" => &mut self.mode,
            "sslrootcert" => &mut self.root,
            "pgbouncer" => &mut self.pooled,
            _ => return false,
        };
        *slot = Some(value.replace("%2F", "/"));
        true
    }
}

/// Splits off the settings that Postrider handles itself from a URL or a list of settings.
fn split(url: &str) -> (String, Settings) {
    let mut settings = Settings::default();
    let mut keep = |pair: &&str| {
        let pair = pair.split_once('=');
        pair.is_none_or(|(name, value)| !settings.take(name, value.trim_matches('\'')))
    };
    if !url.contains("://") {
        let kept: Vec<&str> = url.split_whitespace().filter(&mut keep).collect();
        return (kept.join(" "), settings);
    }
    let Some((base, query)) = url.split_once('?') else { return (url.into(), settings) };
    let kept: Vec<&str> = query.split('&').filter(&mut keep).collect();
    let rest = if kept.is_empty() { base.into() } else { format!("{base}?{}", kept.join("&")) };
    (rest, settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_an_address_are_equivalent() {
        let url = "postgres://me:secret@a:5432,b:5433/hooks?sslmode=disable&pgbouncer=true\
                   &target_session_attrs=read-write";
        let list = "host=a,b port=5432,5433 user=me password=secret dbname=hooks sslmode=disable \
                    pgbouncer=true target_session_attrs=read-write";
        for given in [url, list] {
            let target = target(given).unwrap();
            let config = &target.config;
            assert_eq!(config.get_hosts().len(), 2, "{given}");
            assert_eq!(config.get_ports(), [5432, 5433]);
            assert_eq!(config.get_user(), Some("me"));
            assert_eq!(config.get_dbname(), Some("hooks"));
            assert_eq!(config.get_ssl_mode(), SslMode::Disable);
            assert_eq!(
                config.get_target_session_attrs(),
                tokio_postgres::config::TargetSessionAttrs::ReadWrite
            );
            assert!(target.is_pooled);
        }
        for nonsense in ["postgres://a/b?sslmode=maybe", "postgres://a/b?pgbouncer=1"] {
            assert!(target(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn settings_of_postrider_are_removed_from_the_url() {
        let cases = [
            ("postgres://h/d", "postgres://h/d", None, None),
            ("postgres://h/d?sslmode=disable", "postgres://h/d", Some("disable"), None),
            (
                "postgres://h/d?application_name=x&sslmode=verify-full&sslrootcert=%2Froot.pem",
                "postgres://h/d?application_name=x",
                Some("verify-full"),
                Some("/root.pem"),
            ),
            ("host=h sslmode=require dbname=d", "host=h dbname=d", Some("require"), None),
        ];
        for (url, rest, mode, root) in cases {
            let (found, settings) = split(url);
            assert_eq!(found, rest);
            assert_eq!((settings.mode.as_deref(), settings.root.as_deref()), (mode, root));
        }
    }

    #[test]
    fn unknown_ssl_mode_is_refused_and_the_known_ones_are_named() {
        let refused = target("postgres://h/d?sslmode=sometimes").err().unwrap().to_string();
        assert!(refused.contains("sslmode=sometimes"), "{refused}");
        assert!(target("postgres://h/d?sslmode=verify-full&sslrootcert=/none").is_err());
        for url in [
            "postgres://u:hunter2@h:port/d",
            "postgres://u:a/hunter2@h/d",
            "postgres://h/d?password=a&hunter2=b",
            "postgres://h/d?hunter2",
            "u:hunter2@h/d?sslmode=disable&a=b",
            "host=h hunter2=a",
            "host=h password='a hunter2",
        ] {
            let refused = target(url).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
