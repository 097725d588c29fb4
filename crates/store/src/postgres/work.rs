//! The queues of deliveries.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::{DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use uuid::Uuid;

use super::PostgresStore;
use super::delivery_columns::{OPEN, deliveries};
use super::pool::{Params, Scope};
use super::rows::{self, count, uuid};
use crate::contract::Work;
use crate::error::StoreError;
use crate::records::{Commit, DueMark, ShardLeases, WaitingOrder};

/// A mark as parameters of a comparison; without a mark, values that sort before everything.
fn mark(after: Option<DueMark>) -> (i64, Uuid) {
    match after {
        Some(DueMark { at, delivery }) => (at.as_unix_ms(), uuid(delivery.as_bytes())),
        None => (i64::MIN, Uuid::nil()),
    }
}

fn held(leases: &ShardLeases) -> Vec<i16> {
    leases.shards.iter().map(|(shard, _)| i16::from(shard.0)).collect()
}

impl PostgresStore {
    async fn open(&self, which: &str, params: Params<'_>) -> Result<Vec<Delivery>, StoreError> {
        let sql = format!("SELECT {} FROM postrider.deliveries_open WHERE {which}", *OPEN);
        deliveries(&self.core.vital.query(Scope::All, &sql, params).await?)
    }
}

#[async_trait]
impl Work for PostgresStore {
    async fn queued(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let (at, id) = mark(after);
        let which = "state = 0 AND shard = ANY($1::smallint[]) AND (created_at, id) > ($2, $3) \
                     ORDER BY created_at, id LIMIT $4";
        self.open(which, &[&held(leases), &at, &id, &count(limit)]).await
    }

    async fn queued_of(
        &self,
        destination: DestinationId,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let (at, id) = mark(after);
        let which = "destination = $1 AND state = 0 AND (created_at, id) > ($2, $3) \
                     ORDER BY created_at, id LIMIT $4";
        self.open(which, &[&uuid(destination.as_bytes()), &at, &id, &count(limit)]).await
    }

    async fn due(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let (at, id) = mark(after);
        let which = "state = 1 AND shard = ANY($1::smallint[]) AND (due_at, id) > ($2, $3) \
                     AND due_at <= $4 ORDER BY due_at, id LIMIT $5";
        self.open(which, &[&held(leases), &at, &id, &until.as_unix_ms(), &count(limit)]).await
    }

    async fn waiting_of(
        &self,
        destination: DestinationId,
        order: WaitingOrder,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let which = match order {
            WaitingOrder::ProbeRank => {
                "destination = $1 AND state = 1 ORDER BY last_attempt_at NULLS FIRST, id LIMIT $2"
            }
            WaitingOrder::Oldest => {
                "destination = $1 AND state = 1 ORDER BY created_at, id LIMIT $2"
            }
            WaitingOrder::Due => "destination = $1 AND state = 1 ORDER BY due_at, id LIMIT $2",
        };
        self.open(which, &[&uuid(destination.as_bytes()), &count(limit)]).await
    }

    async fn unfinished_of(
        &self,
        subscription: SubscriptionId,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        // Queued deliveries have no index by subscription: there are few, and they leave the queue
        // soon.
        let id = uuid(subscription.as_bytes());
        let which = "subscription = $1 AND state = 1 LIMIT $2";
        let mut found = self.open(which, &[&id, &count(limit)]).await?;
        if found.len() < limit {
            let which = "subscription = $1 AND state = 0 LIMIT $2";
            let rest = count(limit - found.len());
            found.extend(self.open(which, &[&id, &rest]).await?);
        }
        Ok(found)
    }

    async fn events(
        &self,
        ids: &[(TenantId, EventId)],
    ) -> Result<Vec<Option<Arc<Event>>>, StoreError> {
        let tenants: Vec<&str> = ids.iter().map(|(tenant, _)| tenant.as_str()).collect();
        let events: Vec<&str> = ids.iter().map(|(_, event)| event.as_str()).collect();
        let sql = "SELECT e.* \
                   FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::text[])) \
                       AS wanted (tenant, id) \
                   CROSS JOIN LATERAL (SELECT accepted_at FROM postrider.event_ids AS i \
                       WHERE i.tenant = wanted.tenant AND i.id = wanted.id LIMIT 1) AS i \
                   CROSS JOIN LATERAL (SELECT * FROM postrider.events AS e \
                       WHERE e.tenant = wanted.tenant AND e.accepted_at = i.accepted_at \
                       AND e.id = wanted.id LIMIT 1) AS e";
        let rows = self.core.vital.query(Scope::All, sql, &[&tenants, &events]).await?;
        let mut found: HashMap<(TenantId, EventId), Arc<Event>> = HashMap::new();
        for row in &rows {
            let event = rows::event(row)?.event;
            found.insert((event.tenant.clone(), event.id.clone()), event);
        }
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn settle(&self, leases: &ShardLeases, commit: Commit) -> Result<(), StoreError> {
        super::settle::settle(&self.core, &self.settlements, leases, commit).await
    }
}
