//! How many attempts may be in flight: at a destination, of a tenant, and of the server. The limits
//! hold for whatever is sent: first attempts, retries, probes, what somebody asked for, drains,
//! replays and test sends.

use std::collections::BTreeMap;

use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_engine::Options;

use super::circuit::State;
use super::{Oracle, Owed, Stand};
use crate::coverage::Cover;

/// The most attempts in flight, and those that are.
#[derive(Debug)]
pub struct Limits {
    destination: u32,
    tenant: u32,
    server: u32,
    /// Attempts in flight of each tenant.
    pub(super) of_tenants: BTreeMap<TenantId, u32>,
    /// Test sends that somebody asked for and that have not begun.
    pub tests_asked: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let (of_tenants, all) = (BTreeMap::new(), u32::MAX);
        Limits { destination: all, tenant: all, server: all, of_tenants, tests_asked: 0 }
    }
}

impl Limits {
    /// The limits of these options.
    pub fn of(options: &Options) -> Self {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Limits {
            destination: options.destination_in_flight_max,
            tenant: options.tenant_in_flight_max.map_or(u32::MAX, count),
            server: count(options.in_flight_max),
            ..Limits::default()
        }
    }
}

impl Oracle {
    /// Checks the limits when one more attempt has begun.
    pub(super) fn check_in_flight(
        &mut self,
        tenant: &TenantId,
        destination: DestinationId,
        at_destination: u32,
    ) {
        let limits = &mut self.limits;
        let of_tenant = limits.of_tenants.entry(tenant.clone()).or_default();
        *of_tenant += 1;
        if at_destination == limits.destination {
            self.coverage.hit(Cover::AtLimit);
        }
        for (what, count, most) in [
            ("a destination", at_destination, limits.destination),
            ("a tenant", *of_tenant, limits.tenant),
            ("the server", self.in_flight, limits.server),
        ] {
            if count > most {
                let what = format!("{count} in flight of {what}, whose limit is {most}");
                return self.violate(what, None, Some(destination));
            }
        }
    }

    /// An attempt of this tenant has ended.
    pub(super) fn left(&mut self, tenant: &TenantId) {
        if let Some(count) = self.limits.of_tenants.get_mut(tenant) {
            *count = count.saturating_sub(1);
        }
    }

    /// Somebody asked for an attempt of this delivery, which waits at a disabled destination: it
    /// must be the next probe. A delivery whose wish may still be on its way to the store is not
    /// watched, nor one that was attempted before the answer came.
    pub fn probe_is_asked_for(&mut self, id: DeliveryId) {
        let (now, slack) = (self.now, self.slack);
        let Some(owed) = self.owed.get(&id).filter(|owed| owed.retries_asked > 0) else { return };
        let destination = owed.destination;
        if let Some(dest) = self.destinations.get_mut(&destination) {
            let is_open = matches!(dest.model.state, State::Open { probe_at } if probe_at > now);
            dest.probe_asked = Some(id).filter(|_| is_open && slack == 0);
        }
    }

    /// A delivery of a destination that is due, was due before now and is not sent. What a job with
    /// a pace replays there goes after it. `None` in a world whose reads take time: the event of
    /// a delivery whose turn has come may be on its way from the store.
    pub(super) fn overdue_at(&self, destination: DestinationId) -> Option<DeliveryId> {
        if self.slack > 0 {
            return None;
        }
        let before = self.now;
        let is_overdue = |owed: &Owed| match owed.stand {
            Stand::Waiting { due, .. } => {
                let since = due.max(self.up_at).max(owed.since).max(owed.landed_at);
                owed.in_flight == 0 && since < before
            }
            Stand::Queued | Stand::Delivered | Stand::Dead | Stand::Cancelled => false,
        };
        let mut overdue = self.open_at(destination).filter(|(_, owed)| is_overdue(owed));
        overdue.next().map(|(id, _)| id)
    }
}
