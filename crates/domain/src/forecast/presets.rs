//! Built-in schedules to compare a policy with: Postrider's own and those of other services.

use std::time::Duration;

use super::{
    FixedSchedule, Forecast, ForecastError, Scenario, Work, forecast_fixed, forecast_within,
};
use crate::policy::{DeadRecovery, Policy};

/// A built-in schedule to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Postrider's defaults.
    Default,
    /// Postrider's defaults with `recovery.dead = "replay"`.
    Replay,
    /// Svix: seven retries within 27 h 35 min; the endpoint is switched off after 5 days of
    /// failures.
    Svix,
    /// Stripe: retries for three days. The intervals are not published; here they double from 5 min.
    Stripe,
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 4] = [Preset::Default, Preset::Replay, Preset::Svix, Preset::Stripe];

    /// The name in commands and in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Preset::Default => "default",
            Preset::Replay => "replay",
            Preset::Svix => "svix",
            Preset::Stripe => "stripe",
        }
    }

    /// Forecasts the scenario with this schedule.
    pub fn forecast(self, scenario: &Scenario, work: Work) -> Result<Forecast, ForecastError> {
        match self {
            Preset::Default => forecast_within(scenario, &Policy::default(), work),
            Preset::Replay => {
                let mut policy = Policy::default();
                policy.recovery.dead = DeadRecovery::Replay;
                forecast_within(scenario, &policy, work)
            }
            Preset::Svix => forecast_fixed(scenario, &svix()),
            Preset::Stripe => forecast_fixed(scenario, &stripe()),
        }
    }
}

fn svix() -> FixedSchedule {
    let delays = vec![
        Duration::from_secs(5),
        MINUTE * 5,
        MINUTE * 30,
        HOUR * 2,
        HOUR * 5,
        HOUR * 10,
        HOUR * 10,
    ];
    FixedSchedule { delays, off_after: Some(HOUR * 120) }
}

fn stripe() -> FixedSchedule {
    let mut delays: Vec<_> = (0..9).map(|n| MINUTE * 5 * (1 << n)).collect();
    delays.push(HOUR * 72 - delays.iter().sum::<Duration>());
    FixedSchedule { delays, off_after: None }
}
