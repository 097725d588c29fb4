//! What only the process knows that serves the API: its settings with their origins, its age, its disk.

use postrider_domain::time::Timestamp;
use serde_json::Value;

/// The process around the API. Asked for each request: what it answers may change while it runs.
pub trait Process: Send + Sync {
    /// Every setting as it is in force. **The value of a secret is masked.**
    fn settings(&self) -> Vec<Setting>;

    /// What it is.
    fn about(&self) -> About;

    /// The disk that it stores on. Reads the file system: not for a thread that others wait for.
    fn disk(&self) -> Option<Disk>;
}

/// What a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The version of the program.
    pub version: &'static str,
    /// When it started.
    pub started_at: Timestamp,
    /// What the policy's durations are divided by.
    pub time_scale: u32,
    /// Where everything is remembered: `embedded` or `postgres`.
    pub store: &'static str,
}

/// A disk, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// What is left for this process.
    pub free: u64,
    /// All of it.
    pub total: u64,
    /// What the data directory takes.
    pub data: u64,
}

/// One setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// As it is written in the file, such as `retry.max`.
    pub key: &'static str,
    /// Its value as it would be written; null where it is not set, masked where it is a secret.
    pub value: Value,
    /// The kind of place that it comes from: `default`, `file`, `env` or `flag`.
    pub origin: &'static str,
    /// That place in words, such as `/etc/postrider.toml:7`.
    pub place: String,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Whether a running server takes a change of it.
    pub live: bool,
}
