//! The shared state of all routes. Clones share it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::egress::EgressPolicy;
use postrider_domain::policy::Policy;
use postrider_domain::time::Timestamp;
use postrider_engine::EngineHandle;
use postrider_store::{Change, Store};
use postrider_transport::{Clock, Egress, pause};
use tokio::sync::broadcast::error::RecvError;

use crate::audit::REFUSED_RATE;
use crate::auth::{GivenAdmin, KeyCache, Strangers};
use crate::budget::Budget;
use crate::catalogue::Catalogue;
use crate::erasing::Erasures;
use crate::gate::Gate;
use crate::live_feed::LiveFeed;
use crate::locks::Locks;
use crate::process::Process;
use crate::rates::Buckets;
use crate::routes::backup::BackupStatus;
use crate::running_mutations::RunningMutations;
use crate::session::PassCache;
use crate::settings::{ApiSettings, SIGN_IN_RATE};
use crate::vault::Vault;

/// The pause between two rounds of housekeeping.
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// The pause between two checks for running mutations.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Renders the metrics of the process, as Prometheus reads them.
pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// The parts of the API.
pub struct ApiParts {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The engine.
    pub engine: EngineHandle,
    /// The vault that seals secrets.
    pub vault: Vault,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The egress policy in effect.
    pub egress: Egress,
    /// The settings.
    pub settings: ApiSettings,
    /// An admin key that the operator chose.
    pub given_admin: Option<GivenAdmin>,
    /// Renders the metrics, if there are any.
    pub metrics: Option<RenderMetrics>,
    /// The key for the metrics; `None` if they need none.
    pub metrics_key: Option<GivenAdmin>,
    /// The process that serves it.
    pub process: Arc<dyn Process>,
}

/// The shared state of all routes.
#[derive(Clone)]
pub struct ApiState(Arc<Inner>);

struct Inner {
    parts: ApiParts,
    key_cache: KeyCache,
    locks: Locks,
    key_rates: Buckets,
    tenant_rates: Buckets,
    gate: Gate,
    request_bytes: Arc<Budget>,
    answer_bytes: Arc<Budget>,
    streams: Arc<Budget>,
    live_feed: LiveFeed,
    backups: BackupStatus,
    running: RunningMutations,
    refusal_rates: Buckets,
    passes: PassCache,
    sign_in_rates: Buckets,
    strangers: Strangers,
    catalogue: Catalogue,
    erasures: Erasures,
}

impl ApiState {
    /// A state of these parts.
    pub fn new(parts: ApiParts) -> Self {
        let key_rates = Buckets::new(parts.settings.key_rate);
        let tenant_rates = Buckets::new(parts.settings.tenant_rate);
        let gate = Gate::new(parts.settings.in_progress, parts.settings.in_progress_wait);
        let request_bytes = Budget::new("bytes of request bodies", parts.settings.request_bytes);
        let answer_bytes = Budget::new("bytes of answers", parts.settings.answer_bytes);
        let streams = Budget::new("streams", parts.settings.streams);
        ApiState(Arc::new(Inner {
            parts,
            key_cache: KeyCache::default(),
            locks: Locks::default(),
            key_rates,
            tenant_rates,
            gate,
            request_bytes,
            answer_bytes,
            streams,
            live_feed: LiveFeed::default(),
            backups: BackupStatus::default(),
            running: RunningMutations::default(),
            refusal_rates: Buckets::new(Some(REFUSED_RATE)),
            passes: PassCache::default(),
            sign_in_rates: Buckets::new(Some(SIGN_IN_RATE)),
            strangers: Strangers::default(),
            catalogue: Catalogue::default(),
            erasures: Erasures::default(),
        }))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.0.parts.store
    }

    pub(crate) fn engine(&self) -> &EngineHandle {
        &self.0.parts.engine
    }

    pub(crate) fn vault(&self) -> &Vault {
        &self.0.parts.vault
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.parts.clock.now()
    }

    /// By how much our time is ahead of the machine's clock, in milliseconds.
    pub(crate) fn clock_ahead_ms(&self) -> i64 {
        let clock = &self.0.parts.clock;
        clock.now().ms_from(clock.wall())
    }

