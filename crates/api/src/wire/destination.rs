//! Destinations in the API: state, counters, and the distance to each threshold.

use postrider_domain::circuit::{CircuitState, Counters, Transition};
use postrider_domain::destination::DestinationState;
use postrider_domain::explain::Words;
use postrider_domain::limits::REASON_CHARS_MAX;
use postrider_domain::policy::{CircuitPolicy, DestinationPolicy, RecoveryMode};
use postrider_domain::thresholds::{self, Progress};
use postrider_domain::time::Timestamp;
use postrider_engine::Enabling;
use postrider_store::DestinationRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::check_text;
use super::own_policy::{DestinationRateView, DestinationRecoveryView};
use crate::paging::parameter;
use crate::problem::Problem;

/// One URL of one tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Destination)]
pub(crate) struct DestinationView {
    /// The identifier, which follows from the tenant and the URL.
    id: String,
    /// The tenant; only in lists of all tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The URL.
    url: String,
    /// Whether it is sent to.
    state: DestinationStateWord,
    /// Why it is disabled or frozen.
    reason: Option<String>,
    /// Settled attempts since the last reset.
    attempts: u64,
    /// Attempts that succeeded since the counters were last reset.
    successes: u64,
    /// Attempts that failed since then.
    failures: u64,
    /// Failures since the last success.
    consecutive_failures: u64,
    /// The last success; null if there was none.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_success_at: Option<Timestamp>,
    /// Since when it is disabled; null if it is not.
    #[schema(value_type = Option<String>, format = DateTime)]
    disabled_at: Option<Timestamp>,
    /// Since when it is frozen; null if it is not.
    #[schema(value_type = Option<String>, format = DateTime)]
    frozen_at: Option<Timestamp>,
    /// When the next probe is due; null if none is due, or one is in flight.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_probe_at: Option<Timestamp>,
    /// Deliveries in its retry lane.
    waiting: u64,
    /// When a subscription first named it.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// How near it is to being disabled or frozen.
    thresholds: ThresholdsView,
    /// The most requests a second; null for no limit.
    rate_limit: Option<DestinationRateView>,
    /// What happens with waiting deliveries when it recovers.
    recovery: DestinationRecoveryView,
    /// The replay of what died there; null but in the answer to a call that enabled it with `dead_since`.
    pub(crate) replay: Option<String>,
}

/// Whether a destination is attempted: always, every ten minutes, or never.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DestinationState)]
enum DestinationStateWord {
    Enabled,
    Disabled,
    Frozen,
}

impl DestinationStateWord {
    const fn of(state: DestinationState) -> Self {
        match state {
            DestinationState::Enabled => DestinationStateWord::Enabled,
            DestinationState::Disabled => DestinationStateWord::Disabled,
            DestinationState::Frozen => DestinationStateWord::Frozen,
        }
    }
}

/// The progress of a destination towards each threshold.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Thresholds)]
struct ThresholdsView {
    /// By too large a share of failed attempts.
    disabled_by_failure_share: ShareView,
    /// By too many failures in a row.
    disabled_by_consecutive_failures: ProgressView,
    /// By very many failures in a row.
    frozen_by_consecutive_failures: ProgressView,
    /// By many failures in a row and no success for days: both must be reached.
    frozen_by_time: TimeView,
}

/// Disabled when more than `limit` of more than `grace` attempts failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ShareThreshold)]
struct ShareView {
    /// Failed attempts since the counters were last reset.
    failures: u64,
    /// All attempts since then.
    attempts: u64,
    /// The share of failures so far.
    share: f64,
    /// With so many attempts or fewer, the share is not looked at.
    grace: u64,
    /// The destination is disabled above this share of failures, from 0 to 1.
    limit: f64,
}

/// A count and its limit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CountThreshold)]
struct ProgressView {
    /// The value now.
    now: u64,
    /// The value at which it happens.
    limit: u64,
}

/// Frozen with more consecutive failures and a longer time without success than these.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TimeThreshold)]
struct TimeView {
    /// Failures in a row.
    consecutive_failures: ProgressView,
    /// Seconds since the last success, or since the destination was created.
    seconds_without_success: ProgressView,
}

