//! The policy that is in force on a server, as JSON. Durations are seconds with decimals.

use std::time::Duration;

use postrider_domain::policy::{
    AttemptPolicy, CircuitPolicy, DeadRecovery, MassFailurePolicy, MeasuredFrom, Policy,
    PolicyLimits, RecoveryMode, RecoveryPolicy, RetryPolicy, Share,
};
use postrider_domain::retry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::millis;

/// The policy that is in force. A server with `--time-scale` shows the durations as it uses them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Policy)]
pub(crate) struct PolicyView {
    /// About a single attempt.
    attempt: AttemptPolicyView,
    /// When a failed delivery is tried again.
    retry: RetryPolicyView,
    /// When a destination is disabled, probed and frozen.
    circuit: CircuitPolicyView,
    /// What happens when a destination recovers.
    recovery: RecoveryPolicyView,
    /// When so many destinations fail that the fault is probably ours.
    mass_failure: MassFailureView,
    /// How long what has ended is kept.
    retention: RetentionView,
    /// What a subscription may choose for itself.
    subscription_limits: SubscriptionLimitsView,
}

/// How far the policy of a subscription may go.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionPolicyLimits)]
struct SubscriptionLimitsView {
    /// The shortest `retry.unit_seconds`.
    retry_unit_seconds_min: f64,
    /// The largest `retry.max`.
    retry_max: u32,
    /// The longest time from the first attempt to the last retry.
    retry_span_seconds_max: f64,
    /// The longest `attempt.deadline_seconds`.
    attempt_deadline_seconds_max: f64,
    /// The largest `recovery.dead_max_age_seconds`.
    dead_max_age_seconds_max: f64,
    /// The most requests a second to any destination; null for no limit.
    rate_limit_max: Option<u32>,
}

/// The policy of an attempt.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AttemptPolicy)]
struct AttemptPolicyView {
    /// The deadline of the whole attempt: DNS, connect, TLS, request and response.
    deadline_seconds: f64,
    /// How many bytes of a response's body are kept.
    response_body_bytes_max: usize,
}

/// The schedule of the retries.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RetryPolicy)]
pub(crate) struct RetryPolicyView {
    /// Retry n falls due (2^n - 1) units after the first attempt.
    unit_seconds: f64,
    /// How many retries there are.
    max: u32,
    /// From where the pauses count.
    measured_from: MeasuredFromWord,
    /// By which share of its delay a retry may be moved later, 0 to 1.
    jitter: f64,
    /// When each retry falls due after the first attempt, without jitter; with `previous_attempt` the
    /// delay after the attempt before it.
    offsets_ms: Vec<u64>,
}

/// What the offsets count from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MeasuredFrom)]
pub(crate) enum MeasuredFromWord {
    FirstAttempt,
    PreviousAttempt,
}

/// When a destination is disabled, probed and frozen.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CircuitPolicy)]
struct CircuitPolicyView {
    /// Disabled when more than this share of the attempts failed, 0 to 1 ...
    disable_share: f64,
    /// ... and there were more attempts than these.
    disable_grace: u64,
    /// Disabled at so many consecutive failures.
    disable_consecutive: u64,
    /// The time between two probes.
    probe_interval_seconds: f64,
    /// Frozen over so many consecutive failures ...
    freeze_over_consecutive: u64,
    /// ... when the last success is longer ago than this.
    freeze_after_seconds: f64,
    /// Frozen at so many consecutive failures in any time.
    freeze_consecutive: u64,
}

/// How waiting deliveries are sent when a destination recovers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RecoveryPolicy)]
struct RecoveryPolicyView {
    /// What happens with waiting deliveries.
    mode: RecoveryWord,
    /// How long a step of the ramp lasts.
    ramp_step_seconds: f64,
    /// What happens with dead deliveries.
    dead: DeadWord,
    /// Deliveries that were accepted longer ago are kept in any case.
    dead_max_age_seconds: f64,
    /// So many of the others are replayed in a second.
    dead_per_second: u32,
}

/// Deliveries that died of an outage are kept, or replayed when it is over.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DeadRecovery)]
pub(crate) enum DeadWord {
    Keep,
    Replay,
}

/// What waits follows its slots, or drains at once by a ramp.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoveryMode)]
pub(crate) enum RecoveryWord {
    Slots,
    Drain,
}

/// When so many destinations begin to fail at once that transitions are suspended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MassFailurePolicy)]
struct MassFailureView {
    /// Over how long failures are looked at.
    window_seconds: f64,
    /// It takes at least so many destinations.
    destinations_min: usize,
    /// It takes more than this share of them, 0 to 1.
    share: f64,
    /// Transitions are suspended no longer than this.
    hold_max_seconds: f64,
}

