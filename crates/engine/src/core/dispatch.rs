//! Chooses the next delivery to send: tenants take turns, and within a tenant its destinations,
//! within the limits of the server, of the lane, of the tenant and of the destination.
//!
//! The first lane goes first, and retries can never take the share that is reserved for it. A
//! destination whose limit is reached leaves the ring until one of its attempts ends.

use std::sync::Arc;

use postrider_domain::attempt::Turn;
use postrider_domain::circuit::{Admission, CircuitState};
use postrider_domain::delivery::{CancelReason, Lane};
use postrider_domain::event::Event;
use postrider_domain::ids::DeliveryId;
use postrider_domain::time::Timestamp;

use super::alarms::Alarm;
use super::destinations::{DestIx, ProbeStage};
use super::messages::{Action, Outgoing};
use super::state::Core;
use super::table::{Flight, Origin, Places, Position};
use crate::live::EngineEvent;
use crate::loaded::{Form, Loaded};

/// After this many first attempts a destination sends one of its retries.
const FIRST_PER_RETRY: u32 = 8;

/// Why a destination cannot be sent to now.
enum Block {
    /// Its limit of attempts in flight is reached, until one of them ends.
    Limit,
    /// Its rate limit allows the next request at this time.
    Rate(Timestamp),
    /// Its tenant has reached its share of attempts or bytes in flight, until an attempt ends.
    Tenant,
}

