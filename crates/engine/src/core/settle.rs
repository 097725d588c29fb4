//! An attempt has ended: everything that follows from it, at once and as one.

use std::sync::Arc;

use postrider_domain::attempt::{Ending, FailureClass, Finished, OwnFaultKind, Verdict};
use postrider_domain::circuit::StateName as CircuitName;
use postrider_domain::delivery::{Delivery, DeliveryState, Lane};
use postrider_domain::event::Event;
use postrider_domain::ids::DeliveryId;
use postrider_domain::planted::{self, Bug};
use postrider_domain::settlement;

use super::destinations::{DestIx, ProbeStage};
use super::limiter::Pace;
use super::messages::{Action, Attempted, Outgoing};
use super::state::Core;
use super::table::{Entry, Flight, Place};
use crate::attempt::own_fault;
use crate::live::{EngineEvent, death};
use crate::loaded::Loaded;

impl Core {
    /// An attempt has ended.
    pub(super) fn finished(&mut self, id: DeliveryId, attempted: Attempted) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let Place::InFlight(flight) = entry.place else {
            self.entries.insert(entry);
            return;
        };
        let finished = match attempted {
            Attempted::Ended(finished) => finished,
            Attempted::NoEvent => own_fault(self.now, "the event is not in the store".to_owned()),
        };
        self.land(&entry, flight, &finished);
        if self.dests[entry.dest.get()].lost {
            // Another node owned it meanwhile: what this attempt says is not applied. Where it is ours
            // again, a read may have passed over it because it was in flight.
            if let Some(ix) = self.dest_ix(entry.delivery.destination) {
                self.look_again(ix);
            }
            return;
        }
        self.settle(entry, flight, finished);
    }

    /// The events of attempts that are to be made were read. Where the shards are another node's by now,
    /// or may be, nothing is sent, and neither where the circuit opened or it was cancelled meanwhile.
    pub(super) fn events_read(&mut self, read: Vec<(Outgoing, Option<Arc<Event>>)>) {
        for (outgoing, event) in read {
            let id = outgoing.delivery;
            let Some(entry) = self.entries.get(&id) else { continue };
            let dest = &self.dests[entry.dest.get()];
            let is_open = !dest.record.circuit.still_admits(id);
            let is_cancelled = matches!(entry.delivery.state, DeliveryState::Cancelled { .. });
            if dest.lost || !self.is_leased || is_open || is_cancelled {
                self.not_sent(id);
            } else if let Some(event) = event {
                let event = self.share(event);
                self.attach(id, &event);
                self.actions.push(Action::Send(Outgoing { event: Some(event), ..outgoing }));
            } else {
                self.finished(id, Attempted::NoEvent);
            }
        }
    }

    /// The event of an attempt was read.
    fn attach(&mut self, id: DeliveryId, event: &Arc<Loaded>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let Place::InFlight(mut flight) = entry.place else { return };
        entry.event = Some(Arc::clone(event));
        let tenant = self.dests[entry.dest.get()].tenant;
        self.flown_read(tenant, &mut flight, event);
        self.rings.freed = true;
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.place = Place::InFlight(flight);
        }
    }

    /// An attempt was not made after all.
    fn not_sent(&mut self, id: DeliveryId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let (ix, Place::InFlight(flight)) = (entry.dest, entry.place) else {
            self.entries.insert(entry);
            return;
        };
        self.land(&entry, flight, &own_fault(self.now, String::new()));
        if self.dests[ix.get()].lost {
            if let Some(ix) = self.dest_ix(entry.delivery.destination) {
                self.look_again(ix);
            }
            return;
        }
        self.lose_probe(ix, id);
        if flight.drained {
            self.drained(ix, Verdict::OwnFault);
        }
        self.place(entry.delivery, ix);
    }

    /// Gives the places back that the attempt held.
    fn land(&mut self, entry: &Entry, flight: Flight, finished: &Finished) {
        let ix = entry.dest;
        let pace = self.pace(&finished.ending, finished.timings.total);
        let dest = &mut self.dests[ix.get()];
        dest.limit.learn(pace);
        dest.used_at = self.now;
        dest.in_flight -= u32::from(!planted::is(Bug::LeakedPlace));
        dest.retry_in_flight -= u32::from(flight.lane == Lane::Retry);
        *self.in_flight.of(flight.lane) -= 1;
        let tenant = &mut self.tenants[dest.tenant];
        tenant.in_flight -= 1;
        if let Some(account) = flight.account {
            *tenant.overlay.account(account) -= 1;
        }
        let tenant = dest.tenant;
        self.landed(tenant, &flight, entry.event.as_deref());
        self.rings.freed = true;
        self.activate(ix);
        self.read_back_when_low(ix, Lane::Retry);
    }

    fn pace(&self, ending: &Ending, total: std::time::Duration) -> Pace {
        match ending {
            Ending::Answered(answer) if matches!(answer.status, 429 | 503) => Pace::Strained,
            Ending::Answered(_) if total <= self.options.quick_answer => Pace::Quick,
            Ending::Answered(_) => Pace::Slow,
            Ending::Failed(failure) => match failure.class {
                FailureClass::Timeout(_) | FailureClass::Refused => Pace::Strained,
                FailureClass::Reset
                | FailureClass::Dns
                | FailureClass::Tls
                | FailureClass::Blocked
                | FailureClass::Protocol => Pace::Slow,
            },
            Ending::OwnFault(_) => Pace::Unknown,
        }
    }

    fn settle(&mut self, entry: Entry, flight: Flight, finished: Finished) {
        let ix = entry.dest;
        let verdict = finished.ending.verdict();
        let is_shutdown = matches!(&finished.ending, Ending::OwnFault(fault) if fault.kind == OwnFaultKind::Shutdown);
        if is_shutdown && self.shutdown.is_begun() {
            // What a shutdown interrupted was not an attempt: it is made again after the start.
            return;
        }
        let failed = verdict != Verdict::Success;
        let change = self.guard.record(self.dests[ix.get()].record.id, failed, self.now);
        self.guard_changed(change);
        let settled = settlement::settle(
            &entry.delivery,
            &self.dests[ix.get()].record,
            flight.turn,
            finished,
            self.now,
            self.guard.hold(),
            &self.policy,
        );
        let dest = &mut self.dests[ix.get()];
        dest.record = settled.destination;
        if dest.probe == ProbeStage::Chosen(entry.delivery.id) {
            dest.probe = ProbeStage::None;
        }
        self.tell(&settled.delivery, &settled.attempt, settled.warning, ix);
        let before = entry.delivery.state.name();
        self.commits.delivery(before, settled.delivery.clone(), Some(settled.attempt));
        if planted::is(Bug::SettlementSplit) {
            self.commits.seal();
        }
        let transition = settled.transition;
        let to = transition.as_ref().map(|transition| transition.to);
        self.circuit_changed(ix, transition);
        self.arm_circuit(ix);
        if flight.drained {
            self.drained(ix, verdict);
        }
        match to {
            Some(CircuitName::Closed) => self.recovered(ix),
            Some(CircuitName::Open | CircuitName::Frozen) => {
                self.stop_ramp(ix);
                self.activate(ix);
            }
            Some(CircuitName::HalfOpen) | None => {}
        }
        self.place(settled.delivery, ix);
        self.probe_when_overdue(ix);
    }

    /// Tells whoever looks on.
    fn tell(
        &mut self,
        delivery: &Delivery,
        attempt: &postrider_domain::attempt::Attempt,
        warning: Option<postrider_domain::thresholds::Warning>,
        ix: DestIx,
    ) {
        if self.listened {
            self.actions.push(Action::Publish(EngineEvent::Attempt {
                delivery: Arc::new(delivery.clone()),
                attempt: Arc::new(attempt.clone()),
            }));
        }
        if let Some(warning) = warning {
            let dest = &self.dests[ix.get()];
            self.actions.push(Action::Publish(EngineEvent::Warning {
                tenant: dest.record.tenant.clone(),
                destination: dest.record.id,
                url: Arc::clone(&dest.url),
                warning,
            }));
        }
        self.actions.extend(death(delivery).map(Action::Publish));
    }
}
