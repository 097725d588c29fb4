//! Reads of what the journal has and SQLite has not yet.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};

use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Circuit;
use postrider_domain::delivery::{CancelReason, Delivery, DeliveryState, StateName};
use postrider_domain::event::Event;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;

use super::{AT, options};
use crate::audit::{Audit, AuditFilter};
use crate::contract::{Configuration, History, Intake, Replays, Upkeep, Usages, Work};
use crate::documents::{DocumentKind, DocumentOrder, Documents};
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::CHANGES_MAX;
use crate::overview::Overview;
use crate::passes::{PassKind, Passes};
use crate::records::{
    Acceptance, Commit, DeliveryChange, DeliveryFilter, DestinationChange, EventFilter,
    EventRecord, PageRequest, ReplayState, SubscriptionPut,
};
use crate::samples;
use crate::statistics::Statistics;

const HOUR_MS: i64 = 3_600_000;

/// Keeps the applier from its work until it is dropped.
struct Stalled {
    _release: mpsc::Sender<()>,
}

async fn stall(store: &Arc<EmbeddedStore>) -> Stalled {
    let (release, released) = mpsc::channel();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let task = store.run_in_applier(move |_| {
            begun.send(()).ok();
            released.recv().ok();
            Ok(())
        });
        task.await
    });
    has_begun.await.unwrap();
    Stalled { _release: release }
}

/// Event `n` of a tenant with two deliveries, `ms` after the first one.
fn acceptance(tenant: &TenantId, n: u64, ms: i64) -> Acceptance {
    let kind = samples::kind(if n.is_multiple_of(3) { "rare" } else { "common" });
    let event = Event { kind, ..samples::event(tenant, &format!("e{n}")) };
    let at = Timestamp::from_unix_ms(AT.as_unix_ms() + ms);
    samples::acceptance(event, at, &[(2 * n, n % 5), (2 * n + 1, 7)])
}

fn delivered(delivery: Delivery) -> Delivery {
    Delivery { state: DeliveryState::Delivered { at: delivery.created_at }, ..delivery }
}

fn cancelled(delivery: Delivery) -> Delivery {
    let now = delivery.created_at;
    delivery.cancelled(CancelReason::Asked, now).unwrap()
}

async fn settle(store: &EmbeddedStore, changed: Vec<Delivery>) {
    let shards = store.hold_shards().await.unwrap();
    let change = |delivery| DeliveryChange {
        before: StateName::Queued,
        by_job: None,
        delivery,
        attempt: None,
    };
    let deliveries = changed.into_iter().map(change).collect();
    store.settle(&shards, Commit { deliveries, ..Commit::default() }).await.unwrap();
}

