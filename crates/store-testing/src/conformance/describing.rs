//! What describes records (names, metadata, the application's own identifiers), lists by object, and destinations
//! that nothing uses.

use std::collections::BTreeMap;

use postrider_domain::circuit::CircuitState;
use postrider_domain::delivery::StateName;
use postrider_domain::ids::{ObjectId, SubscriptionUid};
use postrider_domain::subscription::{About, Metadata};
use postrider_store::{
    Accepted, Commit, DeliveryFilter, DestinationChange, EventFilter, Page, PageRequest,
    SubscriptionPut, SubscriptionRecord, Tenant, TenantDetails,
};

use super::Ground;
use super::ground::{ALL, numbers};
use crate::samples::{
    acceptance, acme, answered, at, destination, event, refused, subscription, subscription_id,
    tenant, umbrella,
};

fn uid(text: &str) -> SubscriptionUid {
    text.parse().unwrap()
}

fn described(n: u64, to: u64, text: &str) -> SubscriptionRecord {
    let mut record = subscription(&acme(), n, to);
    let pairs = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    record.subscription.about = About {
        name: Some("Orders".to_owned()),
        description: Some("Where the orders go".to_owned()),
        metadata: Metadata::new(pairs).unwrap(),
        uid: Some(uid(text)),
    };
    record
}

async fn put(ground: &Ground, record: &SubscriptionRecord, to: u64) -> SubscriptionPut {
    let place = destination(&record.subscription.tenant, to);
    ground.store.put_subscription(record, &place).await.unwrap()
}

async fn subscription_is_found_by_its_uid_in_its_own_tenant(mut ground: Ground) {
    let record = described(1, 1, "hook-1");
    assert_eq!(put(&ground, &record, 1).await, SubscriptionPut::Stored);
    ground.reopen().await;
    let store = &ground.store;
    let found = store.subscription_by_uid(&acme(), &uid("hook-1")).await.unwrap();
    assert_eq!(found.as_ref(), Some(&record));
    assert_eq!(store.subscription_by_uid(&umbrella(), &uid("hook-1")).await.unwrap(), None);
    assert_eq!(store.subscription_by_uid(&acme(), &uid("hook-2")).await.unwrap(), None);
    let mut theirs = subscription(&umbrella(), 2, 1);
    theirs.subscription.about.uid = Some(uid("hook-1"));
    assert_eq!(put(&ground, &theirs, 1).await, SubscriptionPut::Stored, "each tenant has its own");
}

async fn uid_that_is_taken_is_refused_and_nothing_is_written(ground: Ground) {
    assert_eq!(put(&ground, &described(1, 1, "hook-1"), 1).await, SubscriptionPut::Stored);
    let second = described(2, 2, "hook-1");
    let taken = SubscriptionPut::UidTaken(subscription_id(1));
    assert_eq!(put(&ground, &second, 2).await, taken);
    let store = &ground.store;
    assert_eq!(store.subscription(&acme(), subscription_id(2)).await.unwrap(), None);
    assert_eq!(store.destinations(&acme(), &ALL).await.unwrap().items.len(), 1);
    // A change to a free one gives the first one free.
    assert_eq!(put(&ground, &described(1, 1, "hook-9"), 1).await, SubscriptionPut::Stored);
    assert_eq!(put(&ground, &second, 2).await, SubscriptionPut::Stored);
    assert_eq!(put(&ground, &second, 2).await, SubscriptionPut::Stored, "it may keep its own");
}

async fn uid_of_a_deleted_subscription_is_free_again(ground: Ground) {
    assert_eq!(put(&ground, &described(1, 1, "hook-1"), 1).await, SubscriptionPut::Stored);
    let store = &ground.store;
    assert!(store.mark_subscription_deleted(&acme(), subscription_id(1), at(5)).await.unwrap());
    assert_eq!(store.subscription_by_uid(&acme(), &uid("hook-1")).await.unwrap(), None);
    assert_eq!(put(&ground, &described(2, 2, "hook-1"), 2).await, SubscriptionPut::Stored);
    let found = store.subscription_by_uid(&acme(), &uid("hook-1")).await.unwrap().unwrap();
    assert_eq!(found.subscription.id, subscription_id(2));
}

