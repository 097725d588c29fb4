//! `postrider simulate`: forecasts what happens to deliveries if a URL is down for a while.
//!
//! Nothing is sent: the figures come from [`postrider_domain::forecast`], which uses the same decisions
//! as the server. A server is asked only for the policy of a subscription (`--subscription`).

mod chart;
mod given;
mod subscription;
mod svg;
#[cfg(test)]
mod tests;
mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use postrider_domain::forecast::{self, Forecast, Scenario, Traffic, Work};

use super::Context;
use crate::cli::{Connection, ServerArgs};
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::{Output, line};
use given::Outage;

/// Forecast what a policy does in an outage.
#[derive(Debug, Args)]
pub(crate) struct ForecastArgs {
    /// How long the URL is down: 6h, 2d12h, or a start and an end: "fri 18:00..mon 08:00".
    #[arg(long, value_name = "DURATION|FROM..TO", value_parser = given::outage)]
    outage: Outage,
    /// The rate of deliveries: 50/s, 200/min, 10/h.
    #[arg(long, value_name = "RATE", default_value = "10/s", value_parser = given::traffic)]
    rate: Traffic,
    /// Configuration file (TOML) with the policy to forecast: its retry, circuit and recovery
    /// settings.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// A setting of the policy to forecast, as in --set retry.max=7; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Forecast the policy of this subscription: the server is asked for it. --set tries changes of it.
    #[arg(long, value_name = "ID", conflicts_with = "policy")]
    subscription: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// A schedule to compare with; may be repeated. By default all of them, if no policy is given.
    #[arg(long, value_enum)]
    preset: Vec<Preset>,
    /// How long the URL worked before; those successes are in the counters of the circuit.
    #[arg(long, value_name = "DURATION", default_value = "1d", value_parser = given::duration)]
    healthy_before: Duration,
    /// If the URL is frozen, somebody enables it this long after the outage.
    #[arg(long, value_name = "DURATION", value_parser = given::duration)]
    enable_after: Option<Duration>,
    /// How long a response takes; matters only for recovery = "drain".
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
    /// Postrider's defaults with recovery.dead = "replay".
    Replay,
    /// Svix: seven retries within 27 h 35 min, switched off after 5 days.
    Svix,
    /// Stripe: retries for three days. The intervals are not published; here they double from 5 min.
    Stripe,
}

/// A forecast with its name.
struct Plan {
    name: String,
    forecast: Forecast,
}

/// The input that all plans share.
struct Question {
    outage: Outage,
    scenario: Scenario,
}

impl Preset {
    const fn of_domain(self) -> forecast::Preset {
        match self {
            Preset::Default => forecast::Preset::Default,
            Preset::Replay => forecast::Preset::Replay,
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

/// Computes the forecasts and prints them.
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
    let known = of_subscription(arguments, environment, output)?;
    let plans = plans(arguments, known, &question.scenario, environment)?;
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

/// The settings of the subscription that is asked for, where one is.
fn of_subscription(
    arguments: &ForecastArgs,
    environment: &Environment,
    output: Output,
) -> Result<Vec<String>, Failure> {
    let Some(id) = &arguments.subscription else { return Ok(Vec::new()) };
    let context = Context::new(&arguments.connection, environment, output)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(subscription::settings(&context, id))
}

fn plans(
    arguments: &ForecastArgs,
    known: Vec<String>,
    scenario: &Scenario,
    environment: &Environment,
) -> Result<Vec<Plan>, Failure> {
    let failure = |error: forecast::ForecastError| Failure::usage(error.to_string());
    let mut plans = Vec::new();
    let is_own = arguments.policy.is_some() || !arguments.set.is_empty() || !known.is_empty();
    if is_own {
        let server = ServerArgs {
            config: arguments.policy.clone(),
            set: known.into_iter().chain(arguments.set.iter().cloned()).collect(),
            ..ServerArgs::default()
        };
        let policy = super::load(&server, environment)?.config.policy;
        let name = match arguments.policy.as_ref().and_then(|path| path.file_stem()) {
            Some(stem) => crate::output::escaped(&stem.to_string_lossy()),
            None if arguments.subscription.is_some() => "subscription".to_owned(),
            None => "yours".to_owned(),
        };
        plans
            .push(Plan { name, forecast: forecast::forecast(scenario, &policy).map_err(failure)? });
    }
    let presets = match (&arguments.preset[..], is_own) {
        ([], false) => &[Preset::Default, Preset::Replay, Preset::Svix, Preset::Stripe][..],
        ([], true) => &[Preset::Default],
        (presets, _) => presets,
    };
    for preset in presets {
        let forecast = preset.forecast(scenario).map_err(failure)?;
        plans.push(Plan { name: preset.name().to_owned(), forecast });
    }
    Ok(plans)
}
