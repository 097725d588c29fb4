//! Dumps everything that a store shows as lines: two stores with equal lines have the same
//! contents.

use std::fmt::Debug;

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Cursor, DeliveryFilter, EventFilter, EventRecord, PageRequest, Store, WaitingOrder,
};

use super::ground::ALL;

/// An event in full: its `Debug` output leaves the payload out.
pub(super) fn event_line(record: &EventRecord) -> String {
    let text = |json: &postrider_domain::event::RawJson| {
        String::from_utf8_lossy(json.as_bytes()).into_owned()
    };
    format!("{record:?} {:?} {:?}", text(&record.event.data), record.event.old.as_ref().map(text))
}

/// The sorted `Debug` lines of items that come in any order.
pub(super) fn sorted<T: Debug>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    let mut lines = lines(items);
    lines.sort();
    lines
}

pub(super) fn lines<T: Debug>(items: impl IntoIterator<Item = T>) -> Vec<String> {
    items.into_iter().map(|item| format!("{item:?}")).collect()
}

fn next(cursor: Option<Cursor>) -> Option<PageRequest> {
    cursor.map(|cursor| PageRequest { limit: ALL.limit, cursor: Some(cursor) })
}

/// Dumps everything about one tenant, with tallies from `since` on.
async fn dump_tenant(store: &dyn Store, tenant: &TenantId, since: Timestamp) -> Vec<String> {
    let mut out = lines(store.tenant(tenant).await.unwrap());
    out.extend(lines(store.keys(Some(tenant), &ALL).await.unwrap().items));
    out.extend(lines(store.subscriptions(tenant, &ALL).await.unwrap().items));
    let destinations = store.destinations(tenant, &ALL).await.unwrap().items;
    for destination in &destinations {
        out.push(format!("{destination:?}"));
        let id = destination.id;
        out.extend(lines(store.transitions(tenant, id, &ALL).await.unwrap().items));
        out.extend(lines(store.queued_of(id, None, 1_000).await.unwrap()));
        for order in [WaitingOrder::ProbeRank, WaitingOrder::Oldest, WaitingOrder::Due] {
            out.extend(lines(store.waiting_of(id, order, 1_000).await.unwrap()));
        }
    }
    let ids: Vec<_> = destinations.iter().map(|destination| destination.id).collect();
    out.extend(lines(store.waiting_counts(tenant, &ids).await.unwrap()));
    let sums = store.attempt_sums(Some(tenant), &ids, [since, Timestamp::EPOCH]).await;
    out.extend(lines(sums.unwrap()));
    let mut page = Some(ALL);
    while let Some(request) = page {
        let found = store.list_events(tenant, &EventFilter::default(), &request).await.unwrap();
        out.extend(found.items.iter().map(event_line));
        page = next(found.next);
    }
    let mut page = Some(ALL);
    while let Some(request) = page {
        let filter = DeliveryFilter::default();
        let found = store.list_deliveries(tenant, &filter, &request).await.unwrap();
        for delivery in found.items {
            out.extend(lines(store.attempts(tenant, delivery.id).await.unwrap()));
            out.push(format!("{delivery:?}"));
        }
        page = next(found.next);
    }
    out.push(format!("{:?}", store.ledger(Some(tenant)).await.unwrap()));
    out.extend(lines(store.tallies(Some(tenant), since, Timestamp::MAX, 1).await.unwrap()));
    out.extend(lines(store.replays(tenant, &ALL).await.unwrap().items));
    out
}

/// Dumps everything about these tenants and about all of them together, with tallies from `since`
/// on.
pub(super) async fn dump(store: &dyn Store, tenants: &[TenantId], since: Timestamp) -> Vec<String> {
    let mut out = lines(store.tenants(&ALL).await.unwrap().items);
    out.extend(lines(store.keys(None, &ALL).await.unwrap().items));
    for tenant in tenants {
        out.extend(dump_tenant(store, tenant, since).await);
    }
    let leases = store.hold_shards().await.unwrap();
    out.extend(sorted(store.all_subscriptions().await.unwrap()));
    out.extend(sorted(store.held_destinations(&leases).await.unwrap()));
    out.extend(sorted(store.running_replays().await.unwrap()));
    out.extend(lines(store.queued(&leases, None, 1_000).await.unwrap()));
    out.extend(lines(store.due(&leases, None, Timestamp::MAX, 1_000).await.unwrap()));
    out.push(format!("{:?}", store.ledger(None).await.unwrap()));
    out
}
