//! A subscription's own policy: what it wants otherwise than the server's policy has it.
//!
//! Everything here is about one delivery, and a delivery belongs to one subscription: when it is
//! retried, how often, how long an attempt of it may take, and whether it is replayed when it died of an
//! outage. What concerns the destination as a whole is decided in [`super::DestinationPolicy`].
//!
//! **An operator's limit holds always.** A value outside of the limits is refused when it is given
//! ([`Policy::check_own`]), and cut when it is used: the limits may have become stricter since.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    AttemptPolicy, DeadRecovery, Policy, RecoveryMode, RecoveryPolicy, RetryPolicy, scaled,
};
use crate::limits;
use crate::retry;
use crate::subscription::RateLimit;

/// What a subscription wants otherwise; the server's policy holds where a field is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubscriptionPolicy {
    /// The time limit of an attempt.
    #[serde(
        with = "as_ms",
        rename = "attempt_deadline_ms",
        skip_serializing_if = "Option::is_none"
    )]
    pub attempt_deadline: Option<Duration>,
    /// The unit of the schedule.
    #[serde(with = "as_ms", rename = "retry_unit_ms", skip_serializing_if = "Option::is_none")]
    pub retry_unit: Option<Duration>,
    /// How many retries there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_max: Option<u32>,
    /// How what waits is sent when the destination recovers. Subscriptions of one destination have one
    /// mode together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_mode: Option<RecoveryMode>,
    /// What becomes of its deliveries that died of an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<DeadRecovery>,
    /// Those that were accepted longer ago are kept in any case.
    #[serde(with = "as_ms", rename = "dead_max_age_ms", skip_serializing_if = "Option::is_none")]
    pub dead_max_age: Option<Duration>,
}

/// Why a subscription's own policy is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct SubscriptionPolicyError {
    /// The field, as the API calls it.
    pub field: &'static str,
    /// Which values are valid, and which setting says so.
    pub problem: String,
}

impl SubscriptionPolicy {
    /// Whether the server's policy holds for everything.
    pub fn is_empty(&self) -> bool {
        *self == SubscriptionPolicy::default()
    }

    /// Whether it has a schedule of its own.
    pub const fn has_own_schedule(&self) -> bool {
        self.retry_unit.is_some() || self.retry_max.is_some()
    }
}

impl Policy {
    /// The policy for the deliveries of a subscription: its own, within the limits, and the server's for
    /// the rest.
    #[must_use]
    pub fn for_subscription(&self, own: &SubscriptionPolicy) -> Policy {
        Policy {
            attempt: self.attempt_for(own),
            retry: self.retry_for(own),
            recovery: self.recovery_for(own),
            ..self.clone()
        }
    }

    /// The limits of an attempt for a subscription.
    pub fn attempt_for(&self, own: &SubscriptionPolicy) -> AttemptPolicy {
        let most = self.limits.attempt_deadline_max;
        let deadline =
            own.attempt_deadline.map(|own| own.max(limits::ATTEMPT_DEADLINE_MIN).min(most));
        AttemptPolicy {
            deadline: deadline.unwrap_or(self.attempt.deadline),
            ..self.attempt.clone()
        }
    }

    /// The schedule of a subscription. One that would last longer than the limit ends with its last slot
    /// within it.
    pub fn retry_for(&self, own: &SubscriptionPolicy) -> RetryPolicy {
        if !own.has_own_schedule() {
            return self.retry.clone();
        }
        let unscaled = self.unscaled_retry_for(own);
        let unit =
            own.retry_unit.map_or(self.retry.unit, |_| scaled(unscaled.unit, self.time_scale));
        let mut max = unscaled.max;
        while max > 0 && retry::offset(max, &unscaled) > self.limits.retry_span_max {
            max -= 1;
        }
        RetryPolicy { unit, max, ..self.retry.clone() }
    }

