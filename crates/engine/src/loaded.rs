//! An event in memory, with the bodies that are sent for it.
//!
//! All deliveries of an event share one `Loaded`: its bytes are in memory once, and each format is
//! rendered once, however many subscriptions and attempts there are. A body in the format `workfront`
//! names its subscription: there the two states, which are nearly all of it, are rendered once.
//! Signature and headers differ between attempts and are not here. **Nothing is rendered that is not
//! counted**: the core counts each form of an event before the first attempt that needs it, and what
//! was rendered is dropped when the last attempt has ended.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::event::Event;
use postrider_domain::ids::DeliveryId;
use postrider_domain::payload::{self, Format, Payload};
use postrider_domain::subscription::Subscription;
use postrider_domain::workfront::WorkfrontOptions;
use postrider_domain::workfront::payload::{self as workfront, Encoding};

/// What is rendered of an event and kept for further attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The body in the format `standard`.
    Standard,
    /// The body in the format `cloudevents`.
    CloudEvents,
    /// Nothing: the body in the format `raw` is the event's own bytes.
    Raw,
    /// The states of the format `workfront`.
    States(Encoding),
}

impl Form {
    /// The form in which a delivery to this subscription is sent.
    pub(crate) fn of(subscription: &Subscription, delivery: DeliveryId) -> Form {
        match subscription.format {
            Format::Standard => Form::Standard,
            Format::CloudEvents => Form::CloudEvents,
            Format::Raw => Form::Raw,
            Format::Workfront => {
                let options = WorkfrontOptions::of(subscription);
                let version = options.version_of(delivery);
                Form::States(Encoding { version, base64: options.base64 })
            }
        }
    }

    /// How many bytes are kept for data and an old state of these sizes; the few bytes that do not
    /// come from them are left out.
    pub(crate) fn bytes(self, data: usize, old: usize) -> usize {
        match self {
            Form::Standard => data + old,
            // The old state is a text there: each of its bytes may need to be escaped.
            Form::CloudEvents => data + 2 * old,
            Form::Raw => 0,
            Form::States(encoding) => workfront::states_bytes_max(data + old, encoding),
        }
    }

    const fn bit(self) -> u8 {
        match self {
            Form::Standard => 1,
            Form::CloudEvents => 2,
            Form::Raw => 4,
            Form::States(encoding) => 8 << encoding.index(),
        }
    }
}

/// An event and its rendered bodies.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) event: Arc<Event>,
    /// The body of each form; of the format `workfront` the states alone.
    rendered: Mutex<Vec<(Form, Payload)>>,
    /// How many deliveries keep it in memory until their first attempt. Only the core changes it.
    pub(crate) queued: Holders,
    /// How many attempts with this event are in flight. Only the core changes it.
    pub(crate) in_flight: Holders,
    /// What is counted for the attempts in flight. Only the core changes it.
    pub(crate) counted: Counted,
}

impl Loaded {
    pub(crate) fn new(event: Arc<Event>) -> Self {
        Loaded {
            event,
            rendered: Mutex::default(),
            queued: Holders::default(),
            in_flight: Holders::default(),
            counted: Counted::default(),
        }
    }

    /// The body of a delivery to this subscription; what can be shared is rendered at the first call.
    pub(crate) fn payload(&self, subscription: &Subscription, delivery: DeliveryId) -> Payload {
        let event = &*self.event;
        let form = Form::of(subscription, delivery);
        match form {
            Form::Standard => self.once(form, || payload::standard(event)),
            Form::CloudEvents => self.once(form, || payload::cloudevents(event)),
            Form::Raw => payload::raw(event),
            Form::States(encoding) => {
                let states = self.once(form, || workfront::states(event, encoding));
                let own = WorkfrontOptions::of(subscription).version;
                workfront::body(event, subscription.id, (own, encoding.version), &states.body)
            }
        }
    }

    fn once(&self, form: Form, render: impl FnOnce() -> Payload) -> Payload {
        let mut rendered = self.rendered();
        if let Some((_, payload)) = rendered.iter().find(|(known, _)| *known == form) {
            return payload.clone();
        }
        let payload = render();
        rendered.reserve_exact(1);
        rendered.push((form, payload.clone()));
        payload
    }

    fn rendered(&self) -> MutexGuard<'_, Vec<(Form, Payload)>> {
        self.rendered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of the event itself.
    pub(crate) fn bytes(&self) -> usize {
        let (data, old) = self.sizes();
        data + old
    }

    fn sizes(&self) -> (usize, usize) {
        let old = self.event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        (self.event.data.as_bytes().len(), old)
    }

    /// The bytes that one more attempt in this form adds to those in flight.
    pub(crate) fn more_in_flight(&self, form: Form) -> usize {
        let (data, old) = self.sizes();
        let event = if self.in_flight.any() { 0 } else { data + old };
        let rendered = if self.counted.has(form) { 0 } else { form.bytes(data, old) };
        event + rendered
    }

    /// The last attempt has ended: drops what was rendered; returns the bytes that were counted.
    pub(crate) fn forget_rendered(&self) -> usize {
        drop(std::mem::take(&mut *self.rendered()));
        self.counted.take()
    }
}

