//! What is known of a delivery, a tenant and the whole while it is in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use postrider_domain::attempt::Turn;
use postrider_domain::delivery::{Delivery, Lane, StateName};
use postrider_domain::destination::Destination;
use postrider_domain::ids::DeliveryId;
use postrider_domain::time::Timestamp;

use super::ids::IdMap;
use super::queue::DestIx;
use super::turns::Turns;
use crate::loaded::Loaded;

/// A delivery that is in memory.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) delivery: Delivery,
    /// Its event, while there is room for it, and while it is in flight.
    pub(super) event: Option<Arc<Loaded>>,
    pub(super) dest: DestIx,
    pub(super) place: Place,
}

/// The deliveries that are in memory, and how many each destination has there.
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

    /// How many a destination has.
    pub(super) fn of(&self, ix: DestIx) -> usize {
        self.of.get(ix.get()).copied().unwrap_or(0)
    }

    pub(super) fn get(&self, id: &DeliveryId) -> Option<&Entry> {
        self.by_id.get(id)
    }

    /// Whoever changes an entry leaves its destination as it is.
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

/// Where a delivery is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In its destination's first queue.
    First,
    /// Until its slot falls due.
    Due,
    /// In its destination's retry queue.
    Ready {
        /// Brought there before its slot, by the ramp of a recovery.
        drained: bool,
    },
    /// Chosen as the probe, and not sent yet.
    Probe,
    /// Being attempted.
    InFlight(Flight),
}

/// An attempt that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) turn: Turn,
    pub(super) lane: Lane,
    pub(super) drained: bool,
    /// Bytes that are set aside until its event was read.
    pub(super) unread_bytes: usize,
    /// The account that it stands in meanwhile; `None` where it was cancelled in flight.
    pub(super) account: Option<StateName>,
}

/// How many attempts are under way.
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

/// What is known of a tenant.
#[derive(Debug, Default)]
pub(super) struct TenantState {
    pub(super) in_flight: usize,
    pub(super) flying_bytes: usize,
    pub(super) overlay: TenantOverlay,
    first: Turns,
    retry: Turns,
    /// Whether it waits until something has ended.
    pub(super) is_parked: bool,
    /// Probes that wait for the same.
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

/// What of a tenant's ledger is in flight now: the store does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TenantOverlay {
    /// Stand as queued in the store.
    pub(crate) queued: u64,
    /// Stand as waiting in the store.
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

/// What is known of a destination now.
#[derive(Debug, Clone)]
pub(crate) struct DestinationOverlay {
    /// The destination with its circuit as it is now.
    pub(crate) destination: Destination,
    /// Attempts in flight.
    pub(crate) in_flight: u32,
    /// How many may be.
    pub(crate) in_flight_limit: u32,
    /// In the first lane and in memory.
    pub(crate) queued: usize,
    /// In the retry lane, due, and in memory.
    pub(crate) ready: usize,
    /// When the oldest in the first lane was accepted.
    pub(crate) oldest_queued_at: Option<Timestamp>,
}

/// What the engine holds right now. All of it but the destinations is zero when nothing is owed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Destinations known.
    pub destinations: usize,
    /// Deliveries in memory.
    pub resident: usize,
    /// First attempts in flight.
    pub in_flight_first: usize,
    /// Retries and probes in flight.
    pub in_flight_retry: usize,
    /// In the first lane and in memory.
    pub queued: usize,
    /// Due in the retry lane.
    pub ready: usize,
    /// Waiting in memory for their slot.
    pub due: usize,
    /// Timers that are set.
    pub alarms: usize,
    /// Changes that are not durable yet.
    pub unpersisted: usize,
    /// Reads of the store that are under way.
    pub loads: usize,
    /// Bytes of payloads in memory that wait for their first attempt.
    pub payload_bytes: usize,
    /// Bytes of payloads in flight.
    pub flying_bytes: usize,
    /// Replay jobs at work.
    pub replays: usize,
    /// Shards that are owned.
    pub shards: usize,
    /// Whether they are surely ours: nothing is sent otherwise.
    pub leased: bool,
    /// How often a filter exceeded its budget since the start.
    pub filters_over_budget: u64,
    /// Whether transitions are held because most destinations fail at once.
    pub held: bool,
}
