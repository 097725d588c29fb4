//! The applier: one thread that moves records from the journal into SQLite, in order.
//!
//! All its work comes from one queue: records after the journal has synced them, changes of the
//! configuration, and barriers of readers. A barrier is answered when everything before it is in
//! SQLite. **A record enters the queue before its append is answered**, so a reader that waits for
//! a barrier sees everything that was acknowledged before.

mod day_file;
mod day_rows;
mod fold;
mod import;
mod main_file;
mod queue;
mod unapplied;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_domain::ids::{EventId, TenantId};

pub(in crate::embedded) use self::day_file::DayFile;
use self::fold::Fold;
pub(in crate::embedded) use self::fold::minute;
pub(in crate::embedded) use self::import::PROGRESS;
pub(in crate::embedded) use self::main_file::MainFile;
use self::main_file::Marks;
pub(in crate::embedded) use self::queue::{ApplyQueue, Item, Taken, Task};
#[cfg(test)]
pub(in crate::embedded) use self::unapplied::CHANGES_MAX;
pub(in crate::embedded) use self::unapplied::{Batch, Circuits, Needs, Overlay, Unapplied};
use crate::embedded::contract::pending_ids::PendingIds;
use crate::embedded::files::bloom::BloomFilters;
use crate::embedded::files::codec;
use crate::embedded::files::disk_reserve::DiskReserve;
use crate::embedded::files::{Day, Layout, place};
use crate::embedded::journal::{Position, Record};
use crate::error::StoreError;
use crate::records::{Acceptance, Commit};

/// The kinds of journal records.
pub(in crate::embedded) mod kind {
    /// An empty record: once it is answered, every record before it is in the journal or refused.
    pub(in crate::embedded) const FENCE: u8 = 0;
    /// A batch of acceptances.
    pub(in crate::embedded) const ACCEPT: u8 = 1;
    /// A commit.
    pub(in crate::embedded) const SETTLE: u8 = 2;
}

/// How many files of days stay open for writing.
const DAY_FILES_MAX: usize = 4;
/// How long to wait before trying again on a full disk.
const FULL_PAUSE: Duration = Duration::from_millis(200);

/// The contents of a record.
enum Contents<'r> {
    Nothing,
    Accept(Cow<'r, [Acceptance]>),
    Settle(&'r Commit),
    Decoded(Box<Commit>),
}

fn fold_in<'r>(fold: &mut Fold<'r>, contents: &'r Contents<'_>) {
    match contents {
        Contents::Nothing => {}
        Contents::Accept(batch) => batch.iter().for_each(|acceptance| fold.accept(acceptance)),
        Contents::Settle(commit) => fold.settle(commit),
        Contents::Decoded(commit) => fold.settle(commit),
    }
}

/// Called with the reason when the applier has stopped for good.
pub(in crate::embedded) type Fatal = Box<dyn Fn(&str) + Send + Sync>;

/// The days that have a file.
pub(in crate::embedded) type Days = Arc<Mutex<std::collections::BTreeSet<Day>>>;

/// The applier: the state of its thread.
pub(in crate::embedded) struct Applier {
    layout: Layout,
    main: MainFile,
    days: BTreeMap<Day, DayFile>,
    /// Days whose file was created since `main.db` was last written.
    new_days: BTreeSet<Day>,
    known_days: Days,
    queue: Arc<ApplyQueue>,
    pending: Arc<PendingIds>,
    blooms: Arc<BloomFilters>,
    disk_reserve: Arc<DiskReserve>,
    applied: Position,
    released: Box<dyn Fn(Position) + Send>,
    fatal: Fatal,
}

impl std::fmt::Debug for Applier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Applier").field("applied", &self.applied).finish_non_exhaustive()
    }
}

/// The parts of an [`Applier`].
pub(in crate::embedded) struct Parts {
    pub(in crate::embedded) layout: Layout,
    pub(in crate::embedded) main: MainFile,
    pub(in crate::embedded) known_days: Days,
    pub(in crate::embedded) queue: Arc<ApplyQueue>,
    pub(in crate::embedded) pending: Arc<PendingIds>,
    pub(in crate::embedded) blooms: Arc<BloomFilters>,
    pub(in crate::embedded) disk_reserve: Arc<DiskReserve>,
    pub(in crate::embedded) applied: Position,
    pub(in crate::embedded) fatal: Fatal,
}

/// Stops the queue when the applier panics, so that callers get an error instead of waiting for
/// ever.
struct Ender(Arc<ApplyQueue>);

impl Drop for Ender {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop("the applier panicked");
        }
    }
}

