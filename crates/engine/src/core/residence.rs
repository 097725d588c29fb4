//! Which destinations are in memory: only those that are in use.
//!
//! An idle destination is evicted only if the store has its whole state: it has no deliveries in
//! memory or in flight and no undurable changes, its circuit is closed without consecutive
//! failures, and it was not used for a while. It is read from the store when it is needed again
//! ([`lookup`](super::lookup)).

use postrider_domain::circuit::{CircuitState, Suspended};
use postrider_domain::destination::Destination;
use postrider_domain::ids::DestinationId;
use postrider_domain::subscription::RateLimit;

use super::alarms::Alarm;
use super::destinations::{Dest, DestIx, ProbeStage};
use super::state::Core;

impl Core {
    /// Adds a destination that this node owns, with its stored circuit or a new one.
    pub(crate) fn add_destination(
        &mut self,
        record: Destination,
        rate: Option<RateLimit>,
    ) -> DestIx {
        if let Some(ix) = self.table.dest_ix(record.id) {
            return ix;
        }
        let tenant = self.table.tenant_ix(&record.tenant);
        let known_since = self.shards.owned_since(record.id.shard());
        let dest = Dest::new(record, tenant, &self.options, known_since, self.now);
        let ix = self.table.add_dest(dest);
        self.set_rate(ix, rate);
        let circuit = &mut self.table.dests[ix.get()].record.circuit;
        // The suspension ended with the process that had it, or continues here without these
        // failures.
        let taken_back = circuit.take_back();
        let recovered = circuit.recover(self.now, &self.policy.circuit);
        if taken_back || recovered.is_some() {
            self.circuit_changed(ix, recovered);
        }
        self.arm_circuit(ix);
        self.recover_again(ix);
        ix
    }

    /// Evicts destinations that have been idle for long, and those that another node owns.
    pub(super) fn evict_idle(&mut self) {
        if self.shutdown.is_begun() {
            return;
        }
        for ix in self.table.dests.next_share(self.now) {
            if self.is_idle(ix) {
                self.table.evict_dest(ix);
            }
        }
    }

    /// Evicts a destination that was removed from the store, whatever its circuit says, if nothing is in memory
    /// for it.
    pub(super) fn forget_destination(&mut self, id: DestinationId) {
        let Some(ix) = self.table.dest_ix(id) else { return };
        if self.has_nothing_in_memory(ix) && self.table.dests[ix.get()].probe == ProbeStage::None {
            for alarm in alarms_of(ix) {
                self.alarms.clear(alarm);
            }
            self.table.evict_dest(ix);
        }
    }

    /// Whether no delivery, attempt, ramp or undurable change of a destination is in memory.
    fn has_nothing_in_memory(&self, ix: DestIx) -> bool {
        let dest = &self.table.dests[ix.get()];
        dest.in_flight == 0
            && dest.retry_in_flight == 0
            && dest.first.is_empty()
            && dest.retry.is_empty()
            && dest.ramp.is_none()
            && self.table.entries.of(ix) == 0
            && !self.suspensions.has_put_off(ix)
            && !self.commits.has(ix, dest.record.id)
    }

    fn is_idle(&mut self, ix: DestIx) -> bool {
        let now = self.now;
        let dest = &mut self.table.dests[ix.get()];
        let is_unused = dest.lost || now.since(dest.used_at) >= self.options.destination_idle;
        let is_healthy = dest.record.circuit.state == CircuitState::Closed
            && dest.record.circuit.counters.consecutive_failures == 0
            && dest.record.circuit.suspended == Suspended::default()
            && dest.record.circuit.replay_dead_since.is_none()
            && dest.bucket.as_mut().is_none_or(|bucket| bucket.is_full(now));
        let is_known = dest.lost || is_healthy && dest.probe == ProbeStage::None;
        is_unused
            && is_known
            && !alarms_of(ix).iter().any(|alarm| self.alarms.is_set(*alarm))
            && self.has_nothing_in_memory(ix)
    }
}

/// The alarms that a destination may have set.
fn alarms_of(ix: DestIx) -> [Alarm; 4] {
    [Alarm::Probe(ix), Alarm::Freeze(ix), Alarm::Tokens(ix), Alarm::Ramp(ix)]
}
