//! `Idempotency-Key`

use std::task::{Context, Waker};
use std::time::Duration;

use postrider_store_testing::memory::Fault;
use serde_json::{Value, json};

use postrider_api::vault::SealContext;
use postrider_domain::ids::TenantId;
use postrider_store::{Configuration as _, IdempotentAnswer};
use postrider_transport::Clock as _;
use sha2::{Digest as _, Sha256};

use crate::support::{Answer, Api, Call, id};

#[tokio::test]
async fn the_same_request_again_gets_the_same_answer_and_does_nothing() {
    let api = Api::new().await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    let call = || api.post("/v1/subscriptions", body.clone()).header("idempotency-key", "k1");
    let first = call().send().await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (201, None));
    let again = call().send().await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (201, Some("true")));
    assert_eq!(again.text, first.text, "the secret included");
    assert_eq!(again.header("content-type"), first.header("content-type"));
    let list = api.get("/v1/subscriptions").expect(200).await;
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn another_request_with_the_same_key_is_refused() {
    let api = Api::new().await;
    let event = |n: u32| json!({"type": "a", "data": n});
    api.post("/v1/events", event(1)).header("idempotency-key", "k1").expect(202).await;
    let field = Some("idempotency-key");
    let other = [
        api.post("/v1/events", event(2)),
        api.post("/v1/events?x=1", event(1)),
        api.post("/v1/tenants", event(1)),
    ];
    for call in other {
        let call = call.header("idempotency-key", "k1");
        call.refused(409, "idempotency_conflict", field).await;
    }
    api.tenant("acme").await;
    let elsewhere = api.post("/v1/events", event(2)).tenant("acme");
    elsewhere.header("idempotency-key", "k1").expect(202).await;
    let bad = api.post("/v1/events", event(1)).header("idempotency-key", "with space");
    bad.refused(422, "invalid_field", field).await;
}

/// The digest that version 0.1.0 stored of a `POST` of this JSON.
fn plain_digest(path: &str, body: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in ["POST", path, "application/json", &body.to_string()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// The name under which the answer for an idempotency key of the admin key is stored.
fn stored_key(api: &Api, key: &str) -> String {
    format!("{}:{key}", api.admin.split('_').nth(1).unwrap())
}

#[tokio::test]
async fn stored_answer_does_not_give_away_what_was_sent() {
    let api = Api::new().await;
    let body = json!({"type": "person.updated", "data": {"name": "Ada"}});
    api.post("/v1/events", body.clone()).header("idempotency-key", "k").expect(202).await;
    let (tenant, key) = (TenantId::default_tenant(), stored_key(&api, "k"));
    let stored = api.store.idempotent_answer(&tenant, &key).await.unwrap().unwrap();
    assert!(stored.is_answer());
    assert_ne!(stored.request, plain_digest("/v1/events", &body), "a guess could be checked");
    let again = api.post("/v1/events", body.clone()).header("idempotency-key", "k").send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    // Another node with the same key ring recognises it too.
    let other = api.with_another_given_admin("a perfectly good admin key!");
    let again = other.post("/v1/events", body).header("idempotency-key", "k").send().await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn answers_and_notes_of_an_older_version_are_found() {
    let api = Api::new().await;
    let body = json!({"type": "a", "data": 1});
    let request = plain_digest("/v1/events", &body);
    let (tenant, created_at) = (TenantId::default_tenant(), api.clock.now());
    let since = created_at.saturating_sub(Duration::from_secs(1));
    let answered = stored_key(&api, "answered");
    let context = SealContext { tenant: &tenant, owner: &answered, field: "idempotent answer" };
    let answer = api.vault.seal(context, b"{\"id\":\"evt_1\"}").unwrap();
    let begun = stored_key(&api, "begun");
    for (key, status, body) in
        [(&answered, 202, answer), (&begun, IdempotentAnswer::BEGUN, vec![7; 32])]
    {
        let entry = IdempotentAnswer { request, status, body, created_at };
        api.store.keep_idempotent_answer(&tenant, key, &entry, since).await.unwrap();
    }
    let send = |key: &str| api.post("/v1/events", body.clone()).header("idempotency-key", key);
    let again = send("answered").response().await;
    assert_eq!(again.headers()["idempotency-replayed"], "true");
    let first = send("begun").send().await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (202, None));
    let again = send("begun").send().await;
    assert_eq!((&again.text, again.header("idempotency-replayed")), (&first.text, Some("true")));
    let other = api.post("/v1/events", json!({"type": "a", "data": 2}));
    let other = other.header("idempotency-key", "answered");
    other.refused(409, "idempotency_conflict", Some("idempotency-key")).await;
}

#[tokio::test]
async fn refusals_and_empty_answers_are_repeated_too() {
    let api = Api::new().await;
    let refused = || api.post("/v1/events", json!({})).header("idempotency-key", "k1");
    let first = refused().send().await;
    let again = refused().send().await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    let subscription = api.subscribe("a").await;
    let path = format!("/v1/subscriptions/{}", id(&subscription));
    for replayed in [None, Some("true")] {
        let answer = api.delete(&path).header("idempotency-key", "k2").send().await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("idempotency-replayed")),
            (204, replayed)
        );
        assert_eq!(answer.text, "");
    }
}