    /// The numbers of the contract that are in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.0.parts.engine.policy()
    }

    pub(crate) fn egress(&self) -> Arc<EgressPolicy> {
        self.0.parts.egress.policy()
    }

    pub(crate) fn settings(&self) -> &ApiSettings {
        &self.0.parts.settings
    }

    pub(crate) fn given_admin(&self) -> Option<&GivenAdmin> {
        self.0.parts.given_admin.as_ref()
    }

    pub(crate) fn metrics(&self) -> Option<&RenderMetrics> {
        self.0.parts.metrics.as_ref()
    }

    pub(crate) fn metrics_key(&self) -> Option<&GivenAdmin> {
        self.0.parts.metrics_key.as_ref()
    }

    pub(crate) fn process(&self) -> &Arc<dyn Process> {
        &self.0.parts.process
    }

    pub(crate) fn key_cache(&self) -> &KeyCache {
        &self.0.key_cache
    }

    pub(crate) fn locks(&self) -> &Locks {
        &self.0.locks
    }

    pub(crate) fn key_rates(&self) -> &Buckets {
        &self.0.key_rates
    }

    pub(crate) fn backups(&self) -> &BackupStatus {
        &self.0.backups
    }

    /// The rate limits of audit entries for refused mutations.
    pub(crate) fn refusal_rates(&self) -> &Buckets {
        &self.0.refusal_rates
    }

    /// Sessions and links that were looked up.
    pub(crate) fn passes(&self) -> &PassCache {
        &self.0.passes
    }

    /// How often an address may try to sign in.
    pub(crate) fn sign_in_rates(&self) -> &Buckets {
        &self.0.sign_in_rates
    }

    /// The budgets for unknown keys and sessions.
    pub(crate) fn strangers(&self) -> &Strangers {
        &self.0.strangers
    }

    /// The catalogues of tenants.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.0.catalogue
    }

    /// The task that erases payloads.
    pub(crate) fn erasures(&self) -> &Erasures {
        &self.0.erasures
    }

    pub(crate) fn running(&self) -> &RunningMutations {
        &self.0.running
    }

    pub(crate) fn tenant_rates(&self) -> &Buckets {
        &self.0.tenant_rates
    }
}

impl ApiState {
    /// Removes records that other nodes delete from the caches, until the engine shuts down.
    pub async fn follow_changes(self) {
        let mut changes = self.engine().changes();
        loop {
            match changes.recv().await {
                Ok(Some(Change::Key(id))) => self.key_cache().forget_key(&id),
                Ok(Some(Change::Tenant(id))) => {
                    self.key_cache().forget_tenant(&id);
                    self.passes().forget_tenant(&id);
                    self.catalogue().forget(Some(&id));
                }
                Ok(Some(Change::Subscription(..))) => {}
                Ok(None) | Err(RecvError::Lagged(_)) => self.key_cache().forget_all(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Removes expired answers for idempotency keys and old entries of the audit log, every minute.
    pub async fn keep_house(self) {
        loop {
            pause(FORGET_EVERY).await;
            self.prune_audit().await;
            if let Err(error) = self.store().prune_passes(self.now()).await {
                // The next round does what this one could not.
                tracing::warn!(%error, "cannot remove expired sessions and links");
            }
            let settings = self.settings();
            let before = self.now().saturating_sub(settings.idempotency_memory);
            let (most, bytes_most) =
                (settings.tenant_answers_max, settings.tenant_answer_bytes_max);
            match self.store().forget_answers(before, most, bytes_most).await {
                Ok(forgotten) => tracing::debug!(forgotten, "answers for idempotency keys"),
                // The next round tries again.
                Err(error) => {
                    tracing::warn!(%error, "cannot remove old answers for idempotency keys")
                }
            }
        }
    }

    async fn prune_audit(&self) {
        let settings = self.settings();
        let before = self.now().saturating_sub(self.policy().retention.finished);
        let (most, refused_most) = (settings.tenant_audit_max, settings.tenant_audit_refused_max);
        match self.store().prune_audit(before, most, refused_most).await {
            Ok(removed) => tracing::debug!(removed, "entries of the audit log"),
            // The next round tries again.
            Err(error) => tracing::warn!(%error, "cannot remove old entries of the audit log"),
        }
    }

    /// Waits until all running mutations are completed, including those whose clients have
    /// disconnected.
    pub async fn finish_mutations(&self) {
        while self.running().count() > 0 {
            pause(LOOK_AGAIN).await;
        }
    }

    /// The permits for requests.
    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// The budget for bytes of request bodies.
    pub(crate) fn request_bytes(&self) -> &Arc<Budget> {
        &self.0.request_bytes
    }

    /// The budget for bytes of answers that clients have not read yet.
    pub(crate) fn answer_bytes(&self) -> &Arc<Budget> {
        &self.0.answer_bytes
    }

    /// The live feed.
    pub(crate) fn live_feed(&self) -> &LiveFeed {
        &self.0.live_feed
    }

    /// The budget for open streams.
    pub(crate) fn streams(&self) -> &Arc<Budget> {
        &self.0.streams
    }
}

impl fmt::Debug for ApiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiState").field("settings", &self.0.parts.settings).finish_non_exhaustive()
    }
}
