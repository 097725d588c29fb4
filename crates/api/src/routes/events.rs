//! Taking events in, and looking at them.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use postrider_domain::event::RawJson;
use postrider_domain::ids::EventId;
use postrider_domain::limits::{
    BATCH_BODY_BYTES_MAX, BATCH_EVENTS_MAX, EVENT_BODY_BYTES_MAX, PAGE_MAX,
};
use postrider_domain::trace::{self, TraceContext};
use postrider_engine::{IngestError, Ingested, NewEvent};
use postrider_store::{DeliveryFilter, EventFilter, PageRequest};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::IntoParams;

use super::{PathId, busy, stopping};
use crate::auth::{Caller, CanIngest, CanRead};
use crate::body::{self, json_problem, media_type, require_json};
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page, parameter};
use crate::problem::{Code, Problem};
use crate::rates;
use crate::state::ApiState;
use crate::wire::delivery::DeliveryView;
use crate::wire::event::{
    self, BatchAccepted, EventAccepted, EventBody, EventDetail, EventSummary, Keep,
};

/// Send an event
///
/// Answered when the event and all its deliveries are on stable storage. The same `id` again is the
/// same event: nothing new is sent. At most 1 MiB.
#[utoipa::path(
    post, path = "/v1/events", tag = "events",
    request_body = EventBody,
    responses((status = 202, body = EventAccepted, description = "Accepted, or accepted before"))
)]
pub(crate) async fn accept(
    State(state): State<ApiState>,
    CanIngest(caller): CanIngest,
    draw: Draw,
    request: Request,
) -> Result<(StatusCode, Json<EventAccepted>), Problem> {
    require_json(request.headers())?;
    let trace = trace_of(request.headers());
    let body = body::read(request.into_body(), EVENT_BODY_BYTES_MAX, &state).await?;
    let mut event = event::read(&body, Keep::Shared(&body))?;
    event.trace = trace;
    let ingested = ingest(&state, &caller, &draw, vec![event], |_| "id".to_owned()).await?;
    let accepted = ingested.first().map(EventAccepted::of).ok_or_else(Problem::internal)?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Send many events
///
/// A JSON array, or one event a line (`application/x-ndjson`). Accepted whole or refused whole,
/// with the index of the first fault in `field`. At most 1000 events and 16 MiB, 1 MiB each.
#[utoipa::path(
    post, path = "/v1/events/batch", tag = "events",
    request_body(content((Vec<EventBody> = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 202, body = BatchAccepted, description = "What became of each, in order"))
)]
pub(crate) async fn accept_batch(
    State(state): State<ApiState>,
    CanIngest(caller): CanIngest,
    draw: Draw,
    request: Request,
) -> Result<(StatusCode, Json<BatchAccepted>), Problem> {
    let is_lines = is_lines(&request)?;
    let trace = trace_of(request.headers());
    let body = body::read(request.into_body(), BATCH_BODY_BYTES_MAX, &state).await?;
    let mut events = if is_lines { read_lines(&body)? } else { read_array(&body)? };
    for event in &mut events {
        event.trace = trace;
    }
    if events.is_empty() {
        return Ok((StatusCode::ACCEPTED, Json(BatchAccepted { results: Vec::new() })));
    }
    let place = |index| format!("[{index}].id");
    let ingested = ingest(&state, &caller, &draw, events, place).await?;
    let results = ingested.iter().map(EventAccepted::of).collect();
    Ok((StatusCode::ACCEPTED, Json(BatchAccepted { results })))
}

/// Accepts events. Those of a request that may be carried out again get identifiers by which that run
/// recognises them, and are no duplicates of themselves then.
async fn ingest(
    state: &ApiState,
    caller: &Caller,
    draw: &Draw,
    mut events: Vec<NewEvent>,
    place: impl Fn(usize) -> String,
) -> Result<Vec<Ingested>, Problem> {
    let made: Vec<bool> = events.iter().map(|event| event.id.is_none()).collect();
    if draw.is_seeded() {
        for (n, event) in events.iter_mut().enumerate().filter(|(_, event)| event.id.is_none()) {
            let random = draw.bytes(&format!("event id {n}"))?;
            event.id = Some(EventId::new(draw.created_at(state), random));
        }
    }
    let ingested = state.engine().ingest(&caller.tenant, events).await;
    let mut ingested = ingested.map_err(|error| refusal(error, place))?;
    let Some(begun_at) = draw.repeats() else { return Ok(ingested) };
    for (one, is_made) in ingested.iter_mut().zip(made).filter(|(one, _)| one.duplicate) {
        // Its own identifier, or one that was not accepted before this request came.
        one.duplicate = !is_made
            && state
                .store()
                .event(&caller.tenant, &one.id)
                .await?
                .is_none_or(|record| record.accepted_at < begun_at);
    }
    Ok(ingested)
}

/// The trace that a request belongs to. One that is malformed, or named twice, is as good as absent.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut named = headers.get_all(trace::HEADER).into_iter();
    let only = named.next().filter(|_| named.next().is_none())?;
    TraceContext::parse(only.to_str().ok()?)
}