impl Core {
    /// Sends as many deliveries as the limits allow.
    pub(super) fn pump(&mut self) {
        if self.is_quiet() {
            return;
        }
        self.unpark();
        while self.table.in_flight.total() < self.options.in_flight_max
            && let Some(id) = self.rings.probes.pop_front()
        {
            let event = self.event_of(id);
            let bytes = self.more_in_flight_bytes(id, event.as_deref());
            match self.table.entries.get(&id).map(|entry| self.table.dests[entry.dest.get()].tenant)
            {
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

    /// One turn of a destination: sends one delivery.
    fn turn(&mut self, ix: DestIx, ring: Lane) {
        if self.shards.is_to_give_back(self.table.dests[ix.get()].record.id.shard()) {
            // The next owner of the shard will send it.
            return;
        }
        let lane = if ring == Lane::First && self.owes_retry(ix) { Lane::Retry } else { ring };
        let Some(id) = self.peek(ix, lane) else { return };
        let event = self.event_of(id);
        let circuit = &self.table.dests[ix.get()].record.circuit;
        // If the event must be read first, admission is asked afterwards: the read may take long,
        // and the circuit may open meanwhile.
        let must_read = event.is_none() && circuit.still_admits(id);
        let admission = if must_read { None } else { Some(self.ask(ix)) };
        match admission {
            None | Some(Admission::Admit) => match self.block(ix, lane, (id, event.as_deref())) {
                None => {
                    self.take_places(id, ix, lane);
                    if must_read {
                        self.want_event(id);
                    } else {
                        self.launch(id);
                    }
                }
                Some(Block::Tenant) => return self.keep_turn(ix, ring),
                Some(block) => return self.park(ix, &block),
            },
            Some(Admission::Probe) if self.table.dests[ix.get()].probe == ProbeStage::None => {
                if let Some(entry) = self.pop_entry(ix, lane, id) {
                    self.begin_probe(ix, entry);
                }
            }
            Some(Admission::Probe | Admission::WaitUntil(_) | Admission::Refuse) => {
                if let Some(entry) = self.pop_entry(ix, lane, id) {
                    self.forget_payload(entry.event.as_deref());
                    self.not_admitted(&entry.delivery, ix);
                }
            }
        }
        self.activate_lane(ix, ring);
    }

    /// Whether the destination has sent so many first attempts that one of its retries must follow,
    /// and can be sent.
    fn owes_retry(&mut self, ix: DestIx) -> bool {
        let dest = &self.table.dests[ix.get()];
        let is_owed = dest.retry.len > 0
            && dest.first_since_retry >= FIRST_PER_RETRY
            && self.has_room(Lane::Retry);
        is_owed
            && self.peek(ix, Lane::Retry).is_some_and(|id| {
                let event = self.event_of(id);
                self.block(ix, Lane::Retry, (id, event.as_deref())).is_none()
            })
    }

    fn block(
        &mut self,
        ix: DestIx,
        lane: Lane,
        (id, event): (DeliveryId, Option<&Loaded>),
    ) -> Option<Block> {
        let pressure = self.table.in_flight.total() * 2 >= self.options.in_flight_max;
        let dest = &mut self.table.dests[ix.get()];
        let ramp = dest.ramp.as_ref().map_or(0, |ramp| ramp.size);
        let limit = dest.limit.get(pressure).max(ramp);
        // A quarter of a destination's in-flight limit is reserved for its first lane.
        let retry_limit = (limit - limit / 4).max(ramp);
        if dest.in_flight >= limit || lane == Lane::Retry && dest.retry_in_flight >= retry_limit {
            return Some(Block::Limit);
        }
        let now = self.now;
        if let Some(at) = dest.bucket.as_mut().and_then(|bucket| bucket.ready_at(now)) {
            return Some(Block::Rate(at));
        }
        let tenant = dest.tenant;
        let bytes = self.more_in_flight_bytes(id, event);
        self.tenant_block(tenant, bytes).map(|_| Block::Tenant)
    }

    fn park(&mut self, ix: DestIx, block: &Block) {
        match block {
            Block::Limit => self.table.dests[ix.get()].limit.reached(),
            Block::Rate(at) => self.alarms.set(Alarm::Tokens(ix), *at),
            Block::Tenant => self.keep_turn(ix, Lane::First),
        }
    }

    /// Sends a probe that is durable, if the limits allow it.
    fn send_probe(&mut self, id: DeliveryId) {
        let Some(entry) = self.table.entries.get(&id) else { return };
        if entry.position != Position::Probe {
            return;
        }
        let ix = entry.dest;
        if !self.is_probe(id, ix) {
            return self.release_probe(id, ix);
        }
        self.take_places_for_probe(id);
        if self.event_of(id).is_some() {
            self.launch(id);
        } else {
            self.want_event(id);
        }
    }

    fn is_probe(&self, id: DeliveryId, ix: DestIx) -> bool {
        let circuit = &self.table.dests[ix.get()].record.circuit;
        matches!(&circuit.state, CircuitState::HalfOpen { probe, .. } if *probe == id)
    }

    /// The destination was enabled or frozen meanwhile: the delivery goes back to its lane.
    fn release_probe(&mut self, id: DeliveryId, ix: DestIx) {
        self.table.dests[ix.get()].probe = ProbeStage::None;
        self.return_to_slot(id, ix);
    }

    fn return_to_slot(&mut self, id: DeliveryId, ix: DestIx) {
        if let Some(entry) = self.take_out(id) {
            self.place(entry.delivery, ix);
        }
    }

    /// Handles events that were read for deliveries that hold in-flight capacity: decides whether
    /// each is sent. Returns the deliveries that are attempted although the store has no event for
    /// them.
    pub(super) fn events_read(
        &mut self,
        read: Vec<(DeliveryId, Option<Arc<Event>>)>,
    ) -> Vec<DeliveryId> {
        let mut without_event = Vec::new();
        for (id, event) in read {
            // It may have been cancelled, or belong to another node by now.
            let Some((ix, places)) = self.places_of(id) else { continue };
            let has_event = event.is_some();
            if let Some(event) = event {
                let event = self.share(event);
                self.attach(id, event);
            }
            if self.admit(id, ix, places) && self.launch(id) && !has_event {
                without_event.push(id);
            }
        }
        without_event
    }

    /// Whether a delivery whose event was read is sent. If not, it gives its in-flight capacity
    /// back.
    fn admit(&mut self, id: DeliveryId, ix: DestIx, places: Places) -> bool {
        let is_to_give_back =
            self.shards.is_to_give_back(self.table.dests[ix.get()].record.id.shard());
        let is_stopped = self.shutdown.is_begun() || self.shards.are_unsure();
        if is_stopped || is_to_give_back && places.from != Origin::Probe {
            self.put_back(id);
            return false;
        }
        if places.from == Origin::Probe {
            let is_probe = self.is_probe(id, ix);
            if !is_probe {
                self.release_probe(id, ix);
            }
            return is_probe;
        }
        match self.ask(ix) {
            Admission::Admit => true,
            Admission::Probe if self.table.dests[ix.get()].probe == ProbeStage::None => {
                if let Some(entry) = self.take_out(id) {
                    self.begin_probe(ix, entry);
                }
                false
            }
            Admission::Probe | Admission::WaitUntil(_) | Admission::Refuse => {
                if let Some(entry) = self.take_out(id) {
                    self.not_admitted(&entry.delivery, ix);
                }
                false
            }
        }
    }

    /// Sends an admitted delivery that holds in-flight capacity. `false` if there is nothing to
    /// send any more.
    fn launch(&mut self, id: DeliveryId) -> bool {
        let Some((ix, places)) = self.places_of(id) else { return false };
        if places.from == Origin::Drained && !self.still_drains(id, ix) {
            self.return_to_slot(id, ix);
            return false;
        }
        let Some(entry) = self.table.entries.get_mut(&id) else { return false };
        let Some(prepared) = self.directory.get(entry.delivery.subscription) else {
            self.cancel_resident(id, CancelReason::SubscriptionDeleted);
            return false;
        };
        if entry.event.as_ref().is_some_and(|loaded| loaded.event.is_erased()) {
            // It was replayed while its payload was erased: there is nothing to send.
            self.cancel_resident(id, CancelReason::Asked);
            return false;
        }
        let turn =
            if places.from == Origin::Probe { Some(Turn::Probe) } else { entry.delivery.turn() };
        let Some(turn) = turn else {
            // It has ended: nothing is to be sent any more.
            self.take_out(id);
            return false;
        };
        let account = entry.delivery.state.name();
        entry.position = Position::InFlight(Flight { turn, places, account: Some(account) });
        let dest = &self.table.dests[ix.get()];
        *self.table.tenants[dest.tenant].overlay.account(account) += 1;
        let delivery = &entry.delivery;
        if self.listened {
            self.actions.push(Action::Publish(EngineEvent::Began {
                tenant: delivery.tenant.clone(),
                delivery: id,
                destination: delivery.destination,
                turn,
            }));
        }
        let Some(event) = entry.event.clone() else { return true };
        let number = delivery.attempts.saturating_add(1);
        let (tenant, target) = (dest.tenant, dest.target.clone());
        // The subscription may have another format by now than when its bytes were counted.
        self.count_form(tenant, &event, Form::of(&prepared.subscription, id));
        let outgoing = Outgoing { delivery: id, number, event, prepared, target };
        self.actions.push(Action::Send(outgoing));
        true
    }
}
