//! Parses and shows values: durations, shares, networks and others.
//!
//! A shown value parses to the same value.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv6Net};
use postrider_api::{Origin, Origins};
use postrider_domain::catalogue::Conduct;
use postrider_domain::ids::TenantId;
use postrider_domain::policy::{DeadRecovery, MeasuredFrom, RecoveryMode, Share};
use postrider_transport::Nameservers;
use serde_json::{Value as Json, json};

use super::{HealthListen, LogFormat, SmtpTls, StoreChoice};

/// The expectation for a value that is not UTF-8.
pub(super) const UTF8: &str = "text in UTF-8";

/// A value before it is parsed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    /// From a flag or a variable: its type depends on the setting.
    Untyped(String),
    /// Text in quotes.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number with decimals.
    Float(f64),
    /// `true` or `false`.
    Boolean(bool),
    /// A list.
    List(Vec<Raw>),
    /// A table, with its entries.
    Table(Vec<(String, Raw)>),
    /// A TOML value that no setting takes, such as a date.
    Other(&'static str),
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Raw::Untyped(text) | Raw::Text(text) => write!(f, "{text:?}"),
            Raw::Integer(number) => write!(f, "{number}"),
            Raw::Float(number) => write!(f, "{number}"),
            Raw::Boolean(boolean) => write!(f, "{boolean}"),
            Raw::List(_) => f.write_str("a list"),
            Raw::Table(_) => f.write_str("a table"),
            Raw::Other(what) => f.write_str(what),
        }
    }
}

impl Raw {
    /// Whether this is text that may be an address or a list of settings, which can contain a
    /// password.
    pub(super) fn may_have_a_password(&self) -> bool {
        self.text().is_some_and(|text| text.contains(['@', '=']) || text.contains("://"))
    }

    /// The text, quoted or not.
    fn text(&self) -> Option<&str> {
        match self {
            Raw::Untyped(text) | Raw::Text(text) => Some(text.trim()),
            Raw::Integer(_)
            | Raw::Float(_)
            | Raw::Boolean(_)
            | Raw::List(_)
            | Raw::Table(_)
            | Raw::Other(_) => None,
        }
    }

    /// As JSON.
    pub(super) fn json(&self) -> Json {
        match self {
            Raw::Untyped(text) | Raw::Text(text) => json!(text),
            Raw::Integer(number) => json!(number),
            Raw::Float(number) => json!(number),
            Raw::Boolean(boolean) => json!(boolean),
            Raw::List(items) => items.iter().map(Raw::json).collect(),
            Raw::Table(entries) => {
                let entries = entries.iter().map(|(name, value)| (name.clone(), value.json()));
                Json::Object(entries.collect())
            }
            Raw::Other(_) => Json::Null,
        }
    }

    /// The whole number.
    fn integer<T: TryFrom<i64> + std::str::FromStr>(&self) -> Option<T> {
        match self {
            Raw::Untyped(text) => text.trim().replace('_', "").parse().ok(),
            Raw::Integer(number) => T::try_from(*number).ok(),
            Raw::Text(_)
            | Raw::Float(_)
            | Raw::Boolean(_)
            | Raw::List(_)
            | Raw::Table(_)
            | Raw::Other(_) => None,
        }
    }

    /// The number.
    #[expect(clippy::cast_precision_loss, reason = "settings with decimals are small numbers")]
    fn number(&self) -> Option<f64> {
        match self {
            Raw::Untyped(text) => text.trim().parse().ok(),
            Raw::Integer(number) => Some(*number as f64),
            Raw::Float(number) => Some(*number),
            Raw::Text(_) | Raw::Boolean(_) | Raw::List(_) | Raw::Table(_) | Raw::Other(_) => None,
        }
    }

