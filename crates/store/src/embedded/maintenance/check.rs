//! Checks, before anything else is read, that no file of a day has lost transactions that `main.db`
//! knows of.
//!
//! Every transaction in a day's file raises the count `writes` in its `meta`. The transaction in
//! `main.db` that follows it keeps that count in `marks`. A kill between the two leaves a file that
//! is ahead, which is normal: the journal still has the records. **A file that is behind has lost
//! acknowledged records.** SQLite does not report that: it silently drops the end of a log whose
//! checksum is wrong, and reads a file without its log as an older version of the file.
//!
//! Checks at every opening, in this order:
//!
//! 1. Every file that `main.db` knows is there.
//! 2. Its count is not behind.
//! 3. Its length is what its header says.
//! 4. Every row and every index, of the newest days, until [`crate::embedded::EmbeddedOptions::check_bytes`] are read.
//!
//! Damage inside older files is found when a row is read, whose checksum is then wrong, or by
//! [`EmbeddedStore::verify`](crate::embedded::EmbeddedStore::verify).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::verify;
use crate::embedded::apply::MainFile;
use crate::embedded::contract::upkeep::counted;
use crate::embedded::files::{At, Day, Layout, place};
use crate::embedded::files::{rows, schema};
use crate::error::StoreError;

/// The key in `meta` under which a day's file counts its transactions.
pub(in crate::embedded) const WRITES: &str = "writes";

/// The facts that `main.db` has about a day's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::embedded) struct Known {
    /// The least number of transactions that the file must have; `None` where an older version
    /// wrote it.
    pub(in crate::embedded) mark: Option<i64>,
    /// Whether the counts are complete, and the numbers of events, deliveries and attempts.
    counts: Option<[i64; 4]>,
}

/// What is wrong with a day's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::embedded) enum Damage {
    /// The file is missing.
    Missing,
    /// The file lacks this many of its last transactions.
    Behind(i64),
    /// The file, or a part of it, cannot be read.
    Unsound(String),
}

impl Damage {
    /// The damage as text, for the error that names the file.
    pub(in crate::embedded) fn words(&self, known: &Known) -> String {
        let held = match known.counts {
            Some([_, events, deliveries, _]) => {
                format!(" (by main.db it holds {events} events and {deliveries} deliveries)")
            }
            None => String::new(),
        };
        let what = match self {
            Damage::Missing => "it is missing".to_owned(),
            Damage::Behind(1) => "its last transaction is missing, or its log (-wal)".to_owned(),
            Damage::Behind(n) => {
                format!("its last {n} transactions are missing, or its log (-wal)")
            }
            Damage::Unsound(what) => what.clone(),
        };
        what + &held
    }
}

/// Reads the facts of every day from `main.db`.
pub(in crate::embedded) fn known(main: &MainFile) -> Result<BTreeMap<Day, Known>, StoreError> {
    let (connection, path) = (main.connection(), main.path());
    let mut all: BTreeMap<Day, Known> = BTreeMap::new();
    for (day, counts) in rows::all(connection, path, "days", rows::DAYS, [], rows::day_of)? {
        all.entry(Day::from_number(day)).or_default().counts = Some(counts);
    }
    for (day, writes) in rows::all(connection, path, "marks", rows::MARKS, [], rows::mark_of)? {
        all.entry(Day::from_number(day)).or_default().mark = Some(writes);
    }
    Ok(all)
}

