//! All numbers of the contract, with their defaults.
//!
//! These numbers are defined nowhere else in Postrider. An operator may change each of them; the
//! defaults are fixed by the contract. Limits that nobody can change are in [`crate::limits`].
//!
//! A subscription may have some of them otherwise ([`SubscriptionPolicy`]), within the operator's
//! [`PolicyLimits`]. What a destination has only once, although several subscriptions may share it, is
//! decided in [`DestinationPolicy`].

mod destination;
mod subscription;

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::subscription::RateLimit;

pub use self::destination::{DeadReplay, DestinationPolicy, PolicySource};
pub use self::subscription::{SubscriptionPolicy, SubscriptionPolicyError};

/// The whole policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The limits of one attempt.
    pub attempt: AttemptPolicy,
    /// When the retries fall due.
    pub retry: RetryPolicy,
    /// When a destination is disabled, probed and frozen.
    pub circuit: CircuitPolicy,
    /// How waiting deliveries are sent when a destination recovers.
    pub recovery: RecoveryPolicy,
    /// When failures are probably our own.
    pub mass_failure: MassFailurePolicy,
    /// How long finished deliveries are kept.
    pub retention: Retention,
    /// How far a subscription's own policy may go.
    pub limits: PolicyLimits,
    /// What the durations above are divided by already, and those of a subscription's own policy are
    /// divided by when they are used. The limits are not divided.
    pub time_scale: NonZeroU32,
}

/// How far a subscription's own policy may go: [`SubscriptionPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyLimits {
    /// The shortest unit of a schedule.
    pub retry_unit_min: Duration,
    /// The most retries.
    pub retry_max: u32,
    /// The longest time from the first attempt to the last retry.
    pub retry_span_max: Duration,
    /// The longest deadline of an attempt.
    pub attempt_deadline_max: Duration,
    /// The oldest dead deliveries that are replayed without being asked for.
    pub dead_max_age_max: Duration,
    /// The most requests per second to a destination, also where no subscription limits them.
    pub rate_limit_max: Option<u32>,
}

/// The limits of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptPolicy {
    /// The time limit of the whole attempt: DNS, connect, TLS, request, response.
    pub deadline: Duration,
    /// How many bytes of a response's body are read, for the log.
    pub response_body_bytes_max: usize,
}

/// The schedule of retries; see [`crate::retry`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retry n falls due (2^n − 1) units after the first attempt.
    pub unit: Duration,
    /// How many retries there are.
    pub max: u32,
    /// From which time an offset counts.
    pub measured_from: MeasuredFrom,
    /// The share of its delay by which a retry may be moved later, to spread the load.
    pub jitter: Share,
}

/// The two interpretations of the retry formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasuredFrom {
    /// Offsets count from the first attempt; the last retry falls at about 48 hours.
    FirstAttempt,
    /// Delays count from the previous attempt; the schedule ends after the same 48 hours.
    PreviousAttempt,
}

/// The thresholds of a destination's circuit; see [`crate::circuit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Disabled when more than this share of the attempts since the last reset failed …
    pub disable_share: Share,
    /// … and there were more attempts than this.
    pub disable_grace: u64,
    /// Disabled at this many consecutive failures.
    pub disable_consecutive: u64,
    /// The time between two probes of a disabled destination.
    pub probe_interval: Duration,
    /// Frozen when there are more consecutive failures than this …
    pub freeze_over_consecutive: u64,
    /// … and the last success is longer ago than this.
    pub freeze_after: Duration,
    /// Frozen at this many consecutive failures, regardless of time.
    pub freeze_consecutive: u64,
}

/// How waiting deliveries are sent when a destination recovers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryPolicy {
    /// One of the two modes.
    pub mode: RecoveryMode,
    /// How long each step of the ramp lasts before the number of deliveries is doubled.
    pub ramp_step: Duration,
    /// What becomes of the deliveries that died of the outage.
    pub dead: DeadRecovery,
    /// Those that were accepted longer ago than this are kept in any case.
    pub dead_max_age: Duration,
    /// How many of them are replayed in a second.
    pub dead_per_second: u32,
}

/// The two modes of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryMode {
    /// Deliveries follow their slots.
    Slots,
    /// Deliveries are sent at once, oldest first, by a ramp of 1, 2, 4, … at a time.
    Drain,
}

/// What becomes of the deliveries that died of an outage when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadRecovery {
    /// They are kept; somebody may replay them.
    Keep,
    /// They are replayed.
    Replay,
}

