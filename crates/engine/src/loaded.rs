//! An event in memory, with the bodies that are sent for it.
//!
//! All deliveries of an event share one `Loaded`: its bytes are in memory once, and each format is
//! rendered once, however many subscriptions and attempts there are. Signature and headers differ
//! between attempts and are not here.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use postrider_domain::event::Event;
use postrider_domain::payload::{self, Format, Payload};

/// An event and its rendered bodies.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) event: Arc<Event>,
    standard: OnceLock<Payload>,
    cloudevents: OnceLock<Payload>,
    /// How many deliveries keep it in memory until their first attempt. Only the core changes it.
    pub(crate) queued: Holders,
    /// How many attempts with this event are in flight. Only the core changes it.
    pub(crate) flying: Holders,
}

impl Loaded {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Loaded {
            event,
            standard: OnceLock::new(),
            cloudevents: OnceLock::new(),
            queued: Holders::default(),
            flying: Holders::default(),
        }
    }

    /// The body in a format; it is rendered at the first call.
    pub(crate) fn payload(&self, format: Format) -> Payload {
        let rendered = match format {
            Format::Standard => &self.standard,
            Format::CloudEvents => &self.cloudevents,
            // The raw format is the event's own bytes.
            Format::Raw => return payload::render(&self.event, format),
        };
        rendered.get_or_init(|| payload::render(&self.event, format)).clone()
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
    use postrider_domain::ids::{EventId, TenantId};
    use postrider_domain::time::Timestamp;

    use super::*;

    #[test]
    fn body_of_a_format_is_rendered_once_and_shared() {
        let event = Arc::new(Event {
            id: EventId::new(Timestamp::EPOCH, [1; 10]),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::from_trusted("[1]".into()),
            old: None,
            time: Timestamp::EPOCH,
            trace: None,
        });
        let loaded = Loaded::new(Arc::clone(&event));
        for format in [Format::Standard, Format::CloudEvents, Format::Raw] {
            let (first, second) = (loaded.payload(format), loaded.payload(format));
            assert_eq!(first, payload::render(&event, format));
            assert_eq!(first.body.as_ptr(), second.body.as_ptr(), "the same memory");
        }
    }
}
