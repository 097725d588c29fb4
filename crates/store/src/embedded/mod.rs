//! The embedded store: a journal in front of SQLite, in one directory, for one node.
//!
//! A write is acknowledged when it is in the journal. SQLite is updated afterwards and is never
//! ahead of the journal.
//!
//! # Durability
//!
//! ```text
//! accept, settle ─▶ journal (fdatasync) ─▶ answered
//!                      │ in order
//!                      ▼
//!                   applier: history/<day>.db ─▶ main.db with the journal's position ─▶ released
//! ```
//!
//! SQLite cannot commit to several files at once when they have write-ahead logs. So consistency
//! rests on the order of the commits, each of which is synced (`synchronous = FULL`):
//!
//! 1. The files of the days are written and committed. Their writes are idempotent: they set rows
//!    to values.
//! 2. `main.db` is written and committed with the position `applied`. Its counters are added to,
//!    and each record is added once, because the position moves in the same transaction.
//! 3. The journal is told that everything up to `applied` is durable elsewhere.
//!
//! A crash after 1 leaves days that are ahead of `main.db`. Opening applies the journal from
//! `main.db`'s position on; the rows of days are written again with the same result, and no read
//! starts before that is done. A crash after 2 leaves records in the journal that are skipped. So
//! at every moment a day's file has at least what `main.db` counts, and the journal has at least
//! what `main.db` lacks. While records are applied, decisions that depend on stored state read
//! `main.db` only.
//!
//! A change of the configuration is one synced transaction in `main.db`. The applier runs it after
//! everything that was acknowledged before is applied: so it needs no journal, and its order
//! relative to the journal's records is certain. A change that depends on nothing that records write (a new
//! subscription, key or tenant, an entry of the audit log, a kept answer) runs before the records that wait.
//!
//! # Reading
//!
//! The engine and authentication have read connections of their own. Reads of single records and
//! lists have other connections, for which tenants take turns (`fair_semaphore.rs`), and a read
//! whose caller has gone away is interrupted. So the reads of one tenant never delay those of
//! another.
//!
//! Events, deliveries, attempts and circuits of a tenant never wait for the applier: what is not applied is put
//! over what SQLite has (`apply/unapplied.rs`). Sums and timelines wait until everything that was acknowledged before is applied (a
//! barrier), but only while something of the tenant that they depend on is not. So do the engine's reads and
//! lists of all tenants, always. A delivery's row is in its day's file from acceptance on,
//! whatever its state; the queue in `main.db` is only the index of work. So every answer comes from one
//! file, or from several that have no row in common.
//!
//! # The folders
//!
//! - `journal`: the append-only files that make an acknowledgement durable; `medium`: their disk.
//! - `apply`: the one thread that moves records from the journal into SQLite.
//! - `files`: what is in the data directory: layout, tables, rows, Bloom filters, read connections.
//! - `contract`: the methods of [`crate::Store`], one file for each of its traits.
//! - `maintenance`: opening, checking, backup and transfer of a whole data directory.

mod apply;
mod contract;
pub(crate) mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod journal;
mod maintenance;
pub mod medium;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use postrider_domain::ids::TenantId;
use rusqlite::Transaction;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinError;

use self::apply::{Applier, ApplyQueue, Days, Item, Needs, Task, Unapplied};
use self::contract::answers::Keeping;
use self::contract::pending_ids::PendingIds;
use self::files::bloom::BloomFilters;
use self::files::disk_reserve::DiskReserve;
use self::files::read_pool::{ReadGuard, ReadPool, Stop, StopOnDrop};
use self::files::{Layout, place};
use self::journal::{AppendError, Journal};
pub use self::maintenance::loss::Loss;
use crate::error::StoreError;
use crate::fair_semaphore::{FairPermit, FairSemaphore};

/// A read for a tenant is stopped after this time, which is below the 30 s within which a request
/// is answered.
const READ_TIME_MAX: Duration = Duration::from_secs(20);

/// A fast map. Its hash is seeded at random in every process, so that keys cannot be chosen to
/// collide.
type QuickMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A fast set, seeded in the same way.
type QuickSet<K> = HashSet<K, foldhash::fast::RandomState>;

/// Called once, with the reason, when the store has stopped for good: the process must end.
pub type FatalHook = Arc<dyn Fn(&str) + Send + Sync>;

