//! Summaries of deliveries.

use std::cmp::Reverse;

use async_trait::async_trait;
use postrider_domain::delivery::{DeadReason, Delivery, DeliveryState};
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{
    DeadGroup, DeadLetters, DeadTally, DueCounts, DueTally, StoreError, Summaries,
};

use super::MemoryStore;

#[async_trait]
impl Summaries for MemoryStore {
    async fn due_counts(
        &self,
        tenant: Option<&TenantId>,
        now: Timestamp,
        most: u64,
    ) -> Result<DueCounts, StoreError> {
        self.read(|state| {
            let mut tally = DueTally::new(now, most);
            for one in state.deliveries.values().filter(|one| is_of(tenant, one)) {
                if let DeliveryState::Waiting(slot) = &one.state {
                    tally.add(slot.due_at);
                }
            }
            Ok(tally.done())
        })
        .await
    }

    async fn dead_letters(
        &self,
        tenant: Option<&TenantId>,
        most: usize,
    ) -> Result<DeadLetters, StoreError> {
        self.read(|state| {
            let theirs = state.deliveries.values().filter(|one| is_of(tenant, one));
            let mut dead: Vec<(&Delivery, DeadReason, Timestamp)> = theirs
                .filter_map(|one| match one.state {
                    DeliveryState::Dead { at, reason } => Some((one, reason, at)),
                    DeliveryState::Queued
                    | DeliveryState::Waiting(_)
                    | DeliveryState::Delivered { .. }
                    | DeliveryState::Cancelled { .. } => None,
                })
                .collect();
            dead.sort_by_key(|(one, _, _)| Reverse((one.created_at, one.id)));
            let mut tally = DeadTally::default();
            for (one, reason, at) in dead.iter().take(most) {
                let (tenant, destination) = (one.tenant.clone(), one.destination);
                let (reason, first_at, last_at) = (*reason, *at, *at);
                let group = DeadGroup { tenant, destination, reason, count: 1, first_at, last_at };
                tally.add(group);
            }
            Ok(tally.done(dead.len() <= most))
        })
        .await
    }
}

fn is_of(tenant: Option<&TenantId>, delivery: &Delivery) -> bool {
    tenant.is_none_or(|tenant| delivery.tenant == *tenant)
}