impl Applier {
    pub(in crate::embedded) fn new(parts: Parts) -> Self {
        let Parts {
            layout,
            main,
            known_days,
            queue,
            pending,
            blooms,
            disk_reserve,
            applied,
            fatal,
        } = parts;
        Applier {
            layout,
            main,
            days: BTreeMap::new(),
            new_days: BTreeSet::new(),
            known_days,
            queue,
            pending,
            blooms,
            disk_reserve,
            applied,
            released: Box::new(|_| {}),
            fatal,
        }
    }

    /// Sets the callback for the position up to which everything is durable in SQLite.
    pub(in crate::embedded) fn set_released(&mut self, released: Box<dyn Fn(Position) + Send>) {
        self.released = released;
    }

    /// Calls the callback with the current position.
    pub(in crate::embedded) fn release_applied(&self) {
        (self.released)(self.applied);
    }

    pub(in crate::embedded) fn main(&mut self) -> &mut MainFile {
        &mut self.main
    }

    pub(in crate::embedded) fn blooms(&self) -> &BloomFilters {
        &self.blooms
    }

    pub(in crate::embedded) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Works until the queue is closed and empty.
    pub(in crate::embedded) fn run(mut self) {
        let queue = Arc::clone(&self.queue);
        let _ender = Ender(Arc::clone(&queue));
        while let Some(taken) = queue.take() {
            match taken {
                Taken::Records(batches) => {
                    if let Err(error) = self.apply_until_it_succeeds(&batches) {
                        self.stop(&error);
                        return;
                    }
                }
                Taken::Barrier(reply) => drop(reply.send(Ok(()))),
                Taken::Task(job) => {
                    if let Err(error) = job(&mut self) {
                        self.stop(&error);
                        return;
                    }
                }
            }
            queue.done();
        }
    }

    fn stop(&mut self, error: &StoreError) {
        let why = if let StoreError::Stopped(why) = error { why } else { &error.to_string() };
        // Call the hook first: a caller that is refused can rely on the process knowing why.
        (self.fatal)(why);
        self.queue.stop(why);
    }

    /// Applies records; on a full disk it waits, and the records stay here and in the journal.
    fn apply_until_it_succeeds(&mut self, batches: &[Arc<Batch>]) -> Result<(), StoreError> {
        loop {
            match self.apply(batches.iter().flat_map(|batch| batch.records())) {
                Err(StoreError::DiskFull { place }) => {
                    let has_given_up = self.disk_reserve.give_up();
                    // A checkpoint of the write-ahead logs may free enough space inside the files.
                    match self.checkpoint() {
                        Ok(()) | Err(StoreError::DiskFull { .. }) => {}
                        Err(error) => return Err(error),
                    }
                    if has_given_up {
                        continue;
                    }
                    self.queue.refuse_waiting(&place);
                    if !self.queue.pause(FULL_PAUSE) {
                        return Err(StoreError::DiskFull { place });
                    }
                }
                other => return other,
            }
        }
    }

