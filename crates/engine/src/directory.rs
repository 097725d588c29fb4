//! The subscriptions in memory: which of them want an event, and what sending to one needs.
//!
//! A lock is held for as long as a look-up lasts, never across an await and never while an event is
//! matched: that is done against a snapshot of the tenant's subscriptions. Whoever changes a
//! subscription has it stored first.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use http::{HeaderName, HeaderValue};
use postrider_domain::credentials::Scrubber;
use postrider_domain::egress::DestinationUrl;
use postrider_domain::ids::{DestinationId, SubscriptionId, TenantId};
use postrider_domain::matching::{SubscriptionIndex, TenantIndex};
use postrider_domain::signature::SigningSecrets;
use postrider_domain::subscription::{CustomHeader, RateLimit, Subscription};
use postrider_domain::trace;
use postrider_store::SubscriptionRecord;
use postrider_transport::{ClientIdentity, Target};
use zeroize::Zeroizing;

use crate::quotas::Holdings;

/// Opens the sealed credentials of a subscription. The layer above knows how they were sealed.
pub trait Credentials: Send + Sync + 'static {
    /// The secrets, the token and the headers.
    fn open(&self, record: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError>;
}

/// Credentials that cannot be opened. Attempts that need them fail as a fault of our own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the credentials of a subscription cannot be opened: {0}")]
pub struct CredentialsError(pub String);

/// What a subscription signs and identifies itself with.
#[derive(Clone)]
pub struct OpenCredentials {
    /// The signing secrets.
    pub secrets: SigningSecrets,
    /// The bearer token.
    pub token: Option<Zeroizing<String>>,
    /// Headers that are added to each request. Their values are secrets as well.
    pub headers: Vec<CustomHeader>,
    /// The client certificate and whom it believes, where it has its own.
    pub identity: Option<Arc<ClientIdentity>>,
}

impl fmt::Debug for OpenCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenCredentials(****)")
    }
}

/// A subscription with everything that can be prepared once for all its attempts.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) keys: Result<Keys, CredentialsError>,
}

/// What attempts for a subscription are signed with, and what identifies us to its receiver.
///
/// All but the signing secrets were given for the subscription's present URL: an attempt to another
/// destination goes without them.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) secrets: SigningSecrets,
    /// Custom headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the headers name a trace; ours is not sent then.
    pub(crate) has_own_trace: bool,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) scrubber: Scrubber,
    /// Its own URL with its own identity, where it has one.
    pub(crate) target: Option<Arc<Target>>,
}

/// Every subscription that is not deleted.
pub(crate) struct Directory {
    credentials: Arc<dyn Credentials>,
    index: RwLock<SubscriptionIndex>,
    prepared: RwLock<HashMap<SubscriptionId, Arc<Prepared>>>,
    /// What the subscriptions of each tenant come to.
    pub(crate) holdings: Holdings,
    /// Every change of the configuration up to this one is in it.
    version: AtomicU64,
    /// How often a filter exceeded its budget on an event that was accepted.
    over_budget: AtomicU64,
}

impl Directory {
    pub(crate) fn new(credentials: Arc<dyn Credentials>) -> Self {
        Directory {
            credentials,
            index: RwLock::default(),
            prepared: RwLock::default(),
            holdings: Holdings::default(),
            version: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
        }
    }

    /// Puts a subscription in, or replaces it.
    pub(crate) fn put(&self, record: &SubscriptionRecord) {
        self.holdings.put(record);
        let subscription = Arc::new(record.subscription.clone());
        let prepared = Arc::new(self.prepare(record, Arc::clone(&subscription)));
        // What an event is matched with can be sent to.
        write(&self.prepared).insert(subscription.id, prepared);
        write(&self.index).insert(subscription);
    }

    pub(crate) fn remove(&self, tenant: &TenantId, id: SubscriptionId) {
        self.holdings.remove(tenant, id);
        write(&self.index).remove(tenant, id);
        write(&self.prepared).remove(&id);
    }

    /// Every change of the configuration up to this one is in it.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Every change of the configuration up to this one is in it now.
    pub(crate) fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// A filter exceeded its budget on an event that was accepted.
    pub(crate) fn count_over_budget(&self) {
        self.over_budget.fetch_add(1, Ordering::Relaxed);
    }

