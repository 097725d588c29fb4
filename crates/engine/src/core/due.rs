//! The retry lane's clock: the waiting deliveries whose slots fall due within the next minutes.
//!
//! Everything up to the mark is in memory, everything after it is in the store alone: memory
//! follows activity, not backlog. **What is due soonest is in memory first**: where more falls due
//! than there is room for, the latest give way and the mark moves back before them.

use std::collections::BTreeSet;

use postrider_domain::delivery::{CancelReason, Delivery, DeliveryState, Lane};
use postrider_domain::ids::DeliveryId;
use postrider_domain::planted::{self, Bug};
use postrider_domain::time::Timestamp;
use postrider_store::DueMark;

use super::alarms::Alarm;
use super::commits::Ack;
use super::queue::DestIx;
use super::state::{Entry, Place};
use super::{Core, Load};

/// Later in the order of due times than every delivery of the same time.
pub(super) const LAST_ID: DeliveryId = DeliveryId::from_bytes([u8::MAX; 16]);

/// What waits in memory.
#[derive(Debug, Default)]
pub(super) struct Due {
    times: BTreeSet<(Timestamp, DeliveryId)>,
    /// What is due up to here has been read.
    mark: Option<DueMark>,
    loading: bool,
    /// The mark moved back while a read was under way: that read began too late.
    moved_back: bool,
}

impl Due {
    /// Whether a delivery that is due then has its place in memory.
    pub(super) fn covers(&self, at: Timestamp, id: DeliveryId) -> bool {
        self.mark.is_some_and(|mark| (at, id) <= (mark.at, mark.delivery))
    }

    pub(super) fn insert(&mut self, at: Timestamp, id: DeliveryId) {
        self.times.insert((at, id));
    }

