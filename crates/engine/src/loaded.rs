//! An event in memory, with the bodies that are sent for it.
//!
//! All deliveries of an event share one `Loaded`: its bytes are in memory once, and each format is
//! rendered once, however many subscriptions and attempts there are. A body in the format `workfront`
//! names its subscription: there the two states, which are nearly all of it, are rendered once.
//! Signature and headers differ between attempts and are not here.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use postrider_domain::event::Event;
use postrider_domain::ids::DeliveryId;
use postrider_domain::payload::{self, Format, Payload};
use postrider_domain::subscription::Subscription;
use postrider_domain::workfront::WorkfrontOptions;
use postrider_domain::workfront::payload::{self as workfront, Encoding};

/// An event and its rendered bodies.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) event: Arc<Event>,
    standard: OnceLock<Payload>,
    cloudevents: OnceLock<Payload>,
    /// The states of the format `workfront`, by their encoding. In a box, because few events are
    /// sent in this format.
    workfront: OnceLock<Box<[OnceLock<Bytes>; Encoding::COUNT]>>,
    /// How many deliveries keep it in memory until their first attempt. Only the core changes it.
    pub(crate) queued: Holders,
    /// How many attempts with this event are in flight. Only the core changes it.
    pub(crate) in_flight: Holders,
}

impl Loaded {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Loaded {
            event,
            standard: OnceLock::new(),
            cloudevents: OnceLock::new(),
            workfront: OnceLock::new(),
            queued: Holders::default(),
            in_flight: Holders::default(),
        }
    }

    /// The body of a delivery to this subscription; what can be shared is rendered at the first call.
    pub(crate) fn payload(&self, subscription: &Subscription, delivery: DeliveryId) -> Payload {
        let event = &self.event;
        match subscription.format {
            Format::Standard => self.standard.get_or_init(|| payload::standard(event)).clone(),
            Format::CloudEvents => {
                self.cloudevents.get_or_init(|| payload::cloudevents(event)).clone()
            }
            Format::Raw => payload::raw(event),
            Format::Workfront => {
                let options = WorkfrontOptions::of(subscription);
                let version = options.version_of(delivery);
                let states = self.states(Encoding { version, base64: options.base64 });
                workfront::body(event, subscription.id, (options.version, version), &states)
            }
        }
    }

    fn states(&self, encoding: Encoding) -> Bytes {
        let render = || workfront::states(&self.event, encoding);
        let all = self.workfront.get_or_init(Box::default);
        match all.get(encoding.index()) {
            Some(rendered) => rendered.get_or_init(render).clone(),
            None => render(),
        }
    }

    /// The bytes of the event itself.
    pub(crate) fn bytes(&self) -> usize {
        let old = self.event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        self.event.data.as_bytes().len() + old
    }
}

/// A count of holders.
#[derive(Debug, Default)]
pub(crate) struct Holders(AtomicU32);

impl Holders {
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Adds one; returns whether it is the first.
    pub(crate) fn join(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Removes one; returns whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        self.0.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::event::RawJson;
    use postrider_domain::ids::{EventId, SubscriptionId, TenantId};
    use postrider_domain::time::Timestamp;
    use postrider_domain::workfront::Version;
    use postrider_test_support::samples::subscription;

    use super::*;

    fn event() -> Arc<Event> {
        Arc::new(Event {
            id: EventId::new(Timestamp::EPOCH, [1; 10]),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::from_trusted("[1]".into()),
            old: None,
            time: Timestamp::EPOCH,
            trace: None,
        })
    }

    #[test]
    fn body_of_a_format_is_rendered_once_and_shared() {
        let event = event();
        let loaded = Loaded::new(Arc::clone(&event));
        let delivery = DeliveryId::new(Timestamp::EPOCH, [1; 10]);
        let subscription = |format| {
            let id = SubscriptionId::from_bytes([7; 16]);
            let url = "https://hooks.example.com/";
            let sample = subscription(id, &event.tenant, url, &["task.*"], Timestamp::EPOCH);
            Subscription { format, ..sample }
        };
        for (format, expected) in [
            (Format::Standard, payload::standard(&event)),
            (Format::CloudEvents, payload::cloudevents(&event)),
            (Format::Raw, payload::raw(&event)),
        ] {
            let one = loaded.payload(&subscription(format), delivery);
            let other = loaded.payload(&subscription(format), delivery);
            assert_eq!(one, expected);
            assert_eq!(one.body.as_ptr(), other.body.as_ptr(), "the same memory");
        }
    }

    #[test]
    fn states_of_the_workfront_format_are_rendered_once_for_each_encoding() {
        let loaded = Loaded::new(event());
        for version in Version::ALL {
            for base64 in [false, true] {
                let encoding = Encoding { version, base64 };
                let (first, second) = (loaded.states(encoding), loaded.states(encoding));
                assert_eq!(first, workfront::states(&loaded.event, encoding));
                assert_eq!(first.as_ptr(), second.as_ptr(), "the same memory");
            }
        }
    }
}
