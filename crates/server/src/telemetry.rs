//! What is written about what happens: structured log lines.
//!
//! For people on a terminal, one JSON object a line elsewhere. **No secret is ever logged**: lines
//! are made of identifiers, classes, numbers and places.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, Registry};

use crate::config::{LogFormat, TelemetrySettings};

/// The target of the one line that each attempt has.
pub(crate) const ATTEMPTS: &str = "postrider::attempt";

/// Turns the level of a running server.
#[derive(Clone)]
pub(crate) struct LogHandle(reload::Handle<Targets, Registry>);

/// What a text says about what is logged: `info`, or `info,postrider=debug`.
pub(crate) fn filter(text: &str) -> anyhow::Result<Targets> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for directive in text.split(',') {
        // A lone word that is no level would silently be taken for the name of a module.
        let level = directive.rsplit('=').next().unwrap_or(directive).trim();
        anyhow::ensure!(LEVELS.contains(&level.to_ascii_lowercase().as_str()), "no level: {level}");
    }
    text.parse().context("not a filter")
}

fn effective(settings: &TelemetrySettings) -> anyhow::Result<Targets> {
    let targets = filter(&settings.log)?;
    Ok(if settings.attempts { targets } else { targets.with_target(ATTEMPTS, LevelFilter::OFF) })
}

/// Starts logging to the standard error.
pub(crate) fn start(settings: &TelemetrySettings) -> anyhow::Result<LogHandle> {
    let (targets, handle) = reload::Layer::new(effective(settings)?);
    let is_terminal = std::io::stderr().is_terminal();
    let human = match settings.format {
        LogFormat::Auto => is_terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if human {
        lines.with_ansi(is_terminal).with_target(false).boxed()
    } else {
        lines.json().flatten_event(true).with_span_list(false).with_current_span(false).boxed()
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(targets))
        .try_init()
        .context("logging was started twice")?;
    Ok(LogHandle(handle))
}

impl LogHandle {
    /// Takes another level.
    pub(crate) fn reload(&self, settings: &TelemetrySettings) -> anyhow::Result<()> {
        let targets = effective(settings)?;
        self.0.reload(targets).context("the log is closed")
    }
}
