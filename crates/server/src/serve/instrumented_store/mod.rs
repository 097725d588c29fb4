//! A store that passes every call to the real one, and counts and logs what became durable.
//!
//! The log line of each attempt is written here, after its settlement is durable. **Arguments and answers
//! are never changed.**

mod audit;
mod circuit_change;
mod documents;
mod nodes;
mod overview;
mod passes;
mod replays;
mod statistics;
mod summaries;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::attempt::{Attempt, Turn};
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{DeadReason, Delivery, DeliveryState};
use postrider_domain::event::Event;
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ObjectId, SubscriptionId, SubscriptionUid, TenantId,
};
use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Accepted, Commit, Configuration, DeliveryChange, DeliveryFilter, DestinationRecord,
    DueMark, EventFilter, EventRecord, History, IdempotentAnswer, Intake, Key, Page, PageRequest,
    Pruned, ShardLeases, Store, StoreError, SubscriptionPut, SubscriptionRecord, TallyAt, Tenant,
    Upkeep, WaitingOrder, Work,
};
use tokio::time::Instant;

use self::circuit_change::CircuitChange;
use super::alerts::AlertFeed;
use super::attempts::AttemptLines;
use super::cluster::ShardLog;
use super::hosts::Hosts;
use super::metrics::{Endings, Metrics, Standing, class};
use crate::telemetry::AttemptLog;

/// The store with metrics and log lines.
pub(super) struct InstrumentedStore {
    store: Arc<dyn Store>,
    metrics: Metrics,
    log: AttemptLog,
    shard_log: ShardLog,
    alerts: Option<AlertFeed>,
    hosts: Hosts,
}

impl InstrumentedStore {
    pub(super) fn new(
        store: Arc<dyn Store>,
        metrics: Metrics,
        log: AttemptLog,
        alerts: Option<AlertFeed>,
    ) -> InstrumentedStore {
        let (shard_log, hosts) = (ShardLog::default(), Hosts::default());
        InstrumentedStore { store, metrics, log, shard_log, alerts, hosts }
    }
}

/// How many deliveries each event has.
fn owed(batch: &[Acceptance]) -> Vec<u64> {
    batch.iter().map(|one| u64::try_from(one.deliveries.len()).unwrap_or(0)).collect()
}

impl InstrumentedStore {
    fn accepted(&self, answers: &[Accepted], owed: &[u64], began: Instant) {
        if answers.contains(&Accepted::Conflict) {
            return;
        }
        let new = answers.iter().zip(owed).filter(|(one, _)| **one == Accepted::New);
        let (events, deliveries) =
            new.fold((0, 0), |(events, all), (_, owed)| (events + 1, all + owed));
        self.metrics.accepted(events, deliveries, began.elapsed());
        if let Some(alerts) = &self.alerts {
            alerts.full(None);
        }
    }

    fn refused(&self, error: &StoreError) {
        self.metrics.store_failed("accept");
        if let (Some(alerts), StoreError::DiskFull { place }) = (&self.alerts, error) {
            alerts.full(Some(place));
        }
    }
}

/// How a commit ends deliveries, and the dead ones themselves if they are to be told.
fn endings(commit: &Commit, is_told: bool) -> (Endings, Vec<(Delivery, DeadReason)>) {
    let (mut endings, mut dead) = (Endings::default(), Vec::new());
    for DeliveryChange { delivery, attempt, .. } in &commit.deliveries {
        match delivery.state {
            DeliveryState::Delivered { at } => {
                let took = at.since(delivery.created_at);
                endings.delivered.push(took);
                if attempt.as_ref().is_some_and(|attempt| attempt.turn == Turn::First) {
                    endings.at_first.push((delivery.tenant.clone(), took));
                }
            }
            DeliveryState::Dead { reason, .. } => {
                endings.dead.push(reason);
                if is_told {
                    dead.push((delivery.clone(), reason));
                }
            }
            DeliveryState::Queued | DeliveryState::Waiting(_) | DeliveryState::Cancelled { .. } => {
            }
        }
    }
    (endings, dead)
}

#[expect(clippy::disallowed_methods, reason = "measures how long something took, nothing else")]
fn instant() -> Instant {
    Instant::now()
}

