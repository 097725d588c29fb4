//! What is being attempted now, for the API to look at without asking anybody.
//!
//! Fed by what the engine tells. Should so much happen at once that some of it is missed, the count
//! begins anew: it may then show too little for as long as those attempts last, never too much.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_api::engine::InFlight;
use postrider_domain::attempt::Turn;
use postrider_domain::ids::{DeliveryId, TenantId};
use postrider_engine::EngineEvent;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Attempts that are under way. A clone is the same.
#[derive(Clone, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<DeliveryId, Flight>>>);

struct Flight {
    tenant: TenantId,
    turn: Turn,
}

impl Flights {
    /// Follows the engine until it ends.
    pub(super) async fn follow(self, mut events: Receiver<EngineEvent>) {
        loop {
            match events.recv().await {
                Ok(event) => self.note(event),
                Err(RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "too much at once: counting what is in flight anew");
                    self.lock().clear();
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    fn note(&self, event: EngineEvent) {
        match event {
            EngineEvent::Began { tenant, delivery, turn, .. } => {
                self.lock().insert(delivery, Flight { tenant, turn });
            }
            EngineEvent::Attempt { delivery, .. } => {
                self.lock().remove(&delivery.id);
            }
            EngineEvent::HoldChange(change) => {
                // The operator is to be alerted: either way it is worth a look.
                tracing::warn!(?change, "many destinations fail at once: the fault may be ours");
            }
            EngineEvent::Transition { .. }
            | EngineEvent::Dead { .. }
            | EngineEvent::Warning { .. } => {}
        }
    }

    pub(super) fn has(&self, delivery: DeliveryId) -> bool {
        self.lock().contains_key(&delivery)
    }

    /// Those of a tenant, at most so many.
    pub(super) fn of(&self, tenant: &TenantId, limit: usize) -> Vec<DeliveryId> {
        let flights = self.lock();
        let own = flights.iter().filter(|(_, flight)| flight.tenant == *tenant);
        own.map(|(id, _)| *id).take(limit).collect()
    }

    /// How many there are of a tenant, or of all.
    pub(super) fn count(&self, tenant: Option<&TenantId>) -> InFlight {
        let mut count = InFlight::default();
        for flight in self.lock().values() {
            if tenant.is_none_or(|tenant| flight.tenant == *tenant) {
                match flight.turn {
                    Turn::First => count.queued += 1,
                    Turn::Retry(_) | Turn::Probe => count.waiting += 1,
                }
            }
        }
        count
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<DeliveryId, Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use postrider_domain::ids::DestinationId;
    use postrider_domain::time::Timestamp;

    use super::*;

    #[test]
    fn what_began_is_in_flight_for_its_tenant_and_its_lane() {
        let flights = Flights::default();
        let (a, b): (TenantId, TenantId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let id = |n| DeliveryId::new(Timestamp::EPOCH, [n; 10]);
        for (n, tenant, turn) in
            [(1, &a, Turn::First), (2, &a, Turn::Retry(3)), (3, &b, Turn::Probe)]
        {
            let destination = DestinationId::of(tenant, "https://hooks.example.com/");
            let tenant = tenant.clone();
            flights.note(EngineEvent::Began { tenant, delivery: id(n), destination, turn });
        }
        assert_eq!(flights.count(Some(&a)), InFlight { queued: 1, waiting: 1 });
        assert_eq!(flights.count(Some(&b)), InFlight { queued: 0, waiting: 1 });
        assert_eq!(flights.count(None), InFlight { queued: 1, waiting: 2 });
        assert!(flights.has(id(1)) && !flights.has(id(4)));
        assert_eq!(flights.of(&b, 10), [id(3)]);
        assert_eq!(flights.of(&a, 1).len(), 1);
    }
}
