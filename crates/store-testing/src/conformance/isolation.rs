//! Every method with a tenant treats records of other tenants as if they did not exist.

use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Accepted, DeliveryFilter, EventFilter, ReplayJob, SubscriptionPut,
};

use super::Ground;
use super::dump::dump;
use super::ground::ALL;
use crate::samples::{
    START, acme, answer, answered, at, delivery_id, destination, digest, event, key, refused,
    replay, replay_id, subscription, subscription_id, tenant, umbrella,
};

/// Creates records of every kind for acme; umbrella has none.
async fn fill(ground: &Ground) {
    let store = &ground.store;
    store.create_tenant(&tenant("acme", at(0))).await.unwrap();
    store.create_key(&key("k", Some(&acme()), at(0))).await.unwrap();
    store.keep_idempotent_answer(&acme(), "i", &answer(1, at(0)), Timestamp::EPOCH).await.unwrap();
    ground.put(&acme(), 1, 1).await;
    ground.accept("e", at(0), &[(1, 1), (2, 1), (3, 1)]).await;
    ground.attempt(1, 1, refused(), at(1)).await;
    ground.attempt(2, 1, answered(410), at(2)).await;
    ground.attempt(3, 1, answered(200), at(3)).await;
    store.put_replay(&replay(&acme(), 1, at(4))).await.unwrap();
}

async fn foreign_configuration_is_not_seen(ground: Ground) {
    fill(&ground).await;
    let (store, them) = (&ground.store, umbrella());
    assert_eq!(store.tenant(&them).await.unwrap(), None);
    assert_eq!(store.keys(Some(&them), &ALL).await.unwrap().items, []);
    assert_eq!(store.keys(None, &ALL).await.unwrap().items, []);
    assert_eq!(store.subscription(&them, subscription_id(1)).await.unwrap(), None);
    assert_eq!(store.subscriptions(&them, &ALL).await.unwrap().items, []);
    assert_eq!(store.destination(&them, destination(&acme(), 1).id).await.unwrap(), None);
    assert_eq!(store.destinations(&them, &ALL).await.unwrap().items, []);
    assert_eq!(store.idempotent_answer(&them, "i").await.unwrap(), None);
}

async fn foreign_history_is_not_seen(ground: Ground) {
    fill(&ground).await;
    let (store, them) = (&ground.store, umbrella());
    let id = destination(&acme(), 1).id;
    assert_eq!(store.event(&them, &"e".parse().unwrap()).await.unwrap(), None);
    let events = store.list_events(&them, &EventFilter::default(), &ALL).await.unwrap();
    assert_eq!(events.items, []);
    assert_eq!(store.events(&[(them.clone(), "e".parse().unwrap())]).await.unwrap(), [None]);
    assert_eq!(store.delivery(&them, delivery_id(1)).await.unwrap(), None);
    let filters = [
        DeliveryFilter::default(),
        DeliveryFilter { destination: Some(id), ..DeliveryFilter::default() },
        DeliveryFilter { subscription: Some(subscription_id(1)), ..DeliveryFilter::default() },
        DeliveryFilter { event: Some("e".parse().unwrap()), ..DeliveryFilter::default() },
    ];
    for filter in filters {
        assert_eq!(store.list_deliveries(&them, &filter, &ALL).await.unwrap().items, []);
        assert_eq!(store.count_deliveries(&them, &filter).await.unwrap(), 0, "{filter:?}");
        let job = ReplayJob { filter, ..replay(&them, 9, at(1_000)) };
        assert_eq!(store.replay_candidates(&job, 100).await.unwrap(), []);
    }
    assert_eq!(store.attempts(&them, delivery_id(1)).await.unwrap(), []);
    assert_eq!(store.transitions(&them, id, &ALL).await.unwrap().items, []);
    assert_eq!(store.waiting_counts(&them, &[id]).await.unwrap(), [0]);
    assert_eq!(store.waiting_counts(&acme(), &[id]).await.unwrap(), [2]);
    assert_eq!(store.ledger(Some(&them)).await.unwrap(), Ledger::default());
    let tallies = store.tallies(Some(&them), START, Timestamp::MAX, 1).await.unwrap();
    assert_eq!(tallies, []);
    assert_eq!(store.replay(&them, replay_id(1)).await.unwrap(), None);
    assert_eq!(store.replays(&them, &ALL).await.unwrap().items, []);
}

async fn foreign_things_are_not_changed(ground: Ground) {
    fill(&ground).await;
    let (store, them) = (&ground.store, umbrella());
    let before = dump(&**store, &[acme()], START).await;
    assert!(!store.delete_tenant(&them).await.unwrap());
    assert!(!store.delete_key(Some(&them), "k").await.unwrap());
    assert!(!store.delete_key(None, "k").await.unwrap());
    let marked = store.mark_subscription_deleted(&them, subscription_id(1), at(9)).await;
    assert!(!marked.unwrap());
    store.remove_subscription(&them, subscription_id(1)).await.unwrap();
    let kept = store
        .keep_idempotent_answer(&them, "i", &answer(2, at(9)), Timestamp::EPOCH)
        .await
        .unwrap();
    assert_eq!(kept, answer(2, at(9)));
    let found = store.idempotent_answer(&acme(), "i").await.unwrap();
    assert_eq!(found, Some(answer(1, at(0))));
    assert_eq!(dump(&**store, &[acme()], START).await, before);
}

async fn a_marked_subscription_is_removed_by_its_own_tenant_alone(ground: Ground) {
    let store = &ground.store;
    ground.put(&acme(), 1, 1).await;
    store.mark_subscription_deleted(&acme(), subscription_id(1), at(9)).await.unwrap();
    store.remove_subscription(&umbrella(), subscription_id(1)).await.unwrap();
    assert_eq!(store.all_subscriptions().await.unwrap().len(), 1);
}

async fn two_tenants_with_the_same_names_and_urls_do_not_meet(ground: Ground) {
    fill(&ground).await;
    let (store, them) = (&ground.store, umbrella());
    let before = dump(&**store, &[acme()], START).await.len();
    let mut theirs = subscription(&them, 7, 1);
    theirs.subscription.types = subscription(&acme(), 1, 1).subscription.types;
    let put = store.put_subscription(&theirs, &destination(&them, 1)).await.unwrap();
    assert_eq!(put, SubscriptionPut::Stored, "acme's is no twin of it");
    let new = Acceptance {
        fingerprint: digest(2),
        ..crate::samples::acceptance(event(&them, "e"), at(9), &[(9, 1)])
    };
    assert_eq!(store.accept(vec![new]).await.unwrap(), [Accepted::New], "nor is there a conflict");
    let fresh = store.destination(&them, destination(&them, 1).id).await.unwrap().unwrap();
    assert_eq!(fresh.circuit, destination(&them, 1).circuit, "acme's frozen circuit is acme's");
    let found = store.event(&them, &"e".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(found.deliveries, 1);
    let found = store.event(&acme(), &"e".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(found.deliveries, 3);
    let after = dump(&**store, &[acme()], START).await.len();
    assert_eq!(after, before + 3, "one subscription, one destination and one queued delivery");
}

suite! { $ isolation, conformance_isolation:
    foreign_configuration_is_not_seen,
    foreign_history_is_not_seen,
    foreign_things_are_not_changed,
    a_marked_subscription_is_removed_by_its_own_tenant_alone,
    two_tenants_with_the_same_names_and_urls_do_not_meet,
}
