//! Writing to `main.db`.
//!
//! Applying a record adds to counters, so each record must be applied exactly once: **the position
//! up to which records are applied moves in the same transaction.**

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use postrider_domain::circuit::StateName as CircuitName;
use postrider_domain::delivery::{Lane, StateName};
use postrider_entropy::system_bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, params};

use super::fold::{Fold, Folded};
use crate::embedded::QuickMap;
use crate::embedded::files::rows;
use crate::embedded::files::rows::delivery::{
    Encoded, PUT_FRESH, PUT_WAITING, Rows, Table, Values,
};
use crate::embedded::files::schema;
use crate::embedded::files::{At, Day, Layout, SMALL_PAGE_BYTES, open_writer, sync_directory};
use crate::embedded::journal::{Position, StoreId};
use crate::error::StoreError;
use crate::records::ReplayState;

/// `main.db`, open for writing.
#[derive(Debug)]
pub(in crate::embedded) struct MainFile {
    connection: Connection,
    path: PathBuf,
}

/// The identity of the store, and how far the journal is applied.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedded) struct Identity {
    pub(in crate::embedded) store_id: StoreId,
    /// Every record up to this position is in this file.
    pub(in crate::embedded) applied: Position,
    /// Whether a journal must exist: opening fails if it is missing.
    pub(in crate::embedded) has_journal: bool,
}

impl MainFile {
    pub(in crate::embedded) fn open(layout: &Layout) -> Result<Self, StoreError> {
        let path = layout.main();
        let mut connection = open_writer(&path, true, SMALL_PAGE_BYTES)?;
        schema::migrate(&mut connection, &path, schema::MAIN)?;
        sync_directory(layout.root())?;
        let mut file = MainFile { connection, path };
        if file.meta("store_id")?.is_none() {
            let store_id: StoreId =
                system_bytes().map_err(|error| StoreError::Internal(error.to_string()))?;
            let put = |transaction: &Transaction<'_>| {
                rows::put_meta(transaction, "store_id", &Value::Blob(store_id.to_vec()))?;
                rows::put_meta(transaction, "applied", &Value::Integer(0))?;
                rows::put_meta(transaction, "has_journal", &Value::Integer(0))
            };
            file.change(|transaction, path| put(transaction).at(path))?;
        }
        Ok(file)
    }

    pub(in crate::embedded) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::embedded) fn connection(&self) -> &Connection {
        &self.connection
    }

    fn meta(&self, key: &str) -> Result<Option<Value>, StoreError> {
        rows::meta(&self.connection, &self.path, key)
    }

    pub(in crate::embedded) fn identity(&self) -> Result<Identity, StoreError> {
        let missing = |what: &str| StoreError::Corrupt {
            place: crate::embedded::files::place(&self.path),
            what: format!("its {what} is missing"),
        };
        let store_id = match self.meta("store_id")? {
            Some(Value::Blob(bytes)) => bytes.try_into().map_err(|_| missing("identifier"))?,
            Some(_) | None => return Err(missing("identifier")),
        };
        let number = |key, what| match self.meta(key)? {
            Some(Value::Integer(number)) => u64::try_from(number).map_err(|_| missing(what)),
            Some(_) | None => Err(missing(what)),
        };
        Ok(Identity {
            store_id,
            applied: Position::new(number("applied", "position")?),
            has_journal: number("has_journal", "has_journal")? != 0,
        })
    }

    /// Runs a change in one transaction that is on stable storage when it returns.
    pub(in crate::embedded) fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let transaction = self.connection.transaction().at(&self.path)?;
        let answer = change(&transaction, &self.path)?;
        transaction.commit().at(&self.path)?;
        Ok(answer)
    }

    /// Writes the whole file again without its free pages, and empties its write-ahead log. SQLite's
    /// copy goes to a temporary file, because its size is not limited.
    pub(in crate::embedded) fn rewrite(&mut self) -> Result<(), StoreError> {
        let vacuum = "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY;";
        self.connection.execute_batch(vacuum).at(&self.path)?;
        let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.connection.query_row(truncate, [], |_| Ok(())).at(&self.path)
    }

    /// Records that a journal must exist from now on.
    pub(in crate::embedded) fn has_journal(&mut self) -> Result<(), StoreError> {
        let yes = Value::Integer(1);
        self.change(|transaction, path| rows::put_meta(transaction, "has_journal", &yes).at(path))
    }

    /// Writes a fold together with its position, or nothing.
    pub(super) fn write(
        &mut self,
        fold: &Fold<'_>,
        new_days: &BTreeSet<Day>,
        marks: &Marks,
        applied: Position,
    ) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().at(&self.path)?;
        advance_replays(&transaction, &self.path, fold)?;
        add_outcomes(&transaction, &self.path, fold)?;
        write_counters(&transaction, &self.path, fold, new_days)?;
        write_marks(&transaction, &self.path, marks)?;
        let written = write_lanes(&transaction, fold)
            .and_then(|()| write_destinations(&transaction, fold))
            .and_then(|()| {
                let sequence = i64::try_from(applied.sequence()).unwrap_or(i64::MAX);
                rows::put_meta(&transaction, "applied", &Value::Integer(sequence))
            })
            .and_then(|()| transaction.commit());
        written.at(&self.path)
    }
}