    /// The entries of a list. A variable or a flag has them as an array of strings, as the file does, or
    /// separated by commas.
    fn entries(&self) -> Option<Vec<&str>> {
        match self {
            Raw::Untyped(text) => {
                if let Ok(entries) = serde_json::from_str(text) {
                    return Some(entries);
                }
                let entries = text.split(',').map(str::trim);
                Some(entries.filter(|entry| !entry.is_empty()).collect())
            }
            Raw::List(items) => items.iter().map(Raw::text).collect(),
            Raw::Text(_)
            | Raw::Integer(_)
            | Raw::Float(_)
            | Raw::Boolean(_)
            | Raw::Table(_)
            | Raw::Other(_) => None,
        }
    }
}

/// A type of settings.
pub(super) trait Value {
    /// Parses and sets the value; the error says which values are valid.
    fn take(&mut self, raw: &Raw) -> Result<(), String>;
    /// The value as it would be written; `null` if it is not set.
    fn show(&self) -> Json;
    /// The same, with the secrets in it hidden.
    fn masked(&self) -> Json {
        self.show()
    }
}

/// Stores a parsed value, or returns the error text.
fn store<T>(place: &mut T, read: Option<T>, expected: &str) -> Result<(), String> {
    match read {
        Some(value) => {
            *place = value;
            Ok(())
        }
        None => Err(expected.to_owned()),
    }
}

macro_rules! whole_numbers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn take(&mut self, raw: &Raw) -> Result<(), String> {
                store(self, raw.integer(), "a whole number")
            }

            fn show(&self) -> Json {
                json!(self)
            }
        }
    )*};
}

whole_numbers!(u32, u64, usize);

impl Value for NonZeroU32 {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        store(self, raw.integer().and_then(NonZeroU32::new), "a whole number from 1")
    }

    fn show(&self) -> Json {
        json!(self.get())
    }
}

impl Value for bool {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = match raw {
            Raw::Boolean(boolean) => Some(*boolean),
            Raw::Untyped(text) => match text.trim() {
                "true" | "1" => Some(true),
                "false" | "0" => Some(false),
                _ => None,
            },
            Raw::Text(_)
            | Raw::Integer(_)
            | Raw::Float(_)
            | Raw::List(_)
            | Raw::Table(_)
            | Raw::Other(_) => None,
        };
        store(self, read, "true or false")
    }

    fn show(&self) -> Json {
        json!(self)
    }
}

impl Value for Duration {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.text().and_then(parse_duration);
        store(self, read, "a duration such as \"84800ms\", \"10m\", \"72h\" or \"1h30m\"")
    }

    fn show(&self) -> Json {
        json!(show_duration(*self))
    }
}

/// Parses numbers with units in any order: `84800ms`, `10m`, `1h30m`, `30d`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let number: u64 = number.parse().ok()?;
        let ms: u64 = match unit.trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(number.checked_mul(ms)?))?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

/// Shows a duration in the largest unit that divides it; days only from a week on.
pub(crate) fn show_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    let units =
        [(604_800_000, 86_400_000, "d"), (1, 3_600_000, "h"), (1, 60_000, "m"), (1, 1_000, "s")];
    let unit = units.iter().find(|(from, unit, _)| ms >= *from && ms.is_multiple_of(*unit));
    match unit {
        Some((_, unit, name)) => format!("{}{name}", ms / unit),
        None => format!("{ms}ms"),
    }
}

impl Value for Share {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let percent = raw.text().and_then(|text| text.strip_suffix('%'));
        let read = match percent {
            Some(percent) => percent.trim().parse().ok().map(|percent: f64| percent / 100.0),
            None => raw.number(),
        };
        store(self, read.and_then(Share::from_ratio), "a share from 0 to 1, such as 0.7")
    }

    fn show(&self) -> Json {
        json!(f64::from(self.as_millionths()) / 1e6)
    }
}

impl Value for String {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        store(self, raw.text().map(str::to_owned), "text")
    }

    fn show(&self) -> Json {
        json!(self)
    }
}

