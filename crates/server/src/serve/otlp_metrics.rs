//! Sends the metrics to the collector (OTLP over HTTP, JSON): at an interval, and once more at the shutdown.
//!
//! A request is made from the page that Prometheus reads, so that no metric is in one of them only. **Nothing waits
//! for the collector**: if it fails, the next request has the newer values. Counters are cumulative, so nothing is
//! lost by that.

use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::metrics::Metrics;
use super::otlp::{Collector, Complaints, attribute, scope, unix_nanoseconds};

/// How long the shutdown waits for the last request.
const FLUSH_MAX: Duration = Duration::from_secs(2);
/// The protocol's word for counters that begin at the start of the process.
const CUMULATIVE: u8 = 2;
/// Units, by the last word of a metric's name without `_total`.
const UNITS: [(&str, &str); 3] = [("_seconds", "s"), ("_milliseconds", "ms"), ("_bytes", "By")];

/// The task that sends metrics.
pub(super) struct MetricsExporter(mpsc::Sender<oneshot::Sender<()>>);

impl MetricsExporter {
    /// Starts to send to this collector.
    pub(super) fn start(
        collector: Collector,
        every: Duration,
        metrics: &Metrics,
    ) -> MetricsExporter {
        let (sender, asked) = mpsc::channel(1);
        drop(tokio::spawn(send_all(asked, collector, every, metrics.clone())));
        MetricsExporter(sender)
    }

    /// Sends the metrics as they are now, for a limited time.
    pub(super) async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        if self.0.try_send(done).is_ok() {
            // The process ends even if they were not sent in time.
            drop(tokio::time::timeout(FLUSH_MAX, sent).await);
        }
    }
}

async fn send_all(
    mut asked: mpsc::Receiver<oneshot::Sender<()>>,
    collector: Collector,
    every: Duration,
    metrics: Metrics,
) {
    let began = unix_nanoseconds();
    let mut complaints = Complaints::default();
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is at once, when there is nothing to tell.
    ticks.tick().await;
    loop {
        let done = tokio::select! {
            _ = ticks.tick() => None,
            asked = asked.recv() => match asked {
                Some(done) => Some(done),
                None => return,
            },
        };
        let page = metrics.render();
        let request = request(&page, &collector.resource(), (began, unix_nanoseconds()));
        if let Err(why) = collector.send("/v1/metrics", &request).await
            && complaints.is_due()
        {
            tracing::warn!(why, "the collector did not accept metrics; newer values follow");
        }
        if let Some(done) = done {
            // The caller of `flush` may have given up.
            done.send(()).unwrap_or_default();
        }
    }
}

/// A request with all metrics of a page.
fn request(page: &str, resource: &Json, time: (u64, u64)) -> Json {
    json!({"resourceMetrics": [{
        "resource": resource,
        "scopeMetrics": [{"scope": scope(), "metrics": metrics_of(page, time)}],
    }]})
}

/// The metrics of a page. A line that is not understood is left out.
fn metrics_of(page: &str, (began, now): (u64, u64)) -> Vec<Json> {
    let mut families: Vec<Family> = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            families.push(Family { name, help, ..Family::default() });
        } else if let Some(family) = families.last_mut() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family.kind = rest.rsplit(' ').next().unwrap_or_default(),
                None => family.add(line, (began, now)).unwrap_or_default(),
            }
        }
    }
    families.into_iter().filter_map(Family::written).collect()
}

/// A metric with all its lines.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    points: Vec<Json>,
    /// The histogram whose lines are being read: ends of buckets with the counts up to them, and the sum.
    buckets: Vec<(&'a str, u64)>,
    sum: f64,
}

impl<'a> Family<'a> {
    /// Adds a line; `None` if it is not understood.
    fn add(&mut self, line: &'a str, (began, now): (u64, u64)) -> Option<()> {
        let (series, value) = line.rsplit_once(' ')?;
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (series, ""),
        };
        let part = name.strip_prefix(self.name)?;
        let labels = labels_of(labels);
        let mut point = json!({
            "attributes": labels.iter().filter(|(key, _)| *key != "le")
                .map(|(key, value)| attribute(key, value)).collect::<Vec<_>>(),
            "startTimeUnixNano": began.to_string(),
            "timeUnixNano": now.to_string(),
        });
        match (self.kind, part) {
            ("histogram", "_bucket") => {
                let (_, end) = labels.iter().find(|(key, _)| *key == "le")?;
                self.buckets.push((end, value.parse().ok()?));
                return Some(());
            }
            ("histogram", "_sum") => {
                self.sum = value.parse().ok()?;
                return Some(());
            }
            ("histogram", "_count") => {
                let buckets = std::mem::take(&mut self.buckets);
                let ends = buckets.iter().filter_map(|(end, _)| end.parse::<f64>().ok());
                let ends: Vec<f64> = ends.filter(|end| end.is_finite()).collect();
                let before = std::iter::once(0).chain(buckets.iter().map(|(_, count)| *count));
                let counts = buckets.iter().zip(before);
                let counts: Vec<String> = counts
                    .map(|((_, count), before)| count.saturating_sub(before).to_string())
                    .collect();
                point["count"] = value.into();
                point["sum"] = self.sum.into();
                point["explicitBounds"] = ends.into();
                point["bucketCounts"] = counts.into();
            }
            ("gauge" | "counter", "") => match value.parse::<i64>() {
                Ok(_) => point["asInt"] = value.into(),
                Err(_) => point["asDouble"] = value.parse::<f64>().ok()?.into(),
            },
            _ => return None,
        }
        self.points.push(point);
        Some(())
    }

    /// The metric in OTLP's JSON form; `None` if it has no point.
    fn written(self) -> Option<Json> {
        if self.points.is_empty() {
            return None;
        }
        let stem = self.name.trim_end_matches("_total");
        let unit = UNITS.iter().find(|(end, _)| stem.ends_with(end)).map_or("", |(_, unit)| unit);
        let mut metric = json!({"name": self.name, "description": self.help, "unit": unit});
        let points = Json::from(self.points);
        let (name, data) = match self.kind {
            "counter" => (
                "sum",
                json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true}),
            ),
            "histogram" => {
                ("histogram", json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE}))
            }
            _ => ("gauge", json!({ "dataPoints": points })),
        };
        metric[name] = data;
        Some(metric)
    }
}

