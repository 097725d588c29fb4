//! The contract of a store, in the order of an event's life. Every method is one transaction.
//!
//! What a method answers is durable and includes everything that was acknowledged before it was
//! called. A write that answers `Ok` is on stable storage. A write that answers an error did not
//! happen, except where the error is [`StoreError::Unavailable`]: then it may have, and repeating
//! it is safe: it leaves the same behind as doing it once. (A store that never answers
//! `Unavailable` need not recognise a repeated commit, or a repeated acceptance under an identifier
//! that Postrider made.)
//!
//! Lists that are newest first are ordered by time of creation (acceptance), then by identifier,
//! both descending; timelines by the order of writing, last first. Who walks through a list by its
//! cursors meets everything that was there when they began exactly once, whatever is added
//! meanwhile; a cursor stays good when its entry is removed and when the store is opened anew. A
//! cursor that is none answers [`StoreError::UnknownCursor`].
//!
//! A page has as many entries as were asked for, or ends early where its entries are together larger
//! than [`PAGE_BYTES_MAX`](postrider_domain::limits::PAGE_BYTES_MAX); it has at least one. A read for
//! a tenant may be refused with [`StoreError::Busy`] where too many of that tenant's wait already, and
//! ends with [`StoreError::TooSlow`] where it takes too long. A read whose caller goes away ends soon.
//!
//! Whatever is another tenant's is answered as if it did not exist. Whether a tenant exists at all
//! is the caller's business: only [`Configuration::tenant`] and its neighbours know.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ReplayId, SubscriptionId, TenantId,
};
use postrider_domain::ledger::Ledger;
use postrider_domain::limits::PAGE_MAX;
use postrider_domain::time::Timestamp;

use crate::audit::Audit;
use crate::error::StoreError;
use crate::nodes::Nodes;
use crate::records::{
    Acceptance, Accepted, Commit, DeliveryFilter, DestinationRecord, DueMark, EventFilter,
    EventRecord, IdempotentAnswer, Key, Page, PageRequest, Pruned, ReplayJob, ShardLeases,
    SubscriptionPut, SubscriptionRecord, TallyAt, Tenant, Usage, WaitingOrder,
};

/// All of it.
pub trait Store:
    Configuration + Intake + Work + History + Replays + Usages + Audit + Upkeep + Nodes
{
}

impl<T: Configuration + Intake + Work + History + Replays + Usages + Audit + Upkeep + Nodes> Store
    for T
{
}