#[async_trait]
impl Intake for InstrumentedStore {
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError> {
        let owed = owed(&batch);
        let began = instant();
        let result = self.store.accept(batch).await;
        match &result {
            Ok(answers) => self.accepted(answers, &owed, began),
            Err(error) => self.refused(error),
        }
        result
    }
}

#[async_trait]
impl Work for InstrumentedStore {
    async fn settle(&self, leases: &ShardLeases, commit: Commit) -> Result<(), StoreError> {
        let with_attempt = commit.deliveries.iter().filter_map(|change| change.attempt.as_ref());
        let attempts: Vec<(Turn, &'static str, Duration)> = with_attempt
            .map(|attempt| (attempt.turn, class(&attempt.ending), attempt.timings.total))
            .collect();
        let lines = AttemptLines::of(&commit, &self.log, &self.hosts);
        let circuit_changes: Vec<CircuitChange> = (commit.destinations.iter())
            .map(|change| CircuitChange {
                destination: change.id,
                tenant: change.tenant.clone(),
                state: change.circuit.state_name().into(),
                failures: change.circuit.counters.consecutive_failures,
                transitions: change.transitions.clone(),
            })
            .collect();
        let (endings, dead) = endings(&commit, self.alerts.is_some());
        let began = instant();
        let result = self.store.settle(leases, commit).await;
        if result.is_err() {
            self.metrics.store_failed("settle");
            return result;
        }
        self.metrics.settled(began.elapsed(), attempts.into_iter());
        self.metrics.ended(&endings);
        self.metrics.arrived(instant(), &endings.at_first);
        lines.log(&self.log);
        circuit_changes.iter().for_each(|one| one.report(&self.metrics, self.alerts.as_ref()));
        if let Some(alerts) = &self.alerts {
            dead.iter().for_each(|(delivery, reason)| alerts.died(delivery, *reason));
        }
        result
    }

    async fn queued(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.queued(leases, after, limit).await
    }

    async fn queued_of(
        &self,
        destination: DestinationId,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.queued_of(destination, after, limit).await
    }

    async fn due(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.due(leases, after, until, limit).await
    }

    async fn waiting_of(
        &self,
        destination: DestinationId,
        order: WaitingOrder,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.waiting_of(destination, order, limit).await
    }

    async fn unfinished_of(
        &self,
        subscription: SubscriptionId,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.store.unfinished_of(subscription, limit).await
    }

    async fn events(
        &self,
        ids: &[(TenantId, EventId)],
    ) -> Result<Vec<Option<Arc<Event>>>, StoreError> {
        self.store.events(ids).await
    }
}

#[async_trait]
impl Configuration for InstrumentedStore {
    async fn put_subscription(
        &self,
        record: &SubscriptionRecord,
        destination: &DestinationRecord,
    ) -> Result<SubscriptionPut, StoreError> {
        self.hosts.remember([destination]);
        self.store.put_subscription(record, destination).await
    }

    async fn unused_destinations(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TenantId, DestinationId)>, StoreError> {
        self.store.unused_destinations(now, before, limit).await
    }

    async fn remove_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        before: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.remove_destination(tenant, id, before).await
    }

    async fn held_destinations(
        &self,
        leases: &ShardLeases,
    ) -> Result<Vec<DestinationRecord>, StoreError> {
        let result = self.store.held_destinations(leases).await;
        self.hosts.remember(result.iter().flatten());
        for destination in result.iter().flatten() {
            self.metrics.destination_is(Standing {
                destination: destination.id,
                tenant: destination.tenant.clone(),
                state: destination.state(),
                failures: destination.circuit.counters.consecutive_failures,
            });
        }
        result
    }

    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        self.store.create_tenant(tenant).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>, StoreError> {
        self.store.tenant(id).await
    }

    async fn tenants(&self, page: &PageRequest) -> Result<Page<Tenant>, StoreError> {
        self.store.tenants(page).await
    }

    async fn update_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError> {
        self.store.update_tenant(tenant).await
    }

    async fn delete_tenant(&self, id: &TenantId) -> Result<bool, StoreError> {
        self.store.delete_tenant(id).await
    }

    async fn create_key(&self, key: &Key) -> Result<bool, StoreError> {
        self.store.create_key(key).await
    }