    /// Writes the days first, then `main.db` with the position: so a day's file always has at least
    /// what `main.db` says.
    pub(in crate::embedded) fn apply<'r>(
        &mut self,
        records: impl Iterator<Item = &'r Record>,
    ) -> Result<(), StoreError> {
        let opened = records.map(|record| self.open(record)).collect::<Result<Vec<_>, _>>();
        let opened = opened?;
        let mut rest = opened.as_slice();
        while !rest.is_empty() {
            let mut fold = Fold::default();
            let (mut taken, mut applied) = (0, self.applied);
            for (position, contents) in rest {
                // An earlier try that met a full disk may have applied records already.
                if *position > self.applied {
                    fold_in(&mut fold, contents);
                }
                applied = applied.max(*position);
                taken += 1;
                if fold.rows() >= queue::ROWS_MAX {
                    break;
                }
            }
            self.write(&fold, applied)?;
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(())
    }

    /// The contents of a record: as the caller provided them, or decoded.
    fn open<'r>(&self, record: &'r Record) -> Result<(Position, Contents<'r>), StoreError> {
        let damaged = |error: codec::Malformed| StoreError::Corrupt {
            place: format!("{}, record {}", place(&self.layout.journal()), record.position),
            what: error.to_string(),
        };
        let brought = record.meaning.as_ref();
        let contents = match record.kind {
            kind::FENCE => Contents::Nothing,
            kind::ACCEPT => match brought.and_then(|meaning| meaning.get::<Vec<Acceptance>>()) {
                Some(batch) => Contents::Accept(Cow::Borrowed(batch)),
                None => Contents::Accept(Cow::Owned(
                    codec::get_acceptances(record.payload.clone()).map_err(damaged)?,
                )),
            },
            kind::SETTLE => match brought.and_then(|meaning| meaning.get::<Commit>()) {
                Some(commit) => Contents::Settle(commit),
                None => Contents::Decoded(Box::new(
                    codec::get_commit(record.payload.clone()).map_err(damaged)?,
                )),
            },
            3.. => return Err(damaged(codec::Malformed("an unknown kind of record"))),
        };
        Ok((record.position, contents))
    }

    fn write(&mut self, fold: &Fold<'_>, applied: Position) -> Result<(), StoreError> {
        let marks = self.write_days(fold)?;
        self.main.write(fold, &self.new_days, &marks, applied)?;
        self.new_days.clear();
        self.applied = applied;
        // SQLite has these events now, so they are no longer pending.
        self.pending.forget(fold.events().map(|acceptance| &acceptance.event));
        (self.released)(applied);
        Ok(())
    }

    /// Writes the files of the days. Returns how many transactions each file has now.
    fn write_days(&mut self, fold: &Fold<'_>) -> Result<Marks, StoreError> {
        let mut marks = Vec::with_capacity(fold.days.len());
        for (day, of_day) in &fold.days {
            let file = self.day(*day)?;
            let indexed = file.write(of_day)?;
            marks.push((*day, file.writes()));
            self.blooms.add(*day, &indexed);
        }
        Ok(marks)
    }

    /// The file of a day, open for writing.
    pub(in crate::embedded) fn day(&mut self, day: Day) -> Result<&mut DayFile, StoreError> {
        if !self.days.contains_key(&day) {
            if self.days.len() >= DAY_FILES_MAX {
                // Close the oldest one: it is the least likely to be written to.
                self.days.pop_first();
            }
            let (file, is_new) = DayFile::open(&self.layout, day)?;
            if is_new {
                self.new_days.insert(day);
                self.blooms.begin(day);
                self.keep_blooms(Some(day))?;
            }
            self.known_days.lock().unwrap_or_else(PoisonError::into_inner).insert(day);
            self.days.insert(day, file);
        }
        match self.days.get_mut(&day) {
            Some(file) => Ok(file),
            None => Err(StoreError::Internal("a file that was just opened is gone".into())),
        }
    }

    /// The days that may have an event with this identifier, newest first.
    pub(in crate::embedded) fn days_of(&self, tenant: &TenantId, id: &EventId) -> Vec<Day> {
        let days = self.known_days.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.blooms.days_of(days.into_iter(), tenant, id)
    }

    /// Notes in `main.db` how many transactions the file of a day has.
    pub(in crate::embedded) fn put_mark(
        &mut self,
        day: Day,
        writes: i64,
    ) -> Result<(), StoreError> {
        let marks = vec![(day, writes)];
        self.main.change(|transaction, path| main_file::write_marks(transaction, path, &marks))
    }

    /// Closes the file of a day, so that it can be removed.
    pub(in crate::embedded) fn close_day(&mut self, day: Day) {
        self.days.remove(&day);
    }

    /// Saves the Bloom filter of every day except `but` in its file. On a full disk a filter is not
    /// saved; it is built again at the next start.
    fn keep_blooms(&mut self, but: Option<Day>) -> Result<(), StoreError> {
        for (day, bloom) in self.blooms.not_kept() {
            let is_there = self.layout.day(day).is_file();
            if Some(day) == but || !is_there {
                continue;
            }
            let kept = match self.days.get_mut(&day) {
                Some(file) => file.keep(&bloom),
                None => DayFile::open(&self.layout, day)?.0.keep(&bloom),
            };
            match kept {
                Ok(()) => self.blooms.is_kept(day),
                Err(StoreError::DiskFull { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Saves the Bloom filters and empties the write-ahead logs, before the files are closed.
    pub(in crate::embedded) fn finish(&mut self) -> Result<(), StoreError> {
        self.keep_blooms(None)?;
        self.checkpoint()
    }

    /// Copies every write-ahead log into its file.
    pub(in crate::embedded) fn checkpoint(&mut self) -> Result<(), StoreError> {
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        let run = |connection: &rusqlite::Connection, path: &Path| {
            connection
                .query_row(truncate, [], |_| Ok(()))
                .map_err(|error| crate::embedded::files::sqlite_error(path, &error))
        };
        for file in self.days.values_mut() {
            let (connection, path) = file.connection();
            run(connection, path)?;
        }
        let path: PathBuf = self.main.path().to_owned();
        run(self.main.connection(), &path)
    }
}
