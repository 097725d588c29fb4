//! The files of a data directory, and errors of SQLite as errors of the store.
//!
//! ```text
//! postrider.lock       held by the process that has the store open
//! journal/             what is acknowledged and not yet durable in SQLite
//! main.db              configuration, queue, destinations, ledger, tallies, replay jobs
//! history/<day>.db     one UTC day's events, with their deliveries and attempts
//! reserve              space that is released to finish work on a full disk
//! ```

pub(in crate::embedded) mod bloom;
pub(crate) mod canonical;
pub(in crate::embedded) mod codec;
pub(in crate::embedded) mod disk_reserve;
pub(in crate::embedded) mod read_pool;
pub(in crate::embedded) mod row_numbers;
pub(in crate::embedded) mod rows;
pub(in crate::embedded) mod schema;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use postrider_domain::time::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::StoreError;

/// The page size of files with small rows that change.
pub(in crate::embedded) const SMALL_PAGE_BYTES: u32 = 4096;
/// The page size of files with long rows that rarely change.
pub(in crate::embedded) const LARGE_PAGE_BYTES: u32 = 16384;
/// A write-ahead log is copied into its file when it is this long. A page that changes in several
/// transactions is copied once.
const LOG_BYTES: u32 = 64 << 20;

/// Files are for their owner alone.
const PRIVATE: u32 = 0o600;

const DAY_MS: i64 = 86_400_000;
/// The days of the years 0 to 9999. A time outside falls on the nearest of them.
const DAYS: std::ops::RangeInclusive<i64> = -719_528..=2_932_895;
/// The extended code of "cannot extend the shared memory file", which a full disk also causes.
const IOERR_SHMSIZE: i32 = ffi::SQLITE_IOERR | (19 << 8);

/// A UTC day, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::embedded) struct Day(i64);

impl Day {
    /// The day that a time falls on.
    pub(in crate::embedded) fn of(time: Timestamp) -> Self {
        Day(time.as_unix_ms().div_euclid(DAY_MS).clamp(*DAYS.start(), *DAYS.end()))
    }

    /// The day with this number.
    pub(in crate::embedded) fn from_number(number: i64) -> Self {
        Day(number.clamp(*DAYS.start(), *DAYS.end()))
    }

    /// Its number, counted from 1970-01-01.
    pub(in crate::embedded) fn number(self) -> i64 {
        self.0
    }

    /// Its first millisecond by the calendar.
    pub(in crate::embedded) fn first_ms(self) -> i64 {
        self.0 * DAY_MS
    }

    /// Its start; for the first day, the earliest time there is.
    pub(in crate::embedded) fn start(self) -> Timestamp {
        Timestamp::from_unix_ms(if self.0 == *DAYS.start() { i64::MIN } else { self.0 * DAY_MS })
    }

    /// Its end: the start of the next day.
    pub(in crate::embedded) fn end(self) -> Timestamp {
        if self.0 == *DAYS.end() {
            return Timestamp::MAX;
        }
        Timestamp::from_unix_ms((self.0 + 1) * DAY_MS)
    }

    pub(in crate::embedded) fn file_name(self) -> String {
        let mut name = Timestamp::from_unix_ms(self.0 * DAY_MS).to_string();
        name.truncate("2026-11-15".len());
        name + ".db"
    }

    pub(in crate::embedded) fn from_file_name(name: &str) -> Option<Self> {
        let date = name.strip_suffix(".db")?;
        let day = Day::of(format!("{date}T00:00:00.000Z").parse().ok()?);
        (day.file_name() == name).then_some(day)
    }
}

/// The paths of a data directory.
#[derive(Debug, Clone)]
pub(in crate::embedded) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(in crate::embedded) fn new(root: impl Into<PathBuf>) -> Self {
        Layout { root: root.into() }
    }

    pub(in crate::embedded) fn root(&self) -> &Path {
        &self.root
    }

    pub(in crate::embedded) fn lock(&self) -> PathBuf {
        self.root.join("postrider.lock")
    }

    pub(in crate::embedded) fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    pub(in crate::embedded) fn main(&self) -> PathBuf {
        self.root.join("main.db")
    }

    pub(in crate::embedded) fn history(&self) -> PathBuf {
        self.root.join("history")
    }

    pub(in crate::embedded) fn day(&self, day: Day) -> PathBuf {
        self.history().join(day.file_name())
    }

    pub(in crate::embedded) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// Every day that has a file.
    pub(in crate::embedded) fn days(&self) -> Result<Vec<Day>, StoreError> {
        let directory = self.history();
        let failed = |error| io_error(&directory, &error);
        let mut days = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            days.extend(name.to_str().and_then(Day::from_file_name));
        }
        days.sort_unstable();
        Ok(days)
    }
}

/// Opens a file for writing, and creates it with mode 0600 where it is missing. Permissions of others
/// are removed from an existing file. A symbolic link is refused: it could point to any file, which
/// would be overwritten.
pub(in crate::embedded) fn open_private(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let no_follow = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or_default();
    let opened = options.mode(PRIVATE).custom_flags(no_follow).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::LOOP.raw_os_error() => {
            let cause = "it is a symbolic link; put the file itself there".to_owned();
            StoreError::NotWritable { place: place(path), cause }
        }
        Some(_) | None => io_error(path, &error),
    })?;
    let mode = file.metadata().map_err(|error| io_error(path, &error))?.permissions().mode();
    if mode & 0o077 != 0 {
        let closed = file.set_permissions(Permissions::from_mode(PRIVATE));
        closed.map_err(|error| io_error(path, &error))?;
    }
    Ok(file)
}

