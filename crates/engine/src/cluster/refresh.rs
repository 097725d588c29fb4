//! Bringing the directory up to date with what other nodes changed.
//!
//! A subscription that some node acknowledged is in every directory before it is relied upon: whoever
//! accepts an event has the store compare the version that it matched with, and whoever finds a
//! delivery of a subscription that it does not know catches up before it calls that one deleted.

use std::collections::HashSet;
use std::sync::Arc;

use postrider_domain::ids::{SubscriptionId, TenantId};
use postrider_store::{Change, Store, StoreError};
use tokio::sync::{Mutex, broadcast, mpsc};

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
    /// Changes of subscriptions go one after the other: the store and the index must agree.
    pub(crate) changing: Mutex<()>,
    /// Held by whoever waits to catch up: whoever comes meanwhile need not wait as well.
    turn: Mutex<()>,
    pub(crate) changes: broadcast::Sender<Option<Change>>,
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
            changing: Mutex::default(),
            turn: Mutex::default(),
            changes: broadcast::Sender::new(CHANGES_MAX),
        })
    }

    /// Takes over everything that was changed before this was called, unless somebody else is about to.
    pub(crate) async fn catch_up_once(&self) -> Result<(), StoreError> {
        let Ok(turn) = self.turn.try_lock() else { return Ok(()) };
        let _one_at_a_time = self.changing.lock().await;
        drop(turn);
        self.run().await
    }

    /// Takes over everything that was changed before this was called.
    pub(crate) async fn catch_up(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.changing.lock().await;
        self.run().await
    }

    async fn run(&self) -> Result<(), StoreError> {
        loop {
            let changes = self.store.changes(self.directory.version()).await?;
            if changes.everything {
                self.reload().await?;
            }
            for change in &changes.list {
                match change {
                    Change::Subscription(tenant, id) => self.take_over(tenant, *id).await?,
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