/// How an embedded store is opened.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The length of a journal segment (**64 MiB**).
    pub segment_bytes: u64,
    /// The size of the disk reserve, so that deliveries can be finished on a full disk (**64 MiB**).
    pub reserve_bytes: u64,
    /// How many bytes of history are read when the store is opened, the newest days first, to find
    /// damage inside them (**64 MiB**).
    pub check_bytes: u64,
    /// Called when the store has stopped for good; see [`FatalHook`].
    pub fatal: Option<FatalHook>,
    /// The runtime whose threads read lists; `None` for the runtime of the caller.
    pub lists_on: Option<tokio::runtime::Handle>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            segment_bytes: 64 << 20,
            reserve_bytes: 64 << 20,
            check_bytes: 64 << 20,
            fatal: None,
            lists_on: None,
        }
    }
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedOptions")
            .field("segment_bytes", &self.segment_bytes)
            .field("reserve_bytes", &self.reserve_bytes)
            .field("check_bytes", &self.check_bytes)
            .finish_non_exhaustive()
    }
}

/// An open store in a directory.
#[derive(Debug)]
pub struct EmbeddedStore {
    layout: Layout,
    journal: Arc<Journal>,
    queue: Arc<ApplyQueue>,
    pending: Arc<PendingIds>,
    pool: Arc<ReadPool>,
    /// Permits for reads of the engine and of authentication, which never wait for a tenant's
    /// reads.
    vital: Arc<Semaphore>,
    /// The permit for reading a whole lane, which takes long.
    scans: Arc<Semaphore>,
    /// Permits for reading single records, fair between tenants.
    points: Arc<FairSemaphore>,
    /// Permits for waiting at a barrier, fair between tenants: each barrier ends a batch of the applier.
    barriers: Arc<FairSemaphore>,
    /// Permits for lists, fair between tenants.
    lists: Arc<FairSemaphore>,
    /// The runtime whose threads read lists; `None` for the runtime of the caller.
    lists_on: Option<tokio::runtime::Handle>,
    days: Days,
    keeping: Keeping,
    blooms: Arc<BloomFilters>,
    bloom_filler: Mutex<Option<JoinHandle<()>>>,
    disk_reserve: Arc<DiskReserve>,
    applier: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<File>>,
}

impl EmbeddedStore {
    fn place(&self) -> String {
        place(self.layout.root())
    }

