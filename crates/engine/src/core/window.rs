//! The window of the retry lane: waiting deliveries whose slots are due within the next minutes.
//!
//! Deliveries up to the watermark are in memory, later ones only in the store: so memory does not
//! grow with the backlog. **The earliest are in memory first**: if there are more than fit, the
//! latest are evicted and the watermark moves back before them.

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

/// Sorts before every other delivery with the same due time.
const FIRST_ID: DeliveryId = DeliveryId::from_bytes([0; 16]);

/// The waiting deliveries in memory.
#[derive(Debug, Default)]
pub(super) struct Window {
    times: BTreeSet<(Timestamp, DeliveryId)>,
    /// The watermark: deliveries due up to here have been read.
    mark: Option<DueMark>,
    loading: bool,
    /// The watermark moved back while a read was running: that read began too late.
    moved_back: bool,
}

impl Window {
    /// Whether a delivery with this due time belongs in memory.
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

    /// Whether a delivery in memory is due after the watermark. Then the store may have earlier
    /// ones. Otherwise all deliveries in memory are due before any that could be read.
    fn is_past_mark(&self) -> bool {
        self.times.last().is_some_and(|&(at, id)| !self.covers(at, id))
    }

    /// Resets the watermark: everything is read again.
    pub(super) fn forget_mark(&mut self) {
        self.move_back(None);
    }

    fn move_back(&mut self, mark: Option<DueMark>) {
        self.mark = mark;
        // The running read began after the old watermark: its result is ignored.
        self.moved_back |= self.loading;
    }

    /// Evicts the latest delivery, if there are more than `max`.
    fn give_way(&mut self, max: usize) -> Option<DeliveryId> {
        if self.times.len() <= max {
            return None;
        }
        let (_, id) = self.times.pop_last()?;
        // Never advance the watermark on eviction: rows that were not read yet would be skipped.
        let last = self.times.last();
        let is_left_out = last.is_none_or(|&(at, id)| self.covers(at, id));
        if is_left_out {
            self.move_back(last.map(|&(at, delivery)| DueMark { at, delivery }));
        }
        Some(id)
    }

    /// The running read has ended: everything up to `mark` is in memory now.
    pub(super) fn read_up_to(&mut self, mark: Option<DueMark>) {
        self.loading = false;
        if !std::mem::take(&mut self.moved_back) {
            self.mark = mark.or(self.mark);
        }
    }
}

impl Core {
    /// Puts a changed delivery into the window, or out of memory.
    pub(super) fn place(&mut self, delivery: Delivery, ix: DestIx) {
        match delivery.state {
            DeliveryState::Waiting(slot) if self.window.covers(slot.due_at, delivery.id) => {
                self.window.insert(slot.due_at, delivery.id);
                let position = Position::Window;
                self.table.entries.insert(Entry { delivery, event: None, dest: ix, position });
            }
            DeliveryState::Queued => self.enqueue_first(delivery, None, ix),
            DeliveryState::Waiting(_)
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {
                self.table.entries.remove(&delivery.id);
            }
        }
    }

    /// Moves every delivery whose slot is due to the retry lane.
    pub(super) fn fire_due(&mut self) {
        while !self.is_quiet()
            && let Some(&(at, id)) = self.window.times.first()
            && at <= self.now
        {
            self.window.times.pop_first();
            self.enqueue_due(id);
        }
    }

    /// Whether deliveries of a destination are due and not sent yet, in memory or in the store; also
    /// if what is due has not been read from the store yet.
    pub(super) fn has_due(&self, ix: DestIx) -> bool {
        let retry = &self.table.dests[ix.get()].retry;
        let is_read = self.window.covers(self.now, FIRST_ID);
        retry.len > 0 || retry.spilled || retry.loading || retry.starved || !is_read
    }

    /// How many waiting deliveries may be in memory ahead of their time: half of the room. The
    /// other half is for due ones, so that neither can displace the other.
    fn due_max(&self) -> usize {
        (self.options.resident_max / 2).max(1)
    }

    /// Reads the next waiting deliveries ahead of their time.
    pub(super) fn load_due(&mut self) {
        let max = self.due_max();
        while let Some(id) = self.window.give_way(max) {
            self.table.entries.remove(&id);
        }
        if self.window.loading || self.shutdown.is_begun() {
            return;
        }
        // After a reset of the watermark there may be earlier deliveries in the store, however many
        // are in memory.
        let is_between = self.window.is_past_mark();
        if !is_between && self.window.times.len() > max / 2 {
            return;
        }
        let window = self.options.due_window;
        if let Some(mark) = self.window.mark
            && mark.at > self.now.saturating_add(window / 2)
        {
            if !self.alarms.is_set(Alarm::Due) {
                self.alarms.set(Alarm::Due, mark.at.saturating_sub(window / 2));
            }
            return;
        }
        self.window.loading = true;
        let until = self.now.saturating_add(window);
        let room = if is_between { max } else { max - self.window.times.len() };
        let limit = self.options.page.min(room).max(1);
        self.load(Load::Due { after: self.window.mark, until, limit });
    }

    /// Reads the deliveries of a destination from the store, in both lanes.
    pub(super) fn look_again(&mut self, ix: DestIx) {
        let first = &mut self.table.dests[ix.get()].first;
        if first.loading {
            // A running read may not see the newest deliveries, so the lanes are read once more.
            first.spilled = true;
        } else {
            self.read_back(ix, Lane::First);
        }
        self.window.forget_mark();
    }
}
