//! The journal: it keeps acknowledged records durable until they are released.
//!
//! An append is answered with its position only after a sync has returned, in the order of
//! positions. Opening returns every acknowledged record once and in order, or fails and names the
//! file, the offset and the sequence number.
//!
//! # Files
//!
//! ```text
//! journal-<number>.seg   header, voucher │ frame │ frame │ … │ mark │ (stale bytes)
//! spare-<number>.seg     a file for a later segment; its contents mean nothing
//! spare-<number>.new     a spare that is being created
//! journal.lock           held by the process that has the journal open
//!
//! batch frame            header: attempt, salt, segment, offset, first, synced_through, length
//!                        records: CRC, length, sequence number, kind, payload
//! seal, rotation mark    a frame's header alone
//! ```
//!
//! Segments are preallocated and recycled, so files contain stale bytes. Stale bytes never verify
//! as current ones: a frame verifies only with its segment's salt (new each time the file is used)
//! and only at the offset that it was written to; a record verifies only with the number of the
//! attempt at writing its batch.
//!
//! # Torn tail or damage
//!
//! One batch is in flight at a time, and the next is written only after the sync of the one before.
//! What is not synced may reach the disk in any order, so a crash can leave later sectors of the
//! last batch without the earlier ones: valid bytes after a bad place prove nothing by themselves.
//! Therefore every frame says up to which sequence number everything *was known to be synced when
//! it was written* (`synced_through`), and a bad place is judged by that:
//!
//! - A valid frame further on in the segment whose `synced_through` covers the bad place: that
//!   place had been acknowledged. Damage; refused.
//! - The next segment begins with a higher sequence number than the bad place: a segment is begun
//!   only when everything before it is synced. Damage; refused.
//! - Neither: nothing after the bad place was ever synced, so none of it was acknowledged. It is the
//!   torn tail, and is cut off; a batch is kept whole or not at all.
//!
//! The last batch has no successor to vouch for it. So when nothing has come for two milliseconds, the
//! writer puts a *seal* after it (a frame without records, replaced by the next batch), and at the end of a
//! segment a *rotation mark*, which also tells a last segment from one whose successor was lost.
//! Opening and closing put a second seal, the *voucher*, on the page of the segment's header, so
//! that no single lost sector of a closed journal takes the last batch and its seal together. Only
//! between a sync and the write that follows it, at most two milliseconds later, is damage to the last
//! batch taken for a torn tail.
//!
//! # Failures
//!
//! A write that fails (disk full, or otherwise) refuses its batch; the next batch goes to the same
//! offset with the same sequence numbers and another attempt number, so that the remains of the
//! first try never verify. A refused append may, like one that was never answered, still be found
//! if the machine stops at that moment; it is never found once a later one was acknowledged. A sync
//! that fails is final: it is never tried again, because the system may have dropped the pages and
//! call the second try a success. For the same reason opening writes the last batch once more
//! before anybody relies on it.

mod error;
mod format;
mod queue;
mod recovered;
mod scan;
mod segment;
mod spares;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::embedded) use format::fuzz as fuzz_frames;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::embedded::medium::Medium;

pub use error::{AppendError, JournalError};
use format::SEGMENT_HEADER_BYTES;
pub use format::StoreId;
use queue::Driver;
pub use recovered::{Recovered, RecoveredRecords};
use writer::Writer;

/// The longest payload, however long the segments are.
pub const RECORD_BYTES_MAX: usize = 40 << 20;
const SEGMENT_BYTES_MIN: u64 = 2 * SEGMENT_HEADER_BYTES;
const SEGMENT_BYTES_MAX: u64 = 1 << 32;
const LOCK_NAME: &str = "journal.lock";

/// A record's place in the order of all records: 1, 2, 3, … without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(u64);

impl Position {
    /// Before the first record.
    pub const START: Position = Position(0);

    /// The position with this sequence number; 0 is before the first record.
    pub const fn new(sequence: u64) -> Self {
        Position(sequence)
    }

