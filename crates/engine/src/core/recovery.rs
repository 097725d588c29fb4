//! A destination is back: with `recovery = "drain"` what waits there is sent at once, oldest first,
//! by a ramp of 1, 2, 4, … at a time. A failure stops the ramp; the rest follows its slots.

use std::collections::{HashSet, VecDeque};

use postrider_domain::attempt::Verdict;
use postrider_domain::delivery::{Delivery, DeliveryState};
use postrider_domain::ids::{DeliveryId, DestinationId};
use postrider_domain::planted::{self, Bug};
use postrider_domain::policy::RecoveryMode;

use super::alarms::Alarm;
use super::limiter::AdaptiveLimit;
use super::queue::DestIx;
use super::state::{Entry, Place};
use super::{Core, Load};

/// What waits is being sent ahead of its slots.
#[derive(Debug)]
pub(super) struct Ramp {
    /// How many at a time.
    pub(super) size: u32,
    /// How many are on their way now.
    on_their_way: u32,
    /// The next ones, oldest first.
    next: VecDeque<Delivery>,
    loading: bool,
    /// What has changed since the next ones were read.
    changed: HashSet<DeliveryId>,
}

impl Core {
    /// A destination's circuit has closed.
    pub(super) fn recovered(&mut self, ix: DestIx) {
        let (start, max) =
            (self.options.destination_in_flight_start, self.options.destination_in_flight_max);
        let dest = &mut self.dests[ix.get()];
        dest.limit = AdaptiveLimit::new(start, max);
        if self.policy.recovery.mode == RecoveryMode::Drain {
            dest.ramp = Some(Ramp {
                size: 1,
                on_their_way: 0,
                next: VecDeque::new(),
                loading: false,
                changed: HashSet::new(),
            });
            let step = self.policy.recovery.ramp_step;
            self.alarms.set(Alarm::Ramp(ix), self.now.saturating_add(step));
            self.run_ramp(ix);
        }
        self.activate(ix);
    }

    /// A step of the ramp is over without a failure: the next one is twice as wide.
    pub(super) fn ramp_step(&mut self, ix: DestIx) {
        let Some(ramp) = &mut self.dests[ix.get()].ramp else { return };
        ramp.size = ramp.size.saturating_mul(2).min(self.options.destination_in_flight_max);
        let step = self.policy.recovery.ramp_step;
        self.alarms.set(Alarm::Ramp(ix), self.now.saturating_add(step));
        self.run_ramp(ix);
    }

    /// A delivery that the ramp had sent has ended.
    pub(super) fn drained(&mut self, ix: DestIx, verdict: Verdict) {
        let Some(ramp) = &mut self.dests[ix.get()].ramp else { return };
        ramp.on_their_way = ramp.on_their_way.saturating_sub(1);
        if verdict == Verdict::Success || planted::is(Bug::RampIgnoresFailure) {
            self.run_ramp(ix);
        } else {
            self.stop_ramp(ix);
        }
    }

    pub(super) fn stop_ramp(&mut self, ix: DestIx) {
        self.dests[ix.get()].ramp = None;
        self.alarms.clear(Alarm::Ramp(ix));
    }

    /// Whether a delivery that a ramp brought forward is still to be sent; else it goes back to its
    /// slot.
    pub(super) fn still_drains(&mut self, id: DeliveryId, ix: DestIx) -> bool {
        let Some(entry) = self.entries.get(&id) else { return false };
        let is_due =
            matches!(entry.delivery.state, DeliveryState::Waiting(s) if s.due_at <= self.now);
        if is_due || self.dests[ix.get()].ramp.is_some() {
            return true;
        }
        if let Some(entry) = self.entries.remove(&id) {
            self.place(entry.delivery, ix);
        }
        false
    }

    fn run_ramp(&mut self, ix: DestIx) {
        while let Some(ramp) = &mut self.dests[ix.get()].ramp
            && ramp.on_their_way < ramp.size
        {
            let Some(row) = ramp.next.pop_front() else {
                if !ramp.loading {
                    ramp.loading = true;
                    ramp.changed.clear();
                    let destination = self.dests[ix.get()].record.id;
                    let in_flight = usize::try_from(self.dests[ix.get()].in_flight).unwrap_or(0);
                    let limit = self.options.page + in_flight + self.commits.unpersisted();
                    self.load(Load::Drain { destination, limit });
                }
                return;
            };
            if ramp.changed.contains(&row.id) {
                continue;
            }
            if self.bring_forward(row, ix)
                && let Some(ramp) = &mut self.dests[ix.get()].ramp
            {
                ramp.on_their_way += 1;
            }
        }
    }

    /// A delivery changed: what a ramp has read of it is not true any more.
    pub(super) fn changed_in_ramp(&mut self, id: DeliveryId, destination: DestinationId) {
        if self.policy.recovery.mode == RecoveryMode::Drain
            && let Some(ix) = self.dest_ix(destination)
            && let Some(ramp) = &mut self.dests[ix.get()].ramp
        {
            ramp.changed.insert(id);
        }
    }

    /// Sends a waiting delivery ahead of its slot; `false` where it is on its way already.
    fn bring_forward(&mut self, row: Delivery, ix: DestIx) -> bool {
        let id = row.id;
        match self.entries.get(&id).map(|entry| entry.place) {
            Some(Place::Due) => {}
            Some(Place::First | Place::Ready { .. } | Place::Probe | Place::InFlight(_)) => {
                return false;
            }
            None => {
                let newest = self.commits.dirty(id).cloned().unwrap_or(row);
                if !matches!(newest.state, DeliveryState::Waiting(_)) {
                    return false;
                }
                let entry = Entry { delivery: newest, event: None, dest: ix, place: Place::Due };
                self.entries.insert(id, entry);
            }
        }
        self.set_place(id, Place::Ready { drained: true });
        self.enqueue_ready(id, true);
        true
    }

    pub(super) fn drain_loaded(&mut self, ix: DestIx, rows: Vec<Delivery>, limit: usize) {
        // Kept as it is now: once the change is durable nobody remembers that the row was older.
        let newest = |row: &Delivery| self.commits.dirty(row.id).unwrap_or(row).clone();
        let is_free = |entry: &Entry| entry.place == Place::Due;
        let fresh: VecDeque<Delivery> = rows
            .iter()
            .filter(|row| self.entries.get(&row.id).is_none_or(is_free))
            .map(newest)
            .filter(|newest| matches!(newest.state, DeliveryState::Waiting(_)))
            .collect();
        let is_last = rows.len() < limit;
        let Some(ramp) = &mut self.dests[ix.get()].ramp else { return };
        ramp.loading = false;
        if fresh.is_empty() {
            // Nothing is left, or nothing that the store knows of: the next step looks again.
            if is_last && ramp.on_their_way == 0 {
                self.stop_ramp(ix);
            }
            return;
        }
        ramp.next = fresh;
        self.run_ramp(ix);
    }
}