/// How long things are kept.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Retention)]
struct RetentionView {
    /// Finished deliveries with their events and attempts.
    finished_seconds: f64,
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn share(share: Share) -> f64 {
    f64::from(share.as_millionths()) / 1e6
}

impl PolicyView {
    pub(crate) fn of(policy: &Policy) -> Self {
        let Policy { attempt, retry, circuit, recovery, mass_failure, retention, limits, .. } =
            policy;
        PolicyView {
            attempt: AttemptPolicyView::of(attempt),
            retry: RetryPolicyView::of(retry),
            circuit: CircuitPolicyView::of(circuit),
            recovery: RecoveryPolicyView::of(recovery),
            mass_failure: MassFailureView::of(mass_failure),
            retention: RetentionView { finished_seconds: seconds(retention.finished) },
            subscription_limits: SubscriptionLimitsView::of(limits),
        }
    }
}

impl SubscriptionLimitsView {
    fn of(limits: &PolicyLimits) -> Self {
        SubscriptionLimitsView {
            retry_unit_seconds_min: seconds(limits.retry_unit_min),
            retry_max: limits.retry_max,
            retry_span_seconds_max: seconds(limits.retry_span_max),
            attempt_deadline_seconds_max: seconds(limits.attempt_deadline_max),
            dead_max_age_seconds_max: seconds(limits.dead_max_age_max),
            rate_limit_max: limits.rate_limit_max,
        }
    }
}

impl DeadWord {
    pub(crate) const fn of(dead: DeadRecovery) -> Self {
        match dead {
            DeadRecovery::Keep => DeadWord::Keep,
            DeadRecovery::Replay => DeadWord::Replay,
        }
    }
}

impl From<DeadWord> for DeadRecovery {
    fn from(word: DeadWord) -> Self {
        match word {
            DeadWord::Keep => DeadRecovery::Keep,
            DeadWord::Replay => DeadRecovery::Replay,
        }
    }
}

impl RecoveryWord {
    pub(crate) const fn of(mode: RecoveryMode) -> Self {
        match mode {
            RecoveryMode::Slots => RecoveryWord::Slots,
            RecoveryMode::Drain => RecoveryWord::Drain,
        }
    }
}

impl From<RecoveryWord> for RecoveryMode {
    fn from(word: RecoveryWord) -> Self {
        match word {
            RecoveryWord::Slots => RecoveryMode::Slots,
            RecoveryWord::Drain => RecoveryMode::Drain,
        }
    }
}

impl AttemptPolicyView {
    fn of(policy: &AttemptPolicy) -> Self {
        AttemptPolicyView {
            deadline_seconds: seconds(policy.deadline),
            response_body_bytes_max: policy.response_body_bytes_max,
        }
    }
}

impl RetryPolicyView {
    pub(crate) fn of(policy: &RetryPolicy) -> Self {
        RetryPolicyView {
            unit_seconds: seconds(policy.unit),
            max: policy.max,
            measured_from: match policy.measured_from {
                MeasuredFrom::FirstAttempt => MeasuredFromWord::FirstAttempt,
                MeasuredFrom::PreviousAttempt => MeasuredFromWord::PreviousAttempt,
            },
            jitter: share(policy.jitter),
            offsets_ms: (1..=policy.max).map(|n| millis(retry::offset(n, policy))).collect(),
        }
    }
}

impl CircuitPolicyView {
    fn of(policy: &CircuitPolicy) -> Self {
        CircuitPolicyView {
            disable_share: share(policy.disable_share),
            disable_grace: policy.disable_grace,
            disable_consecutive: policy.disable_consecutive,
            probe_interval_seconds: seconds(policy.probe_interval),
            freeze_over_consecutive: policy.freeze_over_consecutive,
            freeze_after_seconds: seconds(policy.freeze_after),
            freeze_consecutive: policy.freeze_consecutive,
        }
    }
}

impl RecoveryPolicyView {
    fn of(policy: &RecoveryPolicy) -> Self {
        RecoveryPolicyView {
            mode: RecoveryWord::of(policy.mode),
            ramp_step_seconds: seconds(policy.ramp_step),
            dead: DeadWord::of(policy.dead),
            dead_max_age_seconds: seconds(policy.dead_max_age),
            dead_per_second: policy.dead_per_second,
        }
    }
}

impl MassFailureView {
    fn of(policy: &MassFailurePolicy) -> Self {
        MassFailureView {
            window_seconds: seconds(policy.window),
            destinations_min: policy.destinations_min,
            share: share(policy.share),
            hold_max_seconds: seconds(policy.hold_max),
        }
    }
}
