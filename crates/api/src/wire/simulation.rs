//! The forecast of what a policy does in an outage, as JSON: the request and the answer.

use std::time::Duration;

use postrider_domain::circuit::{Evidence, StateName, Transition};
use postrider_domain::forecast::{Forecast, OUTAGE_AT, Preset, Scenario, Traffic};
use postrider_domain::policy::{DeadRecovery, MeasuredFrom, Policy, RecoveryMode, Share};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::policy::{DeadWord, MeasuredFromWord, RecoveryWord};
use crate::problem::Problem;

const YEAR_SECONDS: u64 = 366 * 24 * 60 * 60;
const HEALTHY_BEFORE_SECONDS: u64 = 24 * 60 * 60;
const ANSWER_MS: u64 = 100;
const ANSWER_MS_MAX: u64 = 60_000;
const SAMPLES: u32 = 600;
const SAMPLES_MAX: u32 = 1_000;

/// One URL, evenly spaced deliveries, one outage.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Simulation)]
pub(crate) struct SimulationBody {
    /// How long every attempt fails, 1 second to a year.
    #[serde(default)]
    #[schema(required = true, value_type = u64, example = 21600)]
    outage_seconds: Option<u64>,
    /// So many deliveries ...
    #[serde(default)]
    #[schema(required = true, value_type = u64, example = 10)]
    deliveries: Option<u64>,
    /// ... in so many seconds; 1 where it is left out.
    #[serde(default)]
    per_seconds: Option<u64>,
    /// How long everything was well before; a day where it is left out.
    #[serde(default)]
    healthy_before_seconds: Option<u64>,
    /// How long after the outage somebody enables the URL, should it be frozen; never where it is left
    /// out.
    #[serde(default)]
    enable_after_seconds: Option<u64>,
    /// How long an answer takes, 1 to 60000; 100 where it is left out. Matters only to `drain`.
    #[serde(default)]
    answer_ms: Option<u64>,
    /// Points of the course of time, 10 to 1000; 600 where it is left out.
    #[serde(default)]
    samples: Option<u32>,
    /// A policy to try, as the plan `yours`. What is left out is as in `GET /v1/policy`.
    #[serde(default)]
    policy: Option<TriedPolicy>,
    /// A subscription, whose policy is tried as the plan `subscription`: what is its own, and the server's
    /// for the rest.
    #[serde(default)]
    pub(crate) subscription: Option<String>,
    /// What to compare with: `server` (as in `GET /v1/policy`), `default`, `replay` (the
    /// default with `recovery.dead = "replay"`), `svix`, `stripe`. Left out: `default` beside a policy or a
    /// subscription, all but `server` without one.
    #[serde(default)]
    presets: Option<Vec<PlanWord>>,
}

/// What to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = SimulationPreset)]
enum PlanWord {
    Server,
    Default,
    Replay,
    Svix,
    Stripe,
}

/// Settings of a policy to try.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriedPolicy {
    /// About retries.
    #[serde(default)]
    retry: TriedRetry,
    /// About disabling and freezing.
    #[serde(default)]
    circuit: TriedCircuit,
    /// About recovery.
    #[serde(default)]
    recovery: TriedRecovery,
}

/// As `retry` in `GET /v1/policy`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriedRetry {
    /// Retry n falls due (2^n - 1) units after the first attempt.
    unit_seconds: Option<f64>,
    /// How many retries there are.
    max: Option<u32>,
    /// From where the pauses count.
    measured_from: Option<MeasuredFromWord>,
    /// By which share of a pause a slot may be later, from 0 to 1.
    jitter: Option<f64>,
}

/// As `circuit` in `GET /v1/policy`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriedCircuit {
    /// Disabled above this share of failures, from 0 to 1.
    disable_share: Option<f64>,
    /// With so many attempts or fewer, the share is not looked at.
    disable_grace: Option<u64>,
    /// Disabled after so many failures in a row.
    disable_consecutive: Option<u64>,
    /// How often a disabled destination is tried.
    probe_interval_seconds: Option<f64>,
    /// Frozen with more failures in a row than this ...
    freeze_over_consecutive: Option<u64>,
    /// ... when the last success is longer ago than this.
    freeze_after_seconds: Option<f64>,
    /// Frozen after so many failures in a row, at any time.
    freeze_consecutive: Option<u64>,
}