/// Everything that can be read of the deliveries and events, with pages of several sizes.
async fn everything(store: &EmbeddedStore) -> (Vec<Vec<Delivery>>, Vec<Vec<EventRecord>>) {
    let tenant = samples::acme();
    let any = DeliveryFilter::default;
    let at = |ms| Some(Timestamp::from_unix_ms(AT.as_unix_ms() + ms));
    let mut filters = vec![
        any(),
        DeliveryFilter { event: Some("e3".parse().unwrap()), ..any() },
        DeliveryFilter { event: Some("e14".parse().unwrap()), ..any() },
        DeliveryFilter { kind: Some(samples::kind("rare")), ..any() },
        DeliveryFilter { subscription: Some(samples::subscription_id(7)), ..any() },
        DeliveryFilter { destination: Some(samples::destination(&tenant, 2).id), ..any() },
        DeliveryFilter { since: at(4), until: at(12), ..any() },
    ];
    for state in [StateName::Queued, StateName::Delivered, StateName::Cancelled, StateName::Dead] {
        filters.push(DeliveryFilter { state: Some(state), ..any() });
    }
    let (mut deliveries, mut events) = (Vec::new(), Vec::new());
    for limit in [1, 3, 100] {
        for filter in &filters {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = PageRequest { limit, cursor };
                let found = store.list_deliveries(&tenant, filter, &page).await.unwrap();
                assert!(found.items.iter().all(|delivery| filter.matches(delivery)));
                seen.extend(found.items);
                cursor = found.next;
                if cursor.is_none() {
                    break;
                }
            }
            deliveries.push(seen);
        }
        for kind in [None, Some(samples::kind("rare"))] {
            let filter = EventFilter { kind, ..EventFilter::default() };
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = PageRequest { limit, cursor };
                let found = store.list_events(&tenant, &filter, &page).await.unwrap();
                seen.extend(found.items);
                cursor = found.next;
                if cursor.is_none() {
                    break;
                }
            }
            events.push(seen);
        }
    }
    let mut singly = Vec::new();
    for n in 0..40 {
        singly.extend(store.delivery(&tenant, samples::delivery_id(n)).await.unwrap());
    }
    deliveries.push(singly);
    let mut singly = Vec::new();
    for n in 0..20 {
        singly.extend(store.event(&tenant, &format!("e{n}").parse().unwrap()).await.unwrap());
    }
    events.push(singly);
    (deliveries, events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_applied_is_read_as_if_it_were() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let tenant = samples::acme();
    let old: Vec<_> = (0..8).map(|n| acceptance(&tenant, n, i64::try_from(n).unwrap())).collect();
    store.accept(old.clone()).await.unwrap();
    // Counting waits until they are applied.
    assert_eq!(store.count_deliveries(&tenant, &DeliveryFilter::default()).await.unwrap(), 16);

    let stalled = stall(&store).await;
    // Changes of rows that are there, events of the same day and of one without a file, and those
    // that are accepted and end before anything is applied.
    let new: Vec<_> = (8..14).map(|n| acceptance(&tenant, n, i64::try_from(n).unwrap())).collect();
    let next_day: Vec<_> = (14..16).map(|n| acceptance(&tenant, n, 48 * HOUR_MS)).collect();
    store.accept(new.clone()).await.unwrap();
    store.accept(next_day).await.unwrap();
    store.accept(vec![acceptance(&samples::umbrella(), 17, 3)]).await.unwrap();
    settle(&store, old.iter().take(5).map(|a| delivered(a.deliveries[0].clone())).collect()).await;
    settle(&store, new.iter().take(3).map(|a| cancelled(a.deliveries[1].clone())).collect()).await;

    let unapplied = everything(&store).await;
    assert_eq!(unapplied.0[0].len(), 32);
    assert_eq!(unapplied.1[0].len(), 16);
    drop(stalled);
    assert_eq!(store.count_deliveries(&tenant, &DeliveryFilter::default()).await.unwrap(), 32);
    assert_eq!(unapplied, everything(&store).await);
    store.verify().await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_tenant_with_too_much_unapplied_waits() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let (loud, quiet) = (samples::umbrella(), samples::acme());
    let stalled = stall(&store).await;
    let many = u64::try_from(CHANGES_MAX / 3 + 1).unwrap();
    for n in 0..many {
        store.accept(vec![acceptance(&loud, n, 0)]).await.unwrap();
    }
    store.accept(vec![acceptance(&quiet, many, 0)]).await.unwrap();
    let (filter, page) = (DeliveryFilter::default(), PageRequest { limit: 3, cursor: None });
    let listed = store.list_deliveries(&quiet, &filter, &page).await.unwrap();
    assert_eq!(listed.items.len(), 2);

    let mut waits = pin!(store.list_deliveries(&loud, &filter, &page));
    // Its first try ends on another thread; then it waits for the applier.
    let mut context = Context::from_waker(Waker::noop());
    while store.queue.barriers() == 0 {
        assert!(waits.as_mut().poll(&mut context).is_pending());
        tokio::task::yield_now().await;
    }
    drop(stalled);
    assert_eq!(waits.await.unwrap().items.len(), 3);
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_answered_reads_its_own_write_while_everything_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let tenant = samples::acme();
    let page = PageRequest { limit: 2, cursor: None };
    for n in 0..300 {
        let accepted = acceptance(&tenant, n, i64::try_from(n).unwrap());
        let ended = delivered(accepted.deliveries[0].clone());
        store.accept(vec![accepted.clone()]).await.unwrap();
        let listed = store.list_deliveries(&tenant, &DeliveryFilter::default(), &page).await;
        let listed: Vec<_> = listed.unwrap().items.into_iter().map(|one| one.id).collect();
        let mut newest: Vec<_> = accepted.deliveries.iter().map(|one| one.id).collect();
        newest.sort_unstable_by(|one, other| other.cmp(one));
        assert_eq!(listed, newest, "event {n}");
        settle(&store, vec![ended.clone()]).await;
        assert_eq!(store.delivery(&tenant, ended.id).await.unwrap(), Some(ended));
        if n % 7 == 0 {
            // The applier gets on with its work now and then, at any point of the above.
            store.barrier().await.unwrap();
        }
    }
    store.close().await.unwrap();
}

