//! Events in and out. `data` and `old` are the bytes that came in, and are never re-written.

use bytes::Bytes;
use postrider_domain::event::{EventType, RawJson};
use postrider_domain::time::Timestamp;
use postrider_engine::{Ingested, NewEvent};
use postrider_store::EventRecord;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::delivery::DeliveryView;
use crate::body;
use crate::problem::{Code, Problem};

/// An event as the application sends it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEvent)]
pub(crate) struct EventBody<'a> {
    /// What happened: words joined by dots.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "task.updated", max_length = 128)]
    kind: Option<String>,
    /// The new state: any JSON. Delivered byte for byte.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = serde_json::Value, required = true)]
    data: Option<&'a RawValue>,
    /// The state before: any JSON.
    #[serde(borrow, default, deserialize_with = "given")]
    #[schema(value_type = serde_json::Value, required = false)]
    old: Option<&'a RawValue>,
    /// What it happened to.
    #[schema(max_length = 256)]
    object: Option<String>,
    /// Unique in the tenant; the same one again is the same event. Made where it is left out.
    #[schema(max_length = 256)]
    id: Option<String>,
    /// When it happened; now where it is left out.
    #[schema(format = DateTime)]
    time: Option<String>,
}

/// Null is a state like any other; only what is left out is absent.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// How the bytes of an event relate to the bytes of its request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keep<'a> {
    /// The event is the request: its bytes are shared.
    Shared(&'a Bytes),
    /// The event is one of many: its bytes are copied, so that it does not hold the others.
    Copied,
}

/// Reads one event.
pub(crate) fn read(text: &[u8], keep: Keep<'_>) -> Result<NewEvent, Problem> {
    // The quick parser first; the slower one that knows the field of a fault only where there is one.
    let body: EventBody<'_> = match serde_json::from_slice(text) {
        Ok(body) => body,
        Err(_) => body::parse_fields(text)?,
    };
    let kind: EventType = body
        .kind
        .ok_or_else(|| Problem::missing("type"))?
        .parse()
        .map_err(|error| Problem::field("type", error))?;
    if kind.is_reserved() {
        let detail = "types that begin with postrider. are Postrider's own: choose another name";
        return Err(Problem::new(Code::ReservedType, detail).at("type"));
    }
    let data = body.data.ok_or_else(|| Problem::missing("data"))?;
    Ok(NewEvent {
        kind,
        data: raw("data", data, keep)?,
        old: body.old.map(|old| raw("old", old, keep)).transpose()?,
        object: parse("object", body.object)?,
        id: parse("id", body.id)?,
        time: parse("time", body.time)?,
        trace: None,
    })
}

fn raw(field: &str, value: &RawValue, keep: Keep<'_>) -> Result<RawJson, Problem> {
    let kept = RawJson::of_value(value, |bytes| match keep {
        Keep::Shared(request) => request.slice_ref(bytes),
        Keep::Copied => Bytes::copy_from_slice(bytes),
    });
    kept.map_err(|fault| body::json_problem(fault).at(field))
}

fn parse<T: std::str::FromStr<Err: ToString>>(
    field: &str,
    text: Option<String>,
) -> Result<Option<T>, Problem> {
    crate::paging::parameter(field, text.as_deref())
}

/// What became of an event.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventAccepted {
    /// The event's identifier.
    #[schema(example = "evt_019a86d99e3877078707070707070707")]
    id: String,
    /// How many deliveries are owed for it.
    deliveries: u32,
    /// True where it had been accepted before; nothing new is owed then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    duplicate: bool,
}

impl EventAccepted {
    pub(crate) fn of(ingested: &Ingested) -> Self {
        EventAccepted {
            id: ingested.id.to_string(),
            deliveries: ingested.deliveries,
            duplicate: ingested.duplicate,
        }
    }
}

/// What became of the events of a batch, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BatchAccepted {
    pub(crate) results: Vec<EventAccepted>,
}

/// An event in a list, without its payload.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventSummary {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    object: Option<String>,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    accepted_at: Timestamp,
    /// How many deliveries are owed for it.
    delivery_count: u32,
}

