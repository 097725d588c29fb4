//! The bytes of events in memory: how many wait for their first attempt, and how many are in flight.
//!
//! An event counts once, however many deliveries share it. In flight it counts twice its bytes, for
//! itself and for what is rendered of it; one that is still to be read counts as the largest that is
//! accepted, until its size is known.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use postrider_domain::event::Event;
use postrider_domain::ids::{DeliveryId, EventId, TenantId};
use postrider_domain::limits;

use super::state::Core;
use super::table::Places;
use crate::loaded::Loaded;

/// Events from so many bytes on are found again by their identifier, so that several reads of the
/// store do not bring several copies. Below it a copy costs less than the look.
const LARGE_BYTES: usize = 4096;

/// What an event that is still to be read counts as in flight.
const UNREAD_BYTES: usize = 2 * limits::EVENT_BODY_BYTES_MAX;

/// Large events that something in memory refers to.
#[derive(Debug, Default)]
pub(super) struct Known {
    events: HashMap<(TenantId, EventId), Weak<Loaded>>,
    /// Entries after which those that are gone are removed.
    full_at: usize,
}

impl Known {
    pub(super) fn get(&self, tenant: &TenantId, event: &EventId) -> Option<Arc<Loaded>> {
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

/// Bytes in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct FlyingBytes {
    pub(super) total: usize,
}

/// What an event counts as in flight.
pub(super) fn flying_bytes(loaded: Option<&Loaded>) -> usize {
    match loaded {
        Some(loaded) if loaded.flying.any() => 0,
        Some(loaded) => cost(loaded),
        None => UNREAD_BYTES,
    }
}

fn cost(loaded: &Loaded) -> usize {
    2 * loaded.bytes()
}

impl Core {
    /// An event that came into memory, or the one that is there already.
    pub(super) fn share(&mut self, event: Arc<Event>) -> Arc<Loaded> {
        let loaded = Arc::new(Loaded::new(event));
        if loaded.bytes() < LARGE_BYTES {
            return loaded;
        }
        let event = &loaded.event;
        if let Some(known) = self.known.get(&event.tenant, &event.id) {
            return known;
        }
        self.known.add(&loaded);
        loaded
    }

    /// An event that something in memory refers to already.
    fn known_event(&self, tenant: &TenantId, event: &EventId) -> Option<Arc<Loaded>> {
        self.known.get(tenant, event)
    }

    /// The event of a delivery, where it is in memory.
    pub(super) fn event_of(&self, id: DeliveryId) -> Option<Arc<Loaded>> {
        let entry = self.entries.get(&id)?;
        entry.event.clone().or_else(|| {
            let delivery = &entry.delivery;
            self.known_event(&delivery.tenant, &delivery.event)
        })
    }

    /// Keeps an event for a delivery that waits for its first attempt, where there is room.
    pub(super) fn keep_payload(&mut self, loaded: Arc<Loaded>) -> Option<Arc<Loaded>> {
        if !loaded.queued.any() {
            let bytes = self.payload_bytes.saturating_add(loaded.bytes());
            if bytes > self.options.payload_bytes_max {
                return None;
            }
            self.payload_bytes = bytes;
        }
        loaded.queued.join();
        Some(loaded)
    }

    /// A delivery does not wait for its first attempt any more.
    pub(super) fn forget_payload(&mut self, loaded: Option<&Loaded>) {
        if let Some(loaded) = loaded
            && loaded.queued.leave()
        {
            self.payload_bytes = self.payload_bytes.saturating_sub(loaded.bytes());
        }
    }

    /// An attempt begins: its event is in flight from now on, or will be when it was read.
    pub(super) fn fly(&mut self, tenant: usize, loaded: Option<&Loaded>) -> usize {
        match loaded {
            Some(loaded) => {
                if loaded.flying.join() {
                    self.add_flying(tenant, cost(loaded));
                }
                0
            }
            None => {
                self.add_flying(tenant, UNREAD_BYTES);
                UNREAD_BYTES
            }
        }
    }

    /// The event of a delivery that has its places was read: it counts as what it is.
    pub(super) fn flown_read(&mut self, tenant: usize, places: &mut Places, loaded: &Loaded) {
        self.remove_flying(tenant, std::mem::take(&mut places.unread_bytes));
        self.fly(tenant, Some(loaded));
    }

    /// A delivery gives its places back.
    pub(super) fn landed(&mut self, tenant: usize, places: &Places, loaded: Option<&Loaded>) {
        let mut bytes = places.unread_bytes;
        if let Some(loaded) = loaded
            && loaded.flying.leave()
        {
            bytes += cost(loaded);
        }
        self.remove_flying(tenant, bytes);
    }

    fn add_flying(&mut self, tenant: usize, bytes: usize) {
        self.flying_bytes.total += bytes;
        self.tenants[tenant].flying_bytes += bytes;
    }

    fn remove_flying(&mut self, tenant: usize, bytes: usize) {
        self.flying_bytes.total = self.flying_bytes.total.saturating_sub(bytes);
        let of_tenant = &mut self.tenants[tenant].flying_bytes;
        *of_tenant = of_tenant.saturating_sub(bytes);
    }
}
