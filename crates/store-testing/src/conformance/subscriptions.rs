//! Subscriptions, their twins and their destinations.

use postrider_domain::attempt::Verdict;
use postrider_domain::circuit::{Circuit, Suspension};
use postrider_domain::delivery::CancelReason;
use postrider_domain::filter::Filter;
use postrider_domain::ids::{SHARDS, Shard, SubscriptionId, TenantId};
use postrider_domain::payload::Format;
use postrider_domain::policy::CircuitPolicy;
use postrider_domain::subscription::{CustomHeader, RateLimit};
use postrider_domain::workfront;
use postrider_store::{
    Commit, DestinationChange, ShardLeases, SubscriptionPut, SubscriptionRecord,
};

use super::Ground;
use super::ground::ALL;
use crate::samples::{acme, at, delivery_id, destination, subscription, subscription_id, umbrella};

/// A subscription with every optional field set.
fn elaborate(tenant: &TenantId, n: u64, to: u64) -> SubscriptionRecord {
    let mut record = subscription(tenant, n, to);
    let filter = serde_json::json!({"any": [
        {"field": "data.größe", "op": "gt", "value": 1.50},
        {"all": [{"field": "old", "op": "exists", "value": false}]},
    ]});
    let subscription = &mut record.subscription;
    subscription.filter = Some(Filter::compile(&filter).unwrap());
    subscription.object = Some("Ding 'eins' \"zwei\"".parse().unwrap());
    subscription.format = Format::Workfront;
    subscription.workfront = Some(Box::new(workfront::WorkfrontOptions {
        version: workfront::Version::V1,
        base64: true,
        version_changed_at: Some(at(98)),
        both_sent: vec![workfront::BothSent { from: at(7), until: at(9) }],
        filters: Some(serde_json::json!([{"fieldName": "größe", "fieldValue": 1.5}])),
        connector: Some(workfront::filters::Connector::Or),
    }));
    subscription.headers = vec![CustomHeader::new("x-team", "blue; \"deep\"").unwrap()];
    subscription.rate_limit = Some(RateLimit::per_second(0.125).unwrap());
    subscription.enabled = false;
    subscription.updated_at = at(99);
    record.credentials = (0..=u8::MAX).collect();
    record
}

async fn ids(ground: &Ground, tenant: &TenantId) -> Vec<SubscriptionId> {
    let page = ground.store.subscriptions(tenant, &ALL).await.unwrap();
    page.items.iter().map(|record| record.subscription.id).collect()
}

async fn put(ground: &Ground, record: &SubscriptionRecord, to: u64) -> SubscriptionPut {
    let destination = destination(&record.subscription.tenant, to);
    ground.store.put_subscription(record, &destination).await.unwrap()
}

async fn a_subscription_is_read_back_as_it_was(mut ground: Ground) {
    let mut bare = subscription(&acme(), 2, 1);
    bare.credentials = Vec::new();
    bare.subscription.format = Format::Raw;
    for record in [elaborate(&acme(), 1, 1), bare] {
        assert_eq!(put(&ground, &record, 1).await, SubscriptionPut::Stored);
        ground.reopen().await;
        let found = ground.store.subscription(&acme(), record.subscription.id).await.unwrap();
        assert_eq!(found.as_ref(), Some(&record));
        let all = ground.store.all_subscriptions().await.unwrap();
        assert!(all.contains(&record));
    }
}

async fn a_subscription_that_is_put_again_is_replaced(ground: Ground) {
    let first = ground.put(&acme(), 1, 1).await;
    let mut second = elaborate(&acme(), 1, 2);
    second.subscription.created_at = first.subscription.created_at;
    assert_eq!(put(&ground, &second, 2).await, SubscriptionPut::Stored);
    let found = ground.store.subscription(&acme(), subscription_id(1)).await.unwrap();
    assert_eq!(found, Some(second));
    assert_eq!(ids(&ground, &acme()).await, [subscription_id(1)]);
    assert_eq!(ground.store.all_subscriptions().await.unwrap().len(), 1);
}

