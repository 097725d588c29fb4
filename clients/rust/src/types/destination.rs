//! Destinations and their circuits.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::policy::{DestinationRate, DestinationRecovery};

/// Whether a destination is attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DestinationState {
    /// Deliveries are attempted.
    Enabled,
    /// Only a probe is sent every ten minutes.
    Disabled,
    /// Nothing is sent until somebody enables it.
    Frozen,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// One URL of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Destination {
    /// The tenant, in lists of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Settled attempts since the last reset.
    pub attempts: u64,
    /// Failures since the last success.
    pub consecutive_failures: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was disabled.
    pub disabled_at: Option<Timestamp>,
    /// Attempts that failed.
    pub failures: u64,
    /// When it was frozen.
    pub frozen_at: Option<Timestamp>,
    /// Its identifier.
    pub id: String,
    /// When an attempt last succeeded.
    pub last_success_at: Option<Timestamp>,
    /// When the next probe is due; absent if none is due, or one is in flight.
    pub next_probe_at: Option<Timestamp>,
    /// The most requests a second; absent for no limit.
    pub rate_limit: Option<DestinationRate>,
    /// Why it is disabled or frozen.
    pub reason: Option<String>,
    /// How what waits is sent when it recovers; absent where the server is too old to say so.
    pub recovery: Option<DestinationRecovery>,
    /// The replay of what died there; absent but in the answer to a call that enabled it with
    /// `dead_since`.
    pub replay: Option<String>,
    /// Where it stands.
    pub state: DestinationState,
    /// Attempts that succeeded.
    pub successes: u64,
    /// How near it is to each threshold.
    pub thresholds: Thresholds,
    /// The URL.
    pub url: String,
    /// Deliveries in its retry lane.
    pub waiting: u64,
}

/// Destinations by state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DestinationSummary {
    /// Whether all were counted; false where the tenant has more than 20,000: then the newest
    /// were.
    pub complete: bool,
    /// In the state `disabled`.
    pub disabled: u64,
    /// In the state `enabled`.
    pub enabled: u64,
    /// In the state `frozen`.
    pub frozen: u64,
}

/// The progress of a destination towards each threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Thresholds {
    /// Disabled at so many consecutive failures.
    pub disabled_by_consecutive_failures: CountThreshold,
    /// Disabled over this share of failures.
    pub disabled_by_failure_share: ShareThreshold,
    /// Frozen at so many consecutive failures.
    pub frozen_by_consecutive_failures: CountThreshold,
    /// Frozen after so long without a success.
    pub frozen_by_time: TimeThreshold,
}

/// A count and its limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CountThreshold {
    /// The limit.
    pub limit: u64,
    /// The count so far.
    pub now: u64,
}

/// Disabled when more than `limit` of more than `grace` attempts failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShareThreshold {
    /// Attempts.
    pub attempts: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// So many attempts are needed.
    pub grace: u64,
    /// The limit.
    pub limit: f64,
    /// The share of failures so far.
    pub share: f64,
}

/// Frozen with more consecutive failures and a longer time without success than these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TimeThreshold {
    /// Failures since the last success.
    pub consecutive_failures: CountThreshold,
    /// Seconds since the last success.
    pub seconds_without_success: CountThreshold,
}

/// A change of a destination's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transition {
    /// When.
    pub at: Timestamp,
    /// The counters at that time.
    pub counters: Counters,
    /// The reason as data.
    pub evidence: Value,
    /// The state before.
    pub from: DestinationState,
    /// The reason as a sentence.
    pub reason: String,
    /// The same as `from` if the destination stays disabled: a probe was sent, failed or was lost.
    pub to: DestinationState,
}

/// Counters since the last reset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counters {
    /// Attempts.
    pub attempts: u64,
    /// Failures since the last success.
    pub consecutive_failures: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Attempts that succeeded.
    pub successes: u64,
}

/// Why somebody enables a destination, and what is sent then.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Enable {
    /// Replays what died there at this time or later. The answer names the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_since: Option<Timestamp>,
    /// What for; it stands in the timeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What waits there follows its `slots`, or is sent at once by a ramp (`drain`); as
    /// `recovery.mode` says where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
}
