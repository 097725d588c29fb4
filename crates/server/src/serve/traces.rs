//! Exports traces: accepted events and attempts as spans, in batches, to the configured collector
//! (OTLP over HTTP, JSON).
//!
//! **Nothing waits for the collector**: spans are queued up to a limit. If the queue is full, or
//! the collector fails, they are dropped and counted. A span consists of identifiers, classes,
//! times and the host of the receiver; it has no payload, token, path or resolved address.

use std::time::Duration;

use postrider_domain::hex;
use postrider_domain::policy::Share;
use postrider_domain::trace::TraceContext;
use postrider_engine::{AcceptedSpan, AttemptSpan, Spans};
use serde_json::{Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use super::metrics::{Metrics, class};
use super::otlp::{Collector, Complaints, scope, unix_nanoseconds};

/// Spans in the queue.
const QUEUE_MAX: usize = 8192;
/// Spans in one request.
const BATCH_MAX: usize = 512;
/// The longest time that the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long the shutdown waits for the last spans.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// Span kinds of the protocol.
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

enum QueueItem {
    Span(Json),
    Flush(oneshot::Sender<()>),
}

/// Queues spans for the task that sends them. Clones share the queue.
#[derive(Clone)]
pub(super) struct Exporter {
    queue: mpsc::Sender<QueueItem>,
    sample: Share,
    metrics: Metrics,
}

impl Exporter {
    /// Starts to send to this collector.
    pub(super) fn start(collector: Collector, sample: Share, metrics: &Metrics) -> Exporter {
        let (queue, spans) = mpsc::channel(QUEUE_MAX);
        drop(tokio::spawn(send_all(spans, collector, metrics.clone())));
        Exporter { queue, sample, metrics: metrics.clone() }
    }

    /// Waits until the queued spans are sent, for a limited time.
    pub(super) async fn flush(&self) {
        let (done, sent) = oneshot::channel();
        if self.queue.try_send(QueueItem::Flush(done)).is_ok() {
            // The process ends even if the spans were not sent in time.
            drop(tokio::time::timeout(FLUSH_MAX, sent).await);
        }
    }

    fn put(&self, span: Json) {
        if self.queue.try_send(QueueItem::Span(span)).is_err() {
            self.metrics.spans(0, 1);
        }
    }
}

impl Spans for Exporter {
    fn now(&self) -> u64 {
        unix_nanoseconds()
    }

    fn begins(&self, trace: [u8; 16]) -> bool {
        // The identifier is random, so a part of it decides, the same way on every node.
        let part = trace.last_chunk::<4>().map_or(0, |part| u32::from_be_bytes(*part));
        part % 1_000_000 < self.sample.as_millionths()
    }

    fn accepted(&self, span: AcceptedSpan<'_>) {
        let attributes = [
            ("postrider.tenant", json!({"stringValue": span.tenant})),
            ("postrider.event.id", json!({"stringValue": span.event})),
            ("postrider.event.type", json!({"stringValue": span.kind.as_str()})),
            ("postrider.deliveries", json!({"intValue": span.deliveries.to_string()})),
            ("postrider.duplicate", json!({"boolValue": span.duplicate})),
        ];
        let head = SpanHead { name: "accept event", kind: SERVER, error: None };
        self.put(written(span.context, span.parent, head, span.time, &attributes));
    }

    fn attempted(&self, span: AttemptSpan<'_>) {
        let ending = &span.finished.ending;
        let error = (!ending.is_success()).then(|| class(ending));
        let mut attributes = vec![
            ("http.request.method", json!({"stringValue": "POST"})),
            ("postrider.tenant", json!({"stringValue": span.tenant})),
            ("postrider.event.id", json!({"stringValue": span.event})),
            ("postrider.event.type", json!({"stringValue": span.kind.as_str()})),
            ("postrider.delivery.id", json!({"stringValue": span.delivery})),
            ("postrider.destination.id", json!({"stringValue": span.destination})),
            ("postrider.attempt", json!({"intValue": span.number.to_string()})),
            ("server.address", json!({"stringValue": span.url.host().to_string()})),
            ("server.port", json!({"intValue": span.url.port_or_default().to_string()})),
        ];
        if let Some(status) = ending.status() {
            let status = json!({"intValue": status.to_string()});
            attributes.push(("http.response.status_code", status));
        }
        if let Some(error) = error {
            attributes.push(("error.type", json!({"stringValue": error})));
        }
        let head = SpanHead { name: "attempt delivery", kind: CLIENT, error };
        self.put(written(span.context, span.parent, head, span.time, &attributes));
    }
}

/// The identity, name and time of a span.
struct SpanHead {
    name: &'static str,
    kind: u8,
    error: Option<&'static str>,
}

/// A span in OTLP's JSON form.
fn written(
    context: TraceContext,
    parent: Option<[u8; 8]>,
    SpanHead { name, kind, error }: SpanHead,
    (began, ended): (u64, u64),
    attributes: &[(&str, Json)],
) -> Json {
    let attributes: Vec<Json> =
        attributes.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    let status = match error {
        None => json!({"code": 1}),
        Some(what) => json!({"code": 2, "message": what}),
    };
    json!({
        "traceId": hex::encode(&context.trace()),
        "spanId": hex::encode(&context.span()),
        "parentSpanId": parent.map(|parent| hex::encode(&parent)).unwrap_or_default(),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes,
        "status": status,
    })
}

/// A request with spans, in OTLP's JSON form.
fn request(spans: &[Json], resource: &Json) -> Json {
    json!({"resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{"scope": scope(), "spans": spans}],
    }]})
}

/// Sends queued spans in batches, until all exporters are dropped.
async fn send_all(mut queue: mpsc::Receiver<QueueItem>, collector: Collector, metrics: Metrics) {
    let mut complaints = Complaints::default();
    while let Some(first) = queue.recv().await {
        let (mut spans, mut waiting) = (Vec::new(), Vec::new());
        sort(first, &mut spans, &mut waiting);
        let gather = async {
            while spans.len() < BATCH_MAX && waiting.is_empty() {
                let Some(next) = queue.recv().await else { break };
                sort(next, &mut spans, &mut waiting);
            }
        };
        // The batch is sent when it is full or the time limit is reached.
        drop(tokio::time::timeout(GATHER, gather).await);
        if !spans.is_empty() {
            let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
            let request = request(&spans, &collector.resource());
            match collector.send("/v1/traces", &request).await {
                Ok(()) => metrics.spans(count, 0),
                Err(why) => {
                    metrics.spans(0, count);
                    if complaints.is_due() {
                        let told = "the trace collector did not accept spans; they are lost";
                        tracing::warn!(spans = count, why, "{told}");
                    }
                }
            }
        }
        for done in waiting {
            // The caller of `flush` may have given up.
            done.send(()).unwrap_or_default();
        }
    }
}

fn sort(item: QueueItem, spans: &mut Vec<Json>, waiting: &mut Vec<oneshot::Sender<()>>) {
    match item {
        QueueItem::Span(span) => spans.push(span),
        QueueItem::Flush(done) => waiting.push(done),
    }
}
