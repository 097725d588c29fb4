//! Reading events, deliveries, attempts, timelines and counters.

use std::collections::BTreeMap;
use std::ops::Add;

use async_trait::async_trait;
use postrider_domain::attempt::{Attempt, Ending};
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, ObjectId, TenantId};
use postrider_domain::ledger::Ledger;
use postrider_domain::limits::{ATTEMPT_PAGE_BYTES_MAX, PAGE_BYTES_MAX};
use postrider_domain::time::Timestamp;
use postrider_store::{
    DeliveryFilter, EventFilter, EventRecord, History, Page, PageRequest, StoreError, Tally,
    TallyAt,
};

use super::MemoryStore;
use super::paging::{ascending_within, descending, descending_within};
use super::state::{MINUTE_MS, State};

#[async_trait]
impl History for MemoryStore {
    async fn event(
        &self,
        tenant: &TenantId,
        id: &EventId,
    ) -> Result<Option<EventRecord>, StoreError> {
        self.read(|state| {
            let found = state.events.get(&(tenant.clone(), id.clone()));
            Ok(found.map(|event| event.record.clone()))
        })
        .await
    }

    async fn list_events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        self.read(|state| {
            let newest_first = state.events_of.of(tenant).rev();
            let found = newest_first.filter_map(|place| {
                let event = state.events.get(&(tenant.clone(), place.1.clone()))?;
                let record = &event.record;
                let bytes = record.event.data.as_bytes().len()
                    + record.event.old.as_ref().map_or(0, |old| old.as_bytes().len());
                filter.matches(record).then(|| (bytes, (place.clone(), record.clone())))
            });
            descending_within(found, page, PAGE_BYTES_MAX)
        })
        .await
    }

    async fn delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError> {
        self.read(|state| Ok(state.delivery(tenant, id).cloned())).await
    }

    async fn list_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.read(|state| {
            let found = state.matching(tenant, filter);
            descending(found.map(|d| ((d.created_at, d.id), d.clone())), page)
        })
        .await
    }

    async fn deliveries_of_object(
        &self,
        tenant: &TenantId,
        object: &ObjectId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.read(|state| {
            let is_of_object = |delivery: &&Delivery| {
                let event = state.events.get(&(tenant.clone(), delivery.event.clone()));
                event.is_some_and(|event| event.record.event.object.as_ref() == Some(object))
            };
            let found = state.matching(tenant, filter).filter(is_of_object);
            descending(found.map(|d| ((d.created_at, d.id), d.clone())), page)
        })
        .await
    }

    async fn count_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        self.read(|state| Ok(count(state.matching(tenant, filter).count()))).await
    }

    async fn count_replayable(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        self.read(|state| {
            let is_live = |delivery: &&Delivery| {
                let key = (tenant.clone(), delivery.subscription);
                state.subscriptions.get(&key).is_some_and(|record| record.deleted_at.is_none())
            };
            Ok(count(state.matching(tenant, filter).filter(is_live).count()))
        })
        .await
    }

    async fn attempt_page(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
        page: &PageRequest,
    ) -> Result<Page<Attempt>, StoreError> {
        self.read(|state| {
            let log = state.delivery(tenant, delivery).and_then(|d| state.attempts.get(&d.id));
            let log = log.into_iter().flat_map(BTreeMap::values);
            let entries =
                log.map(|attempt| (attempt_bytes(attempt), (attempt.number, attempt.clone())));
            ascending_within(entries, page, ATTEMPT_PAGE_BYTES_MAX)
        })
        .await
    }

    async fn transitions(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        page: &PageRequest,
    ) -> Result<Page<Transition>, StoreError> {
        self.read(|state| {
            let timeline = state.transitions.get(&(tenant.clone(), destination));
            let numbered = (0u64..).zip(timeline.into_iter().flatten().cloned());
            descending(numbered.collect::<Vec<_>>().into_iter().rev(), page)
        })
        .await
    }

    async fn waiting_counts(
        &self,
        tenant: &TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<u64>, StoreError> {
        self.read(|state| {
            let is_theirs =
                |id: &DestinationId| state.destinations.contains_key(&(tenant.clone(), *id));
            let waiting = |id| if is_theirs(id) { count(state.waiting_of.count(id)) } else { 0 };
            Ok(destinations.iter().map(waiting).collect())
        })
        .await
    }

    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError> {
        self.read(|state| {
            let wanted = |id: &TenantId| tenant.is_none_or(|tenant| tenant == id);
            let ledgers = state.ledgers.iter().filter(|(id, _)| wanted(id));
            Ok(ledgers.map(|(_, ledger)| *ledger).fold(Ledger::default(), Ledger::add))
        })
        .await
    }

    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError> {
        self.read(|state| {
            let step = i64::from(step_minutes.max(1));
            let mut spans: BTreeMap<i64, Tally> = BTreeMap::new();
            for ((whose, minute), tally) in &state.tallies {
                let at = Timestamp::from_unix_ms(minute * MINUTE_MS);
                if tenant.is_none_or(|tenant| tenant == whose) && since <= at && at < until {
                    let span = spans.entry(minute.div_euclid(step) * step).or_default();
                    span.accepted += tally.accepted;
                    span.delivered += tally.delivered;
                    span.failed += tally.failed;
                    span.dead += tally.dead;
                }
            }
            let at = |minute| Timestamp::from_unix_ms(minute * MINUTE_MS);
            let spans = spans.into_iter();
            Ok(spans.map(|(minute, tally)| TallyAt { at: at(minute), tally }).collect())
        })
        .await
    }
}

impl State {
    /// The deliveries of a tenant that match a filter, newest first.
    fn matching<'a>(
        &'a self,
        tenant: &'a TenantId,
        filter: &'a DeliveryFilter,
    ) -> impl Iterator<Item = &'a Delivery> {
        let newest_first = self.deliveries_of.of(tenant).rev().map(|(_, id)| *id);
        self.fetch(newest_first).filter(|delivery| filter.matches(delivery))
    }
}

/// The approximate size of an attempt.
fn attempt_bytes(attempt: &Attempt) -> usize {
    let body = match &attempt.ending {
        Ending::Answered(answer) => answer.body.len(),
        Ending::Failed(_) | Ending::OwnFault(_) => 0,
    };
    body + 200
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