async fn tenant_is_changed_and_keeps_its_time(mut ground: Ground) {
    let first = Tenant { details: TenantDetails::default(), ..tenant("acme", at(1)) };
    assert!(ground.store.create_tenant(&first).await.unwrap());
    let details = TenantDetails {
        description: Some("the first one".to_owned()),
        metadata: Metadata::new(BTreeMap::from([("plan".to_owned(), "gold".to_owned())])).unwrap(),
        quotas: BTreeMap::from([("subscriptions".to_owned(), 7)]),
        requests_per_second: Some(5),
        events_per_second: None,
    };
    let changed = Tenant { name: None, created_at: at(99), details, ..first.clone() };
    assert!(ground.store.update_tenant(&changed).await.unwrap());
    ground.reopen().await;
    let expected = Tenant { created_at: at(1), ..changed };
    assert_eq!(ground.store.tenant(&acme()).await.unwrap(), Some(expected));
    assert!(ground.store.update_tenant(&first).await.unwrap());
    assert_eq!(ground.store.tenant(&acme()).await.unwrap(), Some(first));
    let nobody = tenant("umbrella", at(1));
    assert!(!ground.store.update_tenant(&nobody).await.unwrap());
    assert_eq!(ground.store.tenant(&umbrella()).await.unwrap(), None);
}

/// Five events of two objects and one of none, with eight deliveries; two events are of the same time.
async fn fill_objects(ground: &Ground) {
    for n in 1..=2 {
        ground.put(&acme(), n, n).await;
    }
    let of = |id: &str, object: Option<&str>| {
        let mut event = event(&acme(), id);
        event.object = object.map(|object| object.parse().unwrap());
        event
    };
    let batch = vec![
        acceptance(of("a", Some("task 1")), at(10), &[(1, 1), (2, 2)]),
        acceptance(of("b", Some("task 2")), at(20), &[(3, 1)]),
        acceptance(of("c", Some("task 1")), at(30), &[(4, 1), (5, 2)]),
        acceptance(of("d", Some("task 1")), at(30), &[(6, 1)]),
        acceptance(of("e", None), at(40), &[(7, 1)]),
        acceptance(of("f", Some("task 1")), at(90_000), &[(8, 1)]),
    ];
    assert_eq!(ground.store.accept(batch).await.unwrap(), [Accepted::New; 6]);
    ground.attempt(4, 1, answered(200), at(31)).await;
    ground.attempt(6, 1, refused(), at(31)).await;
}

fn object(name: &str) -> ObjectId {
    name.parse().unwrap()
}

async fn events_are_listed_by_object(ground: Ground) {
    fill_objects(&ground).await;
    let list = async |whose, filter: &EventFilter, page: &PageRequest| {
        let found = ground.store.list_events(&whose, filter, page).await.unwrap();
        let ids: Vec<String> = found.items.iter().map(|one| one.event.id.to_string()).collect();
        (ids.join(" "), found.next)
    };
    let of = |name: &str| EventFilter { object: Some(object(name)), ..EventFilter::default() };
    assert_eq!(list(acme(), &of("task 1"), &ALL).await, ("f d c a".to_owned(), None));
    assert_eq!(list(acme(), &of("task 2"), &ALL).await.0, "b");
    assert_eq!(list(acme(), &of("task 3"), &ALL).await.0, "");
    assert_eq!(list(umbrella(), &of("task 1"), &ALL).await.0, "");
    let span = EventFilter { since: Some(at(11)), until: Some(at(90_000)), ..of("task 1") };
    assert_eq!(list(acme(), &span, &ALL).await.0, "d c");
    let kind = |kind: &str| EventFilter { kind: Some(kind.parse().unwrap()), ..of("task 1") };
    assert_eq!(list(acme(), &kind("task.updated"), &ALL).await.0, "f d c a");
    assert_eq!(list(acme(), &kind("task.created"), &ALL).await.0, "");
    let (mut walked, mut page) = (Vec::new(), PageRequest { limit: 1, cursor: None });
    loop {
        let (ids, next) = list(acme(), &of("task 1"), &page).await;
        walked.push(ids);
        page.cursor = next;
        if page.cursor.is_none() {
            break;
        }
    }
    assert_eq!(walked, ["f", "d", "c", "a"]);
}

