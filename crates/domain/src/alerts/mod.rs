//! Alerts to the operator: which target is sent which message, when, and how often.
//!
//! An outage is one message, not a thousand. Nodes report what they see ([`Seen`]) into a [`Book`]
//! that the store keeps; [`Book::due`] decides whether a target is sent a message now, and which one.
//! **Nothing is reported twice**, except for reminders of conditions that last: the book has what was
//! reported, survives restarts, and is shared by the nodes of a cluster.
//!
//! ```text
//! seen ──group_window──▶ message ──more happens, pace──▶ update … ──all clear, resolve_after──▶ resolved
//!                           └── condition lasts, repeat_every ──▶ reminder
//! ```

mod book;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::time::Timestamp;

pub use book::{Book, TargetState};
pub use words::{origin_of, plain};

/// Examples of one kind that a message has at most.
pub const EXAMPLES_MAX: usize = 5;

/// What an alert is about, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertKind {
    /// Most destinations fail at once, so transitions are suspended.
    TransitionsSuspended,
    /// The disk is full or nearly full.
    Disk,
    /// The store does not work.
    Store,
    /// A destination was given up.
    DestinationFrozen,
    /// Deliveries have no retry left.
    DeliveryDead,
    /// A destination fails, and is only probed.
    DestinationDisabled,
    /// Somebody set the clock.
    ClockStepped,
}

/// How urgent an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Look at it when there is time.
    Warning,
    /// Something is not delivered until somebody acts.
    Error,
    /// The server itself is affected.
    Critical,
}

impl Severity {
    /// Every severity.
    pub const ALL: [Severity; 3] = [Severity::Warning, Severity::Error, Severity::Critical];

    /// `warning`, `error` or `critical`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Critical => "critical",
        }
    }
}

impl AlertKind {
    /// Every kind, the most urgent first.
    pub const ALL: [AlertKind; 7] = [
        AlertKind::TransitionsSuspended,
        AlertKind::Disk,
        AlertKind::Store,
        AlertKind::DestinationFrozen,
        AlertKind::DeliveryDead,
        AlertKind::DestinationDisabled,
        AlertKind::ClockStepped,
    ];

    /// The name in settings and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlertKind::TransitionsSuspended => "transitions_suspended",
            AlertKind::Disk => "disk",
            AlertKind::Store => "store",
            AlertKind::DestinationFrozen => "destination_frozen",
            AlertKind::DeliveryDead => "delivery_dead",
            AlertKind::DestinationDisabled => "destination_disabled",
            AlertKind::ClockStepped => "clock_stepped",
        }
    }

    /// How urgent an alert of this kind is.
    pub const fn severity(self) -> Severity {
        match self {
            AlertKind::TransitionsSuspended | AlertKind::Disk | AlertKind::Store => {
                Severity::Critical
            }
            AlertKind::DestinationFrozen | AlertKind::DeliveryDead => Severity::Error,
            AlertKind::DestinationDisabled | AlertKind::ClockStepped => Severity::Warning,
        }
    }

    /// Whether this kind is a condition, which lasts until it is resolved. The other kinds are events
    /// of a moment, which are counted.
    const fn is_condition(self) -> bool {
        match self {
            AlertKind::TransitionsSuspended
            | AlertKind::Disk
            | AlertKind::Store
            | AlertKind::DestinationFrozen
            | AlertKind::DestinationDisabled => true,
            AlertKind::DeliveryDead | AlertKind::ClockStepped => false,
        }
    }

    /// Whether an alert of this kind is about one tenant, not about the server.
    const fn has_tenant(self) -> bool {
        match self {
            AlertKind::DestinationFrozen
            | AlertKind::DeliveryDead
            | AlertKind::DestinationDisabled => true,
            AlertKind::TransitionsSuspended
            | AlertKind::Disk
            | AlertKind::Store
            | AlertKind::ClockStepped => false,
        }
    }
}

/// Why a text names no kind or severity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown name")]
pub struct UnknownName;

impl FromStr for AlertKind {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        AlertKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownName)
    }
}

impl FromStr for Severity {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Severity::ALL.into_iter().find(|severity| severity.as_str() == text).ok_or(UnknownName)
    }
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How often a target is sent messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertPolicy {
    /// What happens within this time after the first occurrence is reported together with it.
    pub group_window: Duration,
    /// The shortest time between two messages. It doubles, up to an hour, while new occurrences
    /// come.
    pub interval_min: Duration,
    /// How long every condition must be gone before the message that it is resolved.
    pub resolve_after: Duration,
    /// After this time the target is reminded of conditions that last.
    pub repeat_every: Duration,
    /// The most messages in an hour.
    pub hourly_max: u32,
}

