//! What is in memory: destinations, tenants, and deliveries with the position of each, and how many
//! attempts are in flight. Data only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use postrider_domain::attempt::Turn;
use postrider_domain::delivery::{Delivery, Lane, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};

use super::destinations::{Dest, DestIx, Dests};
use super::ids::IdMap;
use crate::loaded::Loaded;

/// Everything in memory that has a position or is counted.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) dests: Dests,
    dest_by_id: HashMap<DestinationId, DestIx>,
    pub(super) tenants: Vec<TenantState>,
    tenant_by_id: HashMap<TenantId, usize>,
    pub(super) entries: Entries,
    pub(super) in_flight: InFlight,
    /// Deliveries that ramps have read and not sent yet.
    pub(super) read_ahead: usize,
}

impl Table {
    /// The destination with this identifier, unless it is not in memory or another node owns it.
    pub(super) fn dest_ix(&self, id: DestinationId) -> Option<DestIx> {
        self.dest_by_id.get(&id).copied()
    }

    pub(super) fn add_dest(&mut self, dest: Dest) -> DestIx {
        let id = dest.record.id;
        let ix = self.dests.add(dest);
        self.dest_by_id.insert(id, ix);
        ix
    }

    /// Forgets the identifier of a destination that another node owns now. The destination stays
    /// until its attempts in flight have ended.
    pub(super) fn lose_dest(&mut self, ix: DestIx) {
        self.dest_by_id.remove(&self.dests[ix.get()].record.id);
    }

    /// Removes a destination.
    pub(super) fn evict_dest(&mut self, ix: DestIx) {
        // The identifier of a lost one may belong to its successor.
        if let Some(gone) = self.dests.remove(ix)
            && !gone.lost
        {
            self.dest_by_id.remove(&gone.record.id);
        }
    }

    /// The identifiers of the destinations in memory that this node owns, in any order.
    pub(super) fn dest_ids(&self) -> impl ExactSizeIterator<Item = DestinationId> {
        self.dest_by_id.keys().copied()
    }

    /// The index of a tenant, which is added if it is new.
    pub(super) fn tenant_ix(&mut self, tenant: &TenantId) -> usize {
        if let Some(&ix) = self.tenant_by_id.get(tenant) {
            return ix;
        }
        let ix = self.tenants.len();
        self.tenants.push(TenantState::default());
        self.tenant_by_id.insert(tenant.clone(), ix);
        ix
    }

    pub(super) fn tenant(&self, tenant: &TenantId) -> Option<&TenantState> {
        self.tenant_by_id.get(tenant).map(|&ix| &self.tenants[ix])
    }

    /// Deliveries in memory, including those that ramps have read ahead.
    pub(super) fn resident(&self) -> usize {
        self.entries.len() + self.read_ahead
    }
}

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

/// The queue from which a delivery took its places, and to which it returns if it is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The first lane.
    FirstLane,
    /// The retry lane, at its slot or because somebody asked for an attempt.
    RetryLane,
    /// The retry lane, before its slot, by the ramp of a drain.
    Drained,
    /// It was chosen as the probe.
    Probe,
}

impl Origin {
    /// The lane whose share of the in-flight limit the delivery takes.
    pub(super) const fn lane(self) -> Lane {
        match self {
            Origin::FirstLane => Lane::First,
            Origin::RetryLane | Origin::Drained | Origin::Probe => Lane::Retry,
        }
    }

    /// The position of the delivery after it has returned.
    pub(super) const fn position(self) -> Position {
        match self {
            Origin::FirstLane => Position::FirstLane,
            Origin::RetryLane => Position::RetryLane { drained: false },
            Origin::Drained => Position::RetryLane { drained: true },
            Origin::Probe => Position::Probe,
        }
    }
}

/// The in-flight capacity that a delivery holds, from before its event is read until its attempt
/// has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) from: Origin,
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
