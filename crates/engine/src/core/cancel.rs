//! Cancelling what is owed: one delivery, in memory or not, or all that a deleted subscription is owed.

use postrider_domain::attempt::Verdict;
use postrider_domain::delivery::{CancelReason, Delivery};
use postrider_domain::ids::{DeliveryId, SubscriptionId, TenantId};

use super::commits::Ack;
use super::messages::{Action, Load};
use super::state::Core;
use super::table::{Flight, Place};

impl Core {
    /// Cancels a delivery that is in memory.
    pub(super) fn cancel_resident(
        &mut self,
        id: DeliveryId,
        reason: CancelReason,
    ) -> Option<Delivery> {
        let entry = self.entries.get(&id)?;
        let (ix, place) = (entry.dest, entry.place);
        let before = entry.delivery.state.name();
        let cancelled = entry.delivery.cancelled(reason, self.now).ok()?;
        self.commits.delivery(before, cancelled.clone(), None);
        if let Place::InFlight(flight) = place {
            // The attempt goes on and is logged; the delivery stays cancelled.
            if let Some(account) = flight.account {
                let tenant = self.dests[ix.get()].tenant;
                *self.tenants[tenant].overlay.account(account) -= 1;
            }
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.delivery = cancelled.clone();
                entry.place = Place::InFlight(Flight { account: None, ..flight });
            }
            return Some(cancelled);
        }
        self.set_place(id, Place::Due);
        self.leave_queue(ix, if place == Place::First { place } else { Place::Due });
        if let Some(entry) = self.entries.remove(&id) {
            self.forget_payload(entry.event.as_deref());
        }
        if place == Place::Probe {
            self.lose_probe(ix, id);
        }
        if place == (Place::Ready { drained: true }) {
            self.drained(ix, Verdict::Success);
        }
        Some(cancelled)
    }

    /// Cancels a delivery that is not in memory.
    pub(super) fn cancel_absent(
        &mut self,
        delivery: &Delivery,
        reason: CancelReason,
    ) -> Option<Delivery> {
        let cancelled = delivery.cancelled(reason, self.now).ok()?;
        self.commits.delivery(delivery.state.name(), cancelled.clone(), None);
        Some(cancelled)
    }

    /// A subscription is gone: what it still owed is cancelled, page by page.
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
        // What is another node's to cancel, that one cancels.
        let ours = |row: &Delivery| self.holding.has(row.destination.shard());
        let rows: Vec<Delivery> = rows.into_iter().filter(ours).collect();
        if rows.is_empty() {
            return;
        }
        for row in rows {
            if self.entries.contains_key(&row.id) {
                self.cancel_resident(row.id, CancelReason::SubscriptionDeleted);
            } else {
                let newest = self.commits.dirty(row.id).cloned().unwrap_or(row);
                self.cancel_absent(&newest, CancelReason::SubscriptionDeleted);
            }
        }
        self.commits.when_durable(Ack::Unfinished(tenant, subscription));
    }
}
