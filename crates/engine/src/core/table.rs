//! The deliveries in memory with the position of each, and the numbers in flight of each tenant.
//! Data only.

use std::collections::VecDeque;
use std::sync::Arc;

use postrider_domain::attempt::Turn;
use postrider_domain::delivery::{Delivery, Lane, StateName};
use postrider_domain::ids::DeliveryId;

use super::destinations::DestIx;
use super::ids::IdMap;
use crate::loaded::Loaded;

/// A delivery that is in memory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) delivery: Delivery,
    /// Its event, while there is room for it, or while it is in flight.
    pub(super) event: Option<Arc<Loaded>>,
    pub(super) dest: DestIx,
    pub(super) position: Position,
}

/// The deliveries in memory, and how many of them each destination has.
#[derive(Debug, Default)]
pub(super) struct Entries {
    by_id: IdMap<DeliveryId, Entry>,
    of: Vec<usize>,
}

impl Entries {
    pub(super) fn insert(&mut self, entry: Entry) {
        let at = entry.dest.get();
        if at >= self.of.len() {
            self.of.resize(at + 1, 0);
        }
        self.of[at] += 1;
        if let Some(before) = self.by_id.insert(entry.delivery.id, entry) {
            self.of[before.dest.get()] -= 1;
        }
    }

    pub(super) fn remove(&mut self, id: &DeliveryId) -> Option<Entry> {
        let removed = self.by_id.remove(id)?;
        self.of[removed.dest.get()] -= 1;
        Some(removed)
    }

    /// How many deliveries of a destination are in memory.
    pub(super) fn of(&self, ix: DestIx) -> usize {
        self.of.get(ix.get()).copied().unwrap_or(0)
    }

    pub(super) fn get(&self, id: &DeliveryId) -> Option<&Entry> {
        self.by_id.get(id)
    }

    /// The caller must not change the entry's destination.
    pub(super) fn get_mut(&mut self, id: &DeliveryId) -> Option<&mut Entry> {
        self.by_id.get_mut(id)
    }

    pub(super) fn contains_key(&self, id: &DeliveryId) -> bool {
        self.by_id.contains_key(id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&DeliveryId, &Entry)> {
        self.by_id.iter()
    }
}

/// The position of a delivery in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// In the first lane of its destination.
    FirstLane,
    /// In the window of waiting deliveries, until its slot is due.
    Window,
    /// In the retry lane of its destination.
    RetryLane {
        /// Whether the ramp of a drain brought it there before its slot.
        drained: bool,
    },
    /// Chosen as the probe: it waits until that is durable and the limits allow it.
    Probe,
    /// It holds in-flight capacity, and is sent or put back as soon as its event is in memory.
    Placed(Places),
    /// Being attempted.
    InFlight(Flight),
}

/// The in-flight capacity that a delivery holds, from before its event is read until its attempt
/// has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) lane: Lane,
    /// Whether the ramp of a drain brought it forward.
    pub(super) drained: bool,
    pub(super) is_probe: bool,
    /// Bytes that are reserved until its event is read.
    pub(super) unread_bytes: usize,
}

/// An attempt in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) turn: Turn,
    pub(super) places: Places,
    /// The account of the ledger that counts it meanwhile; `None` if it was cancelled in flight.
    pub(super) account: Option<StateName>,
}

/// The numbers of attempts in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InFlight {
    pub(super) first: usize,
    pub(super) retry: usize,
}

impl InFlight {
    pub(super) fn total(self) -> usize {
        self.first + self.retry
    }

    pub(super) fn of(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::First => &mut self.first,
            Lane::Retry => &mut self.retry,
        }
    }
}

/// A tenant's destinations that have deliveries to send in one lane.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) dests: VecDeque<DestIx>,
    /// Whether the tenant is in the lane's round-robin ring.
    pub(super) in_ring: bool,
}

/// The state of a tenant in memory.
#[derive(Debug, Default)]
pub(super) struct TenantState {
    pub(super) in_flight: usize,
    pub(super) in_flight_bytes: usize,
    pub(super) overlay: TenantOverlay,
    first: Turns,
    retry: Turns,
    /// Whether it waits until an attempt ends, because it has reached its share.
    pub(super) is_parked: bool,
    /// Probes that wait until an attempt of the tenant ends.
    pub(super) probes: VecDeque<DeliveryId>,
}

impl TenantState {
    pub(super) fn turns(&mut self, lane: Lane) -> &mut Turns {
        match lane {
            Lane::First => &mut self.first,
            Lane::Retry => &mut self.retry,
        }
    }
}

/// A tenant's deliveries in flight, by their state in the store, which does not know about them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TenantOverlay {
    /// In flight, but queued in the store.
    pub(crate) queued: u64,
    /// In flight, but waiting in the store.
    pub(crate) waiting: u64,
}

impl TenantOverlay {
    pub(super) fn account(&mut self, name: StateName) -> &mut u64 {
        match name {
            StateName::Queued => &mut self.queued,
            StateName::InFlight
            | StateName::Waiting
            | StateName::Delivered
            | StateName::Dead
            | StateName::Cancelled => &mut self.waiting,
        }
    }
}