#[tokio::test]
async fn server_error_is_not_stored_and_a_repeat_may_succeed() {
    let api = Api::new().await;
    let call =
        || api.post("/v1/events", json!({"type": "a", "data": 1})).header("idempotency-key", "k");
    api.store.fail_next(postrider_store_testing::memory::Fault::DiskFull, 1);
    call().expect(503).await;
    api.store.heal();
    let answer = call().send().await;
    assert_eq!((answer.status.as_u16(), answer.header("idempotency-replayed")), (202, None));
}

#[tokio::test]
async fn concurrent_requests_with_one_key_have_one_effect() {
    let api = Api::new().await;
    let call = || {
        let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
        api.post("/v1/subscriptions", body).header("idempotency-key", "k").send()
    };
    let (first, second) = tokio::join!(call(), call());
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.text, second.text);
    let replayed = [&first, &second].map(|answer| answer.header("idempotency-replayed").is_some());
    assert_eq!(replayed.iter().filter(|replayed| **replayed).count(), 1);
}

#[tokio::test]
async fn a_key_is_forgotten_after_a_day() {
    let api = Api::new().await;
    let call = |n: u32| {
        api.post("/v1/events", json!({"type": "a", "data": n})).header("idempotency-key", "k")
    };
    call(1).expect(202).await;
    api.clock.advance(Duration::from_secs(24 * 3600));
    call(2).expect(202).await;
}

#[tokio::test]
async fn other_callers_do_not_get_the_answer() {
    let api = Api::new().await;
    let key = api.key("default", &["read"]).await;
    let body = json!({"url": "https://hooks.example.com/", "types": ["a"]});
    let call = || api.post("/v1/subscriptions", body.clone()).header("idempotency-key", "k");
    call().expect(201).await;
    call().key(&key).refused(403, "missing_scope", None).await;
}

/// A mutation with an idempotency key, and a count of its effects.
struct Mutation {
    name: &'static str,
    method: &'static str,
    path: String,
    body: Value,
    effects: fn(Value, &Value) -> usize,
    look: &'static str,
}

/// How many entries a list has in addition to those before.
fn entries(list: Value, before: &Value) -> usize {
    let count = |list: &Value| list["data"].as_array().unwrap().len();
    count(&list).abs_diff(count(before))
}

/// How often the secret of the first subscription was changed.
fn rotations(list: Value, before: &Value) -> usize {
    usize::from(list["data"][0]["updated_at"] != before["data"][0]["updated_at"])
}

async fn mutations(api: &Api) -> Vec<Mutation> {
    api.tenant("acme").await;
    let subscription = id(&api.subscribe("500").await);
    let key = id(&api.post("/v1/keys", json!({"scopes": ["read"]})).expect(201).await);
    let of = |name, method, path: &str, body, look| Mutation {
        name,
        method,
        path: path.to_owned(),
        body,
        effects: entries,
        look,
    };
    let url = "https://hooks.example.com/new";
    let new = json!({"url": url, "types": ["a"]});
    let events = json!([{"type": "b", "data": 1}, {"type": "b", "data": 2, "id": "given"}]);
    let rotate = format!("/v1/subscriptions/{subscription}/secret/rotate");
    let subscriptions = "/v1/subscriptions";
    vec![
        of("create a subscription", "POST", subscriptions, new, subscriptions),
        of(
            "delete a subscription",
            "DELETE",
            &format!("/v1/subscriptions/{subscription}"),
            json!(null),
            subscriptions,
        ),
        Mutation {
            effects: rotations,
            ..of("rotate a secret", "POST", &rotate, json!({}), subscriptions)
        },
        of("create a key", "POST", "/v1/keys", json!({"scopes": ["read"]}), "/v1/keys"),
        of("delete a key", "DELETE", &format!("/v1/keys/{key}"), json!(null), "/v1/keys"),
        of("create a tenant", "POST", "/v1/tenants", json!({"id": "new"}), "/v1/tenants"),
        of("delete a tenant", "DELETE", "/v1/tenants/acme", json!(null), "/v1/tenants"),
        of("send an event", "POST", "/v1/events", json!({"type": "b", "data": 1}), "/v1/events"),
        of("send a batch", "POST", "/v1/events/batch", events, "/v1/events"),
        of("start a replay", "POST", "/v1/replays", json!({}), "/v1/replays"),
    ]
}

