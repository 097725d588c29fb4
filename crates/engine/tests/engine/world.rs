//! A test world for the engine: a clock that follows tokio's, scripted receivers, and a store that
//! can crash.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{
    Answer, Attempt, BodyEnd, Ending, Failure, FailureClass, Finished, OwnFault, OwnFaultKind,
    Phase, RetryAfter, Timings,
};
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::destination::Destination;
use postrider_domain::event::RawJson;
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId, TenantId};
use postrider_domain::payload::Format;
use postrider_domain::policy::{CircuitPolicy, Policy};
use postrider_domain::signature::{SigningSecret, SigningSecrets};
use postrider_domain::subscription::Subscription;
use postrider_domain::time::Timestamp;
use postrider_engine::{
    Background, Credentials, CredentialsError, EngineHandle, Ingested, NewEvent, OpenCredentials,
    Options, Parts, SeededEntropy, Spans,
};
use postrider_store::{
    Configuration, DeliveryFilter, History, PageRequest, Store, SubscriptionPut, SubscriptionRecord,
};
use postrider_store_testing::memory::MemoryStore;
use postrider_test_support::samples;
use postrider_transport::{Clock, Request, Transport};
use tokio::sync::watch;
use tokio::time::Instant;
use zeroize::Zeroizing;

pub(crate) const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(crate) const TEN_MINUTES: Duration = Duration::from_secs(600);
pub(crate) const TOKEN: &str = "tok_secret_of_the_receiver";

/// A policy under which nothing is ever disabled.
pub(crate) fn never_disabled() -> Policy {
    let circuit = CircuitPolicy {
        disable_grace: u64::MAX,
        disable_consecutive: u64::MAX,
        ..CircuitPolicy::default()
    };
    Policy { circuit, ..Policy::default() }
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The offsets of the retries, as the contract lists them.
pub(crate) const OFFSETS_MS: [u64; 11] = [
    84_800,
    254_400,
    593_600,
    1_272_000,
    2_628_800,
    5_342_400,
    10_769_600,
    21_624_000,
    43_332_800,
    86_750_400,
    173_585_600,
];

/// A clock that follows tokio's.
pub(crate) struct TokioClock {
    begin: Instant,
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        START.saturating_add(self.begin.elapsed())
    }
}

/// The behaviour of a receiver.
#[derive(Debug, Clone)]
pub(crate) enum Mood {
    /// Answers with this status after this time.
    Answers(u16, Duration),
    /// Answers with this status and a `Retry-After` of this time.
    Later(u16, Duration),
    /// Answers 200 with this body.
    Says(&'static str),
    /// Never answers: the attempt times out.
    Hangs,
    /// Refuses the connection.
    Refuses,
    /// The attempt fails with a fault of our own.
    OurFault(OwnFaultKind),
    /// Waits for the gate, then answers with this status.
    Gated(u16),
}

pub(crate) const OK: Mood = Mood::Answers(200, Duration::ZERO);
pub(crate) const FAIL: Mood = Mood::Answers(500, Duration::ZERO);

/// A request that was sent.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) at: Timestamp,
    pub(crate) url: String,
    pub(crate) delivery: DeliveryId,
    pub(crate) body: Bytes,
    pub(crate) headers: HashMap<String, String>,
    /// How many requests were in flight at this URL, including this one.
    pub(crate) together: usize,
}

#[derive(Default)]
struct Receivers {
    moods: HashMap<String, Mood>,
    /// The first responses of each URL, one by one.
    scripts: HashMap<String, VecDeque<Mood>>,
    sent: Vec<Sent>,
    in_flight: HashMap<String, usize>,
    total: usize,
}

/// Scripted receivers.
pub(crate) struct Script {
    clock: Arc<TokioClock>,
    receivers: Mutex<Receivers>,
    gate: watch::Sender<bool>,
    pub(crate) keep_log: std::sync::atomic::AtomicBool,
}

struct Landing<'a>(&'a Script, String);

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut receivers = self.0.receivers.lock().unwrap();
        receivers.total -= 1;
        *receivers.in_flight.get_mut(&self.1).unwrap() -= 1;
    }
}

impl Script {
    fn new(clock: Arc<TokioClock>) -> Self {
        let keep_log = std::sync::atomic::AtomicBool::new(true);
        Script { clock, receivers: Mutex::default(), gate: watch::Sender::new(false), keep_log }
    }

    pub(crate) fn set(&self, url: &str, mood: Mood) {
        self.receivers.lock().unwrap().moods.insert(url.to_owned(), mood);
    }