/// What the operator or the tenant has set up is in SQLite when its change is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_set_up_is_read_while_other_tenants_are_applied() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let tenant = samples::acme();
    store.create_tenant(&samples::tenant("acme", AT)).await.unwrap();
    store.create_key(&samples::key("k", Some(&tenant), AT)).await.unwrap();
    let record = samples::subscription(&tenant, 7, 1);
    store.put_subscription(&record, &samples::destination(&tenant, 1)).await.unwrap();
    store.put_audit(&samples::audit(1, Some(tenant.clone()), "key.create", 201)).await.unwrap();

    let stalled = stall(&store).await;
    store.accept(vec![acceptance(&samples::umbrella(), 1, 0)]).await.unwrap();
    let page = PageRequest { limit: 3, cursor: None };
    let found = store.subscription(&tenant, record.subscription.id).await.unwrap();
    assert_eq!(found.as_ref(), Some(&record));
    let listed = store.subscriptions(&tenant, &page).await.unwrap();
    assert_eq!(listed.items, std::slice::from_ref(&record));
    assert_eq!(store.subscriptions_of_all(&page).await.unwrap().items, [record]);
    let uid = "none".parse().unwrap();
    assert_eq!(store.subscription_by_uid(&tenant, &uid).await.unwrap(), None);
    assert_eq!(store.tenants(&page).await.unwrap().items.len(), 1);
    assert_eq!(store.keys(Some(&tenant), &page).await.unwrap().items.len(), 1);
    assert_eq!(store.keys_of_all(&page).await.unwrap().items.len(), 1);
    assert_eq!(store.audit(&AuditFilter::default(), &page).await.unwrap().items.len(), 1);
    let (kind, order) = (DocumentKind::EventType, DocumentOrder::Ascending);
    let documents = store.documents(kind, Some(&tenant), order, &page).await.unwrap();
    assert_eq!(documents.items.len(), 0);
    let passes = store.passes(&tenant, PassKind::PortalLink, &page).await.unwrap();
    assert_eq!(passes.items.len(), 0);
    assert_eq!(store.queue.barriers(), 0, "none of them waited for the applier");
    drop(stalled);
    store.close().await.unwrap();
}

/// The circuit of the tenant's destination 7, what waits for it, and the attempts of its delivery 1, as text.
async fn state_of_delivery_one(store: &EmbeddedStore, tenant: &TenantId) -> Vec<String> {
    let page = PageRequest { limit: 3, cursor: None };
    let id = samples::destination(tenant, 7).id;
    let delivery = samples::delivery_id(1);
    vec![
        format!("{:?}", store.destination(tenant, id).await.unwrap()),
        format!("{:?}", store.destinations(tenant, &page).await.unwrap().items),
        format!("{:?}", store.attempt_page(tenant, delivery, &page).await.unwrap().items),
        format!("{:?}", store.waiting_counts(tenant, &[id]).await.unwrap()),
        format!("{:?}", store.transitions(tenant, id, &page).await.unwrap().items),
        format!("{:?}", store.replays(tenant, &page).await.unwrap().items),
        format!("{:?}", store.usage(Some(tenant)).await.unwrap()),
    ]
}

