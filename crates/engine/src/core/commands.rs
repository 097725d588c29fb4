//! Commands of people: enable, freeze, cancel, replay, and views.
//!
//! A command that changes something is answered when the change is durable.

use std::sync::Arc;

use postrider_domain::destination::Destination;
use postrider_domain::policy::{Policy, RecoveryMode};

use super::destinations::DestIx;
use super::messages::{Action, Command, OnDestination, Parked, Reopening, Reply};
use super::state::Core;
use crate::handle::CommandError;
use crate::live::EngineEvent;

impl Core {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Destination { record, reply } => {
                if self.shards.has(record.id.shard()) {
                    self.add_destination(*record, None);
                }
                reply.send(()).ok();
            }
            Command::Forget { destination } => self.forget_destination(destination),
            Command::Rate { destination, rate } => {
                if let Some(ix) = self.table.dest_ix(destination) {
                    self.set_rate(ix, rate);
                }
            }
            Command::CancelAll { tenant, subscription } => self.cancel_all(tenant, subscription),
            Command::OnDestination(command) => self.on_destination(command),
            Command::OnDelivery(command) => self.on_delivery(command),
            Command::OnReplay(command) => self.on_replay(command),
            Command::View(view) => self.view(view),
            Command::EndTrial { trial } => self.end_trial(&trial),
            Command::ClockStepped { step } => {
                self.actions.push(Action::Publish(EngineEvent::ClockStep(step)));
            }
            Command::Policy { policy } => self.set_policy(policy),
            Command::Leases(renewed) => self.take_leases(*renewed),
            Command::DestinationRead { read, id, record } => {
                for command in self.destination_read(read, id, record) {
                    match command {
                        Parked::OnDestination(command) => self.on_destination(command),
                        Parked::OnDelivery(command) => self.on_delivery(command),
                    }
                }
            }
            Command::Shutdown { done } => self.begin_shutdown(done),
            Command::Abandon => self.abandon(),
            Command::Stop { why } => self.actions.push(Action::Stop(why)),
        }
    }

    /// Executes a command on a destination; if it is not in memory, it is read first.
    fn on_destination(&mut self, command: OnDestination) {
        let (tenant, destination) = command.subject();
        let Some(ix) = self.table.dest_ix(destination) else {
            return self.park_command(&tenant, destination, Parked::OnDestination(command));
        };
        match command {
            // What belongs to another tenant does not exist.
            OnDestination::Enable { reply, .. } | OnDestination::Freeze { reply, .. }
                if self.table.dests[ix.get()].record.tenant != tenant =>
            {
                drop(reply.send(Err(CommandError::NotFound)));
            }
            OnDestination::Enable { reason, how, reply, .. } => self.enable(ix, reason, how, reply),
            OnDestination::Freeze { reason, reply, .. } => {
                self.stop_ramp(ix);
                let now = self.now;
                let transition = self.table.dests[ix.get()].record.circuit.freeze(reason, now);
                self.circuit_changed(ix, transition);
                self.changed_by_hand(ix, reply);
            }
            // The caller may have gone away.
            OnDestination::Look { reply, .. } => drop(reply.send(Some(self.look(ix)))),
            OnDestination::BeginTrial { reply, .. } => self.begin_trial(ix, &tenant, reply),
        }
    }

    /// Somebody enables a destination, and may say what is to be sent.
    fn enable(
        &mut self,
        ix: DestIx,
        reason: Option<String>,
        how: Reopening,
        reply: Reply<Destination>,
    ) {
        let policy = self.destination_policy(ix);
        let mode = match how.drains {
            None => policy.recovery_mode.0,
            Some(true) => RecoveryMode::Drain,
            Some(false) => RecoveryMode::Slots,
        };
        let circuit = &mut self.table.dests[ix.get()].record.circuit;
        let transition = circuit.enable(reason, self.now);
        let is_changed = transition.is_some();
        if is_changed {
            // Also if a replay job was requested: a crash may come before that job is stored.
            circuit.end_outage(policy.dead_recovery(), self.now);
        }
        self.table.dests[ix.get()].shares_pace = how.replays_dead && is_changed;
        self.circuit_changed(ix, transition);
        // One that was enabled already sends what waits only where somebody asks for it.
        if is_changed || how.drains.is_some() {
            self.recovered(ix, mode);
        }
        self.changed_by_hand(ix, reply);
    }

    /// Somebody changed a circuit: they are answered when that is durable.
    fn changed_by_hand(&mut self, ix: DestIx, reply: Reply<Destination>) {
        self.table.dests[ix.get()].used_at = self.now;
        self.arm_circuit(ix);
        self.activate(ix);
        let record = self.table.dests[ix.get()].record.clone();
        self.commits.answer_when_durable(record.id, reply, record);
    }

    fn set_policy(&mut self, policy: Arc<Policy>) {
        if policy.mass_failure != self.policy.mass_failure {
            // A suspension that began under the old policy ends now.
            self.suspensions.set_policy(&policy.mass_failure);
            self.resume_transitions();
        }
        let has_other_rate = policy.limits.rate_limit_max != self.policy.limits.rate_limit_max;
        self.policy = policy;
        let all: Vec<DestIx> = self.table.dests.iter().map(|(ix, _)| ix).collect();
        for ix in all {
            self.arm_circuit(ix);
            if has_other_rate {
                let record = &self.table.dests[ix.get()].record;
                let rate = self.directory.rate_limit(&record.tenant, record.id);
                self.set_rate(ix, rate);
            }
        }
    }
}
