//! One thing that happened, as it was accepted. Immutable.
//!
//! `data` and `old` are kept as the bytes that were received: they are checked to be JSON once, on
//! acceptance, and are delivered byte for byte.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::ids::{EventId, ObjectId, TenantId};
use crate::limits;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Unique in its tenant; a second event with the same id is a repeat.
    pub id: EventId,
    /// The tenant.
    pub tenant: TenantId,
    /// The type, for example `task.updated`.
    pub kind: EventType,
    /// The object that it happened to.
    pub object: Option<ObjectId>,
    /// The new state of the object.
    pub data: RawJson,
    /// The state before.
    pub old: Option<RawJson>,
    /// When it happened according to the application; otherwise when it was accepted.
    pub time: Timestamp,
    /// The trace context of the request that sent it, if it had one.
    pub trace: Option<TraceContext>,
}

impl Event {
    /// Whether its payload was erased: `data` is then empty, which no accepted JSON is.
    pub fn is_erased(&self) -> bool {
        self.data.as_bytes().is_empty()
    }

    /// The event without its payload.
    #[must_use]
    pub fn erased(&self) -> Event {
        Event { data: RawJson::from_trusted(Bytes::new()), old: None, ..self.clone() }
    }
}

/// An event's type: words joined by dots, such as `task.updated`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

impl EventType {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a type of Postrider's own events (`postrider.delivery.dead`), which
    /// applications cannot send.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with("postrider.")
    }
}

/// Why a text is not an event type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not an event type: 1 to {max} characters, words of letters, digits, `_` and `-` joined by \
     single dots, such as task.updated",
    max = limits::EVENT_TYPE_CHARS_MAX
)]
pub struct InvalidEventType;

impl FromStr for EventType {
    type Err = InvalidEventType;

    fn from_str(text: &str) -> Result<Self, InvalidEventType> {
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        };
        if text.len() <= limits::EVENT_TYPE_CHARS_MAX && text.split('.').all(is_word) {
            Ok(EventType(text.into()))
        } else {
            Err(InvalidEventType)
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One JSON value as the received bytes, known to be well-formed and not too deeply nested.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

/// Why bytes are not an acceptable JSON value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJson {
    /// Not JSON at all.
    #[error("not JSON: {0}")]
    Malformed(String),
    /// Nested more deeply than the limit.
    #[error("nested more than {} levels deep", limits::JSON_DEPTH_MAX)]
    TooDeep,
}

impl RawJson {
    /// Checks that the bytes are exactly one JSON value. Nothing is copied.
    pub fn parse(bytes: Bytes) -> Result<Self, InvalidJson> {
        let raw: &RawValue =
            serde_json::from_slice(&bytes).map_err(|e| InvalidJson::Malformed(e.to_string()))?;
        if is_too_deep(raw.get().as_bytes()) {
            return Err(InvalidJson::TooDeep);
        }
        Ok(RawJson(bytes))
    }