impl Value for PathBuf {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.text().filter(|text| !text.is_empty()).map(PathBuf::from);
        store(self, read, "a path")
    }

    fn show(&self) -> Json {
        json!(self.display().to_string())
    }
}

/// An optional value; empty text unsets it.
fn optional<T>(
    place: &mut Option<T>,
    raw: &Raw,
    read: impl Fn(&str) -> Option<T>,
    expected: &str,
) -> Result<(), String> {
    let text = raw.text().ok_or_else(|| expected.to_owned())?;
    *place =
        if text.is_empty() { None } else { Some(read(text).ok_or_else(|| expected.to_owned())?) };
    Ok(())
}

impl Value for Option<String> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        optional(self, raw, |text| Some(text.to_owned()), "text")
    }

    fn show(&self) -> Json {
        json!(self)
    }
}

impl Value for Option<PathBuf> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        optional(self, raw, |text| Some(PathBuf::from(text)), "a path")
    }

    fn show(&self) -> Json {
        json!(self.as_ref().map(|path| path.display().to_string()))
    }
}

impl Value for Option<Origin> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        optional(
            self,
            raw,
            |text| text.parse().ok(),
            "an origin such as \"https://hooks.example.com\"",
        )
    }

    fn show(&self) -> Json {
        json!(self.as_ref().map(Origin::as_str))
    }
}

impl Value for Option<TenantId> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        optional(self, raw, |text| text.parse().ok(), "the identifier of a tenant")
    }

    fn show(&self) -> Json {
        json!(self.as_ref().map(TenantId::as_str))
    }
}

impl Value for Option<Ipv6Net> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        optional(self, raw, |text| text.parse().ok(), "an IPv6 network such as \"64:ff9b::/96\"")
    }

    fn show(&self) -> Json {
        json!(self.map(|network| network.to_string()))
    }
}

/// Optional integers; empty text unsets them.
macro_rules! optional_numbers {
    ($($type:ty),*) => {$(
        impl Value for Option<$type> {
            fn take(&mut self, raw: &Raw) -> Result<(), String> {
                if raw.text() == Some("") {
                    *self = None;
                    return Ok(());
                }
                let read = raw.integer().filter(|number| *number > 0);
                store(self, read.map(Some), "a whole number from 1")
            }

            fn show(&self) -> Json {
                json!(self)
            }
        }
    )*};
}

optional_numbers!(u32, usize);

const ADDRESS: &str = "an address with a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"";

impl Value for SocketAddr {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.text().and_then(|text| text.parse().ok());
        store(self, read, ADDRESS)
    }

    fn show(&self) -> Json {
        json!(self.to_string())
    }
}

impl Value for Option<SocketAddr> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        optional(self, raw, |text| text.parse().ok(), ADDRESS)
    }

    fn show(&self) -> Json {
        json!(self.map(|address| address.to_string()))
    }
}

impl Value for HealthListen {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.text().and_then(|text| match text {
            "" => Some(HealthListen::BesideTheApi),
            "off" => Some(HealthListen::Off),
            address => address.parse().ok().map(HealthListen::At),
        });
        store(self, read, "\"off\" or an address with a port, such as \"127.0.0.1:18080\"")
    }

    fn show(&self) -> Json {
        match self {
            HealthListen::BesideTheApi => Json::Null,
            HealthListen::Off => json!("off"),
            HealthListen::At(address) => json!(address.to_string()),
        }
    }
}

