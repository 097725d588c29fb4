//! The body that Workfront sends for an event.
//!
//! The body names its subscription, so it differs between subscriptions. Its two states, which are
//! nearly all of it, do not: [`states`] renders them once for all subscriptions with the same version
//! and encoding, and [`body`] puts the few bytes that differ before them. **States that are large are
//! never copied**: an event that goes to thousands of subscriptions would take its size for each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{Happening, Version};
use crate::event::{Event, RawJson};
use crate::ids::SubscriptionId;
use crate::payload::{Body, Payload};

/// States smaller than this are copied behind their head: one short piece is sent faster than two.
const SHARED_BYTES_MIN: usize = 4096;
const CONTENT_TYPE: &str = "application/json";

/// How the two states are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    /// The version.
    pub version: Version,
    /// Whether they are base64 texts.
    pub base64: bool,
}

impl Encoding {
    /// How many encodings there are.
    pub const COUNT: usize = 4;

    /// A number below [`Encoding::COUNT`], for a table.
    pub const fn index(self) -> usize {
        let version = match self.version {
            Version::V1 => 0,
            Version::V2 => 2,
        };
        version + self.base64 as usize
    }
}

/// The end of the body, from `"newState"` on.
pub fn states(event: &Event, encoding: Encoding) -> Payload {
    let old_bytes = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
    let event_bytes = event.data.as_bytes().len() + old_bytes;
    let mut end = Vec::with_capacity(states_bytes_max(event_bytes, encoding));
    end.extend(b"\"newState\":");
    write_state(&mut end, text(&event.data), encoding);
    end.extend(b",\"oldState\":");
    let old = match &event.old {
        Some(old) if event_type(event) != Happening::Create.as_str() => text(old),
        // What was created has no old state.
        Some(_) | None => b"{}",
    };
    write_state(&mut end, old, encoding);
    end.push(b'}');
    Payload { body: Body::from(Bytes::from(end)), content_type: CONTENT_TYPE }
}

/// The most bytes that [`states`] renders of data and old states of this many bytes together.
pub const fn states_bytes_max(event_bytes: usize, encoding: Encoding) -> usize {
    // Two names, two pairs of quotes, an old state of nothing, and a brace.
    const AROUND: usize = 40;
    // Base64 has four characters for three bytes, and each of the two is rounded up.
    let states = if encoding.base64 { event_bytes / 3 * 4 + 12 } else { event_bytes };
    states + AROUND
}

/// The whole body. `own` is the version that the subscription has now, `sent` that of this delivery:
/// they differ only in the five minutes after a change.
pub fn body(
    event: &Event,
    subscription: SubscriptionId,
    (own, sent): (Version, Version),
    states: &Body,
) -> Payload {
    let unix_ms = event.time.as_unix_ms();
    let (seconds, nanos) = (unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000) * 1_000_000);
    // None of these values needs to be escaped: words of letters, digits, `_` and `-`, and numbers.
    let head = format!(
        "{{\"eventType\":\"{}\",\"subscriptionId\":\"{subscription}\",\
         \"eventTime\":{{\"epochSecond\":{seconds},\"nano\":{nanos}}},\
         \"eventVersion\":\"{sent}\",\"subscriptionVersion\":\"{own}\",",
        event_type(event),
    );
    let states = states.to_bytes();
    let body = if states.len() < SHARED_BYTES_MIN {
        Body::from(Bytes::from([head.as_bytes(), &states].concat()))
    } else {
        Body::new(Bytes::from(head), states)
    };
    Payload { body, content_type: CONTENT_TYPE }
}

/// The `eventType`: the last word of the event's type.
fn event_type(event: &Event) -> &str {
    let kind = event.kind.as_str();
    kind.rsplit_once('.').map_or(kind, |(_, last)| last)
}

fn text(json: &RawJson) -> &[u8] {
    json.as_bytes().trim_ascii()
}

