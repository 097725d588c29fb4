//! An attempt before its slot, because somebody asked for it: one person for one delivery, or a job for many.
//!
//! At a disabled destination one of those that were asked for is the next probe. The others wait for its
//! outcome: where it succeeds they are sent, where it fails they follow their slots again. So a job that
//! asks for a million deliveries there costs two writes each, and not one at every probe. One whose slot
//! comes before the probe has ended follows its slot.

use postrider_domain::circuit::CircuitState;
use postrider_domain::delivery::{Delivery, DeliveryState, StateName, WrongState};
use postrider_domain::time::Timestamp;

use super::admission::PROBE_UNDER_WAY;
use super::destinations::DestIx;
use super::messages::Action;
use super::state::Core;
use super::table::Position;
use crate::handle::CommandError;

/// Who asked for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// Somebody, for this delivery.
    Somebody,
    /// A job.
    Job,
}

impl Core {
    /// Has a delivery that waits attempted before its slot: now, or at the next probe where its
    /// destination is disabled. One whose turn has come already is left as it is.
    pub(super) fn ask_for(
        &mut self,
        delivery: &Delivery,
        ix: DestIx,
        asker: Asker,
    ) -> Result<Delivery, CommandError> {
        match self.entries.get(&delivery.id).map(|entry| entry.position) {
            None | Some(Position::Window) => {}
            Some(Position::InFlight(_)) => {
                return Err(WrongState::OnItsWay(StateName::InFlight).into());
            }
            Some(
                Position::FirstLane
                | Position::RetryLane { .. }
                | Position::Probe
                | Position::Placed(_),
            ) => {
                if asker == Asker::Job {
                    return Err(WrongState::OnItsWay(StateName::Waiting).into());
                }
                // Only one that waits can be asked for.
                return Ok(delivery.asked_for(self.now).map(|_| delivery.clone())?);
            }
        }
        self.refuse_frozen(ix)?;
        let probe_at = self.next_probe_at(ix);
        let is_next = self.is_next_probe(delivery, ix, asker);
        let at = match probe_at {
            None => self.now,
            Some(at) if is_next => at,
            Some(at) => at.saturating_add(PROBE_UNDER_WAY),
        };
        let asked = delivery.asked_for(at)?;
        if asker == Asker::Job && asked == *delivery {
            // Its slot comes before that.
            return Err(WrongState::OnItsWay(StateName::Waiting).into());
        }
        if probe_at.is_some() && is_next {
            self.dests[ix.get()].next_probe = Some(delivery.id);
        }
        self.take_out(delivery.id);
        self.commits.delivery(delivery.state.name(), asked.clone(), None);
        self.place(asked.clone(), ix);
        Ok(asked)
    }

    /// Whether a delivery that is asked for is the next probe of a disabled destination. Somebody's wish
    /// goes before a job's.
    fn is_next_probe(&self, delivery: &Delivery, ix: DestIx, asker: Asker) -> bool {
        let next = self.dests[ix.get()].next_probe;
        asker == Asker::Somebody || next.is_none_or(|next| next == delivery.id)
    }

    /// The same delivery, asked for again because the circuit did not let it through; `None` where nobody
    /// asked for it, or where the probe has failed and another one is the next.
    pub(super) fn put_off(&mut self, delivery: &Delivery, ix: DestIx) -> Option<Delivery> {
        if !delivery.is_asked_for() {
            return None;
        }
        let at = self.next_probe_at(ix)?;
        let dest = &mut self.dests[ix.get()];
        let next = *dest.next_probe.get_or_insert(delivery.id);
        let has_failed = matches!(dest.record.circuit.state, CircuitState::Open { probe_at, .. } if probe_at > self.now);
        if has_failed && next != delivery.id {
            return None;
        }
        delivery.asked_for(at).ok()
    }

    /// The circuit says no to a delivery that has been taken out of memory: it waits for its next slot,
    /// or is dead. One that somebody asked for may wait for the next probe.
    pub(super) fn not_admitted(&mut self, delivery: &Delivery, ix: DestIx) {
        let before = delivery.state.name();
        let after = self
            .put_off(delivery, ix)
            .unwrap_or_else(|| delivery.not_admitted(self.now, &self.policy_of(delivery).retry));
        if let DeliveryState::Waiting(slot) = delivery.state
            && slot.due_at > self.now
        {
            // A ramp had brought it forward; its slot is still to come.
            self.place(after, ix);
            return;
        }
        self.actions.extend(crate::live::death(&after).map(Action::Publish));
        self.commits.delivery(before, after.clone(), None);
        self.place(after, ix);
    }

    /// Whether a delivery that a job is to retry needs no wish: it is due, somebody asked for it, or it
    /// has ended.
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
