//! The subscriptions in memory: which of them match an event, and what is needed to send to them.
//!
//! Locks are held only for a lookup, never across an await and never while an event is matched:
//! matching uses a snapshot of the tenant's subscriptions. A changed subscription is stored first
//! and put here afterwards.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use http::{HeaderName, HeaderValue};
use postrider_domain::credentials::Scrubber;
use postrider_domain::egress::DestinationUrl;
use postrider_domain::ids::{DestinationId, SubscriptionId, TenantId};
use postrider_domain::matching::{SubscriptionIndex, TenantIndex};
use postrider_domain::policy::{DestinationPolicy, Policy};
use postrider_domain::signature::SigningSecrets;
use postrider_domain::subscription::{CustomHeader, RateLimit, Subscription};
use postrider_domain::trace;
use postrider_store::SubscriptionRecord;
use postrider_transport::{ClientIdentity, Target};
use zeroize::Zeroizing;

use crate::own_limits::OwnLimits;
use crate::quotas::SubscriptionSums;

/// Opens the sealed credentials of a subscription. The layer above defines how they are sealed.
pub trait Credentials: Send + Sync + 'static {
    /// Decrypts the secrets, the token and the headers.
    fn open(&self, record: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError>;
}

/// Credentials that cannot be opened. Attempts that need them fail as a fault of our own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the credentials of a subscription cannot be opened: {0}")]
pub struct CredentialsError(pub String);

/// The decrypted credentials of a subscription.
#[derive(Clone)]
pub struct OpenCredentials {
    /// The signing secrets.
    pub secrets: SigningSecrets,
    /// The bearer token.
    pub token: Option<Zeroizing<String>>,
    /// Custom headers for each request. Their values are secret too.
    pub headers: Vec<CustomHeader>,
    /// The client certificate and the trusted authorities, if the subscription has its own.
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

/// The signing secrets of a subscription, and the credentials for its receiver.
///
/// All but the signing secrets belong to the subscription's current URL: an attempt to another
/// destination is made without them.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) secrets: SigningSecrets,
    /// Custom headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Whether the custom headers contain a trace context; then ours is not sent.
    pub(crate) has_own_trace: bool,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) scrubber: Scrubber,
    /// The subscription's URL with its own client certificate, if it has one.
    pub(crate) target: Option<Arc<Target>>,
}

/// Every subscription that is not deleted.
pub(crate) struct Directory {
    credentials: Arc<dyn Credentials>,
    index: RwLock<SubscriptionIndex>,
    prepared: RwLock<HashMap<SubscriptionId, Arc<Prepared>>>,
    /// The sums over the subscriptions of each tenant.
    pub(crate) subscription_sums: SubscriptionSums,
    /// Limits that tenants have of their own.
    pub(crate) own_limits: Arc<OwnLimits>,
    /// All changes of the configuration up to this version are applied.
    version: AtomicU64,
    /// How often a filter exceeded its budget on an accepted event.
    over_budget: AtomicU64,
}

impl Directory {
    pub(crate) fn new(credentials: Arc<dyn Credentials>) -> Self {
        Directory {
            credentials,
            index: RwLock::default(),
            prepared: RwLock::default(),
            subscription_sums: SubscriptionSums::default(),
            own_limits: Arc::default(),
            version: AtomicU64::new(0),
            over_budget: AtomicU64::new(0),
        }
    }

    /// Adds or replaces a subscription.
    pub(crate) fn put(&self, record: &SubscriptionRecord) {
        self.subscription_sums.put(record);
        let subscription = Arc::new(record.subscription.clone());
        let prepared = Arc::new(self.prepare(record, Arc::clone(&subscription)));
        // Insert here first: every subscription that an event matches must be ready to send.
        write(&self.prepared).insert(subscription.id, prepared);
        write(&self.index).insert(subscription);
    }

    pub(crate) fn remove(&self, tenant: &TenantId, id: SubscriptionId) {
        self.subscription_sums.remove(tenant, id);
        write(&self.index).remove(tenant, id);
        write(&self.prepared).remove(&id);
    }

    /// The version up to which all changes of the configuration are applied.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Sets the version up to which all changes are applied.
    pub(crate) fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// Counts a filter that exceeded its budget on an accepted event.
    pub(crate) fn count_over_budget(&self) {
        self.over_budget.fetch_add(1, Ordering::Relaxed);
    }

    /// How often a filter exceeded its budget.
    pub(crate) fn over_budget(&self) -> u64 {
        self.over_budget.load(Ordering::Relaxed)
    }

    /// All subscriptions.
    pub(crate) fn all(&self) -> Vec<(TenantId, SubscriptionId)> {
        let prepared = read(&self.prepared);
        let all = prepared.values().map(|known| &known.subscription);
        all.map(|known| (known.tenant.clone(), known.id)).collect()
    }

    /// A snapshot of the subscriptions of a tenant; `None` if it has none.
    pub(crate) fn snapshot(&self, tenant: &TenantId) -> Option<TenantIndex> {
        read(&self.index).snapshot(tenant)
    }

    /// Snapshots of the subscriptions of every tenant.
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
        index.of_destination(destination).filter_map(|subscription| subscription.rate_limit).min()
    }

    /// What the subscriptions of a destination want together.
    pub(crate) fn destination_policy(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        policy: &Policy,
    ) -> DestinationPolicy {
        let index = self.snapshot(tenant);
        let all = index.iter().flat_map(|index| index.of_destination(destination));
        DestinationPolicy::of(all.map(|subscription| &**subscription), policy)
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

/// A header for the request. It is marked as sensitive, so that HTTP/2 keeps it out of its
/// compression table.
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