/// A tenant's sums and counts, as text.
async fn sums(store: &EmbeddedStore, tenant: &TenantId) -> Vec<String> {
    let page = PageRequest { limit: 9, cursor: None };
    let id = samples::destination(tenant, 7).id;
    let filter = DeliveryFilter::default();
    let until = Timestamp::from_unix_ms(AT.as_unix_ms() + HOUR_MS);
    let object = "task 1".parse().unwrap();
    let of_object = store.deliveries_of_object(tenant, &object, &filter, &page).await.unwrap();
    vec![
        format!("{:?}", of_object.items),
        format!("{:?}", store.count_deliveries(tenant, &filter).await.unwrap()),
        format!("{:?}", store.count_replayable(tenant, &filter).await.unwrap()),
        format!("{:?}", store.ledger(Some(tenant)).await.unwrap()),
        format!("{:?}", store.tallies(Some(tenant), AT, until, 1).await.unwrap()),
        format!("{:?}", store.attempt_sums(Some(tenant), &[id], [AT, AT]).await.unwrap()),
        format!("{:?}", store.attempt_hours(tenant, id, AT).await.unwrap()),
    ]
}

/// Delivers delivery 1 at its first attempt, which the circuit notes.
fn delivered_at_once(tenant: &TenantId) -> Commit {
    let queued = acceptance(tenant, 0, 0).deliveries.remove(1);
    let first = samples::every_attempt().into_iter().find(|attempt| attempt.number == 1);
    let attempt = Attempt { started_at: AT, ending: samples::answered(204), ..first.unwrap() };
    let before = samples::destination(tenant, 7);
    let circuit = Circuit { ever_succeeded: true, last_success_at: AT, ..before.circuit };
    let (id, transitions) = (before.id, Vec::new());
    Commit {
        deliveries: vec![DeliveryChange {
            before: StateName::Queued,
            by_job: None,
            delivery: delivered(queued),
            attempt: Some(attempt),
        }],
        destinations: vec![DestinationChange { tenant: tenant.clone(), id, circuit, transitions }],
        ..Commit::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_and_destinations_of_one_tenant_are_read_while_another_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let tenant = samples::acme();
    let record = samples::subscription(&tenant, 7, 7);
    store.put_subscription(&record, &samples::destination(&tenant, 7)).await.unwrap();
    let job = samples::replay(&tenant, 1, AT);
    store.put_replay(&job).await.unwrap();
    let answer = samples::answer(1, AT);
    store.keep_idempotent_answer(&tenant, "once", &answer, AT).await.unwrap();
    store.accept(vec![acceptance(&tenant, 0, 0)]).await.unwrap();
    store.barrier().await.unwrap();

    let stalled = stall(&store).await;
    let many = u64::try_from(CHANGES_MAX).unwrap();
    for n in 1..many {
        store.accept(vec![acceptance(&samples::umbrella(), n, 0)]).await.unwrap();
    }
    assert_eq!(sums(&store, &tenant).await[1], "2");
    assert_eq!(store.idempotent_answer(&tenant, "once").await.unwrap(), Some(answer));
    assert_eq!(store.replay(&tenant, job.id).await.unwrap(), Some(job.clone()));
    assert_eq!(store.running_replays().await.unwrap(), [job]);
    let events = DocumentKind::EventType;
    assert_eq!(store.count_documents(events, Some(&tenant)).await.unwrap().count, 0);
    let before = state_of_delivery_one(&store, &tenant).await;
    assert_eq!(before[2], "[]", "no attempt yet");

    // The tenant reads its own write, also when it is not applied.
    let shards = store.hold_shards().await.unwrap();
    store.settle(&shards, delivered_at_once(&tenant)).await.unwrap();
    let after = state_of_delivery_one(&store, &tenant).await;
    for changed in 0..3 {
        assert_ne!(before[changed], after[changed]);
    }
    assert_eq!(before[3..], after[3..]);
    assert_eq!(store.queue.barriers(), 0, "none of them waited for the applier");

    // A sum waits once something of the tenant is not applied: it would be wrong otherwise.
    let mut waits = pin!(store.ledger(Some(&tenant)));
    let mut context = Context::from_waker(Waker::noop());
    while store.queue.barriers() == 0 {
        assert!(waits.as_mut().poll(&mut context).is_pending());
        tokio::task::yield_now().await;
    }
    drop(stalled);
    let ledger = waits.await.unwrap();
    assert_eq!((ledger.accepted, ledger.delivered), (2, 1));
    store.barrier().await.unwrap();
    assert_eq!(state_of_delivery_one(&store, &tenant).await, after);
    store.verify().await.unwrap();
    store.close().await.unwrap();
}

/// A progress that is not applied is waited for, so that nobody sees a job as running after it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_that_advanced_is_read_as_it_is_now() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let tenant = samples::acme();
    let job = samples::replay(&tenant, 1, AT);
    store.put_replay(&job).await.unwrap();
    let shards = store.hold_shards().await.unwrap();
    let mut ended = job.clone();
    (ended.state, ended.finished_at) = (ReplayState::Finished, Some(AT));
    for read in 0..3 {
        store.put_replay(&job).await.unwrap();
        let commit = Commit { replay: Some(ended.clone()), ..Commit::default() };
        store.settle(&shards, commit).await.unwrap();
        match read {
            0 => assert_eq!(store.running_replays().await.unwrap(), []),
            1 => assert_eq!(store.usage(Some(&tenant)).await.unwrap().replays_running, 0),
            _ => assert_eq!(store.replay(&tenant, job.id).await.unwrap(), Some(ended.clone())),
        }
    }
    store.close().await.unwrap();
}