async fn a_record_is_resealed_only_where_it_is_still_the_one_that_was_read(ground: Ground) {
    let first = ground.put(&acme(), 1, 1).await;
    let mut sealed = first.clone();
    sealed.credentials = vec![7, 7];
    assert!(ground.store.reseal_subscription(&first, &sealed).await.unwrap());
    let found = ground.store.subscription(&acme(), subscription_id(1)).await.unwrap();
    assert_eq!(found.as_ref(), Some(&sealed));
    let mut late = first.clone();
    late.credentials = vec![8];
    assert!(!ground.store.reseal_subscription(&first, &late).await.unwrap());
    let found = ground.store.subscription(&acme(), subscription_id(1)).await.unwrap();
    assert_eq!(found, Some(sealed));
    let mut absent = first;
    absent.subscription.id = subscription_id(2);
    assert!(!ground.store.reseal_subscription(&absent, &absent).await.unwrap());
    ground.store.erase_freed().await.unwrap();
    assert_eq!(ids(&ground, &acme()).await, [subscription_id(1)]);
}

async fn a_twin_is_named_and_nothing_is_written(ground: Ground) {
    let first = ground.put(&acme(), 1, 1).await;
    let mut twin = first.clone();
    twin.subscription.id = subscription_id(2);
    twin.subscription.headers = vec![CustomHeader::new("x-other", "1").unwrap()];
    twin.credentials = vec![9];
    assert_eq!(put(&ground, &twin, 1).await, SubscriptionPut::Twin(subscription_id(1)));
    let found = ground.store.subscription(&acme(), subscription_id(2)).await.unwrap();
    assert_eq!(found, None);
    assert_eq!(ids(&ground, &acme()).await, [subscription_id(1)]);
}

async fn one_that_is_switched_off_is_a_twin_too(ground: Ground) {
    let first = elaborate(&acme(), 1, 1);
    assert!(!first.subscription.enabled && first.subscription.filter.is_some());
    assert_eq!(put(&ground, &first, 1).await, SubscriptionPut::Stored);
    let mut twin = first;
    twin.subscription.id = subscription_id(2);
    twin.subscription.enabled = true;
    assert_eq!(put(&ground, &twin, 1).await, SubscriptionPut::Twin(subscription_id(1)));
    twin.subscription.filter = None;
    assert_eq!(put(&ground, &twin, 1).await, SubscriptionPut::Stored);
}

async fn one_that_would_become_a_twin_stays_as_it_was(ground: Ground) {
    let first = ground.put(&acme(), 1, 1).await;
    let second = ground.put(&acme(), 2, 2).await;
    let mut changed = first.clone();
    changed.subscription.id = subscription_id(2);
    assert_eq!(put(&ground, &changed, 1).await, SubscriptionPut::Twin(subscription_id(1)));
    let found = ground.store.subscription(&acme(), subscription_id(2)).await.unwrap();
    assert_eq!(found, Some(second));
    assert_eq!(put(&ground, &first, 1).await, SubscriptionPut::Stored, "it is not its own twin");
}

async fn there_are_no_twins_across_tenants(ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let mut same = subscription(&umbrella(), 1, 1);
    same.subscription.id = subscription_id(2);
    assert_eq!(put(&ground, &same, 1).await, SubscriptionPut::Stored);
    let ours = ground.store.destinations(&acme(), &ALL).await.unwrap().items;
    let theirs = ground.store.destinations(&umbrella(), &ALL).await.unwrap().items;
    assert_eq!((ours.len(), theirs.len()), (1, 1));
    assert_eq!(ours[0].url, theirs[0].url);
    assert_ne!(ours[0].id, theirs[0].id);
}

async fn a_deleted_subscription_has_no_twin(ground: Ground) {
    let first = ground.put(&acme(), 1, 1).await;
    let marked = ground.store.mark_subscription_deleted(&acme(), subscription_id(1), at(5)).await;
    assert!(marked.unwrap());
    let mut twin = first;
    twin.subscription.id = subscription_id(2);
    assert_eq!(put(&ground, &twin, 1).await, SubscriptionPut::Stored);
    assert_eq!(ids(&ground, &acme()).await, [subscription_id(2)]);
}

async fn a_destination_is_created_once_and_keeps_its_circuit(mut ground: Ground) {
    ground.put(&acme(), 1, 1).await;
    let mut circuit = Circuit::new(at(0));
    let policy = CircuitPolicy { disable_consecutive: 1, ..CircuitPolicy::default() };
    circuit.learn(delivery_id(1), Verdict::Failure, at(7), Suspension::Off, &policy);
    let change = DestinationChange {
        tenant: acme(),
        id: destination(&acme(), 1).id,
        circuit: circuit.clone(),
        transitions: Vec::new(),
    };
    ground.settle(Commit { destinations: vec![change], ..Commit::default() }).await;
    let mut later = destination(&acme(), 1);
    later.created_at = at(50);
    let second = subscription(&acme(), 2, 1);
    let stored = ground.store.put_subscription(&second, &later).await.unwrap();
    assert_eq!(stored, SubscriptionPut::Stored);
    ground.reopen().await;
    let kept = ground.destination(1).await;
    assert_eq!((kept.created_at, &kept.circuit), (at(0), &circuit));
    assert_eq!(ground.store.destinations(&acme(), &ALL).await.unwrap().items, [kept]);
}

