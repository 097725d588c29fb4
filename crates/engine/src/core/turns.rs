//! Round robin: over the tenants, then over the destinations of a tenant.
//!
//! A turn is one delivery. A tenant with ten thousand destinations gets no more turns than one with
//! a single destination, and within a tenant a destination with a million deliveries no more than
//! one with a single delivery.
//!
//! **A tenant never uses everything.** It may have seven times as many attempts (and bytes) in
//! flight as are free: alone it uses seven eighths, and the next tenant finds an eighth free and
//! reaches a fair share as attempts end. A tenant that has reached its share leaves the rings until
//! an attempt ends.

use std::collections::VecDeque;

use postrider_domain::delivery::Lane;
use postrider_domain::ids::DeliveryId;

use super::destinations::DestIx;
use super::state::Core;

/// A tenant may use this many times the free capacity.
const SHARE: usize = 7;

/// How many of the tenants at their share are checked again at a time.
const UNPARKED_AT_ONCE: usize = 64;

/// The round-robin rings of both lanes, and the probes, lanes and tenants that wait.
#[derive(Debug, Default)]
pub(super) struct Rings {
    first: VecDeque<usize>,
    retry: VecDeque<usize>,
    /// Destinations that have due deliveries in the retry lane.
    pub(super) ready: usize,
    /// Durable probes that wait for in-flight capacity.
    pub(super) probes: VecDeque<DeliveryId>,
    /// Lanes that have more deliveries in the store and wait for free memory.
    pub(super) starved: VecDeque<(DestIx, Lane)>,
    /// Tenants that have reached their share.
    parked: VecDeque<usize>,
    /// Whether an attempt has ended since the waiting tenants were last checked.
    pub(super) freed: bool,
}

impl Rings {
    pub(super) fn of(&mut self, lane: Lane) -> &mut VecDeque<usize> {
        match lane {
            Lane::First => &mut self.first,
            Lane::Retry => &mut self.retry,
        }
    }
}

/// The share that a tenant has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// Attempts in flight.
    Attempts { limit: usize },
    /// Bytes in flight.
    Bytes { limit: usize },
}

impl Core {
    pub(super) fn has_room(&self, lane: Lane) -> bool {
        let options = &self.options;
        let (used, reserved) = match lane {
            Lane::First => (self.table.in_flight.first, options.retry_lane_reserved),
            Lane::Retry => (self.table.in_flight.retry, options.first_lane_reserved),
        };
        // Both lanes keep at least half, whatever is configured.
        let reserved = reserved.min(options.in_flight_max / 2);
        self.table.in_flight.total() < options.in_flight_max
            && used < options.in_flight_max - reserved
    }

    /// Why a tenant may not have one more attempt in flight with this many bytes; `None` if it may.
    pub(super) fn tenant_block(&self, tenant: usize, bytes: usize) -> Option<Share> {
        let (options, tenant) = (&self.options, &self.table.tenants[tenant]);
        let free = options.in_flight_max.saturating_sub(self.table.in_flight.total());
        let limit = options.tenant_in_flight_max.unwrap_or(usize::MAX);
        let limit = limit.min(free.saturating_mul(SHARE));
        if tenant.in_flight >= limit {
            return Some(Share::Attempts { limit });
        }
        let max = options.in_flight_bytes_max;
        let free = max.saturating_sub(self.payloads.in_flight_bytes());
        let limit = options.tenant_in_flight_bytes_max.unwrap_or(usize::MAX);
        let limit = limit.min(free.saturating_mul(SHARE));
        // An event that is larger than the whole limit is sent alone.
        let fits = bytes == 0
            || tenant.in_flight_bytes == 0 && self.payloads.in_flight_bytes() == 0
            || bytes <= free && tenant.in_flight_bytes.saturating_add(bytes) <= limit;
        (!fits).then_some(Share::Bytes { limit })
    }