/// When so many destinations begin to fail at once that the fault is probably ours; see
/// [`crate::mass_failure`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MassFailurePolicy {
    /// The time span that counts as "at once".
    pub window: Duration,
    /// The least number of destinations attempted in the window.
    pub destinations_min: usize,
    /// The guard triggers when more than this share of the destinations fail.
    pub share: Share,
    /// The longest time for which transitions are suspended.
    pub hold_max: Duration,
}

/// How long finished deliveries are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Events with their finished deliveries and attempts.
    pub finished: Duration,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Policy {
    fn default() -> Self {
        Policy {
            attempt: AttemptPolicy::default(),
            retry: RetryPolicy::default(),
            circuit: CircuitPolicy::default(),
            recovery: RecoveryPolicy::default(),
            mass_failure: MassFailurePolicy::default(),
            retention: Retention::default(),
            limits: PolicyLimits::default(),
            time_scale: NonZeroU32::MIN,
        }
    }
}

impl Default for PolicyLimits {
    fn default() -> Self {
        PolicyLimits {
            retry_unit_min: Duration::from_secs(1),
            retry_max: 20,
            retry_span_max: DAY * 7,
            // Shorter than the API's own deadline: a test send is answered in time.
            attempt_deadline_max: Duration::from_secs(20),
            dead_max_age_max: DAY * 30,
            rate_limit_max: None,
        }
    }
}

impl Default for AttemptPolicy {
    fn default() -> Self {
        AttemptPolicy { deadline: Duration::from_secs(5), response_body_bytes_max: 16 * 1024 }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            unit: Duration::from_millis(84_800),
            max: 11,
            measured_from: MeasuredFrom::FirstAttempt,
            jitter: Share::ZERO,
        }
    }
}

impl Default for CircuitPolicy {
    fn default() -> Self {
        CircuitPolicy {
            disable_share: Share::percent(70),
            disable_grace: 100,
            disable_consecutive: 2_000,
            probe_interval: MINUTE * 10,
            freeze_over_consecutive: 2_000,
            freeze_after: HOUR * 72,
            freeze_consecutive: 50_000,
        }
    }
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy {
            mode: RecoveryMode::Slots,
            ramp_step: Duration::from_secs(1),
            dead: DeadRecovery::Keep,
            dead_max_age: DAY * 7,
            dead_per_second: 100,
        }
    }
}

impl Default for MassFailurePolicy {
    fn default() -> Self {
        MassFailurePolicy {
            window: MINUTE,
            destinations_min: 20,
            share: Share::percent(50),
            hold_max: HOUR,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Retention { finished: DAY * 30 }
    }
}

/// A setting with an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{setting} {problem}")]
pub struct PolicyError {
    /// The setting, as it is written in the configuration.
    pub setting: &'static str,
    /// What is wrong with it, and which values are valid.
    pub problem: &'static str,
}

impl Policy {
    /// Refuses invalid values. Computing with a valid policy never overflows.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let ms = Duration::from_millis(1);
        let rules = [
            ("attempt.deadline", self.attempt.deadline >= ms, "must be at least 1 ms"),
            ("retry.unit", self.retry.unit >= ms, "must be at least 1 ms"),
            ("retry.max", self.retry.max <= RETRIES_MAX, "must be at most 100"),
            ("retry.jitter", self.retry.jitter <= Share::ALL, "must be between 0 and 1"),
            (
                "circuit.disable_share",
                self.circuit.disable_share <= Share::ALL,
                "must be between 0 and 1",
            ),
            (
                "circuit.disable_consecutive",
                self.circuit.disable_consecutive >= 1,
                "must be at least 1",
            ),
            (
                "circuit.freeze_consecutive",
                self.circuit.freeze_consecutive >= 1,
                "must be at least 1",
            ),
            ("circuit.probe_interval", self.circuit.probe_interval >= ms, "must be at least 1 ms"),
            ("recovery.ramp_step", self.recovery.ramp_step >= ms, "must be at least 1 ms"),
            ("recovery.dead_max_age", self.recovery.dead_max_age >= ms, "must be at least 1 ms"),
            ("recovery.dead_per_second", self.recovery.dead_per_second >= 1, "must be at least 1"),
            (
                "mass_failure.share",
                self.mass_failure.share <= Share::ALL,
                "must be between 0 and 1",
            ),
            ("mass_failure.window", self.mass_failure.window >= ms, "must be at least 1 ms"),
            ("retention.finished", self.retention.finished >= HOUR, "must be at least 1 hour"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((setting, _, problem)) => Err(PolicyError { setting, problem }),
            None => self.limits.validate(),
        }
    }

