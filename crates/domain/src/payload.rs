//! The bytes that are sent for an event, in the format that its subscription asks for.
//!
//! `data` and `old` are never parsed or rewritten here: the receiver gets exactly the bytes that
//! were accepted. The body of the format `workfront` names its subscription and is rendered in
//! [`crate::workfront::payload`]. The same event in the same format always gives the same bytes, so every attempt
//! of a delivery sends the same body.

use std::fmt;
use std::io;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{Event, RawJson};

/// The format of a request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// `{"type", "timestamp", "id", "object"?, "data", "old"?}`, as in Standard Webhooks.
    #[default]
    Standard,
    /// CloudEvents 1.0, structured JSON.
    CloudEvents,
    /// `data` alone.
    Raw,
    /// As Adobe Workfront sends it; see [`crate::workfront`].
    Workfront,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 4] =
        [Format::Standard, Format::CloudEvents, Format::Raw, Format::Workfront];

    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Format::Standard => "standard",
            Format::CloudEvents => "cloudevents",
            Format::Raw => "raw",
            Format::Workfront => "workfront",
        }
    }
}

/// The text is not the name of a format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a format: one of standard, cloudevents, raw, workfront")]
pub struct InvalidFormat;

impl FromStr for Format {
    type Err = InvalidFormat;

