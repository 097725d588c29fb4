//! Accepts events: matches them, makes them durable, hands them over. Runs on the caller's task.
//!
//! After an `Ok` the events and all their deliveries are durable. A batch is accepted or refused as
//! a whole.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_domain::catalogue::{EventMark, Misfit};
use postrider_domain::delivery::Delivery;
use postrider_domain::event::{Event, EventType, RawJson};
use postrider_domain::ids::{DeliveryId, EventId, ObjectId, SubscriptionId, TenantId};
use postrider_domain::limits;
use postrider_domain::matching::{Matched, TooMuch, Work};
use postrider_domain::time::Timestamp;
use postrider_domain::token_bucket::TokenBuckets;
use postrider_domain::trace::TraceContext;
use postrider_domain::workfront;
use postrider_store::{Acceptance, Accepted, Store, StoreError};
use postrider_transport::Clock;
use sha2::{Digest, Sha256};

use crate::backlog::{Backlog, Owed};
use crate::cluster::Refresher;
use crate::entropy::{Entropy, ten};
use crate::heavy::{Busy, Heavy};
use crate::inbox::{Inbox, Pending};
use crate::misfits::Misfits;
use crate::notices::Notices;
use crate::options::{IngestRate, Options};
use crate::quotas::QuotaReached;
use crate::spans::{Accepting, Spans};

/// An event as the application sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The application's identifier, if it gave one.
    pub id: Option<EventId>,
    /// The event's type.
    pub kind: EventType,
    /// The object that it happened to.
    pub object: Option<ObjectId>,
    /// The new state.
    pub data: RawJson,
    /// The state before.
    pub old: Option<RawJson>,
    /// When it happened; the current time if the application does not say.
    pub time: Option<Timestamp>,
    /// The trace context of the request, if it had one.
    pub trace: Option<TraceContext>,
    /// Why it does not fit the catalogue, where it is accepted all the same.
    pub flagged: Option<Misfit>,
}

/// The result for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// Its identifier.
    pub id: EventId,
    /// How many deliveries it has.
    pub deliveries: u32,
    /// Whether it was accepted before.
    pub duplicate: bool,
}