    /// The same policy on a faster clock, for demonstrations and tests: the schedule's unit, the
    /// probe interval, the time until freezing, the window of the mass-failure guard and the steps
    /// of a ramp are divided by `n`. The attempt's deadline and the retention stay.
    #[must_use]
    pub fn scaled_by(&self, n: NonZeroU32) -> Policy {
        let scaled = |duration: Duration| scaled(duration, n);
        let mut policy = self.clone();
        policy.time_scale = self.time_scale.saturating_mul(n);
        policy.retry.unit = scaled(self.retry.unit);
        policy.circuit.probe_interval = scaled(self.circuit.probe_interval);
        policy.circuit.freeze_after = scaled(self.circuit.freeze_after);
        policy.recovery.ramp_step = scaled(self.recovery.ramp_step);
        policy.mass_failure.window = scaled(self.mass_failure.window);
        policy.mass_failure.hold_max = scaled(self.mass_failure.hold_max);
        policy
    }
}

/// A duration on a faster clock. None becomes shorter than a millisecond.
fn scaled(duration: Duration, n: NonZeroU32) -> Duration {
    (duration / n.get()).max(Duration::from_millis(1))
}

impl PolicyLimits {
    /// The most requests per second to a destination.
    pub fn rate_limit(&self) -> Option<RateLimit> {
        self.rate_limit_max.and_then(|most| RateLimit::per_second(f64::from(most)).ok())
    }

    /// Refuses invalid values.
    fn validate(&self) -> Result<(), PolicyError> {
        let ms = Duration::from_millis(1);
        let rules = [
            ("policy_limits.retry_unit_min", self.retry_unit_min >= ms, "must be at least 1 ms"),
            ("policy_limits.retry_max", self.retry_max <= RETRIES_MAX, "must be at most 100"),
            (
                "policy_limits.retry_span_max",
                self.retry_span_max >= self.retry_unit_min,
                "must not be shorter than policy_limits.retry_unit_min",
            ),
            (
                "policy_limits.attempt_deadline_max",
                self.attempt_deadline_max >= limits::ATTEMPT_DEADLINE_MIN,
                "must be at least 100 ms",
            ),
            (
                "policy_limits.dead_max_age_max",
                self.dead_max_age_max >= ms,
                "must be at least 1 ms",
            ),
            (
                "policy_limits.rate_limit_max",
                self.rate_limit_max
                    .is_none_or(|rate| (1..=limits::RATE_LIMIT_PER_SECOND_MAX).contains(&rate)),
                "must be from 1 to 1000000",
            ),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((setting, _, problem)) => Err(PolicyError { setting, problem }),
            None => Ok(()),
        }
    }
}

/// The most retries. More would double the delay past the end of the calendar.
pub const RETRIES_MAX: u32 = 100;

/// A share of a whole, exact to a millionth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share {
    millionths: u32,
}

impl Share {
    /// Zero.
    pub const ZERO: Share = Share { millionths: 0 };
    /// The whole.
    pub const ALL: Share = Share { millionths: 1_000_000 };

    /// This many hundredths.
    pub const fn percent(percent: u32) -> Share {
        Share { millionths: percent.saturating_mul(10_000) }
    }

    /// This many millionths.
    pub const fn from_millionths(millionths: u32) -> Share {
        Share { millionths }
    }