    fn from_str(text: &str) -> Result<Self, InvalidFormat> {
        Format::ALL.into_iter().find(|format| format.as_str() == text).ok_or(InvalidFormat)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The bytes of a request's body, in two parts that are sent one after the other: so that what many
/// requests have in common is in memory once.
#[derive(Debug, Clone, Default)]
pub struct Body {
    own: Bytes,
    shared: Bytes,
}

impl Body {
    /// The few bytes that this request has of its own, and those that it shares with others.
    pub fn new(own: Bytes, shared: Bytes) -> Self {
        Body { own, shared }
    }

    /// The parts, in their order; either may be empty.
    pub fn parts(&self) -> [&Bytes; 2] {
        [&self.own, &self.shared]
    }

    /// The length of both parts.
    pub fn len(&self) -> usize {
        self.own.len() + self.shared.len()
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.shared.is_empty()
    }

    /// The body in one piece. Copies it only where both parts have bytes.
    pub fn to_bytes(&self) -> Bytes {
        match self.parts() {
            [own, shared] if shared.is_empty() => own.clone(),
            [own, shared] if own.is_empty() => shared.clone(),
            [own, shared] => Bytes::from([&own[..], &shared[..]].concat()),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body { own: Bytes::new(), shared: bytes }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Body) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Body {}

/// The body of a request and its content type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// The body of the request.
    pub body: Body,
    /// The `content-type` of the request.
    pub content_type: &'static str,
}

/// The body in the format `standard`. Copies `data` and `old` once.
pub fn standard(event: &Event) -> Payload {
    let body = Body::from(Bytes::from(render_standard(event)));
    Payload { body, content_type: "application/json" }
}

/// The body in the format `cloudevents`. Copies `data` and `old` once.
pub fn cloudevents(event: &Event) -> Payload {
    let body = Body::from(Bytes::from(render_cloudevents(event)));
    Payload { body, content_type: "application/cloudevents+json" }
}

/// The body in the format `raw`. Copies nothing.
pub fn raw(event: &Event) -> Payload {
    Payload { body: event.data.as_bytes().clone().into(), content_type: "application/json" }
}

fn render_standard(event: &Event) -> Vec<u8> {
    let time = event.time.to_string();
    let (object_key, object) = match &event.object {
        Some(object) => (",\"object\":", Part::Text(object.as_str())),
        None => ("", Part::NOTHING),
    };
    let (old_key, old) = match &event.old {
        Some(old) => (",\"old\":", Part::Json(trimmed(old))),
        None => ("", Part::NOTHING),
    };
    assemble(&[
        Part::Json(b"{\"type\":"),
        Part::Text(event.kind.as_str()),
        Part::Json(b",\"timestamp\":"),
        Part::Text(&time),
        Part::Json(b",\"id\":"),
        Part::Text(event.id.as_str()),
        Part::Json(object_key.as_bytes()),
        object,
        Part::Json(b",\"data\":"),
        Part::Json(trimmed(&event.data)),
        Part::Json(old_key.as_bytes()),
        old,
        Part::Json(b"}"),
    ])
}

fn render_cloudevents(event: &Event) -> Vec<u8> {
    let time = event.time.to_string();
    let source = format!("/tenants/{}", event.tenant);
    let (subject_key, subject) = match &event.object {
        Some(object) => (",\"subject\":", Part::Text(object.as_str())),
        None => ("", Part::NOTHING),
    };
    // A CloudEvents extension attribute must be a scalar, so the old state is a text that contains
    // its JSON.
    let old_text = event.old.as_ref().map(|old| String::from_utf8_lossy(trimmed(old)));
    let (old_key, old) = match &old_text {
        Some(old) => (",\"old\":", Part::Text(old)),
        None => ("", Part::NOTHING),
    };
    assemble(&[
        Part::Json(b"{\"specversion\":\"1.0\",\"id\":"),
        Part::Text(event.id.as_str()),
        Part::Json(b",\"source\":"),
        Part::Text(&source),
        Part::Json(b",\"type\":"),
        Part::Text(event.kind.as_str()),
        Part::Json(b",\"time\":"),
        Part::Text(&time),
        Part::Json(subject_key.as_bytes()),
        subject,
        Part::Json(b",\"datacontenttype\":\"application/json\",\"data\":"),
        Part::Json(trimmed(&event.data)),
        Part::Json(old_key.as_bytes()),
        old,
        Part::Json(b"}"),
    ])
}

/// A JSON value without the white space around it.
fn trimmed(json: &RawJson) -> &[u8] {
    json.as_bytes().trim_ascii()
}

/// A part of a body.
enum Part<'a> {
    /// Copied byte for byte.
    Json(&'a [u8]),
    /// Written as a JSON string, quoted and escaped.
    Text(&'a str),
}

impl Part<'_> {
    const NOTHING: Part<'static> = Part::Json(b"");

    fn write_to(&self, out: &mut impl io::Write) {
        match self {
            Part::Json(json) => out.write_all(json),
            Part::Text(text) => serde_json::to_writer(out, text).map_err(io::Error::from),
        }
        .expect("neither memory nor a counter refuses bytes, and every text is JSON");
    }
}

/// Counts the bytes written to it.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Joins the parts in one allocation of exactly the size they need.
fn assemble(parts: &[Part<'_>]) -> Vec<u8> {
    let mut size = Counter(0);
    parts.iter().for_each(|part| part.write_to(&mut size));
    let mut body = Vec::with_capacity(size.0);
    parts.iter().for_each(|part| part.write_to(&mut body));
    body
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;
    use crate::ids::TenantId;
    use crate::time::Timestamp;

    fn json(text: &str) -> RawJson {
        RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn event(object: Option<&str>, data: &str, old: Option<&str>) -> Event {
        Event {
            id: "evt_1".parse().unwrap(),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: object.map(|object| object.parse().unwrap()),
            data: json(data),
            old: old.map(json),
            time: Timestamp::from_unix_ms(1_763_199_000_120),
            trace: None,
        }
    }

    /// The formats whose body is the same for all subscriptions.
    const SHARED: [Format; 3] = [Format::Standard, Format::CloudEvents, Format::Raw];

    fn render(event: &Event, format: Format) -> Payload {
        match format {
            Format::Standard => standard(event),
            Format::CloudEvents => cloudevents(event),
            Format::Raw => raw(event),
            Format::Workfront => panic!("its body names a subscription"),
        }
    }

    fn check(event: &Event, format: Format, content_type: &str, body: &str) {
        let payload = render(event, format);
        assert_eq!(std::str::from_utf8(&payload.body.to_bytes()).unwrap(), body);
        assert_eq!(payload.content_type, content_type);
        assert_eq!(render(event, format), payload, "the same event gives the same bytes");
    }

    #[test]
    fn standard_has_what_the_specification_asks_for_and_the_rest_where_present() {
        let json = "application/json";
        check(
            &event(None, " {\"b\" : 1.0, \"a\":[]}\n", None),
            Format::Standard,
            json,
            "{\"type\":\"task.updated\",\"timestamp\":\"2025-11-15T09:30:00.120Z\",\"id\":\"evt_1\",\
             \"data\":{\"b\" : 1.0, \"a\":[]}}",
        );
        check(
            &event(Some("Straße \"1\" \\"), "null", Some("\t{\"a\" :0}")),
            Format::Standard,
            json,
            "{\"type\":\"task.updated\",\"timestamp\":\"2025-11-15T09:30:00.120Z\",\"id\":\"evt_1\",\
             \"object\":\"Straße \\\"1\\\" \\\\\",\"data\":null,\"old\":{\"a\" :0}}",
        );
    }

    #[test]
    fn cloudevents_has_the_old_state_as_a_text() {
        let cloudevents = "application/cloudevents+json";
        check(
            &event(None, "[1 ]", None),
            Format::CloudEvents,
            cloudevents,
            "{\"specversion\":\"1.0\",\"id\":\"evt_1\",\"source\":\"/tenants/default\",\
             \"type\":\"task.updated\",\"time\":\"2025-11-15T09:30:00.120Z\",\
             \"datacontenttype\":\"application/json\",\"data\":[1 ]}",
        );
        check(
            &event(Some("5f2"), "2", Some(" {\"a\":\n\"\\n\"} ")),
            Format::CloudEvents,
            cloudevents,
            "{\"specversion\":\"1.0\",\"id\":\"evt_1\",\"source\":\"/tenants/default\",\
             \"type\":\"task.updated\",\"time\":\"2025-11-15T09:30:00.120Z\",\"subject\":\"5f2\",\
             \"datacontenttype\":\"application/json\",\"data\":2,\
             \"old\":\"{\\\"a\\\":\\n\\\"\\\\n\\\"}\"}",
        );
    }

    #[test]
    fn raw_is_the_very_same_memory() {
        let event = event(None, " {\"a\": 1} ", Some("2"));
        let payload = render(&event, Format::Raw);
        let body = payload.body.to_bytes();
        assert_eq!(body, " {\"a\": 1} ");
        assert_eq!(body.as_ptr(), event.data.as_bytes().as_ptr());
        assert_eq!(payload.content_type, "application/json");
    }

    #[test]
    fn bytes_that_a_store_vouches_for_wrongly_do_not_panic() {
        let mut event = event(None, "1", None);
        event.old = Some(RawJson::from_trusted(Bytes::from_static(b"\"\xff\"")));
        for format in SHARED {
            assert!(!render(&event, format).body.is_empty());
        }
    }

    #[test]
    fn a_body_is_its_two_parts_and_copies_only_where_it_must() {
        let (own, shared) = (Bytes::from_static(b"ab"), Bytes::from_static(b"cd"));
        let both = Body::new(own.clone(), shared.clone());
        assert_eq!((both.len(), both.is_empty()), (4, false));
        assert_eq!(both.to_bytes(), "abcd");
        assert_eq!(both, Body::from(Bytes::from_static(b"abcd")));
        assert_ne!(both, Body::from(own.clone()));
        let [first, second] = both.parts();
        assert_eq!((first.as_ptr(), second.as_ptr()), (own.as_ptr(), shared.as_ptr()));
        let alone = Body::new(own.clone(), Bytes::new()).to_bytes();
        assert_eq!(alone.as_ptr(), own.as_ptr());
        assert_eq!(Body::from(shared.clone()).to_bytes().as_ptr(), shared.as_ptr());
        assert!(Body::default().is_empty());
    }

    #[test]
    fn a_counter_counts_and_has_nothing_to_flush() {
        let mut counter = Counter(0);
        counter.write_all(b"abc").unwrap();
        counter.flush().unwrap();
        assert_eq!(counter.0, 3);
    }

    #[test]
    fn formats_have_one_word_each() {
        for (format, word) in [
            (Format::Standard, "standard"),
            (Format::CloudEvents, "cloudevents"),
            (Format::Raw, "raw"),
            (Format::Workfront, "workfront"),
        ] {
            assert_eq!(format.to_string(), word);
            assert_eq!(word.parse(), Ok(format));
            let json = serde_json::to_string(&format).unwrap();
            assert_eq!(json, format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<Format>(&json).unwrap(), format);
        }
        assert_eq!(Format::default(), Format::Standard);
        for bad in ["", "Standard", "cloud_events", "raw "] {
            let error = bad.parse::<Format>().unwrap_err();
            assert_eq!(
                error.to_string(),
                "not a format: one of standard, cloudevents, raw, workfront"
            );
        }
        assert!(serde_json::from_str::<Format>("\"xml\"").is_err());
        assert!(serde_json::from_str::<Format>("7").is_err());
    }

    /// JSON text with white space wherever the grammar allows it.
    fn any_json() -> impl Strategy<Value = String> {
        let space = || "[ \t\r\n]{0,2}";
        let text = any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap());
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
            Just("\"\\u00e4\\/\\ud83d\\ude00\"".to_owned()),
            text.clone(),
        ];
        let padded = (space(), leaf, space()).prop_map(|(a, json, b)| a + &json + &b);
        padded.prop_recursive(4, 32, 4, move |inner| {
            let array = prop::collection::vec(inner.clone(), 0..4)
                .prop_map(|items| format!("[{}]", items.join(",")));
            let field = (space(), text.clone(), space(), inner)
                .prop_map(|(a, key, b, value)| format!("{a}{key}{b}:{value}"));
            let object = prop::collection::vec(field, 0..4)
                .prop_map(|fields| format!("{{{}}}", fields.join(",")));
            (space(), prop_oneof![array, object], space()).prop_map(|(a, json, b)| a + &json + &b)
        })
    }

    fn any_event() -> impl Strategy<Value = Event> {
        (
            "[!-~]{1,40}",
            "[a-z0-9][a-z0-9_-]{0,20}",
            "[a-zA-Z0-9_-]{1,10}(\\.[a-zA-Z0-9_-]{1,10}){0,3}",
            prop::option::of("[^\\pC]{1,40}"),
            any_json(),
            prop::option::of(any_json()),
            any::<i64>(),
        )
            .prop_map(|(id, tenant, kind, object, data, old, unix_ms)| Event {
                id: id.parse().unwrap(),
                tenant: tenant.parse().unwrap(),
                kind: kind.parse().unwrap(),
                object: object.map(|object| object.parse().unwrap()),
                data: json(&data),
                old: old.as_deref().map(json),
                time: Timestamp::from_unix_ms(unix_ms),
                trace: None,
            })
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Standard<'a> {
        r#type: String,
        timestamp: String,
        id: String,
        object: Option<String>,
        #[serde(borrow)]
        data: &'a RawValue,
        #[serde(borrow)]
        old: Option<&'a RawValue>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct CloudEvent<'a> {
        specversion: String,
        id: String,
        source: String,
        r#type: String,
        time: String,
        subject: Option<String>,
        datacontenttype: String,
        #[serde(borrow)]
        data: &'a RawValue,
        old: Option<String>,
    }

    proptest! {
        #[test]
        fn any_event_renders_to_json_with_its_data_byte_for_byte(event in any_event()) {
            let object = event.object.as_ref().map(|object| object.as_str().to_owned());
            let old = event.old.as_ref().map(trimmed);

            let body = render(&event, Format::Standard).body.to_bytes();
            let seen: Standard<'_> = serde_json::from_slice(&body).unwrap();
            prop_assert_eq!(&seen.r#type, event.kind.as_str());
            prop_assert_eq!(seen.timestamp, event.time.to_string());
            prop_assert_eq!(&seen.id, event.id.as_str());
            prop_assert_eq!(&seen.object, &object);
            prop_assert_eq!(seen.data.get().as_bytes(), trimmed(&event.data));
            // serde parses `"old":null` as no old state; the bytes tell the difference.
            let seen_old = seen.old.map(|old| old.get().as_bytes());
            prop_assert_eq!(seen_old, old.filter(|old| *old != b"null"));
            let ends_in_null = body.ends_with(b",\"old\":null}");
            prop_assert_eq!(ends_in_null, old == Some(b"null"));

            let body = render(&event, Format::CloudEvents).body.to_bytes();
            let seen: CloudEvent<'_> = serde_json::from_slice(&body).unwrap();
            prop_assert_eq!(seen.specversion, "1.0");
            prop_assert_eq!(&seen.id, event.id.as_str());
            prop_assert_eq!(seen.source, format!("/tenants/{}", event.tenant));
            prop_assert_eq!(&seen.r#type, event.kind.as_str());
            prop_assert_eq!(seen.time, event.time.to_string());
            prop_assert_eq!(&seen.subject, &object);
            prop_assert_eq!(seen.datacontenttype, "application/json");
            prop_assert_eq!(seen.data.get().as_bytes(), trimmed(&event.data));
            prop_assert_eq!(seen.old.as_deref().map(str::as_bytes), old);

            prop_assert_eq!(&render(&event, Format::Raw).body.to_bytes(), event.data.as_bytes());
        }

        #[test]
        fn a_body_is_one_allocation_of_the_right_size(event in any_event()) {
            for body in [render_standard(&event), render_cloudevents(&event)] {
                prop_assert_eq!(body.len(), body.capacity());
            }
        }
    }
}
