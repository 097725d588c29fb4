//! Drains: sends the deliveries that wait at a recovered destination at once, oldest first, by a
//! ramp of 1, 2, 4, … at a time. A destination drains with `recovery = "drain"`, or if the person
//! who enabled it asked for that. A failure stops the ramp; the deliveries that are left follow
//! their slots. The circuit stores that a drain is under way, so after a crash the ramp starts
//! again from 1. The circuit also stores that the dead deliveries of the outage are to be replayed,
//! until a job for them is stored.

use std::collections::VecDeque;

use postrider_domain::circuit::CircuitState;
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::ids::{DeliveryId, ReplayId};
use postrider_domain::job_outcomes::JobOutcomes;
use postrider_domain::policy::RecoveryMode;
use postrider_store::{DeliveryFilter, ReplayJob, ReplayState};

use super::alarms::Alarm;
use super::destinations::{DestIx, Ramp};
use super::limiter::AdaptiveLimit;
use super::messages::{Action, Load};
use super::state::Core;
use super::table::{Entry, Position};

/// How a delivery that a drain sent has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    Delivered,
    Failed,
    /// The delivery was cancelled, and is not attempted any more.
    Cancelled,
}

impl Core {
    /// Handles a destination whose circuit has closed, or whose waiting deliveries somebody wants
    /// to be sent as if it had.
    pub(super) fn recovered(&mut self, ix: DestIx, mode: RecoveryMode) {
        let (start, max) =
            (self.options.destination_in_flight_start, self.options.destination_in_flight_max);
        self.forget_ramp(ix);
        let dest = &mut self.table.dests[ix.get()];
        dest.limit = AdaptiveLimit::new(start, max);
        if mode == RecoveryMode::Drain {
            dest.ramp =
                Some(Ramp { size: 1, on_their_way: 0, next: VecDeque::new(), loading: false });
            let step = self.policy.recovery.ramp_step;
            self.alarms.set(Alarm::Ramp(ix), self.now.saturating_add(step));
            self.keep_draining(ix, true);
            self.run_ramp(ix);
        } else {
            self.keep_draining(ix, false);
        }
        self.replay_dead(ix);
        self.activate(ix);
    }

    /// Handles a destination that was read from the store: restarts its drain if one was under way,
    /// and the replay of the outage's dead deliveries if no job for it is stored.
    pub(super) fn recover_again(&mut self, ix: DestIx) {
        let circuit = &self.table.dests[ix.get()].record.circuit;
        match (circuit.draining, &circuit.state) {
            (true, CircuitState::Closed) => self.recovered(ix, RecoveryMode::Drain),
            (true, _) => self.keep_draining(ix, false),
            (false, _) => self.replay_dead(ix),
        }
    }

