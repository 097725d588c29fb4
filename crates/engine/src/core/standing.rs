//! What a delivery that is due waits for: asked by `explain`, decides nothing.

use postrider_domain::delivery::Lane;
use postrider_domain::explain::{Standing, Wait};
use postrider_domain::ids::{DeliveryId, DestinationId};

use super::Core;
use super::payloads::flying_bytes;
use super::queue::DestIx;
use super::state::Place;
use super::turns::Share;

impl Core {
    /// What a delivery waits for; `None` where it is not due, or not ours.
    pub(super) fn standing(
        &mut self,
        id: DeliveryId,
        destination: DestinationId,
        lane: Lane,
    ) -> Option<Standing> {
        let ix = self.dest_ix(destination)?;
        match self.entries.get(&id).map(|entry| entry.place) {
            Some(Place::First | Place::Ready { .. }) => {}
            Some(Place::Due | Place::Probe | Place::InFlight(_)) => return None,
            // More is in the store than in memory: what is there comes after what is here.
            None => {
                let ahead = self.dests[ix.get()].queue(lane).len;
                let waits = self.waits(ix, lane, None);
                return Some(Standing { ahead, is_stored: true, waits });
            }
        }
        let is_here = |other: &&DeliveryId| {
            self.entries.get(other).is_some_and(|entry| {
                matches!(
                    (lane, entry.place),
                    (Lane::First, Place::First) | (Lane::Retry, Place::Ready { .. })
                )
            })
        };
        let dest = &self.dests[ix.get()];
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
        let total = self.in_flight.total();
        let max = self.options.in_flight_max;
        let dest = &self.dests[ix.get()];
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
        let (tenant, known) = (dest.tenant, &self.tenants[dest.tenant]);
        let event = here.and_then(|id| self.event_of(id));
        let bytes = here.map_or(0, |_| flying_bytes(event.as_deref()));
        match self.tenant_block(tenant, bytes) {
            _ if !self.has_room(lane) => {
                waits.push(Wait::TotalLimit { in_flight: total, limit: max });
            }
            Some(Share::Attempts { limit }) => {
                waits.push(Wait::TenantLimit { in_flight: known.in_flight, limit });
            }
            Some(Share::Bytes { limit }) => {
                waits.push(Wait::TenantBytes { bytes: known.flying_bytes, limit });
            }
            None => {}
        }
        if waits.is_empty() {
            let (tenants, destinations) = self.turns_ahead(ix, lane);
            waits.push(Wait::Turn { tenants, destinations });
        }
        waits
    }
}