    /// The next destination of a lane; its tenant goes to the end of the ring.
    pub(super) fn next_turn(&mut self, lane: Lane) -> Option<DestIx> {
        while let Some(tenant) = self.rings.of(lane).pop_front() {
            self.table.tenants[tenant].turns(lane).in_ring = false;
            if self.table.tenants[tenant].is_parked {
                continue;
            }
            if self.tenant_block(tenant, 0).is_some() {
                self.park_tenant(tenant);
                continue;
            }
            let Some(ix) = self.table.tenants[tenant].turns(lane).dests.pop_front() else {
                continue;
            };
            self.rings.ready -= usize::from(lane == Lane::Retry);
            self.table.dests[ix.get()].queue(lane).in_ring = false;
            self.enter_ring(tenant, lane);
            return Some(ix);
        }
        None
    }

    /// How many tenants, and how many destinations of the same tenant, have their turn before a
    /// destination.
    pub(super) fn turns_ahead(&mut self, ix: DestIx, lane: Lane) -> (usize, usize) {
        let tenant = self.table.dests[ix.get()].tenant;
        let ring = self.rings.of(lane);
        let tenants = ring.iter().position(|other| *other == tenant).unwrap_or(0);
        let dests = &self.table.tenants[tenant].turns(lane).dests;
        (tenants, dests.iter().position(|other| *other == ix).unwrap_or(0))
    }

    /// Adds a destination to the ring of a lane, because it has deliveries to send.
    pub(super) fn enter_turns(&mut self, ix: DestIx, lane: Lane) {
        let dest = &mut self.table.dests[ix.get()];
        dest.queue(lane).in_ring = true;
        let tenant = dest.tenant;
        self.table.tenants[tenant].turns(lane).dests.push_back(ix);
        self.rings.ready += usize::from(lane == Lane::Retry);
        self.enter_ring(tenant, lane);
    }

    fn enter_ring(&mut self, tenant: usize, lane: Lane) {
        let known = &mut self.table.tenants[tenant];
        let is_parked = known.is_parked;
        let turns = known.turns(lane);
        if !is_parked && !turns.in_ring && !turns.dests.is_empty() {
            turns.in_ring = true;
            self.rings.of(lane).push_back(tenant);
        }
    }

    /// Keeps the turn of a destination whose tenant has reached its share.
    pub(super) fn keep_turn(&mut self, ix: DestIx, lane: Lane) {
        let dest = &mut self.table.dests[ix.get()];
        let tenant = dest.tenant;
        let queue = dest.queue(lane);
        if !queue.in_ring {
            queue.in_ring = true;
            self.table.tenants[tenant].turns(lane).dests.push_front(ix);
            self.rings.ready += usize::from(lane == Lane::Retry);
        }
        self.park_tenant(tenant);
    }

    fn park_tenant(&mut self, tenant: usize) {
        if !std::mem::replace(&mut self.table.tenants[tenant].is_parked, true) {
            self.rings.parked.push_back(tenant);
        }
    }

    /// Lets a probe wait until its tenant has fewer attempts in flight.
    pub(super) fn park_probe(&mut self, tenant: usize, probe: DeliveryId) {
        self.table.tenants[tenant].probes.push_back(probe);
        self.park_tenant(tenant);
    }

    /// An attempt has ended: checks again the tenants that had reached their share, those that wait
    /// longest first. If nothing is in flight it checks all of them, because nothing else would.
    pub(super) fn unpark(&mut self) {
        if !std::mem::take(&mut self.rings.freed) {
            return;
        }
        let waiting = self.rings.parked.len();
        let asked =
            if self.table.in_flight.total() == 0 { waiting } else { waiting.min(UNPARKED_AT_ONCE) };
        for _ in 0..asked {
            let Some(tenant) = self.rings.parked.pop_front() else { break };
            let known = &mut self.table.tenants[tenant];
            known.is_parked = false;
            self.rings.probes.extend(known.probes.drain(..));
            self.enter_ring(tenant, Lane::First);
            self.enter_ring(tenant, Lane::Retry);
        }
    }
}
