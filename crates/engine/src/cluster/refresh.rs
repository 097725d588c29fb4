//! Brings the subscription directory up to date with changes by other nodes.
//!
//! A subscription that any node acknowledged is in every directory before it matters: when an event
//! is accepted, the store compares the version that it was matched with, and a node that finds a
//! delivery of an unknown subscription catches up before it treats the subscription as deleted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, Weak};

use postrider_domain::ids::{SubscriptionId, TenantId};
use postrider_store::{Change, Store, StoreError};
use tokio::sync::{
    Mutex, OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, broadcast, mpsc,
};

use crate::core::{Command, Input};
use crate::directory::Directory;

/// A version after every change: asked for the changes since then, a store returns none and the
/// version of its newest one.
pub(crate) const NEWEST: u64 = u64::MAX;

/// Keeps a directory up to date.
pub(crate) struct Refresher {
    store: Arc<dyn Store>,
    pub(crate) directory: Arc<Directory>,
    inputs: mpsc::UnboundedSender<Input>,
    pub(crate) changing: Changing,
    /// Held while catching up.
    catching_up: Mutex<()>,
    /// Held by the one caller that waits to catch up: later callers rely on it and need not wait
    /// too.
    turn: Mutex<()>,
    pub(crate) changes: broadcast::Sender<Option<Change>>,
}

/// Serializes the changes of each tenant's subscriptions, because the store and the directory must
/// agree. A slow change of one tenant does not delay another tenant.
#[derive(Debug, Default)]
pub(crate) struct Changing {
    /// Held for reading by every change, for writing while the whole directory is replaced.
    all: RwLock<()>,
    /// A lock for each tenant. Locks that nobody holds or waits for are removed.
    tenants: std::sync::Mutex<HashMap<TenantId, Weak<Mutex<()>>>>,
}

/// The right to change a tenant's subscriptions, until it is dropped.
pub(crate) struct ChangeOfTenant<'a> {
    _tenant: OwnedMutexGuard<()>,
    _all: RwLockReadGuard<'a, ()>,
}

impl Changing {
    /// Waits for the earlier changes of this tenant.
    pub(crate) async fn of(&self, tenant: &TenantId) -> ChangeOfTenant<'_> {
        // Lock the tenant first: a caller that waits for it must not hold the lock of the
        // directory.
        let tenant = self.lock_of(tenant).lock_owned().await;
        ChangeOfTenant { _tenant: tenant, _all: self.all.read().await }
    }

    /// Waits for all running changes.
    async fn all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }

    fn lock_of(&self, tenant: &TenantId) -> Arc<Mutex<()>> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = tenants.get(tenant).and_then(Weak::upgrade) {
            return lock;
        }
        tenants.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        tenants.insert(tenant.clone(), Arc::downgrade(&lock));
        lock
    }
}

/// How many changes a slow listener may lag behind.
const CHANGES_MAX: usize = 256;

impl Refresher {
    pub(crate) fn new(
        store: &Arc<dyn Store>,
        directory: &Arc<Directory>,
        inputs: &mpsc::UnboundedSender<Input>,
    ) -> Arc<Self> {
        Arc::new(Refresher {
            store: Arc::clone(store),
            directory: Arc::clone(directory),
            inputs: inputs.clone(),
            changing: Changing::default(),
            catching_up: Mutex::default(),
            turn: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_MAX),
        })
    }

    /// Applies all changes from before this call, unless another caller is about to do so.
    pub(crate) async fn catch_up_once(&self) -> Result<(), StoreError> {
        let Ok(turn) = self.turn.try_lock() else { return Ok(()) };
        let _one_at_a_time = self.catching_up.lock().await;
        drop(turn);
        self.run().await
    }

    /// Applies all changes from before this call.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.catching_up.lock().await;
        self.run().await
    }

    async fn run(&self) -> Result<(), StoreError> {
        loop {
            let changes = self.store.changes(self.directory.version()).await?;
            if changes.everything {
                let _alone = self.changing.all().await;
                self.reload().await?;
            }
            for change in &changes.list {
                match change {
                    Change::Subscription(tenant, id) => {
                        let _one_at_a_time = self.changing.of(tenant).await;
                        self.take_over(tenant, *id).await?;
                    }
                    // Sending fails if nobody listens, which is no error.
                    Change::Key(_) => drop(self.changes.send(Some(change.clone()))),
                    Change::Tenant(id) => {
                        self.directory.own_limits.read(&*self.store, id).await?;
                        drop(self.changes.send(Some(change.clone())));
                    }
                }
            }
            self.directory.set_version(changes.version);
            if !changes.is_cut {
                return Ok(());
            }
        }
    }

    /// Sets a subscription in the directory to its stored state.
    async fn take_over(&self, tenant: &TenantId, id: SubscriptionId) -> Result<(), StoreError> {
        let before = self.directory.get(id).map(|known| known.subscription.destination);
        let record = self.store.subscription(tenant, id).await?;
        let now = record.as_ref().map(|record| record.subscription.destination);
        match &record {
            Some(record) => self.directory.put(record),
            None => {
                self.directory.remove(tenant, id);
                let tenant = tenant.clone();
                self.tell(Command::CancelAll { tenant, subscription: id });
            }
        }
        for destination in [before, now.filter(|now| Some(*now) != before)].into_iter().flatten() {
            let rate = self.directory.rate_limit(tenant, destination);
            self.tell(Command::Rate { destination, rate });
        }
        Ok(())
    }

    /// Reloads all subscriptions: the list of changes does not go back far enough.
    async fn reload(&self) -> Result<(), StoreError> {
        self.directory.own_limits.read_all(&*self.store).await?;
        let all = self.store.all_subscriptions().await?;
        let living = |record: &&postrider_store::SubscriptionRecord| record.deleted_at.is_none();
        let ids: HashSet<_> =
            all.iter().filter(living).map(|record| record.subscription.id).collect();
        for record in all.iter().filter(living) {
            self.directory.put(record);
        }
        for (tenant, id) in self.directory.all() {
            if !ids.contains(&id) {
                self.directory.remove(&tenant, id);
                self.tell(Command::CancelAll { tenant, subscription: id });
            }
        }
        drop(self.changes.send(None));
        Ok(())
    }

    fn tell(&self, command: Command) {
        // Sending fails only after the engine has shut down.
        drop(self.inputs.send(Input::Command(command)));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_slow_change_of_one_tenant_delays_no_other_tenant() {
        const NOW: Duration = Duration::ZERO;
        let changing = Changing::default();
        let [a, b] = ["a", "b"].map(|name| name.parse::<TenantId>().unwrap());
        let slow = timeout(NOW, changing.of(&a)).await.expect("nobody changes anything");
        assert!(timeout(NOW, changing.of(&a)).await.is_err(), "changes of one tenant go in order");
        assert!(timeout(NOW, changing.of(&b)).await.is_ok());
        assert!(timeout(NOW, changing.all()).await.is_err(), "a change has begun");
        drop(slow);
        assert!(timeout(NOW, changing.all()).await.is_ok());
        assert!(timeout(NOW, changing.of(&a)).await.is_ok());
        let b = changing.lock_of(&b);
        assert_eq!(changing.tenants.lock().unwrap().len(), 1, "nothing is remembered for ever");
        drop(b);
    }
}