    /// Waits until everything that was acknowledged before is in SQLite.
    async fn barrier(&self) -> Result<(), StoreError> {
        if self.queue.is_done()? {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.queue.push(Item::Barrier(reply))?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_dropped()),
        }
    }

    /// The error for a caller whose entry in the queue was dropped.
    fn why_dropped(&self) -> StoreError {
        match self.queue.is_done() {
            Err(stopped) => stopped,
            Ok(_) => StoreError::DiskFull { place: self.place() },
        }
    }

    /// Reads a single record for a tenant; waits for the applier only if something that the read needs is
    /// not applied.
    async fn read_one<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        needs: Needs,
        read: impl Fn(&ReadGuard<'_>) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let read = Arc::new(move |guard: &ReadGuard<'_>, (): &()| read(guard));
        let is_applied = move |unapplied: &Unapplied, tenant: &TenantId| {
            (!unapplied.has(tenant, &needs)).then_some(())
        };
        self.read_over(tenant, (&self.points, None), is_applied, read).await
    }

    /// Reads a list for a tenant; waits for the applier only if something that the read needs is not
    /// applied.
    async fn read_list<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        needs: Needs,
        read: impl Fn(&ReadGuard<'_>) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let read = Arc::new(move |guard: &ReadGuard<'_>, (): &()| read(guard));
        let is_applied = move |unapplied: &Unapplied, tenant: &TenantId| {
            (!unapplied.has(tenant, &needs)).then_some(())
        };
        self.read_over(tenant, (&self.lists, self.lists_on.as_ref()), is_applied, read).await
    }

    /// Reads a list of all tenants, after a barrier. These lists have a queue of their own.
    async fn read_list_of_all<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.barriers.take(None).await?;
        self.barrier().await?;
        drop(turn);
        let permit = self.lists.take(None).await?;
        self.read_with_permit(self.lists_on.as_ref(), permit, read).await
    }

    /// Reads a single record for a tenant from a table that only [`EmbeddedStore::change`] writes. It waits
    /// for nothing: a change is answered after it is in SQLite.
    async fn read_configured<T: Send + 'static>(
        &self,
        tenant: TenantId,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.points.take(Some(tenant)).await?;
        self.read_with_permit(None, permit, read).await
    }

    /// Reads a list from a table that only [`EmbeddedStore::change`] writes: it waits for nothing.
    async fn list_configured<T: Send + 'static>(
        &self,
        tenant: Option<TenantId>,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let permit = self.lists.take(tenant).await?;
        self.read_with_permit(self.lists_on.as_ref(), permit, read).await
    }

    /// Reads one thing for a tenant without waiting for the applier: the overlay has what is not
    /// applied.
    async fn read_one_now<T: Send + 'static, O: Default + 'static>(
        &self,
        tenant: &TenantId,
        pick: impl FnOnce(&Unapplied, &TenantId) -> Option<O> + Send + 'static,
        read: impl Fn(&ReadGuard<'_>, &O) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        self.read_over(tenant, (&self.points, None), pick, Arc::new(read)).await
    }

    /// Reads a list of a tenant without waiting for the applier: the overlay has what is not applied.
    async fn read_list_now<T: Send + 'static, O: Default + 'static>(
        &self,
        tenant: &TenantId,
        pick: impl FnOnce(&Unapplied, &TenantId) -> Option<O> + Send + 'static,
        read: impl Fn(&ReadGuard<'_>, &O) -> Result<T, StoreError> + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        let places = (&self.lists, self.lists_on.as_ref());
        self.read_over(tenant, places, pick, Arc::new(read)).await
    }

    /// Picks what a read needs of what is not applied. Where that is too much (`None`), the read waits for
    /// a barrier after all, without a permit: others read meanwhile.
    async fn read_over<T: Send + 'static, O: Default + 'static>(
        &self,
        tenant: &TenantId,
        (places, runtime): (&Arc<FairSemaphore>, Option<&tokio::runtime::Handle>),
        pick: impl FnOnce(&Unapplied, &TenantId) -> Option<O> + Send + 'static,
        read: Arc<impl Fn(&ReadGuard<'_>, &O) -> Result<T, StoreError> + Send + Sync + 'static>,
    ) -> Result<T, StoreError> {
        let permit = places.take(Some(tenant.clone())).await?;
        let unapplied = self.queue.unapplied()?;
        let (of, read_now) = (tenant.clone(), Arc::clone(&read));
        let answer = self
            .read_with_permit(runtime, permit, move |guard| {
                let picked = pick(&unapplied, &of);
                drop(unapplied);
                picked.map(|picked| read_now(guard, &picked)).transpose()
            })
            .await?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
        let turn = self.barriers.take(Some(tenant.clone())).await?;
        self.barrier().await?;
        drop(turn);
        let permit = places.take(Some(tenant.clone())).await?;
        self.read_with_permit(runtime, permit, move |guard| read(guard, &O::default())).await
    }

    /// Reads until there is an answer, the caller goes away or the time is over.
    async fn read_with_permit<T: Send + 'static>(
        &self,
        runtime: Option<&tokio::runtime::Handle>,
        permit: FairPermit,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (pool, stop) = (Arc::clone(&self.pool), Arc::new(Stop::default()));
        let _ends_with_the_caller = StopOnDrop(Arc::clone(&stop));
        let read = move || {
            let answer = read(&pool.read_until(stop));
            drop(permit);
            answer
        };
        match tokio::time::timeout(READ_TIME_MAX, spawn_blocking(runtime, read)).await {
            Ok(answer) => answered(answer),
            Err(_) => Err(StoreError::TooSlow(READ_TIME_MAX)),
        }
    }

    /// Reads for the engine or for authentication, after a barrier.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.barrier().await?;
        self.read_now(read).await
    }

    /// Reads what SQLite has now, without a barrier.
    async fn read_now<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.read_engine(None, &self.vital, read).await
    }

    /// Reads a whole lane for the engine, after a barrier: one at a time, on the threads for lists,
    /// so that no other read of the engine waits for it.
    async fn scan<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.barrier().await?;
        self.read_engine(self.lists_on.as_ref(), &self.scans, read).await
    }

    async fn read_engine<T: Send + 'static>(
        &self,
        runtime: Option<&tokio::runtime::Handle>,
        places: &Arc<Semaphore>,
        read: impl FnOnce(&ReadGuard<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let pool = Arc::clone(&self.pool);
        // The semaphore is never closed. If it were, this read would only go uncounted.
        let permit = Arc::clone(places).acquire_owned().await.ok();
        let read = move || {
            let answer = read(&pool.read());
            drop(permit);
            answer
        };
        answered(spawn_blocking(runtime, read).await)
    }

    /// Runs a task in the applier, after all entries that are in its queue already.
    async fn run_in_applier<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Applier) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (task, answer) = answering(task);
        self.queue.push(Item::Task(task))?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_dropped()),
        }
    }

    /// One durable transaction in `main.db`.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>, &Path) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.run_in_applier(move |applier| applier.main().change(change)).await
    }

    /// One durable transaction in `main.db` that waits for no record. It must depend on nothing that records
    /// write: records that were acknowledged earlier are applied later.
    async fn change_first<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Transaction<'_>, &Path) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (task, answer) = answering(move |applier| applier.main().change(change));
        self.queue.push_first(task)?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_dropped()),
        }
    }

    /// The error of the store for a refused append.
    fn refused(&self, error: &AppendError) -> StoreError {
        match error {
            AppendError::DiskFull => StoreError::DiskFull { place: self.place() },
            AppendError::Write(cause) => StoreError::NotWritable {
                place: place(&self.layout.journal()),
                cause: cause.to_string(),
            },
            AppendError::SyncFailed => StoreError::Stopped(error.to_string()),
            AppendError::Closed => match self.queue.is_done() {
                Err(stopped) => stopped,
                Ok(_) => StoreError::Stopped("the store is closed".into()),
            },
            AppendError::TooLarge { .. } => StoreError::Internal(error.to_string()),
        }
    }

    /// Returns a closure that closes the store and blocks until that is done; `None` if it is
    /// closed already.
    fn closing(&self) -> Option<impl FnOnce() -> Result<(), StoreError> + Send + 'static> {
        let applier = self.applier.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        let bloom_filler = self.bloom_filler.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (journal, blooms) = (Arc::clone(&self.journal), Arc::clone(&self.blooms));
        let (queue, pool) = (Arc::clone(&self.queue), Arc::clone(&self.pool));
        Some(move || {
            blooms.stop_filling();
            // If the thread panicked, the filters are built anew at the next start.
            drop(bloom_filler.map(JoinHandle::join));
            let closed = journal.close().map_err(|error| StoreError::Stopped(error.to_string()));
            queue.push(Item::Task(Box::new(Applier::finish))).ok();
            queue.close();
            let ended = applier.join();
            pool.clear();
            drop(lock);
            ended.map_err(|_| StoreError::Stopped("the applier panicked".into()))?;
            queue.is_done()?;
            closed
        })
    }
}

