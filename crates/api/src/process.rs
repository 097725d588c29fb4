//! What the API needs to know of the process that serves it: settings with their origins, version,
//! start time, disk.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use serde_json::Value;

/// The process around the API. It is asked again for each request, because the answers may change
/// while the process runs.
pub trait Process: Send + Sync {
    /// Every setting as it is in force. **The value of a secret is masked.**
    fn settings(&self) -> Vec<Setting>;

    /// Version, start time, time scale and kind of store.
    fn about(&self) -> About;

    /// The disk that the store is on. Reads the file system: do not call this on a thread that
    /// other requests wait for.
    fn disk(&self) -> Option<Disk>;

    /// How long deliveries of a tenant lately took from acceptance to arrival; of all tenants for `None`.
    fn arrivals(&self, _tenant: Option<&TenantId>) -> Option<Arrivals> {
        None
    }

    /// Who is told when something is wrong; `None` if nobody is.
    fn alerts(&self) -> Option<Arc<dyn AlertDesk>> {
        None
    }
}

/// The targets of alerts. **Nothing that it answers has a secret.**
pub trait AlertDesk: Send + Sync {
    /// Every target and how it does.
    fn targets(&self) -> Vec<AlertTargetState>;

    /// Sends a test message to each target, or to one, and waits for the outcome.
    fn test<'a>(&'a self, only: Option<&'a str>) -> BoxFuture<'a, Vec<AlertTrial>>;
}

/// A target of alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertTargetState {
    /// The target's name in the settings.
    pub name: String,
    /// `webhook`, `slack` or `email`.
    pub kind: &'static str,
    /// The target's URL or addresses, without secrets.
    pub to: String,
    /// Messages that were sent.
    pub messages: u64,
    /// When the last one was sent.
    pub last_message_at: Option<Timestamp>,
    /// Consecutive failures.
    pub failures: u32,
    /// When the next try is made, after a failure.
    pub next_try_at: Option<Timestamp>,
    /// The conditions that were reported and are not resolved, each with the count that was reported.
    pub firing: Vec<(&'static str, u64)>,
}

/// The outcome of a test message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertTrial {
    /// The target's name in the settings.
    pub target: String,
    /// `webhook`, `slack` or `email`.
    pub kind: &'static str,
    /// The target's URL or addresses, without secrets.
    pub to: String,
    /// How long it took.
    pub took: Duration,
    /// Why it failed; `None` if the target accepted it.
    pub error: Option<String>,
}

/// Facts about the process that do not change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The version of the program.
    pub version: &'static str,
    /// When it started.
    pub started_at: Timestamp,
    /// What the policy's durations are divided by.
    pub time_scale: u32,
    /// The kind of store: `embedded` or `postgres`.
    pub store: &'static str,
}

/// How long deliveries took from acceptance to arrival: those that arrived lately, at their first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrivals {
    /// How many arrived.
    pub count: u64,
    /// The time that half of them did not exceed.
    pub p50: Duration,
    /// The time that 99 of 100 did not exceed.
    pub p99: Duration,
}

/// A disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// The bytes that this process can still write.
    pub free: u64,
    /// The size of the disk.
    pub total: u64,
    /// The bytes that the data directory takes.
    pub data: u64,
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The name of the setting in the file, such as `retry.max`.
    pub key: &'static str,
    /// The value as it would be written in the file; null if it is not set, masked if it is a
    /// secret.
    pub value: Value,
    /// The kind of source that the value comes from: `default`, `file`, `env` or `flag`.
    pub origin: &'static str,
    /// The exact source, such as `/etc/postrider.toml:7`.
    pub place: String,
    /// What the setting does, in a sentence.
    pub help: &'static str,
    /// Whether a running server applies a change of the setting at SIGHUP, without a restart.
    pub live: bool,
}
