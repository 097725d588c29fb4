//! A table of the events that Postrider itself sends, for the reference documentation: their types,
//! their fields, and when they are sent.
//!
//! [`crate::live`] makes the events; a test makes one of each and holds its fields against this table.

/// One type of event that Postrider sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationalEvent {
    /// The type, which begins with `postrider.`.
    pub name: &'static str,
    /// When the event is sent.
    pub when: &'static str,
    /// The fields of the event's `data`.
    pub fields: &'static [Field],
    /// A `data`, as JSON.
    pub example: &'static str,
}

/// One field of the `data` of such an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub kind: FieldKind,
    /// What it means.
    pub meaning: &'static str,
    /// Whether it is left out of some events.
    pub is_optional: bool,
}

/// What a field may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// Text.
    Text,
    /// Text, or null.
    TextOrNull,
    /// An identifier with this prefix.
    Id(&'static str),
    /// A time, in RFC 3339.
    Time,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An object with these fields.
    Object(&'static [Field]),
}

impl FieldKind {
    /// What the field may be, in words; words and prefixes as code.
    pub fn described(self) -> String {
        match self {
            FieldKind::Text => "text".to_owned(),
            FieldKind::TextOrNull => "text or null".to_owned(),
            FieldKind::Id(prefix) => format!("`{prefix}…`"),
            FieldKind::Time => "time (RFC 3339)".to_owned(),
            FieldKind::Integer => "integer".to_owned(),
            FieldKind::Boolean => "`true` or `false`".to_owned(),
            FieldKind::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
                words.join(", ")
            }
            FieldKind::Object(_) => "object".to_owned(),
        }
    }
}

impl OperationalEvent {
    /// The fields of `data` with those of the objects in it, each with its path: `evidence.why`.
    pub fn all_fields(&self) -> Vec<(String, &'static Field)> {
        let mut all = Vec::new();
        for field in self.fields {
            all.push((field.name.to_owned(), field));
            if let FieldKind::Object(inner) = field.kind {
                all.extend(inner.iter().map(|one| (format!("{}.{}", field.name, one.name), one)));
            }
        }
        all
    }
}

const fn field(name: &'static str, kind: FieldKind, meaning: &'static str) -> Field {
    Field { name, kind, meaning, is_optional: false }
}

const fn optional(name: &'static str, kind: FieldKind, meaning: &'static str) -> Field {
    Field { name, kind, meaning, is_optional: true }
}

const TENANT: Field = field("tenant", FieldKind::Text, "whose it is");
const DESTINATION: Field = field("destination", FieldKind::Id("dst_"), "the destination");
const URL: Field = field("url", FieldKind::Text, "its URL");
const SUBSCRIPTION: Field = field("subscription", FieldKind::Id("sub_"), "the subscription");
const TRANSITION: &[Field] = &[
    TENANT,
    DESTINATION,
    URL,
    field("at", FieldKind::Time, "when its state changed"),
    field("evidence", FieldKind::Object(EVIDENCE), "why"),
    field("counters", FieldKind::Object(COUNTERS), "its counters at that time, before any reset"),
];
const EVIDENCE: &[Field] = &[
    field(
        "why",
        FieldKind::Word(&[
            "failure_share",
            "consecutive_failures",
            "no_success",
            "gone",
            "success",
            "by_hand",
        ]),
        "the rule that applied: too large a share of the attempts failed, too many failed in a row, nothing succeeded \
         for too long, the receiver answered 410, a delivery succeeded, or somebody decided it",
    ),
    optional(
        "since",
        FieldKind::Time,
        "with `no_success`: the last success, or the destination's creation",
    ),
    optional("by_probe", FieldKind::Boolean, "with `success`: whether the delivery was a probe"),
    optional("reason", FieldKind::TextOrNull, "with `by_hand`: the reason that was given"),
];
const COUNTERS: &[Field] = &[
    field("attempts", FieldKind::Integer, "attempts since the last reset"),
    field("successes", FieldKind::Integer, "those that succeeded"),
    field("failures", FieldKind::Integer, "those that failed"),
    field("consecutive_failures", FieldKind::Integer, "failures since the last success"),
];
const WARNING: &[Field] = &[
    field(
        "threshold",
        FieldKind::Word(&["failure_share", "disable_consecutive", "freeze_consecutive"]),
        "which threshold it comes near to",
    ),
    field("nearness", FieldKind::Word(&["half", "nine_tenths"]), "how far of the way it has come"),
];

