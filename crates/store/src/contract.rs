//! The contract of a store, in the order of an event's life. Every method is one transaction.
//!
//! A method returns durable data only, and its answer includes everything that was acknowledged
//! before the call. A write that returns `Ok` is on stable storage. A write that returns an error did
//! not happen, except with [`StoreError::Unavailable`]: then its outcome is unknown, and repeating it
//! is safe, because a write that is repeated has the same effect as one. (A store that never returns
//! `Unavailable` need not recognise a repeated commit, or a repeated acceptance under an identifier
//! that Postrider made.)
//!
//! Lists that are newest first are ordered by time of creation (acceptance), then by identifier,
//! both descending; timelines by the order of writing, last first. A caller that follows the cursors
//! of a list gets every entry that existed at the start exactly once, whatever is added meanwhile. A
//! cursor stays valid when its entry is removed and when the store is opened again. A malformed cursor
//! is answered with [`StoreError::UnknownCursor`].
//!
//! A page has as many entries as were asked for, or ends early where its entries are together
//! larger than [`PAGE_BYTES_MAX`](postrider_domain::limits::PAGE_BYTES_MAX); it has at least one. A
//! read for a tenant is refused with [`StoreError::Busy`] while too many reads of that tenant wait,
//! and ends with [`StoreError::TooSlow`] where it takes too long. A read whose caller goes away
//! ends soon.
//!
//! A method treats records of other tenants as if they did not exist. No method checks that the
//! tenant itself exists: the caller asks [`Configuration::tenant`] first.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ObjectId, ReplayId, SubscriptionId, SubscriptionUid,
    TenantId,
};
use postrider_domain::ledger::Ledger;
use postrider_domain::limits::PAGE_MAX;
use postrider_domain::time::Timestamp;

use crate::audit::Audit;
use crate::documents::Documents;
use crate::erasing::Erasing;
use crate::error::StoreError;
use crate::nodes::Nodes;
use crate::overview::Overview;
use crate::passes::Passes;
use crate::records::{
    Acceptance, Accepted, Commit, DeliveryFilter, DestinationRecord, DueMark, EventFilter,
    EventRecord, IdempotentAnswer, Key, Page, PageRequest, Pruned, ReplayJob, ShardLeases,
    SubscriptionPut, SubscriptionRecord, TallyAt, Tenant, Usage, WaitingOrder,
};
use crate::statistics::Statistics;
use crate::summaries::Summaries;

/// A whole store: all of the traits below.
pub trait Store:
    Configuration
    + Intake
    + Work
    + History
    + Overview
    + Erasing
    + Replays
    + Usages
    + Audit
    + Documents
    + Passes
    + Statistics
    + Summaries
    + Upkeep
    + Nodes
{
}

impl<T> Store for T where
    T: Configuration
        + Intake
        + Work
        + History
        + Overview
        + Erasing
        + Replays
        + Usages
        + Audit
        + Documents
        + Passes
        + Statistics
        + Summaries
        + Upkeep
        + Nodes
{
}

