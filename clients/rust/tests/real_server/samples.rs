//! Every call with everything that it takes, against answers of this server, of an older and of a
//! newer one. `clients/check.py` notes what is called.

use std::collections::BTreeMap;

use postrider_client::types::{
    AttemptOutcome, CatalogueChange, Conduct, DeliveryState, DestinationState, Enable,
    EventTypeChange, EventTypeScope, Filter, NewErasure, NewEvent, NewEventType, NewKey,
    NewPortalLink, NewReplay, NewSubscription, NewTenant, NewTheme, NewWorkfrontOptions,
    Simulation, SubscriptionChange, SubscriptionPolicy, TenantChange,
};
use postrider_client::{
    AuditQuery, Client, DeliveryQuery, DestinationQuery, EventQuery, FilterTrial, Happening,
    KeyQuery, StatsQuery, StreamQuery, SubscriptionQuery,
};
use serde_json::json;

use crate::support::setting;

/// A server of this form: `full`, `old` or `new`.
fn server(form: &str) -> Client {
    let url = format!("{}/{form}", setting("POSTRIDER_SAMPLES"));
    Client::builder(url).key("k").retries(0).build().unwrap()
}

fn text() -> Option<String> {
    Some("text".to_owned())
}

fn at() -> Option<jiff::Timestamp> {
    Some(jiff::Timestamp::UNIX_EPOCH)
}

async fn call_tenants_and_keys(client: &Client) {
    let tenants = client.tenants();
    let new = NewTenant {
        description: text(),
        events_per_second: Some(1),
        id: "t".to_owned(),
        metadata: [("a".to_owned(), "b".to_owned())].into(),
        name: text(),
        quotas: [("keys".to_owned(), 1)].into(),
        requests_per_second: Some(1),
    };
    tenants.create(&new).await.unwrap();
    let change = TenantChange::new().name(None).description(None).metadata(&new.metadata);
    let change = change.quotas(&new.quotas).requests_per_second(None).events_per_second(None);
    tenants.update("t", &change).await.unwrap();
    tenants.get("t").await.unwrap();
    tenants.list().all().await.unwrap();
    tenants.delete("t").await.unwrap();
    let new = NewKey { expires_at: at(), name: text(), scopes: Vec::new(), tenant: text() };
    client.keys().create(&new).await.unwrap();
    client.keys().get("k").await.unwrap();
    client.keys().list(&KeyQuery { tenant: text(), scope: text() }).all().await.unwrap();
    client.keys().delete("k").await.unwrap();
}

async fn call_events(client: &Client) {
    let mut event = NewEvent::new("a.b", 1).old(2).object("o").id("i");
    event.time = at();
    client.events().send(&event).await.unwrap();
    client.events().send_batch(&[event]).await.unwrap();
    client.events().get("e").await.unwrap();
    let query = EventQuery { kind: text(), object: text(), since: at(), until: at() };
    client.events().list(&query).all().await.unwrap();
    client.events().matches("e").all().await.unwrap();
}

async fn call_subscriptions(client: &Client) {
    let subscriptions = client.subscriptions();
    let policy = SubscriptionPolicy::default();
    let mut new = NewSubscription::new("u", ["*"]).filter(Filter::exists("data.a"));
    new = new.secret("s").uid("u").auth_token("t").header("a", "b").policy(policy.clone());
    new.metadata = [("a".to_owned(), "b".to_owned())].into();
    new.workfront = Some(NewWorkfrontOptions::default());
    (new.object, new.format, new.name, new.description) = (text(), text(), text(), text());
    (new.rate_limit, new.enabled, new.client_key) = (Some(1.0), Some(true), Some("k".into()));
    (new.client_certificate, new.ca_certificates) = (text(), text());
    subscriptions.create(&new).await.unwrap();
    subscriptions.get("s").await.unwrap();
    let query = SubscriptionQuery { destination: text(), uid: text(), q: text(), metadata: text() };
    subscriptions.list(&query).all().await.unwrap();
    let change = SubscriptionChange::new().url("u").types(["*"]).object(None).filter(None);
    let change = change.format("raw").workfront(&NewWorkfrontOptions::default()).auth_token(None);
    let change = change.headers(&BTreeMap::new()).rate_limit(None).policy(Some(&policy)).uid(None);
    let change = change.enabled(true).name(None).description(None).metadata(&new.metadata);
    let change = change.client_certificate(None).ca_certificates(None);
    subscriptions.update("s", &change).await.unwrap();
    let overlap = Some(std::time::Duration::from_secs(1));
    subscriptions.rotate_secret("s", overlap).await.unwrap();
    subscriptions.test("s").await.unwrap();
    subscriptions.delete("s").await.unwrap();
}