    pub(super) fn remove(&mut self, at: Timestamp, id: DeliveryId) {
        self.times.remove(&(at, id));
    }

    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.times.first().map(|(at, _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether something is in memory that falls due after the mark: before it there may be more
    /// in the store. Else all that is in memory falls due before anything that could be read.
    fn is_past_mark(&self) -> bool {
        self.times.last().is_some_and(|&(at, id)| !self.covers(at, id))
    }

    /// Forgets how far was read: everything is looked through once more.
    pub(super) fn forget_mark(&mut self) {
        self.move_back(None);
    }

    fn move_back(&mut self, mark: Option<DueMark>) {
        self.mark = mark;
        // A read that is under way began after the old mark: it does not count.
        self.moved_back |= self.loading;
    }

    /// Takes the one that is due last, where there are more than `max`.
    fn give_way(&mut self, max: usize) -> Option<DeliveryId> {
        if self.times.len() <= max {
            return None;
        }
        let (_, id) = self.times.pop_last()?;
        // Where the mark is before all that is left, what was taken is found again as it is: a mark
        // that went forward would leave out what lies between.
        let last = self.times.last();
        let is_left_out = last.is_none_or(|&(at, id)| self.covers(at, id));
        if is_left_out && !planted::is(Bug::GaveWayForgotten) {
            self.move_back(last.map(|&(at, delivery)| DueMark { at, delivery }));
        }
        Some(id)
    }
}

impl Core {
    /// Every slot whose time has come takes its turn.
    pub(super) fn fire_due(&mut self) {
        while !self.is_quiet()
            && let Some(&(at, id)) = self.due.times.first()
            && at <= self.now
        {
            self.due.times.pop_first();
            self.enqueue_ready(id, false);
        }
    }

    /// How many waiting deliveries may be in memory ahead of their time. The other half of the room
    /// is for those whose turn has come, so neither can keep the other out.
    fn due_max(&self) -> usize {
        (self.options.resident_max / 2).max(1)
    }

    /// Reads the next waiting deliveries ahead of their time.
    pub(super) fn load_due(&mut self) {
        let max = self.due_max();
        while let Some(id) = self.due.give_way(max) {
            self.entries.remove(&id);
        }
        if self.due.loading || self.shutdown.is_begun() {
            return;
        }
        // Where the mark was forgotten, what falls due between is unknown, however much is here.
        let is_between = self.due.is_past_mark();
        if !is_between && self.due.times.len() > max / 2 {
            return;
        }
        let window = self.options.due_window;
        if let Some(mark) = self.due.mark
            && mark.at > self.now.saturating_add(window / 2)
        {
            if !self.alarms.is_set(Alarm::Due) {
                self.alarms.set(Alarm::Due, mark.at.saturating_sub(window / 2));
            }
            return;
        }
        self.due.loading = true;
        let until = self.now.saturating_add(window);
        let room = if is_between { max } else { max - self.due.times.len() };
        let limit = self.options.page.min(room).max(1);
        self.load(Load::Due { after: self.due.mark, until, limit });
    }

    pub(super) fn due_loaded(&mut self, rows: Vec<Delivery>, complete: bool, until: Timestamp) {
        self.due.loading = false;
        let last = rows
            .last()
            .and_then(|row| Some(DueMark { at: row.next_attempt_at()?, delivery: row.id }));
        if !std::mem::take(&mut self.due.moved_back) {
            self.due.mark = if complete {
                Some(DueMark { at: until, delivery: LAST_ID })
            } else {
                last.or(self.due.mark)
            };
        }
        for row in rows {
            if !self.commits.is_dirty(row.id) {
                self.adopt(row);
            }
        }
        // What has changed and is not durable yet may now have its place in memory.
        for newer in self.commits.dirty_waiting() {
            self.adopt(newer);
        }
    }

    /// A waiting delivery comes into memory, unless it is there or belongs to the store alone.
    pub(super) fn adopt(&mut self, delivery: Delivery) {
        let DeliveryState::Waiting(slot) = delivery.state else { return };
        if self.entries.contains_key(&delivery.id) || !self.due.covers(slot.due_at, delivery.id) {
            return;
        }
        let Some(ix) = self.dest_ix(delivery.destination) else {
            return self.await_destination(delivery, None);
        };
        if !self.directory.has(delivery.subscription) {
            self.cancel_absent(&delivery, CancelReason::SubscriptionDeleted);
            return;
        }
        if planted::is(Bug::DeadInsteadOfMakeUp)
            && (slot.number, slot.due_at < self.now) == (self.policy.retry.max, true)
        {
            let dead = delivery.not_admitted(self.now, &self.policy.retry);
            return self.commit_delivery(delivery.state.name(), dead, None);
        }
        self.place(delivery, ix);
    }

    /// What is due at a destination and did not fit into its lane was read back, soonest first.
    pub(super) fn overdue_loaded(&mut self, ix: DestIx, rows: Vec<Delivery>, limit: usize) {
        let now = self.now;
        let is_due =
            |row: &Delivery| matches!(row.state, DeliveryState::Waiting(s) if s.due_at <= now);
        let is_more = rows.len() >= limit && rows.last().is_some_and(is_due);
        let before = self.entries.len();
        let queue = &mut self.dests[ix.get()].retry;
        queue.loading = false;
        // What was dropped while this was read may not be in it.
        let dropped = std::mem::replace(&mut queue.spilled, false);
        let destination = self.dests[ix.get()].record.id;
        // What is not durable yet is not in the store's answer, or not as it is now.
        let newer = self.commits.dirty_of(destination);
        let is_behind = rows.iter().any(|row| self.commits.is_dirty(row.id));
        let rows = rows.into_iter().filter(|row| !self.commits.is_dirty(row.id));
        for row in rows.chain(newer).collect::<Vec<_>>() {
            if !is_due(&row) || self.entries.contains_key(&row.id) {
                continue;
            }
            let id = row.id;
            let entry = Entry { delivery: row, event: None, dest: ix, place: Place::Due };
            self.entries.insert(entry);
            self.enqueue_ready(id, false);
        }
        let (grew, low) = (self.entries.len() > before, self.lane_cap() / 2);
        let queue = &mut self.dests[ix.get()].retry;
        queue.spilled |= is_more || dropped;
        if !queue.spilled || queue.len > low {
            return;
        }
        if grew || dropped {
            self.read_back_soon(ix, Lane::Retry);
        } else if is_behind {
            // These are dealt with already; the store does not know it yet.
            self.commits.when_durable(Ack::ReadBack(ix, Lane::Retry));
        }
        // Else there is no room now: the lane is read back when something of it has left.
    }
}
