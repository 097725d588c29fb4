//! Accepted events and attempts as spans of a trace, for a trace exporter.
//!
//! Without an exporter nothing is measured or reported: the trace context of a request is stored
//! with its event and passed on. **Nothing waits for the exporter.**

use std::sync::Arc;

use postrider_domain::attempt::Finished;
use postrider_domain::egress::DestinationUrl;
use postrider_domain::event::EventType;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, TenantId};
use postrider_domain::trace::TraceContext;

use crate::entropy::Entropy;
use crate::ingest::NewEvent;

/// Records spans. Every method must return at once.
pub trait Spans: Send + Sync + 'static {
    /// The time, in nanoseconds since the Unix epoch.
    fn now(&self) -> u64;
    /// Whether a trace that begins here is to be recorded.
    fn begins(&self, trace: [u8; 16]) -> bool;
    /// Called when an event was accepted, or recognised as a repeat.
    fn accepted(&self, span: AcceptedSpan<'_>);
    /// Called when an attempt ended.
    fn attempted(&self, span: AttemptSpan<'_>);
}

/// The acceptance of one event.
#[derive(Debug)]
pub struct AcceptedSpan<'a> {
    /// The trace, with this span.
    pub context: TraceContext,
    /// The span of the application that sent the event.
    pub parent: Option<[u8; 8]>,
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The event.
    pub event: &'a EventId,
    /// The event's type.
    pub kind: &'a EventType,
    /// How many deliveries it has.
    pub deliveries: u32,
    /// Whether it was accepted before.
    pub duplicate: bool,
    /// When the acceptance began and when it was durable, in nanoseconds since the Unix epoch.
    pub time: (u64, u64),
}

/// One attempt.
#[derive(Debug)]
pub struct AttemptSpan<'a> {
    /// The trace, with this span, as sent to the receiver.
    pub context: TraceContext,
    /// The span of the event's acceptance.
    pub parent: Option<[u8; 8]>,
    /// The tenant.
    pub tenant: &'a TenantId,
    /// The event.
    pub event: &'a EventId,
    /// The event's type.
    pub kind: &'a EventType,
    /// The delivery.
    pub delivery: DeliveryId,
    /// The destination.
    pub destination: DestinationId,
    /// Its URL.
    pub url: &'a DestinationUrl,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The outcome.
    pub finished: &'a Finished,
    /// When it began and ended, in nanoseconds since the Unix epoch.
    pub time: (u64, u64),
}

/// The spans of a batch that is being accepted.
pub(crate) struct Accepting {
    spans: Arc<dyn Spans>,
    began: u64,
    /// The context and the parent of each event, if it is recorded.
    contexts: Vec<Option<(TraceContext, Option<[u8; 8]>)>>,
}

impl Accepting {
    /// Gives each event whose trace is recorded a span of its own, which is the parent of its
    /// attempts.
    pub(crate) fn begin(
        spans: &Arc<dyn Spans>,
        entropy: &dyn Entropy,
        events: &mut [NewEvent],
    ) -> Self {
        let contexts = events.iter_mut().map(|event| {
            let mut random = [0; 24];
            entropy.fill(&mut random);
            let (trace, span) = random.split_first_chunk::<16>()?;
            let given = event.trace;
            let trace = given.map_or(*trace, |given| given.trace());
            if !given.map_or_else(|| spans.begins(trace), |given| given.is_sampled()) {
                return None;
            }
            let context = TraceContext::new(trace, *span.first_chunk()?, true)?;
            event.trace = Some(context);
            Some((context, given.map(|given| given.span())))
        });
        Accepting { contexts: contexts.collect(), began: spans.now(), spans: Arc::clone(spans) }
    }

    /// Reports an event that is durable now.
    pub(crate) fn accepted(
        &self,
        index: usize,
        tenant: &TenantId,
        (event, kind): (&EventId, &EventType),
        (deliveries, duplicate): (u32, bool),
    ) {
        if let Some(Some((context, parent))) = self.contexts.get(index).copied() {
            let time = (self.began, self.spans.now());
            let span =
                AcceptedSpan { context, parent, tenant, event, kind, deliveries, duplicate, time };
            self.spans.accepted(span);
        }
    }
}
