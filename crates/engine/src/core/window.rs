//! The retry lane's clock: the waiting deliveries whose slots fall due within the next minutes.
//!
//! Everything up to the mark is in memory, everything after it is in the store alone: memory
//! follows activity, not backlog. **What is due soonest is in memory first**: where more falls due
//! than there is room for, the latest give way and the mark moves back before them.

use std::collections::BTreeSet;

use postrider_domain::delivery::{Delivery, DeliveryState, Lane};
use postrider_domain::ids::DeliveryId;
use postrider_domain::time::Timestamp;
use postrider_store::DueMark;

use super::alarms::Alarm;
use super::destinations::DestIx;
use super::messages::Load;
use super::state::Core;
use super::table::{Entry, Position};

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
        if is_left_out {
            self.move_back(last.map(|&(at, delivery)| DueMark { at, delivery }));
        }
        Some(id)
    }

    /// The read that was under way has ended: everything up to `mark` is in memory now.
    pub(super) fn read_up_to(&mut self, mark: Option<DueMark>) {
        self.loading = false;
        if !std::mem::take(&mut self.moved_back) {
            self.mark = mark.or(self.mark);
        }
    }
}

impl Core {
    /// Puts a delivery where it belongs after a change: to its slot, or out of memory.
    pub(super) fn place(&mut self, delivery: Delivery, ix: DestIx) {
        match delivery.state {
            DeliveryState::Waiting(slot) if self.due.covers(slot.due_at, delivery.id) => {
                self.due.insert(slot.due_at, delivery.id);
                let position = Position::Window;
                self.entries.insert(Entry { delivery, event: None, dest: ix, position });
            }
            DeliveryState::Queued => self.enqueue_first(delivery, None, ix),
            DeliveryState::Waiting(_)
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {
                self.entries.remove(&delivery.id);
            }
        }
    }

    /// Every slot whose time has come takes its turn.
    pub(super) fn fire_due(&mut self) {
        while !self.is_quiet()
            && let Some(&(at, id)) = self.due.times.first()
            && at <= self.now
        {
            self.due.times.pop_first();
            self.enqueue_due(id);
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

    /// Reads what a destination has in the store, in both lanes.
    pub(super) fn look_again(&mut self, ix: DestIx) {
        let first = &mut self.dests[ix.get()].first;
        if first.loading {
            // What is being read may have begun too early.
            first.spilled = true;
        } else {
            self.read_back(ix, Lane::First);
        }
        self.due.forget_mark();
    }
}
