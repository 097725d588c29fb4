//! One attempt: the request is built from the stored bytes, sent, and its outcome is reported.
//!
//! Signing happens here, once per attempt, and nowhere else; the body is shared with the other
//! attempts of the event. The credentials that were sent are removed from the receiver's response
//! before it leaves this file.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use postrider_domain::attempt::{Ending, Finished, OwnFault, OwnFaultKind, Timings};
use postrider_domain::ids::DeliveryId;
use postrider_domain::policy::AttemptPolicy;
use postrider_domain::signature;
use postrider_domain::time::Timestamp;
use postrider_domain::trace::{self, TraceContext};
use postrider_transport::{Clock, Request, Target, Transport};
use tokio::sync::mpsc;

use crate::background::{Background, LARGE_BYTES};
use crate::core::{Attempted, Input};
use crate::directory::{Keys, Prepared};
use crate::loaded::Loaded;
use crate::spans::{AttemptSpan, Spans};

const WEBHOOK_ID: HeaderName = HeaderName::from_static(signature::ID_HEADER);
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static(signature::TIMESTAMP_HEADER);
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static(signature::SIGNATURE_HEADER);

const TRACEPARENT: HeaderName = HeaderName::from_static(trace::HEADER);

/// Everything that one attempt needs.
#[derive(Debug, Clone)]
pub(crate) struct AttemptPlan {
    pub(crate) delivery: DeliveryId,
    /// The number of the attempt of this delivery, from 1.
    pub(crate) number: u32,
    pub(crate) event: Arc<Loaded>,
    pub(crate) prepared: Arc<Prepared>,
    pub(crate) target: Option<Arc<Target>>,
    pub(crate) limits: AttemptPolicy,
}

/// Carries out attempts, each in a task of its own. Hides the type of the transport.
pub(crate) trait Runner: Send + Sync + 'static {
    /// Begins an attempt; its outcome is sent to the core.
    fn begin(&self, plan: AttemptPlan, report: mpsc::UnboundedSender<Input>);
    /// Begins a test send; its outcome is sent to the caller.
    fn begin_test(&self, plan: AttemptPlan, report: tokio::sync::oneshot::Sender<Finished>);
}

/// Runs attempts over a transport.
pub(crate) struct TransportRunner<T> {
    pub(crate) transport: Arc<T>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) spans: Option<Arc<dyn Spans>>,
    pub(crate) background: Background,
}

impl<T: Transport> Runner for TransportRunner<T> {
    fn begin(&self, plan: AttemptPlan, report: mpsc::UnboundedSender<Input>) {
        let (transport, clock) = (Arc::clone(&self.transport), Arc::clone(&self.clock));
        let spans = self.spans.clone();
        self.background.spawn(plan.event.bytes() >= LARGE_BYTES, async move {
            let delivery = plan.delivery;
            let finished = run(&*transport, &*clock, spans.as_deref(), plan).await;
            // Sending fails only after the engine has shut down: then nothing is settled.
            drop(report.send(Input::Finished(delivery, Attempted::Ended(finished))));
        });
    }

    fn begin_test(&self, plan: AttemptPlan, report: tokio::sync::oneshot::Sender<Finished>) {
        let (transport, clock) = (Arc::clone(&self.transport), Arc::clone(&self.clock));
        let spans = self.spans.clone();
        tokio::spawn(async move {
            // The caller may have gone away.
            drop(report.send(run(&*transport, &*clock, spans.as_deref(), plan).await));
        });
    }
}