    /// A subscription's schedule in real time, without its limit of length.
    fn unscaled_retry_for(&self, own: &SubscriptionPolicy) -> RetryPolicy {
        let limits = &self.limits;
        let of_server = self.retry.unit.saturating_mul(self.time_scale.get());
        let unit =
            own.retry_unit.map(|own| own.max(limits.retry_unit_min).min(limits.retry_span_max));
        RetryPolicy {
            unit: unit.unwrap_or(of_server),
            max: own.retry_max.map_or(self.retry.max, |own| own.min(limits.retry_max)),
            ..self.retry.clone()
        }
    }

    /// How deliveries of a subscription are sent after an outage. Its mode counts only together with
    /// those of the other subscriptions of its destination: [`super::DestinationPolicy`].
    pub fn recovery_for(&self, own: &SubscriptionPolicy) -> RecoveryPolicy {
        let most = self.limits.dead_max_age_max;
        RecoveryPolicy {
            mode: own.recovery_mode.unwrap_or(self.recovery.mode),
            dead: own.dead.unwrap_or(self.recovery.dead),
            dead_max_age: own.dead_max_age.map_or(self.recovery.dead_max_age, |own| own.min(most)),
            ..self.recovery.clone()
        }
    }

    /// Refuses a subscription's own policy that is outside of the limits.
    pub fn check_own(&self, own: &SubscriptionPolicy) -> Result<(), SubscriptionPolicyError> {
        let limits = &self.limits;
        within(
            "policy.attempt.deadline_seconds",
            own.attempt_deadline,
            (limits::ATTEMPT_DEADLINE_MIN, limits.attempt_deadline_max),
            "policy_limits.attempt_deadline_max",
        )?;
        within(
            "policy.retry.unit_seconds",
            own.retry_unit,
            (limits.retry_unit_min, limits.retry_span_max),
            "policy_limits.retry_unit_min and policy_limits.retry_span_max",
        )?;
        within(
            "policy.recovery.dead_max_age_seconds",
            own.dead_max_age,
            (Duration::from_millis(1), limits.dead_max_age_max),
            "policy_limits.dead_max_age_max",
        )?;
        if own.retry_max.is_some_and(|own| own > limits.retry_max) {
            let problem = format!("must be at most {} (policy_limits.retry_max)", limits.retry_max);
            return Err(SubscriptionPolicyError { field: "policy.retry.max", problem });
        }
        self.check_span(own)
    }

    fn check_span(&self, own: &SubscriptionPolicy) -> Result<(), SubscriptionPolicyError> {
        let (retry, most) = (self.unscaled_retry_for(own), self.limits.retry_span_max);
        let span = retry::offset(retry.max, &retry);
        if !own.has_own_schedule() || span <= most {
            return Ok(());
        }
        let field =
            if own.retry_max.is_some() { "policy.retry.max" } else { "policy.retry.unit_seconds" };
        let problem = format!(
            "the last of {} retries would be due {} s after the first attempt: at most {} s \
             (policy_limits.retry_span_max)",
            retry.max,
            span.as_secs(),
            most.as_secs()
        );
        Err(SubscriptionPolicyError { field, problem })
    }

