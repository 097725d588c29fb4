//! What a policy would do in an outage.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One URL, evenly spaced deliveries, one outage.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Simulation {
    /// How long an answer takes, 1 to 60000; 100 where it is left out. Matters only to `drain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_ms: Option<u64>,
    /// So many deliveries …
    pub deliveries: u64,
    /// How long after the outage somebody enables the URL, should it be frozen; never where it is
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_after_seconds: Option<u64>,
    /// How long everything was well before; a day where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub healthy_before_seconds: Option<u64>,
    /// How long every attempt fails, 1 second to a year.
    pub outage_seconds: u64,
    /// … in so many seconds; 1 where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_seconds: Option<u64>,
    /// A policy to try, as the plan `yours`. What is left out is as in `GET /v1/policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Value>,
    /// What to compare with: `server` (as in `GET /v1/policy`), `default`, `replay` (the default
    /// with `recovery.dead = "replay"`), `svix`, `stripe`. Left out: `default` beside a policy, all
    /// but `server` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presets: Option<Vec<String>>,
    /// Points of the course of time, 10 to 1000; 600 where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
    /// A subscription, whose policy is tried as the plan `subscription`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
}

impl Simulation {
    /// So many deliveries a second, and an outage of so many seconds.
    pub fn new(deliveries: u64, outage_seconds: u64) -> Simulation {
        Simulation { deliveries, outage_seconds, ..Simulation::default() }
    }
}

/// What comes of it. Times are seconds from the beginning of the outage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SimulationAnswer {
    /// How many deliveries.
    pub deliveries: u64,
    /// When somebody enables the URL.
    pub enabled_after_seconds: Option<f64>,
    /// How long everything was well before.
    pub healthy_before_seconds: f64,
    /// How long the outage lasts.
    pub outage_seconds: f64,
    /// In so many seconds.
    pub per_seconds: f64,
    /// One for each policy and preset, in the order in which they were asked for.
    pub plans: Vec<SimulatedPlan>,
}

/// What one policy does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SimulatedPlan {
    /// Deliveries from the beginning of the outage to the end of the forecast.
    pub accepted: u64,
    /// When the first one arrived after the outage; absent where none does.
    pub back_at_seconds: Option<f64>,
    /// Dead.
    pub dead: u64,
    /// Dead without a single attempt.
    pub dead_never_attempted: u64,
    /// Delivered.
    pub delivered: u64,
    /// Attempts that failed, probes included.
    pub failed_attempts: u64,
    /// Probes that failed.
    pub failed_probes: u64,
    /// Delivered, but not by the first attempt.
    pub late: u64,
    /// By how much the late ones were late.
    pub late_by_seconds: LateBy,
    /// `yours`, `server`, `default`, `replay`, `svix` or `stripe`.
    pub name: String,
    /// When the most waited.
    pub peak_at_seconds: f64,
    /// The most that ever waited, and when.
    pub peak_backlog: u64,
    /// The most deliveries that arrived in a minute, on the average of one sample.
    pub peak_per_minute: u64,
    /// When nothing was waiting any more; absent where that never happens by itself.
    pub recovered_at_seconds: Option<f64>,
    /// Those that had died and were replayed when the URL was back; they arrived.
    #[serde(default)]
    pub replayed: u64,
    /// The course of time.
    pub samples: Vec<SimulatedSample>,
    /// Changes of the circuit, probes aside.
    pub timeline: Vec<SimulatedChange>,
    /// Those that wait at the end.
    pub waiting: u64,
}

/// By how much the late ones were late; null where none was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LateBy {
    /// The most.
    pub max: Option<f64>,
    /// The median.
    pub p50: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
}

/// One change of the circuit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SimulatedChange {
    /// Seconds from the beginning of the outage.
    pub at_seconds: f64,
    /// `enabled`, `disabled` or `frozen`.
    pub state: String,
    /// `failure_share`, `consecutive_failures`, `no_success`, `success`, `by_hand` or `other`.
    pub why: String,
}

/// One point of the course of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SimulatedSample {
    /// Seconds from the beginning of the outage.
    pub at_seconds: f64,
    /// Deliveries that wait.
    pub backlog: u64,
    /// Dead.
    pub dead: u64,
    /// Delivered.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed_attempts: u64,
}
