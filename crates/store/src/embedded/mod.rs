//! The embedded store: a journal in front of SQLite, in one directory, for one node.
//!
//! An acknowledgement rests on the journal alone; SQLite follows it and is never ahead of it.
//!
//! # What is durable when
//!
//! ```text
//! accept, settle ─▶ journal (fdatasync) ─▶ answered
//!                      │ in order
//!                      ▼
//!                   applier: history/<day>.db ─▶ main.db with the journal's position ─▶ released
//! ```
//!
//! SQLite cannot commit to several files at once when they have write-ahead logs. So the order of
//! commits is the proof. Each of them is synced (`synchronous = FULL`):
//!
//! 1. The files of the days are written and committed. Their writes say what a row *is*.
//! 2. `main.db` is written and committed with the position `applied`. Its counters move *by*
//!    something, and each record moves them once, because the position moves with them.
//! 3. The journal is told that everything up to `applied` is durable elsewhere.
//!
//! A crash after 1 leaves days that are ahead of `main.db`. Opening applies the journal from
//! `main.db`'s position on; the rows of days are written again and end as they were, and nobody
//! reads before that is done. A crash after 2 leaves records in the journal that are skipped. So
//! at every moment a day's file has at least what `main.db` counts, and the journal has at least
//! what `main.db` lacks. Whatever depends on what is stored while records are applied asks `main.db`
//! alone.
//!
//! A change of the configuration is one synced transaction in `main.db`, carried out by the applier
//! when everything that was acknowledged before is applied: it needs no journal, and no order
//! between it and the journal is ever in doubt.
//!
//! # Reading
//!
//! There are places for reads of the engine and of authentication, places for reads of one thing and
//! places for lists. Tenants take turns at the latter two ([`crate::turns`]), and a read whose caller
//! has gone is interrupted. So however much one tenant reads, nobody else waits for it.
//!
//! A read waits until the applier has done everything that was acknowledged before (a barrier), and
//! then looks with a connection of its own. A delivery's row is in its day's file from acceptance
//! on, whatever its state; the queue in `main.db` is only the index of work. So every answer comes
//! from one file, or from several that have no row in common.

mod answers;
mod applier;
mod audit;
mod backup;
pub(crate) mod canonical;
mod check;
mod codec;
mod configuration;
mod cursor;
mod deliveries;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod history;
mod ids;
mod intake;
pub mod journal;
mod loss;
pub mod medium;
mod numbering;
mod open;
mod pool;
mod replays;
mod reserve;
mod rows;
mod schema;
mod sieve;
#[cfg(test)]
mod tests;
mod transfer;
mod upkeep;
mod usage;
mod verify;
mod work;

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

use self::answers::Keeping;
use self::applier::{Applier, Days, Item, Line};
use self::files::{Layout, place};
use self::ids::PendingIds;
use self::journal::{AppendError, Journal};
pub use self::loss::Loss;
use self::pool::{Looking, Pool, Stop, StopOnDrop};
use self::reserve::Ballast;
use self::sieve::Sieves;
use crate::error::StoreError;
use crate::turns::{Turn, Turns};

/// A read for a tenant is ended after this time. A request is answered within 30 s.
const READ_TIME_MAX: Duration = Duration::from_secs(20);

/// A map whose keys nobody chooses to make it slow: its hash is drawn anew in every process.
type QuickMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// The same without values.
type QuickSet<K> = HashSet<K, foldhash::fast::RandomState>;

/// Told once, with the reason, when the store has stopped for good: the process must end.
pub type FatalHook = Arc<dyn Fn(&str) + Send + Sync>;

/// How an embedded store is opened.
#[derive(Clone)]
pub struct Options {
    /// The length of a journal segment (**64 MiB**).
    pub segment_bytes: u64,
    /// Room that is kept so that work can be finished on a full disk (**64 MiB**).
    pub reserve_bytes: u64,
    /// How many bytes of history are read when the store is opened, the newest days first, to find
    /// damage inside them (**64 MiB**).
    pub check_bytes: u64,
    /// Who is told when the store has stopped for good.
    pub fatal: Option<FatalHook>,
    /// Whose threads read lists; those of whoever asks where it is `None`.
    pub lists_on: Option<tokio::runtime::Handle>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 64 << 20,
            reserve_bytes: 64 << 20,
            check_bytes: 64 << 20,
            fatal: None,
            lists_on: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
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
    line: Arc<Line>,
    pending: Arc<PendingIds>,
    pool: Arc<Pool>,
    /// Places for the engine and for authentication, which never wait for a tenant's reads.
    vital: Arc<Semaphore>,
    /// Places for reading one thing, by tenant.
    points: Arc<Turns>,
    /// Places for lists, by tenant.
    lists: Arc<Turns>,
    /// Whose threads read lists.
    lists_on: Option<tokio::runtime::Handle>,
    days: Days,
    keeping: Keeping,
    sieves: Arc<Sieves>,
    filling: Mutex<Option<JoinHandle<()>>>,
    ballast: Arc<Ballast>,
    applier: Mutex<Option<JoinHandle<()>>>,
    lock: Mutex<Option<File>>,
}

impl EmbeddedStore {
    fn place(&self) -> String {
        place(self.layout.root())
    }

