//! Lists of all tenants together.

use async_trait::async_trait;
use postrider_domain::circuit::CircuitState;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::DestinationId;
use postrider_domain::limits::PAGE_BYTES_MAX;
use postrider_store::{
    DestinationRecord, EventRecord, Key, Overview, Page, PageRequest, Shown, Span, StoreError,
    SubscriptionRecord,
};

use super::MemoryStore;
use super::configuration::newest_first;
use super::paging::descending_within;

#[async_trait]
impl Overview for MemoryStore {
    async fn keys_of_all(&self, page: &PageRequest) -> Result<Page<Key>, StoreError> {
        self.read(|state| {
            let keys = state.keys.values();
            newest_first(keys.map(|key| ((key.created_at, key.id.clone()), key.clone())), page)
        })
        .await
    }

    async fn subscriptions_of_all(
        &self,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        self.read(|state| {
            let all = state.subscriptions.values().filter(|record| record.deleted_at.is_none());
            let place = |r: &SubscriptionRecord| (r.subscription.created_at, r.subscription.id);
            newest_first(all.map(|record| (place(record), record.clone())), page)
        })
        .await
    }

    async fn destinations_of_all(
        &self,
        shown: Shown,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        self.read(|state| {
            let used = state.destinations.iter();
            let used = used.filter(|(key, _)| !state.unused_since.contains_key(key));
            let is_shown = |record: &&DestinationRecord| {
                shown == Shown::All || record.circuit.state != CircuitState::Closed
            };
            let all = used.map(|(_, record)| record).filter(is_shown);
            newest_first(all.map(|one| ((one.created_at, one.id), one.clone())), page)
        })
        .await
    }

    async fn waiting_of_all(&self, destinations: &[DestinationId]) -> Result<Vec<u64>, StoreError> {
        self.read(|state| {
            let count = |id| u64::try_from(state.waiting_of.count(id)).unwrap_or(u64::MAX);
            Ok(destinations.iter().map(count).collect())
        })
        .await
    }

    async fn events_of_all(
        &self,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        self.read(|state| {
            let records = state.events.values().map(|event| &event.record);
            let mut all: Vec<_> = records
                .filter(|record| span.has(record.accepted_at))
                .map(|record| {
                    let event = &record.event;
                    let old = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
                    let bytes = event.data.as_bytes().len() + old;
                    let name = format!("{} {}", event.id, event.tenant);
                    (bytes, ((record.accepted_at, name), record.clone()))
                })
                .collect();
            all.sort_by(|(_, (one, _)), (_, (other, _))| other.cmp(one));
            descending_within(all.into_iter(), page, PAGE_BYTES_MAX)
        })
        .await
    }

    async fn deliveries_of_all(
        &self,
        wanted: Option<StateName>,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.read(|state| {
            let all = state.deliveries.values().filter(|delivery| {
                span.has(delivery.created_at)
                    && wanted.is_none_or(|wanted| delivery.state.name() == wanted)
            });
            newest_first(all.map(|one| ((one.created_at, one.id), one.clone())), page)
        })
        .await
    }
}
