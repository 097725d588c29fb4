//! The collector that traces and metrics are sent to (OTLP over HTTP, in its JSON form).

use std::time::{Duration, SystemTime};

use hyper::Method;
use postrider_domain::hex;
use serde_json::{Value as Json, json};

use crate::client::Client;
use crate::config::TelemetrySettings;

/// The time limit of a request to the collector.
const DEADLINE: Duration = Duration::from_secs(10);
/// The shortest time between two log lines about a failing collector.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// The configured collector. Clones are of the same instance of the service.
#[derive(Clone)]
pub(super) struct Collector {
    client: Client,
    instance: String,
}

impl Collector {
    /// The configured one; `None` if there is none.
    pub(super) fn of(
        settings: &TelemetrySettings,
        node: Option<&str>,
    ) -> anyhow::Result<Option<Collector>> {
        let Some(endpoint) = &settings.otlp_endpoint else { return Ok(None) };
        let client = Client::new(endpoint, settings.otlp_token.clone(), None)
            .map_err(|_| anyhow::anyhow!("telemetry.otlp_endpoint is not a URL"))?;
        // A node keeps its name; another server is another instance after each start.
        let instance = match node {
            Some(node) => node.to_owned(),
            None => hex::encode(&postrider_entropy::system_bytes::<16>()?),
        };
        Ok(Some(Collector { client, instance }))
    }

    /// Sends a request; the error says why the collector did not accept it.
    pub(super) async fn send(&self, path: &str, body: &Json) -> Result<(), String> {
        let sent = self.client.ask(Method::POST, path, &[], Some(body.to_string().into()));
        match tokio::time::timeout(DEADLINE, sent).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// What spans and metrics are of.
    pub(super) fn resource(&self) -> Json {
        json!({"attributes": [
            attribute("service.name", "postrider"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", &self.instance),
        ]})
    }
}

/// What makes spans and metrics.
pub(super) fn scope() -> Json {
    json!({"name": "postrider", "version": env!("CARGO_PKG_VERSION")})
}

/// An attribute that is text.
pub(super) fn attribute(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Nanoseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the time of a span, on which nothing depends")]
pub(super) fn unix_nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Limits how often it is logged that the collector fails.
#[derive(Default)]
pub(super) struct Complaints {
    last: Option<tokio::time::Instant>,
}

impl Complaints {
    /// Whether a failure is to be logged now.
    #[expect(clippy::disallowed_methods, reason = "how often something is logged, nothing else")]
    pub(super) fn is_due(&mut self) -> bool {
        let now = tokio::time::Instant::now();
        let is_due = self.last.is_none_or(|last| now - last >= COMPLAIN_EVERY);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}
