//! Read-only views of the current state.

use postrider_domain::circuit::Suspension;
use postrider_domain::delivery::{Delivery, Lane};
use postrider_domain::explain::{Standing, Wait};
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_store::DeliveryFilter;

use super::destinations::DestIx;
use super::messages::{DestinationOverlay, Gauges, View};
use super::state::Core;
use super::table::{Position, TenantOverlay};
use super::turns::Share;

impl Core {
    /// Answers a view. The caller may have gone away.
    pub(super) fn view(&mut self, view: View) {
        match view {
            View::Tenant { tenant, reply } => drop(reply.send(self.overlay(tenant.as_ref()))),
            View::InFlightOf { tenant, filter, below, limit, reply } => {
                drop(reply.send(self.in_flight_of(&tenant, &filter, below, limit)));
            }
            View::InFlight { deliveries, reply } => {
                let flags = deliveries.iter().map(|id| self.is_in_flight(*id)).collect();
                drop(reply.send(flags));
            }
            View::Standing { delivery, destination, lane, reply } => {
                drop(reply.send(self.standing(delivery, destination, lane)));
            }
            View::ShardLeases { reply } => drop(reply.send(self.leases())),
            View::Gauges { reply } => drop(reply.send(self.gauges())),
        }
    }

    fn is_in_flight(&self, id: DeliveryId) -> bool {
        self.table.entries.get(&id).is_some_and(
            |entry| matches!(entry.position, Position::InFlight(flight) if flight.account.is_some()),
        )
    }

    /// A tenant's deliveries in flight that match a filter, newest first.
    fn in_flight_of(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        below: Option<DeliveryId>,
        limit: usize,
    ) -> Vec<Delivery> {
        let overlay = self.overlay(Some(tenant));
        let all = usize::try_from(overlay.queued + overlay.waiting).unwrap_or(usize::MAX);
        let entries = self.table.entries.iter();
        let in_flight = entries
            .filter(|(id, entry)| entry.delivery.tenant == *tenant && self.is_in_flight(**id))
            .map(|(_, entry)| &entry.delivery)
            .take(all);
        let is_wanted = |delivery: &&Delivery| {
            below.is_none_or(|below| delivery.id < below) && filter.matches(delivery)
        };
        let mut wanted: Vec<&Delivery> = in_flight.filter(is_wanted).collect();
        wanted.sort_unstable_by_key(|delivery| std::cmp::Reverse(delivery.id));
        wanted.into_iter().take(limit).cloned().collect()
    }

    fn overlay(&self, tenant: Option<&TenantId>) -> TenantOverlay {
        match tenant {
            Some(tenant) => {
                self.table.tenant(tenant).map(|tenant| tenant.overlay).unwrap_or_default()
            }
            None => self.table.tenants.iter().fold(TenantOverlay::default(), |all, tenant| {
                TenantOverlay {
                    queued: all.queued + tenant.overlay.queued,
                    waiting: all.waiting + tenant.overlay.waiting,
                }
            }),
        }
    }

    /// A destination with its current numbers.
    pub(super) fn look(&self, ix: DestIx) -> DestinationOverlay {
        let dest = &self.table.dests[ix.get()];
        let oldest = dest.first.ids.iter().find_map(|id| self.table.entries.get(id));
        DestinationOverlay {
            destination: dest.record.clone(),
            in_flight: dest.in_flight,
            in_flight_limit: dest.limit.get(false),
            queued: dest.first.len,
            ready: dest.retry.len,
            oldest_queued_at: oldest.map(|entry| entry.delivery.created_at),
        }
    }