    /// The sequence number.
    pub const fn sequence(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A record of the journal, with the bytes that were appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its position.
    pub position: Position,
    /// The kind of payload, in the caller's own numbering.
    pub kind: u8,
    /// The caller's bytes; empty where `meaning` is given.
    pub payload: Bytes,
    /// The decoded value, if the caller passed it. Recovered records have none.
    pub meaning: Option<Meaning>,
    /// The length of the caller's bytes.
    pub bytes: usize,
}

/// The decoded value of a record, which the caller has in memory. It is passed to the consumer of
/// the record, so that the consumer need not decode the bytes, which are then not kept.
#[derive(Clone)]
pub struct Meaning(Arc<dyn Any + Send + Sync>);

impl Meaning {
    /// Wraps a value.
    pub fn new<T: Send + Sync + 'static>(value: Arc<T>) -> Self {
        Meaning(value)
    }

    /// The value, if it is a `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meaning")
    }
}

impl PartialEq for Meaning {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Meaning {}

/// Whether an append may use the segments that are reserved for a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// No: on a full disk the append is refused. For new events.
    Normal,
    /// Yes. For settlements of accepted deliveries.
    MayUseReserve,
}

/// Which thread runs the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// A thread of its own: appends that wait at the same time are committed together.
    Thread,
    /// The thread of the caller of `append`, which commits one append at a time: deterministic, for
    /// simulations and tests.
    Inline,
}

/// How a journal is opened.
#[derive(Debug, Clone)]
pub struct JournalOptions {
    /// The store that the journal belongs to.
    pub store_id: StoreId,
    /// A random number, new at each opening, that nobody who chooses payloads can guess.
    pub nonce: u64,
    /// Everything up to this position is durable elsewhere. Opening returns the records after it.
    pub applied: Position,
    /// Whether to create a missing journal; without it a missing journal is an error.
    pub create: bool,
    /// The length of a segment (**64 MiB**), a multiple of 4096.
    pub segment_bytes: u64,
    /// A batch is complete when its records reach this length (**4 MiB**).
    pub batch_bytes_max: u64,
    /// How many bytes may wait in the queue (**64 MiB**); further appends wait until there is
    /// space.
    pub pending_bytes_max: usize,
    /// How many spare files are kept for reuse (**4**), those of the reserve included.
    pub spares_max: usize,
    /// How many spare files are reserved for [`Reserve::MayUseReserve`] (**1**).
    pub reserve_segments: usize,
    /// Which thread runs the writer (**its own**).
    pub run: Run,
}

impl JournalOptions {
    /// The defaults, for a new store.
    pub fn new(store_id: StoreId, nonce: u64) -> Self {
        JournalOptions {
            store_id,
            nonce,
            applied: Position::START,
            create: true,
            segment_bytes: 64 << 20,
            batch_bytes_max: 4 << 20,
            pending_bytes_max: 64 << 20,
            spares_max: 4,
            reserve_segments: 1,
            run: Run::Thread,
        }
    }

    fn check(&self) -> Result<(), JournalError> {
        let whole_pages = self.segment_bytes.is_multiple_of(SEGMENT_HEADER_BYTES);
        if !whole_pages || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&self.segment_bytes) {
            let what = "segment_bytes must be a multiple of 4096, from 8192 to 4 GiB";
            return Err(JournalError::Options(what));
        }
        if self.pending_bytes_max == 0 {
            return Err(JournalError::Options("pending_bytes_max must not be 0"));
        }
        Ok(())
    }
}

/// Callbacks of the writer. Both are called on the writer's thread and must not call the journal.
pub struct Hooks {
    /// Receives every batch of records, in order, when it is durable and before it is acknowledged.
    /// While the callback blocks, nothing is committed: so a slow consumer slows the producers.
    pub synced: Box<dyn FnMut(Vec<Record>) + Send>,
    /// Called once, after a sync has failed. The process should end: nothing will be acknowledged
    /// any more.
    pub fatal: Option<Box<dyn FnOnce(Arc<io::Error>) + Send>>,
}

impl Hooks {
    /// Callbacks that do nothing.
    pub fn none() -> Self {
        Hooks { synced: Box::new(|_| {}), fatal: None }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooks")
    }
}

/// The unfinished end of the journal after a crash, which was cut off: nothing of it was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub file: String,
    /// Where in the file it was cut.
    pub offset: u64,
    /// The position that the first record cut off would have had.
    pub position: Position,
    /// The length that the cut-off batch should have had.
    pub bytes: u64,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    driver: Driver,
    record_bytes_max: usize,
}