/// Refuses to open a history with a damaged or missing file, and names the file. Files that
/// `main.db` does not know are added to it: an older version wrote them, or the process was killed
/// before it could add them.
pub(in crate::embedded) fn history(
    layout: &Layout,
    main: &mut MainFile,
    check_bytes: u64,
) -> Result<(), StoreError> {
    let known = known(main)?;
    let (mut left, mut unknown) = (check_bytes, Vec::new());
    let mut days: Vec<Day> = layout.days()?;
    days.extend(known.keys());
    days.sort_unstable();
    days.dedup();
    for day in days.into_iter().rev() {
        let of_day = known.get(&day).copied().unwrap_or_default();
        let bytes = length(&layout.day(day)) + length(&log_of(&layout.day(day)));
        let is_read = bytes <= left;
        left = left.saturating_sub(bytes);
        match examine(layout, day, &of_day, is_read)? {
            Ok(writes) if of_day.mark.is_none() => unknown.push((day, writes)),
            Ok(_) => {}
            Err(damage) => {
                let (place, words) = (place(&layout.day(day)), damage.words(&of_day));
                let give_up = format!("postrider doctor --accept-loss history/{}", day.file_name());
                let what = format!("{words}; `{give_up}` goes on without it");
                return Err(StoreError::Corrupt { place, what });
            }
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    main.change(|transaction, path| {
        unknown.iter().try_for_each(|(day, writes)| {
            rows::put_mark(transaction, day.number(), *writes).at(path)
        })
    })
}

/// Checks a file. Returns how many transactions it has, or what is wrong with it.
pub(in crate::embedded) fn examine(
    layout: &Layout,
    day: Day,
    known: &Known,
    is_read: bool,
) -> Result<Result<i64, Damage>, StoreError> {
    let path = layout.day(day);
    if !path.is_file() {
        return Ok(Err(Damage::Missing));
    }
    schema::check_day(&path)?;
    match looked_at(&path, known, is_read) {
        Ok(found) => Ok(found),
        Err(StoreError::Corrupt { place, what }) => {
            // Keep only the row from the error's place: the caller names the file.
            let inside =
                place.strip_prefix(&crate::embedded::files::place(&path)).unwrap_or_default();
            let inside = inside.trim_start_matches(", ");
            let what = if inside.is_empty() { what } else { format!("{inside}: {what}") };
            Ok(Err(Damage::Unsound(what)))
        }
        Err(other) => Err(other),
    }
}

fn looked_at(path: &Path, known: &Known, is_read: bool) -> Result<Result<i64, Damage>, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).at(path)?;
    // The log of a damaged file is evidence: closing must not remove it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).at(path)?;
    connection.execute_batch("PRAGMA cell_size_check = ON").at(path)?;
    if schema::version(&connection, path)? == 0 {
        // Either the process was killed right after it created the file, or all contents are lost.
        let is_new = *known == Known::default();
        let gone = || Damage::Unsound("it is empty".to_owned());
        return Ok(if is_new { Ok(0) } else { Err(gone()) });
    }
    let writes = match rows::meta(&connection, path, WRITES)? {
        Some(Value::Integer(writes)) => writes,
        Some(_) | None => 0,
    };
    if let Some(lacking) = known.mark.map(|mark| mark - writes).filter(|lacking| *lacking > 0) {
        return Ok(Err(Damage::Behind(lacking)));
    }
    if length(&log_of(path)) > 0 {
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        connection.query_row(checkpoint, [], |_| Ok(())).at(path)?;
    }
    let pages = |what: &str| connection.query_row(what, [], |row| row.get::<_, u32>(0)).at(path);
    let expected = u64::from(pages("PRAGMA page_count")?) * u64::from(pages("PRAGMA page_size")?);
    let found = length(path);
    if found < expected {
        let what = format!("it is cut off: it has {found} bytes instead of {expected}");
        return Ok(Err(Damage::Unsound(what)));
    }
    if is_read {
        verify::verify_day(&connection, path)?;
        let has = counted(&connection, path)?;
        let has = [has.events, has.deliveries, has.attempts];
        if let Some([1, said @ ..]) = known.counts
            && said.iter().zip(has).any(|(said, has)| u64::try_from(*said).unwrap_or(0) > has)
        {
            let [events, deliveries, attempts] = has;
            let what = format!(
                "rows are missing: it has {events} events, {deliveries} deliveries and {attempts} \
                 attempts"
            );
            return Ok(Err(Damage::Unsound(what)));
        }
    }
    Ok(Ok(writes))
}

/// The path of a file's write-ahead log.
pub(in crate::embedded) fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}