    /// What a delivery waits for; `None` if it is not due, or this node does not own it.
    fn standing(
        &mut self,
        id: DeliveryId,
        destination: DestinationId,
        lane: Lane,
    ) -> Option<Standing> {
        let ix = self.table.dest_ix(destination)?;
        match self.table.entries.get(&id).map(|entry| entry.position) {
            Some(Position::FirstLane | Position::RetryLane { .. }) => {}
            Some(
                Position::Window | Position::Probe | Position::Placed(_) | Position::InFlight(_),
            ) => return None,
            // The delivery is only in the store, behind all that are in memory.
            None => {
                let ahead = self.table.dests[ix.get()].queue(lane).len;
                let waits = self.waits(ix, lane, None);
                return Some(Standing { ahead, is_stored: true, waits });
            }
        }
        let is_here = |other: &&DeliveryId| {
            self.table.entries.get(other).is_some_and(|entry| {
                matches!(
                    (lane, entry.position),
                    (Lane::First, Position::FirstLane) | (Lane::Retry, Position::RetryLane { .. })
                )
            })
        };
        let dest = &self.table.dests[ix.get()];
        let ids = match lane {
            Lane::First => &dest.first.ids,
            Lane::Retry => &dest.retry.ids,
        };
        let ahead = ids.iter().take_while(|other| **other != id).filter(is_here).count();
        Some(Standing { ahead, is_stored: false, waits: self.waits(ix, lane, Some(id)) })
    }

    fn waits(&mut self, ix: DestIx, lane: Lane, here: Option<DeliveryId>) -> Vec<Wait> {
        let mut waits = Vec::new();
        if self.is_quiet() {
            waits.push(Wait::Pause);
        }
        let total = self.table.in_flight.total();
        let max = self.options.in_flight_max;
        let dest = &self.table.dests[ix.get()];
        let limit = dest.limit.get(total * 2 >= max);
        if dest.in_flight >= limit {
            waits.push(Wait::DestinationLimit { in_flight: dest.in_flight, limit });
        } else if lane == Lane::Retry && dest.retry_in_flight >= limit - limit / 4 {
            let in_flight = dest.retry_in_flight;
            waits.push(Wait::DestinationLimit { in_flight, limit: limit - limit / 4 });
        }
        let now = self.now;
        let mut bucket = dest.bucket;
        if let Some(bucket) = &mut bucket
            && let Some(next_at) = bucket.ready_at(now)
        {
            let per_1000_seconds = bucket.per_1000_seconds();
            waits.push(Wait::Rate { per_1000_seconds, next_at });
        }
        let (tenant, known) = (dest.tenant, &self.table.tenants[dest.tenant]);
        let event = here.and_then(|id| self.event_of(id));
        let bytes = here.map_or(0, |id| self.more_in_flight_bytes(id, event.as_deref()));
        match self.tenant_block(tenant, bytes) {
            _ if !self.has_room(lane) => {
                waits.push(Wait::TotalLimit { in_flight: total, limit: max });
            }
            Some(Share::Attempts { limit }) => {
                waits.push(Wait::TenantLimit { in_flight: known.in_flight, limit });
            }
            Some(Share::Bytes { limit }) => {
                waits.push(Wait::TenantBytes { bytes: known.in_flight_bytes, limit });
            }
            None => {}
        }
        if waits.is_empty() {
            let (tenants, destinations) = self.turns_ahead(ix, lane);
            waits.push(Wait::Turn { tenants, destinations });
        }
        waits
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            destinations: self.table.dest_ids().len(),
            resident: self.table.resident() + self.awaited(),
            in_flight_first: self.table.in_flight.first,
            in_flight_retry: self.table.in_flight.retry,
            queued: self.table.dests.iter().map(|(_, dest)| dest.first.len).sum(),
            ready: self.table.dests.iter().map(|(_, dest)| dest.retry.len).sum(),
            due: self.window.len(),
            alarms: self.alarms.len(),
            unpersisted: self.commits.unpersisted(),
            loads: self.reads.len(),
            payload_bytes: self.payloads.queued_bytes(),
            in_flight_bytes: self.payloads.in_flight_bytes(),
            replays: self.jobs.len(),
            shards: self.shards.leases().shards.len(),
            leased: self.shards.are_leased(),
            filters_over_budget: self.directory.over_budget(),
            suspended: self.suspensions.now() == Suspension::On,
            suspended_since: self.suspensions.since(),
        }
    }
}
