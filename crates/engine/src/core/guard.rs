//! The mass-failure guard: while most destinations fail at once the fault is probably ours, and no
//! circuit is opened or frozen.

use postrider_domain::circuit::{Suspended, Suspension};
use postrider_domain::mass_failure::SuspensionChange;

use super::alarms::Alarm;
use super::destinations::{Dest, DestIx};
use super::messages::Action;
use super::state::Core;
use crate::live::EngineEvent;

impl Core {
    /// Freezes a destination whose time without a success is over, unless transitions are
    /// suspended.
    pub(super) fn freeze_due(&mut self, ix: DestIx) {
        self.ask(ix);
        if self.suspensions.now() == Suspension::On {
            self.suspensions.put_off_freeze(ix);
        }
    }

    /// Handles a change of the guard.
    pub(super) fn guard_changed(&mut self, change: Option<SuspensionChange>) {
        if let Some(change) = change {
            self.actions.push(Action::Publish(EngineEvent::SuspensionChange(change)));
            match change.suspension {
                Suspension::On => self.suspend_transitions(),
                Suspension::Off => self.resume_transitions(),
            }
        }
        if self.suspensions.now() == Suspension::On && !self.alarms.is_set(Alarm::Guard) {
            let tick = self.policy.mass_failure.window / 6;
            let tick = tick.max(std::time::Duration::from_millis(1));
            self.alarms.set(Alarm::Guard, self.now.saturating_add(tick));
        }
    }

    /// Suspends transitions: failures of the last minute, in which the outage was not noticed yet,
    /// are set apart as well.
    fn suspend_transitions(&mut self) {
        let window = self.policy.mass_failure.window;
        let since = self.now.saturating_sub(window);
        let failing = |dest: &Dest| !dest.lost && dest.record.circuit.failing_since >= Some(since);
        for ix in self.destinations_where(failing) {
            let transition = self.table.dests[ix.get()].record.circuit.suspend(since, self.now);
            let is_enabled = transition.is_some();
            let policy = is_enabled.then(|| self.destination_policy(ix));
            if let Some(policy) = &policy {
                let dead = policy.dead_recovery();
                self.table.dests[ix.get()].record.circuit.end_outage(dead, self.now);
            }
            self.commits.seal_when_full();
            self.circuit_changed(ix, transition);
            self.arm_circuit(ix);
            if let Some(policy) = policy {
                self.recovered(ix, policy.recovery_mode.0);
            }
        }
    }

    /// Ends the suspension: drops the failures since it began.
    pub(super) fn resume_transitions(&mut self) {
        let has_suspended =
            |dest: &Dest| !dest.lost && dest.record.circuit.suspended != Suspended::default();
        for ix in self.destinations_where(has_suspended) {
            if self.table.dests[ix.get()].record.circuit.take_back() {
                self.commits.seal_when_full();
                self.circuit_changed(ix, None);
            }
        }
        for ix in self.suspensions.take_put_off() {
            self.ask(ix);
        }
    }

    fn destinations_where(&self, is_wanted: impl Fn(&Dest) -> bool) -> Vec<DestIx> {
        let wanted = self.table.dests.iter().filter(|(_, dest)| is_wanted(dest));
        wanted.map(|(ix, _)| ix).collect()
    }

    pub(super) fn tick_guard(&mut self) {
        let change = self.suspensions.tick(self.now);
        self.guard_changed(change);
    }
}
