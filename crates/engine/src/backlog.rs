//! Counts unfinished deliveries per tenant and in total, for the quotas: acceptance must not outrun
//! delivery without bound.
//!
//! An account is the store's ledger as it was last read, plus what was accepted on this node since.
//! It is read again when the second part has grown to a quarter of a quota, while a quota refuses,
//! and in a cluster after some seconds. So it never counts too little, except for acceptances that
//! run while it is read and for those of other nodes since: a quota is exceeded by no more than
//! that. **Nothing here waits**: whether an event is admitted is decided from memory.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use postrider_domain::event::Event;
use postrider_domain::ids::TenantId;
use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_store::Store;
use postrider_transport::{Clock, pause};
use tokio::sync::Notify;

use crate::own_limits::OwnLimits;
use crate::quotas::{Quota, QuotaReached, Quotas, Refusals};

/// How many tenants have accounts in memory before small accounts are dropped.
const ACCOUNTS_MAX: usize = 10_000;
/// The pause between two readings of accounts.
const READ_EVERY: Duration = Duration::from_millis(500);
/// In a cluster an account is read again after this time.
const STALE_AFTER: Duration = Duration::from_secs(10);
/// The `Retry-After` if it is not known how fast the backlog shrinks.
const RETRY_AFTER: Duration = Duration::from_secs(30);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// The assumed size of a delivery whose event is not known.
const BYTES_UNKNOWN: u64 = 1024;

pub(crate) struct Backlog {
    pub(crate) quotas: Quotas,
    /// Limits that tenants have instead.
    own: Arc<OwnLimits>,
    pub(crate) refusals: Refusals,
    is_cluster: bool,
    tenants: RwLock<HashMap<TenantId, Arc<Account>>>,
    total: Arc<Account>,
    /// The accounts to be read from the store; `None` is that of all tenants together.
    stale: Mutex<BTreeSet<Option<TenantId>>>,
    notice: Notify,
    /// Held while a replay is checked against its quota and stored, so that two cannot take the
    /// last place.
    pub(crate) admitting: tokio::sync::Mutex<()>,
}

/// The account of one tenant, or of all tenants together.
#[derive(Debug, Default)]
struct Account {
    queued: AtomicU64,
    unfinished: AtomicU64,
    /// Accepted since the ledger was read.
    since: AtomicU64,
    /// Bytes of all unfinished deliveries. An estimate: ended deliveries count with the average
    /// size.
    bytes: AtomicU64,
    /// When the ledger was read, in milliseconds since the epoch; 0 is never.
    read_at: AtomicU64,
    is_asked: AtomicBool,
    /// How many deliveries ended per thousand seconds.
    ended_per_1000_seconds: AtomicU64,
}

/// What a batch adds to an account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Owed {
    deliveries: u64,
    bytes: u64,
}

