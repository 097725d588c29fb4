//! The policy of a subscription: what it wants otherwise than `GET /v1/policy`, and what holds at a
//! destination that several subscriptions share. Durations are seconds with decimals.

use std::time::Duration;

use postrider_domain::policy::{
    DeadRecovery, DestinationPolicy, Policy, PolicySource, RecoveryMode, SubscriptionPolicy,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::policy::{DeadWord, RecoveryWord, RetryPolicyView};
use crate::body::Patch;
use crate::problem::Problem;

/// What a subscription wants otherwise than the server's policy, within the limits that `GET /v1/policy`
/// shows. In a change, absent fields stay unchanged, and null goes back to the server's value.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSubscriptionPolicy)]
pub(crate) struct OwnPolicyBody {
    /// About a single attempt; null for the server's.
    #[serde(default)]
    #[schema(value_type = Option<OwnAttemptBody>)]
    attempt: Patch<OwnAttemptBody>,
    /// About retries; null for the server's.
    #[serde(default)]
    #[schema(value_type = Option<OwnRetryBody>)]
    retry: Patch<OwnRetryBody>,
    /// About recovery; null for the server's.
    #[serde(default)]
    #[schema(value_type = Option<OwnRecoveryBody>)]
    recovery: Patch<OwnRecoveryBody>,
}

/// As `attempt` in `GET /v1/policy`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSubscriptionAttemptPolicy)]
struct OwnAttemptBody {
    /// For all of it: DNS, connect, TLS, request and response.
    #[serde(default)]
    #[schema(value_type = Option<f64>, example = 10)]
    deadline_seconds: Patch<f64>,
}

/// As `retry` in `GET /v1/policy`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSubscriptionRetryPolicy)]
struct OwnRetryBody {
    /// Retry n falls due (2^n - 1) units after the first attempt.
    #[serde(default)]
    #[schema(value_type = Option<f64>, example = 30)]
    unit_seconds: Patch<f64>,
    /// How many retries there are.
    #[serde(default)]
    #[schema(value_type = Option<u32>, example = 8)]
    max: Patch<u32>,
}

/// As `recovery` in `GET /v1/policy`.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSubscriptionRecoveryPolicy)]
struct OwnRecoveryBody {
    /// How what waits is sent when the destination recovers. Subscriptions of one URL have one mode
    /// together: `slots` goes before `drain`, and either before the server's.
    #[serde(default)]
    #[schema(value_type = Option<RecoveryWord>)]
    mode: Patch<RecoveryWord>,
    /// What becomes of its deliveries that died of an outage, when that is over.
    #[serde(default)]
    #[schema(value_type = Option<DeadWord>)]
    dead: Patch<DeadWord>,
    /// Those that were accepted longer ago are kept in any case.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    dead_max_age_seconds: Patch<f64>,
}

impl Patch<OwnPolicyBody> {
    /// Changes a subscription's own policy, and refuses what is outside of the operator's limits.
    pub(crate) fn apply(
        &self,
        own: &mut SubscriptionPolicy,
        server: &Policy,
    ) -> Result<(), Problem> {
        match self {
            Patch::Absent => return Ok(()),
            Patch::Null => *own = SubscriptionPolicy::default(),
            Patch::Value(body) => body.apply(own)?,
        }
        server.check_own(own).map_err(|error| Problem::field(error.field, error.problem))
    }
}

impl OwnPolicyBody {
    fn apply(&self, own: &mut SubscriptionPolicy) -> Result<(), Problem> {
        match &self.attempt {
            Patch::Absent => {}
            Patch::Null => own.attempt_deadline = None,
            Patch::Value(body) => {
                let place = "policy.attempt.deadline_seconds";
                put_seconds(&mut own.attempt_deadline, &body.deadline_seconds, place)?;
            }
        }
        match &self.retry {
            Patch::Absent => {}
            Patch::Null => (own.retry_unit, own.retry_max) = (None, None),
            Patch::Value(body) => {
                put_seconds(&mut own.retry_unit, &body.unit_seconds, "policy.retry.unit_seconds")?;
                put(&mut own.retry_max, &body.max, |max| *max);
            }
        }
        match &self.recovery {
            Patch::Absent => {}
            Patch::Null => {
                (own.recovery_mode, own.dead, own.dead_max_age) = (None, None, None);
            }
            Patch::Value(body) => {
                put(&mut own.recovery_mode, &body.mode, |word| RecoveryMode::from(*word));
                put(&mut own.dead, &body.dead, |word| DeadRecovery::from(*word));
                let place = "policy.recovery.dead_max_age_seconds";
                put_seconds(&mut own.dead_max_age, &body.dead_max_age_seconds, place)?;
            }
        }
        Ok(())
    }
}

fn put<T, U>(place: &mut Option<U>, patch: &Patch<T>, read: impl FnOnce(&T) -> U) {
    match patch {
        Patch::Absent => {}
        Patch::Null => *place = None,
        Patch::Value(value) => *place = Some(read(value)),
    }
}

/// Takes seconds, to the millisecond.
fn put_seconds(
    place: &mut Option<Duration>,
    patch: &Patch<f64>,
    field: &str,
) -> Result<(), Problem> {
    if let Patch::Value(seconds) = patch {
        let read = Duration::try_from_secs_f64(*seconds);
        let read = read.map_err(|_| Problem::field(field, "a number of seconds, from 0 on"))?;
        let ms = u64::try_from(read.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        *place = Some(Duration::from_millis(ms));
        return Ok(());
    }
    put(place, patch, |_| Duration::ZERO);
    Ok(())
}

/// What a subscription wants otherwise; null where the server's policy holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionPolicy)]
pub(crate) struct OwnPolicyView {
    /// About a single attempt.
    attempt: OwnAttemptView,
    /// About retries.
    retry: OwnRetryView,
    /// About recovery.
    recovery: OwnRecoveryView,
}

/// As `attempt` in `GET /v1/policy`; null where the server's value holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionAttemptPolicy)]
struct OwnAttemptView {
    /// The time limit of an attempt; null where it is the server's.
    deadline_seconds: Option<f64>,
}

/// As `retry` in `GET /v1/policy`; null where the server's value holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionRetryPolicy)]
struct OwnRetryView {
    /// Retry n falls due (2^n - 1) units after the first attempt; null where it is the server's.
    unit_seconds: Option<f64>,
    /// How many retries there are; null where it is the server's.
    max: Option<u32>,
}

/// As `recovery` in `GET /v1/policy`; null where the server's value holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionRecoveryPolicy)]
struct OwnRecoveryView {
    /// What happens with waiting deliveries; null where it is the server's.
    mode: Option<RecoveryWord>,
    /// What happens with dead deliveries; null where it is the server's.
    dead: Option<DeadWord>,
    /// How old a dead delivery may be to be replayed; null where it is the server's.
    dead_max_age_seconds: Option<f64>,
}

impl OwnPolicyView {
    pub(crate) fn of(own: &SubscriptionPolicy) -> Self {
        let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
        OwnPolicyView {
            attempt: OwnAttemptView { deadline_seconds: seconds(own.attempt_deadline) },
            retry: OwnRetryView { unit_seconds: seconds(own.retry_unit), max: own.retry_max },
            recovery: OwnRecoveryView {
                mode: own.recovery_mode.map(RecoveryWord::of),
                dead: own.dead.map(DeadWord::of),
                dead_max_age_seconds: seconds(own.dead_max_age),
            },
        }
    }
}

/// What holds for the deliveries of a subscription: its own policy within the operator's limits, and the
/// server's for the rest. Its recovery mode and its rate are its destination's: `GET
/// /v1/destinations/{id}`.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EffectivePolicy)]
pub(crate) struct EffectivePolicyView {
    /// The time limit of an attempt.
    attempt_deadline_seconds: f64,
    /// The schedule of retries. A server with `--time-scale` shows it as it uses it.
    retry: RetryPolicyView,
    /// What becomes of what died of an outage.
    dead: DeadWord,
    /// Deliveries that were accepted longer ago are kept in any case.
    dead_max_age_seconds: f64,
}

impl EffectivePolicyView {
    pub(crate) fn of(own: &SubscriptionPolicy, server: &Policy) -> Self {
        let policy = server.for_subscription(own);
        EffectivePolicyView {
            attempt_deadline_seconds: policy.attempt.deadline.as_secs_f64(),
            retry: RetryPolicyView::of(&policy.retry),
            dead: DeadWord::of(policy.recovery.dead),
            dead_max_age_seconds: policy.recovery.dead_max_age.as_secs_f64(),
        }
    }
}

/// Where a value comes from: the server's policy, or one of the subscriptions that share the URL.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = PolicySource)]
enum SourceWord {
    Server,
    Subscription,
}

/// The most requests a second to a destination, and where that comes from: of several the smallest
/// holds.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationRate)]
pub(crate) struct DestinationRateView {
    /// Attempts a second.
    per_second: f64,
    /// Whose value it is.
    from: SourceWord,
    /// The subscription that it comes from.
    subscription_id: Option<String>,
}

/// How what waits is sent when a destination recovers, and where that comes from: `slots` goes before
/// `drain`, and a subscription's wish before the server's.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DestinationRecovery)]
pub(crate) struct DestinationRecoveryView {
    /// What happens with waiting deliveries.
    mode: RecoveryWord,
    /// Whose value it is.
    from: SourceWord,
    /// The subscription that it comes from.
    subscription_id: Option<String>,
}

fn source(source: PolicySource) -> (SourceWord, Option<String>) {
    match source {
        PolicySource::Server => (SourceWord::Server, None),
        PolicySource::Subscription(id) => (SourceWord::Subscription, Some(id.to_string())),
    }
}

impl DestinationRateView {
    pub(crate) fn of(policy: &DestinationPolicy) -> Option<Self> {
        let (rate, from) = policy.rate_limit?;
        let (from, subscription_id) = source(from);
        Some(DestinationRateView { per_second: rate.as_per_second(), from, subscription_id })
    }
}

impl DestinationRecoveryView {
    pub(crate) fn of(policy: &DestinationPolicy) -> Self {
        let (mode, from) = policy.recovery_mode;
        let (from, subscription_id) = source(from);
        DestinationRecoveryView { mode: RecoveryWord::of(mode), from, subscription_id }
    }
}
