//! How near a destination is to being disabled or frozen, so that people can act in time.
//!
//! Nothing here decides anything: the rules are in [`crate::circuit`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::circuit::{Circuit, CircuitState};
use crate::policy::CircuitPolicy;
use crate::time::Timestamp;

/// A destination's progress towards each threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Disabled by the share of failures: the failures, the attempts, and the limits.
    pub failure_share: ShareSoFar,
    /// Disabled by consecutive failures.
    pub disable_consecutive: Progress,
    /// Frozen by consecutive failures.
    pub freeze_consecutive: Progress,
    /// Frozen by time: it takes more consecutive failures than this …
    pub freeze_over_consecutive: Progress,
    /// … and more time without a success.
    pub without_success: TimeSoFar,
}

/// A count and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current count.
    pub now: u64,
    /// The count at which the rule applies.
    pub limit: u64,
}

/// A share and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareSoFar {
    /// Failures since the last reset.
    pub failures: u64,
    /// Attempts since the last reset.
    pub attempts: u64,
    /// The rule applies only with more attempts than this.
    pub grace: u64,
    /// The rule applies if more than this many millionths of the attempts failed.
    pub limit_millionths: u32,
}

/// A time and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSoFar {
    /// The time since the last success, or since creation.
    pub now: Duration,
    /// The rule applies if more time than this has passed.
    pub limit: Duration,
}

/// A threshold that a destination has come near.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threshold {
    /// Disabled by the share of failures.
    FailureShare,
    /// Disabled by consecutive failures.
    DisableConsecutive,
    /// Frozen by consecutive failures.
    FreezeConsecutive,
}

/// How near it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nearness {
    /// Half of the way.
    Half,
    /// Nine tenths of the way.
    NineTenths,
}

/// A destination has come near a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// The threshold.
    pub threshold: Threshold,
    /// How near it is.
    pub nearness: Nearness,
}

/// The progress of `circuit` towards each threshold.
pub fn thresholds(circuit: &Circuit, now: Timestamp, policy: &CircuitPolicy) -> Thresholds {
    let counters = circuit.counters;
    let consecutive = |limit| Progress { now: counters.consecutive_failures, limit };
    Thresholds {
        failure_share: ShareSoFar {
            failures: counters.failures,
            attempts: counters.attempts,
            grace: policy.disable_grace,
            limit_millionths: policy.disable_share.as_millionths(),
        },
        disable_consecutive: consecutive(policy.disable_consecutive),
        freeze_consecutive: consecutive(policy.freeze_consecutive),
        freeze_over_consecutive: consecutive(policy.freeze_over_consecutive),
        without_success: TimeSoFar {
            now: now.since(circuit.last_success_at),
            limit: policy.freeze_after,
        },
    }
}

/// The warning that is due when a circuit changed from `before` to `after`: each threshold warns
/// once at half and once at nine tenths, until a reset. If several are due, the nearest one.
pub fn newly_near(before: &Circuit, after: &Circuit, policy: &CircuitPolicy) -> Option<Warning> {
    [Threshold::FreezeConsecutive, Threshold::DisableConsecutive, Threshold::FailureShare]
        .into_iter()
        .filter_map(|threshold| {
            let reached = nearness(threshold, after, policy)?;
            let is_new = nearness(threshold, before, policy) < Some(reached);
            is_new.then_some(Warning { threshold, nearness: reached })
        })
        .max_by_key(|warning| warning.nearness)
}