impl Owed {
    /// Adds an event that goes to this many subscriptions.
    pub(crate) fn add(&mut self, event: &Event, subscriptions: usize) {
        let deliveries = u64::try_from(subscriptions).unwrap_or(u64::MAX);
        let old = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        let size = event.data.as_bytes().len().saturating_add(old);
        let bytes = deliveries.saturating_mul(u64::try_from(size).unwrap_or(u64::MAX));
        self.deliveries = self.deliveries.saturating_add(deliveries);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The three quotas of a tenant, and the same three of the server.
const OF_TENANT: [Quota; 3] =
    [Quota::TenantQueued, Quota::TenantUnfinished, Quota::TenantUnfinishedBytes];
const OF_ALL: [Quota; 3] = [Quota::Queued, Quota::Unfinished, Quota::UnfinishedBytes];

impl Backlog {
    pub(crate) fn new(quotas: Quotas, own: &Arc<OwnLimits>, store: &dyn Store) -> Self {
        Backlog {
            quotas,
            own: Arc::clone(own),
            refusals: Refusals::default(),
            is_cluster: store.node().is_some(),
            tenants: RwLock::default(),
            total: Arc::default(),
            stale: Mutex::default(),
            notice: Notify::new(),
            admitting: tokio::sync::Mutex::default(),
        }
    }

    /// Checks whether a batch of a tenant is within the quotas; counts it if so.
    pub(crate) fn admit(
        &self,
        tenant: &TenantId,
        owed: Owed,
        now: Timestamp,
    ) -> Result<(), QuotaReached> {
        let Owed { deliveries: more, bytes } = owed;
        if more == 0 || !self.limits_anything() {
            return Ok(());
        }
        let account = self.account(tenant);
        self.admit_to(Some(tenant), &account, OF_TENANT, (more, bytes), now)?;
        if let Err(reached) = self.admit_to(None, &self.total, OF_ALL, (more, bytes), now) {
            account.take_back(more, bytes);
            return Err(reached);
        }
        Ok(())
    }

    /// Checks a batch that was admitted as `before`, and makes other deliveries now.
    pub(crate) fn admit_instead(
        &self,
        tenant: &TenantId,
        before: Owed,
        owed: Owed,
        now: Timestamp,
    ) -> Result<(), QuotaReached> {
        if before.deliveries > 0 && self.limits_anything() {
            self.account(tenant).take_back(before.deliveries, before.bytes);
            self.total.take_back(before.deliveries, before.bytes);
        }
        self.admit(tenant, owed, now)
    }

    /// An estimate of the bytes of a tenant's unfinished deliveries.
    pub(crate) fn bytes_of(&self, tenant: &TenantId, ledger: &Ledger) -> u64 {
        let accounts = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        let unfinished = ledger.queued + ledger.waiting;
        match accounts.get(tenant) {
            Some(account) => account.bytes_at(unfinished),
            None => unfinished.saturating_mul(BYTES_UNKNOWN),
        }
    }

    /// The value of a quota for a tenant: its own, or the server's.
    pub(crate) fn limit(&self, tenant: Option<&TenantId>, quota: Quota) -> u64 {
        let own = tenant.and_then(|tenant| self.own.of(tenant).quota(quota));
        own.unwrap_or_else(|| self.quotas.of(quota))
    }

    fn limits_anything(&self) -> bool {
        self.own.is_used()
            || OF_TENANT.iter().chain(&OF_ALL).any(|quota| self.quotas.of(*quota) < u64::MAX)
    }

    fn admit_to(
        &self,
        whose: Option<&TenantId>,
        account: &Account,
        quotas: [Quota; 3],
        (more, bytes): (u64, u64),
        now: Timestamp,
    ) -> Result<(), QuotaReached> {
        let since = account.since.fetch_add(more, Relaxed) + more;
        let bytes_now = account.bytes.fetch_add(bytes, Relaxed) + bytes;
        let (queued, unfinished) = (account.queued.load(Relaxed), account.unfinished.load(Relaxed));
        let used = [queued + since, unfinished + since, bytes_now];
        let limits = quotas.map(|quota| self.limit(whose, quota));
        let reached = (0..3).find(|&n| used[n] > limits[n]);
        let is_due = since >= limits[0] / 4 || bytes_now >= limits[2] / 4 && since > more * 64;
        if reached.is_some() || is_due || account.is_stale(now, self.is_cluster) {
            self.ask_for(whose, account);
        }
        let Some(n) = reached else { return Ok(()) };
        account.take_back(more, bytes);
        self.refusals.count(quotas[n]);
        let excess = if n == 2 { more } else { used[n] - limits[n] };
        let retry_after = account.retry_after(excess);
        Err(QuotaReached { quota: quotas[n], limit: limits[n], retry_after })
    }

    fn account(&self, tenant: &TenantId) -> Arc<Account> {
        let accounts = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.get(tenant) {
            return Arc::clone(account);
        }
        drop(accounts);
        let mut accounts = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if accounts.len() >= ACCOUNTS_MAX {
            // A dropped account is read from the store when it is needed again.
            let little = self.quotas.tenant_queued / 10;
            accounts.retain(|_, account| account.count() > little);
        }
        Arc::clone(accounts.entry(tenant.clone()).or_default())
    }

    fn ask_for(&self, whose: Option<&TenantId>, account: &Account) {
        if !account.is_asked.swap(true, Relaxed) {
            let mut stale = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
            stale.insert(whose.cloned());
            drop(stale);
            self.notice.notify_one();
        }
    }

    /// Reads the requested accounts until the engine shuts down.
    pub(crate) async fn follow(self: Arc<Self>, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
        loop {
            self.notice.notified().await;
            let stale =
                std::mem::take(&mut *self.stale.lock().unwrap_or_else(PoisonError::into_inner));
            for whose in stale {
                let account = match &whose {
                    Some(tenant) => self.account(tenant),
                    None => Arc::clone(&self.total),
                };
                // Events accepted from here on may be missing in the ledger that is read.
                let since = account.since.load(Relaxed);
                if let Ok(ledger) = store.ledger(whose.as_ref()).await {
                    account.read(&ledger, since, clock.now());
                }
                account.is_asked.store(false, Relaxed);
            }
            pause(READ_EVERY).await;
        }
    }
}

impl Account {
    fn count(&self) -> u64 {
        self.unfinished.load(Relaxed).saturating_add(self.since.load(Relaxed))
    }

    fn is_stale(&self, now: Timestamp, is_cluster: bool) -> bool {
        let read_at = self.read_at.load(Relaxed);
        let ms = u64::try_from(now.as_unix_ms()).unwrap_or(0);
        let stale_ms = u64::try_from(STALE_AFTER.as_millis()).unwrap_or(u64::MAX);
        read_at == 0 || is_cluster && ms.saturating_sub(read_at) >= stale_ms
    }

    fn take_back(&self, more: u64, bytes: u64) {
        less(&self.since, more);
        less(&self.bytes, bytes);
    }

    /// The bytes of this many deliveries, at the average size.
    fn bytes_at(&self, unfinished: u64) -> u64 {
        let (bytes, count) = (self.bytes.load(Relaxed), self.count());
        if count == 0 {
            return unfinished.saturating_mul(BYTES_UNKNOWN);
        }
        let share = u128::from(bytes) * u128::from(unfinished) / u128::from(count);
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn read(&self, ledger: &Ledger, since: u64, now: Timestamp) {
        let unfinished = ledger.queued + ledger.waiting;
        let now_ms = u64::try_from(now.as_unix_ms()).unwrap_or(0);
        let before_ms = self.read_at.swap(now_ms.max(1), Relaxed);
        let before = self.unfinished.load(Relaxed).saturating_add(since);
        if before_ms == 0 {
            // Deliveries from before the start are assumed to have the average size of those since.
            let came = self.since.load(Relaxed).max(1);
            let average = (self.bytes.load(Relaxed) / came).max(1);
            let earlier = unfinished.saturating_sub(since).saturating_mul(average);
            self.bytes.fetch_add(earlier, Relaxed);
        } else {
            let ended = before.saturating_sub(unfinished);
            let ms = now_ms.saturating_sub(before_ms).max(1);
            self.ended_per_1000_seconds.store(ended.saturating_mul(1_000_000) / ms, Relaxed);
            let left = u128::from(self.bytes.load(Relaxed)) * u128::from(ended)
                / u128::from(before.max(1));
            less(&self.bytes, u64::try_from(left).unwrap_or(u64::MAX));
        }
        self.queued.store(ledger.queued, Relaxed);
        self.unfinished.store(unfinished, Relaxed);
        less(&self.since, since);
    }

    /// How long it takes until this many deliveries have ended, at the last known rate.
    fn retry_after(&self, excess: u64) -> Duration {
        match self.ended_per_1000_seconds.load(Relaxed) {
            0 => RETRY_AFTER,
            rate => Duration::from_secs(excess.saturating_mul(1000).div_ceil(rate))
                .clamp(Duration::from_secs(1), RETRY_AFTER_MAX),
        }
    }
}

/// Subtracts, but not below zero.
fn less(from: &AtomicU64, by: u64) {
    let before = from.fetch_update(Relaxed, Relaxed, |n| Some(n.saturating_sub(by)));
    debug_assert!(before.is_ok(), "the closure never declines");
}

#[cfg(test)]
mod tests {
    use postrider_store_testing::memory::MemoryStore;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_ms(seconds * 1000)
    }

    fn backlog(quotas: Quotas) -> Backlog {
        Backlog::new(quotas, &Arc::default(), &MemoryStore::default())
    }

    fn ledger(queued: u64, waiting: u64) -> Ledger {
        Ledger { accepted: queued + waiting, queued, waiting, ..Ledger::default() }
    }

    fn admit(backlog: &Backlog, more: u64, bytes: u64) -> Result<(), QuotaReached> {
        let account = backlog.account(&TenantId::default_tenant());
        let whose = TenantId::default_tenant();
        backlog.admit_to(Some(&whose), &account, OF_TENANT, (more, bytes), at(100))
    }

    #[test]
    fn account_counts_the_ledger_and_the_acceptances_since() {
        let quotas = Quotas { tenant_queued: 100, ..Quotas::default() };
        let backlog = backlog(quotas);
        assert!(admit(&backlog, 60, 0).is_ok());
        let refused = admit(&backlog, 60, 0).unwrap_err();
        assert_eq!((refused.quota, refused.limit), (Quota::TenantQueued, 100));
        assert_eq!(refused.retry_after, RETRY_AFTER, "nothing is known of the pace yet");
        assert!(admit(&backlog, 40, 0).is_ok(), "what was refused is not counted");
        let account = backlog.account(&TenantId::default_tenant());
        account.read(&ledger(100, 0), 100, at(100));
        assert!(admit(&backlog, 1, 0).is_err());
        // 40 ended within ten seconds: 30 too many take eight seconds.
        account.read(&ledger(60, 0), 0, at(110));
        assert_eq!(admit(&backlog, 70, 0).unwrap_err().retry_after, Duration::from_secs(8));
        assert!(admit(&backlog, 40, 0).is_ok());
    }

    #[test]
    fn waiting_deliveries_count_as_unfinished_and_not_as_queued() {
        let quotas = Quotas { tenant_queued: 10, tenant_unfinished: 100, ..Quotas::default() };
        let backlog = backlog(quotas);
        let account = backlog.account(&TenantId::default_tenant());
        account.read(&ledger(0, 95), 0, at(1));
        assert!(admit(&backlog, 5, 0).is_ok());
        assert_eq!(admit(&backlog, 5, 0).unwrap_err().quota, Quota::TenantUnfinished);
    }

    #[test]
    fn bytes_shrink_with_the_deliveries_that_ended() {
        let quotas = Quotas { tenant_unfinished_bytes: 1_000, ..Quotas::default() };
        let backlog = backlog(quotas);
        let account = backlog.account(&TenantId::default_tenant());
        account.read(&ledger(0, 0), 0, at(1));
        assert!(admit(&backlog, 10, 1_000).is_ok());
        assert_eq!(admit(&backlog, 1, 1).unwrap_err().quota, Quota::TenantUnfinishedBytes);
        account.read(&ledger(0, 5), 10, at(2));
        assert_eq!(account.bytes.load(Relaxed), 500);
        assert!(admit(&backlog, 1, 500).is_ok());
    }

    #[test]
    fn deliveries_from_before_the_start_count_with_the_average_size() {
        let quotas = Quotas { tenant_unfinished_bytes: 10_000, ..Quotas::default() };
        let backlog = backlog(quotas);
        assert!(admit(&backlog, 2, 200).is_ok());
        let account = backlog.account(&TenantId::default_tenant());
        account.read(&ledger(52, 0), 2, at(1));
        assert_eq!(account.bytes.load(Relaxed), 5_200);
    }

    #[test]
    fn small_accounts_are_dropped() {
        let backlog = backlog(Quotas { tenant_queued: 100, ..Quotas::default() });
        for n in 0..=ACCOUNTS_MAX {
            backlog
                .account(&format!("t{n}").parse().unwrap())
                .since
                .store(u64::from(n == 7) * 50, Relaxed);
        }
        assert_eq!(backlog.tenants.read().unwrap().len(), 2, "the large one and the last one");
    }
}
