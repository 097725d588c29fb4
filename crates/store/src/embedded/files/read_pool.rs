//! A pool of read connections to `main.db` and to the files of the days.
//!
//! A connection serves one read at a time and is kept for the next. **While a [`ReadGuard`] exists,
//! no file is removed.** A read whose caller has gone away is interrupted in the middle of its
//! statement.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use postrider_domain::ids::{EventId, TenantId};
use rusqlite::Connection;

use super::bloom::BloomFilters;
use super::{At, Day, Layout, open_reader};
use crate::embedded::apply::Days;
use crate::error::StoreError;

/// How many reads of the engine and of authentication run at the same time. Each has a connection
/// of its own to every file that it reads, which costs memory and file descriptors.
pub(in crate::embedded) const VITAL_MAX: usize = 8;
/// How many reads of tenants wait at a barrier at the same time.
pub(in crate::embedded) const BARRIERS_MAX: usize = 32;
/// How many reads may wait for that, for each tenant.
pub(in crate::embedded) const BARRIERS_QUEUE_MAX: usize = 2_048;
/// How many reads of single records, for tenants, run at the same time.
pub(in crate::embedded) const POINTS_MAX: usize = 8;
/// How many reads of single records may wait, for each tenant. The engine asks for many at once.
pub(in crate::embedded) const POINTS_QUEUE_MAX: usize = 2_048;
/// How many lists may wait, for each tenant.
pub(in crate::embedded) const LISTS_QUEUE_MAX: usize = 64;
/// How many lists for tenants run at the same time: few, because each keeps a processor busy.
pub(in crate::embedded) const LISTS_MAX: usize = 4;
/// Idle connections kept for one file: as many as read at the same time, so that none is opened for
/// one read.
const KEPT_PER_FILE: usize = VITAL_MAX + POINTS_MAX + LISTS_MAX;
/// Idle connections kept in all.
const KEPT_MAX: usize = 64;

#[derive(Debug)]
pub(in crate::embedded) struct ReadPool {
    layout: Layout,
    days: Days,
    kept: Mutex<HashMap<PathBuf, Vec<Connection>>>,
    removal: RwLock<()>,
    blooms: Arc<BloomFilters>,
}

/// The right to read: no file is removed while it exists.
#[derive(Debug)]
pub(in crate::embedded) struct ReadGuard<'p> {
    pool: &'p ReadPool,
    stop: Arc<Stop>,
    _files_stay: RwLockReadGuard<'p, ()>,
}

impl ReadPool {
    pub(in crate::embedded) fn new(layout: Layout, days: Days, blooms: Arc<BloomFilters>) -> Self {
        ReadPool { layout, days, kept: Mutex::default(), removal: RwLock::default(), blooms }
    }

    /// Begins a read.
    pub(in crate::embedded) fn read(&self) -> ReadGuard<'_> {
        self.read_until(Arc::default())
    }

    /// Begins a read that `stop` can end.
    pub(in crate::embedded) fn read_until(&self, stop: Arc<Stop>) -> ReadGuard<'_> {
        let guard = self.removal.read().unwrap_or_else(PoisonError::into_inner);
        ReadGuard { pool: self, stop, _files_stay: guard }
    }

    /// Waits until no read is under way, and lets none begin until the guard is dropped.
    pub(in crate::embedded) fn keep_out(&self) -> RwLockWriteGuard<'_, ()> {
        self.removal.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connections to a file.
    pub(in crate::embedded) fn forget(&self, path: &Path) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Closes all connections.
    pub(in crate::embedded) fn clear(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn take(&self, path: &Path) -> Result<Connection, StoreError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.get_mut(path).and_then(Vec::pop);
        drop(kept);
        found.map_or_else(|| open_reader(path), Ok)
    }

    fn give_back(&self, path: &Path, connection: Connection) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = kept.values().map(Vec::len).sum();
        let of_file = kept.entry(path.to_owned()).or_default();
        if all < KEPT_MAX && of_file.len() < KEPT_PER_FILE {
            of_file.push(connection);
        }
    }
}

/// Stops a read from outside, also in the middle of a statement.
///
/// The statement checks the flag every thousand steps. SQLite's own interrupt does not suffice: it
/// is lost if it comes before the first step, and then the statement runs to its end although
/// nobody waits for it.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Stop(AtomicBool);

/// Steps of SQLite's virtual machine between two checks of the flag: some tens of microseconds.
const STEPS_BETWEEN_CHECKS: i32 = 1_000;

impl Stop {
    /// Stops the read: the running statement fails, and no further one begins.
    pub(in crate::embedded) fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.is_stopped() { Err(gone()) } else { Ok(()) }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("nobody waits for this read any more".into())
}

/// Stops a read when its caller goes away.
#[derive(Debug)]
pub(in crate::embedded) struct StopOnDrop(pub(in crate::embedded) Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl ReadGuard<'_> {
    /// Fails if nobody waits for this read any more. Loops over many short statements call it.
    pub(in crate::embedded) fn check(&self) -> Result<(), StoreError> {
        self.stop.check()
    }

    /// Every day that has a file, oldest first.
    pub(in crate::embedded) fn days(&self) -> BTreeSet<Day> {
        self.pool.days.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The days that may have an event with this identifier, the likely ones first.
    pub(in crate::embedded) fn days_of(&self, tenant: &TenantId, id: &EventId) -> Vec<Day> {
        self.pool.blooms.days_of(self.days().into_iter(), tenant, id)
    }

    /// Reads from `main.db`.
    pub(in crate::embedded) fn main<T>(
        &self,
        read: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file(&self.pool.layout.main(), read)
    }

    /// Reads from the file of a day.
    pub(in crate::embedded) fn day<T>(
        &self,
        day: Day,
        read: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file(&self.pool.layout.day(day), read)
    }

    fn file<T>(
        &self,
        path: &Path,
        read: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.stop.check()?;
        let mut connection = self.pool.take(path)?;
        let stop = Arc::clone(&self.stop);
        connection
            .progress_handler(STEPS_BETWEEN_CHECKS, Some(move || stop.is_stopped()))
            .at(path)?;
        let answer = read(&connection, path);
        if answer.is_ok() {
            self.pool.give_back(path, connection);
        }
        answer
    }
}
