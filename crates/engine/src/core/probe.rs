//! Probes of disabled destinations: one delivery at a time, ten minutes apart.
//!
//! A probe is durable before it is sent: so there is never a second one, even if the process ends
//! between the two.

use postrider_domain::attempt::Verdict;
use postrider_domain::circuit::{Admission, CircuitState};
use postrider_domain::delivery::{Delivery, DeliveryState};
use postrider_domain::ids::DeliveryId;

use super::commits::Ack;
use super::destinations::{DestIx, ProbeStage};
use super::messages::Load;
use super::state::Core;
use super::table::{Entry, Position};

impl Core {
    /// The probe interval has passed: chooses a waiting delivery as the probe.
    pub(super) fn probe_due(&mut self, ix: DestIx) {
        let is_due = self.ask(ix) == Admission::Probe
            && !self.shards.is_to_give_back(self.table.dests[ix.get()].record.id.shard());
        if is_due
            && self.table.dests[ix.get()].probe == ProbeStage::None
            && !self.shutdown.is_begun()
        {
            let in_flight = usize::try_from(self.table.dests[ix.get()].in_flight).unwrap_or(0);
            self.choose_probe(ix, in_flight + 8);
        }
    }

    /// Probes an overdue destination when a delivery has come that can be the probe.
    pub(super) fn probe_when_overdue(&mut self, ix: DestIx) {
        let circuit = &self.table.dests[ix.get()].record.circuit;
        if matches!(&circuit.state, CircuitState::Open { probe_at, .. } if *probe_at <= self.now) {
            self.probe_due(ix);
        }
    }

    fn choose_probe(&mut self, ix: DestIx, limit: usize) {
        self.table.dests[ix.get()].probe = ProbeStage::Choosing;
        let dest = &self.table.dests[ix.get()];
        let destination = dest.record.id;
        let next = dest.record.circuit.next_probe;
        let asked = next.map(|id| (dest.record.tenant.clone(), id));
        self.load(Load::Probe { destination, limit, asked });
    }

    /// Handles the candidates from the store: the first one that is not in flight is the probe. If
    /// there is none, the next delivery that arrives will be.
    pub(super) fn probe_candidates(&mut self, ix: DestIx, rows: Vec<Delivery>, limit: usize) {
        if self.table.dests[ix.get()].probe != ProbeStage::Choosing {
            return;
        }
        self.table.dests[ix.get()].probe = ProbeStage::None;
        let complete = rows.len() < limit;
        let destination = self.table.dests[ix.get()].record.id;
        if self.shards.is_to_give_back(destination.shard()) {
            return;
        }
        // Changes that are not durable yet are missing in the result, or outdated.
        let newer = self.commits.dirty_of(destination);
        let asked = self.table.dests[ix.get()].record.circuit.next_probe;
        let candidate = rows
            .into_iter()
            .filter(|row| !self.commits.is_dirty(row.id))
            .chain(newer)
            .filter(|row| matches!(row.state, DeliveryState::Waiting(_)) && self.may_probe(row.id))
            .min_by_key(|row| (asked != Some(row.id), row.probe_rank()));
        match candidate {
            Some(delivery) if self.ask(ix) == Admission::Probe => {
                let position = Position::Probe;
                let entry = self.take_out(delivery.id);
                let entry = entry.unwrap_or(Entry { delivery, event: None, dest: ix, position });
                self.begin_probe(ix, entry);
            }
            None if !complete => self.choose_probe(ix, limit.saturating_mul(4)),
            Some(_) | None => {}
        }
    }

    fn may_probe(&self, id: DeliveryId) -> bool {
        self.table.entries.get(&id).is_none_or(|entry| match entry.position {
            Position::Window | Position::RetryLane { .. } => true,
            Position::FirstLane | Position::Probe | Position::Placed(_) | Position::InFlight(_) => {
                false
            }
        })
    }

    /// Makes a delivery, already removed from memory, the probe; it is sent when that is durable.
    pub(super) fn begin_probe(&mut self, ix: DestIx, entry: Entry) {
        let id = entry.delivery.id;
        let transition = self.table.dests[ix.get()].record.circuit.begin_probe(id, self.now);
        let Some(transition) = transition else {
            self.forget_payload(entry.event.as_deref());
            return self.not_admitted(&entry.delivery, ix);
        };
        self.table.dests[ix.get()].probe = ProbeStage::Chosen(id);
        self.table.entries.insert(Entry { position: Position::Probe, ..entry });
        self.circuit_changed(ix, Some(transition));
        self.arm_circuit(ix);
        self.commits.when_durable(Ack::Probe(id));
    }

    /// The chosen probe will not be sent: starts the probe interval again.
    pub(super) fn lose_probe(&mut self, ix: DestIx, id: DeliveryId) {
        if self.table.dests[ix.get()].probe != ProbeStage::Chosen(id) {
            return;
        }
        self.table.dests[ix.get()].probe = ProbeStage::None;
        let suspension = self.suspensions.now();
        let circuit = &mut self.table.dests[ix.get()].record.circuit;
        let lost = circuit.learn(id, Verdict::OwnFault, self.now, suspension, &self.policy.circuit);
        if lost.is_some() {
            self.circuit_changed(ix, lost);
            self.arm_circuit(ix);
        }
    }
}
