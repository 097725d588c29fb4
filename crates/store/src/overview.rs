//! The operator's view: records of all tenants together, newest first.
//!
//! **Nothing here can change anything.** A page costs its entries, and for events and deliveries some
//! steps for each tenant that had any on the days that are read, not the size of the store. These methods go
//! through the queue of administrators' reads: no tenant's read waits for them.

use async_trait::async_trait;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::DestinationId;
use postrider_domain::time::Timestamp;

use crate::error::StoreError;
use crate::records::{DestinationRecord, EventRecord, Key, Page, PageRequest, SubscriptionRecord};

/// Which destinations of all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Those that are not marked as unused.
    All,
    /// Of these, the ones that are disabled or frozen.
    Failing,
}

/// A span of time; an end that is not given is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// At this time or later.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

impl Span {
    /// Whether a time is in the span.
    pub fn has(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at < until)
    }
}

/// Lists across all tenants.
#[async_trait]
pub trait Overview: Send + Sync + 'static {
    /// All keys, admin keys included.
    async fn keys_of_all(&self, page: &PageRequest) -> Result<Page<Key>, StoreError>;
    /// All subscriptions, deleted ones excluded.
    async fn subscriptions_of_all(
        &self,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError>;
    /// The destinations of all tenants.
    async fn destinations_of_all(
        &self,
        shown: Shown,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError>;
    /// How many deliveries are waiting (not queued) at each of these destinations of any tenant, in the order given.
    async fn waiting_of_all(&self, destinations: &[DestinationId]) -> Result<Vec<u64>, StoreError>;
    /// The events of all tenants that were accepted in a span of time. Two tenants may have an event with the same
    /// identifier at the same time: then the order is by tenant, descending too.
    async fn events_of_all(
        &self,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError>;
    /// The deliveries of all tenants that were accepted in a span of time, in one state or in any. `InFlight`
    /// selects nothing: a store does not know which are in flight.
    async fn deliveries_of_all(
        &self,
        state: Option<StateName>,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError>;
}
