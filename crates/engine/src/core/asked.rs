//! Attempts before their slot, requested by a person for one delivery or by a job for many.
//!
//! At a disabled destination, one of the requested deliveries becomes the next probe. The others
//! wait for the outcome of the probe: if it succeeds they are sent, if it fails they follow their
//! slots again. So a job that requests a million deliveries there costs two writes for each, and
//! not one at every probe. A delivery whose slot comes before the probe has ended follows its slot.

use postrider_domain::circuit::CircuitState;
use postrider_domain::delivery::{Delivery, DeliveryState, StateName, WrongState};
use postrider_domain::ids::{DeliveryId, ReplayId};
use postrider_domain::time::Timestamp;

use super::admission::PROBE_UNDER_WAY;
use super::destinations::DestIx;
use super::messages::Action;
use super::state::Core;
use super::table::Position;
use crate::handle::CommandError;

/// Who requested an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// A person, for this one delivery.
    Somebody,
    /// A bulk job; `None` for one of an earlier version on another node.
    Job(Option<ReplayId>),
}

impl Asker {
    const fn is_job(self) -> bool {
        matches!(self, Asker::Job(_))
    }
}

impl Core {
    /// Schedules an attempt of a waiting delivery before its slot: now, or at the next probe if its
    /// destination is disabled. A delivery that is already in a lane stays there, and the wish is
    /// recorded: it counts if the circuit opens before the attempt.
    pub(super) fn ask_for(
        &mut self,
        delivery: &Delivery,
        ix: DestIx,
        asker: Asker,
    ) -> Result<Delivery, CommandError> {
        let is_in_lane = match self.table.entries.get(&delivery.id).map(|entry| entry.position) {
            None | Some(Position::Window) => false,
            Some(Position::InFlight(_)) => {
                return Err(WrongState::OnItsWay(StateName::InFlight).into());
            }
            Some(_) if asker.is_job() => {
                return Err(WrongState::OnItsWay(StateName::Waiting).into());
            }
            Some(
                Position::FirstLane
                | Position::RetryLane { .. }
                | Position::Probe
                | Position::Placed(_),
            ) => true,
        };
        // Fails if the delivery is not waiting, whatever its destination's state is.
        delivery.asked_for(self.now)?;
        self.refuse_frozen(ix)?;
        let probe_at = self.next_probe_at(ix);
        let is_next = self.is_next_probe(delivery, ix, asker);
        let asked = match probe_at {
            None => delivery.asked_for_now(self.now)?,
            Some(at) if is_next => delivery.asked_for(at)?,
            Some(at) => delivery.asked_for(at.saturating_add(PROBE_UNDER_WAY))?,
        };
        if asker.is_job() && asked == *delivery {
            // The delivery's own slot comes first.
            return Err(WrongState::OnItsWay(StateName::Waiting).into());
        }
        let asked = match asker {
            Asker::Job(Some(job)) => asked.sent_by(job),
            Asker::Job(None) | Asker::Somebody => asked,
        };
        if probe_at.is_some() && is_next {
            self.set_next_probe(ix, delivery.id);
        }
        self.commits.delivery(delivery, asked.clone(), None);
        if is_in_lane {
            if let Some(entry) = self.table.entries.get_mut(&delivery.id) {
                entry.delivery = asked.clone();
            }
        } else {
            self.take_out(delivery.id);
            self.place(asked.clone(), ix);
        }
        Ok(asked)
    }

    /// Whether a requested delivery becomes the next probe of a disabled destination. A person's
    /// request goes before a job's.
    fn is_next_probe(&self, delivery: &Delivery, ix: DestIx, asker: Asker) -> bool {
        let next = self.table.dests[ix.get()].record.circuit.next_probe;
        asker == Asker::Somebody || next.is_none_or(|next| next == delivery.id)
    }

    /// Stores which delivery is to be the next probe.
    fn set_next_probe(&mut self, ix: DestIx, id: DeliveryId) {
        let circuit = &mut self.table.dests[ix.get()].record.circuit;
        if circuit.next_probe.replace(id) != Some(id) {
            self.commits.circuit(ix, &self.table.dests[ix.get()].record, None);
        }
    }

    /// Repeats the request for a delivery that the circuit did not admit, for the time of the next
    /// probe. `None` if no attempt was requested, if the probe failed and another delivery is the
    /// next probe, or if no slot of the delivery is left.
    fn put_off(&mut self, delivery: &Delivery, ix: DestIx) -> Option<Delivery> {
        if !delivery.is_asked_for() {
            return None;
        }
        let at = self.next_probe_at(ix)?;
        let circuit = &self.table.dests[ix.get()].record.circuit;
        let is_next = circuit.next_probe.is_none_or(|next| next == delivery.id);
        let has_failed =
            matches!(circuit.state, CircuitState::Open { probe_at, .. } if probe_at > self.now);
        if has_failed && !is_next {
            return None;
        }
        // A slot that has passed meanwhile is spent.
        let moved = delivery.not_admitted(self.now, &self.policy_of(delivery).retry);
        let asked = moved.asked_for(at).ok()?;
        if is_next {
            self.set_next_probe(ix, delivery.id);
        }
        Some(asked)
    }

    /// The circuit does not admit a delivery that has been taken out of memory: it waits for its
    /// next slot, or is dead. A requested delivery may wait for the next probe instead.
    pub(super) fn not_admitted(&mut self, delivery: &Delivery, ix: DestIx) {
        let after = self
            .put_off(delivery, ix)
            .unwrap_or_else(|| delivery.not_admitted(self.now, &self.policy_of(delivery).retry));
        if let DeliveryState::Waiting(slot) = delivery.state
            && slot.due_at > self.now
        {
            // A drain had brought the delivery forward; its slot is still to come.
            self.place(after, ix);
            return;
        }
        self.actions.extend(crate::live::death(&after).map(Action::Publish));
        self.commits.delivery(delivery, after.clone(), None);
        self.place(after, ix);
    }

    /// Whether a job need not request an attempt of this delivery: it is due, an attempt is already
    /// requested, or it has ended.
    pub(super) fn is_on_its_way(&self, delivery: &Delivery) -> bool {
        let is_due = |at: Timestamp| at <= self.now;
        match delivery.state {
            DeliveryState::Waiting(slot) => delivery.is_asked_for() || is_due(slot.due_at),
            DeliveryState::Queued
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => true,
        }
    }
}