/// As `recovery` in `GET /v1/policy`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct TriedRecovery {
    /// What happens with waiting deliveries.
    mode: Option<RecoveryWord>,
    /// How long each step of the ramp lasts with `drain`.
    ramp_step_seconds: Option<f64>,
    /// What happens with dead deliveries.
    dead: Option<DeadWord>,
    /// How old a dead delivery may be to be replayed.
    dead_max_age_seconds: Option<f64>,
    /// How many dead deliveries are replayed in a second.
    dead_per_second: Option<u32>,
}

/// One column of the forecast: a policy of Postrider, or another schedule to compare it with.
#[derive(Debug, Clone)]
pub(crate) enum Plan {
    /// A policy for Postrider, with the name under which it is shown.
    Policy(&'static str, Box<Policy>),
    /// A built-in schedule to compare with.
    Preset(Preset),
}

impl Plan {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Plan::Policy(name, _) => name,
            Plan::Preset(preset) => preset.as_str(),
        }
    }
}

impl SimulationBody {
    /// The outage and the traffic to forecast.
    pub(crate) fn scenario(&self, in_flight_max: u32) -> Result<Scenario, Problem> {
        let outage = self.outage_seconds.ok_or_else(|| Problem::missing("outage_seconds"))?;
        let deliveries = self.deliveries.ok_or_else(|| Problem::missing("deliveries"))?;
        let per = self.per_seconds.unwrap_or(1);
        let healthy = self.healthy_before_seconds.unwrap_or(HEALTHY_BEFORE_SECONDS);
        let answer = self.answer_ms.unwrap_or(ANSWER_MS);
        let samples = self.samples.unwrap_or(SAMPLES);
        within("outage_seconds", outage, 1, YEAR_SECONDS)?;
        within("deliveries", deliveries, 1, u64::from(u32::MAX))?;
        within("per_seconds", per, 1, YEAR_SECONDS)?;
        within("healthy_before_seconds", healthy, 0, YEAR_SECONDS)?;
        within("enable_after_seconds", self.enable_after_seconds.unwrap_or(0), 0, YEAR_SECONDS)?;
        within("answer_ms", answer, 1, ANSWER_MS_MAX)?;
        within("samples", u64::from(samples), 10, u64::from(SAMPLES_MAX))?;
        Ok(Scenario {
            traffic: Traffic { deliveries, per: Duration::from_secs(per) },
            outage: Duration::from_secs(outage),
            healthy_before: Duration::from_secs(healthy),
            enabled_after: self.enable_after_seconds.map(Duration::from_secs),
            answer_time: Duration::from_millis(answer),
            in_flight_max,
            samples,
        })
    }

    /// The plans to forecast, each once.
    pub(crate) fn plans(
        &self,
        server: &Policy,
        subscription: Option<Policy>,
    ) -> Result<Vec<Plan>, Problem> {
        let mut plans = Vec::new();
        let is_tried = self.policy.is_some() || subscription.is_some();
        plans.extend(subscription.map(|policy| Plan::Policy("subscription", Box::new(policy))));
        if let Some(tried) = &self.policy {
            plans.push(Plan::Policy("yours", Box::new(tried.over(server)?)));
        }
        let presets = match (&self.presets, is_tried) {
            (Some(presets), _) => presets.as_slice(),
            (None, true) => &[PlanWord::Default],
            (None, false) => {
                &[PlanWord::Default, PlanWord::Replay, PlanWord::Svix, PlanWord::Stripe]
            }
        };
        for (n, preset) in presets.iter().enumerate() {
            if presets[..n].contains(preset) {
                return Err(Problem::field(format!("presets[{n}]"), "given twice: give it once"));
            }
            plans.push(match preset {
                PlanWord::Server => Plan::Policy("server", Box::new(server.clone())),
                PlanWord::Default => Plan::Preset(Preset::Default),
                PlanWord::Replay => Plan::Preset(Preset::Replay),
                PlanWord::Svix => Plan::Preset(Preset::Svix),
                PlanWord::Stripe => Plan::Preset(Preset::Stripe),
            });
        }
        if plans.is_empty() {
            return Err(Problem::field("presets", "name at least one, or give a policy"));
        }
        Ok(plans)
    }
}

fn within(field: &str, value: u64, min: u64, max: u64) -> Result<(), Problem> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Problem::field(field, format!("a number from {min} to {max}")))
}

