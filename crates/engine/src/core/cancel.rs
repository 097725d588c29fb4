//! Cancels deliveries: a single one, in memory or not, or all unfinished ones of a deleted
//! subscription.

use std::slice;

use postrider_domain::delivery::{CancelReason, Delivery};
use postrider_domain::ids::{DeliveryId, SubscriptionId, TenantId};

use super::commits::Ack;
use super::drain::Drained;
use super::messages::{Action, Load};
use super::state::Core;
use super::table::{Entry, Origin, Places, Position};

impl Core {
    /// Cancels a delivery that is in memory.
    pub(super) fn cancel_resident(
        &mut self,
        id: DeliveryId,
        reason: CancelReason,
    ) -> Option<Delivery> {
        let entry = self.table.entries.get_mut(&id)?;
        let cancelled = entry.delivery.cancelled(reason, self.now).ok()?;
        if let Position::InFlight(flight) = &mut entry.position {
            // The attempt continues and is logged; the delivery stays cancelled.
            let before = std::mem::replace(&mut entry.delivery, cancelled.clone());
            if let Some(account) = flight.account.take() {
                let tenant = self.table.dests[entry.dest.get()].tenant;
                *self.table.tenants[tenant].overlay.account(account) -= 1;
            }
            self.commits.delivery(&before, cancelled.clone(), None);
            return Some(cancelled);
        }
        self.commits.delivery(&entry.delivery, cancelled.clone(), None);
        let Entry { dest: ix, position, .. } = self.take_out(id)?;
        match position {
            Position::Probe | Position::Placed(Places { from: Origin::Probe, .. }) => {
                self.lose_probe(ix, id);
            }
            Position::RetryLane { drained: true }
            | Position::Placed(Places { from: Origin::Drained, .. }) => {
                self.drained(ix, Drained::Cancelled);
            }
            Position::FirstLane
            | Position::Window
            | Position::RetryLane { drained: false }
            | Position::Placed(_)
            | Position::InFlight(_) => {}
        }
        Some(cancelled)
    }

    /// Cancels a delivery that is not in memory. It may still be on its way to the lanes, so it is
    /// remembered as cancelled.
    pub(super) fn cancel_absent(
        &mut self,
        delivery: &Delivery,
        reason: CancelReason,
    ) -> Option<Delivery> {
        let cancelled = delivery.cancelled(reason, self.now).ok()?;
        let (next, oldest) = (self.inbox.next_ticket(), self.inbox.oldest_ticket());
        self.reads.seen.remember(next, slice::from_ref(delivery), oldest);
        self.commits.delivery(delivery, cancelled.clone(), None);
        Some(cancelled)
    }

    /// Cancels all unfinished deliveries of a deleted subscription, page by page.
    pub(crate) fn cancel_all(&mut self, tenant: TenantId, subscription: SubscriptionId) {
        self.load(Load::Unfinished { tenant, subscription, limit: self.options.page });
    }

    pub(super) fn unfinished_loaded(
        &mut self,
        tenant: TenantId,
        subscription: SubscriptionId,
        rows: Vec<Delivery>,
        is_none_left: bool,
    ) {
        if is_none_left {
            self.actions.push(Action::Forget(tenant, subscription));
            return;
        }
        // Deliveries in shards of other nodes are cancelled by their owners.
        let ours = |row: &Delivery| self.shards.has(row.destination.shard());
        let rows: Vec<Delivery> = rows.into_iter().filter(ours).collect();
        if rows.is_empty() {
            return;
        }
        for row in rows {
            if self.table.entries.contains_key(&row.id) {
                self.cancel_resident(row.id, CancelReason::SubscriptionDeleted);
            } else {
                let newest = self.commits.dirty(row.id).cloned().unwrap_or(row);
                self.cancel_absent(&newest, CancelReason::SubscriptionDeleted);
            }
        }
        self.commits.when_durable(Ack::Unfinished(tenant, subscription));
    }
}