    /// This part of one, to the nearest millionth; `None` where it is not between 0 and 1.
    pub fn from_ratio(ratio: f64) -> Option<Share> {
        if !(0.0..=1.0).contains(&ratio) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and 10^6, as was just checked"
        )]
        let millionths = (ratio * 1e6).round() as u32;
        Some(Share { millionths })
    }

    /// How many millionths it is.
    pub const fn as_millionths(self) -> u32 {
        self.millionths
    }

    /// Whether `part` is more than this share of `whole`. Exactly this share is not more.
    pub fn is_exceeded_by(self, part: u64, whole: u64) -> bool {
        u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(self.millionths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_contract() {
        let policy = Policy::default();
        assert_eq!(policy.attempt.deadline, Duration::from_secs(5));
        assert_eq!(policy.attempt.response_body_bytes_max, 16_384);
        assert_eq!(policy.retry.unit, Duration::from_millis(84_800));
        assert_eq!(policy.retry.max, 11);
        assert_eq!(policy.retry.measured_from, MeasuredFrom::FirstAttempt);
        assert_eq!(policy.retry.jitter, Share::ZERO);
        assert_eq!(policy.circuit.disable_share, Share::percent(70));
        assert_eq!(policy.circuit.disable_grace, 100);
        assert_eq!(policy.circuit.disable_consecutive, 2_000);
        assert_eq!(policy.circuit.probe_interval, Duration::from_secs(600));
        assert_eq!(policy.circuit.freeze_over_consecutive, 2_000);
        assert_eq!(policy.circuit.freeze_after, Duration::from_secs(72 * 3_600));
        assert_eq!(policy.circuit.freeze_consecutive, 50_000);
        assert_eq!(policy.recovery.mode, RecoveryMode::Slots);
        assert_eq!(policy.mass_failure.destinations_min, 20);
        assert_eq!(policy.mass_failure.share, Share::percent(50));
        assert_eq!(policy.mass_failure.window, Duration::from_secs(60));
        assert_eq!(policy.retention.finished, Duration::from_secs(30 * 24 * 3_600));
        assert_eq!(policy.validate(), Ok(()));
    }

    #[test]
    fn a_scale_divides_the_durations_of_the_policy_and_nothing_else() {
        let base = Policy::default();
        let policy = base.scaled_by(NonZeroU32::new(1_000).unwrap());
        assert_eq!(policy.retry.unit, Duration::from_micros(84_800));
        assert_eq!(policy.circuit.probe_interval, Duration::from_millis(600));
        assert_eq!(policy.circuit.freeze_after, Duration::from_millis(259_200));
        assert_eq!(policy.recovery.ramp_step, Duration::from_millis(1));
        assert_eq!(policy.mass_failure.window, Duration::from_millis(60));
        assert_eq!(policy.attempt, base.attempt);
        assert_eq!(policy.retention, base.retention);
        assert_eq!(policy.circuit.disable_consecutive, 2_000);
        assert_eq!(policy.limits, base.limits);
        assert_eq!(policy.time_scale.get(), 1_000);
        assert_eq!(base.scaled_by(NonZeroU32::MIN), base);
        // However large the scale, no duration becomes zero.
        assert_eq!(base.scaled_by(NonZeroU32::MAX).validate(), Ok(()));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        type Bend = fn(&mut Policy);
        let cases: [(&str, Bend); 18] = [
            ("attempt.deadline", |p| p.attempt.deadline = Duration::ZERO),
            ("retry.unit", |p| p.retry.unit = Duration::ZERO),
            ("retry.max", |p| p.retry.max = 101),
            ("retry.jitter", |p| p.retry.jitter = Share::percent(101)),
            ("circuit.disable_share", |p| p.circuit.disable_share = Share::percent(101)),
            ("circuit.disable_consecutive", |p| p.circuit.disable_consecutive = 0),
            ("circuit.freeze_consecutive", |p| p.circuit.freeze_consecutive = 0),
            ("circuit.probe_interval", |p| p.circuit.probe_interval = Duration::ZERO),
            ("recovery.ramp_step", |p| p.recovery.ramp_step = Duration::ZERO),
            ("mass_failure.share", |p| p.mass_failure.share = Share::percent(101)),
            ("mass_failure.window", |p| p.mass_failure.window = Duration::ZERO),
            ("retention.finished", |p| p.retention.finished = MINUTE),
            ("policy_limits.retry_unit_min", |p| p.limits.retry_unit_min = Duration::ZERO),
            ("policy_limits.retry_max", |p| p.limits.retry_max = 101),
            ("policy_limits.retry_span_max", |p| p.limits.retry_span_max = Duration::ZERO),
            ("policy_limits.attempt_deadline_max", |p| {
                p.limits.attempt_deadline_max = Duration::ZERO;
            }),
            ("policy_limits.dead_max_age_max", |p| p.limits.dead_max_age_max = Duration::ZERO),
            ("policy_limits.rate_limit_max", |p| p.limits.rate_limit_max = Some(0)),
        ];
        for (setting, bend) in cases {
            let mut policy = Policy::default();
            bend(&mut policy);
            let error = policy.validate().unwrap_err();
            assert_eq!(error.setting, setting);
            assert!(error.to_string().starts_with(&format!("{setting} must ")), "{error}");
        }
    }

    #[test]
    fn exactly_a_share_is_not_more_than_it() {
        let seventy = Share::percent(70);
        assert!(!seventy.is_exceeded_by(70, 100));
        assert!(seventy.is_exceeded_by(71, 101));
        assert!(!seventy.is_exceeded_by(98, 140));
        assert!(seventy.is_exceeded_by(99, 141));
        assert!(!seventy.is_exceeded_by(0, 0));
        assert!(seventy.is_exceeded_by(u64::MAX, u64::MAX));
        assert_eq!(Share::from_millionths(700_000), seventy);
        assert_eq!(seventy.as_millionths(), 700_000);
    }
}
