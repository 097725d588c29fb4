//! The bytes of events in memory: how many wait for their first attempt, and how many are in flight.
//!
//! An event counts once, however many deliveries share it. In flight it counts twice its size, for
//! the event and for its rendered bodies. Until it is read, it counts as the largest possible
//! event.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use postrider_domain::event::Event;
use postrider_domain::ids::{DeliveryId, EventId, TenantId};
use postrider_domain::limits;

use super::state::Core;
use super::table::Places;
use crate::loaded::Loaded;

/// Events of this size or larger are shared by identifier, so that several reads of the store do
/// not keep several copies. For smaller ones a copy is cheaper than the lookup.
const LARGE_BYTES: usize = 4096;

/// The size in flight of an event that is not read yet.
const UNREAD_BYTES: usize = 2 * limits::EVENT_BODY_BYTES_MAX;

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

/// The size of an event in flight.
pub(super) fn in_flight_bytes(loaded: Option<&Loaded>) -> usize {
    match loaded {
        Some(loaded) if loaded.in_flight.any() => 0,
        Some(loaded) => cost(loaded),
        None => UNREAD_BYTES,
    }
}

fn cost(loaded: &Loaded) -> usize {
    2 * loaded.bytes()
}

impl Core {
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
    /// possible size.
    pub(super) fn count_in_flight(&mut self, tenant: usize, loaded: Option<&Loaded>) -> usize {
        match loaded {
            Some(loaded) => {
                if loaded.in_flight.join() {
                    self.add_in_flight_bytes(tenant, cost(loaded));
                }
                0
            }
            None => {
                self.add_in_flight_bytes(tenant, UNREAD_BYTES);
                UNREAD_BYTES
            }
        }
    }

    /// Corrects the counted bytes when the event was read.
    pub(super) fn recount_when_read(
        &mut self,
        tenant: usize,
        places: &mut Places,
        loaded: &Loaded,
    ) {
        self.remove_in_flight_bytes(tenant, std::mem::take(&mut places.unread_bytes));
        self.count_in_flight(tenant, Some(loaded));
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
            bytes += cost(loaded);
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