/// The forms and the bytes that are counted for the attempts in flight with an event.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    forms: AtomicU8,
    bytes: AtomicUsize,
}

impl Counted {
    fn has(&self, form: Form) -> bool {
        self.forms.load(Ordering::Relaxed) & form.bit() != 0
    }

    pub(crate) fn add(&self, form: Form, bytes: usize) {
        self.forms.fetch_or(form.bit(), Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take(&self) -> usize {
        self.forms.store(0, Ordering::Relaxed);
        self.bytes.swap(0, Ordering::Relaxed)
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

    fn event(data: &str, old: Option<&str>) -> Arc<Event> {
        Arc::new(Event {
            id: EventId::new(Timestamp::EPOCH, [1; 10]),
            tenant: TenantId::default_tenant(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: RawJson::from_trusted(data.to_owned().into()),
            old: old.map(|old| RawJson::from_trusted(old.to_owned().into())),
            time: Timestamp::EPOCH,
            trace: None,
        })
    }

    fn to(event: &Event, format: Format) -> Subscription {
        let id = SubscriptionId::from_bytes([7; 16]);
        let url = "https://hooks.example.com/";
        let sample = subscription(id, &event.tenant, url, &["task.*"], Timestamp::EPOCH);
        Subscription { format, ..sample }
    }

    fn delivery() -> DeliveryId {
        DeliveryId::new(Timestamp::EPOCH, [1; 10])
    }

    /// Where the part of the body that subscriptions share is in memory.
    fn shared(payload: &Payload) -> *const u8 {
        payload.body.parts()[1].as_ptr()
    }

    #[test]
    fn body_of_a_format_is_rendered_once_and_shared() {
        let event = event("[1]", None);
        let loaded = Loaded::new(Arc::clone(&event));
        for (format, expected) in [
            (Format::Standard, payload::standard(&event)),
            (Format::CloudEvents, payload::cloudevents(&event)),
            (Format::Raw, payload::raw(&event)),
        ] {
            let one = loaded.payload(&to(&event, format), delivery());
            let other = loaded.payload(&to(&event, format), delivery());
            assert_eq!(one, expected);
            assert_eq!(shared(&one), shared(&other), "the same memory");
        }
    }

    /// A subscription for each form.
    fn one_for_each_form(event: &Event) -> Vec<Subscription> {
        let states = Version::ALL.into_iter().flat_map(|version| {
            [false, true].map(|base64| {
                let options = WorkfrontOptions { version, base64, ..WorkfrontOptions::default() };
                Subscription { workfront: Some(Box::new(options)), ..to(event, Format::Workfront) }
            })
        });
        let others = [Format::Standard, Format::CloudEvents, Format::Raw];
        others.map(|format| to(event, format)).into_iter().chain(states).collect()
    }

    #[test]
    fn large_states_of_the_workfront_format_are_rendered_once_for_each_encoding() {
        let event = event(&format!("[\"{}\"]", "x".repeat(5_000)), None);
        let loaded = Loaded::new(Arc::clone(&event));
        let mut seen = Vec::new();
        for subscription in one_for_each_form(&event).into_iter().skip(3) {
            let other =
                Subscription { id: SubscriptionId::from_bytes([8; 16]), ..subscription.clone() };
            let first = loaded.payload(&subscription, delivery());
            let second = loaded.payload(&other, delivery());
            assert_ne!(first, second, "each names its subscription");
            assert_eq!(shared(&first), shared(&second), "the same memory");
            seen.push(shared(&first));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), Encoding::COUNT);
    }

    #[test]
    fn everything_that_is_rendered_is_counted_and_dropped_after_the_last_attempt() {
        // An old state of which every byte must be escaped in the format `cloudevents`.
        let (data, old) = ("x".repeat(9_000), "\\".repeat(9_000));
        let event = event(&format!("[\"{data}\"]"), Some(&format!("\"{old}\"")));
        let loaded = Loaded::new(Arc::clone(&event));
        let rendered = |loaded: &Loaded| -> usize {
            loaded.rendered().iter().map(|(_, payload)| payload.body.len()).sum()
        };
        let (subscriptions, mut counted) = (one_for_each_form(&event), 0);
        for _ in 0..2 {
            for subscription in &subscriptions {
                let form = Form::of(subscription, delivery());
                let more = loaded.more_in_flight(form);
                loaded.in_flight.join();
                loaded.counted.add(form, more);
                counted += more;
                loaded.payload(subscription, delivery());
                // The heads of the formats are a few hundred bytes.
                assert!(loaded.bytes() + rendered(&loaded) <= counted + 600, "{form:?}");
            }
        }
        assert_eq!(loaded.rendered().len(), 6, "each form is kept once");
        assert_eq!(loaded.more_in_flight(Form::Standard), 0, "the second round added nothing");
        for n in (0..2 * subscriptions.len()).rev() {
            assert_eq!(loaded.in_flight.leave(), n == 0);
        }
        assert_eq!(loaded.forget_rendered(), counted);
        assert_eq!(rendered(&loaded), 0);
        assert_eq!(loaded.more_in_flight(Form::Raw), loaded.bytes());
    }
}