/// All types of events that Postrider itself sends.
pub const OPERATIONAL_EVENTS: &[OperationalEvent] = &[
    OperationalEvent {
        name: "postrider.destination.failing",
        when: "A destination is half of the way, or nine tenths of the way, to a threshold.",
        fields: &[
            TENANT,
            DESTINATION,
            URL,
            field("warning", FieldKind::Object(WARNING), "the threshold, and how near it is"),
        ],
        example: r#"{"tenant": "acme", "destination": "dst_1e0d8d67a9d1850480dc48adcf045d35",
            "url": "https://hooks.example.com/in",
            "warning": {"threshold": "disable_consecutive", "nearness": "half"}}"#,
    },
    OperationalEvent {
        name: "postrider.destination.disabled",
        when: "A destination failed too often: from now on it is tried once every ten minutes.",
        fields: TRANSITION,
        example: r#"{"tenant": "acme", "destination": "dst_1e0d8d67a9d1850480dc48adcf045d35",
            "url": "https://hooks.example.com/in", "at": "2026-11-15T09:30:00.000Z",
            "evidence": {"why": "failure_share"},
            "counters": {"attempts": 150, "successes": 40, "failures": 110, "consecutive_failures": 60}}"#,
    },
    OperationalEvent {
        name: "postrider.destination.enabled",
        when: "A delivery arrived at a disabled destination, or somebody enabled one.",
        fields: TRANSITION,
        example: r#"{"tenant": "acme", "destination": "dst_1e0d8d67a9d1850480dc48adcf045d35",
            "url": "https://hooks.example.com/in", "at": "2026-11-15T09:40:00.000Z",
            "evidence": {"why": "success", "by_probe": true},
            "counters": {"attempts": 151, "successes": 41, "failures": 110, "consecutive_failures": 0}}"#,
    },
    OperationalEvent {
        name: "postrider.destination.frozen",
        when: "A destination is not attempted any more until somebody enables it.",
        fields: TRANSITION,
        example: r#"{"tenant": "acme", "destination": "dst_1e0d8d67a9d1850480dc48adcf045d35",
            "url": "https://hooks.example.com/in", "at": "2026-11-15T09:30:00.000Z",
            "evidence": {"why": "no_success", "since": "2026-11-12T09:29:58.120Z"},
            "counters": {"attempts": 2051, "successes": 50, "failures": 2001, "consecutive_failures": 2001}}"#,
    },
    OperationalEvent {
        name: "postrider.delivery.dead",
        when: "A delivery has no retry left. It is kept, and can be replayed.",
        fields: &[
            TENANT,
            field(
                "delivery",
                FieldKind::Id("dlv_"),
                "the delivery, which is the `webhook-id` that it was sent with",
            ),
            field("event", FieldKind::Text, "the event's identifier"),
            SUBSCRIPTION,
            DESTINATION,
            field("type", FieldKind::Text, "the type of the event that was not delivered"),
            field("attempts", FieldKind::Integer, "how many attempts were made"),
            field(
                "reason",
                FieldKind::Word(&["exhausted", "not_admitted"]),
                "`exhausted`: the last attempt failed; `not_admitted`: the last slot passed while the destination was \
                 disabled or frozen",
            ),
        ],
        example: r#"{"tenant": "acme", "delivery": "dlv_01a1e5b176ce7747951f6eea7fa51ca8",
            "event": "evt_01a1ec86c85a7eecaf1e16cbc52d8c7e",
            "subscription": "sub_01a1e5b1000079478000000000000001",
            "destination": "dst_1e0d8d67a9d1850480dc48adcf045d35", "type": "task.updated", "attempts": 12,
            "reason": "exhausted"}"#,
    },
    OperationalEvent {
        name: "postrider.subscription.filter_over_budget",
        when: "A filter needed more steps than it may take, and the events were delivered unfiltered. Sent at once, \
               then at most once an hour for a subscription.",
        fields: &[
            TENANT,
            SUBSCRIPTION,
            field("events", FieldKind::Integer, "how many events it was since `since`"),
            field("last_event", FieldKind::Text, "the identifier of the last of them"),
            field("since", FieldKind::Time, "when it was last told, or first happened"),
            field("steps_max", FieldKind::Integer, "how many steps a filter may take on one event"),
        ],
        example: r#"{"tenant": "acme", "subscription": "sub_01a1e5b1000079478000000000000001", "events": 3,
            "last_event": "evt_01a1ec86c85a7eecaf1e16cbc52d8c7e", "since": "2026-11-15T08:30:00.000Z",
            "steps_max": 4000000}"#,
    },
    OperationalEvent {
        name: "postrider.clock.stepped",
        when: "The clock of the machine, or of the database, was set. For the operator's tenant alone.",
        fields: &[
            field("at", FieldKind::Time, "when it was noticed, on the clock that does not step"),
            field("by_ms", FieldKind::Integer, "by how much; negative where it was set back"),
            field(
                "ahead_ms",
                FieldKind::Integer,
                "how far Postrider's clock is ahead of the time of day from now on",
            ),
        ],
        example: r#"{"at": "2026-11-15T09:30:00.000Z", "by_ms": -5000, "ahead_ms": 5000}"#,
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use postrider_domain::circuit::{Counters, Evidence, StateName, Transition};
    use postrider_domain::delivery::{DeadReason, Delivery};
    use postrider_domain::event::{Event, RawJson};
    use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId, TenantId};
    use postrider_domain::steady::Step;
    use postrider_domain::thresholds::{Nearness, Threshold, Warning};
    use postrider_domain::time::Timestamp;
    use serde_json::Value as Json;

    use super::*;
    use crate::live::{EngineEvent, operational};

    /// One event of each kind that the engine knows.
    fn samples() -> Vec<EngineEvent> {
        let (at, tenant) = (Timestamp::EPOCH, TenantId::default_tenant());
        let destination = DestinationId::of(&tenant, "https://example.com/");
        let subscription = SubscriptionId::from_bytes([1; 16]);
        let event = Event {
            id: "e".parse().unwrap(),
            tenant: tenant.clone(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::parse("1".into()).unwrap(),
            old: None,
            time: at,
            trace: None,
        };
        let id = DeliveryId::from_bytes([2; 16]);
        let delivery = Arc::new(Delivery::accepted(id, &event, subscription, destination, at));
        let by_hand = |reason: Option<&str>| Evidence::ByHand { reason: reason.map(str::to_owned) };
        let changes = [
            (StateName::Closed, StateName::Open, Evidence::FailureShare),
            (StateName::Closed, StateName::Open, Evidence::ConsecutiveFailures),
            (StateName::HalfOpen, StateName::Closed, Evidence::Success { by_probe: true }),
            (StateName::Frozen, StateName::Closed, by_hand(None)),
            (StateName::HalfOpen, StateName::Frozen, Evidence::NoSuccess { since: at }),
            (StateName::Closed, StateName::Frozen, by_hand(Some("moved away"))),
            (StateName::Open, StateName::Frozen, Evidence::Gone),
        ];
        let mut samples: Vec<EngineEvent> = Vec::new();
        for (from, to, evidence) in changes {
            let counters = Counters::default();
            let transition = Transition { at, from, to, evidence, counters };
            let (tenant, url) = (tenant.clone(), Arc::from("https://example.com/"));
            samples.push(EngineEvent::Transition { tenant, destination, url, transition });
        }
        let warning = Warning { threshold: Threshold::FailureShare, nearness: Nearness::Half };
        let url = Arc::from("https://example.com/");
        samples.push(EngineEvent::Warning { tenant: tenant.clone(), destination, url, warning });
        let (last, since) = (event.id, at);
        samples.push(EngineEvent::FilterOverBudget {
            tenant,
            subscription,
            events: 1,
            last,
            since,
        });
        samples.push(EngineEvent::Dead { delivery, reason: DeadReason::Exhausted });
        samples.push(EngineEvent::ClockStep(Step { at, by_ms: 1, ahead_ms: 1 }));
        samples
    }

    /// Whether the object has the fields of the table and no other, each of its kind.
    fn check(place: &str, fields: &[Field], object: &Json) {
        let object = object.as_object().unwrap_or_else(|| panic!("{place}: {object}"));
        for name in object.keys() {
            assert!(
                fields.iter().any(|field| field.name == name),
                "{place}: {name} is not in the table"
            );
        }
        for field in fields {
            let place = format!("{place} {}", field.name);
            let Some(value) = object.get(field.name) else {
                assert!(field.is_optional, "{place} is missing");
                continue;
            };
            let text = value.as_str();
            let fits = match field.kind {
                FieldKind::Text => text.is_some(),
                FieldKind::TextOrNull => text.is_some() || value.is_null(),
                FieldKind::Id(prefix) => text.is_some_and(|text| {
                    text.starts_with(prefix) && text.len() == prefix.len() + 32
                }),
                FieldKind::Time => text.is_some_and(|text| text.parse::<Timestamp>().is_ok()),
                FieldKind::Integer => value.is_i64(),
                FieldKind::Boolean => value.is_boolean(),
                FieldKind::Word(words) => text.is_some_and(|text| words.contains(&text)),
                FieldKind::Object(fields) => {
                    check(&place, fields, value);
                    true
                }
            };
            assert!(fits, "{place}: {value} is no {:?}", field.kind);
        }
    }

    #[test]
    fn every_example_has_the_fields_of_the_table() {
        for event in OPERATIONAL_EVENTS {
            check(event.name, event.fields, &serde_json::from_str(event.example).unwrap());
        }
    }

    #[test]
    fn the_table_has_the_types_and_fields_of_the_events_that_are_sent() {
        let mut sent = BTreeSet::new();
        for sample in samples() {
            let (_, new) = operational(&sample, Timestamp::EPOCH).unwrap();
            let name = new.kind.as_str();
            let documented = OPERATIONAL_EVENTS.iter().find(|event| event.name == name).unwrap();
            let data: Json = serde_json::from_slice(new.data.as_bytes()).unwrap();
            check(name, documented.fields, &data);
            sent.insert(name.to_owned());
        }
        assert_eq!(sent.len(), OPERATIONAL_EVENTS.len());
        let source = include_str!("live.rs");
        for literal in source.split("\"postrider.").skip(1) {
            let name = literal.split('"').next().unwrap();
            assert!(
                sent.contains(&format!("postrider.{name}")),
                "postrider.{name} is not in the table"
            );
        }
    }
}