/// A change that depends on no record is made while the records of another tenant wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_subscription_does_not_wait_for_the_records_of_another_tenant() {
    let directory = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(directory.path(), options()).unwrap();
    let tenant = samples::acme();
    let stalled = stall(&store).await;
    store.accept(vec![acceptance(&samples::umbrella(), 1, 0)]).await.unwrap();
    let record = samples::subscription(&tenant, 7, 7);
    let (entry, key) = (
        samples::audit(1, Some(tenant.clone()), "key.create", 201),
        samples::key("k", Some(&tenant), AT),
    );
    let answer = samples::answer(1, AT);
    let place = samples::destination(&tenant, 7);
    let changes = async {
        tokio::join!(
            store.put_subscription(&record, &place),
            store.put_audit(&entry),
            store.create_key(&key),
            store.keep_idempotent_answer(&tenant, "once", &answer, AT),
        )
    };
    let mut changes = pin!(changes);
    let mut context = Context::from_waker(Waker::noop());
    assert!(changes.as_mut().poll(&mut context).is_pending());
    assert_eq!(store.queue.waiting_first(), 4, "all of them are before the records");
    drop(stalled);
    let (put, audit, key, kept) = changes.await;
    assert_eq!(put.unwrap(), SubscriptionPut::Stored);
    audit.unwrap();
    assert!(key.unwrap());
    assert_eq!(kept.unwrap(), answer);
    // A change of its URL decides whether the old destination is unused, so it waits.
    let moved = samples::subscription(&tenant, 7, 8);
    let to = samples::destination(&tenant, 8);
    assert_eq!(store.put_subscription(&moved, &to).await.unwrap(), SubscriptionPut::Stored);
    let found = store.subscription(&tenant, record.subscription.id).await.unwrap();
    assert_eq!(found, Some(moved));
    store.verify().await.unwrap();
    store.close().await.unwrap();
}
