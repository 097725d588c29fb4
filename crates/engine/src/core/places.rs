//! The in-flight capacity ("places") that a delivery takes from the limits, and how it leaves
//! memory.
//!
//! A delivery holds its places from before its event is read until its attempt has ended: so every
//! event that is read can be sent, and no more events are read than can be sent.

use std::sync::Arc;

use postrider_domain::delivery::{DeliveryState, Lane};
use postrider_domain::ids::DeliveryId;

use super::destinations::DestIx;
use super::state::Core;
use super::table::{Entry, Origin, Places, Position};
use crate::loaded::Loaded;

impl Core {
    /// Takes places for the delivery that [`Core::peek`] returned, and removes it from its lane.
    /// The caller has checked the limits.
    pub(super) fn take_places(&mut self, id: DeliveryId, ix: DestIx, lane: Lane) {
        self.pop(ix, lane);
        let dest = &mut self.table.dests[ix.get()];
        if let Some(bucket) = &mut dest.bucket {
            // The caller has checked that there is a token.
            bucket.take(1, self.now).ok();
        }
        match lane {
            Lane::First => dest.first_since_retry = dest.first_since_retry.saturating_add(1),
            Lane::Retry => dest.first_since_retry = 0,
        }
        let is_drained = |entry: &Entry| entry.position == (Position::RetryLane { drained: true });
        let from = match lane {
            Lane::First => Origin::FirstLane,
            Lane::Retry if self.table.entries.get(&id).is_some_and(is_drained) => Origin::Drained,
            Lane::Retry => Origin::RetryLane,
        };
        self.enter_places(id, from);
    }

    /// Takes places for a probe.
    pub(super) fn take_places_for_probe(&mut self, id: DeliveryId) {
        self.enter_places(id, Origin::Probe);
    }

    fn enter_places(&mut self, id: DeliveryId, from: Origin) {
        let Some(entry) = self.table.entries.get_mut(&id) else { return };
        let (queued, dest) = (entry.event.take(), &mut self.table.dests[entry.dest.get()]);
        let event = queued.clone().or_else(|| {
            let delivery = &entry.delivery;
            self.payloads.known(&delivery.tenant, &delivery.event)
        });
        dest.in_flight += 1;
        dest.retry_in_flight += u32::from(from.lane() == Lane::Retry);
        let tenant = dest.tenant;
        self.table.tenants[tenant].in_flight += 1;
        *self.table.in_flight.of(from.lane()) += 1;
        self.forget_payload(queued.as_deref());
        let unread_bytes = self.count_in_flight(tenant, id, event.as_deref());
        if let Some(entry) = self.table.entries.get_mut(&id) {
            entry.event = event;
            entry.position = Position::Placed(Places { from, unread_bytes });
        }
    }

    /// The places of a delivery that holds some and is not in flight yet.
    pub(super) fn places_of(&self, id: DeliveryId) -> Option<(DestIx, Places)> {
        let entry = self.table.entries.get(&id)?;
        match entry.position {
            Position::Placed(places) => Some((entry.dest, places)),
            Position::FirstLane
            | Position::Window
            | Position::RetryLane { .. }
            | Position::Probe
            | Position::InFlight(_) => None,
        }
    }

    /// Attaches the event that was read to a delivery that holds places.
    pub(super) fn attach(&mut self, id: DeliveryId, event: Arc<Loaded>) {
        let Some((ix, mut places)) = self.places_of(id) else { return };
        let tenant = self.table.dests[ix.get()].tenant;
        self.recount_when_read(tenant, id, &mut places, &event);
        self.rings.freed = true;
        if let Some(entry) = self.table.entries.get_mut(&id) {
            entry.event = Some(event);
            entry.position = Position::Placed(places);
        }
    }

    /// Gives places back to the limits.
    pub(super) fn give_back_places(&mut self, ix: DestIx, places: &Places, event: Option<&Loaded>) {
        let dest = &mut self.table.dests[ix.get()];
        dest.used_at = self.now;
        dest.in_flight -= 1;
        dest.retry_in_flight -= u32::from(places.from.lane() == Lane::Retry);
        *self.table.in_flight.of(places.from.lane()) -= 1;
        let tenant = dest.tenant;
        self.table.tenants[tenant].in_flight -= 1;
        self.uncount_in_flight(tenant, places, event);
        self.rings.freed = true;
        self.activate(ix);
        self.read_back_when_low(ix, Lane::Retry);
    }

    /// A delivery is not sent now: it gives its places back and returns to its lane.
    pub(super) fn put_back(&mut self, id: DeliveryId) {
        let Some((ix, places)) = self.places_of(id) else { return };
        let event = self.table.entries.get_mut(&id).and_then(|entry| entry.event.take());
        self.give_back_places(ix, &places, event.as_deref());
        if let Some(entry) = self.table.entries.get_mut(&id) {
            entry.position = places.from.position();
        }
        if places.from == Origin::Probe {
            self.rings.probes.push_back(id);
        } else {
            self.push_front(id, ix, places.from.lane());
        }
    }

    /// Removes a delivery from memory, wherever it is, and returns it. `None`, and nothing changes,
    /// if it is in flight: its attempt continues.
    pub(super) fn take_out(&mut self, id: DeliveryId) -> Option<Entry> {
        if let Position::InFlight(_) = self.table.entries.get(&id)?.position {
            return None;
        }
        let mut entry = self.table.entries.remove(&id)?;
        let (ix, event) = (entry.dest, entry.event.take());
        match entry.position {
            Position::Placed(places) => {
                self.give_back_places(ix, &places, event.as_deref());
                return Some(entry);
            }
            Position::FirstLane => self.leave_lane(ix, Lane::First),
            Position::RetryLane { .. } => self.leave_lane(ix, Lane::Retry),
            Position::Window => {
                if let DeliveryState::Waiting(slot) = entry.delivery.state {
                    self.window.remove(slot.due_at, id);
                }
            }
            Position::Probe | Position::InFlight(_) => {}
        }
        self.forget_payload(event.as_deref());
        Some(entry)
    }
}
