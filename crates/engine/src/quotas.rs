//! The quotas of tenants and of the server: name, value and current use of each, and the refusal
//! when one is reached.
//!
//! A quota that belongs to a tenant refuses that tenant alone (429); one that belongs to the server
//! refuses everybody (503). Deleting something frees a quota at once. **A quota never removes
//! anything**: existing things stay, even if the quota is set below their number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::ids::{SubscriptionId, TenantId};
use postrider_store::{DocumentKind, ReplayJob, ReplayState, SubscriptionRecord};

use crate::handle::{CommandError, EngineHandle};

/// The `Retry-After` of a quota that only a deletion can free.
const RETRY_AFTER: Duration = Duration::from_secs(60);

macro_rules! quotas {
    ($($(#[$doc:meta])* $variant:ident, $field:ident = $name:literal, $setting:literal, $whose:ident, $default:expr, $what:literal, $remedy:literal;)*) => {
        /// The values of all quotas. The default limits nothing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Quotas {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Default for Quotas {
            fn default() -> Self {
                Quotas { $($field: u64::MAX,)* }
            }
        }

        impl Quotas {
            /// The default values of a server's configuration.
            pub const SENSIBLE: Quotas = Quotas { $($field: $default,)* };

            /// The value of a quota.
            pub const fn of(&self, quota: Quota) -> u64 {
                match quota { $(Quota::$variant => self.$field,)* }
            }
        }

        /// A quota.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Quota {
            $($(#[$doc])* $variant,)*
        }

        impl Quota {
            /// All quotas.
            pub const ALL: &[Quota] = &[$(Quota::$variant,)*];

            /// The name in the API.
            pub const fn name(self) -> &'static str {
                match self { $(Quota::$variant => $name,)* }
            }

            /// The name of its setting.
            pub const fn setting(self) -> &'static str {
                match self { $(Quota::$variant => $setting,)* }
            }

            /// Whether it applies to a tenant or to the server.
            pub const fn whose(self) -> Whose {
                match self { $(Quota::$variant => Whose::$whose,)* }
            }

            const fn what(self) -> &'static str {
                match self { $(Quota::$variant => $what,)* }
            }

            const fn remedy(self) -> &'static str {
                match self { $(Quota::$variant => $remedy,)* }
            }
        }
    };
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

