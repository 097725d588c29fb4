//! Settles an attempt that has ended: all its consequences at once, in one commit.

use std::sync::Arc;

use postrider_domain::attempt::{Ending, FailureClass, Finished, OwnFaultKind, Verdict};
use postrider_domain::circuit::StateName as CircuitName;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::DeliveryId;
use postrider_domain::settlement;

use super::destinations::{DestIx, ProbeStage};
use super::drain::Drained;
use super::limiter::Pace;
use super::messages::{Action, Attempted};
use super::state::Core;
use super::table::{Entry, Flight, Origin, Position};
use crate::attempt::own_fault;
use crate::live::{EngineEvent, death};

impl Core {
    /// Handles the outcome of an attempt.
    pub(super) fn finished(&mut self, id: DeliveryId, attempted: Attempted) {
        let Some(entry) = self.table.entries.remove(&id) else { return };
        let Position::InFlight(flight) = entry.position else {
            self.table.entries.insert(entry);
            return;
        };
        let finished = match attempted {
            Attempted::Ended(finished) => finished,
            Attempted::NoEvent => own_fault(self.now, "the event is not in the store".to_owned()),
        };
        self.land(&entry, flight, &finished);
        if self.table.dests[entry.dest.get()].lost {
            // Another node owned the destination meanwhile, so this outcome is not applied. If this
            // node owns it again, a read may have skipped the delivery because it was in flight:
            // read again.
            if let Some(ix) = self.table.dest_ix(entry.delivery.destination) {
                self.look_again(ix);
            }
            return;
        }
        self.settle(entry, flight, finished);
    }

    /// Gives back the in-flight capacity of the attempt.
    fn land(&mut self, entry: &Entry, flight: Flight, finished: &Finished) {
        let ix = entry.dest;
        let pace = self.pace(&finished.ending, finished.timings.total);
        let dest = &mut self.table.dests[ix.get()];
        dest.limit.learn(pace);
        if let Some(account) = flight.account {
            *self.table.tenants[dest.tenant].overlay.account(account) -= 1;
        }
        self.give_back_places(ix, &flight.places, entry.event.as_deref());
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
            // An attempt that a shutdown interrupted does not count: it is made again after the
            // start.
            return;
        }
        let failed = verdict != Verdict::Success;
        let change =
            self.suspensions.record(self.table.dests[ix.get()].record.id, failed, self.now);
        self.guard_changed(change);
        let policy = self.settling_policy(&entry.delivery, ix, verdict);
        let settled = settlement::settle(
            &entry.delivery,
            &self.table.dests[ix.get()].record,
            flight.turn,
            finished,
            self.now,
            self.suspensions.now(),
            &policy,
        );
        let dest = &mut self.table.dests[ix.get()];
        dest.record = settled.destination;
        if dest.probe == ProbeStage::Chosen(entry.delivery.id) {
            dest.probe = ProbeStage::None;
        }
        self.tell(&settled.delivery, &settled.attempt, settled.warning, ix);
        self.commits.delivery(&entry.delivery, settled.delivery.clone(), Some(settled.attempt));
        if let Some(context) = entry.event.as_ref().and_then(|loaded| loaded.event.trace) {
            self.commits.trace(settled.delivery.id, context);
        }
        let transition = settled.transition;
        let to = transition.as_ref().map(|transition| transition.to);
        self.circuit_changed(ix, transition);
        self.arm_circuit(ix);
        if flight.places.from == Origin::Drained {
            self.drained(ix, if failed { Drained::Failed } else { Drained::Delivered });
        }
        match to {
            Some(CircuitName::Closed) => {
                let (mode, _) = self.destination_policy(ix).recovery_mode;
                self.recovered(ix, mode);
            }
            Some(CircuitName::Open | CircuitName::Frozen) => {
                self.stop_ramp(ix);
                self.activate(ix);
            }
            Some(CircuitName::HalfOpen) | None => {}
        }
        self.place(settled.delivery, ix);
        self.probe_when_overdue(ix);
    }

    /// Publishes the outcome to listeners.
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
            let dest = &self.table.dests[ix.get()];
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
