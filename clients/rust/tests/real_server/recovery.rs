//! Policies, descriptions, the catalogue, erasures and recovery.

use axum::http::StatusCode;
use postrider_client::types::{
    CatalogueChange, Conduct, DeliveryState, Enable, ErasureState, EventTypeChange, NewErasure,
    NewEvent, NewEventType, NewReplay, NewSubscription, NewTenant, SubscriptionChange,
    SubscriptionPolicy, TenantChange,
};
use postrider_client::{DeliveryQuery, DestinationQuery, EventQuery, SubscriptionQuery};
use serde_json::json;

use crate::support::{Receiver, fresh_tenant, until};

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn subscription_has_a_policy_of_its_own_and_goes_back_to_the_servers() {
    let client = fresh_tenant().await;
    let mut policy = SubscriptionPolicy::default();
    policy.retry.max = Some(3);
    policy.recovery.dead = Some("replay".to_owned());
    policy.recovery.mode = Some("drain".to_owned());
    let new = NewSubscription::new("http://127.0.0.1:9/p", ["*"]).policy(policy.clone());
    let created = client.subscriptions().create(&new).await.unwrap();
    assert_eq!(created.policy, policy);
    let effective = created.effective_policy.clone().unwrap();
    assert_eq!((effective.retry.max, effective.dead.as_str()), (3, "replay"));
    let destination = client.destinations().get(&created.destination_id).await.unwrap();
    let recovery = destination.recovery.unwrap();
    assert_eq!((recovery.from.as_str(), recovery.mode.as_str()), ("subscription", "drain"));
    let change = SubscriptionChange::new().policy(None);
    let reset = client.subscriptions().update(&created.id, &change).await.unwrap();
    let server = client.policy().await.unwrap();
    assert_eq!(reset.effective_policy.unwrap().retry, server.retry);
    assert!(server.subscription_limits.is_some());
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn subscription_with_a_uid_is_created_once_and_found_by_it() {
    let client = fresh_tenant().await;
    let new = NewSubscription::new("http://127.0.0.1:9/u", ["*"]).uid("crm");
    let first = client.subscriptions().create(&new).await.unwrap();
    let again = client.subscriptions().create(&new).await.unwrap();
    assert_eq!((&again.id, again.secret.expose()), (&first.id, ""));
    assert_eq!(client.subscriptions().get("crm").await.unwrap().id, first.id);
    let other = NewSubscription::new("http://127.0.0.1:9/other", ["*"]);
    client.subscriptions().create(&other).await.unwrap();
    let query = SubscriptionQuery { uid: Some("crm".to_owned()), ..SubscriptionQuery::default() };
    assert_eq!(client.subscriptions().list(&query).all().await.unwrap().len(), 1);
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn tenant_has_quotas_and_rates_of_its_own() {
    let client = fresh_tenant().await;
    let new = NewTenant { id: format!("own-{}", std::process::id()), ..NewTenant::default() };
    let id = client.tenants().create(&new).await.unwrap().id;
    let client = client.for_tenant(&id).unwrap();
    let quotas = [("subscriptions".to_owned(), 1)].into();
    let change = TenantChange::new().name(Some("Acme")).quotas(&quotas);
    let changed = client.tenants().update(&id, &change.requests_per_second(Some(1000))).await;
    let changed = changed.unwrap();
    assert_eq!((changed.name.as_deref(), changed.quotas), (Some("Acme"), quotas));
    let limits = client.limits().await.unwrap();
    assert!(limits.iter().any(|one| one.name == "subscriptions" && one.own));
    let rates = client.rates().await.unwrap();
    assert!(rates.iter().any(|one| one.limit == Some(1000) && one.own));
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn events_are_judged_by_the_catalogue() {
    let client = fresh_tenant().await;
    let types = client.event_types();
    let schema = json!({ "type": "object", "required": ["id"] });
    let made = types.create(&NewEventType::new("order.paid", schema.clone())).await.unwrap();
    assert_eq!((made.schema, made.deprecated), (schema, false));
    let change = EventTypeChange::new().deprecated(true);
    assert!(types.update("order.paid", None, &change).await.unwrap().deprecated);
    let change =
        CatalogueChange::new().misfits(Some(Conduct::Refuse)).unknown_types(Some(Conduct::Flag));
    assert_eq!(types.update_catalogue(&change).await.unwrap().misfits, Conduct::Refuse);
    let misfit = NewEvent::new("order.paid", json!({ "no": "id" }));
    let error = client.events().send(&misfit).await.unwrap_err();
    assert_eq!(error.problem().unwrap().status.as_u16(), 422);
    let sent = client.events().send(&NewEvent::new("order.unheard", 1)).await.unwrap();
    let flagged = client.events().get(&sent.id).await.unwrap().flagged.unwrap();
    assert_eq!(flagged.reason, "unknown_type");
    types.delete("order.paid", None).await.unwrap();
    assert!(types.get("order.paid", None).await.unwrap_err().has_code("not_found"));
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn payloads_of_an_object_are_erased() {
    let client = fresh_tenant().await;
    let event = NewEvent::new("a.b", json!({ "name": "Jane" })).object("person-1");
    let sent = client.events().send(&event).await.unwrap();
    client.events().send(&NewEvent::new("a.b", 1).object("person-2")).await.unwrap();
    let query = EventQuery { object: Some("person-1".to_owned()), ..EventQuery::default() };
    assert_eq!(client.events().list(&query).all().await.unwrap()[0].id, sent.id);
    let what = NewErasure::Object("person-1".to_owned());
    let job = client.erasures().create(&what).await.unwrap();
    let done = client.erasures().wait_erased(&job.id).await.unwrap();
    assert!(done.erased == 1 && done.state != ErasureState::Erasing, "{done:?}");
    let erased = client.events().get(&sent.id).await.unwrap();
    assert_eq!((erased.data.get(), erased.erased_at.is_some()), ("null", true));
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn what_waits_is_retried_in_bulk_and_what_died_is_replayed_when_enabled() {
    let client = fresh_tenant().await;
    let receiver = Receiver::start(StatusCode::INTERNAL_SERVER_ERROR).await;
    let new = NewSubscription::new(&receiver.url, ["*"]);
    let destination = client.subscriptions().create(&new).await.unwrap().destination_id.clone();
    client.events().send(&NewEvent::new("a.b", 1)).await.unwrap();
    let waiting = DeliveryQuery { state: Some(DeliveryState::Waiting), ..DeliveryQuery::default() };
    until(async || client.deliveries().list(&waiting).all().await.unwrap().len() == 1).await;
    let id = client.deliveries().list(&waiting).all().await.unwrap()[0].id.clone();
    let sent = client.deliveries().request(&id, 1).await.unwrap();
    assert_eq!((sent.method.as_str(), &sent.url), ("POST", &receiver.url));
    let all = NewReplay {
        destination: Some(destination.clone()),
        state: Some("waiting".to_owned()),
        ..NewReplay::default()
    };
    assert_eq!(client.replays().count(&all).await.unwrap(), 1);
    client.replays().create(&all).await.unwrap();
    until(async || client.deliveries().get(&id).await.unwrap().attempts == 2).await;
    let enable = Enable {
        dead_since: Some(jiff::Timestamp::UNIX_EPOCH),
        waiting: Some("drain".to_owned()),
        ..Enable::default()
    };
    let enabled = client.destinations().enable(&destination, &enable).await.unwrap();
    let replay = client.replays().get(&enabled.replay.unwrap()).await.unwrap();
    assert_eq!(replay.filter.state.as_deref(), Some("dead"));
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn admin_reads_the_destinations_of_all_tenants_and_the_server() {
    let client = fresh_tenant().await;
    let new = NewSubscription::new("http://127.0.0.1:9/all", ["*"]);
    let id = client.subscriptions().create(&new).await.unwrap().destination_id.clone();
    let everybody = client.for_tenant("*").unwrap();
    let all = everybody.destinations().list(&DestinationQuery::default()).page_size(1000);
    let all = all.all().await.unwrap();
    assert!(all.iter().any(|one| one.id == id && one.tenant.is_some()));
    assert!(everybody.events().send(&NewEvent::new("a.b", 1)).await.is_err());
    assert_eq!(client.destinations().summary().await.unwrap().enabled, 1);
    assert_eq!(client.operations().server().await.unwrap().store, "embedded");
}
