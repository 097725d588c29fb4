//! Takes deliveries into memory: newly accepted ones, and those that were read from the store.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use postrider_domain::delivery::{CancelReason, Delivery, DeliveryState, Lane};
use postrider_domain::destination::Destination;
use postrider_domain::ids::{DestinationId, EventId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::DueMark;

use super::commits::Ack;
use super::destinations::{DestIx, LoadId};
use super::messages::Parked;
use super::reads::LAST_ID;
use super::state::Core;
use crate::handle::CommandError;
use crate::inbox::Handover;
use crate::loaded::Loaded;

/// Events by tenant and identifier; deliveries share them.
pub(super) type SharedEvents = HashMap<(TenantId, EventId), Arc<Loaded>>;

impl Core {
    /// Puts newly accepted deliveries into the first lane.
    pub(super) fn accepted(&mut self, handover: Handover) {
        let Handover { tenant, ticket, items } = handover;
        self.inbox.took(&tenant, items.len());
        let mut last: Option<Arc<Loaded>> = None;
        for (event, delivery) in items {
            // The deliveries of one event are adjacent, and share it.
            let shared = match last.take() {
                Some(loaded) if Arc::ptr_eq(&loaded.event, &event) => loaded,
                Some(_) | None => self.share(event),
            };
            // A read of the store may have returned it already, and it may even have ended since.
            if !self.reads.seen.has(ticket.number, delivery.id) {
                self.arrive(delivery, Some(Arc::clone(&shared)));
            }
            last = Some(shared);
        }
    }

    /// Takes in a delivery that is queued in the store, unless it is in memory already.
    fn arrive(&mut self, delivery: Delivery, event: Option<Arc<Loaded>>) {
        if self.table.entries.contains_key(&delivery.id) || self.commits.is_dirty(delivery.id) {
            return;
        }
        let Some(ix) = self.table.dest_ix(delivery.destination) else {
            return self.await_destination(delivery, event);
        };
        if !self.directory.has(delivery.subscription) {
            self.cancel_absent(&delivery, CancelReason::SubscriptionDeleted);
            return;
        }
        let cap = self.lane_cap();
        let dest = &mut self.table.dests[ix.get()];
        if dest.first.len >= cap {
            dest.first.spilled = true;
            return;
        }
        self.enqueue_first(delivery, event, ix);
    }

    fn arrive_all(&mut self, rows: Vec<Delivery>, events: &SharedEvents) {
        for row in rows {
            let event = events.get(&(row.tenant.clone(), row.event.clone())).cloned();
            self.arrive(row, event);
        }
    }

    /// Handles a page of queued deliveries.
    pub(super) fn backlog_loaded(
        &mut self,
        rows: Vec<Delivery>,
        last: Option<DueMark>,
        is_complete: bool,
        events: &SharedEvents,
    ) {
        self.reads.backlog_read((!is_complete).then_some(last));
        self.arrive_all(rows, events);
    }

    pub(super) fn queued_loaded(
        &mut self,
        ix: DestIx,
        rows: Vec<Delivery>,
        limit: usize,
        events: &SharedEvents,
    ) {
        let (before, complete) = (self.table.entries.len(), rows.len() < limit);
        self.arrive_all(rows, events);
        let grew = self.table.entries.len() > before;
        let low = self.lane_cap() / 2;
        let queue = &mut self.table.dests[ix.get()].first;
        queue.loading = false;
        queue.spilled |= !complete;
        if !queue.spilled || queue.len > low {
            return;
        }
        if grew {
            self.read_back_soon(ix, Lane::First);
        } else {
            // Every delivery that was read is handled already, but the changes are not durable yet.
            // Read again when they are.
            self.commits.when_durable(Ack::ReadBack(ix, Lane::First));
        }
    }

    pub(super) fn due_loaded(&mut self, rows: Vec<Delivery>, complete: bool, until: Timestamp) {
        let last = rows
            .last()
            .and_then(|row| Some(DueMark { at: row.next_attempt_at()?, delivery: row.id }));
        let all = complete.then_some(DueMark { at: until, delivery: LAST_ID });
        self.window.read_up_to(all.or(last));
        for row in rows {
            if !self.commits.is_dirty(row.id) {
                self.adopt(row);
            }
        }
        // Changed deliveries that are not durable yet may have a place in memory now.
        for newer in self.commits.dirty_waiting() {
            self.adopt(newer);
        }
    }

    /// Takes a waiting delivery into memory, unless it is there already or beyond the window.
    fn adopt(&mut self, delivery: Delivery) {
        let DeliveryState::Waiting(slot) = delivery.state else { return };
        if self.table.entries.contains_key(&delivery.id)
            || !self.window.covers(slot.due_at, delivery.id)
        {
            return;
        }
        let Some(ix) = self.table.dest_ix(delivery.destination) else {
            return self.await_destination(delivery, None);
        };
        if !self.directory.has(delivery.subscription) {
            self.cancel_absent(&delivery, CancelReason::SubscriptionDeleted);
            return;
        }
        self.place(delivery, ix);
    }

    /// Handles due deliveries of a destination that did not fit into its lane and were read,
    /// earliest first.
    pub(super) fn overdue_loaded(&mut self, ix: DestIx, rows: Vec<Delivery>, limit: usize) {
        let now = self.now;
        let is_due =
            |row: &Delivery| matches!(row.state, DeliveryState::Waiting(s) if s.due_at <= now);
        let is_more = rows.len() >= limit && rows.last().is_some_and(is_due);
        let before = self.table.entries.len();
        let queue = &mut self.table.dests[ix.get()].retry;
        queue.loading = false;
        // Deliveries that were dropped during this read may be missing in it.
        let dropped = std::mem::replace(&mut queue.spilled, false);
        let destination = self.table.dests[ix.get()].record.id;
        // Changes that are not durable yet are missing in the read, or outdated.
        let newer = self.commits.dirty_of(destination);
        let is_behind = rows.iter().any(|row| self.commits.is_dirty(row.id));
        let rows = rows.into_iter().filter(|row| !self.commits.is_dirty(row.id));
        for row in rows.chain(newer).collect::<Vec<_>>() {
            if !is_due(&row) || self.table.entries.contains_key(&row.id) {
                continue;
            }
            self.enqueue_ready(row, ix, false);
        }
        let (grew, low) = (self.table.entries.len() > before, self.lane_cap() / 2);
        let queue = &mut self.table.dests[ix.get()].retry;
        queue.spilled |= is_more || dropped;
        if !queue.spilled || queue.len > low {
            return;
        }
        if grew || dropped {
            self.read_back_soon(ix, Lane::Retry);
        } else if is_behind {
            // Every delivery that was read is handled already, but the changes are not durable yet.
            // Read again when they are.
            self.commits.when_durable(Ack::ReadBack(ix, Lane::Retry));
        }
        // Otherwise memory is full: the lane is read again when a delivery of it has left.
    }

    /// Marks destinations that have more deliveries in the store than in memory.
    pub(super) fn spilled(&mut self, destinations: &BTreeMap<DestinationId, TenantId>) {
        for (id, tenant) in destinations {
            let Some(ix) = self.table.dest_ix(*id) else {
                self.await_more(tenant, *id);
                continue;
            };
            let low = self.lane_cap() / 2;
            let queue = &mut self.table.dests[ix.get()].first;
            queue.spilled = true;
            if !queue.loading && queue.len <= low {
                self.read_back_soon(ix, Lane::First);
            }
        }
    }

    /// Handles the result of the lookup of a destination: deliveries that waited for it continue.
    /// Returns the commands that can be executed now.
    pub(super) fn destination_read(
        &mut self,
        read: LoadId,
        id: DestinationId,
        record: Option<Box<Destination>>,
    ) -> Vec<Parked> {
        let mut commands = Vec::new();
        if let Some(lookup) = self.end_lookup(read, id) {
            if let Some(record) = record {
                let rate = self.directory.rate_limit(&record.tenant, id);
                let ix = self.add_destination(*record, rate);
                for (delivery, event) in lookup.deliveries {
                    self.arrive_late(delivery, event);
                }
                if lookup.has_more {
                    self.look_again(ix);
                }
                commands = lookup.commands;
            } else {
                lookup.commands.into_iter().for_each(|one| one.refuse(CommandError::NotFound));
            }
            self.jobs_continue(lookup.jobs);
        }
        self.end_lookup_read(read);
        commands
    }

    /// Takes in a delivery that waited for its destination, which is in memory now.
    fn arrive_late(&mut self, delivery: Delivery, event: Option<Arc<Loaded>>) {
        match delivery.state {
            DeliveryState::Queued => self.arrive(delivery, event),
            DeliveryState::Waiting(_) if !self.commits.is_dirty(delivery.id) => {
                self.adopt(delivery);
            }
            DeliveryState::Waiting(_)
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {}
        }
    }
}