impl Value for Vec<IpNet> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.entries().and_then(|all| all.iter().map(|one| network(one)).collect());
        store(self, read, "a list of networks such as [\"10.0.0.0/8\", \"fd00::/8\"]")
    }

    fn show(&self) -> Json {
        json!(self.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

/// Parses a network; a single address is a network of one. Bits after the prefix are an error.
fn network(text: &str) -> Option<IpNet> {
    match text.parse::<IpAddr>() {
        Ok(address) => Some(IpNet::from(address)),
        Err(_) => text.parse().ok().filter(|network: &IpNet| network.addr() == network.network()),
    }
}

impl Value for Origins {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.entries().and_then(|all| all.iter().map(|one| one.parse().ok()).collect());
        store(self, read.map(Origins), "a list of origins such as [\"https://app.example.com\"]")
    }

    fn show(&self) -> Json {
        json!(self.0.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

impl Value for Vec<IpAddr> {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.entries().and_then(|all| all.iter().map(|one| one.parse().ok()).collect());
        store(self, read, "a list of addresses such as [\"203.0.113.7\"]")
    }

    fn show(&self) -> Json {
        json!(self.iter().map(ToString::to_string).collect::<Vec<_>>())
    }
}

impl Value for Nameservers {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = if raw.text() == Some("system") {
            Some(Nameservers::System)
        } else {
            let entries = raw.entries().filter(|all| !all.is_empty());
            let servers = entries.and_then(|all| all.iter().map(|one| nameserver(one)).collect());
            servers.map(Nameservers::Only)
        };
        store(self, read, "\"system\" or a list of addresses such as [\"192.0.2.53\"]")
    }

    fn show(&self) -> Json {
        match self {
            Nameservers::System => json!("system"),
            Nameservers::Only(servers) => {
                json!(servers.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
        }
    }
}

/// An address with a port; the default port is 53.
fn nameserver(text: &str) -> Option<SocketAddr> {
    let alone = || text.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, 53));
    text.parse().ok().or_else(alone)
}

impl Value for StoreChoice {
    fn take(&mut self, raw: &Raw) -> Result<(), String> {
        let read = raw.text().and_then(|text| match text {
            "embedded" => Some(StoreChoice::Embedded),
            _ if text.starts_with("postgres://") || text.starts_with("postgresql://") => {
                Some(StoreChoice::Postgres(text.to_owned()))
            }
            _ => None,
        });
        store(self, read, "\"embedded\" or an address such as \"postgres://user@host/database\"")
    }

    fn show(&self) -> Json {
        match self {
            StoreChoice::Embedded => json!("embedded"),
            StoreChoice::Postgres(url) => json!(postrider_store::postgres::masked(url)),
        }
    }
}

/// Implements an enum with one word per variant.
macro_rules! words {
    ($type:ty, $expected:literal, $($word:literal => $variant:path),*) => {
        impl Value for $type {
            fn take(&mut self, raw: &Raw) -> Result<(), String> {
                let read = match raw.text() {
                    $(Some($word) => Some($variant),)*
                    _ => None,
                };
                store(self, read, $expected)
            }

            fn show(&self) -> Json {
                match self {
                    $($variant => json!($word),)*
                }
            }
        }
    };
}

words!(
    MeasuredFrom,
    "\"first_attempt\" or \"previous_attempt\"",
    "first_attempt" => MeasuredFrom::FirstAttempt,
    "previous_attempt" => MeasuredFrom::PreviousAttempt
);
words!(
    RecoveryMode,
    "\"slots\" or \"drain\"",
    "slots" => RecoveryMode::Slots,
    "drain" => RecoveryMode::Drain
);
words!(
    DeadRecovery,
    "\"keep\" or \"replay\"",
    "keep" => DeadRecovery::Keep,
    "replay" => DeadRecovery::Replay
);
words!(
    Conduct,
    "\"accept\", \"flag\" or \"refuse\"",
    "accept" => Conduct::Accept,
    "flag" => Conduct::Flag,
    "refuse" => Conduct::Refuse
);
words!(
    LogFormat,
    "\"auto\", \"human\" or \"json\"",
    "auto" => LogFormat::Auto,
    "human" => LogFormat::Human,
    "json" => LogFormat::Json
);
words!(
    SmtpTls,
    "\"starttls\", \"tls\" or \"off\"",
    "starttls" => SmtpTls::StartTls,
    "tls" => SmtpTls::Tls,
    "off" => SmtpTls::Off
);