impl EventSummary {
    pub(crate) fn of(record: &EventRecord) -> Self {
        let event = &record.event;
        EventSummary {
            id: event.id.to_string(),
            kind: event.kind.to_string(),
            object: event.object.as_ref().map(ToString::to_string),
            time: event.time,
            accepted_at: record.accepted_at,
            delivery_count: record.deliveries,
        }
    }
}

/// One event with its payload and its deliveries.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventDetail {
    #[serde(flatten)]
    summary: EventSummary,
    /// The new state.
    #[schema(value_type = serde_json::Value)]
    data: Box<RawValue>,
    /// The state before; null where none was given.
    #[schema(value_type = serde_json::Value)]
    old: Option<Box<RawValue>>,
    /// The newest thousand; see `GET /v1/deliveries?event=…` for more.
    deliveries: Vec<DeliveryView>,
}

impl EventDetail {
    pub(crate) fn of(record: &EventRecord, deliveries: Vec<DeliveryView>) -> Result<Self, Problem> {
        let old = record.event.old.as_ref().map(boxed).transpose()?;
        let (summary, data) = (EventSummary::of(record), boxed(&record.event.data)?);
        Ok(EventDetail { summary, data, old, deliveries })
    }
}

fn boxed(json: &RawJson) -> Result<Box<RawValue>, Problem> {
    let text = std::str::from_utf8(json.as_bytes()).map_err(|_| Problem::internal())?;
    RawValue::from_string(text.to_owned()).map_err(|_| Problem::internal())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, code: Code, field: Option<&str>) {
        let problem = read(body.as_bytes(), Keep::Copied).unwrap_err();
        let json = serde_json::to_value(problem.body()).unwrap();
        assert_eq!((problem.code(), json["field"].as_str()), (code, field), "{body}: {json}");
    }

    #[test]
    fn faults_of_an_event_name_their_field() {
        let deep = format!("{{\"type\": \"a\", \"data\": {}{}}}", "[".repeat(65), "]".repeat(65));
        let deeper = deep.replace('[', "[[").replace(']', "]]");
        for (body, code, field) in [
            ("", Code::InvalidJson, None),
            ("{\"type\": \"a\", \"data\": {}", Code::InvalidJson, None),
            ("{\"type\": \"a\", \"data\": {]}", Code::InvalidJson, None),
            ("null", Code::InvalidField, None),
            ("{\"data\": 1}", Code::MissingField, Some("type")),
            ("{\"type\": \"a\"}", Code::MissingField, Some("data")),
            ("{\"type\": \"a b\", \"data\": 1}", Code::InvalidField, Some("type")),
            ("{\"type\": 7, \"data\": 1}", Code::InvalidField, Some("type")),
            ("{\"type\": \"postrider.x\", \"data\": 1}", Code::ReservedType, Some("type")),
            ("{\"type\": \"a\", \"data\": 1, \"id\": \"\"}", Code::InvalidField, Some("id")),
            ("{\"type\": \"a\", \"data\": 1, \"object\": \"\\n\"}", Code::InvalidField, {
                Some("object")
            }),
            ("{\"type\": \"a\", \"data\": 1, \"time\": \"now\"}", Code::InvalidField, Some("time")),
            ("{\"type\": \"a\", \"data\": 1, \"dta\": 1}", Code::UnknownField, Some("dta")),
            (&deep, Code::InvalidField, Some("data")),
            (&deeper, Code::InvalidField, Some("data")),
        ] {
            check(body, code, field);
        }
    }

    #[test]
    fn payloads_are_kept_byte_for_byte_and_null_is_a_state() {
        let text =
            "{\"type\": \"a.b\", \"data\": { \"z\":1e2,\"a\" : \"\\u00e9\" }, \"old\": null}";
        let request = Bytes::from(text);
        for keep in [Keep::Shared(&request), Keep::Copied] {
            let event = read(&request, keep).unwrap();
            assert_eq!(event.data.as_bytes(), "{ \"z\":1e2,\"a\" : \"\\u00e9\" }");
            assert_eq!(event.old.unwrap().as_bytes(), "null");
            assert_eq!((event.id, event.time), (None, None));
        }
    }
}