    /// How often that happened.
    pub(crate) fn over_budget(&self) -> u64 {
        self.over_budget.load(Ordering::Relaxed)
    }

    /// All that are in it.
    pub(crate) fn all(&self) -> Vec<(TenantId, SubscriptionId)> {
        let prepared = read(&self.prepared);
        let all = prepared.values().map(|known| &known.subscription);
        all.map(|known| (known.tenant.clone(), known.id)).collect()
    }

    /// The subscriptions of a tenant as they are now; `None` where it has none.
    pub(crate) fn snapshot(&self, tenant: &TenantId) -> Option<TenantIndex> {
        read(&self.index).snapshot(tenant)
    }

    /// The subscriptions of every tenant as they are now.
    pub(crate) fn snapshots(&self) -> Vec<TenantIndex> {
        read(&self.index).snapshots()
    }

    pub(crate) fn get(&self, id: SubscriptionId) -> Option<Arc<Prepared>> {
        read(&self.prepared).get(&id).cloned()
    }

    pub(crate) fn has(&self, id: SubscriptionId) -> bool {
        read(&self.prepared).contains_key(&id)
    }

    /// The strictest of the rate limits that the subscriptions of a destination have.
    pub(crate) fn rate_limit(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> Option<RateLimit> {
        let index = self.snapshot(tenant)?;
        let limits = index.of_destination(destination);
        limits.filter_map(|s| s.rate_limit).min_by_key(|limit| limit.per_1000_seconds())
    }

    fn prepare(&self, record: &SubscriptionRecord, subscription: Arc<Subscription>) -> Prepared {
        let keys = self.credentials.open(record).map(|open| Keys::new(open, &subscription));
        Prepared { keys, subscription }
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Keys {
    fn new(open: OpenCredentials, subscription: &Subscription) -> Self {
        let target = open.identity.and_then(|identity| {
            let (tenant, id) = (subscription.tenant.clone(), subscription.destination);
            let url = DestinationUrl::from_trusted(&subscription.url).ok()?;
            Target::new(tenant, id, url, Some(identity)).ok().map(Arc::new)
        });
        let authorization = open.token.as_ref().and_then(|token| {
            let line = Zeroizing::new(format!("Bearer {}", token.as_str()));
            let mut value = HeaderValue::try_from(line.as_str()).ok()?;
            value.set_sensitive(true);
            Some(value)
        });
        let secrets: Vec<Zeroizing<String>> =
            open.secrets.all().map(|(secret, _)| secret.expose()).chain(open.token).collect();
        let texts = secrets.iter().map(|secret| secret.as_str());
        let values = open.headers.iter().flat_map(|header| header_secrets(header.value()));
        let texts: Vec<&str> = texts.chain(values).collect();
        let headers: Vec<_> = open.headers.iter().filter_map(header).collect();
        let has_own_trace = headers.iter().any(|(name, _)| name.as_str() == trace::HEADER);
        let scrubber = Scrubber::new(&texts);
        Keys { authorization, headers, has_own_trace, scrubber, secrets: open.secrets, target }
    }
}

/// A header as it is sent. Marked as sensitive: HTTP/2 then keeps it out of its compression table.
fn header(header: &CustomHeader) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::try_from(header.name()).ok()?;
    let mut value = HeaderValue::try_from(header.value()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

/// The parts of a header's value that are masked in a logged response: the whole value, and each
/// long word of it, because a receiver may echo `Basic dXNlcjpwYXNz` without its scheme. A value of
/// fewer than four bytes (`1`, `yes`) is not masked: that would blank out most of a response.
fn header_secrets(value: &str) -> impl Iterator<Item = &str> {
    const WHOLE_BYTES_MIN: usize = 4;
    const WORD_BYTES_MIN: usize = 8;
    let words = value.split([' ', ',', ';', '=']).filter(|word| word.len() >= WORD_BYTES_MIN);
    Some(value).filter(|value| value.len() >= WHOLE_BYTES_MIN).into_iter().chain(words)
}
