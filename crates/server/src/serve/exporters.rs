//! What is sent to the collector of OTLP: traces, and metrics where that is set.

use std::sync::Arc;

use postrider_engine::Spans;

use super::metrics::Metrics;
use super::otlp::Collector;
use super::otlp_metrics::MetricsExporter;
use super::traces::Exporter;
use crate::config::TelemetrySettings;

/// The exporters that are configured.
pub(super) struct Exporters {
    traces: Option<Exporter>,
    metrics: Option<MetricsExporter>,
}

impl Exporters {
    /// Starts them; `node` is the name of this node in a cluster.
    pub(super) fn start(
        settings: &TelemetrySettings,
        metrics: &Metrics,
        node: Option<&str>,
    ) -> anyhow::Result<Exporters> {
        let Some(collector) = Collector::of(settings, node)? else {
            return Ok(Exporters { traces: None, metrics: None });
        };
        Ok(Exporters {
            metrics: settings.otlp_metrics.then(|| {
                let every = settings.otlp_metrics_interval;
                MetricsExporter::start(collector.clone(), every, metrics)
            }),
            traces: Some(Exporter::start(collector, settings.otlp_sample, metrics)),
        })
    }

    /// The recorder of traces, if they are recorded.
    pub(super) fn spans(&self) -> Option<Arc<dyn Spans>> {
        self.traces.clone().map(|traces| Arc::new(traces) as Arc<dyn Spans>)
    }

    /// Sends what is left, for a limited time.
    pub(super) async fn flush(&self) {
        if let Some(traces) = &self.traces {
            traces.flush().await;
        }
        if let Some(metrics) = &self.metrics {
            metrics.flush().await;
        }
    }
}
