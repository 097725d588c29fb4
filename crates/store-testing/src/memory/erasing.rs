//! Erasing payloads.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_domain::attempt::Ending;
use postrider_domain::ids::{DeliveryId, EventId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{Erasing, EventErasure, StoreError};

use super::MemoryStore;
use super::state::State;

#[async_trait]
impl Erasing for MemoryStore {
    async fn erase_event(
        &self,
        tenant: &TenantId,
        id: &EventId,
        now: Timestamp,
    ) -> Result<EventErasure, StoreError> {
        let key = (tenant.clone(), id.clone());
        self.write(move |state| Ok(state.erase(&key, now))).await
    }

    async fn scrub_erased(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(())).await
    }
}

impl State {
    fn erase(&mut self, key: &(TenantId, EventId), now: Timestamp) -> EventErasure {
        let Some(stored) = self.events.get(key) else { return EventErasure::NotFound };
        let has_ended = |id: &DeliveryId| {
            self.deliveries.get(id).is_none_or(|delivery| delivery.finished_at().is_some())
        };
        if !stored.deliveries.iter().all(has_ended) {
            return EventErasure::Unfinished;
        }
        let mut attempts = 0;
        for delivery in stored.deliveries.clone() {
            let log = self.attempts.get_mut(&delivery).into_iter().flatten();
            for (_, attempt) in log {
                if let Ending::Answered(answer) = &mut attempt.ending
                    && !answer.body.is_empty()
                {
                    answer.body = Bytes::new();
                    attempts += 1;
                }
            }
        }
        let Some(stored) = self.events.get_mut(key) else { return EventErasure::NotFound };
        if stored.record.event.is_erased() {
            return EventErasure::Already { attempts };
        }
        stored.record.event = Arc::new(stored.record.event.erased());
        stored.record.mark = stored.record.mark.erased(now);
        stored.fingerprint = [0; 32];
        EventErasure::Erased { attempts }
    }
}