/// Why nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The identifier belongs to a different event.
    #[error("event {index} has an identifier that was used for another event")]
    Conflict {
        /// The index of the event in the batch.
        index: usize,
    },
    /// Applications cannot send Postrider's own events.
    #[error("event {index} has a type that begins with postrider., which is reserved")]
    Reserved {
        /// The index of the event in the batch.
        index: usize,
    },
    /// More events than a batch may have.
    #[error("a batch holds at most {} events", limits::BATCH_EVENTS_MAX)]
    TooMany,
    /// The tenant exceeds its rate limit.
    #[error("too many events: try again in {} ms", retry_after.as_millis())]
    TooFast {
        /// When it may send again.
        retry_after: Duration,
    },
    /// Too many large events wait to be matched.
    #[error(transparent)]
    Busy(#[from] Busy),
    /// Too many deliveries are unfinished.
    #[error(transparent)]
    Quota(#[from] QuotaReached),
    /// The engine is shutting down.
    #[error("the server is stopping")]
    Stopping,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Whether the tenant's quotas are checked. Postrider's own events are exempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checked {
    Yes,
    No,
}

/// The parts that accepting events needs.
pub(crate) struct Ingest {
    store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// The directory of subscriptions, kept up to date.
    pub(crate) refresher: Arc<Refresher>,
    inbox: Arc<Inbox>,
    /// The threads on which large events are matched.
    pub(crate) heavy: Heavy,
    /// Notices to tenants whose filters exceed their budget.
    pub(crate) notices: Notices,
    spans: Option<Arc<dyn Spans>>,
    /// The server's limit of a tenant's events.
    pub(crate) rate: Option<IngestRate>,
    rates: Mutex<TokenBuckets<TenantId>>,
    /// The counts of unfinished deliveries.
    pub(crate) backlog: Arc<Backlog>,
    /// The counts of events that did not fit the catalogue.
    pub(crate) misfits: Misfits,
}

impl Ingest {
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        clock: &Arc<dyn Clock>,
        entropy: &Arc<dyn Entropy>,
        refresher: &Arc<Refresher>,
        inbox: &Arc<Inbox>,
        options: &Options,
        (notices, spans): (Notices, Option<Arc<dyn Spans>>),
    ) -> Ingest {
        Ingest {
            store: Arc::clone(store),
            clock: Arc::clone(clock),
            entropy: Arc::clone(entropy),
            refresher: Arc::clone(refresher),
            inbox: Arc::clone(inbox),
            heavy: Heavy::new(options.matching_threads),
            notices,
            spans,
            rate: options.tenant_ingest,
            rates: Mutex::new(TokenBuckets::new(BUCKETS_MAX)),
            backlog: Arc::new(Backlog::new(
                options.quotas,
                &refresher.directory.own_limits,
                &**store,
            )),
            misfits: Misfits::default(),
        }
    }

    /// Accepts a batch of one tenant's events.
    pub(crate) async fn ingest(
        &self,
        tenant: &TenantId,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Ingested>, IngestError> {
        if events.len() > limits::BATCH_EVENTS_MAX {
            return Err(IngestError::TooMany);
        }
        if let Some(index) = events.iter().position(|event| event.kind.is_reserved()) {
            return Err(IngestError::Reserved { index });
        }
        self.admit(tenant, events.len())?;
        self.take(tenant, events, Checked::Yes).await
    }

    /// Accepts Postrider's own events, without checking the tenant's quotas.
    pub(crate) async fn accept(
        &self,
        tenant: &TenantId,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Ingested>, IngestError> {
        self.take(tenant, events, Checked::No).await
    }

    async fn take(
        &self,
        tenant: &TenantId,
        mut events: Vec<NewEvent>,
        checked: Checked,
    ) -> Result<Vec<Ingested>, IngestError> {
        let (now, version) = (self.clock.now(), self.refresher.directory.version());
        let spans = self.spans.as_ref();
        let spans = spans.map(|spans| Accepting::begin(spans, &*self.entropy, &mut events));
        let mut batch: Vec<Acceptance> =
            events.into_iter().map(|event| self.acceptance(tenant, event, now)).collect();
        let (matched, admitted) =
            self.match_within(tenant, &batch, (checked, Owed::default()), now).await?;
        let mut over_budget = self.owe(&mut batch, matched, now);
        let mut pending = self.begin(tenant, &batch);
        let made = match self.make_durable(&batch, version).await {
            // A subscription was changed by another node: match again, with all changes from before
            // these events.
            Ok(None) => {
                pending.forget();
                self.refresher.catch_up().await?;
                let (matched, _) =
                    self.match_within(tenant, &batch, (checked, admitted), now).await?;
                over_budget = self.owe(&mut batch, matched, now);
                pending = self.begin(tenant, &batch);
                self.store.accept(batch.clone()).await
            }
            Ok(Some(answers)) => Ok(answers),
            Err(error) => Err(error),
        };
        let answers = match made {
            Ok(answers) => answers,
            Err(error) => {
                // Only if the outcome is unknown may there be deliveries to read.
                if may_have_happened(&error) {
                    pending.doubt();
                } else {
                    pending.forget();
                }
                return Err(error.into());
            }
        };
        if let Some(index) = answers.iter().position(|a| *a == Accepted::Conflict) {
            pending.forget();
            return Err(IngestError::Conflict { index });
        }
        for (n, subscription) in over_budget {
            if let (Some(Accepted::New), Some(acceptance)) = (answers.get(n), batch.get(n)) {
                self.refresher.directory.count_over_budget();
                self.notices.note(tenant, subscription, &acceptance.event.id, now);
            }
        }
        let mut items = Vec::new();
        let ingested =
            batch.into_iter().zip(answers).enumerate().map(|(n, (acceptance, answer))| {
                let (event, id) = (Arc::clone(&acceptance.event), acceptance.event.id.clone());
                let (deliveries, duplicate) = match answer {
                    Accepted::Duplicate { deliveries } => (deliveries, true),
                    Accepted::New | Accepted::Conflict => {
                        let owed = acceptance.deliveries;
                        let count = u32::try_from(owed.len()).unwrap_or(u32::MAX);
                        items.extend(owed.into_iter().map(|d| (Arc::clone(&acceptance.event), d)));
                        (count, false)
                    }
                };
                if let Some(spans) = &spans {
                    spans.accepted(n, tenant, (&id, &event.kind), (deliveries, duplicate));
                }
                Ingested { id, deliveries, duplicate }
            });
        let ingested = ingested.collect();
        pending.hand_over(items);
        Ok(ingested)
    }

    /// Keeps the counts of unfinished deliveries up to date until the engine shuts down.
    pub(crate) async fn follow_backlog(&self) {
        let backlog = Arc::clone(&self.backlog);
        backlog.follow(Arc::clone(&self.store), Arc::clone(&self.clock)).await;
    }

    fn begin(&self, tenant: &TenantId, batch: &[Acceptance]) -> Pending {
        let deliveries = batch.iter().flat_map(|acceptance| &acceptance.deliveries);
        let destinations: BTreeSet<_> = deliveries.map(|delivery| delivery.destination).collect();
        self.inbox.begin(tenant, destinations.into_iter().collect())
    }

    async fn make_durable(
        &self,
        batch: &[Acceptance],
        version: u64,
    ) -> Result<Option<Vec<Accepted>>, StoreError> {
        self.store.accept_as_of(batch.to_vec(), version).await
    }

    fn acceptance(&self, tenant: &TenantId, new: NewEvent, now: Timestamp) -> Acceptance {
        let (fingerprint, id_given) = (fingerprint(&new), new.id.is_some());
        let event = Arc::new(Event {
            id: new.id.unwrap_or_else(|| EventId::new(now, ten(&*self.entropy))),
            tenant: tenant.clone(),
            kind: new.kind,
            object: new.object,
            data: new.data,
            old: new.old,
            time: new.time.unwrap_or(now),
            trace: new.trace,
        });
        let mark = EventMark { flagged: new.flagged, erased_at: None };
        Acceptance { event, accepted_at: now, fingerprint, id_given, mark, deliveries: Vec::new() }
    }

    /// Matches a batch, and checks the quotas for what it owes instead of `before`: before the
    /// deliveries are created, because a refused batch that matches thousands of subscriptions must
    /// not cost the memory of its deliveries.
    async fn match_within(
        &self,
        tenant: &TenantId,
        batch: &[Acceptance],
        (checked, before): (Checked, Owed),
        now: Timestamp,
    ) -> Result<(Vec<Matched>, Owed), IngestError> {
        let events: Vec<_> = batch.iter().map(|one| Arc::clone(&one.event)).collect();
        let matched = self.matched(tenant, &events).await?;
        let owed = owed(batch, &matched, now);
        if checked == Checked::Yes {
            self.backlog.admit_instead(tenant, before, owed, now)?;
        }
        Ok((matched, owed))
    }

    /// Creates the deliveries of each event; returns which filters exceeded their budget on which
    /// event.
    fn owe(
        &self,
        batch: &mut [Acceptance],
        matched: Vec<Matched>,
        now: Timestamp,
    ) -> Vec<(usize, SubscriptionId)> {
        let mut over_budget = Vec::new();
        for (n, (acceptance, matched)) in batch.iter_mut().zip(matched).enumerate() {
            let deliveries = matched.subscriptions.iter().flat_map(|subscription| {
                workfront::owed(subscription, now).map(move |version| (subscription, version))
            });
            let deliveries = deliveries.map(|(subscription, version)| {
                let random = workfront::mark(ten(&*self.entropy), version);
                let id = DeliveryId::new(now, random);
                let (whom, to) = (subscription.id, subscription.destination);
                Delivery::accepted(id, &acceptance.event, whom, to, now)
            });
            acceptance.deliveries = deliveries.collect();
            over_budget.extend(matched.over_budget.into_iter().map(|id| (n, id)));
        }
        over_budget
    }

    /// The subscriptions that get each of these events. More than light work runs on separate
    /// threads, so that no other request waits for it.
    pub(crate) async fn matched(
        &self,
        tenant: &TenantId,
        events: &[Arc<Event>],
    ) -> Result<Vec<Matched>, Busy> {
        let Some(index) = self.refresher.directory.snapshot(tenant) else {
            return Ok(vec![Matched::default(); events.len()]);
        };
        let mut light = Work::light();
        let matched = events.iter().map(|event| index.matches(event, &mut light));
        if let Ok(matched) = matched.collect::<Result<_, TooMuch>>() {
            return Ok(matched);
        }
        let events = events.to_vec();
        let work = move || {
            let mut work = Work::whole();
            let matched = events.iter().map(|event| index.matches(event, &mut work));
            // `TooMuch` is returned only for light work.
            matched.map(Result::unwrap_or_default).collect()
        };
        self.heavy.run(tenant, work).await
    }

    fn admit(&self, tenant: &TenantId, events: usize) -> Result<(), IngestError> {
        let own = self.refresher.directory.own_limits.of(tenant).events_per_second;
        let own = own.map(|per_second| IngestRate { per_second, burst: per_second });
        let Some(rate) = own.or(self.rate) else { return Ok(()) };
        let now = self.clock.now();
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let events = u64::try_from(events).unwrap_or(u64::MAX);
        let taken = rates.take(tenant.clone(), (rate.per_second, rate.burst), events, now);
        taken.map_err(|at| IngestError::TooFast { retry_after: at.since(now) })
    }
}

/// How many deliveries a batch makes, and how many bytes they are.
fn owed(batch: &[Acceptance], matched: &[Matched], now: Timestamp) -> Owed {
    let mut all = Owed::default();
    for (acceptance, matched) in batch.iter().zip(matched) {
        let subscriptions = matched.subscriptions.iter();
        let deliveries = subscriptions.map(|one| workfront::owed(one, now).len()).sum();
        all.add(&acceptance.event, deliveries);
    }
    all
}

/// How many tenants have rate-limit buckets in memory before full ones are dropped.
const BUCKETS_MAX: usize = 10_000;

/// A digest that distinguishes a repeat of an event from another event with the same identifier.
fn fingerprint(event: &NewEvent) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut part = |bytes: Option<&[u8]>| match bytes {
        None => hash.update([0]),
        Some(bytes) => {
            hash.update([1]);
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(bytes);
        }
    };
    part(Some(event.kind.as_str().as_bytes()));
    part(event.object.as_ref().map(|object| object.as_str().as_bytes()));
    part(Some(event.data.as_bytes()));
    part(event.old.as_ref().map(|old| old.as_bytes().as_ref()));
    part(event.time.map(|time| time.as_unix_ms().to_be_bytes()).as_ref().map(|time| &time[..]));
    hash.finalize().into()
}

/// Whether a write that failed with this error may have happened.
fn may_have_happened(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(_) => true,
        StoreError::DiskFull { .. }
        | StoreError::NotWritable { .. }
        | StoreError::Locked { .. }
        | StoreError::NewerVersion { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Fenced { .. }
        | StoreError::Stopped(_)
        | StoreError::UnknownCursor
        | StoreError::Busy
        | StoreError::TooSlow(_)
        | StoreError::Internal(_) => false,
    }
}
