//! Traces: the trace context of a request is sent to every receiver, at every attempt.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use postrider_domain::trace::TraceContext;
use postrider_engine::{AcceptedSpan, AttemptSpan, NewEvent, Spans};

use crate::world::*;

const URL: &str = "https://hooks.example.com/in";
const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn traced(context: &str) -> NewEvent {
    NewEvent { trace: TraceContext::parse(context), ..event("{}") }
}

/// The trace contexts that were sent to a URL, in order.
fn sent(world: &World, url: &str) -> Vec<TraceContext> {
    let sent = world.script.sent_to(url).into_iter();
    sent.map(|sent| TraceContext::parse(&sent.headers["traceparent"]).unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn every_attempt_continues_the_trace_of_its_event_also_after_a_crash() {
    let mut world = World::new().await;
    let other = "https://hooks.example.com/other";
    world.subscribe(URL).await;
    world.subscribe(other).await;
    world.script.first(URL, [FAIL, FAIL]);
    world.engine.ingest(&tenant(), vec![traced(GIVEN)]).await.unwrap();
    world.pass(MINUTE * 2).await;
    world.crash().await;
    world.pass(MINUTE * 5).await;
    let given = TraceContext::parse(GIVEN).unwrap();
    let contexts = [sent(&world, URL), sent(&world, other)].concat();
    assert_eq!(contexts.len(), 4);
    let spans: BTreeSet<_> = contexts.iter().map(TraceContext::span).collect();
    assert_eq!(spans.len(), 4, "each is a span of its own");
    assert!(!spans.contains(&given.span()));
    assert!(contexts.iter().all(|one| one.trace() == given.trace() && one.is_sampled()));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_of_an_event_without_a_trace_is_one_itself() {
    let mut world = World::new().await;
    world.subscribe(URL).await;
    world.script.first(URL, [FAIL]);
    let ingested = world.send().await;
    world.pass(MINUTE * 2).await;
    let delivery = world.delivery(&ingested).await;
    let contexts = sent(&world, URL);
    assert_eq!(contexts.len(), 2);
    assert!(contexts.iter().all(|one| one.trace() == *delivery.id.as_bytes()));
    assert_ne!(contexts[0].span(), contexts[1].span());
    assert!(!contexts[0].is_sampled(), "nobody records it");
}

/// A recorded span: its context, its parent, its description.
type Told = (TraceContext, Option<[u8; 8]>, String);

/// Records the reported spans.
#[derive(Default)]
struct Notes {
    begins: bool,
    told: Mutex<Vec<Told>>,
}

impl Spans for Notes {
    fn now(&self) -> u64 {
        1_000
    }

    fn begins(&self, _trace: [u8; 16]) -> bool {
        self.begins
    }

    fn accepted(&self, span: AcceptedSpan<'_>) {
        let what = format!("accepted {} {}", span.deliveries, span.duplicate);
        self.told.lock().unwrap().push((span.context, span.parent, what));
    }

    fn attempted(&self, span: AttemptSpan<'_>) {
        let what = format!("attempt {} {:?}", span.number, span.finished.ending.status());
        self.told.lock().unwrap().push((span.context, span.parent, what));
    }
}

async fn recorded(begins: bool) -> (World, Arc<Notes>) {
    let notes = Arc::new(Notes { begins, ..Notes::default() });
    let mut world = World::recorded_by(Arc::clone(&notes) as Arc<dyn Spans>).await;
    world.subscribe(URL).await;
    world.script.first(URL, [FAIL]);
    (world, notes)
}

#[tokio::test(start_paused = true)]
async fn event_and_each_attempt_are_recorded_as_parent_and_children() {
    for given in [Some(GIVEN), None] {
        let (world, notes) = recorded(true).await;
        let new = NewEvent { id: Some("e1".parse().unwrap()), ..traced(given.unwrap_or("")) };
        world.engine.ingest(&tenant(), vec![new.clone()]).await.unwrap();
        world.pass(MINUTE * 2).await;
        world.engine.ingest(&tenant(), vec![new]).await.unwrap();
        let told = notes.told.lock().unwrap().clone();
        let what: Vec<&str> = told.iter().map(|(_, _, what)| what.as_str()).collect();
        assert_eq!(
            what,
            ["accepted 1 false", "attempt 1 Some(500)", "attempt 2 Some(200)", "accepted 1 true"]
        );
        let (context, parent, _) = &told[0];
        let given = given.and_then(TraceContext::parse);
        assert_eq!(*parent, given.map(|given| given.span()));
        assert!(given.is_none_or(|given| given.trace() == context.trace()));
        for (n, (attempt, parent, _)) in told[1..3].iter().enumerate() {
            assert_eq!(attempt.trace(), context.trace());
            assert_eq!(*parent, Some(context.span()));
            assert_eq!(sent(&world, URL)[n], *attempt, "the receiver is told the same");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unsampled_trace_is_passed_on_and_not_recorded() {
    let unsampled = GIVEN.replace("-01", "-00");
    for given in [unsampled.as_str(), ""] {
        let (world, notes) = recorded(false).await;
        world.engine.ingest(&tenant(), vec![traced(given)]).await.unwrap();
        world.pass(MINUTE * 2).await;
        assert!(notes.told.lock().unwrap().is_empty());
        assert!(sent(&world, URL).iter().all(|one| !one.is_sampled()));
    }
}
