//! The policy of a subscription, as the server shows it, in the form of settings to forecast.

use serde_json::Value as Json;

use super::super::{Context, escaped_segment, segment};
use crate::exit::Failure;

/// How a value of the API is written as a setting.
#[derive(Clone, Copy)]
enum Form {
    /// Seconds become a duration.
    Seconds,
    /// It is written as it is.
    Plain,
}

/// Where each setting comes from: a pointer into what [`settings`] has read.
#[rustfmt::skip]
const SETTINGS: [(&str, &str, Form); 16] = [
    ("retry.unit", "/subscription/effective_policy/retry/unit_seconds", Form::Seconds),
    ("retry.max", "/subscription/effective_policy/retry/max", Form::Plain),
    ("retry.measured_from", "/subscription/effective_policy/retry/measured_from", Form::Plain),
    ("retry.jitter", "/subscription/effective_policy/retry/jitter", Form::Plain),
    ("recovery.mode", "/destination/recovery/mode", Form::Plain),
    ("recovery.dead", "/subscription/effective_policy/dead", Form::Plain),
    ("recovery.dead_max_age", "/subscription/effective_policy/dead_max_age_seconds", Form::Seconds),
    ("recovery.ramp_step", "/policy/recovery/ramp_step_seconds", Form::Seconds),
    ("recovery.dead_per_second", "/policy/recovery/dead_per_second", Form::Plain),
    ("circuit.disable_share", "/policy/circuit/disable_share", Form::Plain),
    ("circuit.disable_grace", "/policy/circuit/disable_grace", Form::Plain),
    ("circuit.disable_consecutive", "/policy/circuit/disable_consecutive", Form::Plain),
    ("circuit.probe_interval", "/policy/circuit/probe_interval_seconds", Form::Seconds),
    ("circuit.freeze_over_consecutive", "/policy/circuit/freeze_over_consecutive", Form::Plain),
    ("circuit.freeze_after", "/policy/circuit/freeze_after_seconds", Form::Seconds),
    ("circuit.freeze_consecutive", "/policy/circuit/freeze_consecutive", Form::Plain),
];

/// The policy that holds for a subscription, as `--set` would have it.
pub(super) async fn settings(context: &Context, id: &str) -> Result<Vec<String>, Failure> {
    let subscription =
        context.get(&format!("/v1/subscriptions/{}", escaped_segment(id)?), &[]).await?;
    let destination = subscription["destination_id"].as_str().unwrap_or_default();
    let path = format!("/v1/destinations/{}", segment(destination)?);
    let destination = context.get(&path, &[]).await?;
    let policy = context.get("/v1/policy", &[]).await?;
    let read = serde_json::json!({
        "subscription": subscription, "destination": destination, "policy": policy,
    });
    SETTINGS.iter().map(|(key, pointer, form)| setting(&read, key, pointer, *form)).collect()
}

fn setting(read: &Json, key: &str, pointer: &str, form: Form) -> Result<String, Failure> {
    let value = read.pointer(pointer).map(|value| match (form, value) {
        (Form::Plain, Json::String(text)) => Some(text.clone()),
        (Form::Plain, value) => Some(value.to_string()),
        (Form::Seconds, value) => {
            let duration = std::time::Duration::try_from_secs_f64(value.as_f64()?).ok()?;
            Some(format!("{}ms", duration.as_millis().max(1)))
        }
    });
    match value.flatten() {
        Some(value) => Ok(format!("{key}={value}")),
        None => Err(Failure::failed(format!("the server does not say what {key} is"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_server_shows_becomes_settings() {
        let read = json!({"policy": {"a": 0.0005, "b": 1.5, "c": "drain", "d": 7}});
        let of = |pointer: &str, form| setting(&read, "key", pointer, form).ok();
        assert_eq!(of("/policy/a", Form::Seconds).as_deref(), Some("key=1ms"));
        assert_eq!(of("/policy/b", Form::Seconds).as_deref(), Some("key=1500ms"));
        assert_eq!(of("/policy/c", Form::Plain).as_deref(), Some("key=drain"));
        assert_eq!(of("/policy/d", Form::Plain).as_deref(), Some("key=7"));
        assert_eq!(of("/policy/e", Form::Plain), None);
        assert_eq!(of("/policy/c", Form::Seconds), None);
    }
}
