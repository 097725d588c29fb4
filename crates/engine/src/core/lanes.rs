//! The two queues of a destination: first lane and retry lane. The order between destinations is in
//! [`turns`](super::turns).
//!
//! Every operation takes constant time, however long the queues are. A queue holds identifiers; one
//! whose delivery has left the queue is skipped when its turn comes.

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

/// Other lanes are read only while fewer reads than this are running.
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
        self.table.entries.insert(Entry {
            delivery,
            event,
            dest: ix,
            position: Position::FirstLane,
        });
        let dest = &mut self.table.dests[ix.get()];
        dest.used_at = self.now;
        dest.first.ids.push_back(id);
        dest.first.len += 1;
        self.activate_lane(ix, Lane::First);
    }

    /// The slot of a delivery in memory is due: puts it into the retry lane.
    pub(super) fn enqueue_due(&mut self, id: DeliveryId) {
        let cap = self.lane_cap();
        let Some(entry) = self.table.entries.get_mut(&id) else { return };
        let ix = entry.dest;
        let queue = &mut self.table.dests[ix.get()].retry;
        if queue.len >= cap {
            queue.spilled = true;
            self.table.entries.remove(&id);
            return;
        }
        entry.position = Position::RetryLane { drained: false };
        queue.ids.push_back(id);
        queue.len += 1;
        self.activate_lane(ix, Lane::Retry);
    }

    /// Puts a delivery that was not in memory into the retry lane: it is due, or part of a ramp.
    pub(super) fn enqueue_ready(&mut self, delivery: Delivery, ix: DestIx, drained: bool) {
        let cap = self.lane_cap();
        let queue = &mut self.table.dests[ix.get()].retry;
        if !drained && queue.len >= cap {
            queue.spilled = true;
            return;
        }
        queue.ids.push_back(delivery.id);
        queue.len += 1;
        let position = Position::RetryLane { drained };
        self.table.entries.insert(Entry { delivery, event: None, dest: ix, position });
        self.activate_lane(ix, Lane::Retry);
    }

    /// The next delivery of a lane; drops identifiers whose delivery has left it.
    pub(super) fn peek(&mut self, ix: DestIx, lane: Lane) -> Option<DeliveryId> {
        let queue = self.table.dests[ix.get()].queue(lane);
        while let Some(&id) = queue.ids.front() {
            let here =
                self.table.entries.get(&id).is_some_and(|entry| match (lane, entry.position) {
                    (Lane::First, Position::FirstLane)
                    | (Lane::Retry, Position::RetryLane { .. }) => true,
                    (Lane::First | Lane::Retry, _) => false,
                });
            if here {
                return Some(id);
            }
            queue.ids.pop_front();
        }
        None
    }

    /// How many deliveries a lane may hold in memory: the fuller the memory, the fewer, so that
    /// destinations with many deliveries leave room for those with few.
    pub(super) fn lane_cap(&self) -> usize {
        let (used, max) = (self.table.resident(), self.options.resident_max);
        let cap = match used {
            _ if used >= max => 1,
            _ if used >= max - max / 4 => 4,
            _ if used >= max / 2 => 64,
            _ => self.options.lane_resident_max,
        };
        // No lane has more than an eighth of the memory, so that there is room to read others.
        cap.min(self.options.lane_resident_max).min(max / 8).max(1)
    }

    /// Removes the delivery that [`Core::peek`] returned from its lane. The caller must set its new
    /// position in the same step.
    pub(super) fn pop(&mut self, ix: DestIx, lane: Lane) {
        let queue = self.table.dests[ix.get()].queue(lane);
        queue.ids.pop_front();
        queue.len = queue.len.saturating_sub(1);
        self.read_back_when_low(ix, lane);
    }

    /// Removes the delivery that [`Core::peek`] returned from its lane and from memory.
    pub(super) fn pop_entry(&mut self, ix: DestIx, lane: Lane, id: DeliveryId) -> Option<Entry> {
        self.pop(ix, lane);
        self.table.entries.remove(&id)
    }

    /// Puts a delivery that was taken but not sent back to the front of its lane.
    pub(super) fn push_front(&mut self, id: DeliveryId, ix: DestIx, lane: Lane) {
        let queue = self.table.dests[ix.get()].queue(lane);
        queue.ids.push_front(id);
        queue.len += 1;
        self.activate_lane(ix, lane);
    }

    /// Reads a lane from the store, if it has more there and few deliveries in memory.
    pub(super) fn read_back_when_low(&mut self, ix: DestIx, lane: Lane) {
        let low = self.lane_cap() / 2;
        let queue = self.table.dests[ix.get()].queue(lane);
        if queue.spilled && !queue.loading && queue.len <= low {
            self.read_back_soon(ix, lane);
        }
    }

    /// Reads a lane from the store, now or when there is free memory.
    pub(super) fn read_back_soon(&mut self, ix: DestIx, lane: Lane) {
        // A lane without any delivery in memory never waits for free memory: otherwise deliveries
        // that are due later would block new ones.
        let has_room = self.table.resident() < self.options.resident_max;
        let queue = self.table.dests[ix.get()].queue(lane);
        if has_room || queue.len == 0 {
            self.read_back(ix, lane);
        } else if !queue.starved {
            queue.starved = true;
            self.rings.starved.push_back((ix, lane));
        }
    }

    /// There is free memory again: reads the lanes that waited for it, one by one.
    pub(super) fn feed_starved(&mut self) {
        while self.table.resident() < self.options.resident_max - self.options.resident_max / 4
            && self.reads.len() < LOADS_MAX
            && let Some((ix, lane)) = self.rings.starved.pop_front()
        {
            // It may have been read since, when none of its deliveries was left in memory.
            if std::mem::take(&mut self.table.dests[ix.get()].queue(lane).starved) {
                self.read_back_when_low(ix, lane);
            }
        }
    }

    /// A delivery leaves its lane without being sent.
    pub(super) fn leave_lane(&mut self, ix: DestIx, lane: Lane) {
        let queue = self.table.dests[ix.get()].queue(lane);
        queue.len = queue.len.saturating_sub(1);
        if queue.len == 0 {
            queue.ids.clear();
        }
        self.read_back_when_low(ix, lane);
    }

    /// Reads the deliveries of a lane from the store.
    pub(super) fn read_back(&mut self, ix: DestIx, lane: Lane) {
        let cap = self.lane_cap();
        let dest = &mut self.table.dests[ix.get()];
        let in_flight = usize::try_from(dest.in_flight).unwrap_or(0);
        let destination = dest.record.id;
        let queue = dest.queue(lane);
        // Deliveries that are dropped from now on may be missing in this read.
        (queue.loading, queue.spilled, queue.starved) = (true, false, false);
        let load = match lane {
            Lane::First => Load::Queued { destination, limit: cap * 2 + in_flight },
            Lane::Retry => Load::Overdue { destination, limit: cap * 2 + in_flight },
        };
        self.load(load);
    }

    /// Puts a destination into the rings of both lanes again.
    pub(super) fn activate(&mut self, ix: DestIx) {
        self.activate_lane(ix, Lane::First);
        self.activate_lane(ix, Lane::Retry);
    }

    pub(super) fn activate_lane(&mut self, ix: DestIx, lane: Lane) {
        let queue = self.table.dests[ix.get()].queue(lane);
        if queue.len > 0 && !queue.in_ring {
            self.enter_turns(ix, lane);
        }
    }

    /// Sets the rate that the subscriptions of a destination want. The operator's limit holds in any
    /// case.
    pub(super) fn set_rate(&mut self, ix: DestIx, rate: Option<RateLimit>) {
        let now = self.now;
        let most = self.policy.limits.rate_limit();
        let rate = rate.into_iter().chain(most).min();
        let bucket = &mut self.table.dests[ix.get()].bucket;
        let Some(rate) = rate.map(|rate| u64::from(rate.per_1000_seconds())) else {
            *bucket = None;
            self.activate(ix);
            return;
        };
        if bucket.is_none_or(|bucket| bucket.per_1000_seconds() != rate) {
            // A burst of a tenth of a second keeps the rate smooth with few timers.
            *bucket = Some(TokenBucket::new(rate, rate / 10_000, now));
        }
        self.activate(ix);
    }
}