pub(super) fn write_lanes(transaction: &Transaction<'_>, fold: &Fold<'_>) -> rusqlite::Result<()> {
    let mut leave_fresh =
        transaction.prepare_cached("DELETE FROM fresh WHERE created_at = ?1 AND id = ?2")?;
    let mut leave_waiting = transaction.prepare_cached("DELETE FROM waiting WHERE id = ?1")?;
    let mut put_fresh = transaction.prepare_cached(&PUT_FRESH)?;
    let mut put_waiting = transaction.prepare_cached(&PUT_WAITING)?;
    let all = fold.days.iter().flat_map(|(_, of_day)| &of_day.deliveries);
    let mut touched: Vec<&Folded<'_>> =
        all.filter(|folded| folded.before.is_some() || folded.delivery.lane().is_some()).collect();
    touched.sort_unstable_by_key(|folded| folded.delivery.id);
    let mut encoded = Encoded::default();
    for Folded { delivery, before, .. } in touched {
        let (id, now) = (delivery.id.as_bytes().as_slice(), delivery.state.name());
        match before {
            Some(StateName::Queued) if now != StateName::Queued => {
                leave_fresh.execute(params![delivery.created_at.as_unix_ms(), id])?;
            }
            Some(StateName::Waiting) if now != StateName::Waiting => {
                leave_waiting.execute([id])?;
            }
            Some(_) | None => {}
        }
        let Some(lane) = delivery.lane() else { continue };
        encoded.encode(delivery, None);
        let values = Values { delivery, encoded: &encoded, rows: Rows::default() };
        match lane {
            Lane::First => values.put(&mut put_fresh, Table::First)?,
            Lane::Retry => values.put(&mut put_waiting, Table::Retry)?,
        };
    }
    Ok(())
}

pub(super) fn write_destinations(
    transaction: &Transaction<'_>,
    fold: &Fold<'_>,
) -> rusqlite::Result<()> {
    let mut update = transaction.prepare_cached(
        "UPDATE destinations SET circuit = ?3, circuit_crc = ?4, failing = ?5
         WHERE id = ?1 AND tenant = ?2",
    )?;
    for (id, (tenant, circuit)) in &fold.destinations {
        let is_failing = circuit.state_name() != CircuitName::Closed;
        let circuit = rows::to_json(circuit)?;
        let crc = crc32fast::hash(circuit.as_bytes());
        let id = id.as_bytes().as_slice();
        update.execute(params![id, tenant.as_str(), circuit, crc, is_failing])?;
    }
    let mut insert = transaction.prepare_cached(
        "INSERT INTO transitions (tenant, destination, body, crc) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for (tenant, id, transition) in &fold.transitions {
        let body = rows::to_json(transition)?;
        let crc = rows::transition_sum(tenant, *id, &body);
        insert.execute(params![tenant.as_str(), id.as_bytes().as_slice(), body, crc])?;
    }
    Ok(())
}

/// Advances replay jobs. A job that was paused or cancelled meanwhile stays so.
fn advance_replays(
    transaction: &Transaction<'_>,
    path: &Path,
    fold: &Fold<'_>,
) -> Result<(), StoreError> {
    for job in &fold.replays {
        let found = rows::replay(transaction, path, &job.tenant, job.id)?;
        let Some(mut current) = found else { continue };
        current.done = job.done;
        current.position = job.position;
        if current.state == ReplayState::Running {
            current.state = job.state;
            current.finished_at = job.finished_at;
        }
        rows::put_replay(transaction, &current).at(path)?;
    }
    Ok(())
}

/// Adds to the outcomes of jobs. A job that was removed meanwhile has none.
fn add_outcomes(
    transaction: &Transaction<'_>,
    path: &Path,
    fold: &Fold<'_>,
) -> Result<(), StoreError> {
    for (id, (tenant, change)) in &fold.outcomes {
        let found = rows::replay(transaction, path, tenant, *id)?;
        let Some(mut current) = found else { continue };
        current.outcomes = current.outcomes.plus(change);
        rows::put_replay(transaction, &current).at(path)?;
    }
    Ok(())
}

/// The number of transactions of each day's file.
pub(super) type Marks = Vec<(Day, i64)>;

pub(super) fn write_marks(
    transaction: &Transaction<'_>,
    path: &Path,
    marks: &Marks,
) -> Result<(), StoreError> {
    marks
        .iter()
        .try_for_each(|(day, writes)| rows::put_mark(transaction, day.number(), *writes).at(path))
}

pub(super) fn write_counters(
    transaction: &Transaction<'_>,
    path: &Path,
    fold: &Fold<'_>,
    new_days: &BTreeSet<Day>,
) -> Result<(), StoreError> {
    for (day, of_day) in fold.days.iter().filter(|(_, of_day)| of_day.more != [0; 3]) {
        let is_whole = new_days.contains(day) && of_day.begins();
        rows::add_to_day(transaction, path, (day.number(), is_whole), of_day.more)?;
    }
    for (tenant, change) in &fold.ledger {
        rows::add_to_ledger(transaction, path, tenant, &change.columns())?;
    }
    let mut of_all: QuickMap<i64, [i64; 4]> = QuickMap::default();
    for ((tenant, minute), tally) in &fold.tallies {
        let change = [tally.accepted, tally.delivered, tally.failed, tally.dead].map(signed);
        rows::add_to_tally(transaction, path, (tenant.as_str(), *minute), &change)?;
        for (all, one) in of_all.entry(*minute).or_default().iter_mut().zip(change) {
            *all += one;
        }
    }
    for (minute, change) in &of_all {
        rows::add_to_tally(transaction, path, ("", *minute), change)?;
    }
    for (destination, change) in &fold.backlog {
        rows::add_to_backlog(transaction, path, *destination, *change)?;
    }
    for (place, attempts) in &fold.attempt_hours {
        rows::add_to_attempt_hour(transaction, path, *place, attempts)?;
    }
    Ok(())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
