//! Connections for looking, many at a time.
//!
//! A connection is used by one at a time and kept for the next. **While anybody looks, no file is
//! removed.**

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use postrider_domain::ids::{EventId, TenantId};
use rusqlite::Connection;

use super::applier::Days;
use super::files::{Day, Layout, open_reader};
use super::sieve::Sieves;
use crate::error::StoreError;

/// How many may look at the same time: more gain nothing, and each has a connection of its own to
/// every file that it reads, which costs memory and descriptors.
pub(super) const LOOKS_MAX: usize = 16;
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
    _files_stay: RwLockReadGuard<'p, ()>,
}

impl Pool {
    pub(super) fn new(layout: Layout, days: Days, sieves: Arc<Sieves>) -> Self {
        Pool { layout, days, kept: Mutex::default(), removal: RwLock::default(), sieves }
    }

    /// Begins to look.
    pub(super) fn look(&self) -> Looking<'_> {
        let guard = self.removal.read().unwrap_or_else(PoisonError::into_inner);
        Looking { pool: self, _files_stay: guard }
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

impl Looking<'_> {
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
        let connection = self.pool.take(path)?;
        let answer = look(&connection, path);
        if answer.is_ok() {
            self.pool.give_back(path, connection);
        }
        answer
    }
}