    /// Refuses a rate limit above the operator's.
    pub fn check_rate_limit(&self, rate: RateLimit) -> Result<(), SubscriptionPolicyError> {
        match self.limits.rate_limit_max {
            Some(most) if u64::from(rate.per_1000_seconds()) > u64::from(most) * 1_000 => {
                let problem = format!("must be at most {most} (policy_limits.rate_limit_max)");
                Err(SubscriptionPolicyError { field: "rate_limit", problem })
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn within(
    field: &'static str,
    given: Option<Duration>,
    (least, most): (Duration, Duration),
    settings: &str,
) -> Result<(), SubscriptionPolicyError> {
    if given.is_none_or(|given| (least..=most).contains(&given)) {
        return Ok(());
    }
    let (least, most) = (least.as_secs_f64(), most.as_secs_f64());
    let problem = format!("must be from {least} to {most} s ({settings})");
    Err(SubscriptionPolicyError { field, problem })
}

/// Durations as whole milliseconds.
mod as_ms {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let ms = duration.map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX));
        ms.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(unit_seconds: u32, max: u32) -> SubscriptionPolicy {
        SubscriptionPolicy {
            retry_unit: Some(SECOND * unit_seconds),
            retry_max: Some(max),
            ..SubscriptionPolicy::default()
        }
    }

    #[test]
    fn a_subscription_without_a_policy_of_its_own_has_the_servers() {
        let server = Policy::default();
        assert_eq!(server.for_subscription(&SubscriptionPolicy::default()), server);
        assert_eq!(server.check_own(&SubscriptionPolicy::default()), Ok(()));
        // The limits do not concern the server's own numbers.
        let mut patient = server.clone();
        patient.retry.max = 30;
        patient.attempt.deadline = SECOND * 60;
        assert_eq!(patient.for_subscription(&SubscriptionPolicy::default()), patient);
    }

    #[test]
    fn own_values_replace_the_servers_one_by_one() {
        let server = Policy::default();
        let own = SubscriptionPolicy {
            attempt_deadline: Some(SECOND * 12),
            retry_unit: Some(SECOND * 10),
            retry_max: Some(4),
            recovery_mode: Some(RecoveryMode::Drain),
            dead: Some(DeadRecovery::Replay),
            dead_max_age: Some(SECOND * 3_600),
        };
        assert_eq!(server.check_own(&own), Ok(()));
        let policy = server.for_subscription(&own);
        assert_eq!(policy.attempt.deadline, SECOND * 12);
        let offsets = (1..=policy.retry.max).map(|n| retry::offset(n, &policy.retry).as_secs());
        assert_eq!(offsets.collect::<Vec<_>>(), [10, 30, 70, 150]);
        assert_eq!(policy.recovery.mode, RecoveryMode::Drain);
        assert_eq!(policy.recovery.dead, DeadRecovery::Replay);
        assert_eq!(policy.recovery.dead_max_age, SECOND * 3_600);
        assert_eq!(policy.circuit, server.circuit);
        assert_eq!(policy.recovery.ramp_step, server.recovery.ramp_step);

        let only_max = SubscriptionPolicy { retry_max: Some(2), ..SubscriptionPolicy::default() };
        let retry = server.retry_for(&only_max);
        assert_eq!((retry.unit, retry.max), (server.retry.unit, 2));
    }

    #[test]
    fn values_outside_of_the_limits_are_refused_with_the_limit() {
        let server = Policy::default();
        let day = SECOND * 86_400;
        let none = SubscriptionPolicy::default();
        let cases = [
            (schedule(0, 3), "policy.retry.unit_seconds", "from 1 to 604800 s"),
            (
                SubscriptionPolicy { retry_unit: Some(day * 8), retry_max: Some(0), ..none },
                "policy.retry.unit_seconds",
                "policy_limits.retry_span_max",
            ),
            (schedule(1, 21), "policy.retry.max", "at most 20"),
            (schedule(2, 19), "policy.retry.max", "1048574 s after the first attempt"),
            (
                SubscriptionPolicy { retry_unit: Some(day), ..none },
                "policy.retry.unit_seconds",
                "the last of 11 retries",
            ),
            (
                SubscriptionPolicy { attempt_deadline: Some(SECOND * 21), ..none },
                "policy.attempt.deadline_seconds",
                "from 0.1 to 20 s",
            ),
            (
                SubscriptionPolicy { dead_max_age: Some(day * 31), ..none },
                "policy.recovery.dead_max_age_seconds",
                "policy_limits.dead_max_age_max",
            ),
        ];
        for (own, field, words) in cases {
            let error = server.check_own(&own).unwrap_err();
            assert_eq!(error.field, field, "{own:?}");
            assert!(error.problem.contains(words), "{error}");
        }
        assert_eq!(server.check_own(&schedule(1, 19)), Ok(()));
    }

    #[test]
    fn limits_that_became_stricter_cut_what_was_given_before() {
        let mut server = Policy::default();
        let own = SubscriptionPolicy { attempt_deadline: Some(SECOND * 20), ..schedule(10, 12) };
        assert_eq!(server.check_own(&own), Ok(()));
        server.limits.attempt_deadline_max = SECOND * 8;
        server.limits.retry_unit_min = SECOND * 30;
        server.limits.retry_span_max = SECOND * 1_000;
        let policy = server.for_subscription(&own);
        assert_eq!(policy.attempt.deadline, SECOND * 8);
        // (2^5 - 1) × 30 s = 930 s; the sixth would fall at 1,890 s.
        assert_eq!((policy.retry.unit, policy.retry.max), (SECOND * 30, 5));
    }

    #[test]
    fn a_faster_clock_divides_the_unit_and_neither_the_deadline_nor_the_limits() {
        let server = Policy::default().scaled_by(NonZeroU32::new(1_000).unwrap());
        let own = SubscriptionPolicy { attempt_deadline: Some(SECOND * 12), ..schedule(10, 4) };
        assert_eq!(server.check_own(&own), Ok(()));
        let policy = server.for_subscription(&own);
        assert_eq!(policy.retry.unit, Duration::from_millis(10));
        assert_eq!((policy.retry.max, policy.attempt.deadline), (4, SECOND * 12));
        // Only the count is its own: the server's unit is divided once, not twice.
        let only_max = SubscriptionPolicy { retry_max: Some(11), ..SubscriptionPolicy::default() };
        assert_eq!(server.retry_for(&only_max), server.retry);
        let long = SubscriptionPolicy { retry_max: Some(15), ..SubscriptionPolicy::default() };
        assert_eq!(server.check_own(&long).unwrap_err().field, "policy.retry.max");
    }

    #[test]
    fn a_rate_limit_is_held_to_the_operators() {
        let mut server = Policy::default();
        let rate = RateLimit::per_second(50.5).unwrap();
        assert_eq!(server.check_rate_limit(rate), Ok(()));
        server.limits.rate_limit_max = Some(50);
        assert_eq!(server.check_rate_limit(rate).unwrap_err().field, "rate_limit");
        assert_eq!(server.check_rate_limit(RateLimit::per_second(50.0).unwrap()), Ok(()));
    }

    #[test]
    fn own_policies_are_stored_as_milliseconds_and_nothing_is_stored_of_none() {
        let own = SubscriptionPolicy { dead: Some(DeadRecovery::Replay), ..schedule(10, 4) };
        let json = r#"{"retry_unit_ms":10000,"retry_max":4,"dead":"replay"}"#;
        assert_eq!(serde_json::to_string(&own).unwrap(), json);
        assert_eq!(serde_json::from_str::<SubscriptionPolicy>(json).unwrap(), own);
        let none = SubscriptionPolicy::default();
        assert_eq!(serde_json::to_string(&none).unwrap(), "{}");
        assert!(serde_json::from_str::<SubscriptionPolicy>(r#"{"unit":1}"#).is_err());
    }

    proptest! {
        /// Whatever was stored once: what is used is within the limits.
        #[test]
        fn what_is_used_is_within_the_limits(
            deadline in any::<u64>(), unit in any::<u64>(), max in any::<u32>(), scale in 1..100_000u32,
        ) {
            let server = Policy::default().scaled_by(NonZeroU32::new(scale).unwrap());
            let own = SubscriptionPolicy {
                attempt_deadline: Some(Duration::from_millis(deadline)),
                retry_unit: Some(Duration::from_millis(unit)),
                retry_max: Some(max),
                ..SubscriptionPolicy::default()
            };
            let policy = server.for_subscription(&own);
            prop_assert_eq!(policy.validate(), Ok(()));
            prop_assert!(policy.attempt.deadline <= server.limits.attempt_deadline_max);
            prop_assert!(policy.retry.max <= server.limits.retry_max);
            let unscaled = Policy::default().retry_for(&own);
            let span = retry::offset(unscaled.max, &unscaled);
            prop_assert!(span <= server.limits.retry_span_max);
            prop_assert_eq!(policy.retry.max, unscaled.max);
        }
    }
}