fn nearness(threshold: Threshold, circuit: &Circuit, policy: &CircuitPolicy) -> Option<Nearness> {
    let counters = circuit.counters;
    let closed = circuit.state == CircuitState::Closed;
    let frozen = matches!(circuit.state, CircuitState::Frozen { .. });
    let (now, limit) = match threshold {
        Threshold::FailureShare
            if closed
                && policy.disable_share.is_exceeded_by(counters.failures, counters.attempts) =>
        {
            (counters.attempts, policy.disable_grace.saturating_add(1))
        }
        Threshold::DisableConsecutive if closed => {
            (counters.consecutive_failures, policy.disable_consecutive)
        }
        Threshold::FreezeConsecutive if !frozen => {
            (counters.consecutive_failures, policy.freeze_consecutive)
        }
        Threshold::FailureShare | Threshold::DisableConsecutive | Threshold::FreezeConsecutive => {
            return None;
        }
    };
    let (now, limit) = (u128::from(now), u128::from(limit));
    if now * 10 >= limit * 9 {
        Some(Nearness::NineTenths)
    } else if now * 2 >= limit {
        Some(Nearness::Half)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Verdict;
    use crate::circuit::Suspension;
    use crate::ids::DeliveryId;

    const START: Timestamp = Timestamp::EPOCH;

    /// The failure (counted from 1) at which each warning comes.
    fn warnings(ok_first: u32, failures: u32, policy: &CircuitPolicy) -> Vec<(u32, Warning)> {
        let id = DeliveryId::from_bytes([1; 16]);
        let mut circuit = Circuit::new(START);
        for _ in 0..ok_first {
            circuit.learn(id, Verdict::Success, START, Suspension::Off, policy);
        }
        let mut warnings = Vec::new();
        for n in 1..=failures {
            let before = circuit.clone();
            circuit.learn(id, Verdict::Failure, START, Suspension::Off, policy);
            warnings.extend(newly_near(&before, &circuit, policy).map(|warning| (n, warning)));
        }
        warnings
    }

    #[test]
    fn a_warning_comes_at_half_and_at_nine_tenths_of_a_threshold() {
        let policy = CircuitPolicy::default();
        let warning = |threshold, nearness| Warning { threshold, nearness };
        // Every attempt fails from the start: disabled at 101 attempts.
        assert_eq!(
            warnings(0, 101, &policy),
            [
                (51, warning(Threshold::FailureShare, Nearness::Half)),
                (91, warning(Threshold::FailureShare, Nearness::NineTenths)),
            ]
        );
        // After many successes: disabled at 2,000 consecutive failures; then half the way to
        // frozen.
        assert_eq!(
            warnings(100_000, 45_000, &policy),
            [
                (1_000, warning(Threshold::DisableConsecutive, Nearness::Half)),
                (1_800, warning(Threshold::DisableConsecutive, Nearness::NineTenths)),
                (25_000, warning(Threshold::FreezeConsecutive, Nearness::Half)),
                (45_000, warning(Threshold::FreezeConsecutive, Nearness::NineTenths)),
            ]
        );
    }

    #[test]
    fn frozen_destination_has_no_warning() {
        let policy = CircuitPolicy { freeze_consecutive: 1, ..CircuitPolicy::default() };
        assert_eq!(warnings(0, 3_000, &policy), []);
    }

    #[test]
    fn the_distance_to_each_threshold_is_shown() {
        let policy = CircuitPolicy::default();
        let id = DeliveryId::from_bytes([1; 16]);
        let mut circuit = Circuit::new(START);
        circuit.learn(id, Verdict::Success, START, Suspension::Off, &policy);
        circuit.learn(id, Verdict::Failure, START, Suspension::Off, &policy);
        let now = START.saturating_add(Duration::from_secs(3_600));
        let shown = thresholds(&circuit, now, &policy);
        assert_eq!(
            shown.failure_share,
            ShareSoFar { failures: 1, attempts: 2, grace: 100, limit_millionths: 700_000 }
        );
        assert_eq!(shown.disable_consecutive, Progress { now: 1, limit: 2_000 });
        assert_eq!(shown.freeze_over_consecutive, Progress { now: 1, limit: 2_000 });
        assert_eq!(shown.freeze_consecutive, Progress { now: 1, limit: 50_000 });
        assert_eq!(shown.without_success.now, Duration::from_secs(3_600));
        assert_eq!(shown.without_success.limit, Duration::from_secs(72 * 3_600));
    }
}
