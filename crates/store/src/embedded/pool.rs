//! Connections for looking, many at a time.
//!
//! A connection is used by one at a time and kept for the next. **While anybody looks, no file is
//! removed.** A look that nobody waits for any more is interrupted in the middle of its statement.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use postrider_domain::ids::{EventId, TenantId};
use rusqlite::Connection;

use super::applier::Days;
use super::files::{At, Day, Layout, open_reader};
use super::sieve::Sieves;
use crate::error::StoreError;

/// Looks of the engine and of authentication at the same time. Each has a connection of its own to
/// every file that it reads, which costs memory and descriptors.
pub(super) const VITAL_MAX: usize = 8;
/// Looks at one thing, for tenants, at the same time.
pub(super) const POINTS_MAX: usize = 8;
/// Looks at one thing that may wait, for each tenant. The engine asks for many at once.
pub(super) const POINTS_LINE_MAX: usize = 2_048;
/// Lists that may wait, for each tenant.
pub(super) const LISTS_LINE_MAX: usize = 64;
/// Lists for tenants at the same time: they keep a processor busy, so there are few.
pub(super) const LISTS_MAX: usize = 4;
/// Connections to one file that are kept.
const KEPT_PER_FILE: usize = 8;
/// Connections that are kept in all.
const KEPT_MAX: usize = 64;

/// The connections.
#[derive(Debug)]
pub(super) struct Pool {
    layout: Layout,
    days: Days,
    kept: Mutex<HashMap<PathBuf, Vec<Connection>>>,
    removal: RwLock<()>,
    sieves: Arc<Sieves>,
}

/// The right to look: files stay while it is held.
#[derive(Debug)]
pub(super) struct Looking<'p> {
    pool: &'p Pool,
    stop: Arc<Stop>,
    _files_stay: RwLockReadGuard<'p, ()>,
}

impl Pool {
    pub(super) fn new(layout: Layout, days: Days, sieves: Arc<Sieves>) -> Self {
        Pool { layout, days, kept: Mutex::default(), removal: RwLock::default(), sieves }
    }

    /// Begins to look.
    pub(super) fn look(&self) -> Looking<'_> {
        self.look_until(Arc::default())
    }

    /// Begins to look, until it is stopped.
    pub(super) fn look_until(&self, stop: Arc<Stop>) -> Looking<'_> {
        let guard = self.removal.read().unwrap_or_else(PoisonError::into_inner);
        Looking { pool: self, stop, _files_stay: guard }
    }

    /// Waits until nobody looks, and keeps everybody from it.
    pub(super) fn keep_out(&self) -> RwLockWriteGuard<'_, ()> {
        self.removal.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connections to a file.
    pub(super) fn forget(&self, path: &Path) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Closes all connections.
    pub(super) fn clear(&self) {
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

/// Stops a look from outside, also in the middle of a statement.
///
/// The statement asks, every thousand steps. SQLite's interrupt would not do: it is lost where it
/// comes before the first step, and the statement then runs on, with its place, for nobody.
#[derive(Debug, Default)]
pub(super) struct Stop(AtomicBool);

/// Steps of SQLite's machine between two questions whether to go on: some tens of microseconds.
const STEPS_BETWEEN_CHECKS: i32 = 1_000;

impl Stop {
    /// Ends the look: the statement that runs fails, and no other begins.
    pub(super) fn stop(&self) {
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

/// Stops a look when its caller goes away.
#[derive(Debug)]
pub(super) struct StopOnDrop(pub(super) Arc<Stop>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl Looking<'_> {
    /// Fails where nobody waits for this look any more: for loops of many short statements.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        self.stop.check()
    }

    /// Every day that has a file, oldest first.
    pub(super) fn days(&self) -> BTreeSet<Day> {
        self.pool.days.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The days that may have an event with this identifier, the likely ones first.
    pub(super) fn days_of(&self, tenant: &TenantId, id: &EventId) -> Vec<Day> {
        self.pool.sieves.days_of(self.days().into_iter(), tenant, id)
    }

    /// Looks into `main.db`.
    pub(super) fn main<T>(
        &self,
        look: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file(&self.pool.layout.main(), look)
    }

    /// Looks into the file of a day.
    pub(super) fn day<T>(
        &self,
        day: Day,
        look: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file(&self.pool.layout.day(day), look)
    }

    fn file<T>(
        &self,
        path: &Path,
        look: impl FnOnce(&Connection, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.stop.check()?;
        let mut connection = self.pool.take(path)?;
        let stop = Arc::clone(&self.stop);
        connection
            .progress_handler(STEPS_BETWEEN_CHECKS, Some(move || stop.is_stopped()))
            .at(path)?;
        let answer = look(&connection, path);
        if answer.is_ok() {
            self.pool.give_back(path, connection);
        }
        answer
    }
}