impl Default for AlertPolicy {
    fn default() -> Self {
        AlertPolicy {
            group_window: Duration::from_secs(30),
            interval_min: Duration::from_secs(5 * 60),
            resolve_after: Duration::from_secs(5 * 60),
            repeat_every: Duration::from_secs(24 * 60 * 60),
            hourly_max: 10,
        }
    }
}

/// Which alerts a target wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The lowest severity that the target wants.
    pub severity: Severity,
    /// Only these kinds; all if it is empty.
    pub kinds: BTreeSet<AlertKind>,
    /// Only what is about these tenants, and nothing about the server; everything if it is empty.
    pub tenants: BTreeSet<TenantId>,
}

impl Default for Wanted {
    fn default() -> Self {
        let (kinds, tenants) = (BTreeSet::new(), BTreeSet::new());
        Wanted { severity: Severity::Warning, kinds, tenants }
    }
}

impl Wanted {
    fn has_kind(&self, kind: AlertKind) -> bool {
        kind.severity() >= self.severity
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.tenants.is_empty() || kind.has_tenant())
    }

    /// Whether the target counts reports of this scope: `None` is all tenants together.
    fn has_scope(&self, scope: Option<&TenantId>) -> bool {
        match scope {
            None => self.tenants.is_empty(),
            Some(tenant) => self.tenants.contains(tenant),
        }
    }
}

/// One of the destinations, deliveries or nodes that an alert is about. All text is [`plain`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The tenant that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The identifier, to look it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Its name: the origin of a URL, a type of events, a node.
    pub name: String,
    /// What is wrong with it.
    pub detail: String,
    /// How bad it is: a message shows the worst.
    #[serde(default)]
    pub weight: u64,
}

/// What one node reports of one kind, for one tenant or for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The kind of the alert.
    pub kind: AlertKind,
    /// The tenant that is affected; `None` for all tenants together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<TenantId>,
    /// For a condition, how many things are affected now; for other kinds, how often it happened
    /// since the last report.
    pub count: u64,
    /// Examples of what is affected, the worst first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<Example>,
}

/// The report of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The conditions that last now. They replace those that the node reported before.
    pub now: Vec<Seen>,
    /// What has happened since the node's last report.
    pub happened: Vec<Seen>,
}

/// The state of a message, or of one of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertStatus {
    /// Something is wrong.
    Firing,
    /// The conditions that were reported are gone.
    Resolved,
    /// Nothing is wrong: somebody tries whether messages arrive.
    Test,
}

impl AlertStatus {
    /// `firing`, `resolved` or `test`.
    pub const fn as_str(self) -> &'static str {
        match self {
            AlertStatus::Firing => "firing",
            AlertStatus::Resolved => "resolved",
            AlertStatus::Test => "test",
        }
    }
}

/// A message for one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertMessage {
    /// How many messages the target got before it.
    pub number: u64,
    /// When the message was made.
    pub at: Timestamp,
    /// `Resolved` only when every condition that was reported is gone.
    pub status: AlertStatus,
    /// Whether the message repeats what was reported before.
    pub is_reminder: bool,
    /// One for each kind, the most urgent first.
    pub lines: Vec<AlertLine>,
}

/// What a message says of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertLine {
    /// The kind of the alert.
    pub kind: AlertKind,
    /// Whether the condition lasts or is resolved.
    pub status: AlertStatus,
    /// How many things are affected now, or how often it happened.
    pub count: u64,
    /// How many occurrences are new since the last message.
    pub new: u64,
    /// When the condition began, or the first occurrence happened.
    pub since: Timestamp,
    /// Examples of what is affected, the worst first.
    pub worst: Vec<Example>,
}

impl AlertMessage {
    /// A message that an operator asked for, to see whether messages arrive.
    pub fn test(at: Timestamp) -> Self {
        let (status, lines) = (AlertStatus::Test, Vec::new());
        AlertMessage { number: 0, at, status, is_reminder: false, lines }
    }

    /// The severity of its most urgent line.
    pub fn severity(&self) -> Severity {
        let all = self.lines.iter().map(|line| line.kind.severity());
        all.max().unwrap_or(Severity::Warning)
    }
}