    pub(crate) fn first(&self, url: &str, moods: impl IntoIterator<Item = Mood>) {
        let mut receivers = self.receivers.lock().unwrap();
        receivers.scripts.entry(url.to_owned()).or_default().extend(moods);
    }

    pub(crate) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.receivers.lock().unwrap().sent.clone()
    }

    pub(crate) fn sent_to(&self, url: &str) -> Vec<Sent> {
        self.sent().into_iter().filter(|sent| sent.url == url).collect()
    }

    pub(crate) fn forget(&self) {
        self.receivers.lock().unwrap().sent.clear();
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.receivers.lock().unwrap().total
    }

    pub(crate) fn in_flight_at(&self, url: &str) -> usize {
        self.receivers.lock().unwrap().in_flight.get(url).copied().unwrap_or(0)
    }

    fn take(&self, request: &Request) -> Mood {
        let url = request.target.url().as_str().to_owned();
        let text = |name: &str| {
            let found = request.headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.to_str().unwrap().to_owned())
        };
        let delivery: DeliveryId =
            text("webhook-id").unwrap().parse().expect("webhook-id is the delivery's id");
        let mut receivers = self.receivers.lock().unwrap();
        receivers.total += 1;
        let together = receivers.in_flight.entry(url.clone()).or_default();
        *together += 1;
        let together = *together;
        let mood = receivers.scripts.get_mut(&url).and_then(VecDeque::pop_front);
        let mood = mood.or_else(|| receivers.moods.get(&url).cloned()).unwrap_or(OK);
        if self.keep_log.load(std::sync::atomic::Ordering::Relaxed) {
            let headers = request.headers.iter().map(|(name, value)| {
                (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
            });
            let (at, headers, body) =
                (self.clock.now(), headers.collect(), request.body.to_bytes());
            receivers.sent.push(Sent { at, url, delivery, body, headers, together });
        }
        mood
    }
}

fn answer(status: u16, retry_after: Option<RetryAfter>, body: &'static str) -> Ending {
    let body = Bytes::from_static(body.as_bytes());
    Ending::Answered(Answer { status, retry_after, body, body_end: BodyEnd::Whole })
}

fn failed(class: FailureClass) -> Ending {
    Ending::Failed(Failure { class, detail: "as told".to_owned() })
}

impl Transport for Script {
    async fn send(&self, request: Request) -> Finished {
        let started_at = self.clock.now();
        let mood = self.take(&request);
        let _landing = Landing(self, request.target.url().as_str().to_owned());
        let ending = match mood {
            Mood::Answers(status, after) => {
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
                answer(status, None, "noted")
            }
            Mood::Later(status, delay) => answer(status, Some(RetryAfter::Delay(delay)), "later"),
            Mood::Says(body) => answer(200, None, body),
            Mood::Hangs => {
                tokio::time::sleep(request.deadline).await;
                failed(FailureClass::Timeout(Phase::Response))
            }
            Mood::Refuses => failed(FailureClass::Refused),
            Mood::OurFault(kind) => {
                Ending::OwnFault(OwnFault { kind, detail: "as told".to_owned() })
            }
            Mood::Gated(status) => {
                self.gate.subscribe().wait_for(|open| *open).await.unwrap();
                answer(status, None, "at last")
            }
        };
        let total = self.clock.now().since(started_at);
        Finished { started_at, timings: Timings { total, ..Timings::default() }, ending }
    }
}

/// Credentials with the same secret and token for every subscription.
pub(crate) struct SameForAll;

pub(crate) fn secret() -> SigningSecret {
    SigningSecret::generate_symmetric([7; 32])
}

impl Credentials for SameForAll {
    fn open(&self, record: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError> {
        if record.credentials == b"sealed by another key" {
            return Err(CredentialsError("unknown key".to_owned()));
        }
        let token = Some(Zeroizing::new(TOKEN.to_owned()));
        let headers = record.subscription.headers.clone();
        Ok(OpenCredentials {
            secrets: SigningSecrets::new(secret()),
            token,
            headers,
            identity: None,
        })
    }
}

/// An engine with everything around it.
pub(crate) struct World {
    pub(crate) engine: EngineHandle,
    pub(crate) store: MemoryStore,
    pub(crate) script: Arc<Script>,
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) policy: Policy,
    pub(crate) options: Options,
    seed: u64,
    subscriptions: u32,
}

impl World {
    pub(crate) async fn new() -> Self {
        World::with(Policy::default(), Options::default()).await
    }

