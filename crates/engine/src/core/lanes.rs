//! Per destination a first and a retry queue. Whose turn it is stands in [`turns`](super::turns).
//!
//! Every operation costs the same however much waits. A queue holds identifiers;
//! one whose delivery has gone elsewhere meanwhile is skipped when its turn comes.

use std::sync::Arc;

use postrider_domain::delivery::{Delivery, Lane};
use postrider_domain::ids::DeliveryId;
use postrider_domain::subscription::RateLimit;
use postrider_domain::token_bucket::TokenBucket;

use super::destinations::DestIx;
use super::messages::Load;
use super::state::Core;
use super::table::{Entry, Position};
use crate::loaded::Loaded;

/// Reads that may be under way when another lane is read back.
const LOADS_MAX: usize = 16;

impl Core {
    pub(super) fn enqueue_first(
        &mut self,
        delivery: Delivery,
        event: Option<Arc<Loaded>>,
        ix: DestIx,
    ) {
        let event = event.and_then(|event| self.keep_payload(event));
        let id = delivery.id;
        self.entries.insert(Entry { delivery, event, dest: ix, position: Position::FirstLane });
        let dest = &mut self.dests[ix.get()];
        dest.used_at = self.now;
        dest.first.ids.push_back(id);
        dest.first.len += 1;
        self.activate_lane(ix, Lane::First);
    }

    /// The slot of a delivery that is in memory fell due: it takes its turn in the retry lane.
    pub(super) fn enqueue_due(&mut self, id: DeliveryId) {
        let cap = self.lane_cap();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let ix = entry.dest;
        let queue = &mut self.dests[ix.get()].retry;
        if queue.len >= cap {
            queue.spilled = true;
            self.entries.remove(&id);
            return;
        }
        entry.position = Position::RetryLane { drained: false };
        queue.ids.push_back(id);
        queue.len += 1;
        self.activate_lane(ix, Lane::Retry);
    }

    /// A delivery that was not in memory takes its turn in the retry lane: it is due, or a ramp calls.
    pub(super) fn enqueue_ready(&mut self, delivery: Delivery, ix: DestIx, drained: bool) {
        let cap = self.lane_cap();
        let queue = &mut self.dests[ix.get()].retry;
        if !drained && queue.len >= cap {
            queue.spilled = true;
            return;
        }
        queue.ids.push_back(delivery.id);
        queue.len += 1;
        let position = Position::RetryLane { drained };
        self.entries.insert(Entry { delivery, event: None, dest: ix, position });
        self.activate_lane(ix, Lane::Retry);
    }

    /// The next delivery of a lane; what has gone elsewhere is forgotten on the way.
    pub(super) fn peek(&mut self, ix: DestIx, lane: Lane) -> Option<DeliveryId> {
        let queue = self.dests[ix.get()].queue(lane);
        while let Some(&id) = queue.ids.front() {
            let here = self.entries.get(&id).is_some_and(|entry| match (lane, entry.position) {
                (Lane::First, Position::FirstLane) | (Lane::Retry, Position::RetryLane { .. }) => {
                    true
                }
                (Lane::First | Lane::Retry, _) => false,
            });
            if here {
                return Some(id);
            }
            queue.ids.pop_front();
        }
        None
    }

    /// How many deliveries a lane may hold in memory: the fuller memory is, the fewer, so that those
    /// who have many waiting leave room to those who have one.
    pub(super) fn lane_cap(&self) -> usize {
        let (used, max) = (self.resident(), self.options.resident_max);
        let cap = match used {
            _ if used >= max => 1,
            _ if used >= max - max / 4 => 4,
            _ if used >= max / 2 => 64,
            _ => self.options.lane_resident_max,
        };
        // No lane has more than an eighth of all: what is read back must have room.
        cap.min(self.options.lane_resident_max).min(max / 8).max(1)
    }

    /// Takes the delivery that [`Core::peek`] showed out of its lane. The caller says in the same step
    /// where it is from now on.
    pub(super) fn pop(&mut self, ix: DestIx, lane: Lane) {
        let queue = self.dests[ix.get()].queue(lane);
        queue.ids.pop_front();
        queue.len = queue.len.saturating_sub(1);
        self.read_back_when_low(ix, lane);
    }