/// The labels of a line. Our own values need no escapes.
fn labels_of(mut text: &str) -> Vec<(&str, &str)> {
    let mut labels = Vec::new();
    while let Some((key, rest)) = text.split_once("=\"") {
        let Some((value, rest)) = rest.split_once('"') else { break };
        labels.push((key.trim_start_matches(','), value));
        text = rest;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: (u64, u64) = (1_000, 2_000);

    fn metric(page: &str, name: &str) -> Json {
        let all = metrics_of(page, TIME);
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{all:?}")).clone()
    }

    #[test]
    fn counter_gauge_and_histogram_become_points_with_their_attributes() {
        let page = "# HELP a_total Things, counted.\n# TYPE a_total counter\n\
                    a_total{turn=\"first\",route=\"/v1/{id}\"} 7\na_total{turn=\"retry\",route=\"x\"} 0\n\
                    # HELP b_bytes Bytes.\n# TYPE b_bytes gauge\nb_bytes 2.50\n\
                    # HELP none Nothing yet.\n# TYPE none counter\n\
                    # HELP c_seconds Time.\n# TYPE c_seconds histogram\n\
                    c_seconds_bucket{route=\"y\",le=\"0.005000\"} 1\nc_seconds_bucket{route=\"y\",le=\"1.000000\"} 3\n\
                    c_seconds_bucket{route=\"y\",le=\"+Inf\"} 4\nc_seconds_sum{route=\"y\"} 7.250000\n\
                    c_seconds_count{route=\"y\"} 4\n";
        let counter = metric(page, "a_total");
        assert_eq!(counter["description"], "Things, counted.");
        assert_eq!(counter["sum"]["isMonotonic"], true);
        assert_eq!(counter["sum"]["aggregationTemporality"], 2);
        let attributes = [attribute("turn", "first"), attribute("route", "/v1/{id}")];
        let point = json!({
            "attributes": attributes, "startTimeUnixNano": "1000", "timeUnixNano": "2000", "asInt": "7",
        });
        assert_eq!(counter["sum"]["dataPoints"][0], point);
        assert_eq!(counter["sum"]["dataPoints"].as_array().unwrap().len(), 2);
        let gauge = metric(page, "b_bytes");
        assert_eq!(
            (&gauge["unit"], &gauge["gauge"]["dataPoints"][0]["asDouble"]),
            (&"By".into(), &2.5.into())
        );
        let point = &metric(page, "c_seconds")["histogram"]["dataPoints"][0];
        assert_eq!(point["bucketCounts"], json!(["1", "2", "1"]));
        assert_eq!(point["explicitBounds"], json!([0.005, 1.0]));
        assert_eq!((&point["count"], &point["sum"]), (&"4".into(), &7.25.into()));
        assert_eq!(point["attributes"], json!([attribute("route", "y")]));
        assert_eq!(metrics_of(page, TIME).len(), 3, "a metric without a point is left out");
    }

    #[test]
    fn every_metric_of_the_page_that_has_a_value_is_sent() {
        let metrics = Metrics::default();
        metrics.show_destination();
        metrics.accepted(2, 3, Duration::from_millis(4));
        let page = metrics.render();
        let mut shown = std::collections::BTreeSet::new();
        let mut named = "";
        for line in page.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => named = rest.split(' ').next().unwrap(),
                None if !line.starts_with('#') => drop(shown.insert(named.to_owned())),
                None => {}
            }
        }
        let all = metrics_of(&page, TIME);
        let sent = all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        assert_eq!(shown, sent);
        assert!(shown.len() > 20, "{shown:?}");
        // As many points as the page has lines, and every one has a value.
        let points: Vec<&Json> = (all.iter())
            .flat_map(|one| ["sum", "gauge", "histogram"].map(|kind| &one[kind]["dataPoints"]))
            .flat_map(|points| points.as_array().into_iter().flatten())
            .collect();
        let is_point = |line: &&str| {
            !line.starts_with('#') && !line.contains("_bucket{") && !line.contains("_sum")
        };
        assert_eq!(points.len(), page.lines().filter(is_point).count());
        for point in points {
            let has = |name: &str| point.get(name).is_some();
            assert!(has("asInt") || has("asDouble") || has("count"), "{point}");
        }
    }
}
