//! What would a policy do in an outage? The answer in figures, without sending anything.
//!
//! One destination, evenly spaced deliveries, one outage. Every decision is the real one: the
//! circuit is asked and taught by [`crate::circuit`], slots are computed by [`crate::delivery`].
//! Deliveries that are treated alike are moved together (`cohort`), so that millions take seconds;
//! **none is estimated.** What is modelled: an attempt takes no time (but for the steps of a ramp),
//! every attempt within the outage fails and every other one succeeds, and the sender itself never
//! stops.

mod cohort;
mod fixed;
mod presets;
mod run;
mod tally;
#[cfg(test)]
mod tests;
mod work;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::circuit::Transition;
use crate::policy::{Policy, Share};
use crate::time::Timestamp;

pub use fixed::FixedSchedule;
pub use presets::Preset;
pub use work::Work;

/// When the outage begins; all times of a forecast count from here.
pub const OUTAGE_AT: Timestamp = Timestamp::from_unix_ms(1_700_000_000_000);

/// Deliveries that can be forecast where each has slots of its own (`retry.jitter`).
pub const JITTERED_MAX: u64 = 2_000_000;

/// What happens.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// How many deliveries there are.
    pub traffic: Traffic,
    /// How long every attempt fails.
    pub outage: Duration,
    /// How long everything was well before; its successes are in the counters.
    pub healthy_before: Duration,
    /// How long after the outage somebody enables the destination, should it be frozen.
    pub enabled_after: Option<Duration>,
    /// How long an answer takes. Matters only to a ramp, which sends so many at a time.
    pub answer_time: Duration,
    /// The most at a time.
    pub in_flight_max: u32,
    /// How many points the course of time has.
    pub samples: u32,
}

/// So many deliveries in so much time, evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// How many; at least one.
    pub deliveries: u64,
    /// In how much time; at least a millisecond.
    pub per: Duration,
}

/// A scenario that is too large to be computed, or too small to mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForecastError {
    /// Each delivery has slots of its own, and there are too many.
    #[error(
        "with retry.jitter every delivery is followed by itself: at most {JITTERED_MAX} of them, \
         and these would be {0}; lower the rate"
    )]
    TooManyWithJitter(u64),
    /// Nothing happens, or everything at once.
    #[error("the rate must be between one delivery a year and 1,000,000 a second")]
    Rate,
    /// No outage, or one that outlasts everything.
    #[error("the outage must be between one second and one year")]
    Outage,
    /// It would take more steps, or more memory, than it may.
    #[error(
        "this takes too long to compute: lower the rate, shorten the outage, probe less often, or \
         disable after fewer failures"
    )]
    TooMuchWork,
}

/// What comes of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forecast {
    /// Deliveries accepted from the beginning of the outage to the end of the forecast.
    pub accepted: u64,
    /// Those that arrived.
    pub delivered: u64,
    /// Those that arrived, but not by their first attempt.
    pub late: u64,
    /// Those that used up their retries.
    pub dead: u64,
    /// Of these, how many were never attempted.
    pub dead_never_attempted: u64,
    /// Those that wait at the end.
    pub waiting: u64,
    /// Attempts that failed, probes included.
    pub failed_attempts: u64,
    /// Attempts that failed as probes.
    pub failed_probes: u64,
    /// The most that ever waited.
    pub peak_backlog: u64,
    /// When that was.
    pub peak_at: Duration,
    /// The most deliveries that arrived in a minute, on the average of one sample.
    pub peak_per_minute: u64,
    /// Changes of the circuit, probes aside.
    pub transitions: Vec<Transition>,
    /// When the first delivery arrived after the outage.
    pub back_at: Option<Duration>,
    /// When nothing was waiting any more.
    pub recovered_at: Option<Duration>,
    /// How late the late ones were, to the second, and how many of each.
    pub delays: BTreeMap<u64, u64>,
    /// The course of time.
    pub samples: Vec<Sample>,
    /// When the forecast ends.
    pub ends_at: Duration,
}

/// One point of the course of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Duration,
    /// How many wait.
    pub backlog: u64,
    /// How many are dead by then.
    pub dead: u64,
    /// How many attempts have failed by then.
    pub failed_attempts: u64,
    /// How many have arrived by then.
    pub delivered: u64,
}

impl Traffic {
    /// When delivery `n` comes, from the beginning of the outage.
    fn offset(self, n: u64) -> Duration {
        let ms = u128::from(n) * self.per.as_millis() / u128::from(self.deliveries.max(1));
        Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    fn at(self, n: u64) -> Timestamp {
        OUTAGE_AT.saturating_add(self.offset(n))
    }

    /// How many deliveries come before this time.
    fn before(self, end: Timestamp) -> u64 {
        let (ms, per) = (end.since(OUTAGE_AT).as_millis(), self.per.as_millis().max(1));
        u64::try_from((ms * u128::from(self.deliveries)).div_ceil(per)).unwrap_or(u64::MAX)
    }
}

impl Forecast {
    /// By how much the given share of the late deliveries was late at most.
    pub fn delay(&self, share: Share) -> Option<Duration> {
        let wanted = u128::from(self.late) * u128::from(share.as_millionths());
        let mut counted = 0u128;
        self.delays.iter().find_map(|(seconds, count)| {
            counted += u128::from(*count) * 1_000_000;
            (counted >= wanted).then_some(Duration::from_secs(*seconds))
        })
    }
}

const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);

impl Scenario {
    fn validate(&self) -> Result<(), ForecastError> {
        let per_year = u128::from(self.traffic.deliveries) * YEAR.as_millis();
        let per = self.traffic.per.as_millis();
        let is_too_fast = u128::from(self.traffic.deliveries) * 1_000 > per * 1_000_000;
        if per == 0 || per_year < per || is_too_fast {
            return Err(ForecastError::Rate);
        }
        if !(Duration::from_secs(1)..=YEAR).contains(&self.outage) {
            return Err(ForecastError::Outage);
        }
        Ok(())
    }
}

/// What our own policy would do.
pub fn forecast(scenario: &Scenario, policy: &Policy) -> Result<Forecast, ForecastError> {
    forecast_within(scenario, policy, Work::UNLIMITED)
}

/// What our own policy would do, where that does not take more than this.
pub fn forecast_within(
    scenario: &Scenario,
    policy: &Policy,
    work: Work,
) -> Result<Forecast, ForecastError> {
    scenario.validate()?;
    run::Run::new(scenario, policy, work)?.live_through()
}

/// What a fixed schedule would do that has no circuit. Its work grows with the samples and the delays,
/// not with the deliveries.
pub fn forecast_fixed(
    scenario: &Scenario,
    schedule: &FixedSchedule,
) -> Result<Forecast, ForecastError> {
    scenario.validate()?;
    Ok(fixed::run(scenario, schedule))
}