/// The configuration: tenants, keys, subscriptions and their destinations.
#[async_trait]
pub trait Configuration: Send + Sync + 'static {
    /// Creates a tenant; `false` where it exists.
    async fn create_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError>;
    /// One tenant.
    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>, StoreError>;
    /// All tenants, by identifier.
    async fn tenants(&self, page: &PageRequest) -> Result<Page<Tenant>, StoreError>;
    /// Replaces the name and the details of a tenant; `false` where it does not exist. The time of its creation
    /// stays.
    async fn update_tenant(&self, tenant: &Tenant) -> Result<bool, StoreError>;
    /// Removes a tenant with its keys, passes, catalogue and statistics; `false` where it does not exist. Its subscriptions must be
    /// gone, not only marked: [`StoreError::Internal`] otherwise. Its destinations and ledger stay;
    /// history goes by retention.
    async fn delete_tenant(&self, id: &TenantId) -> Result<bool, StoreError>;

    /// Stores a new key; `false` where its identifier is taken.
    async fn create_key(&self, key: &Key) -> Result<bool, StoreError>;
    /// The key with this identifier, of any tenant: this is how a request finds its tenant.
    async fn key(&self, id: &str) -> Result<Option<Key>, StoreError>;
    /// Keys of a tenant, or the admin keys where it is `None`, newest first.
    async fn keys(
        &self,
        tenant: Option<&TenantId>,
        page: &PageRequest,
    ) -> Result<Page<Key>, StoreError>;
    /// Removes a key; `false` where the tenant (`None`: the admin keys) has no key with that id.
    async fn delete_key(&self, tenant: Option<&TenantId>, id: &str) -> Result<bool, StoreError>;
    /// Records when keys were last used. A time is never moved back, and unknown identifiers are
    /// ignored. The record may be lost in a crash.
    async fn touch_keys(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError>;

    /// Creates or replaces a subscription. Creates its destination too, unless that exists: an
    /// existing destination keeps its circuit. If another subscription of the tenant that is not
    /// deleted has its `uid`, or is its twin, nothing is written. The destination that it had before, and has
    /// no longer, is marked as unused since the subscription's last change, if nothing else uses it.
    async fn put_subscription(
        &self,
        record: &SubscriptionRecord,
        destination: &DestinationRecord,
    ) -> Result<SubscriptionPut, StoreError>;
    /// Replaces a subscription's record with the same one, sealed again with another key. Returns
    /// `false`, and writes nothing, where the stored record is no longer `before`.
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
    /// The subscription to which the application gave this identifier, deleted ones excluded.
    async fn subscription_by_uid(
        &self,
        tenant: &TenantId,
        uid: &SubscriptionUid,
    ) -> Result<Option<SubscriptionRecord>, StoreError>;
    /// Subscriptions of a tenant, newest first, deleted ones excluded.
    async fn subscriptions(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError>;
    /// Every subscription of every tenant, in any order, for the index in memory. Those that are
    /// marked as deleted are included until they are removed, so that their deletion is completed
    /// after a crash.
    async fn all_subscriptions(&self) -> Result<Vec<SubscriptionRecord>, StoreError>;
    /// Marks a subscription as deleted; `false` where it does not exist or is marked already. A
    /// marked subscription is nobody's twin.
    async fn mark_subscription_deleted(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
        now: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Removes a subscription that is marked as deleted and has no unfinished deliveries; does
    /// nothing otherwise. Its destination is marked as unused since the subscription was deleted, if nothing
    /// else uses it.
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
    /// Destinations of a tenant, newest first, without those that are marked as unused.
    async fn destinations(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError>;
    /// Marks destinations that nothing uses (no subscription and no unfinished delivery) as unused since
    /// `now`, where they are not marked yet, and takes the mark from those that something uses again. Returns
    /// destinations that are marked as unused since before `before`, at most `limit` of them.
    async fn unused_destinations(
        &self,
        now: Timestamp,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(TenantId, DestinationId)>, StoreError>;
    /// Removes a destination with its timeline and statistics if it is marked as unused since before `before` and nothing
    /// uses it; `false` otherwise. A later commit that changes its circuit has no effect.
    async fn remove_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        before: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Every destination in the shards of `leases`, in any order.
    async fn held_destinations(
        &self,
        leases: &ShardLeases,
    ) -> Result<Vec<DestinationRecord>, StoreError>;

    /// The stored answer for this idempotency key, or the note that a request with it has begun.
    async fn idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Result<Option<IdempotentAnswer>, StoreError>;
    /// Stores an answer, or the note that a request has begun. An earlier entry for the same key
    /// stays, unless it was stored before `since`, or it is a note and this is its answer. Returns
    /// the entry that is stored now.
    async fn keep_idempotent_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        answer: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError>;
    /// Removes answers that were stored before `before`. Of a tenant with more than `most` answers,
    /// or more than `bytes_most` bytes of them, it removes the oldest until the tenant is within
    /// both limits. Notes of requests that have begun count and are removed like answers. Returns
    /// how many were removed.
    async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError>;
}

/// Accepting events.
#[async_trait]
pub trait Intake: Send + Sync + 'static {
    /// Accepts a batch of one tenant's events with all their deliveries, together or not at all:
    /// where one of them is a conflict, nothing of the batch is written. The answers are in order.
    /// The same identifier twice in a batch is a duplicate of the first, or a conflict with it.
    /// The other events of a batch with a conflict are answered as if the conflict were not there.
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError>;
}

/// The queues of deliveries, and settling their attempts.
#[async_trait]
pub trait Work: Send + Sync + 'static {
    /// Queued deliveries in the shards of `leases`, by acceptance (time, then identifier), after
    /// the given mark. The list has every delivery that was acknowledged before the call.
    async fn queued(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// Queued deliveries of one destination, in the same order, after the mark.
    async fn queued_of(
        &self,
        destination: DestinationId,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
    /// Waiting deliveries in the shards of `leases` whose due time is after the mark and not after
    /// `until`, by due time, then identifier.
    async fn due(
        &self,
        leases: &ShardLeases,
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
    /// no such event. One whose payload was erased has no `data`.
    async fn events(
        &self,
        ids: &[(TenantId, EventId)],
    ) -> Result<Vec<Option<Arc<Event>>>, StoreError>;
    /// Applies a commit, all of it or nothing. It is refused with [`StoreError::Fenced`] where the
    /// node does not hold a shard that it touches: the shard is not in `leases`, or its epoch there is
    /// stale. The caller settles only what the store has: accepted deliveries, with their stored state
    /// as `before`, and destinations and jobs that were put. A change of a destination that was removed has no
    /// effect.
    async fn settle(&self, leases: &ShardLeases, commit: Commit) -> Result<(), StoreError>;
}

/// Reading events, deliveries, attempts and counters. Lists are newest first.
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
    /// Deliveries of a tenant's events of one object, of those that the filter selects. The cost follows the
    /// number of deliveries of this object that are read for the page.
    async fn deliveries_of_object(
        &self,
        tenant: &TenantId,
        object: &ObjectId,
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
    /// given; zero for a destination of another tenant.
    async fn waiting_counts(
        &self,
        tenant: &TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<u64>, StoreError>;
    /// The ledger of a tenant, or of all tenants for `None`. A store does not know what is in flight:
    /// such deliveries count as queued or waiting. Pruning does not change a ledger, which counts
    /// everything that was ever accepted.
    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError>;
    /// Counts from `since` to `until`, in spans of `step_minutes`, oldest first, without empty spans;
    /// of all tenants for `None`. Only whole minutes count: those that begin at or after `since` and
    /// before `until`. Spans begin at multiples of `step_minutes` since the epoch. Pruning may have
    /// removed old minutes.
    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError>;
}

/// Bulk replay jobs. Their progress and their outcomes move inside [`Work::settle`].
#[async_trait]
pub trait Replays: Send + Sync + 'static {
    /// Creates or replaces a job, without its outcomes.
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
    /// Every running job of every tenant, in any order: the engine resumes them after a start.
    async fn running_replays(&self) -> Result<Vec<ReplayJob>, StoreError>;
    /// The next deliveries that a job is to send, by identifier, after its position
    /// ([`ReplayJob::takes`]): those of its filter that had ended when it was created (at that time or
    /// before, and not replayed since); where the filter wants those that wait, the ones that were
    /// accepted by then and not attempted since.
    async fn replay_candidates(
        &self,
        job: &ReplayJob,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError>;
}

/// Counts that quotas need.
#[async_trait]
pub trait Usages: Send + Sync + 'static {
    /// How many keys, destinations and replay jobs a tenant has; for `None`, the number of admin keys.
    /// The cost grows with these numbers, not with the size of the store.
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
    /// always grants all shards.
    async fn hold_shards(&self) -> Result<ShardLeases, StoreError>;
    /// Releases all leases.
    async fn release_shards(&self) -> Result<(), StoreError>;
    /// Removes events that were accepted before `before` with their deliveries and attempts, where
    /// all of these have ended, and answers older than `before`. One call may remove only a part: call
    /// again until it removes nothing. A backend with a file or partition per UTC day may keep rows
    /// until the whole day can be removed.
    async fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError>;
    /// Writes a consistent copy of everything to a new directory, while the store stays in use.
    async fn backup(&self, target: &std::path::Path) -> Result<(), StoreError>;
    /// Overwrites the remains of earlier configuration in the store's files, so that an old secret
    /// cannot be read from them. Time and space grow with the configuration and the unfinished
    /// deliveries. On PostgreSQL this does nothing: the server's vacuum and backups decide.
    async fn erase_freed(&self) -> Result<(), StoreError>;
    /// Checks whether acceptance would succeed now, as far as that can be known.
    async fn check(&self) -> Result<(), StoreError>;
    /// Closes the store: everything acknowledged is durable, and files are closed.
    async fn close(&self) -> Result<(), StoreError>;
}
