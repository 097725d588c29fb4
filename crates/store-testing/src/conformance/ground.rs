//! The base of a check: a store that can be closed and opened again, and helpers to fill it.

use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use postrider_domain::attempt::{Attempt, Ending, Turn};
use postrider_domain::circuit::Suspension;
use postrider_domain::delivery::Delivery;
use postrider_domain::destination::Destination;
use postrider_domain::ids::TenantId;
use postrider_domain::policy::Policy;
use postrider_domain::settlement::{Settlement, settle};
use postrider_domain::time::Timestamp;
use postrider_store::{
    Accepted, Commit, DeliveryChange, DestinationChange, PageRequest, ShardLeases, Store,
    SubscriptionPut, SubscriptionRecord,
};

use crate::samples;

/// A backend under test, with its own storage.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Opens the store; called again after the store was closed.
    async fn open(&self) -> Arc<dyn Store>;

    /// Whether it can return `Unavailable`, so that its writes can be repeated.
    fn can_be_unavailable(&self) -> bool;

    /// Makes a backup and opens it; `None` if the backend has no backups.
    async fn copy(&self, _store: &dyn Store) -> Option<Arc<dyn Store>> {
        None
    }
}

/// A store that can be closed and opened again.
pub struct Ground {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The open store.
    pub store: Arc<dyn Store>,
}

impl Ground {
    /// Opens a backend.
    pub async fn new(backend: impl Backend) -> Self {
        let store = backend.open().await;
        Ground { backend: Arc::new(backend), store }
    }

    /// Closes the store and opens it again.
    pub(super) async fn reopen(&mut self) {
        self.store.close().await.unwrap();
        self.store = self.backend.open().await;
    }

    pub(super) async fn leases(&self) -> ShardLeases {
        self.store.hold_shards().await.unwrap()
    }

    /// Stores subscription `n` with destination `to`.
    pub(super) async fn put(&self, tenant: &TenantId, n: u64, to: u64) -> SubscriptionRecord {
        let record = samples::subscription(tenant, n, to);
        let destination = samples::destination(tenant, to);
        let put = self.store.put_subscription(&record, &destination).await.unwrap();
        assert_eq!(put, SubscriptionPut::Stored);
        record
    }

    /// Accepts one new event of the tenant acme with these deliveries: pairs of delivery and
    /// destination.
    pub(super) async fn accept(&self, id: &str, at: Timestamp, deliveries: &[(u64, u64)]) {
        self.accept_for(&samples::acme(), id, at, deliveries).await;
    }

    pub(super) async fn accept_for(
        &self,
        tenant: &TenantId,
        id: &str,
        at: Timestamp,
        deliveries: &[(u64, u64)],
    ) {
        let acceptance = samples::acceptance(samples::event(tenant, id), at, deliveries);
        assert_eq!(self.store.accept(vec![acceptance]).await.unwrap(), [Accepted::New]);
    }

    /// Delivery `n` of acme in its current state.
    pub(super) async fn delivery(&self, n: u64) -> Delivery {
        let found = self.store.delivery(&samples::acme(), samples::delivery_id(n)).await;
        found.unwrap().unwrap()
    }

    /// Destination `n` of acme in its current state.
    pub(super) async fn destination(&self, n: u64) -> Destination {
        let tenant = samples::acme();
        let id = samples::destination(&tenant, n).id;
        self.store.destination(&tenant, id).await.unwrap().unwrap()
    }

    /// Settles a changed delivery of acme without an attempt.
    pub(super) async fn change(&self, after: Delivery) {
        let change = self.change_to(after, None).await;
        self.settle(Commit { deliveries: vec![change], ..Commit::default() }).await;
    }

    pub(super) async fn change_to(
        &self,
        after: Delivery,
        attempt: Option<Attempt>,
    ) -> DeliveryChange {
        let before = self.store.delivery(&after.tenant, after.id).await.unwrap().unwrap();
        DeliveryChange::of(&before, after, attempt)
    }

    pub(super) async fn settle(&self, commit: Commit) {
        let leases = self.leases().await;
        self.store.settle(&leases, commit).await.unwrap();
    }

    /// Attempts delivery `n` of acme, whose destination exists, and settles the outcome.
    pub(super) async fn attempt(&self, n: u64, to: u64, ending: Ending, now: Timestamp) {
        let (settled, before) = self.settlement(n, to, ending, now).await;
        self.settle(commit_of(settled, &before)).await;
    }

    pub(super) async fn settlement(
        &self,
        n: u64,
        to: u64,
        ending: Ending,
        now: Timestamp,
    ) -> (Settlement, Delivery) {
        let (delivery, destination) = (self.delivery(n).await, self.destination(to).await);
        let turn = delivery.turn().unwrap_or(Turn::Probe);
        let policy = Policy::default();
        let done = samples::finished(now, ending);
        (settle(&delivery, &destination, turn, done, now, Suspension::Off, &policy), delivery)
    }
}

/// The commit of one settlement.
pub(super) fn commit_of(settled: Settlement, before: &Delivery) -> Commit {
    let delivery = DeliveryChange::of(before, settled.delivery, Some(settled.attempt));
    let destination = DestinationChange {
        tenant: settled.destination.tenant,
        id: settled.destination.id,
        circuit: settled.destination.circuit,
        transitions: settled.transition.into_iter().collect(),
    };
    Commit { deliveries: vec![delivery], destinations: vec![destination], ..Commit::default() }
}

/// The first page, large enough for everything that a check makes.
pub(super) const ALL: PageRequest = PageRequest { limit: 1000, cursor: None };

/// The numbers of sample deliveries.
pub(super) fn numbers<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> Vec<u64> {
    deliveries.into_iter().map(number).collect()
}

fn number(delivery: &Delivery) -> u64 {
    let found = (0..4096).find(|n| samples::delivery_id(*n) == delivery.id);
    found.unwrap_or_else(|| panic!("{} is not one of the samples", delivery.id))
}

/// Waits for all futures concurrently, on any runtime.
pub(super) async fn together<T>(futures: Vec<impl Future<Output = T>>) -> Vec<T> {
    let mut running: Vec<_> = futures.into_iter().map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(move |context| {
        for (future, output) in &mut running {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if running.iter().any(|(_, output)| output.is_none()) {
            return Poll::Pending;
        }
        Poll::Ready(running.drain(..).filter_map(|(_, output)| output).collect())
    })
    .await
}