    async fn key(&self, id: &str) -> Result<Option<Key>, StoreError> {
        self.store.key(id).await
    }

    async fn keys(
        &self,
        tenant: Option<&TenantId>,
        page: &PageRequest,
    ) -> Result<Page<Key>, StoreError> {
        self.store.keys(tenant, page).await
    }

    async fn delete_key(&self, tenant: Option<&TenantId>, id: &str) -> Result<bool, StoreError> {
        self.store.delete_key(tenant, id).await
    }

    async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError> {
        self.store.touch_keys(used).await
    }

    async fn subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        self.store.subscription(tenant, id).await
    }

    async fn subscription_by_uid(
        &self,
        tenant: &TenantId,
        uid: &SubscriptionUid,
    ) -> Result<Option<SubscriptionRecord>, StoreError> {
        self.store.subscription_by_uid(tenant, uid).await
    }

    async fn subscriptions(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        self.store.subscriptions(tenant, page).await
    }

    async fn all_subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError> {
        self.store.all_subscriptions().await
    }

    async fn reseal_subscription(
        &self,
        before: &SubscriptionRecord,
        after: &SubscriptionRecord,
    ) -> Result<bool, StoreError> {
        self.store.reseal_subscription(before, after).await
    }

    async fn mark_subscription_deleted(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.store.mark_subscription_deleted(tenant, id, now).await
    }

    async fn remove_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<(), StoreError> {
        self.store.remove_subscription(tenant, id).await
    }

    async fn destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
    ) -> Result<Option<DestinationRecord>, StoreError> {
        let result = self.store.destination(tenant, id).await;
        self.hosts.remember(result.iter().flatten());
        result
    }

    async fn destinations(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        self.store.destinations(tenant, page).await
    }

    async fn idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError> {
        self.store.idempotent_answer(tenant, key).await
    }

    async fn keep_idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        answer: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError> {
        self.store.keep_idempotent_answer(tenant, key, answer, since).await
    }

    async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError> {
        self.store.forget_answers(before, most, bytes_most).await
    }
}

#[async_trait]
impl History for InstrumentedStore {
    async fn event(
        &self,
        tenant: &TenantId,
        id: &EventId,
    ) -> Result<Option<EventRecord>, StoreError> {
        self.store.event(tenant, id).await
    }

    async fn list_events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        self.store.list_events(tenant, filter, page).await
    }

    async fn delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError> {
        self.store.delivery(tenant, id).await
    }

    async fn list_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.store.list_deliveries(tenant, filter, page).await
    }

    async fn deliveries_of_object(
        &self,
        tenant: &TenantId,
        object: &ObjectId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.store.deliveries_of_object(tenant, object, filter, page).await
    }

    async fn count_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        self.store.count_deliveries(tenant, filter).await
    }

    async fn count_replayable(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        self.store.count_replayable(tenant, filter).await
    }

    async fn attempt_page(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
        page: &PageRequest,
    ) -> Result<Page<Attempt>, StoreError> {
        self.store.attempt_page(tenant, delivery, page).await
    }

    async fn transitions(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        page: &PageRequest,
    ) -> Result<Page<Transition>, StoreError> {
        self.store.transitions(tenant, destination, page).await
    }

    async fn waiting_counts(
        &self,
        tenant: &TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<u64>, StoreError> {
        self.store.waiting_counts(tenant, destinations).await
    }

    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError> {
        self.store.ledger(tenant).await
    }

    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError> {
        self.store.tallies(tenant, since, until, step_minutes).await
    }
}

#[async_trait]
impl Upkeep for InstrumentedStore {
    async fn hold_shards(&self) -> Result<ShardLeases, StoreError> {
        let result = self.store.hold_shards().await;
        self.shard_log.tell(self.store.node(), result.as_ref());
        result
    }

    async fn release_shards(&self) -> Result<(), StoreError> {
        self.store.release_shards().await
    }

    async fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError> {
        self.store.prune(before).await
    }

    async fn backup(&self, target: &Path) -> Result<(), StoreError> {
        self.store.backup(target).await
    }

    async fn erase_freed(&self) -> Result<(), StoreError> {
        self.store.erase_freed().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.store.close().await
    }
}
