//! The bytes of events in memory: how many wait for their first attempt, and how many are in flight.
//!
//! An event counts once, however many deliveries share it. In flight it counts with its own bytes and
//! with those of every form in which it is sent. Until it is read, it counts as the largest possible
//! event.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use postrider_domain::event::Event;
use postrider_domain::ids::{DeliveryId, EventId, TenantId};
use postrider_domain::limits;

use super::state::Core;
use super::table::Places;
use crate::loaded::{Form, Loaded};

/// Events of this size or larger are shared by identifier, so that several reads of the store do
/// not keep several copies. For smaller ones a copy is cheaper than the lookup.
const LARGE_BYTES: usize = 4096;

/// Large events that are referenced in memory.
#[derive(Debug, Default)]
struct Known {
    events: HashMap<(TenantId, EventId), Weak<Loaded>>,
    /// When there are this many entries, unreferenced ones are removed.
    full_at: usize,
}

impl Known {
    fn get(&self, tenant: &TenantId, event: &EventId) -> Option<Arc<Loaded>> {
        if self.events.is_empty() {
            return None;
        }
        self.events.get(&(tenant.clone(), event.clone()))?.upgrade()
    }

    fn add(&mut self, loaded: &Arc<Loaded>) {
        if self.events.len() >= self.full_at {
            self.events.retain(|_, event| event.strong_count() > 0);
            self.full_at = (2 * self.events.len()).max(64);
        }
        let event = &loaded.event;
        let key = (event.tenant.clone(), event.id.clone());
        self.events.insert(key, Arc::downgrade(loaded));
    }
}

/// The bytes of events in memory, and the large events that are shared.
#[derive(Debug, Default)]
pub(super) struct Payloads {
    known: Known,
    /// Bytes of events that wait for their first attempt.
    queued_bytes: usize,
    in_flight_bytes: usize,
}

impl Payloads {
    /// The event, if it is large and in memory already.
    pub(super) fn known(&self, tenant: &TenantId, event: &EventId) -> Option<Arc<Loaded>> {
        self.known.get(tenant, event)
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    pub(super) fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }
}

/// The bytes of an event in this form that is not read yet.
fn unread_bytes(form: Form) -> usize {
    let max = limits::EVENT_BODY_BYTES_MAX;
    max + form.bytes(0, max)
}

impl Core {
    /// The bytes that an attempt of this delivery with this event adds to those in flight.
    pub(super) fn more_in_flight_bytes(&self, id: DeliveryId, loaded: Option<&Loaded>) -> usize {
        let form = self.form_of(id, loaded);
        loaded.map_or_else(|| unread_bytes(form), |loaded| loaded.more_in_flight(form))
    }

    /// The form in which a delivery is sent. A small event is taken to be sent in the commonest one
    /// until its attempt begins: looking up the subscription costs more than the difference.
    fn form_of(&self, id: DeliveryId, loaded: Option<&Loaded>) -> Form {
        if loaded.is_some_and(|loaded| loaded.bytes() < LARGE_BYTES) {
            return Form::Standard;
        }
        let subscription = self.table.entries.get(&id).map(|entry| entry.delivery.subscription);
        let prepared = subscription.and_then(|subscription| self.directory.get(subscription));
        prepared.map_or(Form::Standard, |prepared| Form::of(&prepared.subscription, id))
    }

    /// Shares an event: returns the one that is in memory already, or adds this one.
    pub(super) fn share(&mut self, event: Arc<Event>) -> Arc<Loaded> {
        let loaded = Arc::new(Loaded::new(event));
        if loaded.bytes() < LARGE_BYTES {
            return loaded;
        }
        let event = &loaded.event;
        if let Some(known) = self.payloads.known(&event.tenant, &event.id) {
            return known;
        }
        self.payloads.known.add(&loaded);
        loaded
    }

    /// The event of a delivery, if it is in memory.
    pub(super) fn event_of(&self, id: DeliveryId) -> Option<Arc<Loaded>> {
        let entry = self.table.entries.get(&id)?;
        entry.event.clone().or_else(|| {
            let delivery = &entry.delivery;
            self.payloads.known(&delivery.tenant, &delivery.event)
        })
    }

    /// Keeps an event in memory for a delivery's first attempt, if there is room.
    pub(super) fn keep_payload(&mut self, loaded: Arc<Loaded>) -> Option<Arc<Loaded>> {
        if !loaded.queued.any() {
            let bytes = self.payloads.queued_bytes.saturating_add(loaded.bytes());
            if bytes > self.options.payload_bytes_max {
                return None;
            }
            self.payloads.queued_bytes = bytes;
        }
        loaded.queued.join();
        Some(loaded)
    }

    /// Releases the event of a delivery that no longer waits for its first attempt.
    pub(super) fn forget_payload(&mut self, loaded: Option<&Loaded>) {
        if let Some(loaded) = loaded
            && loaded.queued.leave()
        {
            self.payloads.queued_bytes = self.payloads.queued_bytes.saturating_sub(loaded.bytes());
        }
    }

    /// Counts the bytes of an attempt that begins; if the event is not read yet, the largest
    /// possible size, which is returned.
    pub(super) fn count_in_flight(
        &mut self,
        tenant: usize,
        id: DeliveryId,
        loaded: Option<&Loaded>,
    ) -> usize {
        let form = self.form_of(id, loaded);
        let Some(loaded) = loaded else {
            let bytes = unread_bytes(form);
            self.add_in_flight_bytes(tenant, bytes);
            return bytes;
        };
        self.count_form(tenant, loaded, form);
        loaded.in_flight.join();
        0
    }

    /// Counts the form in which an event is sent, unless it is counted already.
    pub(super) fn count_form(&mut self, tenant: usize, loaded: &Loaded, form: Form) {
        let bytes = loaded.more_in_flight(form);
        loaded.counted.add(form, bytes);
        self.add_in_flight_bytes(tenant, bytes);
    }

    /// Corrects the counted bytes when the event was read.
    pub(super) fn recount_when_read(
        &mut self,
        tenant: usize,
        id: DeliveryId,
        places: &mut Places,
        loaded: &Loaded,
    ) {
        self.remove_in_flight_bytes(tenant, std::mem::take(&mut places.unread_bytes));
        self.count_in_flight(tenant, id, Some(loaded));
    }

    /// Subtracts the bytes when a delivery gives its in-flight capacity back.
    pub(super) fn uncount_in_flight(
        &mut self,
        tenant: usize,
        places: &Places,
        loaded: Option<&Loaded>,
    ) {
        let mut bytes = places.unread_bytes;
        if let Some(loaded) = loaded
            && loaded.in_flight.leave()
        {
            bytes += loaded.forget_rendered();
        }
        self.remove_in_flight_bytes(tenant, bytes);
    }

    fn add_in_flight_bytes(&mut self, tenant: usize, bytes: usize) {
        self.payloads.in_flight_bytes += bytes;
        self.table.tenants[tenant].in_flight_bytes += bytes;
    }

    fn remove_in_flight_bytes(&mut self, tenant: usize, bytes: usize) {
        self.payloads.in_flight_bytes = self.payloads.in_flight_bytes.saturating_sub(bytes);
        let of_tenant = &mut self.table.tenants[tenant].in_flight_bytes;
        *of_tenant = of_tenant.saturating_sub(bytes);
    }
}
