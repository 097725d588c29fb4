//! Asks a destination's circuit for admission; nothing else does. Records what follows from the
//! answer: the circuit's change, its alarms, and a delivery that was not admitted.

use std::sync::Arc;
use std::time::Duration;

use postrider_domain::circuit::{Admission, CircuitState, Transition};
use postrider_domain::explain::Words;
use postrider_domain::time::Timestamp;

use super::alarms::Alarm;
use super::destinations::DestIx;
use super::messages::Action;
use super::state::Core;
use crate::handle::CommandError;
use crate::live::EngineEvent;

/// When to ask again while a probe is chosen or in flight: about as long as an attempt may take.
pub(super) const PROBE_UNDER_WAY: Duration = Duration::from_secs(5);

impl Core {
    /// Whether this destination may be attempted now. Asking may freeze it, if its time without a
    /// success is over.
    pub(super) fn ask(&mut self, ix: DestIx) -> Admission {
        if self.table.dests[ix.get()].lost {
            return Admission::Refuse;
        }
        let suspension = self.suspensions.now();
        let circuit = &mut self.table.dests[ix.get()].record.circuit;
        let (admission, transition) = circuit.ask(self.now, suspension, &self.policy.circuit);
        if transition.is_some() {
            self.circuit_changed(ix, transition);
            self.arm_circuit(ix);
            self.activate(ix);
        }
        admission
    }

    /// Refuses a command that would send to a frozen destination.
    pub(super) fn refuse_frozen(&mut self, ix: DestIx) -> Result<(), CommandError> {
        // Asking may freeze it.
        self.ask(ix);
        match &self.table.dests[ix.get()].record.circuit.state {
            CircuitState::Frozen { since, evidence } => {
                let why = Words(evidence).to_string();
                Err(CommandError::Frozen { since: *since, why })
            }
            CircuitState::Closed | CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => {
                Ok(())
            }
        }
    }

    /// Records a changed circuit for the next commit, and publishes its transition.
    pub(super) fn circuit_changed(&mut self, ix: DestIx, transition: Option<Transition>) {
        if let Some(transition) = &transition {
            let dest = &self.table.dests[ix.get()];
            self.actions.push(Action::Publish(EngineEvent::Transition {
                tenant: dest.record.tenant.clone(),
                destination: dest.record.id,
                url: Arc::clone(&dest.url),
                transition: transition.clone(),
            }));
        }
        self.commits.circuit(ix, &self.table.dests[ix.get()].record, transition);
    }

    /// Sets the alarms that follow from the circuit's current state.
    pub(super) fn arm_circuit(&mut self, ix: DestIx) {
        if self.table.dests[ix.get()].lost {
            return;
        }
        let circuit = &self.table.dests[ix.get()].record.circuit;
        let policy = &self.policy.circuit;
        match &circuit.state {
            CircuitState::Open { probe_at, .. } => self.alarms.set(Alarm::Probe(ix), *probe_at),
            CircuitState::Closed | CircuitState::HalfOpen { .. } | CircuitState::Frozen { .. } => {
                self.alarms.clear(Alarm::Probe(ix));
            }
        }
        let may_freeze = circuit.counters.consecutive_failures > policy.freeze_over_consecutive
            && !matches!(circuit.state, CircuitState::Frozen { .. });
        // The rule applies when more than the 72 hours have passed: one millisecond after them.
        let over = policy.freeze_after.saturating_add(std::time::Duration::from_millis(1));
        let freeze_at = circuit.last_success_at.saturating_add(over);
        if may_freeze {
            // A time that passed while the server was down, or under another policy, is handled at
            // once.
            self.alarms.set(Alarm::Freeze(ix), freeze_at.max(self.now));
        } else {
            self.alarms.clear(Alarm::Freeze(ix));
        }
    }

    /// When the next probe of a disabled destination is due.
    pub(super) fn next_probe_at(&self, ix: DestIx) -> Option<Timestamp> {
        match self.table.dests[ix.get()].record.circuit.state {
            CircuitState::Open { probe_at, .. } if probe_at > self.now => Some(probe_at),
            // A probe is being chosen or is in flight.
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => {
                Some(self.now.saturating_add(PROBE_UNDER_WAY))
            }
            CircuitState::Closed | CircuitState::Frozen { .. } => None,
        }
    }
}