/// What people set up: tenants, keys, subscriptions and their destinations.
#[async_trait]
pub trait Configuration: Send + Sync + 'static {
    /// Creates a tenant; `false` where it exists.
    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError>;
    /// One tenant.
    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>, StoreError>;
    /// All tenants, by identifier.
    async fn tenants(&self, page: &PageRequest) -> Result<Page<Tenant>, StoreError>;
    /// Removes a tenant with its keys; `false` where it does not exist. Its subscriptions must be
    /// gone, not only marked: [`StoreError::Internal`] otherwise. Its destinations and ledger stay;
    /// history goes by retention.
    async fn delete_tenant(&self, id: &TenantId) -> Result<bool, StoreError>;

    /// Stores a new key; `false` where its identifier is taken.
    async fn create_key(&self, key: &Key) -> Result<bool, StoreError>;
    /// The key with this identifier, whosesoever it is: this is how a request finds its tenant.
    async fn key(&self, id: &str) -> Result<Option<Key>, StoreError>;
    /// Keys of a tenant, or the admin keys where it is `None`, newest first.
    async fn keys(
        &self,
        tenant: Option<&TenantId>,
        page: &PageRequest,
    ) -> Result<Page<Key>, StoreError>;
    /// Removes a key; `false` where the tenant (`None`: the admin keys) has none of that name.
    async fn delete_key(&self, tenant: Option<&TenantId>, id: &str) -> Result<bool, StoreError>;
    /// Notes when keys were last used, never moving a time back; identifiers without a key are
    /// passed over. May be lost in a crash.
    async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError>;

    /// Creates or replaces a subscription and creates its destination where that is new; one that
    /// exists is kept as it is, with its circuit. Where another subscription that is not deleted is
    /// its twin, nothing is written.
    async fn put_subscription(
        &self,
        record: &SubscriptionRecord,
        destination: &DestinationRecord,
    ) -> Result<SubscriptionPut, StoreError>;
    /// Replaces the record of a subscription by one that says the same, sealed anew; `false`, and
    /// nothing is written, where the stored record is no longer `before`.
    async fn reseal_subscription(
        &self,
        before: &SubscriptionRecord,
        after: &SubscriptionRecord,
    ) -> Result<bool, StoreError>;
    /// One subscription, deleted ones excluded.
    async fn subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Option<SubscriptionRecord>, StoreError>;
    /// Subscriptions of a tenant, newest first, deleted ones excluded.
    async fn subscriptions(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError>;
    /// Every subscription of every tenant, for the index in memory, in any order; those that are
    /// marked as deleted included, until they are removed, so that what was begun is ended after a
    /// crash.
    async fn all_subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError>;
    /// Marks a subscription as deleted; `false` where there is none, or it is marked already. From
    /// then on it has no twin.
    async fn mark_subscription_deleted(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Removes a subscription that was marked and has no unfinished deliveries any more; does
    /// nothing to any other.
    async fn remove_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<(), StoreError>;

    /// One destination.
    async fn destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
    ) -> Result<Option<DestinationRecord>, StoreError>;
    /// Destinations of a tenant, newest first.
    async fn destinations(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError>;
    /// Every destination in the shards that are held, in any order.
    async fn held_destinations(
        &self,
        holding: &ShardLeases,
    ) -> Result<Vec<DestinationRecord>, StoreError>;

    /// The answer that was given for this key of this tenant, or the note that a request has begun.
    async fn idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError>;
    /// Keeps an answer, or the note that a request has begun. An earlier one stays, unless it was
    /// kept before `since`, or is such a note and this is the answer. Returns what is kept.
    async fn keep_idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        answer: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError>;
    /// Removes answers that were kept before `before`, and of a tenant that has more than `most`
    /// answers, or more than `bytes_most` bytes of them, the oldest ones until it has no more. Notes
    /// of requests that have begun count, and are removed like answers. Returns how many were
    /// removed.
    async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError>;
}

/// Taking events in.
#[async_trait]
pub trait Intake: Send + Sync + 'static {
    /// Accepts a batch of one tenant's events with all their deliveries, together or not at all:
    /// where one of them is a conflict, nothing of the batch is written. The answers are in order.
    /// The same identifier twice in a batch is a duplicate of the first, or a conflict with it.
    /// Beside a conflict, the others are answered as if it were not there.
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError>;
}