fn write_state(out: &mut Vec<u8>, state: &[u8], encoding: Encoding) {
    let rewritten;
    let state = match encoding.version {
        Version::V1 => {
            rewritten = without_single_lists(state);
            rewritten.as_slice()
        }
        Version::V2 => state,
    };
    if encoding.base64 {
        out.push(b'"');
        out.extend(STANDARD.encode(state).as_bytes());
        out.push(b'"');
    } else {
        out.extend(state);
    }
}

/// JSON in which every list that has a single text is that text. All other bytes stay as they are.
fn without_single_lists(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some((first, after)) = rest.split_first() {
        let length = match first {
            b'"' => string_length(rest),
            b'[' => match single_text(after) {
                Some((text, length)) => {
                    out.extend(text);
                    rest = after.get(length..).unwrap_or_default();
                    continue;
                }
                None => 1,
            },
            _ => 1,
        };
        let (part, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
        out.extend(part);
        rest = others;
    }
    out
}

/// The text after a `[`, if the list ends after it, and the length up to the end of the list.
fn single_text(after: &[u8]) -> Option<(&[u8], usize)> {
    let trimmed = after.trim_ascii_start();
    if trimmed.first() != Some(&b'"') {
        return None;
    }
    let (text, behind) = trimmed.split_at_checked(string_length(trimmed))?;
    let end = behind.trim_ascii_start();
    (end.first() == Some(&b']')).then(|| (text, after.len() - end.len() + 1))
}

/// The length of a JSON string with both its quotes; of the rest, where it does not end.
fn string_length(json: &[u8]) -> usize {
    let mut is_escaped = false;
    for (n, byte) in json.iter().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return n + 1,
            _ => {}
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::ids::TenantId;
    use crate::time::Timestamp;

    fn json(text: &str) -> RawJson {
        RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn event(kind: &str, data: &str, old: Option<&str>) -> Event {
        Event {
            id: "evt_1".parse().unwrap(),
            tenant: TenantId::default_tenant(),
            kind: kind.parse().unwrap(),
            object: None,
            data: json(data),
            old: old.map(json),
            time: Timestamp::from_unix_ms(1_507_319_336_998),
            trace: None,
        }
    }

    fn render(event: &Event, encoding: Encoding, own: Version) -> String {
        let subscription = SubscriptionId::from_bytes([7; 16]);
        let states = states(event, encoding);
        let payload = body(event, subscription, (own, encoding.version), &states.body);
        assert_eq!(payload.content_type, "application/json");
        String::from_utf8(payload.body.to_bytes().to_vec()).unwrap()
    }

    /// An update with lists of one, of two and of none.
    fn update() -> Event {
        event(
            "PROJ.UPDATE",
            " {\"ID\": \"59d7\", \"name\": \"x \\\"[\\\"y\\\"]\\\" \",\n \"accessorIDs\": [ \"5448\" ], \
             \"tags\": [\"a\", \"b\"], \"none\": [], \"priority\": 0.10, \"deep\": {\"one\": [[\"z\"], 1]}} ",
            Some("{\"ID\":\"59d7\",\"accessorIDs\":[\"5448\",\"5449\"]}"),
        )
    }

    #[track_caller]
    fn check_golden(name: &str, golden: &str, body: &str) {
        assert_eq!(body, golden.trim_end(), "{name}");
        serde_json::from_str::<Value>(body).unwrap();
    }

    #[test]
    fn the_body_of_each_version_and_encoding_is_the_golden_one() {
        let plain = |version| Encoding { version, base64: false };
        let encoded = |version| Encoding { version, base64: true };
        let (v1, v2) = (Version::V1, Version::V2);
        check_golden("v1", include_str!("golden/v1.json"), &render(&update(), plain(v1), v1));
        check_golden("v2", include_str!("golden/v2.json"), &render(&update(), plain(v2), v2));
        let v1_base64 = render(&update(), encoded(v1), v1);
        check_golden("v1 base64", include_str!("golden/v1_base64.json"), &v1_base64);
        let v2_base64 = render(&update(), encoded(v2), v2);
        check_golden("v2 base64", include_str!("golden/v2_base64.json"), &v2_base64);
        let create = event("TASK.CREATE", "{\"ID\":\"1\"}", Some("{\"ID\":\"0\"}"));
        check_golden("create", include_str!("golden/create.json"), &render(&create, plain(v2), v2));
    }

    #[test]
    fn after_a_change_the_older_version_names_the_new_one_too() {
        let plain = Encoding { version: Version::V1, base64: false };
        let body = render(&update(), plain, Version::V2);
        assert!(body.contains("\"eventVersion\":\"v1\",\"subscriptionVersion\":\"v2\""), "{body}");
    }

    #[test]
    fn times_before_the_epoch_have_a_positive_fraction() {
        let mut event = event("TASK.DELETE", "{}", None);
        event.time = Timestamp::from_unix_ms(-1);
        let plain = Encoding { version: Version::V2, base64: false };
        let body = render(&event, plain, Version::V2);
        assert!(body.contains("{\"epochSecond\":-1,\"nano\":999000000}"), "{body}");
        assert!(body.ends_with("\"newState\":{},\"oldState\":{}}"), "{body}");
    }

    #[test]
    fn large_states_are_shared_by_the_bodies_of_all_subscriptions() {
        let encoding = Encoding { version: Version::V2, base64: false };
        for (chars, is_shared) in [(SHARED_BYTES_MIN - 100, false), (SHARED_BYTES_MIN, true)] {
            let event = event("TASK.UPDATE", &format!("\"{}\"", "x".repeat(chars)), None);
            let states = states(&event, encoding).body;
            for id in [7, 8] {
                let id = SubscriptionId::from_bytes([id; 16]);
                let body = body(&event, id, (Version::V2, Version::V2), &states).body;
                let [own, shared] = body.parts();
                assert_eq!(shared.as_ptr() == states.parts()[1].as_ptr(), is_shared, "{chars}");
                assert_eq!(own.len() < 300 && !own.is_empty(), is_shared, "{chars}");
                assert!(String::from_utf8_lossy(&body.to_bytes()).contains(&id.to_string()));
                serde_json::from_slice::<Value>(&body.to_bytes()).unwrap();
            }
        }
    }

    #[test]
    fn encodings_have_different_places() {
        let mut places: Vec<usize> = Version::ALL
            .into_iter()
            .flat_map(|version| [false, true].map(|base64| Encoding { version, base64 }.index()))
            .collect();
        places.sort_unstable();
        assert_eq!(places, [0, 1, 2, 3]);
        assert_eq!(places.len(), Encoding::COUNT);
    }

    #[test]
    fn states_fit_into_what_is_reserved_for_them() {
        for old in [None, Some("[1]"), Some("[1, 2, 3]")] {
            for data in ["1", "[\"a\"]", "[[\"a\"], \"bcd\"]"] {
                for base64 in [false, true] {
                    let event = event("TASK.UPDATE", data, old);
                    let encoding = Encoding { version: Version::V1, base64 };
                    let rendered = states(&event, encoding).body.len();
                    let max = states_bytes_max(data.len() + old.map_or(0, str::len), encoding);
                    assert!(rendered <= max, "{data} {old:?} {base64}: {rendered} > {max}");
                }
            }
        }
    }

    #[test]
    fn bytes_that_are_no_json_do_not_panic() {
        for text in ["", "[", "[\"", "[\"a", "[\"a\"", "\"\\", "]", "[ \"a\" ,"] {
            assert_eq!(without_single_lists(text.as_bytes()), text.as_bytes());
        }
    }

    /// The same on parsed JSON.
    fn model(value: &Value) -> Value {
        match value {
            Value::Array(items) => match items.as_slice() {
                [Value::String(text)] => Value::String(text.clone()),
                items => Value::Array(items.iter().map(model).collect()),
            },
            Value::Object(fields) => Value::Object(
                fields.iter().map(|(key, value)| (key.clone(), model(value))).collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::String),
            "[\"\\[\\]\\\\ ,]{0,5}".prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
                prop::collection::btree_map(any::<String>(), inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn single_texts_leave_their_lists_and_nothing_else_changes(value in any_value(), pretty: bool) {
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            let out = without_single_lists(text.as_bytes());
            prop_assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), model(&value));
        }
    }
}