    /// Waits until everything that was acknowledged before is in SQLite.
    async fn barrier(&self) -> Result<(), StoreError> {
        if self.line.is_done()? {
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.line.push(Item::Barrier(reply))?;
        match answer.await {
            Ok(answer) => answer,
            Err(_) => Err(self.why_dropped()),
        }
    }

    /// Why something that stood in line was dropped.
    fn why_dropped(&self) -> StoreError {
        match self.line.is_done() {
            Err(stopped) => stopped,
            Ok(_) => StoreError::DiskFull { place: self.place() },
        }
    }

    /// Reads one thing for a tenant, after a barrier.
    async fn read_one<T: Send + 'static>(
        &self,
        tenant: TenantId,
        look: impl FnOnce(&Looking<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.points.take(Some(tenant)).await?;
        self.barrier().await?;
        self.look_for(None, turn, look).await
    }

    /// Reads a list, whose size the tenant chooses, after a barrier. An administrator's list, of no
    /// tenant in particular, is in a line of its own.
    async fn read_list<T: Send + 'static>(
        &self,
        tenant: Option<TenantId>,
        look: impl FnOnce(&Looking<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.lists.take(tenant).await?;
        self.barrier().await?;
        self.look_for(self.lists_on.as_ref(), turn, look).await
    }

    /// Looks until it has the answer, the caller goes away or the time is over.
    async fn look_for<T: Send + 'static>(
        &self,
        on: Option<&tokio::runtime::Handle>,
        turn: Turn,
        look: impl FnOnce(&Looking<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (pool, stop) = (Arc::clone(&self.pool), Arc::new(Stop::default()));
        let _ends_with_the_caller = StopOnDrop(Arc::clone(&stop));
        let looking = move || {
            let answer = look(&pool.look_until(stop));
            drop(turn);
            answer
        };
        let looked = match on {
            Some(runtime) => runtime.spawn_blocking(looking),
            None => tokio::task::spawn_blocking(looking),
        };
        match tokio::time::timeout(READ_TIME_MAX, looked).await {
            Ok(looked) => answered(looked),
            Err(_) => Err(StoreError::TooSlow(READ_TIME_MAX)),
        }
    }

    /// Looks for the engine or for authentication, after a barrier.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Looking<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.barrier().await?;
        self.look(look).await
    }

    /// Looks at what SQLite has now.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Looking<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let pool = Arc::clone(&self.pool);
        // It is never closed; were it, whoever looks would only not be counted.
        let turn = Arc::clone(&self.vital).acquire_owned().await.ok();
        let looked = tokio::task::spawn_blocking(move || {
            let answer = look(&pool.look());
            drop(turn);
            answer
        })
        .await;
        answered(looked)
    }

    /// Lets the applier do something, when everything before it is done.
    async fn job<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Applier) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.line.push(Item::Job(Box::new(move |applier| {
            let outcome = job(applier);
            // After a failed write or sync nobody knows what is on the disk.
            let stopped = match &outcome {
                Err(StoreError::Stopped(why)) => Err(StoreError::Stopped(why.clone())),
                Ok(_) | Err(_) => Ok(()),
            };
            drop(reply.send(outcome));
            stopped
        })))?;
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
        self.job(move |applier| applier.main().change(change)).await
    }

    /// What a refused append means to the caller.
    fn refused(&self, error: &AppendError) -> StoreError {
        match error {
            AppendError::DiskFull => StoreError::DiskFull { place: self.place() },
            AppendError::Write(cause) => StoreError::NotWritable {
                place: place(&self.layout.journal()),
                cause: cause.to_string(),
            },
            AppendError::SyncFailed => StoreError::Stopped(error.to_string()),
            AppendError::Closed => match self.line.is_done() {
                Err(stopped) => stopped,
                Ok(_) => StoreError::Stopped("the store is closed".into()),
            },
            AppendError::TooLarge { .. } => StoreError::Internal(error.to_string()),
        }
    }

    /// What ends the store orderly, and blocks until that is done; `None` where it has ended.
    fn closing(&self) -> Option<impl FnOnce() -> Result<(), StoreError> + Send + 'static> {
        let applier = self.applier.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        let filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (journal, sieves) = (Arc::clone(&self.journal), Arc::clone(&self.sieves));
        let (line, pool) = (Arc::clone(&self.line), Arc::clone(&self.pool));
        Some(move || {
            sieves.stop_filling();
            // It panics for nothing; and if it did, sieves are not needed to close.
            drop(filling.map(JoinHandle::join));
            let closed = journal.close().map_err(|error| StoreError::Stopped(error.to_string()));
            line.push(Item::Job(Box::new(Applier::finish))).ok();
            line.close();
            let ended = applier.join();
            pool.clear();
            drop(lock);
            ended.map_err(|_| StoreError::Stopped("the applier panicked".into()))?;
            line.is_done()?;
            closed
        })
    }
}

/// What a look answers to its caller.
fn answered<T>(looked: Result<Result<T, StoreError>, JoinError>) -> Result<T, StoreError> {
    match looked {
        // A file that cannot be read does not stop the store.
        Ok(Err(StoreError::Stopped(why))) => Err(StoreError::Unavailable(why)),
        Ok(answer) => answer,
        Err(error) => Err(StoreError::Internal(error.to_string())),
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // Whoever cares for the outcome calls `close`.
        if let Some(close) = self.closing() {
            close().ok();
        }
    }
}