/// A path as text, for error messages.
pub(in crate::embedded) fn place(path: &Path) -> String {
    path.display().to_string()
}

/// Syncs a directory, so that the names of its files are durable.
pub(in crate::embedded) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    let synced = fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| io_error(path, &error))
}

/// An error of the file system as an error of the store.
#[expect(clippy::wildcard_enum_match_arm, reason = "there are many kinds, and more to come")]
pub(in crate::embedded) fn io_error(path: &Path, error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::DiskFull { place: place(path) }
        }
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::NotFound => {
            StoreError::NotWritable { place: place(path), cause: error.to_string() }
        }
        _ => StoreError::Unavailable(format!("{}: {error}", place(path))),
    }
}

/// An error of SQLite as an error of the store.
#[expect(clippy::wildcard_enum_match_arm, reason = "there are many codes, and more to come")]
pub(in crate::embedded) fn sqlite_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    let place = place(path);
    let corrupt = |what: String| StoreError::Corrupt { place: place.clone(), what };
    let (code, extended) = match error {
        rusqlite::Error::SqliteFailure(failure, _) => (failure.code, failure.extended_code),
        rusqlite::Error::SqlInputError { msg, .. } if msg.contains("no such") => {
            // A table is missing: the file was replaced, or its first pages were overwritten.
            return corrupt(msg.clone());
        }
        // A column has another type than it was written with.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..) => return corrupt(error.to_string()),
        _ => return StoreError::Internal(format!("{place}: {error}")),
    };
    match code {
        ErrorCode::DiskFull => StoreError::DiskFull { place },
        ErrorCode::SystemIoFailure if extended == IOERR_SHMSIZE => StoreError::DiskFull { place },
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => corrupt(error.to_string()),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen => {
            StoreError::NotWritable { place, cause: error.to_string() }
        }
        ErrorCode::SystemIoFailure => StoreError::Stopped(format!("{place}: {error}")),
        _ => StoreError::Internal(format!("{place}: {error}")),
    }
}

/// Attaches a file's name to an error of SQLite.
pub(in crate::embedded) trait At<T> {
    /// Converts the error, with the path of the file.
    fn at(self, path: &Path) -> Result<T, StoreError>;
}

impl<T> At<T> for rusqlite::Result<T> {
    fn at(self, path: &Path) -> Result<T, StoreError> {
        self.map_err(|error| sqlite_error(path, &error))
    }
}

/// Opens a database for writing; with `create`, a missing file is created.
pub(in crate::embedded) fn open_writer(
    path: &Path,
    create: bool,
    page_bytes: u32,
) -> Result<Connection, StoreError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if create {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
        // Create the file first: SQLite would use the mode of the umask. The write-ahead log gets
        // the mode of the file.
        drop(open_private(path)?);
    }
    let connection = Connection::open_with_flags(path, flags).at(path)?;
    connection.set_prepared_statement_cache_capacity(64);
    // This has an effect only while the file is new.
    connection.pragma_update(None, "page_size", page_bytes).at(path)?;
    let checkpoint_pages = LOG_BYTES / page_bytes;
    let set_up = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = {checkpoint_pages}; PRAGMA journal_size_limit = {LOG_BYTES};
        PRAGMA cache_size = -49152; PRAGMA temp_store = MEMORY; PRAGMA busy_timeout = 10000;
        PRAGMA cell_size_check = ON;"
    );
    connection.execute_batch(&set_up).at(path)?;
    Ok(connection)
}

/// Opens a database for reading only.
pub(in crate::embedded) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    // SQLite must write to the shared memory of a write-ahead log even to read, so the file is
    // opened for writing; `query_only` makes the connection refuse writes.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).at(path)?;
    connection.set_prepared_statement_cache_capacity(64);
    let set_up = "PRAGMA query_only = ON; PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;
        PRAGMA busy_timeout = 10000; PRAGMA wal_autocheckpoint = 0; PRAGMA cell_size_check = ON;";
    connection.execute_batch(set_up).at(path)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_of_a_day_parses_back_to_the_day() {
        let at = |unix_ms| Day::of(Timestamp::from_unix_ms(unix_ms));
        for (unix_ms, name) in [
            (0, "1970-01-01.db"),
            (-1, "1969-12-31.db"),
            (1_794_700_800_000, "2026-11-15.db"),
            (1_794_787_199_999, "2026-11-15.db"),
            (i64::MAX, "9999-12-30.db"),
        ] {
            let day = at(unix_ms);
            assert_eq!(day.file_name(), name);
            assert_eq!(Day::from_file_name(name), Some(day));
            let time = Timestamp::from_unix_ms(unix_ms);
            assert!(day.start() <= time && (time < day.end() || time == Timestamp::MAX));
        }
        for name in ["", "main.db", "2026-11-15", "2026-11-15.db-wal", "2026-1-5.db"] {
            assert_eq!(Day::from_file_name(name), None, "{name}");
        }
    }
}