impl TriedPolicy {
    /// The server's policy, changed by the settings that the request wants to try.
    fn over(&self, server: &Policy) -> Result<Policy, Problem> {
        let mut policy = server.clone();
        let TriedRetry { unit_seconds, max, measured_from, jitter } = &self.retry;
        put_duration(&mut policy.retry.unit, *unit_seconds, "policy.retry.unit_seconds")?;
        put(&mut policy.retry.max, *max);
        let word = measured_from.map(|word| match word {
            MeasuredFromWord::FirstAttempt => MeasuredFrom::FirstAttempt,
            MeasuredFromWord::PreviousAttempt => MeasuredFrom::PreviousAttempt,
        });
        put(&mut policy.retry.measured_from, word);
        put_share(&mut policy.retry.jitter, *jitter, "policy.retry.jitter")?;
        self.circuit.put_into(&mut policy)?;
        self.recovery.put_into(&mut policy)?;
        let valid = policy.validate();
        valid.map_err(|error| {
            Problem::field(format!("policy.{}", error.setting), error.problem.to_owned())
        })?;
        Ok(policy)
    }
}

impl TriedRecovery {
    fn put_into(&self, policy: &mut Policy) -> Result<(), Problem> {
        let recovery = &mut policy.recovery;
        put(&mut recovery.mode, self.mode.map(RecoveryMode::from));
        let place = "policy.recovery.ramp_step_seconds";
        put_duration(&mut recovery.ramp_step, self.ramp_step_seconds, place)?;
        put(&mut recovery.dead, self.dead.map(DeadRecovery::from));
        let place = "policy.recovery.dead_max_age_seconds";
        put_duration(&mut recovery.dead_max_age, self.dead_max_age_seconds, place)?;
        put(&mut recovery.dead_per_second, self.dead_per_second);
        Ok(())
    }
}

