//! Repeats have their effect once, also where an answer was lost.

use postrider_client::types::{NewEvent, NewSubscription};
use postrider_client::{EventQuery, SubscriptionQuery};

use crate::support::{CuttingProxy, fresh_tenant, fresh_tenant_through};

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn post_whose_answer_is_cut_is_repeated_and_has_its_effect_once() {
    for bytes in [0, 1, 100, 250] {
        let proxy = CuttingProxy::start(2, bytes).await;
        let client = fresh_tenant_through(&proxy.url).await;
        let new = NewSubscription::new("http://127.0.0.1:9/cut", ["*"]);
        let created = client.subscriptions().create(&new).await.unwrap();
        let mut keys = proxy.keys();
        assert_eq!(keys.len(), 3, "two answers were cut after {bytes} bytes");
        keys.dedup();
        assert_eq!((keys.len(), keys[0].len()), (1, 32), "one key for all attempts");
        let listed =
            client.subscriptions().list(&SubscriptionQuery::default()).all().await.unwrap();
        assert_eq!(listed.iter().map(|one| &one.id).collect::<Vec<_>>(), [&created.id]);
        assert!(created.secret.expose().starts_with("whsec_"));
    }
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn events_whose_answers_are_cut_are_accepted_once() {
    let proxy = CuttingProxy::start(1, 20).await;
    let client = fresh_tenant_through(&proxy.url).await;
    let new = NewSubscription::new("http://127.0.0.1:9/cut", ["*"]);
    client.subscriptions().create(&new).await.unwrap();
    assert_eq!(proxy.keys().len(), 2);
    let event = NewEvent::new("a.b", 1);
    client.events().send(&event).await.unwrap();
    client.events().send_batch(&[event.clone(), event]).await.unwrap();
    assert_eq!(client.events().list(&EventQuery::default()).all().await.unwrap().len(), 3);
    assert_eq!(client.ledger().await.unwrap().accepted, 3);
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn the_same_key_with_the_same_body_is_one_event_and_with_another_a_conflict() {
    let client = fresh_tenant().await.with_idempotency_key("mine-2").unwrap();
    let event = NewEvent::new("a.b", 1);
    let first = client.events().send(&event).await.unwrap();
    assert_eq!(client.events().send(&event).await.unwrap().id, first.id);
    let error = client.events().send(&NewEvent::new("a.c", 1)).await.unwrap_err();
    assert!(error.has_code("idempotency_conflict"), "{error}");
}