impl Mutation {
    fn call<'a>(&self, api: &'a Api) -> Call<'a> {
        let call = api.call(self.method, &self.path).header("idempotency-key", "k");
        if self.body.is_null() { call } else { call.json(self.body.clone()) }
    }

    /// Repeats it twice: both get the same answer, which is `first` if there was one; and it had
    /// its effect once.
    async fn check(&self, api: &Api, before: &Value, first: Option<Answer>, how: &str) {
        let what = format!("{}, {how}", self.name);
        let second = self.call(api).send().await;
        assert!(second.status.is_success(), "{what}: {}", second.text);
        if let Some(first) = first.filter(|first| first.status.is_success()) {
            assert_eq!(second.text, first.text, "{what}");
        }
        let third = self.call(api).send().await;
        assert_eq!(third.header("idempotency-replayed"), Some("true"), "{what}");
        assert_eq!((third.status, &third.text), (second.status, &second.text), "{what}");
        let once = if self.name == "send a batch" { 2 } else { 1 };
        assert!(!second.text.contains("duplicate"), "{what}: {}", second.text);
        let after = api.get(self.look).expect(200).await;
        assert_eq!((self.effects)(after, before), once, "{what}");
    }
}

#[tokio::test]
async fn a_repeat_after_any_failed_write_has_the_effect_once_and_the_first_answer() {
    let names = mutations(&Api::new().await).await.len();
    for n in 0..names {
        for fault in [Fault::UnavailableBefore, Fault::UnavailableAfter] {
            for skip in 0..8 {
                let api = Api::new().await;
                let mutation = mutations(&api).await.swap_remove(n);
                let before = api.get(mutation.look).expect(200).await;
                // Later checks must have a later time.
                api.clock.advance(Duration::from_secs(1));
                api.store.fail_later(skip, fault, 1);
                let first = mutation.call(&api).send().await;
                api.store.heal();
                api.clock.advance(Duration::from_secs(1));
                let how = format!("{fault:?} after {skip} writes");
                mutation.check(&api, &before, Some(first), &how).await;
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_disconnects_at_any_moment_leaves_one_effect_and_its_answer() {
    let names = mutations(&Api::new().await).await.len();
    for n in 0..names {
        for polls in 0..16 {
            let api = Api::new().await;
            let mutation = mutations(&api).await.swap_remove(n);
            let before = api.get(mutation.look).expect(200).await;
            api.clock.advance(Duration::from_secs(1));
            let mut call = Box::pin(mutation.call(&api).response());
            for _ in 0..polls {
                tokio::select! {
                    biased;
                    _ = &mut call => break,
                    () = tokio::task::yield_now() => {}
                }
            }
            drop(call);
            mutation.check(&api, &before, None, &format!("cut after {polls} polls")).await;
        }
    }
}

#[tokio::test]
async fn a_mutation_without_a_key_runs_to_its_end_when_the_client_disconnects() {
    let api = Api::new().await;
    let mut call = Box::pin(api.post("/v1/tenants", json!({"id": "acme"})).response());
    let mut context = Context::from_waker(Waker::noop());
    assert!(call.as_mut().poll(&mut context).is_pending(), "it has begun, and has no answer yet");
    drop(call);
    api.until(async |api| api.get("/v1/tenants/acme").send().await.status == 200).await;
}

#[tokio::test]
async fn answers_are_forgotten_when_their_time_is_over() {
    let api = Api::new().await;
    let call =
        || api.post("/v1/events", json!({"type": "a", "data": 1})).header("idempotency-key", "k");
    let first = call().expect(202).await;
    api.clock.advance(Duration::from_secs(24 * 3600));
    let second = call().send().await;
    assert_eq!(second.header("idempotency-replayed"), None);
    assert_ne!(second.json["id"], first["id"], "it is another event");
    let third = call().send().await;
    assert_eq!(third.header("idempotency-replayed"), Some("true"), "and is remembered again");
    assert_eq!(third.json["id"], second.json["id"]);
}
