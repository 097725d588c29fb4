//! Errors of the journal, one variant for each reaction of the caller.
//!
//! An error of an append means that this append was not acknowledged, never that an earlier one was
//! lost. An error about damage names the file, the offset and the sequence number.

use std::io;
use std::sync::Arc;

use crate::embedded::medium::is_full;

/// Why the journal did not open or close.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("{file}: cannot {action}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The operation that failed.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another process has the journal open.
    #[error("{file}: another process has this journal open")]
    Locked {
        /// The lock's file.
        file: String,
    },
    /// The journal is missing although it must exist.
    #[error("{directory}: the journal is gone; the store is known to have had one")]
    NoJournal {
        /// The directory in which the journal was looked for.
        directory: String,
    },
    /// A segment of another store.
    #[error("{file}: belongs to another store")]
    Foreign {
        /// The file.
        file: String,
    },
    /// A segment of a version that this program does not know.
    #[error("{file}: has journal format {version}, which this program does not know")]
    UnknownVersion {
        /// The file.
        file: String,
        /// The version found.
        version: u32,
    },
    /// An acknowledged record is damaged.
    #[error("{file}: damaged at offset {offset}, record {sequence}: {damage}")]
    Corrupt {
        /// The file.
        file: String,
        /// The offset in the file.
        offset: u64,
        /// The sequence number that the record should have.
        sequence: u64,
        /// A description of the damage.
        damage: &'static str,
    },
    /// A segment that had been written to is gone.
    #[error("{file}: is missing; it held the records from {sequence} on")]
    MissingSegment {
        /// The file that is missing.
        file: String,
        /// The first sequence number that is missing.
        sequence: u64,
    },
    /// SQLite has applied records that the journal does not have.
    #[error("the journal ends at record {last}, but the store has applied {applied}")]
    Behind {
        /// The journal's last record.
        last: u64,
        /// The last position that the caller has applied.
        applied: u64,
    },
    /// The options contradict each other.
    #[error("journal options: {0}")]
    Options(&'static str),
    /// A sync failed earlier; the journal acknowledges nothing any more.
    #[error("a sync of the journal failed: {0}")]
    SyncFailed(Arc<io::Error>),
}

/// Why a record was not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    /// There is no room on the disk. Later appends succeed when there is room again.
    #[error("the disk is full")]
    DiskFull,
    /// The record could not be written. Later appends may succeed.
    #[error("the journal cannot be written: {0}")]
    Write(Arc<io::Error>),
    /// A sync failed, so nobody knows what is on the disk: nothing is acknowledged any more.
    #[error("a sync of the journal failed; nothing more is acknowledged")]
    SyncFailed,
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// The record is longer than a segment can hold.
    #[error("a record of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// The payload's length.
        bytes: usize,
        /// The longest possible.
        bytes_max: usize,
    },
}

/// Why an operation of the writer failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The disk is full: refuse this batch, and go on when there is space.
    Full,
    /// The write failed: refuse this batch, and go on.
    Write(io::Error),
    /// The sync failed: stop for good.
    Sync(io::Error),
}

impl Trouble {
    /// Classifies the error of an operation other than a sync.
    pub(super) fn of(error: io::Error) -> Self {
        if is_full(&error) { Trouble::Full } else { Trouble::Write(error) }
    }

    /// The error for the callers of `append`.
    pub(super) fn refusal(&self) -> AppendError {
        match self {
            Trouble::Full => AppendError::DiskFull,
            Trouble::Write(error) => {
                AppendError::Write(Arc::new(io::Error::new(error.kind(), error.to_string())))
            }
            Trouble::Sync(_) => AppendError::SyncFailed,
        }
    }

    /// The error of opening the journal.
    pub(super) fn while_opening(self, file: String, action: &'static str) -> JournalError {
        let source = match self {
            Trouble::Full => io::ErrorKind::StorageFull.into(),
            Trouble::Write(error) | Trouble::Sync(error) => error,
        };
        JournalError::Io { file, action, source }
    }
}
