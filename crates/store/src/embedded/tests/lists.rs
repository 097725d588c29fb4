//! Lists among many routes, and reads that compete with each other.

use std::sync::Arc;

use postrider_domain::delivery::{CancelReason, Delivery, StateName};
use postrider_domain::event::Event;
use postrider_domain::time::Timestamp;
use rusqlite::Connection;

use super::{AT, options};
use crate::contract::{Configuration, History, Intake, Upkeep, Work};
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Needs;
use crate::embedded::files::At;
use crate::embedded::files::{read_pool, schema};
use crate::error::StoreError;
use crate::records::{Commit, DeliveryChange, DeliveryFilter, PageRequest};
use crate::samples;

const SUBSCRIPTIONS: u64 = 90;
const DELIVERIES: u64 = 3_000;

fn state_of(n: u64) -> StateName {
    match n % 100 {
        0 => StateName::Cancelled,
        50 => StateName::Queued,
        _ => StateName::Delivered,
    }
}

/// Many deliveries of 90 subscriptions and three types, almost all delivered.
async fn fill(store: &EmbeddedStore) {
    let tenant = samples::acme();
    let mut changes = Vec::new();
    for first in (0..DELIVERIES).step_by(100) {
        let batch = (first..first + 100).map(|n| {
            let kind = samples::kind(match n {
                n if n % 500 == 7 => "rare",
                n if n % 2 == 0 => "b",
                _ => "a",
            });
            let event = Event { kind, ..samples::event(&tenant, &format!("e{n}")) };
            let at = Timestamp::from_unix_ms(AT.as_unix_ms() + i64::try_from(n / 3).unwrap());
            samples::acceptance(event, at, &[(n, n % SUBSCRIPTIONS)])
        });
        let batch: Vec<_> = batch.collect();
        for (n, accepted) in (first..).zip(&batch) {
            let delivery = accepted.deliveries[0].clone();
            let now = delivery.created_at;
            let after: Delivery = match state_of(n) {
                StateName::Cancelled => delivery.cancelled(CancelReason::Asked, now).unwrap(),
                StateName::Delivered => Delivery {
                    state: postrider_domain::delivery::DeliveryState::Delivered { at: now },
                    ..delivery
                },
                StateName::Queued | StateName::InFlight | StateName::Waiting | StateName::Dead => {
                    continue;
                }
            };
            let before = StateName::Queued;
            changes.push(DeliveryChange { before, by_job: None, delivery: after, attempt: None });
        }
        store.accept(batch).await.unwrap();
    }
    let leases = store.hold_shards().await.unwrap();
    let commit = Commit { deliveries: changes, ..Commit::default() };
    store.settle(&leases, commit).await.unwrap();
}

fn filters() -> Vec<DeliveryFilter> {
    let any = DeliveryFilter::default;
    let states = [
        None,
        Some(StateName::Delivered),
        Some(StateName::Cancelled),
        Some(StateName::Queued),
        Some(StateName::Dead),
    ];
    let tenant = samples::acme();
    let mut all = Vec::new();
    for state in states {
        for kind in [None, Some("a"), Some("rare"), Some("none")] {
            for n in [None, Some(7), Some(9)] {
                let kind = kind.map(samples::kind);
                let subscription = n.map(samples::subscription_id);
                let destination = n.map(|n| samples::destination(&tenant, n).id);
                all.push(DeliveryFilter { state, kind: kind.clone(), subscription, ..any() });
                all.push(DeliveryFilter { state, kind, destination, ..any() });
            }
        }
        let since = Some(Timestamp::from_unix_ms(AT.as_unix_ms() + 100));
        let until = Some(Timestamp::from_unix_ms(AT.as_unix_ms() + 300));
        let kind = Some(samples::kind("b"));
        all.push(DeliveryFilter { state, kind, since, until, ..any() });
    }
    all
}

async fn walk(store: &EmbeddedStore, filter: &DeliveryFilter, limit: usize) -> Vec<Delivery> {
    let (mut seen, mut cursor) = (Vec::new(), None);
    loop {
        let page = PageRequest { limit, cursor };
        let found = store.list_deliveries(&samples::acme(), filter, &page).await.unwrap();
        seen.extend(found.items);
        cursor = found.next;
        if cursor.is_none() {
            return seen;
        }
    }
}

/// Checks that every filter lists exactly the matching entries of the full list, in the same order.
async fn check_filters(store: &EmbeddedStore) {
    let all = walk(store, &DeliveryFilter::default(), 1_000).await;
    assert_eq!(all.len(), usize::try_from(DELIVERIES).unwrap());
    for filter in filters() {
        let expected: Vec<&Delivery> = all.iter().filter(|d| filter.matches(d)).collect();
        let found = walk(store, &filter, 300).await;
        assert!(found.iter().eq(expected.iter().copied()), "{filter:?}");
        let count = store.count_deliveries(&samples::acme(), &filter).await.unwrap();
        assert_eq!(usize::try_from(count).unwrap(), expected.len(), "{filter:?}");
    }
}