async fn call_deliveries(client: &Client) {
    let deliveries = client.deliveries();
    let query = DeliveryQuery {
        state: Some(DeliveryState::Dead),
        destination: text(),
        subscription: text(),
        event: text(),
        kind: text(),
        object: text(),
        since: at(),
        until: at(),
    };
    deliveries.list(&query).all().await.unwrap();
    deliveries.due().await.unwrap();
    deliveries.dead(Some(1)).await.unwrap();
    deliveries.get("d").await.unwrap();
    deliveries.attempts("d").all().await.unwrap();
    deliveries.request("d", 1).await.unwrap();
    deliveries.explain("d").await.unwrap();
    deliveries.retry("d").await.unwrap();
    deliveries.replay("d").await.unwrap();
    deliveries.cancel("d").await.unwrap();
    let destinations = client.destinations();
    let query = DestinationQuery { state: Some(DestinationState::Frozen), q: text() };
    destinations.list(&query).all().await.unwrap();
    destinations.summary().await.unwrap();
    destinations.figures(&["d", "e"]).await.unwrap();
    destinations.stats("d", Some(1)).await.unwrap();
    destinations.get("d").await.unwrap();
    destinations.timeline("d").all().await.unwrap();
    let why = Enable { dead_since: at(), reason: text(), waiting: text() };
    destinations.enable("d", &why).await.unwrap();
    destinations.freeze("d", Some("r")).await.unwrap();
}

async fn call_replays(client: &Client) {
    let replays = client.replays();
    let new = NewReplay {
        destination: text(),
        ended_since: at(),
        per_second: Some(1),
        since: at(),
        state: Some("waiting".to_owned()),
        subscription: text(),
        kind: text(),
        until: at(),
    };
    replays.create(&new).await.unwrap();
    replays.count(&new).await.unwrap();
    replays.get("r").await.unwrap();
    replays.list().all().await.unwrap();
    replays.pause("r").await.unwrap();
    replays.resume("r").await.unwrap();
    replays.cancel("r").await.unwrap();
}

async fn call_catalogue_and_erasures(client: &Client, form: &str) {
    let (types, scope) = (client.event_types(), Some(EventTypeScope::Server));
    let mut new = NewEventType::new("a.b", json!({}));
    (new.description, new.example) = (text(), Some(json!(1)));
    (new.deprecated, new.scope) = (Some(true), scope);
    types.create(&new).await.unwrap();
    types.get("a.b", scope).await.unwrap();
    types.list(scope).all().await.unwrap();
    let change = EventTypeChange::new().deprecated(true).description(None);
    types.update("a.b", scope, &change.example(None).schema(None)).await.unwrap();
    types.delete("a.b", scope).await.unwrap();
    types.catalogue().await.unwrap();
    let change = CatalogueChange::new().misfits(None).unknown_types(Some(Conduct::Flag));
    types.update_catalogue(&change).await.unwrap();
    let erasures = client.erasures();
    erasures.create(&NewErasure::Event("e".to_owned())).await.unwrap();
    erasures.create(&NewErasure::Object("o".to_owned())).await.unwrap();
    erasures.get("e").await.unwrap();
    erasures.list().all().await.unwrap();
    if form != "new" {
        erasures.wait("e").await.unwrap();
    }
}