quotas! {
    /// Subscriptions of one tenant.
    TenantSubscriptions, tenant_subscriptions = "subscriptions", "limits.tenant_subscriptions", Tenant, 10_000,
        "subscriptions of the tenant", "delete some, or ask the operator for more";
    /// Bytes of one tenant's subscriptions, as they are stored.
    TenantSubscriptionBytes, tenant_subscription_bytes = "subscription_bytes", "limits.tenant_subscription_bytes", Tenant, 64 * MIB,
        "bytes of the tenant's subscriptions", "delete some or make them smaller, or ask the operator for more";
    /// Subscriptions of all tenants.
    Subscriptions, subscriptions = "server_subscriptions", "limits.subscriptions", Server, 500_000,
        "subscriptions of all tenants", "try again later; the operator must raise the limit";
    /// Bytes of all tenants' subscriptions, as they are stored. All of them are in memory.
    SubscriptionBytes, subscription_bytes = "server_subscription_bytes", "limits.subscription_bytes", Server, GIB,
        "bytes of all tenants' subscriptions", "try again later; the operator must raise the limit";
    /// Destinations of one tenant.
    TenantDestinations, tenant_destinations = "destinations", "limits.tenant_destinations", Tenant, 50_000,
        "destinations of the tenant", "use URLs that the tenant has already, or ask the operator for more";
    /// Keys of one tenant.
    TenantKeys, tenant_keys = "keys", "limits.tenant_keys", Tenant, 1_000,
        "keys of the tenant", "delete keys that nobody uses";
    /// Tenants.
    Tenants, tenants = "server_tenants", "limits.tenants", Server, 100_000,
        "tenants", "delete tenants that nobody uses, or raise the limit";
    /// Bulk replays of one tenant that run at the same time.
    TenantReplaysRunning, tenant_replays_running = "replays_running", "limits.tenant_replays_running", Tenant, 10,
        "running replays of the tenant", "wait until one has finished, or cancel or pause one";
    /// Bulk replays of all tenants that run at the same time.
    ReplaysRunning, replays_running = "server_replays_running", "limits.replays_running", Server, 200,
        "running replays of all tenants", "wait until one has finished";
    /// Stored bulk replays of one tenant; beyond this the oldest ended ones are removed.
    TenantReplays, tenant_replays = "replays", "limits.tenant_replays", Tenant, 1_000,
        "replays of the tenant", "cancel replays that are paused";
    /// Event types of one tenant's catalogue; the server's own has the same limit.
    TenantEventTypes, tenant_event_types = "event_types", "limits.tenant_event_types", Tenant, 1_000,
        "event types of the tenant", "delete some, or ask the operator for more";
    /// Bytes of one tenant's catalogue, as it is stored.
    TenantEventTypeBytes, tenant_event_type_bytes = "event_type_bytes", "limits.tenant_event_type_bytes", Tenant, 8 * MIB,
        "bytes of the tenant's event types", "make schemas and examples smaller, or ask the operator for more";
    /// Event types of all catalogues.
    EventTypes, event_types = "server_event_types", "limits.event_types", Server, 100_000,
        "event types of all tenants", "try again later; the operator must raise the limit";
    /// Erasures of one tenant that are not finished.
    TenantErasuresOpen, tenant_erasures_open = "erasures_open", "limits.tenant_erasures_open", Tenant, 100,
        "unfinished erasures of the tenant", "wait until one has finished; erase by object rather than event by event";
    /// Erasures of all tenants that are not finished.
    ErasuresOpen, erasures_open = "server_erasures_open", "limits.erasures_open", Server, 10_000,
        "unfinished erasures of all tenants", "wait until one has finished";
    /// Deliveries of one tenant that wait for their first attempt.
    TenantQueued, tenant_queued = "queued", "limits.tenant_queued", Tenant, 500_000,
        "queued deliveries of the tenant", "send more slowly: events come in faster than their receivers take them";
    /// Deliveries of one tenant that have not ended.
    TenantUnfinished, tenant_unfinished = "unfinished", "limits.tenant_unfinished", Tenant, 10_000_000,
        "unfinished deliveries of the tenant", "cancel deliveries, delete subscriptions whose receivers are gone, or wait";
    /// Bytes of the events of one tenant's unfinished deliveries, once for each delivery.
    TenantUnfinishedBytes, tenant_unfinished_bytes = "unfinished_bytes", "limits.tenant_unfinished_bytes", Tenant, 64 * GIB,
        "bytes of the tenant's unfinished deliveries", "cancel deliveries, delete subscriptions whose receivers are gone, or wait";
    /// Deliveries of all tenants that wait for their first attempt.
    Queued, queued = "server_queued", "limits.queued", Server, 2_000_000,
        "queued deliveries of all tenants", "wait: events come in faster than they can be delivered";
    /// Deliveries of all tenants that have not ended.
    Unfinished, unfinished = "server_unfinished", "limits.unfinished", Server, 50_000_000,
        "unfinished deliveries of all tenants", "wait; the operator must make room";
    /// Bytes of the events of all unfinished deliveries, once for each delivery.
    UnfinishedBytes, unfinished_bytes = "server_unfinished_bytes", "limits.unfinished_bytes", Server, 256 * GIB,
        "bytes of all unfinished deliveries", "wait; the operator must make room";
}

/// What a quota applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// One tenant.
    Tenant,
    /// The whole server.
    Server,
}

/// Who started a bulk replay. Both kinds have the same limits, and are counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartedBy {
    /// A person or an application.
    Somebody,
    /// The engine itself, when an outage had ended.
    Itself,
}

impl StartedBy {
    /// Who started this job.
    fn of(job: &ReplayJob) -> Self {
        if job.is_of_outage() { StartedBy::Itself } else { StartedBy::Somebody }
    }
}

/// A quota that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {limit} {} is reached ({}): {}", quota.what(), quota.setting(), quota.remedy())]
pub struct QuotaReached {
    /// The quota.
    pub quota: Quota,
    /// Its value.
    pub limit: u64,
    /// When to try again.
    pub retry_after: Duration,
}

/// How much of a quota a tenant uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaUse {
    /// The quota.
    pub quota: Quota,
    /// The current use.
    pub used: u64,
    /// The limit; `None` for no limit.
    pub limit: Option<u64>,
    /// Whether it is the tenant's own limit, and not the server's.
    pub is_own: bool,
}

/// How often each quota refused something.
#[derive(Debug)]
pub(crate) struct Refusals([AtomicU64; Quota::ALL.len()]);

