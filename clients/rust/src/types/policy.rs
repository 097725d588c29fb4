//! The policy of a subscription, and what a destination has of those of its subscriptions.

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