    pub(crate) async fn with(policy: Policy, options: Options) -> Self {
        World::on(MemoryStore::default(), policy, options).await
    }

    pub(crate) async fn on(store: MemoryStore, policy: Policy, options: Options) -> Self {
        let clock = Arc::new(TokioClock { begin: Instant::now() });
        let script = Arc::new(Script::new(Arc::clone(&clock)));
        let engine = start(Arc::new(store.clone()), &clock, &script, &policy, &options, 0).await;
        World::of(engine, store, clock, script, policy, options)
    }

    /// A world whose traces are recorded.
    pub(crate) async fn recorded_by(spans: Arc<dyn Spans>) -> Self {
        World::altered(Options::default(), |parts| Parts { spans: Some(spans), ..parts }).await
    }

    /// A world whose engine has some other parts.
    pub(crate) async fn altered(options: Options, alter: impl FnOnce(Parts) -> Parts) -> Self {
        let (store, policy) = (MemoryStore::default(), Policy::default());
        let clock = Arc::new(TokioClock { begin: Instant::now() });
        let script = Arc::new(Script::new(Arc::clone(&clock)));
        let parts = alter(parts(Arc::new(store.clone()), &clock, &policy, &options, 0));
        let engine = postrider_engine::start(parts, Arc::clone(&script)).await.unwrap();
        World::of(engine, store, clock, script, policy, options)
    }

    fn of(
        engine: EngineHandle,
        store: MemoryStore,
        clock: Arc<TokioClock>,
        script: Arc<Script>,
        policy: Policy,
        options: Options,
    ) -> Self {
        World { engine, store, script, clock, policy, options, seed: 0, subscriptions: 0 }
    }

    /// The process ends now, and another one starts with the durable state.
    pub(crate) async fn crash(&mut self) {
        self.crash_for(Duration::ZERO).await;
    }

    /// The process ends, and another one starts after this downtime.
    pub(crate) async fn crash_for(&mut self, downtime: Duration) {
        let store = self.store.crash();
        self.reopen(store, downtime).await;
    }

    pub(crate) async fn reopen(&mut self, store: MemoryStore, downtime: Duration) {
        self.store = store;
        // Attempts that the old process has in flight are never reported.
        let script = Script::new(Arc::clone(&self.clock));
        {
            let (old, mut new) =
                (self.script.receivers.lock().unwrap(), script.receivers.lock().unwrap());
            new.moods = old.moods.clone();
            new.scripts = old.scripts.clone();
            new.sent = old.sent.clone();
        }
        self.script = Arc::new(script);
        if !downtime.is_zero() {
            tokio::time::sleep(downtime).await;
        }
        self.seed += 1;
        self.engine = start(
            Arc::new(self.store.clone()),
            &self.clock,
            &self.script,
            &self.policy,
            &self.options,
            self.seed,
        )
        .await;
        self.run_ready_tasks().await;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Advances the time.
    pub(crate) async fn pass(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
        self.run_ready_tasks().await;
    }

    pub(crate) async fn pass_until(&self, at: Timestamp) {
        self.pass(at.since(self.now())).await;
    }

    /// Runs all tasks that need no time.
    pub(crate) async fn run_ready_tasks(&self) {
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn subscribe(&mut self, url: &str) -> Subscription {
        let record = self.wish(url);
        self.put(record).await
    }

    pub(crate) async fn put(&self, record: SubscriptionRecord) -> Subscription {
        let subscription = record.subscription.clone();
        assert_eq!(self.engine.put_subscription(record).await.unwrap(), SubscriptionPut::Stored);
        subscription
    }

    /// A subscription to everything at this URL.
    pub(crate) fn wish(&mut self, url: &str) -> SubscriptionRecord {
        self.wish_of(&tenant(), url)
    }

    pub(crate) fn wish_of(&mut self, tenant: &TenantId, url: &str) -> SubscriptionRecord {
        self.subscriptions += 1;
        record(tenant, url, self.subscriptions, self.now())
    }

    pub(crate) async fn send(&self) -> Ingested {
        let mut ingested = self.send_many(1).await;
        ingested.remove(0)
    }

    pub(crate) async fn send_many(&self, n: usize) -> Vec<Ingested> {
        let mut all = Vec::new();
        let mut left = n;
        while left > 0 {
            let batch = left.min(1000);
            left -= batch;
            let events = (0..batch).map(|_| event("{\"n\": 1}")).collect();
            all.extend(self.engine.ingest(&tenant(), events).await.unwrap());
        }
        self.run_ready_tasks().await;
        all
    }

    pub(crate) async fn deliveries(&self) -> Vec<Delivery> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = PageRequest { limit: 1000, cursor };
            let filter = DeliveryFilter::default();
            let page = self.store.list_deliveries(&tenant(), &filter, &page).await.unwrap();
            all.extend(page.items);
            cursor = page.next;
            if cursor.is_none() {
                all.sort_by_key(|delivery| delivery.id);
                return all;
            }
        }
    }

