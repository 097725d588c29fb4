//! Who is sent next: tenants take turns, and within a tenant its destinations, within the limits of
//! the whole, of the lane, of the tenant and of the destination.
//!
//! The first lane goes first, and retries can never take the share that is reserved for it.
//! A destination whose limit is reached leaves the ring until something of it ends.

use std::sync::Arc;

use postrider_domain::attempt::{Turn, Verdict};
use postrider_domain::circuit::{Admission, CircuitState};
use postrider_domain::delivery::{CancelReason, Lane};
use postrider_domain::ids::DeliveryId;
use postrider_domain::planted::{self, Bug};
use postrider_domain::time::Timestamp;

use super::alarms::Alarm;
use super::destinations::{DestIx, ProbeStage};
use super::messages::{Action, Outgoing};
use super::payloads::flying_bytes;
use super::state::Core;
use super::table::{Flight, Place};
use crate::live::EngineEvent;

/// First attempts of a destination after which one of its own retries has its turn.
const FIRST_PER_RETRY: u32 = 8;

/// Why a destination cannot be sent to right now.
enum Block {
    /// Its own limit is reached: until something of it ends.
    Limit,
    /// Its rate is used up until then.
    Rate(Timestamp),
    /// Its tenant has its share of attempts or bytes: until something ends.
    Tenant,
}

impl Core {
    /// Sends as much as the limits allow.
    pub(super) fn pump(&mut self) {
        if self.is_quiet() {
            return;
        }
        self.unpark();
        while self.in_flight.total() < self.options.in_flight_max
            && let Some(id) = self.rings.probes.pop_front()
        {
            let event = self.event_of(id);
            let bytes = flying_bytes(event.as_deref());
            match self.entries.get(&id).map(|entry| self.dests[entry.dest.get()].tenant) {
                Some(tenant) if self.tenant_block(tenant, bytes).is_some() => {
                    self.park_probe(tenant, id);
                }
                Some(_) | None => self.send_probe(id),
            }
        }
        for lane in [Lane::First, Lane::Retry] {
            while self.has_room(lane)
                && !self.is_quiet()
                && let Some(ix) = self.next_turn(lane)
            {
                self.turn(ix, lane);
            }
        }
    }