    /// Takes the delivery that [`Core::peek`] showed out of its lane and out of memory.
    pub(super) fn pop_entry(&mut self, ix: DestIx, lane: Lane, id: DeliveryId) -> Option<Entry> {
        self.pop(ix, lane);
        self.entries.remove(&id)
    }

    /// A delivery that had its turn and was not sent is the next one of its lane again.
    pub(super) fn push_front(&mut self, id: DeliveryId, lane: Lane, drained: bool) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.position = match lane {
            Lane::First => Position::FirstLane,
            Lane::Retry => Position::RetryLane { drained },
        };
        let ix = entry.dest;
        let queue = self.dests[ix.get()].queue(lane);
        queue.ids.push_front(id);
        queue.len += 1;
        self.activate_lane(ix, lane);
    }

    /// Reads a lane back that has more in the store and little in memory.
    pub(super) fn read_back_when_low(&mut self, ix: DestIx, lane: Lane) {
        let low = self.lane_cap() / 2;
        let queue = self.dests[ix.get()].queue(lane);
        if queue.spilled && !queue.loading && queue.len <= low {
            self.read_back_soon(ix, lane);
        }
    }

    /// Reads a lane back, now or when there is room in memory.
    pub(super) fn read_back_soon(&mut self, ix: DestIx, lane: Lane) {
        // A lane that has nothing at all in memory never waits for room: else what waits for later
        // would hold up what is new.
        let has_room = self.resident() < self.options.resident_max;
        let queue = self.dests[ix.get()].queue(lane);
        if has_room || queue.len == 0 {
            self.read_back(ix, lane);
        } else if !queue.starved {
            queue.starved = true;
            self.rings.starved.push_back((ix, lane));
        }
    }

    /// There is room in memory again: lanes that waited for it are read back, one by one.
    pub(super) fn feed_starved(&mut self) {
        while self.resident() < self.options.resident_max - self.options.resident_max / 4
            && self.loads.len() < LOADS_MAX
            && let Some((ix, lane)) = self.rings.starved.pop_front()
        {
            // It may have been read back since, when nothing of it was left in memory.
            if std::mem::take(&mut self.dests[ix.get()].queue(lane).starved) {
                self.read_back_when_low(ix, lane);
            }
        }
    }

    /// A delivery leaves its lane without a turn.
    pub(super) fn leave_lane(&mut self, ix: DestIx, lane: Lane) {
        let queue = self.dests[ix.get()].queue(lane);
        queue.len = queue.len.saturating_sub(1);
        if queue.len == 0 {
            queue.ids.clear();
        }
        self.read_back_when_low(ix, lane);
    }

    /// Reads what a lane of a destination has in the store.
    pub(super) fn read_back(&mut self, ix: DestIx, lane: Lane) {
        let cap = self.lane_cap();
        let dest = &mut self.dests[ix.get()];
        let in_flight = usize::try_from(dest.in_flight).unwrap_or(0);
        let destination = dest.record.id;
        let queue = dest.queue(lane);
        // What is dropped from now on may not be in this read.
        (queue.loading, queue.spilled, queue.starved) = (true, false, false);
        let load = match lane {
            Lane::First => Load::Queued { destination, limit: cap * 2 + in_flight },
            Lane::Retry => Load::Overdue { destination, limit: cap * 2 + in_flight },
        };
        self.load(load);
    }

    /// Lets a destination take turns in both lanes again.
    pub(super) fn activate(&mut self, ix: DestIx) {
        self.activate_lane(ix, Lane::First);
        self.activate_lane(ix, Lane::Retry);
    }

    pub(super) fn activate_lane(&mut self, ix: DestIx, lane: Lane) {
        let queue = self.dests[ix.get()].queue(lane);
        if queue.len > 0 && !queue.in_ring {
            self.enter_turns(ix, lane);
        }
    }

    pub(super) fn set_rate(&mut self, ix: DestIx, rate: Option<RateLimit>) {
        let now = self.now;
        let bucket = &mut self.dests[ix.get()].bucket;
        let Some(rate) = rate.map(|rate| u64::from(rate.per_1000_seconds())) else {
            *bucket = None;
            self.activate(ix);
            return;
        };
        if bucket.is_none_or(|bucket| bucket.per_1000_seconds() != rate) {
            // A tenth of a second at once keeps the rate smooth and the timers few.
            *bucket = Some(TokenBucket::new(rate, rate / 10_000, now));
        }
        self.activate(ix);
    }
}