impl Default for Refusals {
    fn default() -> Self {
        Refusals(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Refusals {
    pub(crate) fn count(&self, quota: Quota) {
        if let Some(count) = self.0.get(quota as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn all(&self) -> impl Iterator<Item = (Quota, u64)> {
        Quota::ALL.iter().copied().zip(self.0.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// The number and the size of subscriptions in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionSum {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
}

impl SubscriptionSum {
    fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The sums over the subscriptions of each tenant, and of all. They follow the directory, so in a
/// cluster changes by other nodes are included a moment later.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionSums(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    tenants: HashMap<TenantId, SubscriptionSum>,
    total: SubscriptionSum,
    sizes: HashMap<SubscriptionId, u64>,
}

impl SubscriptionSums {
    /// Adds or replaces a subscription.
    pub(crate) fn put(&self, record: &SubscriptionRecord) {
        let (tenant, bytes) = (&record.subscription.tenant, bytes_of(record));
        let mut sums = self.sums();
        sums.forget(tenant, record.subscription.id);
        sums.sizes.insert(record.subscription.id, bytes);
        sums.tenants.entry(tenant.clone()).or_default().add(bytes);
        sums.total.add(bytes);
    }

    /// Removes a subscription.
    pub(crate) fn remove(&self, tenant: &TenantId, id: SubscriptionId) {
        self.sums().forget(tenant, id);
    }

    /// The sums of a tenant, and of all tenants.
    pub(crate) fn of(&self, tenant: &TenantId) -> (SubscriptionSum, SubscriptionSum) {
        let sums = self.sums();
        (sums.tenants.get(tenant).copied().unwrap_or_default(), sums.total)
    }

    /// The sums as they would be with this subscription instead of the one with its identifier.
    fn with(&self, record: &SubscriptionRecord) -> (SubscriptionSum, SubscriptionSum) {
        let sums = self.sums();
        let bytes = bytes_of(record);
        let mut held = sums.tenants.get(&record.subscription.tenant).copied().unwrap_or_default();
        let mut total = sums.total;
        for held in [&mut held, &mut total] {
            if let Some(before) = sums.sizes.get(&record.subscription.id) {
                held.remove(*before);
            }
            held.add(bytes);
        }
        (held, total)
    }

    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sums {
    fn forget(&mut self, tenant: &TenantId, id: SubscriptionId) {
        let Some(bytes) = self.sizes.remove(&id) else { return };
        self.total.remove(bytes);
        if let Some(held) = self.tenants.get_mut(tenant) {
            held.remove(bytes);
            if held.count == 0 {
                self.tenants.remove(tenant);
            }
        }
    }
}

/// The stored size of a subscription; in memory it takes a few times that.
fn bytes_of(record: &SubscriptionRecord) -> u64 {
    let body = serde_json::to_vec(&record.subscription).map_or(0, |body| body.len());
    u64::try_from(body + record.credentials.len()).unwrap_or(u64::MAX)
}

impl EngineHandle {
    /// Refuses a change of a tenant, or of none, after which `used` would exceed the quota.
    pub fn check_quota(
        &self,
        tenant: Option<&TenantId>,
        quota: Quota,
        used: u64,
    ) -> Result<(), QuotaReached> {
        let limit = self.shared.ingest.backlog.limit(tenant, quota);
        if used <= limit {
            return Ok(());
        }
        self.shared.ingest.backlog.refusals.count(quota);
        Err(QuotaReached { quota, limit, retry_after: RETRY_AFTER })
    }

    /// How often each quota refused something since the start.
    pub fn quota_refusals(&self) -> Vec<(Quota, u64)> {
        self.shared.ingest.backlog.refusals.all().collect()
    }

    /// How much of each of its quotas a tenant uses.
    pub async fn quota_use(&self, tenant: &TenantId) -> Result<Vec<QuotaUse>, CommandError> {
        let shared = &self.shared;
        let stored = shared.store.usage(Some(tenant)).await?;
        let ledger = shared.store.ledger(Some(tenant)).await?;
        let count = |kind| shared.store.count_documents(kind, Some(tenant));
        let types = count(DocumentKind::EventType).await?;
        let erasures = count(DocumentKind::Erasure).await?;
        let running = match stored.replays_running {
            0 => Vec::new(),
            _ => shared.store.running_replays().await?,
        };
        let is_counted =
            |job: &&ReplayJob| job.tenant == *tenant && StartedBy::of(job) == StartedBy::Somebody;
        let replays_running = running.iter().filter(is_counted).count();
        let replays_running = u64::try_from(replays_running).unwrap_or(u64::MAX);
        let (held, _) = shared.directory.subscription_sums.of(tenant);
        let bytes = shared.ingest.backlog.bytes_of(tenant, &ledger);
        let own = shared.directory.own_limits.of(tenant);
        let used = |quota| match quota {
            Quota::TenantSubscriptions => Some(held.count),
            Quota::TenantSubscriptionBytes => Some(held.bytes),
            Quota::TenantDestinations => Some(stored.destinations),
            Quota::TenantKeys => Some(stored.keys),
            Quota::TenantReplaysRunning => Some(replays_running),
            Quota::TenantReplays => Some(stored.replays),
            Quota::TenantEventTypes => Some(types.count),
            Quota::TenantEventTypeBytes => Some(types.bytes),
            Quota::TenantErasuresOpen => Some(erasures.open),
            Quota::TenantQueued => Some(ledger.queued),
            Quota::TenantUnfinished => Some(ledger.queued + ledger.waiting),
            Quota::TenantUnfinishedBytes => Some(bytes),
            Quota::Subscriptions
            | Quota::SubscriptionBytes
            | Quota::Tenants
            | Quota::ReplaysRunning
            | Quota::EventTypes
            | Quota::ErasuresOpen
            | Quota::Queued
            | Quota::Unfinished
            | Quota::UnfinishedBytes => None,
        };
        let all = Quota::ALL.iter().filter_map(|&quota| {
            let limit = shared.ingest.backlog.limit(Some(tenant), quota);
            let limit = Some(limit).filter(|limit| *limit < u64::MAX);
            let is_own = own.quota(quota).is_some();
            Some(QuotaUse { quota, used: used(quota)?, limit, is_own })
        });
        Ok(all.collect())
    }

    /// Whether a tenant may store this subscription. Each tenant has one change at a time on each
    /// node, so together they can exceed a total only by the changes of a few milliseconds.
    pub(crate) async fn admit_subscription(
        &self,
        record: &SubscriptionRecord,
        is_destination_new: bool,
    ) -> Result<(), CommandError> {
        let tenant = &record.subscription.tenant;
        let (before, before_all) = self.shared.directory.subscription_sums.of(tenant);
        let (held, total) = self.shared.directory.subscription_sums.with(record);
        // A change that adds nothing is never refused.
        for (quota, before, after) in [
            (Quota::TenantSubscriptions, before.count, held.count),
            (Quota::TenantSubscriptionBytes, before.bytes, held.bytes),
            (Quota::Subscriptions, before_all.count, total.count),
            (Quota::SubscriptionBytes, before_all.bytes, total.bytes),
        ] {
            if after > before {
                self.check_quota(Some(tenant), quota, after)?;
            }
        }
        let backlog = &self.shared.ingest.backlog;
        let destinations_max = backlog.limit(Some(tenant), Quota::TenantDestinations);
        if is_destination_new && destinations_max < u64::MAX {
            let usage = self.shared.store.usage(Some(tenant)).await?;
            self.check_quota(Some(tenant), Quota::TenantDestinations, usage.destinations + 1)?;
        }
        Ok(())
    }

    /// Whether one more replay of a tenant may run; `is_new` if it is not stored yet. The oldest
    /// ended jobs are removed to make room for it.
    ///
    /// Jobs that the engine starts by itself after an outage are counted apart from those that
    /// somebody requests, each kind up to the same limits: so an outage of many destinations never
    /// refuses a person's replay.
    pub(crate) async fn admit_replay(
        &self,
        tenant: &TenantId,
        by: StartedBy,
        is_new: bool,
    ) -> Result<(), CommandError> {
        let store = &self.shared.store;
        let limit = |quota| self.shared.ingest.backlog.limit(Some(tenant), quota);
        let replays_max = limit(Quota::TenantReplays);
        if [Quota::TenantReplaysRunning, Quota::ReplaysRunning, Quota::TenantReplays]
            .iter()
            .all(|quota| limit(*quota) == u64::MAX)
        {
            return Ok(());
        }
        let mut running = store.running_replays().await?;
        running.retain(|job| StartedBy::of(job) == by);
        let count = |n: usize| u64::try_from(n.saturating_add(1)).unwrap_or(u64::MAX);
        let own = running.iter().filter(|job| job.tenant == *tenant).count();
        self.check_quota(Some(tenant), Quota::TenantReplaysRunning, count(own))?;
        self.check_quota(None, Quota::ReplaysRunning, count(running.len()))?;
        if is_new && store.usage(Some(tenant)).await?.replays >= replays_max {
            store.forget_replays(tenant, replays_max / 2).await?;
            let kept = store.usage(Some(tenant)).await?.replays;
            self.check_quota(Some(tenant), Quota::TenantReplays, kept.saturating_add(1))?;
        }
        Ok(())
    }

    /// Whether a paused replay may run again.
    pub(crate) async fn admit_resumed(
        &self,
        tenant: &TenantId,
        job: &ReplayJob,
    ) -> Result<(), CommandError> {
        match job.state {
            ReplayState::Paused => self.admit_replay(tenant, StartedBy::of(job), false).await,
            ReplayState::Running | ReplayState::Finished | ReplayState::Cancelled => Ok(()),
        }
    }
}