/// Whether a batch says that it is one event a line.
fn is_lines(request: &Request) -> Result<bool, Problem> {
    match media_type(request.headers()).as_deref() {
        Some("application/x-ndjson" | "application/ndjson" | "application/jsonl") => Ok(true),
        Some(_) | None => require_json(request.headers()).map(|()| false),
    }
}

pub(crate) fn read_lines(body: &Bytes) -> Result<Vec<NewEvent>, Problem> {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    read_each(lines.filter(|line| !line.is_empty()))
}

pub(crate) fn read_array(body: &Bytes) -> Result<Vec<NewEvent>, Problem> {
    let items: Vec<&RawValue> = match serde_json::from_slice(body) {
        Ok(items) => items,
        // Not JSON at all, or not an array?
        Err(_) => {
            RawJson::parse(body.clone()).map_err(json_problem)?;
            let detail = "a batch is an array of events: [{…}, {…}]";
            return Err(Problem::new(Code::InvalidField, detail));
        }
    };
    read_each(items.into_iter().map(|item| item.get().as_bytes()))
}

fn read_each<'a>(texts: impl Iterator<Item = &'a [u8]>) -> Result<Vec<NewEvent>, Problem> {
    let mut events = Vec::new();
    for (index, text) in texts.enumerate() {
        let place = format!("[{index}]");
        if index >= BATCH_EVENTS_MAX {
            let detail = format!("a batch has at most {BATCH_EVENTS_MAX} events: send several");
            return Err(Problem::new(Code::TooLarge, detail).at(place));
        }
        if text.len() > EVENT_BODY_BYTES_MAX {
            let detail = format!("an event has at most {EVENT_BODY_BYTES_MAX} bytes: send less");
            return Err(Problem::new(Code::TooLarge, detail).at(place));
        }
        events.push(event::read(text, Keep::Copied).map_err(|problem| problem.below(&place))?);
    }
    Ok(events)
}

/// Why nothing was accepted.
fn refusal(error: IngestError, place: impl Fn(usize) -> String) -> Problem {
    match error {
        IngestError::Conflict { index } => {
            let detail = "this id was used for an event with other content: use a new id";
            Problem::new(Code::EventConflict, detail).at(place(index))
        }
        IngestError::Reserved { .. } | IngestError::TooMany => {
            Problem::new(Code::InvalidField, error.to_string())
        }
        IngestError::TooFast { retry_after } => {
            let seconds = retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0);
            rates::refusal("tenant", seconds.max(1))
        }
        IngestError::Busy(reason) => busy(reason),
        IngestError::Quota(reached) => reached.into(),
        IngestError::Stopping => stopping(),
        IngestError::Store(error) => error.into(),
    }
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// Of this type.
    #[serde(rename = "type")]
    #[param(required = false)]
    kind: Option<String>,
    /// Accepted at or after.
    since: Option<String>,
    /// Accepted before.
    until: Option<String>,
    /// Entries on a page, 1 to 1000; 50 where it is left out.
    limit: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List events
///
/// Newest first, without their payloads.
#[utoipa::path(
    get, path = "/v1/events", tag = "events", params(EventQuery),
    responses((status = 200, body = List<EventSummary>, description = "A page of events"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    Query(query): Query<EventQuery>,
) -> Result<Json<List<EventSummary>>, Problem> {
    let filters = [query.kind.as_deref(), query.since.as_deref(), query.until.as_deref()];
    let list = ListOf { name: "events", tenant: Some(&caller.tenant), filters: &filters };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let filter = EventFilter {
        kind: parameter("type", query.kind.as_deref())?,
        since: parameter("since", query.since.as_deref())?,
        until: parameter("until", query.until.as_deref())?,
    };
    let events = state.store().list_events(&caller.tenant, &filter, &asked.request).await?;
    Ok(Json(List::of(&asked, events, |record| EventSummary::of(&record))))
}

/// Show an event
///
/// With its payload and its deliveries.
#[utoipa::path(
    get, path = "/v1/events/{id}", tag = "events",
    params(("id" = String, Path, description = "The event")),
    responses((status = 200, body = EventDetail, description = "The event"))
)]
pub(crate) async fn show(
    State(state): State<ApiState>,
    CanRead(caller): CanRead,
    id: PathId,
) -> Result<Json<EventDetail>, Problem> {
    let event: EventId = id.of("event")?;
    let record = state.store().event(&caller.tenant, &event).await?;
    let record = record.ok_or_else(|| id.unknown("event"))?;
    let filter = DeliveryFilter { event: Some(event), ..DeliveryFilter::default() };
    let all = PageRequest { limit: PAGE_MAX, cursor: None };
    let deliveries = state.store().list_deliveries(&caller.tenant, &filter, &all).await?;
    let deliveries = DeliveryView::of_all(&state, &deliveries.items).await?;
    Ok(Json(EventDetail::of(&record, deliveries)?))
}
