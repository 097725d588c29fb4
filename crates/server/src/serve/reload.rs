//! Reading the configuration again: what can change at once does, the rest is named.

use postrider_engine::EngineHandle;

use crate::cli::ServerArgs;
use crate::commands::load;
use crate::config::{Environment, Loaded};
use crate::telemetry::LogHandle;

/// Settings that a running server takes: the policy and what is logged.
const RELOADABLE: [&str; 7] =
    ["attempt.", "retry.", "circuit.", "recovery.", "mass_failure.", "retention.", "telemetry.log"];

/// Reads everything again and takes what it can. Whatever is wrong changes nothing.
pub(super) fn reload(
    current: &mut Loaded,
    arguments: &ServerArgs,
    environment: &Environment,
    engine: &EngineHandle,
    log: &LogHandle,
) {
    let next = match load(arguments, environment) {
        Ok(next) => next,
        Err(error) => {
            tracing::error!(%error, "the configuration stays as it was");
            return;
        }
    };
    let (taken, left) = changed(current, &next);
    current.config.policy = next.config.policy.clone();
    current.config.telemetry.log.clone_from(&next.config.telemetry.log);
    if let Err(error) = log.reload(&current.config.telemetry) {
        tracing::error!(%error, "the log stays as it was");
    }
    if engine.reload_policy(current.policy()).is_err() {
        tracing::warn!("the server is stopping: the policy stays as it was");
    }
    tracing::info!(taken = taken.join(", "), "reloaded");
    if !left.is_empty() {
        tracing::warn!(settings = left.join(", "), "this change needs a restart");
    }
}

/// The settings that differ: those that can be taken, and the others.
fn changed(current: &Loaded, next: &Loaded) -> (Vec<&'static str>, Vec<&'static str>) {
    let pairs = current.shown().into_iter().zip(next.shown());
    let keys = pairs.filter(|(old, new)| old.value != new.value).map(|(old, _)| old.key);
    keys.partition(|key| RELOADABLE.iter().any(|prefix| key.starts_with(prefix)))
}