/// The work of the lanes.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Queued deliveries in the shards that are held, by acceptance (time, then identifier), after
    /// the given mark. Lists every one that was acknowledged before the call.
    async fn queued(
        &self,
        holding: &ShardLeases,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// Queued deliveries of one destination, likewise.
    async fn queued_of(
        &self,
        destination: DestinationId,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// Waiting deliveries in the shards that are held that fall due after the mark and not later
    /// than `until`, by due time, then identifier.
    async fn due(
        &self,
        holding: &ShardLeases,
        after: Option<DueMark>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// Waiting deliveries of one destination, in the given order, then by identifier.
    async fn waiting_of(
        &self,
        destination: DestinationId,
        order: WaitingOrder,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// Unfinished deliveries of a subscription, in any order.
    async fn unfinished_of(
        &self,
        subscription: SubscriptionId,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// The events of deliveries that are to be attempted, in the order given; `None` where there is
    /// no such event.
    async fn events(
        &self,
        ids: &[(TenantId, EventId)],
    ) -> Result<Vec<Option<Arc<Event>>>, StoreError>;
    /// Applies a commit, all of it or nothing, unless a shard that it touches is no longer held:
    /// not listed in `holding`, or there with an epoch that is not the shard's. The caller settles
    /// only what the store has: deliveries that were accepted, with the state in which they stand
    /// as `before`, destinations that were put, a job that was put.
    async fn settle(&self, holding: &ShardLeases, commit: Commit) -> Result<(), StoreError>;
}

/// Looking back. Lists are newest first.
#[async_trait]
pub trait History: Send + Sync + 'static {
    /// One event.
    async fn event(
        &self,
        tenant: &TenantId,
        id: &EventId,
    ) -> Result<Option<EventRecord>, StoreError>;
    /// Events of a tenant.
    async fn list_events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError>;
    /// One delivery.
    async fn delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError>;
    /// Deliveries of a tenant.
    async fn list_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError>;
    /// How many deliveries the list would have.
    async fn count_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError>;
    /// How many deliveries of the list a replay would take: those whose subscription exists and is
    /// not marked as deleted.
    async fn count_replayable(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError>;
    /// Attempts of a delivery, oldest first. A cursor is the number of the last attempt before the
    /// page. A page ends early where its attempts are together larger than
    /// [`ATTEMPT_PAGE_BYTES_MAX`](postrider_domain::limits::ATTEMPT_PAGE_BYTES_MAX).
    async fn attempt_page(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
        page: &PageRequest,
    ) -> Result<Page<Attempt>, StoreError>;
    /// All attempts of a delivery, oldest first, however many there are.
    async fn attempts(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Result<Vec<Attempt>, StoreError> {
        let (mut all, mut page) = (Vec::new(), PageRequest { limit: PAGE_MAX, cursor: None });
        loop {
            let found = self.attempt_page(tenant, delivery, &page).await?;
            all.extend(found.items);
            page.cursor = found.next;
            if page.cursor.is_none() {
                return Ok(all);
            }
        }
    }
    /// The timeline of a destination.
    async fn transitions(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        page: &PageRequest,
    ) -> Result<Page<Transition>, StoreError>;
    /// How many deliveries are waiting (not queued) at each of these destinations, in the order
    /// given; none at what is not the tenant's.
    async fn waiting_counts(
        &self,
        tenant: &TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<u64>, StoreError>;
    /// The ledger of a tenant, or of all where it is `None`. Nothing is in flight in a store: what
    /// is, stands as queued or waiting here. Pruning changes no ledger: it tells of everything that
    /// was ever accepted.
    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError>;
    /// What happened from `since` to `until`, in spans of `step_minutes`, oldest first; spans in
    /// which nothing happened are left out. Of all tenants where it is `None`. Minutes count whole:
    /// those that begin at or after `since` and before `until`. Spans begin at multiples of
    /// `step_minutes` since the epoch. Minutes that pruning went past may be gone.
    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError>;
}

/// Bulk replay jobs. Their progress moves inside [`Work::settle`].
#[async_trait]
pub trait Replays: Send + Sync + 'static {
    /// Creates or replaces a job.
    async fn put_replay(&self, job: &ReplayJob) -> Result<(), StoreError>;
    /// One job.
    async fn replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<Option<ReplayJob>, StoreError>;
    /// Jobs of a tenant, newest first.
    async fn replays(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<ReplayJob>, StoreError>;
    /// Every job of every tenant that is running, to go on with after a start, in any order.
    async fn running_replays(&self) -> Result<Vec<ReplayJob>, StoreError>;
    /// The next deliveries that a job is to replay: those of its filter that had ended when it was
    /// created (at that time or before, and not replayed since), by identifier, after its position.
    async fn replay_candidates(
        &self,
        job: &ReplayJob,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
}

/// What quotas ask for.
#[async_trait]
pub trait Usages: Send + Sync + 'static {
    /// How much of what is limited a tenant has; the admin keys alone where it is `None`. Takes time in
    /// proportion to that and not to the store.
    async fn usage(&self, tenant: Option<&TenantId>) -> Result<Usage, StoreError>;
    /// How many tenants there are.
    async fn tenant_count(&self) -> Result<u64, StoreError>;
    /// Removes a tenant's replay jobs that have ended, but for the newest `keep` of them. Returns how
    /// many were removed.
    async fn forget_replays(&self, tenant: &TenantId, keep: u64) -> Result<u64, StoreError>;
}

/// Housekeeping.
#[async_trait]
pub trait Upkeep: Send + Sync + 'static {
    /// Takes or renews the leases of as many shards as this node should have. A store for one node
    /// gives all of them.
    async fn hold_shards(&self) -> Result<ShardLeases, StoreError>;
    /// Gives all leases back.
    async fn release_shards(&self) -> Result<(), StoreError>;
    /// Removes events that were accepted before `before` with their deliveries and attempts, where
    /// all of these have ended, and answers older than `before`. May do it in part; call again
    /// until it removes nothing. What is kept by days (UTC) may stay until its whole day can go.
    async fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError>;
    /// Writes a consistent copy of everything to a new directory while work goes on.
    async fn backup(&self, target: &std::path::Path) -> Result<(), StoreError>;
    /// Overwrites what changes of the configuration left behind in the store's files, so that an
    /// earlier value cannot be read from them. Takes time and space in proportion to the
    /// configuration and everything unfinished. A database server keeps its own files: there this
    /// does nothing, and its vacuum and its backups decide.
    async fn erase_freed(&self) -> Result<(), StoreError>;
    /// Whether acceptance would succeed now, as far as can be told.
    async fn check(&self) -> Result<(), StoreError>;
    /// Ends orderly: everything acknowledged is durable, files are closed.
    async fn close(&self) -> Result<(), StoreError>;
}