    /// One turn of a destination: one delivery.
    fn turn(&mut self, ix: DestIx, ring: Lane) {
        if self.is_leaving(self.dests[ix.get()].record.id.shard()) {
            // Its next owner sends it.
            return;
        }
        let lane = if ring == Lane::First && self.owes_retry(ix) { Lane::Retry } else { ring };
        let Some(id) = self.peek(ix, lane) else { return };
        match self.ask(ix) {
            Admission::Admit => match self.block(ix, lane, id) {
                None => {
                    self.pop(ix, lane);
                    self.attempt(id, lane);
                }
                Some(Block::Tenant) => return self.keep_turn(ix, ring),
                Some(block) => return self.park(ix, &block),
            },
            Admission::Probe if self.dests[ix.get()].probe == ProbeStage::None => {
                self.pop(ix, lane);
                // It has left its queue, and must not leave it once more.
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.place = Place::Probe;
                }
                self.begin_probe(ix, id);
            }
            Admission::Probe | Admission::WaitUntil(_) | Admission::Refuse => {
                self.pop(ix, lane);
                self.not_admitted(id, ix);
            }
        }
        self.activate_lane(ix, ring);
    }

    /// Whether a destination has sent so many first attempts that one of its retries is due, and
    /// could be sent.
    fn owes_retry(&mut self, ix: DestIx) -> bool {
        let dest = &self.dests[ix.get()];
        let is_owed = dest.retry.len > 0
            && dest.first_since_retry >= FIRST_PER_RETRY
            && self.has_room(Lane::Retry);
        is_owed
            && self
                .peek(ix, Lane::Retry)
                .is_some_and(|id| self.block(ix, Lane::Retry, id).is_none())
    }

    fn block(&mut self, ix: DestIx, lane: Lane, id: DeliveryId) -> Option<Block> {
        let pressure = self.in_flight.total() * 2 >= self.options.in_flight_max;
        let dest = &mut self.dests[ix.get()];
        let ramp = dest.ramp.as_ref().map_or(0, |ramp| ramp.size);
        let limit = dest.limit.get(pressure).max(ramp);
        // A quarter of a destination's own places is kept for its first lane.
        let retry_limit = (limit - limit / 4).max(ramp);
        if dest.in_flight >= limit || lane == Lane::Retry && dest.retry_in_flight >= retry_limit {
            return Some(Block::Limit);
        }
        let now = self.now;
        if let Some(at) = dest.bucket.as_mut().and_then(|bucket| bucket.ready_at(now)) {
            return Some(Block::Rate(at));
        }
        let tenant = dest.tenant;
        let bytes = flying_bytes(self.event_of(id).as_deref());
        self.tenant_block(tenant, bytes).map(|_| Block::Tenant)
    }

    fn park(&mut self, ix: DestIx, block: &Block) {
        match block {
            Block::Limit => self.dests[ix.get()].limit.feel(),
            Block::Rate(at) => self.alarms.set(Alarm::Tokens(ix), *at),
            Block::Tenant => self.keep_turn(ix, Lane::First),
        }
    }

    /// An ordinary attempt of a delivery that was just taken from its queue.
    fn attempt(&mut self, id: DeliveryId, lane: Lane) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (ix, place) = (entry.dest, entry.place);
        let drained = matches!(place, Place::Ready { drained: true });
        if drained && !self.still_drains(id, ix) {
            return;
        }
        let Some(turn) = self.entries.get(&id).and_then(|entry| entry.delivery.turn()) else {
            self.entries.remove(&id);
            return;
        };
        let dest = &mut self.dests[ix.get()];
        if let Some(bucket) = &mut dest.bucket {
            // Whether there is a token was asked just before.
            bucket.take(1, self.now).ok();
        }
        match lane {
            Lane::First => dest.first_since_retry = dest.first_since_retry.saturating_add(1),
            Lane::Retry => dest.first_since_retry = 0,
        }
        self.launch(id, turn, lane, drained);
    }

    /// The probe is durable and there is room for it.
    fn send_probe(&mut self, id: DeliveryId) {
        let Some(entry) = self.entries.get(&id) else { return };
        if entry.place != Place::Probe {
            return;
        }
        let ix = entry.dest;
        let circuit = &self.dests[ix.get()].record.circuit;
        let is_probe =
            matches!(&circuit.state, CircuitState::HalfOpen { probe, .. } if *probe == id);
        if is_probe {
            self.launch(id, Turn::Probe, Lane::Retry, false);
        } else {
            // Somebody enabled or froze the destination meanwhile: its own turn will come.
            self.dests[ix.get()].probe = ProbeStage::None;
            if let Some(entry) = self.entries.remove(&id) {
                self.forget_payload(entry.event.as_deref());
                self.place(entry.delivery, ix);
            }
        }
    }

    /// Sends a delivery; whether it may be sent was decided before.
    fn launch(&mut self, id: DeliveryId, turn: Turn, lane: Lane, drained: bool) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Some(prepared) = self.directory.get(entry.delivery.subscription) else {
            let (ix, place) = (entry.dest, entry.place);
            // It has left its queue for this turn, and must not leave it once more.
            if matches!(place, Place::First | Place::Ready { .. }) {
                entry.place = Place::Due;
            }
            self.cancel_resident(id, CancelReason::SubscriptionDeleted);
            if place == (Place::Ready { drained: true }) {
                self.drained(ix, Verdict::Success);
            }
            return;
        };
        let account = entry.delivery.state.name();
        let (queued, tenant) = (entry.event.take(), self.dests[entry.dest.get()].tenant);
        let event = queued.clone().or_else(|| {
            let delivery = &entry.delivery;
            self.known.get(&delivery.tenant, &delivery.event)
        });
        self.forget_payload(queued.as_deref());
        let unread_bytes = self.fly(tenant, event.as_deref());
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let flight = Flight { turn, lane, drained, unread_bytes, account: Some(account) };
        entry.event = event.clone();
        entry.place = Place::InFlight(flight);
        let dest = &mut self.dests[entry.dest.get()];
        dest.in_flight += 1;
        dest.retry_in_flight += u32::from(lane == Lane::Retry);
        *self.in_flight.of(lane) += 1;
        let tenant = &mut self.tenants[dest.tenant];
        tenant.in_flight += 1;
        *tenant.overlay.account(account) += 1;
        let delivery = &entry.delivery;
        let number = delivery.attempts.saturating_add(1);
        if self.listened {
            self.actions.push(Action::Publish(EngineEvent::Began {
                tenant: delivery.tenant.clone(),
                delivery: id,
                destination: delivery.destination,
                turn,
            }));
        }
        if turn == Turn::Probe && planted::is(Bug::DuplicateProbe) {
            self.actions.push(Action::Send(Outgoing {
                delivery: id,
                number,
                tenant: delivery.tenant.clone(),
                event_id: delivery.event.clone(),
                event: event.clone(),
                prepared: Arc::clone(&prepared),
                target: dest.target.clone(),
            }));
        }
        self.actions.push(Action::Send(Outgoing {
            delivery: id,
            number,
            tenant: delivery.tenant.clone(),
            event_id: delivery.event.clone(),
            event,
            prepared,
            target: dest.target.clone(),
        }));
    }
}
