//! Forwards the lists of all tenants to the store. They are not measured.

use async_trait::async_trait;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::DestinationId;
use postrider_store::{
    DestinationRecord, EventRecord, Key, Overview, Page, PageRequest, Shown, Span, StoreError,
    SubscriptionRecord,
};

use super::InstrumentedStore;

#[async_trait]
impl Overview for InstrumentedStore {
    async fn keys_of_all(&self, page: &PageRequest) -> Result<Page<Key>, StoreError> {
        self.store.keys_of_all(page).await
    }

    async fn subscriptions_of_all(
        &self,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        self.store.subscriptions_of_all(page).await
    }

    async fn destinations_of_all(
        &self,
        shown: Shown,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        self.store.destinations_of_all(shown, page).await
    }

    async fn waiting_of_all(&self, destinations: &[DestinationId]) -> Result<Vec<u64>, StoreError> {
        self.store.waiting_of_all(destinations).await
    }

    async fn events_of_all(
        &self,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        self.store.events_of_all(span, page).await
    }

    async fn deliveries_of_all(
        &self,
        state: Option<StateName>,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.store.deliveries_of_all(state, span, page).await
    }
}