    /// Wraps a value that serde has parsed already, so that it is not parsed twice; `keep` says how
    /// its bytes are kept.
    pub fn of_value(
        value: &RawValue,
        keep: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Self, InvalidJson> {
        let bytes = value.get().as_bytes();
        if is_too_deep(bytes) { Err(InvalidJson::TooDeep) } else { Ok(RawJson(keep(bytes))) }
    }

    /// Wraps bytes that were checked before, as a store returns them.
    pub const fn from_trusted(bytes: Bytes) -> Self {
        RawJson(bytes)
    }

    /// The bytes as received.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Payloads are customers' data: print the length, not the contents.
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

/// Whether arrays and objects nest too deeply. The text is known to be well-formed.
fn is_too_deep(json: &[u8]) -> bool {
    // Counting brackets is fast, and a text with few brackets cannot be too deep. Each part is
    // short enough for its count to fit a byte, so that the compiler can vectorise the loop.
    let opened = |part: &[u8]| part.iter().map(|b| u8::from(matches!(b, b'{' | b'['))).sum::<u8>();
    let opened: usize = json.chunks(128).map(|part| usize::from(opened(part))).sum();
    opened > limits::JSON_DEPTH_MAX && depth(json) > limits::JSON_DEPTH_MAX
}

/// How deeply arrays and objects nest. The text is known to be well-formed.
fn depth(json: &[u8]) -> usize {
    let (mut open, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                open += 1;
                deepest = deepest.max(open);
            }
            (false, b'}' | b']') => open = open.saturating_sub(1),
            (_, _) => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_types_are_dotted_words() {
        let long = "x".repeat(128);
        for good in ["task", "task.updated", "a.b.c", "T_1.x-y", &long] {
            assert_eq!(good.parse::<EventType>().unwrap().as_str(), good);
        }
        let too_long = "x".repeat(129);
        for bad in ["", ".", "task.", ".task", "a..b", "a b", "task.*", "ä", "a\n", &too_long] {
            let error = bad.parse::<EventType>().unwrap_err();
            assert!(error.to_string().contains("such as task.updated"), "{bad}");
        }
        let shown: EventType = "task.updated".parse().unwrap();
        assert_eq!(format!("{shown} {shown:?}"), "task.updated task.updated");
    }

    #[test]
    fn our_own_types_are_reserved() {
        let reserved = |text: &str| text.parse::<EventType>().unwrap().is_reserved();
        assert!(reserved("postrider.delivery.dead"));
        assert!(!reserved("postrider"));
        assert!(!reserved("postriders.choice"));
    }

    #[test]
    fn json_keeps_the_received_bytes() {
        let text = " {\"b\": 1.0e2,\t\"a\":[true , null]} ";
        let json = RawJson::parse(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(json.as_bytes(), text.as_bytes());
        assert_eq!(RawJson::from_trusted(json.as_bytes().clone()), json);
        assert_eq!(format!("{json:?}"), format!("RawJson({} bytes)", text.len()));
    }

    #[test]
    fn text_that_is_not_one_json_value_is_refused() {
        for bad in ["", "{", "{}{}", "nul", "'a'", "{\"a\":}", "[1,]", "\u{feff}{}"] {
            let error = RawJson::parse(Bytes::from_static(bad.as_bytes())).unwrap_err();
            assert!(matches!(error, InvalidJson::Malformed(_)), "{bad}: {error}");
        }
        let error = RawJson::parse(Bytes::from_static(b"\"\xff\"")).unwrap_err();
        assert!(error.to_string().starts_with("not JSON: "));
    }

    #[test]
    fn depth_is_limited_and_brackets_in_texts_do_not_count() {
        let nested = |n: usize| Bytes::from("[".repeat(n) + &"]".repeat(n));
        assert!(RawJson::parse(nested(64)).is_ok());
        assert_eq!(RawJson::parse(nested(65)), Err(InvalidJson::TooDeep));
        let text = format!("[\"{}\\\"[[\"]", "[".repeat(100));
        assert!(RawJson::parse(Bytes::from(text)).is_ok());
        let wide = Bytes::from(format!("[{}[]]", "[],".repeat(100)));
        assert!(RawJson::parse(wide).is_ok(), "many brackets are not deep ones");
    }

    #[test]
    fn parsed_value_is_kept_with_the_given_bytes() {
        let value: &RawValue = serde_json::from_str("{\"a\": [1]}").unwrap();
        let kept = RawJson::of_value(value, Bytes::copy_from_slice).unwrap();
        assert_eq!(kept.as_bytes(), "{\"a\": [1]}".as_bytes());
        let deep = "[".repeat(65) + &"]".repeat(65);
        let value: &RawValue = serde_json::from_str(&deep).unwrap();
        let refused = RawJson::of_value(value, Bytes::copy_from_slice);
        assert_eq!(refused, Err(InvalidJson::TooDeep));
    }
}
