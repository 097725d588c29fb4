//! Reloads the configuration: a running server applies the settings that are marked `(live)` in the
//! table of settings; the log names the other changed ones.

use postrider_engine::EngineHandle;

use crate::cli::ServerArgs;
use crate::commands::load;
use crate::config::{Environment, Loaded};
use crate::telemetry::LogHandle;

/// Reads the whole configuration again; returns the changed settings. An invalid configuration
/// changes nothing.
pub(super) fn reload(
    current: &mut Loaded,
    arguments: &ServerArgs,
    environment: &Environment,
    engine: &EngineHandle,
    log: &LogHandle,
) -> Vec<&'static str> {
    let next = match load(arguments, environment) {
        Ok(next) => next,
        Err(error) => {
            tracing::error!(%error, "the configuration stays as it was");
            return Vec::new();
        }
    };
    let changed = current.take_changes(&next);
    if let Err(error) = log.reload(&current.config.telemetry) {
        tracing::error!(%error, "the log stays as it was");
    }
    if engine.reload_policy(current.policy()).is_err() {
        tracing::warn!("the server is stopping: the policy stays as it was");
    }
    tracing::info!(taken = changed.taken.join(", "), "reloaded");
    if !changed.needs_restart.is_empty() {
        let settings = changed.needs_restart.join(", ");
        tracing::warn!(settings, "this change needs a restart");
    }
    changed.taken
}
