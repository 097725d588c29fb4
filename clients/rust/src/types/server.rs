//! The server itself: nodes, queues, settings, alerts, backups and portal links.

use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret::Secret;

/// The node that answers, and what all nodes have together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Server {
    /// By how much the server's time is ahead of its machine's clock.
    pub clock_ahead_ms: i64,
    /// The disk of the data directory; absent for a store elsewhere.
    pub disk: Option<Disk>,
    /// The two queues.
    pub lanes: Lanes,
    /// Whether transitions are suspended.
    pub mass_failure: MassFailureState,
    /// Every node that is alive, by name; one without a name where the store has room for one
    /// node only.
    pub nodes: Vec<Node>,
    /// The server's time now.
    pub now: Timestamp,
    /// When the node that answers was started.
    pub started_at: Timestamp,
    /// `embedded` or `postgres`.
    pub store: String,
    /// What the policy's durations are divided by; 1 but for demonstrations.
    pub time_scale: u32,
    /// The version of its program.
    pub version: String,
}

/// A disk, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Disk {
    /// What the data directory takes.
    pub data_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
    /// Its size.
    pub total_bytes: u64,
}

/// The two queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lanes {
    /// First attempts.
    pub first: Lane,
    /// Retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Lane>,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lane {
    /// Deliveries in it, of all nodes; what is in flight is not.
    pub depth: u64,
    /// Attempts in flight, of the node that answers.
    pub in_flight: u64,
    /// For how long its oldest delivery is due, in the shards of the node that answers; absent
    /// where none is.
    pub oldest_seconds: Option<f64>,
}

/// Whether transitions to disabled and frozen are suspended, because most destinations of this
/// node fail at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MassFailureState {
    /// Whether they are.
    pub suspended: bool,
    /// Since when; absent where they are not.
    pub suspended_since: Option<Timestamp>,
}

/// One node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// Its name; absent for the only one.
    pub name: Option<String>,
    /// When it last renewed its shards; absent for the only one.
    pub seen_at: Option<Timestamp>,
    /// How many of the 256 shards it owns.
    pub shards: u64,
    /// Whether it is the one that answers.
    pub this: bool,
    /// The version of its program; absent where that is too old to say so.
    pub version: Option<String>,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Setting {
    /// What it is.
    pub help: String,
    /// Its name.
    pub key: String,
    /// Whether a running server takes a change of it (SIGHUP); else it needs a restart.
    pub live: bool,
    /// Where it comes from: `default`, `file`, `env` or `flag`.
    pub origin: String,
    /// The same, exactly: file and line, variable or flag.
    pub place: String,
    /// As it would be written in the file; JSON's null where it is not set, `***` where it is a
    /// secret.
    pub value: Value,
}

/// The state of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BackupState {
    /// It is being written.
    Running,
    /// It is complete.
    Done,
    /// It failed.
    Failed,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// A backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backup {
    /// Bytes written so far.
    pub bytes: u64,
    /// Why it failed.
    pub error: Option<String>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When it began.
    pub started_at: Timestamp,
    /// How far it is.
    pub state: BackupState,
    /// The directory.
    pub to: String,
}

/// A target of alerts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AlertTarget {
    /// Consecutive failures.
    pub failures: u32,
    /// What it was told and is not over.
    pub firing: Vec<FiringAlert>,
    /// `webhook`, `slack` or `email`.
    pub kind: String,
    /// When the last one was sent.
    pub last_message_at: Option<Timestamp>,
    /// Messages that were sent.
    pub messages: u64,
    /// Its name in the settings.
    pub name: String,
    /// When the next try is made, after a failure.
    pub next_try_at: Option<Timestamp>,
    /// Where it is: the origin of a URL, or addresses. Secrets are left out.
    pub to: String,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FiringAlert {
    /// How many the target was told of.
    pub count: u64,
    /// What it is.
    pub kind: String,
}

/// The outcome of a test message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AlertTestResult {
    /// How long it took.
    pub duration_ms: u64,
    /// Why it failed.
    pub error: Option<String>,
    /// `webhook`, `slack` or `email`.
    pub kind: String,
    /// `sent` where the target accepted the message, else `failed`.
    pub outcome: String,
    /// The target's name in the settings.
    pub target: String,
    /// Where it is. Secrets are left out.
    pub to: String,
}

/// How a portal looks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Theme {
    /// `#rrggbb`.
    pub accent: Option<String>,
    /// The address of the logo, relative to the server's.
    pub logo: Option<String>,
    /// `light` or `dark`.
    pub mode: Option<String>,
    /// What stands in place of Postrider's name.
    pub name: Option<String>,
}

/// A portal link, without the link itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PortalLink {
    /// `read` or `manage`.
    pub access: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it can be used.
    pub expires_at: Timestamp,
    /// Its identifier.
    pub id: String,
    /// When the session that it opened ends at the latest; absent until it is used.
    pub session_expires_at: Option<Timestamp>,
    /// The tenant.
    pub tenant: Option<String>,
    /// How the portal looks.
    pub theme: Theme,
    /// When it was used; absent until then.
    pub used_at: Option<Timestamp>,
}

/// A portal link that was just made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PortalLinkCreated {
    /// What is known of it.
    #[serde(flatten)]
    pub about: PortalLink,
    /// The link. It works once and is not shown again.
    pub url: Secret,
}

impl Deref for PortalLinkCreated {
    type Target = PortalLink;

    fn deref(&self) -> &PortalLink {
        &self.about
    }
}

/// A portal link to be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewPortalLink {
    /// What may be done in the portal: `read`, or `manage`, which includes it.
    pub access: String,
    /// For how many seconds the link can be used: 10 to 86400; 600 where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// How the portal is to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub theme: Option<NewTheme>,
}

/// How a portal is to look.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewTheme {
    /// `#rrggbb`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accent: Option<String>,
    /// A PNG, JPEG or WebP of at most 32 KiB, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logo: Option<String>,
    /// `light` or `dark`; what the viewer prefers where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// What stands in place of Postrider's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}