impl Journal {
    /// Opens the journal in a directory. Returns the acknowledged records after
    /// [`JournalOptions::applied`], all durable. Reads as much as is needed to be certain of them.
    pub fn open(
        medium: Arc<dyn Medium>,
        options: JournalOptions,
        hooks: Hooks,
    ) -> Result<(Self, Recovered), JournalError> {
        options.check()?;
        let failed = |action| {
            let directory = medium.describe("");
            move |source| JournalError::Io { file: directory, action, source }
        };
        let lock = medium.lock(LOCK_NAME).map_err(|source| {
            if source.kind() == io::ErrorKind::WouldBlock {
                return JournalError::Locked { file: medium.describe(LOCK_NAME) };
            }
            failed("lock the journal")(source)
        })?;
        let names = medium.list().map_err(failed("list the journal"))?;
        let scan = scan::scan(&*medium, &names, &options.store_id, options.applied)?;
        if scan.is_none() && !options.create {
            return Err(JournalError::NoJournal { directory: medium.describe("") });
        }
        let record_bytes_max = writer::record_bytes_max(options.segment_bytes);
        let (run, pending_bytes_max) = (options.run, options.pending_bytes_max);
        let applied = options.applied;
        let writer = Writer::open(&medium, &names, scan.as_ref(), options, hooks, lock)?;
        let recovered = Recovered::new(medium, scan, applied);
        let driver = Driver::start(writer, run, pending_bytes_max).map_err(|source| {
            JournalError::Io { file: "the journal's writer".to_owned(), action: "start", source }
        })?;
        Ok((Journal { driver, record_bytes_max }, recovered))
    }

    /// Appends one record, whole or not at all. Positions follow the order of calls, as long as no
    /// caller has to wait for space in the queue. The answer comes when the record is durable. If
    /// the future is dropped, the record may still be in the journal.
    pub fn append(
        &self,
        kind: u8,
        payload: Bytes,
        reserve: Reserve,
    ) -> impl Future<Output = Result<Position, AppendError>> + Send + '_ {
        self.driver.append(kind, payload, None, reserve, self.record_bytes_max)
    }

    /// Appends one record as [`Journal::append`] does, with the decoded value for its consumer.
    pub fn append_meaning(
        &self,
        kind: u8,
        payload: Bytes,
        meaning: Meaning,
        reserve: Reserve,
    ) -> impl Future<Output = Result<Position, AppendError>> + Send + '_ {
        self.driver.append(kind, payload, Some(meaning), reserve, self.record_bytes_max)
    }

    /// Appends records as one batch, as the writer's thread does with appends that wait together.
    #[cfg(test)]
    fn append_together(
        &self,
        batch: Vec<(u8, Bytes, Reserve)>,
    ) -> Vec<Result<Position, AppendError>> {
        self.driver.append_together(batch)
    }

    /// Tells the journal that everything up to this position is durable elsewhere: its segments can
    /// be recycled.
    pub fn release(&self, through: Position) {
        self.driver.release(through);
    }

    /// Goes on in a new segment whose file was never used, and removes every other file once its records are
    /// released: so no stale byte of a released record is left. Returns when that is done. Appends go on meanwhile.
    pub fn scrub(&self) -> impl Future<Output = Result<(), AppendError>> + Send + 'static {
        let scrubbed = self.driver.scrub();
        async move { scrubbed.await.unwrap_or(Err(AppendError::Closed)) }
    }

    /// The last position that is durable.
    pub fn synced(&self) -> Position {
        self.driver.synced()
    }

    /// Whether the last append without [`Reserve::MayUseReserve`] was refused because the disk is
    /// full.
    pub fn is_disk_full(&self) -> bool {
        self.driver.is_disk_full()
    }

    /// The longest payload that is taken.
    pub fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Commits the waiting appends, seals the journal and stops. Blocks until that is done; a
    /// second call does nothing.
    pub fn close(&self) -> Result<(), JournalError> {
        self.driver.close()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // The error is ignored here; a caller that needs it calls `close`.
        self.driver.close().ok();
    }
}