/// Makes a task of the applier that reports its outcome.
fn answering<T: Send + 'static>(
    task: impl FnOnce(&mut Applier) -> Result<T, StoreError> + Send + 'static,
) -> (Task, oneshot::Receiver<Result<T, StoreError>>) {
    let (reply, answer) = oneshot::channel();
    let task: Task = Box::new(move |applier| {
        let outcome = task(applier);
        // After a failed write or sync the state of the disk is unknown.
        let stopped = match &outcome {
            Err(StoreError::Stopped(why)) => Err(StoreError::Stopped(why.clone())),
            Ok(_) | Err(_) => Ok(()),
        };
        drop(reply.send(outcome));
        stopped
    });
    (task, answer)
}

/// Runs a closure on the blocking threads of this runtime, or of the caller's.
fn spawn_blocking<T: Send + 'static>(
    runtime: Option<&tokio::runtime::Handle>,
    work: impl FnOnce() -> T + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    match runtime {
        Some(runtime) => runtime.spawn_blocking(work),
        None => tokio::task::spawn_blocking(work),
    }
}

/// Converts the outcome of a read for its caller.
fn answered<T>(answer: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    match answer {
        // A file that cannot be read fails this read, but does not stop the store.
        Ok(Err(StoreError::Stopped(why))) => Err(StoreError::Unavailable(why)),
        Ok(answer) => answer,
        Err(error) => Err(StoreError::Internal(error.to_string())),
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // The error is ignored here; a caller that needs it calls `close`.
        if let Some(close) = self.closing() {
            close().ok();
        }
    }
}
