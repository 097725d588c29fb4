//! Records are created, read, changed, listed and deleted; problems are typed.

use std::collections::BTreeMap;

use postrider_client::types::{
    DestinationState, Enable, Filter, NewEvent, NewKey, NewReplay, NewSubscription, Simulation,
    SubscriptionChange,
};
use postrider_client::{
    AuditQuery, DestinationQuery, EventQuery, KeyQuery, StatsQuery, SubscriptionQuery,
};
use serde_json::json;

use crate::support::fresh_tenant;

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn subscriptions_are_created_read_changed_listed_and_deleted() {
    let client = fresh_tenant().await;
    let either = Filter::any([Filter::changed("data.a"), Filter::exists("data.b")]);
    let filter = Filter::all([Filter::condition("data.n", "gt", 3), either]);
    let mut new = NewSubscription::new("http://127.0.0.1:9/x", ["a.b"])
        .filter(filter.clone())
        .auth_token("token-of-the-receiver")
        .header("x-a", "value-1234567");
    new.rate_limit = Some(5.0);
    let created = client.subscriptions().create(&new).await.unwrap();
    assert_eq!(created.auth_token.as_deref(), Some("****iver"));
    let change = SubscriptionChange::new()
        .auth_token(None)
        .types(["a.*"])
        .enabled(false)
        .headers(&BTreeMap::from([("x-b".to_owned(), "value-7654321".into())]));
    let changed = client.subscriptions().update(&created.id, &change).await.unwrap();
    assert_eq!((&changed.auth_token, changed.enabled), (&None, false));
    assert_eq!(
        (&changed.types[0], &changed.headers["x-b"]),
        (&"a.*".to_owned(), &"****4321".to_owned())
    );
    let read = client.subscriptions().get(&created.id).await.unwrap();
    assert_eq!((read.rate_limit, read.filter), (Some(5.0), Some(filter.clone())));
    assert_eq!(
        client.subscriptions().list(&SubscriptionQuery::default()).all().await.unwrap().len(),
        1
    );
    let twin = NewSubscription::new("http://127.0.0.1:9/x", ["a.*"]).filter(filter);
    let error = client.subscriptions().create(&twin).await.unwrap_err();
    let problem = error.problem().unwrap();
    assert_eq!((problem.status.as_u16(), problem.code.as_str()), (409, "twin_subscription"));
    assert_eq!(problem.existing_id.as_ref(), Some(&created.id));
    client.subscriptions().delete(&created.id).await.unwrap();
    assert!(client.subscriptions().get(&created.id).await.unwrap_err().has_code("not_found"));
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn batches_are_split_and_lists_yield_each_entry_once() {
    let client = fresh_tenant().await;
    let event = |n: usize| NewEvent::new("batch.sent", n).id(format!("e-{n}"));
    let keyed = client.with_idempotency_key("not for batches").unwrap();
    let results = keyed.events().send_all((0..2345).map(event)).all().await.unwrap();
    assert_eq!((results.len(), results[2000].id.as_str()), (2345, "e-2000"));
    let query = EventQuery { kind: Some("batch.sent".to_owned()), ..EventQuery::default() };
    let mut list = client.events().list(&query).page_size(500);
    let mut seen = std::collections::BTreeSet::new();
    while let Some(one) = list.next().await {
        assert!(seen.insert(one.unwrap().id));
    }
    assert_eq!(seen.len(), 2345);
    assert!(list.next().await.is_none());
    assert_eq!(client.events().list(&query).page_size(2).first(3).await.unwrap().len(), 3);
    assert_eq!(client.events().list(&query).page_size(7).page(None).await.unwrap().data.len(), 7);
    assert!(client.events().send(&event(5)).await.unwrap().duplicate);
    let bad = (0..1500).map(event).chain([NewEvent::new("not a type", 1)]);
    let mut sending = client.events().send_all(bad);
    let mut accepted = 0;
    let error = loop {
        match sending.next().await.unwrap() {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(accepted, 1000);
    assert_eq!(error.problem().unwrap().field.as_deref(), Some("[500].type"));
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn a_batch_beyond_16_mib_is_split_by_its_bytes() {
    let client = fresh_tenant().await;
    let events = (0..20).map(|_| NewEvent::new("large.sent", "x".repeat(900_000)));
    assert_eq!(client.events().send_all(events).all().await.unwrap().len(), 20);
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn a_problem_names_its_code_its_field_and_what_to_do() {
    let client = fresh_tenant().await;
    let events = [NewEvent::new("a.b", 1), NewEvent::new("a b", 1)];
    let error = client.events().send_batch(&events).await.unwrap_err();
    assert!(
        error.to_string().starts_with("422 invalid_field ([1].type): not an event type"),
        "{error}"
    );
    let filter = Filter::condition("data.a", "eqq", 1);
    let error = client.test_filter(&filter, &events[0]).await.unwrap_err();
    assert_eq!(error.problem().unwrap().field.as_deref(), Some("filter.op"));
    let filter = Filter::condition("data", "eq", 1);
    assert!(client.test_filter(&filter, &events[0]).await.unwrap().matches);
    let due = NewEvent::new("a.b", json!({ "due": "2026-11-16T12:00:00.000-0800" }));
    let filter = Filter::time("data.due", "gt", "2026-11-16T19:59:59Z");
    assert!(client.test_filter(&filter, &due).await.unwrap().matches);
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn destinations_are_frozen_enabled_and_keep_their_timeline() {
    let client = fresh_tenant().await;
    let new = NewSubscription::new("http://127.0.0.1:9/frozen", ["*"]);
    let id = client.subscriptions().create(&new).await.unwrap().destination_id.clone();
    client.events().send(&NewEvent::new("a.b", 1)).await.unwrap();
    crate::support::until(async || client.destinations().get(&id).await.is_ok()).await;
    let frozen = client.destinations().freeze(&id, Some("maintenance")).await.unwrap();
    assert_eq!(frozen.state, DestinationState::Frozen);
    let query = DestinationQuery { state: Some(DestinationState::Frozen), ..Default::default() };
    assert_eq!(client.destinations().list(&query).all().await.unwrap().len(), 1);
    let why = Enable { reason: Some("done".to_owned()), ..Enable::default() };
    let enabled = client.destinations().enable(&id, &why).await.unwrap();
    assert_eq!(enabled.state, DestinationState::Enabled);
    let timeline = client.destinations().timeline(&id).all().await.unwrap();
    assert!(timeline.iter().any(|one| one.reason.contains("maintenance")), "{timeline:?}");
    let stats = client.destinations().stats(&id, Some(2)).await.unwrap();
    assert_eq!(stats.hours.len(), 2);
    let figures = client.destinations().figures(&[&id]).await.unwrap();
    assert_eq!(figures[0].destination_id, id);
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn figures_keys_replays_and_simulations_are_read() {
    let client = fresh_tenant().await;
    let new = NewKey { scopes: vec!["read".to_owned()], ..NewKey::default() };
    let key = client.keys().create(&new).await.unwrap();
    assert!(key.key.expose().starts_with("pr_"));
    assert_eq!(client.keys().get(&key.id).await.unwrap().scopes, ["read"]);
    let query = KeyQuery { tenant: key.tenant.clone(), scope: None };
    assert_eq!(client.keys().list(&query).all().await.unwrap().len(), 1);
    client.keys().delete(&key.id).await.unwrap();
    assert_eq!(client.replays().count(&NewReplay::default()).await.unwrap(), 0);
    assert!(client.replays().list().all().await.unwrap().is_empty());
    assert!(!client.stats(&StatsQuery::default()).await.unwrap().data.is_empty());
    assert!(!client.limits().await.unwrap().is_empty());
    assert_eq!(client.ledger().await.unwrap().accepted, 0);
    assert!(client.ledger_of_all().await.is_ok());
    let audit = AuditQuery { target: Some(key.id.clone()), ..AuditQuery::default() };
    assert!(!client.audit(&audit).all().await.unwrap().is_empty());
    let mut simulation = Simulation::new(10, 3600);
    simulation.samples = Some(10);
    simulation.policy = Some(json!({ "retry": { "max": 3 } }));
    let answer = client.simulate(&simulation).await.unwrap();
    assert_eq!(answer.plans[0].name, "yours");
}