async fn deliveries_are_listed_by_object_whatever_the_limit(ground: Ground) {
    fill_objects(&ground).await;
    let (any, store) = (DeliveryFilter::default(), &ground.store);
    let list = async |name: &str, filter: &DeliveryFilter| {
        let found = store.deliveries_of_object(&acme(), &object(name), filter, &ALL).await;
        numbers(&found.unwrap().items)
    };
    assert_eq!(list("task 1", &any).await, [8, 6, 5, 4, 2, 1]);
    assert_eq!(list("task 2", &any).await, [3]);
    assert_eq!(list("task 3", &any).await, [0; 0]);
    let theirs = store.deliveries_of_object(&umbrella(), &object("task 1"), &any, &ALL).await;
    assert_eq!(theirs.unwrap().items, []);
    let state = |state| DeliveryFilter { state: Some(state), ..DeliveryFilter::default() };
    assert_eq!(list("task 1", &state(StateName::Delivered)).await, [4]);
    assert_eq!(list("task 1", &state(StateName::Waiting)).await, [6]);
    assert_eq!(list("task 1", &state(StateName::Queued)).await, [8, 5, 2, 1]);
    let span = DeliveryFilter { since: Some(at(30)), until: Some(at(90_000)), ..any.clone() };
    assert_eq!(list("task 1", &span).await, [6, 5, 4]);
    let to = Some(subscription_id(2));
    assert_eq!(list("task 1", &DeliveryFilter { subscription: to, ..any.clone() }).await, [5, 2]);
    for limit in 1..8 {
        let (mut walked, mut page) = (Vec::new(), PageRequest { limit, cursor: None });
        loop {
            let found = store.deliveries_of_object(&acme(), &object("task 1"), &any, &page).await;
            let Page { items, next } = found.unwrap();
            walked.extend(numbers(&items));
            page.cursor = next;
            if page.cursor.is_none() {
                break;
            }
        }
        assert_eq!(walked, [8, 6, 5, 4, 2, 1], "{limit} at a time");
    }
}

/// The destinations that are listed, by number.
async fn listed(ground: &Ground) -> Vec<u64> {
    let found = ground.store.destinations(&acme(), &ALL).await.unwrap().items;
    let mut all: Vec<u64> =
        (0..9).filter(|n| found.iter().any(|one| one.id == destination(&acme(), *n).id)).collect();
    all.sort_unstable();
    all
}

async fn freeze(ground: &Ground, to: u64) {
    let mut circuit = ground.destination(to).await.circuit;
    circuit.freeze(None, at(1));
    let id = destination(&acme(), to).id;
    let change = DestinationChange { tenant: acme(), id, circuit, transitions: Vec::new() };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
}

async fn delete(ground: &Ground, n: u64, now: u64) {
    let id = subscription_id(n);
    assert!(ground.store.mark_subscription_deleted(&acme(), id, at(now)).await.unwrap());
    ground.store.remove_subscription(&acme(), id).await.unwrap();
}