async fn run<T: Transport>(
    transport: &T,
    clock: &dyn Clock,
    spans: Option<&dyn Spans>,
    plan: AttemptPlan,
) -> Finished {
    let started_at = clock.now();
    let keys = match &plan.prepared.keys {
        Ok(keys) => keys,
        Err(error) => return own_fault(started_at, error.to_string()),
    };
    let Some(target) = &plan.target else {
        return own_fault(started_at, "the URL cannot be put into a request".to_owned());
    };
    // Client certificate, token and headers belong to the subscription's current URL: never send
    // them to another.
    let is_own = target.destination() == plan.prepared.subscription.destination;
    let target = keys.target.as_ref().filter(|_| is_own).unwrap_or(target);
    let context = TraceContext::of_attempt(plan.event.event.trace, plan.delivery, plan.number);
    // Receivers compare `webhook-timestamp` with their own clocks, so it is the time of day.
    let times = (started_at, clock.wall());
    let request = request(&plan, keys, Arc::clone(target), context, times);
    let mut finished = transport.send(request).await;
    scrub(&mut finished, keys);
    if let Some(spans) = spans.filter(|_| context.is_sampled()) {
        tell(spans, context, &plan, target, &finished);
    }
    finished
}

/// Reports an attempt as a span, if its trace is recorded.
fn tell(
    spans: &dyn Spans,
    context: TraceContext,
    plan: &AttemptPlan,
    target: &Target,
    finished: &Finished,
) {
    let ended = spans.now();
    let took = u64::try_from(finished.timings.total.as_nanos()).unwrap_or(u64::MAX);
    spans.attempted(AttemptSpan {
        context,
        parent: plan.event.event.trace.map(|event| event.span()),
        tenant: &plan.event.event.tenant,
        event: &plan.event.event.id,
        kind: &plan.event.event.kind,
        delivery: plan.delivery,
        destination: target.destination(),
        url: target.url(),
        number: plan.number,
        finished,
        time: (ended.saturating_sub(took), ended),
    });
}

pub(crate) fn request(
    plan: &AttemptPlan,
    keys: &Keys,
    target: Arc<Target>,
    context: TraceContext,
    (now, wall): (Timestamp, Timestamp),
) -> Request {
    let AttemptPlan { delivery, event, prepared, limits, .. } = plan;
    let payload = event.payload(&prepared.subscription, *delivery);
    let (id, seconds) = (delivery.to_string(), wall.as_unix_seconds());
    let parts = payload.body.parts().map(|part| &part[..]);
    let signed = signature::sign_parts(keys.secrets.valid_at(now), &id, seconds, parts);
    // Token and headers belong to the subscription's current URL: deliveries to an earlier URL are
    // sent without them.
    let own = Some(keys).filter(|_| target.destination() == prepared.subscription.destination);
    let mut headers = Vec::with_capacity(keys.headers.len() + 6);
    headers.push((CONTENT_TYPE, HeaderValue::from_static(payload.content_type)));
    // Identifiers, numbers, base64 and trace contexts are always valid header values.
    let mut add = |name, text: String| {
        headers.extend(HeaderValue::try_from(text).ok().map(|value| (name, value)));
    };
    add(WEBHOOK_ID, id);
    add(WEBHOOK_SIGNATURE, signed);
    if !own.is_some_and(|keys| keys.has_own_trace) {
        add(TRACEPARENT, context.to_string());
    }
    headers.push((WEBHOOK_TIMESTAMP, HeaderValue::from(seconds)));
    if let Some(keys) = own {
        headers.extend(keys.authorization.clone().map(|value| (AUTHORIZATION, value)));
        headers.extend(keys.headers.iter().cloned());
    }
    Request {
        target,
        headers,
        body: payload.body,
        deadline: limits.deadline,
        response_body_bytes_max: limits.response_body_bytes_max,
    }
}

/// Masks the sent credentials in the receiver's response.
fn scrub(finished: &mut Finished, keys: &Keys) {
    if let Ending::Answered(answer) = &mut finished.ending
        && let Cow::Owned(clean) = keys.scrubber.scrub(&answer.body)
    {
        answer.body = Bytes::from(clean);
    }
}

/// The outcome of an attempt that could not be started.
pub(crate) fn own_fault(started_at: Timestamp, detail: String) -> Finished {
    Finished {
        started_at,
        timings: Timings { total: Duration::ZERO, ..Timings::default() },
        ending: Ending::OwnFault(OwnFault { kind: OwnFaultKind::Internal, detail }),
    }
}
