//! A table of the events that Postrider itself sends, for the reference documentation: their types,
//! their fields, and when they are sent.
//!
//! [`crate::live`] makes the events; a test makes one of each and compares its fields with this table.

/// One type of event that Postrider sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationalEvent {
    /// The type, which begins with `postrider.`.
    pub name: &'static str,
    /// When the event is sent.
    pub when: &'static str,
    /// The fields of the event's `data`, each with its meaning.
    pub fields: &'static [(&'static str, &'static str)],
}

const TENANT: (&str, &str) = ("tenant", "whose it is");
const DESTINATION: (&str, &str) = ("destination", "the destination's identifier");
const URL: (&str, &str) = ("url", "its URL");
const TRANSITION: &[(&str, &str)] = &[
    TENANT,
    DESTINATION,
    URL,
    ("at", "when"),
    (
        "evidence",
        "why, in `why`: `failure_share`, `consecutive_failures`, `no_success` (with `since`), `gone`, `success` (with \
         `by_probe`) or `by_hand` (with `reason`)",
    ),
    (
        "counters",
        "`attempts`, `successes`, `failures` and `consecutive_failures` at that time, before any reset",
    ),
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
            (
                "warning",
                "`threshold`: `failure_share`, `disable_consecutive` or `freeze_consecutive`; `nearness`: `half` or \
                 `nine_tenths`",
            ),
        ],
    },
    OperationalEvent {
        name: "postrider.destination.disabled",
        when: "A destination failed too often: from now on it is tried once every ten minutes.",
        fields: TRANSITION,
    },
    OperationalEvent {
        name: "postrider.destination.enabled",
        when: "A delivery arrived at a disabled destination, or somebody enabled one.",
        fields: TRANSITION,
    },
    OperationalEvent {
        name: "postrider.destination.frozen",
        when: "A destination is not attempted any more until somebody enables it.",
        fields: TRANSITION,
    },
    OperationalEvent {
        name: "postrider.delivery.dead",
        when: "A delivery has no retry left. It is kept, and can be replayed.",
        fields: &[
            TENANT,
            (
                "delivery",
                "the delivery's identifier, which is the `webhook-id` that it was sent with",
            ),
            ("event", "the event's identifier"),
            ("subscription", "the subscription's identifier"),
            DESTINATION,
            ("type", "the type of the event that was not delivered"),
            ("attempts", "how many attempts were made"),
            (
                "reason",
                "`exhausted`: the last attempt failed; `not_admitted`: the last slot passed while the destination was \
                 disabled or frozen",
            ),
        ],
    },
    OperationalEvent {
        name: "postrider.subscription.filter_over_budget",
        when: "A filter needed more steps than it may take, and the events were delivered unfiltered. Sent at once, \
               then at most once an hour for a subscription.",
        fields: &[
            TENANT,
            ("subscription", "the subscription's identifier"),
            ("events", "how many events it was since `since`"),
            ("last_event", "the last of them"),
            ("since", "when it was last told, or first happened"),
            ("steps_max", "how many steps a filter may take on one event"),
        ],
    },
    OperationalEvent {
        name: "postrider.clock.stepped",
        when: "The clock of the machine, or of the database, was set. For the operator's tenant alone.",
        fields: &[
            ("at", "when it was noticed, on the clock that does not step"),
            ("by_ms", "by how much; negative where it was set back"),
            ("ahead_ms", "how far Postrider's clock is ahead of the time of day from now on"),
        ],
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
        let changes = [
            (StateName::Closed, StateName::Open),
            (StateName::Open, StateName::Closed),
            (StateName::Open, StateName::Frozen),
        ];
        let mut samples: Vec<EngineEvent> = Vec::new();
        for (from, to) in changes {
            let counters = Counters::default();
            let transition = Transition { at, from, to, evidence: Evidence::Gone, counters };
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

    #[test]
    fn the_table_has_the_types_and_fields_of_the_events_that_are_sent() {
        let mut sent = BTreeSet::new();
        for sample in samples() {
            let (_, new) = operational(&sample, Timestamp::EPOCH).unwrap();
            let name = new.kind.as_str();
            let documented = OPERATIONAL_EVENTS.iter().find(|event| event.name == name).unwrap();
            let data: Json = serde_json::from_slice(new.data.as_bytes()).unwrap();
            let fields: BTreeSet<&str> =
                data.as_object().unwrap().keys().map(String::as_str).collect();
            let expected: BTreeSet<&str> =
                documented.fields.iter().map(|(name, _)| *name).collect();
            assert_eq!(fields, expected, "{name}");
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
