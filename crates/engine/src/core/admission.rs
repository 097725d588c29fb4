//! May a destination be attempted now? Its circuit is asked here and nowhere else, and what its answer
//! changes is kept: the circuit, its alarms, and a delivery that is not let through.

use std::sync::Arc;

use postrider_domain::circuit::{Admission, CircuitState, Transition};
use postrider_domain::delivery::{Delivery, DeliveryState};

use super::alarms::Alarm;
use super::destinations::DestIx;
use super::messages::Action;
use super::state::Core;
use crate::live::EngineEvent;

impl Core {
    /// May this destination be attempted now? It freezes here when its time has come.
    pub(super) fn ask(&mut self, ix: DestIx) -> Admission {
        if self.dests[ix.get()].lost {
            return Admission::Refuse;
        }
        let hold = self.guard.hold();
        let circuit = &mut self.dests[ix.get()].record.circuit;
        let (admission, transition) = circuit.ask(self.now, hold, &self.policy.circuit);
        if transition.is_some() {
            self.circuit_changed(ix, transition);
            self.arm_circuit(ix);
            self.activate(ix);
        }
        admission
    }

    /// A circuit changed: it is to be kept, and a transition to be told.
    pub(super) fn circuit_changed(&mut self, ix: DestIx, transition: Option<Transition>) {
        if let Some(transition) = &transition {
            let dest = &self.dests[ix.get()];
            self.actions.push(Action::Publish(EngineEvent::Transition {
                tenant: dest.record.tenant.clone(),
                destination: dest.record.id,
                url: Arc::clone(&dest.url),
                transition: transition.clone(),
            }));
        }
        self.commits.circuit(ix, &self.dests[ix.get()].record, transition);
    }

    /// Sets the alarms that follow from a circuit as it is now.
    pub(super) fn arm_circuit(&mut self, ix: DestIx) {
        if self.dests[ix.get()].lost {
            return;
        }
        let circuit = &self.dests[ix.get()].record.circuit;
        let policy = &self.policy.circuit;
        match &circuit.state {
            CircuitState::Open { probe_at, .. } => self.alarms.set(Alarm::Probe(ix), *probe_at),
            CircuitState::Closed | CircuitState::HalfOpen { .. } | CircuitState::Frozen { .. } => {
                self.alarms.clear(Alarm::Probe(ix));
            }
        }
        let may_freeze = circuit.counters.consecutive_failures > policy.freeze_over_consecutive
            && !matches!(circuit.state, CircuitState::Frozen { .. });
        // The rule wants more than the 72 hours: the first millisecond after them.
        let over = policy.freeze_after.saturating_add(std::time::Duration::from_millis(1));
        let freeze_at = circuit.last_success_at.saturating_add(over);
        if may_freeze {
            // What fell due while the server was down, or by another policy, is judged at once.
            self.alarms.set(Alarm::Freeze(ix), freeze_at.max(self.now));
        } else {
            self.alarms.clear(Alarm::Freeze(ix));
        }
    }

    /// The circuit says no to a delivery that has been taken out of memory: it waits for its next slot,
    /// or is dead.
    pub(super) fn not_admitted(&mut self, delivery: &Delivery, ix: DestIx) {
        let before = delivery.state.name();
        let after = delivery.not_admitted(self.now, &self.policy.retry);
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
}