impl DestinationView {
    pub(crate) fn of(
        destination: &DestinationRecord,
        waiting: u64,
        now: Timestamp,
        policy: &CircuitPolicy,
        shared: &DestinationPolicy,
    ) -> Self {
        let circuit = &destination.circuit;
        let (disabled_at, frozen_at, next_probe_at) = match &circuit.state {
            CircuitState::Closed => (None, None, None),
            CircuitState::Open { since, probe_at, .. } => (Some(*since), None, Some(*probe_at)),
            CircuitState::HalfOpen { since, .. } => (Some(*since), None, None),
            CircuitState::Frozen { since, .. } => (None, Some(*since), None),
        };
        let Counters { attempts, successes, failures, consecutive_failures } =
            circuit.shown_counters();
        DestinationView {
            id: destination.id.to_string(),
            tenant: None,
            url: destination.url.clone(),
            state: DestinationStateWord::of(destination.state()),
            reason: destination.evidence().map(|evidence| Words(evidence).to_string()),
            attempts,
            successes,
            failures,
            consecutive_failures,
            last_success_at: circuit.ever_succeeded.then_some(circuit.last_success_at),
            disabled_at,
            frozen_at,
            next_probe_at,
            waiting,
            created_at: destination.created_at,
            thresholds: ThresholdsView::of(destination, now, policy),
            rate_limit: DestinationRateView::of(shared),
            recovery: DestinationRecoveryView::of(shared),
            replay: None,
        }
    }
}

impl ThresholdsView {
    fn of(destination: &DestinationRecord, now: Timestamp, policy: &CircuitPolicy) -> Self {
        let near = thresholds::thresholds(&destination.circuit, now, policy);
        let count = |progress: Progress| ProgressView { now: progress.now, limit: progress.limit };
        let share = near.failure_share;
        ThresholdsView {
            disabled_by_failure_share: ShareView {
                failures: share.failures,
                attempts: share.attempts,
                share: ratio(share.failures, share.attempts),
                grace: share.grace,
                limit: f64::from(share.limit_millionths) / 1_000_000.0,
            },
            disabled_by_consecutive_failures: count(near.disable_consecutive),
            frozen_by_consecutive_failures: count(near.freeze_consecutive),
            frozen_by_time: TimeView {
                consecutive_failures: count(near.freeze_over_consecutive),
                seconds_without_success: ProgressView {
                    now: near.without_success.now.as_secs(),
                    limit: near.without_success.limit.as_secs(),
                },
            },
        }
    }
}

/// A share with four decimals; 0 without attempts.
fn ratio(part: u64, whole: u64) -> f64 {
    let ten_thousandths = (u128::from(part) * 10_000).checked_div(u128::from(whole)).unwrap_or(0);
    f64::from(u32::try_from(ten_thousandths).unwrap_or(u32::MAX)) / 10_000.0
}

/// Why somebody enables a destination, and what is sent then.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = Enable)]
pub(crate) struct EnableBody {
    /// What for; it stands in the timeline.
    #[schema(max_length = 500)]
    pub(crate) reason: Option<String>,
    /// What waits there follows its `slots`, or is sent at once by a ramp (`drain`); as the
    /// destination's `recovery` says where it is left out.
    waiting: Option<String>,
    /// Replays what died there at this time or later. The answer names the job.
    #[schema(format = DateTime)]
    dead_since: Option<String>,
}

impl EnableBody {
    pub(crate) fn check(self) -> Result<Enabling, Problem> {
        let waiting = match self.waiting.as_deref() {
            None => None,
            Some("slots") => Some(RecoveryMode::Slots),
            Some("drain") => Some(RecoveryMode::Drain),
            Some(_) => return Err(Problem::field("waiting", "one of slots, drain")),
        };
        Ok(Enabling {
            reason: check_text("reason", self.reason, REASON_CHARS_MAX)?,
            waiting,
            dead_since: parameter("dead_since", self.dead_since.as_deref())?,
            replay: None,
        })
    }
}

/// Why somebody freezes.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Reason)]
pub(crate) struct ReasonBody {
    /// The reason; it is shown in the timeline.
    #[serde(default)]
    #[schema(max_length = 500)]
    pub(crate) reason: Option<String>,
}

/// A change of a destination's state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Transition)]
pub(crate) struct TransitionView {
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The state before.
    from: DestinationStateWord,
    /// The same as `from` if the destination stays disabled: a probe was sent, failed or was lost.
    to: DestinationStateWord,
    /// The reason as a sentence.
    reason: String,
    /// The reason as data.
    #[schema(value_type = Object)]
    evidence: Value,
    /// The counters at that time.
    counters: CountersView,
}

/// Counters since the last reset.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Counters)]
struct CountersView {
    /// Attempts since the last reset.
    attempts: u64,
    /// Those that succeeded.
    successes: u64,
    /// Those that failed.
    failures: u64,
    /// Failures since the last success.
    consecutive_failures: u64,
}

impl TransitionView {
    pub(crate) fn of(transition: &Transition) -> Self {
        let Counters { attempts, successes, failures, consecutive_failures } = transition.counters;
        TransitionView {
            at: transition.at,
            from: DestinationStateWord::of(transition.from.into()),
            to: DestinationStateWord::of(transition.to.into()),
            reason: Words(&transition.evidence).to_string(),
            evidence: serde_json::to_value(&transition.evidence).unwrap_or(Value::Null),
            counters: CountersView { attempts, successes, failures, consecutive_failures },
        }
    }
}