    pub(crate) async fn delivery(&self, ingested: &Ingested) -> Delivery {
        let all = self.deliveries().await;
        let found: Vec<_> = all.into_iter().filter(|one| one.event == ingested.id).collect();
        assert_eq!(found.len(), 1, "one delivery of {}", ingested.id);
        found.into_iter().next().unwrap()
    }

    pub(crate) async fn attempts(&self, delivery: DeliveryId) -> Vec<Attempt> {
        self.store.attempts(&tenant(), delivery).await.unwrap()
    }

    pub(crate) async fn destination(&self, url: &str) -> Destination {
        let id = DestinationId::of(&tenant(), url);
        self.store.destination(&tenant(), id).await.unwrap().unwrap()
    }

    pub(crate) async fn state(&self, url: &str) -> &'static str {
        self.destination(url).await.state().as_str()
    }

    pub(crate) async fn count(&self, state: StateName) -> usize {
        self.deliveries().await.iter().filter(|one| one.state.name() == state).count()
    }

    /// Checks that the ledger balances.
    pub(crate) async fn check_ledger(&self) {
        let ledger = self.engine.ledger(Some(&tenant())).await.unwrap();
        assert!(ledger.balances(), "{ledger:?}");
    }

    /// Milliseconds from the first request to each request.
    pub(crate) fn offsets(&self, url: &str) -> Vec<u64> {
        let sent = self.script.sent_to(url);
        let first = sent.first().map_or(START, |sent| sent.at);
        sent.iter().map(|sent| u64::try_from(sent.at.since(first).as_millis()).unwrap()).collect()
    }

    /// Fails `n` attempts, of one delivery each, at this moment.
    pub(crate) async fn fail(&self, url: &str, n: usize) {
        self.script.set(url, FAIL);
        self.send_many(n).await;
        // The in-flight limit admits few at a time.
        for _ in 0..n {
            if self.script.sent_to(url).len() >= n {
                break;
            }
            self.run_ready_tasks().await;
        }
        self.run_ready_tasks().await;
    }
}

/// A subscription to every `task` event at this URL.
pub(crate) fn record(
    tenant: &TenantId,
    url: &str,
    number: u32,
    now: Timestamp,
) -> SubscriptionRecord {
    let mut random = [0; 10];
    random[6..].copy_from_slice(&number.to_be_bytes());
    let id = SubscriptionId::new(now, random);
    let sample = samples::subscription(id, tenant, url, &["task.*"], now);
    let subscription = Subscription { format: Format::Raw, ..sample };
    SubscriptionRecord { subscription, credentials: Vec::new(), deleted_at: None }
}

pub(crate) async fn start(
    store: Arc<dyn Store>,
    clock: &Arc<TokioClock>,
    script: &Arc<Script>,
    policy: &Policy,
    options: &Options,
    seed: u64,
) -> EngineHandle {
    let parts = parts(store, clock, policy, options, seed);
    postrider_engine::start(parts, Arc::clone(script)).await.unwrap()
}

fn parts(
    store: Arc<dyn Store>,
    clock: &Arc<TokioClock>,
    policy: &Policy,
    options: &Options,
    seed: u64,
) -> Parts {
    Parts {
        store,
        clock: Arc::clone(clock) as Arc<dyn Clock>,
        entropy: Arc::new(SeededEntropy::new(seed << 32)),
        credentials: Arc::new(SameForAll),
        policy: policy.clone(),
        options: options.clone(),
        spans: None,
        background: Background::default(),
    }
}

pub(crate) fn tenant() -> TenantId {
    TenantId::default_tenant()
}

pub(crate) fn event(data: &str) -> NewEvent {
    NewEvent {
        id: None,
        kind: "task.updated".parse().unwrap(),
        object: None,
        data: RawJson::parse(Bytes::copy_from_slice(data.as_bytes())).unwrap(),
        old: None,
        time: None,
        trace: None,
        flagged: None,
    }
}

/// The slot that a delivery waits for.
pub(crate) fn slot(delivery: &Delivery) -> u32 {
    let DeliveryState::Waiting(slot) = delivery.state else {
        panic!("not waiting: {delivery:?}");
    };
    slot.number
}