async fn destination_that_nothing_uses_leaves_the_list_and_keeps_its_circuit(ground: Ground) {
    for (n, to) in [(1, 1), (2, 1), (3, 2)] {
        ground.put(&acme(), n, to).await;
    }
    freeze(&ground, 1).await;
    delete(&ground, 1, 10).await;
    assert_eq!(listed(&ground).await, [1, 2], "another subscription uses it");
    delete(&ground, 2, 11).await;
    assert_eq!(listed(&ground).await, [2]);
    let hidden = ground.destination(1).await;
    assert!(matches!(hidden.circuit.state, CircuitState::Frozen { .. }), "it is still there");
    ground.put(&acme(), 4, 1).await;
    assert_eq!(listed(&ground).await, [1, 2]);
    assert_eq!(ground.destination(1).await, hidden, "and is frozen when it is used again");
}

async fn destination_with_unfinished_deliveries_stays_in_the_list(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(1), &[(1, 1)]).await;
    // The subscription moves to another URL, and its delivery stays.
    let mut moved = subscription(&acme(), 1, 2);
    moved.subscription.updated_at = at(5);
    assert_eq!(put(&ground, &moved, 2).await, SubscriptionPut::Stored);
    assert_eq!(listed(&ground).await, [1, 2]);
    ground.attempt(1, 1, answered(200), at(6)).await;
    assert_eq!(ground.store.unused_destinations(at(7), at(7), 10).await.unwrap(), []);
    assert_eq!(listed(&ground).await, [2], "it was marked as unused");
    let mut back = subscription(&acme(), 1, 1);
    back.subscription.updated_at = at(8);
    assert_eq!(put(&ground, &back, 1).await, SubscriptionPut::Stored);
    assert_eq!(listed(&ground).await, [1], "a change of the URL marks the one before");
}

async fn destination_is_removed_after_it_was_unused_for_long(mut ground: Ground) {
    for n in 1..=3 {
        ground.put(&acme(), n, n).await;
        freeze(&ground, n).await;
    }
    delete(&ground, 1, 10).await;
    delete(&ground, 2, 20).await;
    let (one, two) = (destination(&acme(), 1).id, destination(&acme(), 2).id);
    let store = &ground.store;
    assert_eq!(store.unused_destinations(at(30), at(10), 10).await.unwrap(), []);
    assert_eq!(store.unused_destinations(at(30), at(11), 10).await.unwrap(), [(acme(), one)]);
    assert!(!store.remove_destination(&acme(), two, at(11)).await.unwrap(), "not for long enough");
    assert!(!store.remove_destination(&umbrella(), one, at(11)).await.unwrap());
    let used = destination(&acme(), 3).id;
    assert!(!store.remove_destination(&acme(), used, at(999)).await.unwrap(), "it is used");
    assert!(store.remove_destination(&acme(), one, at(11)).await.unwrap());
    assert!(!store.remove_destination(&acme(), one, at(11)).await.unwrap());
    ground.reopen().await;
    let store = &ground.store;
    assert_eq!(store.destination(&acme(), one).await.unwrap(), None);
    assert_eq!(store.transitions(&acme(), one, &ALL).await.unwrap().items, []);
    assert_eq!(store.usage(Some(&acme())).await.unwrap().destinations, 2);
    // A circuit that is in memory somewhere is written in vain.
    let circuit = destination(&acme(), 1).circuit;
    let change = DestinationChange { tenant: acme(), id: one, circuit, transitions: Vec::new() };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
    assert_eq!(ground.store.destination(&acme(), one).await.unwrap(), None);
    ground.put(&acme(), 4, 1).await;
    assert_eq!(ground.destination(1).await.circuit, destination(&acme(), 1).circuit);
}

suite! { $ describing, conformance_describing:
    subscription_is_found_by_its_uid_in_its_own_tenant,
    uid_that_is_taken_is_refused_and_nothing_is_written,
    uid_of_a_deleted_subscription_is_free_again,
    tenant_is_changed_and_keeps_its_time,
    events_are_listed_by_object,
    deliveries_are_listed_by_object_whatever_the_limit,
    destination_that_nothing_uses_leaves_the_list_and_keeps_its_circuit,
    destination_with_unfinished_deliveries_stays_in_the_list,
    destination_is_removed_after_it_was_unused_for_long,
}
