//! What happens by itself at a time, and when: a table of deadlines. Each alarm is set at most once.

use std::collections::{BTreeSet, HashMap};

use postrider_domain::circuit::{Admission, CircuitState, Hold, Suspended};
use postrider_domain::ids::ReplayId;
use postrider_domain::time::Timestamp;

use super::queue::{Dest, DestIx};
use super::{Action, Core};
use crate::live::EngineEvent;

/// What is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Alarm {
    /// A disabled destination may be probed.
    Probe(DestIx),
    /// A destination freezes for want of a success.
    Freeze(DestIx),
    /// A destination may be sent to again as its rate allows.
    Tokens(DestIx),
    /// The next step of a ramp.
    Ramp(DestIx),
    /// The next deliveries of a replay job.
    Replay(ReplayId),
    /// The guard against mass failures looks again.
    Guard,
    /// A commit that failed is tried again.
    Commit,
    /// The next waiting deliveries are read.
    Due,
}

/// All alarms that are set.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    by_time: BTreeSet<(Timestamp, Alarm)>,
    times: HashMap<Alarm, Timestamp>,
}

impl Alarms {
    /// Sets an alarm, or moves it.
    pub(super) fn set(&mut self, alarm: Alarm, at: Timestamp) {
        if let Some(before) = self.times.insert(alarm, at) {
            self.by_time.remove(&(before, alarm));
        }
        self.by_time.insert((at, alarm));
    }

    pub(super) fn clear(&mut self, alarm: Alarm) {
        if let Some(before) = self.times.remove(&alarm) {
            self.by_time.remove(&(before, alarm));
        }
    }

    pub(super) fn is_set(&self, alarm: Alarm) -> bool {
        self.times.contains_key(&alarm)
    }

    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    fn take_due(&mut self, now: Timestamp) -> Option<Alarm> {
        let &(at, alarm) = self.by_time.first()?;
        if at > now {
            return None;
        }
        self.by_time.pop_first();
        self.times.remove(&alarm);
        Some(alarm)
    }
}

impl Core {
    /// Does everything whose time has come.
    pub(super) fn ring_alarms(&mut self) {
        while let Some(alarm) = self.alarms.take_due(self.now) {
            match alarm {
                Alarm::Probe(ix) => self.probe_due(ix),
                Alarm::Freeze(ix) => {
                    self.ask(ix);
                    if self.guard.hold() == Hold::Held {
                        self.held_back.insert(ix);
                    }
                }
                Alarm::Tokens(ix) => self.activate(ix),
                Alarm::Ramp(ix) => self.ramp_step(ix),
                Alarm::Replay(id) => self.replay_next(id),
                Alarm::Guard => self.tick_guard(),
                Alarm::Commit => self.retry_commit(),
                Alarm::Due => {}
            }
        }
    }

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

    /// The guard has seen something, or time has passed.
    pub(super) fn guard_changed(
        &mut self,
        change: Option<postrider_domain::mass_failure::HoldChange>,
    ) {
        if let Some(change) = change {
            self.actions.push(Action::Publish(EngineEvent::HoldChange(change)));
            match change.hold {
                Hold::Held => self.suspend_transitions(),
                Hold::Released => self.resume_transitions(),
            }
        }
        if self.guard.hold() == Hold::Held && !self.alarms.is_set(Alarm::Guard) {
            let tick = self.policy.mass_failure.window / 6;
            let tick = tick.max(std::time::Duration::from_millis(1));
            self.alarms.set(Alarm::Guard, self.now.saturating_add(tick));
        }
    }

    /// Transitions are suspended from now on: the failures of the minute that it took to notice are
    /// set apart as well.
    fn suspend_transitions(&mut self) {
        let window = self.policy.mass_failure.window;
        let since = self.now.saturating_sub(window);
        let failing = |dest: &Dest| !dest.lost && dest.record.circuit.failing_since >= Some(since);
        for ix in self.destinations_where(failing) {
            let transition = self.dests[ix.get()].record.circuit.suspend(since, self.now);
            let is_enabled = transition.is_some();
            self.seal_when_full();
            self.circuit_changed(ix, transition);
            self.arm_circuit(ix);
            if is_enabled {
                self.recovered(ix);
            }
        }
    }

    /// Transitions happen again: the failures since they were suspended are taken back.
    pub(super) fn resume_transitions(&mut self) {
        let has_suspended =
            |dest: &Dest| !dest.lost && dest.record.circuit.suspended != Suspended::default();
        for ix in self.destinations_where(has_suspended) {
            if self.dests[ix.get()].record.circuit.take_back() {
                self.seal_when_full();
                self.circuit_changed(ix, None);
            }
        }
        for ix in std::mem::take(&mut self.held_back) {
            self.ask(ix);
        }
    }

    fn destinations_where(&self, is_wanted: impl Fn(&Dest) -> bool) -> Vec<DestIx> {
        let wanted = self.dests.iter().filter(|(_, dest)| is_wanted(dest));
        wanted.map(|(ix, _)| ix).collect()
    }

    fn tick_guard(&mut self) {
        let change = self.guard.tick(self.now);
        self.guard_changed(change);
    }
}
