//! Accepted events and attempts as spans of a trace, for whoever records traces.
//!
//! Where nobody does, nothing is measured, drawn or told: what a request said of its trace is kept
//! with its event and passed on, and that is all. **Nobody waits for who is told.**

use std::sync::Arc;

use postrider_domain::attempt::Finished;
use postrider_domain::event::EventType;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, TenantId};
use postrider_domain::trace::TraceContext;

use crate::entropy::Entropy;
use crate::ingest::NewEvent;

/// Records spans. Must answer at once, whatever becomes of them.
pub trait Spans: Send + Sync + 'static {
    /// The time, in nanoseconds since 1970.
    fn now(&self) -> u64;
    /// Whether a trace that begins here is recorded.
    fn begins(&self, trace: [u8; 16]) -> bool;
    /// An event was accepted, or had been before.
    fn accepted(&self, span: AcceptedSpan<'_>);
    /// An attempt ended.
    fn attempted(&self, span: AttemptSpan<'_>);
}

/// The acceptance of one event.
#[derive(Debug)]
pub struct AcceptedSpan<'a> {
    /// The trace and this span in it.
    pub context: TraceContext,
    /// The span of whoever sent the event.
    pub parent: Option<[u8; 8]>,
    /// Whose event.
    pub tenant: &'a TenantId,
    /// Which event.
    pub event: &'a EventId,
    /// Of which type.
    pub kind: &'a EventType,
    /// How many deliveries are owed for it.
    pub deliveries: u32,
    /// Whether it had been accepted before.
    pub duplicate: bool,
    /// When it began and when it was durable, in nanoseconds since 1970.
    pub time: (u64, u64),
}

/// One attempt.
#[derive(Debug)]
pub struct AttemptSpan<'a> {
    /// The trace and this span in it, as the receiver was told.
    pub context: TraceContext,
    /// The span of the event's acceptance.
    pub parent: Option<[u8; 8]>,
    /// Whose delivery.
    pub tenant: &'a TenantId,
    /// Of which event.
    pub event: &'a EventId,
    /// Of which type.
    pub kind: &'a EventType,
    /// Which delivery.
    pub delivery: DeliveryId,
    /// Where to.
    pub destination: DestinationId,
    /// Which attempt, from 1.
    pub number: u32,
    /// How it went.
    pub finished: &'a Finished,
    /// When it began and ended, in nanoseconds since 1970.
    pub time: (u64, u64),
}

/// The spans of a batch that is being accepted.
pub(crate) struct Accepting {
    spans: Arc<dyn Spans>,
    began: u64,
    /// For each event, where it is recorded: its context and its parent.
    contexts: Vec<Option<(TraceContext, Option<[u8; 8]>)>>,
}

impl Accepting {
    /// Gives each event whose trace is recorded a span of its own, as which it causes its attempts.
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

    /// Tells of one event that is durable now.
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