async fn a_deleted_subscription_is_seen_by_the_index_alone(mut ground: Ground) {
    let mut record = ground.put(&acme(), 1, 1).await;
    let id = subscription_id(1);
    assert!(ground.store.mark_subscription_deleted(&acme(), id, at(5)).await.unwrap());
    let again = ground.store.mark_subscription_deleted(&acme(), id, at(6)).await.unwrap();
    assert!(!again, "it is marked already");
    ground.reopen().await;
    assert_eq!(ground.store.subscription(&acme(), id).await.unwrap(), None);
    assert_eq!(ids(&ground, &acme()).await, []);
    record.deleted_at = Some(at(5));
    assert_eq!(ground.store.all_subscriptions().await.unwrap(), [record]);
    let unknown = ground.store.mark_subscription_deleted(&acme(), subscription_id(9), at(5)).await;
    assert!(!unknown.unwrap());
}

async fn a_subscription_is_removed_once_it_is_marked_and_nothing_is_unfinished(ground: Ground) {
    let store = &ground.store;
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1)]).await;
    let there = async || store.all_subscriptions().await.unwrap().len() == 1;
    store.remove_subscription(&acme(), subscription_id(1)).await.unwrap();
    assert!(there().await, "it is not marked");
    store.mark_subscription_deleted(&acme(), subscription_id(1), at(5)).await.unwrap();
    store.remove_subscription(&acme(), subscription_id(1)).await.unwrap();
    assert!(there().await, "a delivery is unfinished");
    let delivery = ground.delivery(1).await;
    ground.change(delivery.cancelled(CancelReason::SubscriptionDeleted, at(6)).unwrap()).await;
    assert!(there().await);
    store.remove_subscription(&acme(), subscription_id(1)).await.unwrap();
    assert!(!there().await);
    store.remove_subscription(&acme(), subscription_id(1)).await.unwrap();
    assert_eq!(ground.destination(1).await, destination(&acme(), 1), "its destination stays");
    assert!(store.delivery(&acme(), delivery.id).await.unwrap().is_some(), "and its history");
}

async fn held_destinations_are_those_of_the_held_shards(ground: Ground) {
    let all = ground.leases().await;
    for n in 0..20 {
        ground.put(&acme(), n, n).await;
        ground.put(&umbrella(), 100 + n, n).await;
    }
    let found = ground.store.held_destinations(&all).await.unwrap();
    assert_eq!(found.len(), 40, "of every tenant");
    let half: Vec<_> = all.shards.iter().filter(|(s, _)| s.0 % 2 == 0).copied().collect();
    let half = ground.store.held_destinations(&ShardLeases { shards: half }).await.unwrap();
    let expected = found.iter().filter(|d| d.id.shard().0 % 2 == 0).count();
    assert!(0 < expected && expected < 40);
    assert_eq!(half.len(), expected);
    assert!(half.iter().all(|d| d.id.shard().0 % 2 == 0));
    assert_eq!(ground.store.held_destinations(&ShardLeases::default()).await.unwrap(), []);
    let shards: Vec<Shard> = all.shards.iter().map(|(shard, _)| *shard).collect();
    assert_eq!(shards.len(), usize::from(SHARDS));
}

suite! { $ subscriptions, conformance_subscriptions:
    a_subscription_is_read_back_as_it_was,
    a_subscription_that_is_put_again_is_replaced,
    a_record_is_resealed_only_where_it_is_still_the_one_that_was_read,
        a_twin_is_named_and_nothing_is_written,
    one_that_is_switched_off_is_a_twin_too,
    one_that_would_become_a_twin_stays_as_it_was,
    there_are_no_twins_across_tenants,
    a_deleted_subscription_has_no_twin,
    a_destination_is_created_once_and_keeps_its_circuit,
    a_deleted_subscription_is_seen_by_the_index_alone,
    a_subscription_is_removed_once_it_is_marked_and_nothing_is_unfinished,
    held_destinations_are_those_of_the_held_shards,
}
