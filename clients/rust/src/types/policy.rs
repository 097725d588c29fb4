//! The policy of the server, of a subscription, and what a destination has of those of its
//! subscriptions.

use serde::{Deserialize, Serialize};

/// What a subscription wants otherwise than the server's policy; absent where the server's holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionPolicy {
    /// One attempt.
    #[serde(default)]
    pub attempt: SubscriptionAttemptPolicy,
    /// What happens when the destination recovers.
    #[serde(default)]
    pub recovery: SubscriptionRecoveryPolicy,
    /// The schedule of retries.
    #[serde(default)]
    pub retry: SubscriptionRetryPolicy,
}

/// One attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionAttemptPolicy {
    /// For all of it: DNS, connect, TLS, request and response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
}

/// The schedule of retries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionRetryPolicy {
    /// How many retries there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Retry n falls due (2^n - 1) units after the first attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_seconds: Option<f64>,
}

/// What happens when the destination recovers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionRecoveryPolicy {
    /// What becomes of its deliveries that died of an outage: `keep` or `replay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<String>,
    /// Those that were accepted longer ago are kept in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_max_age_seconds: Option<f64>,
    /// How what waits is sent: `slots` or `drain`. Subscriptions of one URL have one mode together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// What holds for the deliveries of a subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EffectivePolicy {
    /// The time limit of an attempt.
    pub attempt_deadline_seconds: f64,
    /// What becomes of what died of an outage: `keep` or `replay`.
    pub dead: String,
    /// Deliveries that were accepted longer ago are kept in any case.
    pub dead_max_age_seconds: f64,
    /// The schedule of retries.
    pub retry: RetryPolicy,
}

/// The schedule of retries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// By which share of its delay a retry may be moved later, 0 to 1.
    pub jitter: f64,
    /// How many retries there are.
    pub max: u32,
    /// What the offsets count from: `first_attempt` or `previous_attempt`.
    pub measured_from: String,
    /// When each retry falls due after the first attempt, without jitter.
    pub offsets_ms: Vec<u64>,
    /// Retry n falls due (2^n - 1) units after the first attempt.
    pub unit_seconds: f64,
}

/// The most requests a second to a destination, and where that comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DestinationRate {
    /// `server` or `subscription`.
    pub from: String,
    /// The rate.
    pub per_second: f64,
    /// The subscription that it comes from.
    pub subscription_id: Option<String>,
}

/// How what waits is sent when a destination recovers, and where that comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DestinationRecovery {
    /// `server` or `subscription`.
    pub from: String,
    /// `slots` or `drain`.
    pub mode: String,
    /// The subscription that it comes from.
    pub subscription_id: Option<String>,
}

/// The policy that is in force. A server with `--time-scale` shows the durations as it uses
/// them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Policy {
    /// One attempt.
    pub attempt: AttemptPolicy,
    /// When a destination is disabled, probed and frozen.
    pub circuit: CircuitPolicy,
    /// When transitions are suspended.
    pub mass_failure: MassFailurePolicy,
    /// How waiting deliveries are sent when a destination recovers.
    pub recovery: RecoveryPolicy,
    /// How long things are kept.
    pub retention: Retention,
    /// The schedule of retries.
    pub retry: RetryPolicy,
    /// How far the policy of a subscription may go; absent where the server is too old to say
    /// so.
    pub subscription_limits: Option<SubscriptionPolicyLimits>,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptPolicy {
    /// For all of it: DNS, connect, TLS, request and response.
    pub deadline_seconds: f64,
    /// What is kept of a response's body.
    pub response_body_bytes_max: u64,
}

/// When a destination is disabled, probed and frozen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CircuitPolicy {
    /// Disabled at so many consecutive failures.
    pub disable_consecutive: u64,
    /// … and there were more attempts than these.
    pub disable_grace: u64,
    /// Disabled when more than this share of the attempts failed, 0 to 1 …
    pub disable_share: f64,
    /// … when the last success is longer ago than this.
    pub freeze_after_seconds: f64,
    /// Frozen at so many consecutive failures in any time.
    pub freeze_consecutive: u64,
    /// Frozen over so many consecutive failures …
    pub freeze_over_consecutive: u64,
    /// The time between two probes.
    pub probe_interval_seconds: f64,
}

/// When so many destinations begin to fail at once that transitions are suspended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MassFailurePolicy {
    /// It takes at least so many destinations.
    pub destinations_min: u64,
    /// Transitions are suspended no longer than this.
    pub hold_max_seconds: f64,
    /// It takes more than this share of them, 0 to 1.
    pub share: f64,
    /// Failures of this time count together.
    pub window_seconds: f64,
}

/// How waiting deliveries are sent when a destination recovers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecoveryPolicy {
    /// What becomes of what died of an outage: `keep` or `replay`.
    pub dead: Option<String>,
    /// Deliveries that were accepted longer ago are kept in any case.
    pub dead_max_age_seconds: Option<f64>,
    /// So many of the others are replayed in a second.
    #[serde(default)]
    pub dead_per_second: u32,
    /// `slots` or `drain`.
    pub mode: String,
    /// How long a step of the ramp lasts.
    pub ramp_step_seconds: f64,
}

/// How long things are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Retention {
    /// Finished deliveries with their events and attempts.
    pub finished_seconds: f64,
}

/// How far the policy of a subscription may go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubscriptionPolicyLimits {
    /// The longest `attempt.deadline_seconds`.
    pub attempt_deadline_seconds_max: f64,
    /// The largest `recovery.dead_max_age_seconds`.
    pub dead_max_age_seconds_max: f64,
    /// The most requests a second to any destination; absent for no limit.
    pub rate_limit_max: Option<u32>,
    /// The largest `retry.max`.
    pub retry_max: u32,
    /// The longest time from the first attempt to the last retry.
    pub retry_span_seconds_max: f64,
    /// The shortest `retry.unit_seconds`.
    pub retry_unit_seconds_min: f64,
}