    /// Sends jobs that replay the dead deliveries of the outage, if the circuit says that they are to be
    /// replayed: one for the destination, or one for each subscription that wants it. Together they
    /// keep the pace of one. After a crash the jobs are the same ones: a job that was stored before
    /// is not made twice.
    fn replay_dead(&mut self, ix: DestIx) {
        let dest = &mut self.table.dests[ix.get()];
        // It belongs to the enabling that led here, not to later outages.
        let shares_pace = std::mem::take(&mut dest.shares_pace);
        let Some(since) = dest.record.circuit.replay_dead_since.filter(|_| !dest.lost) else {
            return;
        };
        let recovered_at = dest.record.circuit.recovered_at.unwrap_or(self.now);
        let wanted = self.destination_policy(ix).dead;
        let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX).max(1);
        let count = count.saturating_add(u32::from(shares_pace));
        let pace = (self.policy.recovery.dead_per_second / count).max(1);
        let dest = &mut self.table.dests[ix.get()];
        dest.dead_replays.clear();
        for one in wanted {
            let id = ReplayId::of_outage(recovered_at, dest.record.id, one.subscription);
            dest.dead_replays.insert(id);
            let filter = DeliveryFilter {
                state: Some(StateName::Dead),
                destination: Some(dest.record.id),
                subscription: one.subscription,
                since: Some(recovered_at.saturating_sub(one.max_age)),
                ended_since: Some(since),
                ..DeliveryFilter::default()
            };
            self.actions.push(Action::ReplayDead(Box::new(ReplayJob {
                id,
                tenant: dest.record.tenant.clone(),
                filter,
                per_second: Some(pace),
                created_at: recovered_at,
                state: ReplayState::Running,
                total: 0,
                done: 0,
                position: None,
                finished_at: None,
                outcomes: JobOutcomes::default(),
            })));
        }
        if self.table.dests[ix.get()].dead_replays.is_empty() {
            // Nobody wants it any more.
            self.forget_dead(ix);
        }
    }

    /// A job that replays dead deliveries of a destination is stored, or has nothing to replay.
    pub(super) fn dead_counted(&mut self, ix: DestIx, id: ReplayId) {
        let dest = &mut self.table.dests[ix.get()];
        // If another outage has ended meanwhile, the jobs for its dead deliveries are still to be
        // stored.
        if dest.dead_replays.remove(&id) && dest.dead_replays.is_empty() && !dest.lost {
            self.forget_dead(ix);
        }
    }

    fn forget_dead(&mut self, ix: DestIx) {
        self.table.dests[ix.get()].record.circuit.dead_are_replayed();
        self.commits.circuit(ix, &self.table.dests[ix.get()].record, None);
    }

    fn keep_draining(&mut self, ix: DestIx, draining: bool) {
        let dest = &mut self.table.dests[ix.get()];
        if dest.record.circuit.draining != draining && !dest.lost {
            dest.record.circuit.draining = draining;
            self.commits.circuit(ix, &self.table.dests[ix.get()].record, None);
        }
    }

    /// A step of the ramp has ended without a failure: doubles the size.
    pub(super) fn ramp_step(&mut self, ix: DestIx) {
        let Some(ramp) = &mut self.table.dests[ix.get()].ramp else { return };
        ramp.size = ramp.size.saturating_mul(2).min(self.options.destination_in_flight_max);
        let step = self.policy.recovery.ramp_step;
        self.alarms.set(Alarm::Ramp(ix), self.now.saturating_add(step));
        self.run_ramp(ix);
    }

    /// Counts a delivery of a drain that has ended: the ramp may send the next ones.
    pub(super) fn drained(&mut self, ix: DestIx, how: Drained) {
        let Some(ramp) = &mut self.table.dests[ix.get()].ramp else { return };
        ramp.on_their_way = ramp.on_their_way.saturating_sub(1);
        match how {
            Drained::Failed => self.stop_ramp(ix),
            Drained::Delivered | Drained::Cancelled => self.run_ramp(ix),
        }
    }

    pub(super) fn stop_ramp(&mut self, ix: DestIx) {
        self.forget_ramp(ix);
        self.alarms.clear(Alarm::Ramp(ix));
        self.keep_draining(ix, false);
    }

    fn forget_ramp(&mut self, ix: DestIx) {
        let dest = &mut self.table.dests[ix.get()];
        if let Some(ramp) = dest.ramp.take() {
            self.commits.unwatch(dest.record.id);
            self.table.read_ahead -= ramp.next.len();
        }
    }

    /// How many unsent deliveries a ramp may hold: as many as memory allows, and at least one step.
    fn ramp_room(&self, size: u32) -> usize {
        let room = self.options.resident_max.saturating_sub(self.table.resident());
        self.options.page.min(room).max(usize::try_from(size).unwrap_or(1))
    }

    /// Whether a delivery that a ramp brought forward is still to be sent: its slot is due, or the
    /// ramp is running.
    pub(super) fn still_drains(&self, id: DeliveryId, ix: DestIx) -> bool {
        let is_due = |delivery: &Delivery| matches!(delivery.state, DeliveryState::Waiting(slot) if slot.due_at <= self.now);
        self.table.dests[ix.get()].ramp.is_some()
            || self.table.entries.get(&id).is_some_and(|entry| is_due(&entry.delivery))
    }

    fn run_ramp(&mut self, ix: DestIx) {
        while let Some(ramp) = &mut self.table.dests[ix.get()].ramp
            && ramp.on_their_way < ramp.size
        {
            let size = ramp.size;
            let Some(row) = ramp.next.pop_front() else {
                if !ramp.loading {
                    ramp.loading = true;
                    let room = self.ramp_room(size);
                    let dest = &self.table.dests[ix.get()];
                    let (id, in_flight) = (dest.record.id, dest.in_flight);
                    // Deliveries that are in flight or have undurable changes may be in the result,
                    // and do not count.
                    let useless = usize::try_from(in_flight).unwrap_or(0);
                    let limit = room + useless + self.commits.dirty_count(id);
                    self.commits.watch(id);
                    self.load(Load::Drain { destination: id, limit });
                }
                return;
            };
            let is_outdated = self.commits.has_changed(row.destination, row.id);
            self.table.read_ahead -= 1;
            if is_outdated {
                continue;
            }
            if self.bring_forward(row, ix)
                && let Some(ramp) = &mut self.table.dests[ix.get()].ramp
            {
                ramp.on_their_way += 1;
            }
        }
    }

    /// Sends a waiting delivery ahead of its slot; `false` if it is queued or in flight already.
    fn bring_forward(&mut self, row: Delivery, ix: DestIx) -> bool {
        let newest = match self.table.entries.get(&row.id).map(|entry| entry.position) {
            Some(Position::Window) => match self.take_out(row.id) {
                Some(entry) => entry.delivery,
                None => return false,
            },
            Some(
                Position::FirstLane
                | Position::RetryLane { .. }
                | Position::Probe
                | Position::Placed(_)
                | Position::InFlight(_),
            ) => return false,
            None => self.commits.dirty(row.id).cloned().unwrap_or(row),
        };
        if !matches!(newest.state, DeliveryState::Waiting(_)) {
            return false;
        }
        self.enqueue_ready(newest, ix, true);
        true
    }

    pub(super) fn drain_loaded(&mut self, ix: DestIx, rows: Vec<Delivery>, limit: usize) {
        // Keep the current state: once the change is durable, nothing shows that the row was older.
        let newest = |row: &Delivery| self.commits.dirty(row.id).unwrap_or(row).clone();
        let is_free = |entry: &Entry| entry.position == Position::Window;
        let fresh: VecDeque<Delivery> = rows
            .iter()
            .filter(|row| self.table.entries.get(&row.id).is_none_or(is_free))
            .map(newest)
            .filter(|newest| matches!(newest.state, DeliveryState::Waiting(_)))
            .collect();
        let is_last = rows.len() < limit;
        let room =
            self.table.dests[ix.get()].ramp.as_ref().map_or(0, |ramp| self.ramp_room(ramp.size));
        let Some(ramp) = &mut self.table.dests[ix.get()].ramp else { return };
        ramp.loading = false;
        if fresh.is_empty() {
            // Nothing is left, or nothing that the store knows of: the next step reads again.
            if is_last && ramp.on_their_way == 0 {
                self.stop_ramp(ix);
            }
            return;
        }
        // Deliveries that do not fit are read again.
        self.table.read_ahead -= ramp.next.len();
        ramp.next = fresh.into_iter().take(room).collect();
        self.table.read_ahead += ramp.next.len();
        self.run_ramp(ix);
    }
}
