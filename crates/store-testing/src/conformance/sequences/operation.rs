//! One operation of a sequence with its parameters, and the answer of a store.

use std::fmt::Debug;

use postrider_domain::ids::{DestinationId, Shard, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Commit, DeliveryFilter, DestinationRecord, DueMark, EventFilter, Key, PageRequest,
    ReplayJob, ShardLeases, Store, StoreError, SubscriptionRecord, Tenant, WaitingOrder,
};

use crate::conformance::dump::{event_line, lines, sorted};

/// An operation.
#[derive(Debug)]
pub(super) enum Operation {
    CreateTenant(Tenant),
    DeleteTenant(TenantId),
    CreateKey(Key),
    DeleteKey(TenantId, String),
    Put(Box<SubscriptionRecord>, Box<DestinationRecord>),
    MarkDeleted(TenantId, SubscriptionId, Timestamp),
    Remove(TenantId, SubscriptionId),
    Accept(Vec<Acceptance>),
    /// A commit, with leases for the shards of one parity only, or for all.
    Settle(Option<u8>, Commit),
    PutReplay(ReplayJob),
    Candidates(ReplayJob, usize),
    Queued(Option<u8>, Option<DueMark>, usize),
    Due(Option<u8>, Option<DueMark>, Timestamp, usize),
    WaitingOf(DestinationId, WaitingOrder, usize),
    UnfinishedOf(SubscriptionId),
    Deliveries(TenantId, DeliveryFilter, usize),
    Events(TenantId, EventFilter, usize),
    Tallies(Option<TenantId>, Timestamp, Timestamp, u32),
    Reopen,
}

/// Runs the operation; returns the answer as lines, sorted where the order is undefined.
pub(super) async fn perform(operation: &Operation, store: &dyn Store) -> Vec<String> {
    match operation {
        Operation::CreateTenant(tenant) => answer(store.create_tenant(tenant).await),
        Operation::DeleteTenant(tenant) => answer(store.delete_tenant(tenant).await),
        Operation::CreateKey(key) => answer(store.create_key(key).await),
        Operation::DeleteKey(tenant, id) => answer(store.delete_key(Some(tenant), id).await),
        Operation::Put(record, destination) => {
            answer(store.put_subscription(record, destination).await)
        }
        Operation::MarkDeleted(tenant, id, now) => {
            answer(store.mark_subscription_deleted(tenant, *id, *now).await)
        }
        Operation::Remove(tenant, id) => answer(store.remove_subscription(tenant, *id).await),
        Operation::Accept(batch) => answer(store.accept(batch.clone()).await),
        Operation::Settle(parity, commit) => {
            let leases = leases(store, *parity).await;
            answer(store.settle(&leases, commit.clone()).await)
        }
        Operation::PutReplay(job) => answer(store.put_replay(job).await),
        Operation::Candidates(job, limit) => {
            lines(store.replay_candidates(job, *limit).await.unwrap())
        }
        Operation::Queued(parity, after, limit) => {
            let leases = leases(store, *parity).await;
            lines(store.queued(&leases, *after, *limit).await.unwrap())
        }
        Operation::Due(parity, after, until, limit) => {
            let leases = leases(store, *parity).await;
            lines(store.due(&leases, *after, *until, *limit).await.unwrap())
        }
        Operation::WaitingOf(destination, order, limit) => {
            lines(store.waiting_of(*destination, *order, *limit).await.unwrap())
        }
        Operation::UnfinishedOf(id) => sorted(store.unfinished_of(*id, 1_000).await.unwrap()),
        Operation::Deliveries(tenant, filter, limit) => {
            walk_deliveries(store, tenant, filter, *limit).await
        }
        Operation::Events(tenant, filter, limit) => {
            walk_events(store, tenant, filter, *limit).await
        }
        Operation::Tallies(tenant, since, until, step) => {
            lines(store.tallies(tenant.as_ref(), *since, *until, *step).await.unwrap())
        }
        Operation::Reopen => Vec::new(),
    }
}

/// The answer, or the kind of error: its text differs between backends.
fn answer<T: Debug>(answer: Result<T, StoreError>) -> Vec<String> {
    vec![match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(StoreError::Fenced { .. }) => "fenced".into(),
        Err(StoreError::Internal(_)) => "internal".into(),
        Err(other) => panic!("the store failed: {other}"),
    }]
}

async fn leases(store: &dyn Store, parity: Option<u8>) -> ShardLeases {
    let mut leases = store.hold_shards().await.unwrap();
    leases.shards.retain(|(Shard(n), _)| parity.is_none_or(|parity| n % 2 == parity));
    leases
}

async fn walk_deliveries(
    store: &dyn Store,
    tenant: &TenantId,
    filter: &DeliveryFilter,
    limit: usize,
) -> Vec<String> {
    let mut out = vec![store.count_deliveries(tenant, filter).await.unwrap().to_string()];
    let mut cursor = None;
    loop {
        let page = PageRequest { limit, cursor };
        let page = store.list_deliveries(tenant, filter, &page).await.unwrap();
        out.push(format!("a page of {}", page.items.len()));
        out.extend(lines(page.items));
        cursor = page.next;
        if cursor.is_none() {
            return out;
        }
    }
}

async fn walk_events(
    store: &dyn Store,
    tenant: &TenantId,
    filter: &EventFilter,
    limit: usize,
) -> Vec<String> {
    let (mut out, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageRequest { limit, cursor };
        let page = store.list_events(tenant, filter, &page).await.unwrap();
        out.push(format!("a page of {}", page.items.len()));
        out.extend(page.items.iter().map(event_line));
        cursor = page.next;
        if cursor.is_none() {
            return out;
        }
    }
}