#[tokio::test]
async fn every_filter_lists_the_same_among_many_routes() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    fill(&store).await;
    check_filters(&store).await;
    store.verify().await.unwrap();
    store.close().await.unwrap();
    // The same in a file of an earlier version: before and after its migration.
    drop(store);
    let day = std::fs::read_dir(directory.path().join("history")).unwrap();
    let day = day.map(|entry| entry.unwrap().path()).find(|path| path.extension().unwrap() == "db");
    let connection = Connection::open(day.unwrap()).unwrap();
    let older = "DROP INDEX events_of_object; DROP INDEX deliveries_of_route;
        CREATE INDEX deliveries_by_route ON deliveries (route); PRAGMA user_version = 1;";
    connection.execute_batch(older).unwrap();
    drop(connection);
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    check_filters(&store).await;
    store
        .accept(vec![samples::acceptance(samples::event(&samples::umbrella(), "late"), AT, &[])])
        .await
        .unwrap();
    check_filters(&store).await;
    store.verify().await.unwrap();
    store.close().await.unwrap();
}

#[test]
fn ranges_of_a_route_and_a_state_are_read_from_their_index_alone() {
    let mut connection = Connection::open_in_memory().unwrap();
    schema::migrate(&mut connection, std::path::Path::new("day.db"), schema::DAY).unwrap();
    for select in ["n", "count(*)"] {
        let plan = format!(
            "EXPLAIN QUERY PLAN SELECT {select} FROM deliveries INDEXED BY deliveries_of_route
            WHERE route = 1 AND state = 2 AND n BETWEEN 3 AND 4"
        );
        let plan: String = connection.query_row(&plan, [], |row| row.get(3)).unwrap();
        let expected = "COVERING INDEX deliveries_of_route \
            (route=? AND state=? AND rowid>? AND rowid<?)";
        assert!(plan.contains(expected), "{plan}");
    }
}

/// Starts a read that never ends by itself; signals when it has begun.
async fn endless(
    store: Arc<EmbeddedStore>,
    name: &str,
    begun: tokio::sync::mpsc::UnboundedSender<()>,
) -> Result<i64, StoreError> {
    let tenant = name.parse().unwrap();
    let read = store.read_list(&tenant, Needs::Everything, move |guard| {
        guard.main(|connection, path| {
            begun.send(()).unwrap();
            let count = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                SELECT max(i) FROM n";
            connection.query_row(count, [], |row| row.get::<_, i64>(0)).at(path)
        })
    });
    read.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_never_end_delay_no_key_no_delivery_and_no_other_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let key = samples::key("k1", Some(&samples::umbrella()), AT);
    assert!(store.create_key(&key).await.unwrap());
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let readers: Vec<_> =
        (0..40).map(|_| tokio::spawn(endless(Arc::clone(&store), "loud", begun.clone()))).collect();
    has_begun.recv().await.unwrap();
    has_begun.recv().await.unwrap();
    assert_eq!(store.key("k1").await.unwrap(), Some(key));
    let umbrella = samples::umbrella();
    assert_eq!(store.delivery(&umbrella, samples::delivery_id(1)).await.unwrap(), None);
    let page = PageRequest { limit: 10, cursor: None };
    let filter = DeliveryFilter::default();
    let listed = store.list_deliveries(&umbrella, &filter, &page).await.unwrap();
    assert_eq!(listed.items, []);
    assert!(has_begun.try_recv().is_err(), "the loud tenant has no third place");
    // When the readers go away, their reads end and the tenant's next read is answered.
    readers.iter().for_each(tokio::task::JoinHandle::abort);
    let loud = "loud".parse().unwrap();
    store.list_deliveries(&loud, &filter, &page).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_is_refused_as_busy_when_the_queue_of_its_tenant_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let (begun, _has_begun) = tokio::sync::mpsc::unbounded_channel();
    // Two reads run, the queue is full, and all others are refused, in whatever order they come.
    let (reading, refused) = (read_pool::LISTS_MAX / 2, 40);
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..reading + read_pool::LISTS_QUEUE_MAX + refused {
        readers.spawn(endless(Arc::clone(&store), "loud", begun.clone()));
    }
    for _ in 0..refused {
        let answer = readers.join_next().await.unwrap().unwrap();
        assert!(matches!(answer, Err(StoreError::Busy)), "{answer:?}");
    }
    let (loud, page) = ("loud".parse().unwrap(), PageRequest { limit: 10, cursor: None });
    let answer = store.list_deliveries(&loud, &DeliveryFilter::default(), &page).await;
    assert!(matches!(answer, Err(StoreError::Busy)), "{answer:?}");
    readers.abort_all();
    store.close().await.unwrap();
}