async fn call_operations(client: &Client) {
    let new = NewPortalLink {
        access: "read".to_owned(),
        expires_in: Some(60),
        theme: Some(NewTheme::default()),
    };
    let link = client.portal_links().create(&new).await.unwrap();
    assert_eq!(link.url.expose(), "text");
    assert!(format!("{link:?}").contains("url: [secret]"), "{link:?}");
    client.portal_links().list().all().await.unwrap();
    client.portal_links().revoke("p").await.unwrap();
    client.alerts().list().await.unwrap();
    client.alerts().test(Some("t")).await.unwrap();
    client.operations().server().await.unwrap();
    client.operations().settings().await.unwrap();
    client.operations().backup().await.unwrap();
    client.operations().start_backup("/b").await.unwrap();
}

async fn call_figures(client: &Client) {
    client.ledger_of_all().await.unwrap();
    let query = StatsQuery { since: at(), until: at(), step_minutes: Some(1), scope: text() };
    client.stats(&query).await.unwrap();
    client.limits().await.unwrap();
    client.rates().await.unwrap();
    client.policy().await.unwrap();
    let query = AuditQuery {
        tenant: text(),
        key: text(),
        action: text(),
        target: text(),
        since: at(),
        until: at(),
    };
    client.audit(&query).all().await.unwrap();
    let filter = Filter::exists("data.a");
    client.test_filter(&filter, &NewEvent::new("a.b", 1)).await.unwrap();
    let mut trial = FilterTrial::new(filter);
    (trial.event_ids, trial.recent, trial.kind) = (Some(Vec::new()), Some(1), text());
    client.try_filter(&trial).await.unwrap();
    let mut simulation = Simulation::new(1, 1);
    simulation.policy = Some(json!({ "retry": { "max": 3 } }));
    (simulation.answer_ms, simulation.per_seconds) = (Some(1), Some(1));
    (simulation.enable_after_seconds, simulation.healthy_before_seconds) = (Some(1), Some(1));
    (simulation.presets, simulation.samples) = (Some(Vec::new()), Some(10));
    simulation.subscription = text();
    client.simulate(&simulation).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn every_call_reads_the_answers_of_this_an_older_and_a_newer_server() {
    for form in ["full", "old", "new"] {
        let client = server(form);
        call_tenants_and_keys(&client).await;
        call_events(&client).await;
        call_subscriptions(&client).await;
        call_deliveries(&client).await;
        call_replays(&client).await;
        call_catalogue_and_erasures(&client, form).await;
        call_operations(&client).await;
        call_figures(&client).await;
        let query = StreamQuery {
            outcome: Some(AttemptOutcome::Failed),
            destination: text(),
            body: Some("no".to_owned()),
        };
        let mut stream = client.stream_of(&query).await.unwrap();
        let mut told = Vec::new();
        while let Some(happening) = stream.next().await {
            told.push(happening.unwrap());
        }
        let is_attempt = |one: &Happening| matches!(one, Happening::Attempt { .. });
        assert_eq!(told.iter().filter(|one| is_attempt(one)).count(), 1, "{form}: {told:?}");
        assert_eq!(told.len(), if form == "new" { 2 } else { 1 }, "{form}: {told:?}");
    }
}

#[tokio::test]
#[ignore = "needs a server: cargo xtask clients"]
async fn answer_of_an_older_server_lacks_what_came_later() {
    let subscription = server("old").subscriptions().get("s").await.unwrap();
    assert_eq!((subscription.effective_policy, subscription.uid), (None, None));
    assert_eq!(subscription.policy, SubscriptionPolicy::default());
    assert!(server("old").rates().await.unwrap().is_empty());
    let delivery = server("new").deliveries().get("d").await.unwrap();
    assert_eq!(delivery.state, DeliveryState::Unknown);
}