impl TriedCircuit {
    fn put_into(&self, policy: &mut Policy) -> Result<(), Problem> {
        let circuit = &mut policy.circuit;
        put_share(&mut circuit.disable_share, self.disable_share, "policy.circuit.disable_share")?;
        put(&mut circuit.disable_grace, self.disable_grace);
        put(&mut circuit.disable_consecutive, self.disable_consecutive);
        let place = "policy.circuit.probe_interval_seconds";
        put_duration(&mut circuit.probe_interval, self.probe_interval_seconds, place)?;
        put(&mut circuit.freeze_over_consecutive, self.freeze_over_consecutive);
        let place = "policy.circuit.freeze_after_seconds";
        put_duration(&mut circuit.freeze_after, self.freeze_after_seconds, place)?;
        put(&mut circuit.freeze_consecutive, self.freeze_consecutive);
        Ok(())
    }
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn put_duration(place: &mut Duration, value: Option<f64>, field: &str) -> Result<(), Problem> {
    let read = value.map(|seconds| {
        let duration = Duration::try_from_secs_f64(seconds).ok();
        let possible = Duration::from_millis(1)..=Duration::from_secs(YEAR_SECONDS);
        duration
            .filter(|duration| possible.contains(duration))
            .ok_or_else(|| Problem::field(field, format!("seconds from 0.001 to {YEAR_SECONDS}")))
    });
    put(place, read.transpose()?);
    Ok(())
}

fn put_share(place: &mut Share, value: Option<f64>, field: &str) -> Result<(), Problem> {
    let read = value.map(|share| {
        Share::from_ratio(share).ok_or_else(|| Problem::field(field, "a share from 0 to 1"))
    });
    put(place, read.transpose()?);
    Ok(())
}

/// What comes of it. Times are seconds from the beginning of the outage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SimulationAnswer)]
pub(crate) struct SimulationView {
    /// How long every attempt fails.
    pub(crate) outage_seconds: f64,
    /// So many deliveries ...
    pub(crate) deliveries: u64,
    /// ... in so many seconds.
    pub(crate) per_seconds: f64,
    /// How long everything was well before.
    pub(crate) healthy_before_seconds: f64,
    /// How long after the outage somebody enables the URL, should it be frozen; null for never.
    pub(crate) enabled_after_seconds: Option<f64>,
    /// One for each policy and preset, in the order in which they were asked for.
    pub(crate) plans: Vec<PlanView>,
}

/// What one policy does.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SimulatedPlan)]
pub(crate) struct PlanView {
    /// `subscription`, `yours`, `server`, `default`, `replay`, `svix` or `stripe`.
    name: &'static str,
    /// Deliveries from the beginning of the outage to the end of the forecast.
    accepted: u64,
    /// Deliveries that arrive.
    delivered: u64,
    /// Delivered, but not by the first attempt.
    late: u64,
    /// Deliveries that die.
    dead: u64,
    /// Those of them that were never attempted.
    dead_never_attempted: u64,
    /// Those that had died and were replayed when the URL was back; they arrived.
    replayed: u64,
    /// Those that wait at the end.
    waiting: u64,
    /// Attempts that failed, probes included.
    failed_attempts: u64,
    /// Probes that fail.
    failed_probes: u64,
    /// The most that ever waited, and when.
    peak_backlog: u64,
    /// When most deliveries wait, from the start of the outage.
    peak_at_seconds: f64,
    /// The most deliveries that arrived in a minute, on the average of one sample.
    peak_per_minute: u64,
    /// When the first one arrived after the outage; null where none does.
    back_at_seconds: Option<f64>,
    /// When nothing was waiting any more; null where that never happens by itself.
    recovered_at_seconds: Option<f64>,
    /// How late those arrive that arrive.
    late_by_seconds: LateBy,
    /// Changes of the circuit, probes aside.
    timeline: Vec<ChangeView>,
    /// The course of time.
    samples: Vec<SampleView>,
}

/// By how much the late ones were late; null where none was.
#[derive(Debug, Serialize, ToSchema)]
struct LateBy {
    /// Half of them are no later; null where nothing arrives late.
    p50: Option<f64>,
    /// 99 % of them are no later.
    p99: Option<f64>,
    /// The latest one.
    max: Option<f64>,
}

/// One change of the circuit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SimulatedChange)]
struct ChangeView {
    /// When, from the start of the outage.
    at_seconds: f64,
    /// `enabled`, `disabled` or `frozen`.
    state: &'static str,
    /// `failure_share`, `consecutive_failures`, `no_success`, `success`, `by_hand` or `other`.
    why: &'static str,
}

/// One point of the course of time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SimulatedSample)]
struct SampleView {
    /// When, from the start of the outage.
    at_seconds: f64,
    /// Deliveries that wait then.
    backlog: u64,
    /// Deliveries that have died by then.
    dead: u64,
    /// Attempts that have failed by then.
    failed_attempts: u64,
    /// Deliveries that have arrived by then.
    delivered: u64,
}

impl PlanView {
    pub(crate) fn of(name: &'static str, forecast: &Forecast) -> Self {
        let seconds = |at: Option<Duration>| at.map(|at| at.as_secs_f64());
        let delay = |share| seconds(forecast.delay(share).filter(|_| forecast.late > 0));
        PlanView {
            name,
            accepted: forecast.accepted,
            delivered: forecast.delivered,
            late: forecast.late,
            dead: forecast.dead,
            dead_never_attempted: forecast.dead_never_attempted,
            replayed: forecast.replayed,
            waiting: forecast.waiting,
            failed_attempts: forecast.failed_attempts,
            failed_probes: forecast.failed_probes,
            peak_backlog: forecast.peak_backlog,
            peak_at_seconds: forecast.peak_at.as_secs_f64(),
            peak_per_minute: forecast.peak_per_minute,
            back_at_seconds: seconds(forecast.back_at),
            recovered_at_seconds: seconds(forecast.recovered_at),
            late_by_seconds: LateBy {
                p50: delay(Share::percent(50)),
                p99: delay(Share::percent(99)),
                max: delay(Share::ALL),
            },
            timeline: forecast.transitions.iter().take(CHANGES_MAX).map(ChangeView::of).collect(),
            samples: forecast.samples.iter().map(SampleView::of).collect(),
        }
    }
}

/// How many state changes are shown of one plan: the first ones.
const CHANGES_MAX: usize = 1_000;

impl ChangeView {
    fn of(change: &Transition) -> Self {
        ChangeView {
            at_seconds: change.at.since(OUTAGE_AT).as_secs_f64(),
            state: match change.to {
                StateName::Closed => "enabled",
                StateName::Open | StateName::HalfOpen => "disabled",
                StateName::Frozen => "frozen",
            },
            why: match &change.evidence {
                Evidence::FailureShare => "failure_share",
                Evidence::ConsecutiveFailures => "consecutive_failures",
                Evidence::NoSuccess { .. } => "no_success",
                Evidence::Success { .. } => "success",
                Evidence::ByHand { .. } => "by_hand",
                Evidence::Gone
                | Evidence::ProbeSent { .. }
                | Evidence::ProbeFailed
                | Evidence::ProbeLost => "other",
            },
        }
    }
}

impl SampleView {
    fn of(sample: &postrider_domain::forecast::Sample) -> Self {
        SampleView {
            at_seconds: sample.at.as_secs_f64(),
            backlog: sample.backlog,
            dead: sample.dead,
            failed_attempts: sample.failed_attempts,
            delivered: sample.delivered,
        }
    }
}
