//! Bringing the directory up to date with what other nodes changed.
//!
//! A subscription that some node acknowledged is in every directory before it is relied upon: whoever
//! accepts an event has the store compare the version that it matched with, and whoever finds a
//! delivery of a subscription that it does not know catches up before it calls that one deleted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, Weak};

use postrider_domain::ids::{SubscriptionId, TenantId};
use postrider_store::{Change, Store, StoreError};
use tokio::sync::{
    Mutex, OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, broadcast, mpsc,
};

use crate::core::{Command, Input};
use crate::directory::Directory;

/// The version of a list of changes that has none after it: asked for what came later, a store says how
/// far its list goes.
pub(crate) const NEWEST: u64 = u64::MAX;

/// Keeps a directory up to date.
pub(crate) struct Refresher {
    store: Arc<dyn Store>,
    pub(crate) directory: Arc<Directory>,
    inputs: mpsc::UnboundedSender<Input>,
    pub(crate) changing: Changing,
    /// Held by the one that catches up.
    catching_up: Mutex<()>,
    /// Held by the one that waits to catch up: who comes meanwhile need not wait as well.
    turn: Mutex<()>,
    pub(crate) changes: broadcast::Sender<Option<Change>>,
}

/// Changes of subscriptions go one after the other for each tenant: the store and the directory must
/// agree. A tenant whose change takes long does not delay another's.
#[derive(Debug, Default)]
pub(crate) struct Changing {
    /// Held for reading by every change, for writing by what replaces the whole directory.
    all: RwLock<()>,
    /// Locks that nobody holds or waits for are forgotten.
    tenants: std::sync::Mutex<HashMap<TenantId, Weak<Mutex<()>>>>,
}

/// The right to change a tenant's subscriptions, until it is dropped.
pub(crate) struct ChangeOfTenant<'a> {
    _tenant: OwnedMutexGuard<()>,
    _all: RwLockReadGuard<'a, ()>,
}

impl Changing {
    /// Waits for the changes of this tenant that came before.
    pub(crate) async fn of(&self, tenant: &TenantId) -> ChangeOfTenant<'_> {
        // The tenant's lock first: one that waits for it must not hold the directory.
        let tenant = self.lock_of(tenant).lock_owned().await;
        ChangeOfTenant { _tenant: tenant, _all: self.all.read().await }
    }

    /// Waits for all changes that have begun.
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

/// Changes that a slow listener may lag behind.
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

    /// Takes over everything that was changed before this was called, unless somebody else is about to.
    pub(crate) async fn catch_up_once(&self) -> Result<(), StoreError> {
        let Ok(turn) = self.turn.try_lock() else { return Ok(()) };
        let _one_at_a_time = self.catching_up.lock().await;
        drop(turn);
        self.run().await
    }

    /// Takes over everything that was changed before this was called.
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
                    // Nobody may be interested.
                    Change::Key(_) | Change::Tenant(_) => {
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

    /// A subscription is now as the store has it.
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

    /// The list of changes does not go so far back.
    async fn reload(&self) -> Result<(), StoreError> {
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
        // Nobody takes it only where the engine has ended.
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
