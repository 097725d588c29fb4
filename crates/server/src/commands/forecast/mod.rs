//! `postrider simulate`: a forecast of what happens to our customers if this URL is down for so long.
//!
//! Nothing is sent and no server is asked: the figures come from [`postrider_domain::forecast`],
//! which asks the same decisions as the server does.

mod chart;
mod given;
mod svg;
#[cfg(test)]
mod tests;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use postrider_domain::forecast::{self, Forecast, Scenario, Traffic, Work};

use crate::cli::ServerArgs;
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::{Output, line};
use given::Outage;

/// Forecast what a policy does in an outage.
#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    /// How long the URL is down: 6h, 2d12h, or from when to when: "fri 18:00..mon 08:00".
    #[arg(long, value_name = "DURATION|FROM..TO", value_parser = given::outage)]
    outage: Outage,
    /// How many deliveries there are: 50/s, 200/min, 10/h.
    #[arg(long, value_name = "RATE", default_value = "10/s", value_parser = given::traffic)]
    rate: Traffic,
    /// Configuration file (TOML) with the policy to try: its retry, circuit and recovery settings.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A setting of the policy to try, as in --set retry.max=7; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// What to compare with; may be repeated. Without it and without a policy: all of them.
    #[arg(long, value_enum)]
    preset: Vec<Preset>,
    /// How long the URL was well before; its successes are in the counters of the circuit.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = given::duration)]
    healthy_before: Duration,
    /// Somebody enables the URL so long after the outage, should it be frozen.
    #[arg(long, value_name = "DURATION", value_parser = given::duration)]
    enable_after: Option<Duration>,
    /// How long an answer takes; matters only to recovery = "drain".
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = given::duration)]
    answer_time: Duration,
    /// Write the chart to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Schedules to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Preset {
    /// Postrider's defaults.
    Default,
    /// Svix: seven retries within 27 h 35 min, switched off after 5 days.
    Svix,
    /// Stripe: retries for three days. The intervals are not published; here they double from 5 min.
    Stripe,
}

/// What is forecast, with its name.
struct Plan {
    name: String,
    forecast: Forecast,
}

/// What all plans have in common.
struct Question {
    outage: Outage,
    scenario: Scenario,
}

impl Preset {
    const fn of_domain(self) -> forecast::Preset {
        match self {
            Preset::Default => forecast::Preset::Default,
            Preset::Svix => forecast::Preset::Svix,
            Preset::Stripe => forecast::Preset::Stripe,
        }
    }

    fn name(self) -> &'static str {
        self.of_domain().as_str()
    }

    fn forecast(self, scenario: &Scenario) -> Result<Forecast, forecast::ForecastError> {
        self.of_domain().forecast(scenario, Work::UNLIMITED)
    }
}

/// Forecasts, and shows what comes of it.
pub(crate) fn run(
    arguments: &ForecastArgs,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let question = Question {
        outage: arguments.outage,
        scenario: Scenario {
            traffic: arguments.rate,
            outage: arguments.outage.length,
            healthy_before: arguments.healthy_before,
            enabled_after: arguments.enable_after,
            answer_time: arguments.answer_time,
            in_flight_max: postrider_engine::Options::default().destination_in_flight_max,
            samples: 600,
        },
    };
    let plans = plans(arguments, &question.scenario, environment)?;
    if let Some(path) = &arguments.svg {
        std::fs::write(path, svg::draw(&question, &plans))
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    }
    if output.json {
        return Ok(line(&words::json(&question, &plans).to_string())?);
    }
    line(&words::table(&question, &plans, output))?;
    for plan in &plans {
        line(&format!("\n{}", chart::draw(&question, plan, &plans, output)))?;
    }
    if let Some(path) = &arguments.svg {
        line(&format!("\nchart: {}", path.display()))?;
    }
    Ok(())
}

fn plans(
    arguments: &ForecastArgs,
    scenario: &Scenario,
    environment: &Environment,
) -> Result<Vec<Plan>, Failure> {
    let failure = |error: forecast::ForecastError| Failure::usage(error.to_string());
    let mut plans = Vec::new();
    let is_own = arguments.policy.is_some() || !arguments.set.is_empty();
    if is_own {
        let server = ServerArgs {
            config: arguments.policy.clone(),
            set: arguments.set.clone(),
            ..ServerArgs::default()
        };
        let policy = super::load(&server, environment)?.config.policy;
        let name = match arguments.policy.as_ref().and_then(|path| path.file_stem()) {
            Some(stem) => crate::output::escaped(&stem.to_string_lossy()),
            None => "yours".to_owned(),
        };
        plans
            .push(Plan { name, forecast: forecast::forecast(scenario, &policy).map_err(failure)? });
    }
    let presets = match (&arguments.preset[..], is_own) {
        ([], false) => &[Preset::Default, Preset::Svix, Preset::Stripe][..],
        ([], true) => &[Preset::Default],
        (presets, _) => presets,
    };
    for preset in presets {
        let forecast = preset.forecast(scenario).map_err(failure)?;
        plans.push(Plan { name: preset.name().to_owned(), forecast });
    }
    Ok(plans)
}
