//! What the API needs to know of the process that serves it: settings with their origins, version,
//! start time, disk.

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
