//! The view of an event that filters evaluate: parsed when the first filter needs it, and only
//! once.
//!
//! Every accepted event can be parsed here, whatever numbers and texts it contains: an event never
//! bypasses a filter because a number is too large.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Visitor};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use super::compare::fingerprint;
use super::field::Root;
use crate::event::{Event, RawJson};
use crate::limits;

/// An event and what was parsed of it, shared by all filters that look at it.
#[derive(Debug)]
pub struct EventView<'a> {
    event: &'a Event,
    data: OnceCell<Option<Value>>,
    old: OnceCell<Option<Value>>,
    object: OnceCell<Option<Value>>,
    kind: OnceCell<Option<Value>>,
    /// Fingerprints of long texts, by their address in memory: many subscriptions may compare the
    /// same field, and the text is hashed only once.
    long_texts: RefCell<BTreeMap<usize, u64>>,
}

/// Texts of this length or longer have their fingerprint cached.
const LONG_TEXT_BYTES: usize = 128;

impl<'a> EventView<'a> {
    /// A view of this event. Nothing is parsed yet.
    pub const fn new(event: &'a Event) -> Self {
        EventView {
            event,
            data: OnceCell::new(),
            old: OnceCell::new(),
            object: OnceCell::new(),
            kind: OnceCell::new(),
            long_texts: RefCell::new(BTreeMap::new()),
        }
    }

    /// The event itself.
    pub const fn event(&self) -> &'a Event {
        self.event
    }

    pub(crate) fn root(&self, root: Root) -> Option<&Value> {
        let event = self.event;
        let text = |text: &str| Some(Value::String(text.to_owned()));
        match root {
            Root::Data => self.data.get_or_init(|| parse(&event.data)).as_ref(),
            Root::Old => self.old.get_or_init(|| parse(event.old.as_ref()?)).as_ref(),
            Root::Object => {
                self.object.get_or_init(|| text(event.object.as_ref()?.as_str())).as_ref()
            }
            Root::Type => self.kind.get_or_init(|| text(event.kind.as_str())).as_ref(),
        }
    }

    /// The fingerprint of a value of this view.
    pub(crate) fn fingerprint(&self, value: &Value) -> Option<u64> {
        match value {
            Value::String(text) if text.len() >= LONG_TEXT_BYTES => {
                let place = std::ptr::from_ref(value).addr();
                if let Some(known) = self.long_texts.borrow().get(&place) {
                    return Some(*known);
                }
                let fingerprint = fingerprint(value)?;
                self.long_texts.borrow_mut().insert(place, fingerprint);
                Some(fingerprint)
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => fingerprint(value),
        }
    }

    #[cfg(test)]
    pub(super) fn parsed(&self) -> (bool, bool) {
        (self.data.get().is_some(), self.old.get().is_some())
    }
}

/// Parses an accepted value. `None` only for bytes that were never accepted, such as those of a
/// damaged store.
fn parse(json: &RawJson) -> Option<Value> {
    let bytes = json.as_bytes();
    serde_json::from_slice(bytes)
        .ok()
        .or_else(|| tolerant(serde_json::from_slice(bytes).ok()?, limits::JSON_DEPTH_MAX))
}

/// Parses well-formed JSON with a number out of range (read as the nearest in range) or half of a
/// surrogate pair (read as U+FFFD). Rarely needed, and slower, because each level is parsed twice.
fn tolerant(json: &RawValue, depth_left: usize) -> Option<Value> {
    let text = json.get();
    match text.as_bytes().first()? {
        b'{' => serde_json::from_str::<BTreeMap<AnyText, &RawValue>>(text)
            .ok()?
            .into_iter()
            .map(|(key, value)| Some((key.0, tolerant(value, depth_left.checked_sub(1)?)?)))
            .collect::<Option<_>>()
            .map(Value::Object),
        b'[' => serde_json::from_str::<Vec<&RawValue>>(text)
            .ok()?
            .into_iter()
            .map(|value| tolerant(value, depth_left.checked_sub(1)?))
            .collect::<Option<_>>()
            .map(Value::Array),
        b'"' => serde_json::from_str(text).ok().map(|text: AnyText| Value::String(text.0)),
        _ => serde_json::from_str(text).ok().or_else(|| nearest_number(text)),
    }
}

fn nearest_number(text: &str) -> Option<Value> {
    let number = text.parse::<f64>().ok()?.clamp(f64::MIN, f64::MAX);
    Number::from_f64(number).map(Value::Number)
}

/// A JSON text that need not be valid Unicode: serde_json passes it as bytes only.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct AnyText(String);

impl<'de> Deserialize<'de> for AnyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = AnyText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<AnyText, E> {
                Ok(AnyText(String::from_utf8_lossy(bytes).into_owned()))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;

    fn accepted(text: &str) -> Option<Value> {
        parse(&RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap())
    }

    #[test]
    fn every_accepted_event_can_be_parsed() {
        assert_eq!(accepted(r#" {"a": [1, "x"]} "#), Some(json!({"a": [1, "x"]})));
        assert_eq!(
            accepted(r#" {"a": [1e400, -1E999, 1e-999, true, null], "b": "x"} "#),
            Some(json!({"a": [f64::MAX, f64::MIN, 0.0, true, null], "b": "x"}))
        );
        let half = "\u{fffd}\u{fffd}\u{fffd}";
        assert_eq!(
            accepted(r#"{"a\ud800": "b\udc00\n"}"#).unwrap()[format!("a{half}")].as_str(),
            Some(format!("b{half}\n").as_str())
        );
        assert_eq!(accepted("1e400"), Some(json!(f64::MAX)));
    }

    #[test]
    fn last_of_duplicate_keys_counts() {
        assert_eq!(accepted(r#"{"a": 1, "a": 2}"#), Some(json!({"a": 2})));
        let tolerated = accepted(r#"{"a": 1, "a": 2, "b": 1e400}"#);
        assert_eq!(tolerated, Some(json!({"a": 2, "b": f64::MAX})));
    }

    #[test]
    fn bytes_that_were_never_accepted_parse_as_none() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let deep_number = "[".repeat(100) + "1e400" + &"]".repeat(100);
        let deep_object = "{\"a\":".repeat(100) + "1e400" + &"}".repeat(100);
        for broken in ["", "{", "{}{}", "nul", &deep, &deep_number, &deep_object] {
            let json = RawJson::from_trusted(Bytes::copy_from_slice(broken.as_bytes()));
            assert_eq!(parse(&json), None);
        }
        assert_eq!(parse(&RawJson::from_trusted(Bytes::from_static(b"\"\xff\""))), None);
        assert!(serde_json::from_str::<AnyText>("1").is_err());
    }

    #[test]
    fn the_deepest_that_is_accepted_is_read() {
        let deep = "[".repeat(64) + "1e400" + &"]".repeat(64);
        assert!(accepted(&deep).is_some());
    }
}
