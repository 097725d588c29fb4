//! Writing to `main.db`.
//!
//! Counters change by what is added to them, so **a record counts once**: the position up to which
//! everything is in the file moves in the same transaction.

use std::path::{Path, PathBuf};

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::TenantId;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::super::codec::{self, Encoder};
use super::super::files::{At, Layout, SMALL_PAGE_BYTES, open_writer, sync_directory};
use super::super::journal::{Position, StoreId};
use super::super::rows;
use super::super::schema;
use super::fold::{Fold, Folded};
use crate::error::StoreError;
use crate::records::ReplayState;

/// `main.db`, open for writing.
#[derive(Debug)]
pub(in crate::embedded) struct MainFile {
    connection: Connection,
    path: PathBuf,
}

/// What the file says about itself.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedded) struct Identity {
    pub(in crate::embedded) store_id: StoreId,
    /// Everything up to here is in this file.
    pub(in crate::embedded) applied: Position,
    /// Whether there must be a journal.
    pub(in crate::embedded) has_journal: bool,
}

impl MainFile {
    pub(in crate::embedded) fn open(layout: &Layout) -> Result<Self, StoreError> {
        let path = layout.main();
        let mut connection = open_writer(&path, true, SMALL_PAGE_BYTES)?;
        schema::migrate(&mut connection, &path, schema::MAIN)?;
        sync_directory(layout.root())?;
        let file = MainFile { connection, path };
        if file.meta::<Vec<u8>>("store_id")?.is_none() {
            let mut store_id = StoreId::default();
            getrandom::fill(&mut store_id).map_err(|e| StoreError::Internal(e.to_string()))?;
            let insert = "INSERT INTO meta VALUES
                ('store_id', ?1), ('applied', 0), ('has_journal', 0)";
            file.connection.execute(insert, [store_id.as_slice()]).at(&file.path)?;
        }
        Ok(file)
    }

    pub(in crate::embedded) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::embedded) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(in crate::embedded) fn meta<T: rusqlite::types::FromSql>(
        &self,
        key: &str,
    ) -> Result<Option<T>, StoreError> {
        let find = "SELECT value FROM meta WHERE key = ?1";
        self.connection.query_row(find, [key], |row| row.get(0)).optional().at(&self.path)
    }

    pub(in crate::embedded) fn identity(&self) -> Result<Identity, StoreError> {
        let missing = |what: &str| StoreError::Corrupt {
            place: super::super::files::place(&self.path),
            what: format!("its {what} is missing"),
        };
        let store_id: Vec<u8> = self.meta("store_id")?.ok_or_else(|| missing("identifier"))?;
        let applied: i64 = self.meta("applied")?.ok_or_else(|| missing("position"))?;
        let applied = u64::try_from(applied).map_err(|_| missing("position"))?;
        Ok(Identity {
            store_id: store_id.try_into().map_err(|_| missing("identifier"))?,
            applied: Position::new(applied),
            has_journal: self.meta("has_journal")?.ok_or_else(|| missing("has_journal"))?,
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

    /// Remembers that there must be a journal from now on.
    pub(in crate::embedded) fn has_journal(&mut self) -> Result<(), StoreError> {
        let update = "UPDATE meta SET value = 1 WHERE key = 'has_journal'";
        self.change(|transaction, path| transaction.execute(update, []).at(path).map(drop))
    }

    /// Writes all of it with the position, or nothing.
    pub(super) fn write(&mut self, fold: &Fold, applied: Position) -> Result<(), StoreError> {
        let transaction = self.connection.transaction().at(&self.path)?;
        advance_replays(&transaction, &self.path, fold)?;
        let written = write_queue(&transaction, fold.deliveries.values().flatten())
            .and_then(|()| write_destinations(&transaction, fold))
            .and_then(|()| write_counters(&transaction, fold))
            .and_then(|()| {
                let sequence = i64::try_from(applied.sequence()).unwrap_or(i64::MAX);
                let update = "UPDATE meta SET value = ?1 WHERE key = 'applied'";
                transaction.prepare_cached(update)?.execute([sequence])
            })
            .and_then(|_| transaction.commit());
        written.at(&self.path)
    }
}

pub(super) fn write_queue<'f>(
    transaction: &Transaction<'_>,
    deliveries: impl Iterator<Item = &'f Folded>,
) -> rusqlite::Result<()> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO queue (id, tenant, event, kind, subscription, destination, created_at, state,
            due_at, attempts, last_attempt_at, detail, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
         ON CONFLICT (id) DO UPDATE SET state = ?8, due_at = ?9, attempts = ?10,
            last_attempt_at = ?11, detail = ?12, crc = ?13",
    )?;
    let mut delete = transaction.prepare_cached("DELETE FROM queue WHERE id = ?1")?;
    let (mut scratch, mut detail) = (Encoder::default(), Encoder::default());
    for Folded { delivery, in_queue } in deliveries {
        if delivery.lane().is_none() {
            if *in_queue {
                delete.execute([delivery.id.as_bytes().as_slice()])?;
            }
            continue;
        }
        detail.clear();
        codec::put_state(&mut detail, &delivery.state);
        upsert.execute(params![
            delivery.id.as_bytes().as_slice(),
            delivery.tenant.as_str(),
            delivery.event.as_str(),
            delivery.kind.as_str(),
            delivery.subscription.as_bytes().as_slice(),
            delivery.destination.as_bytes().as_slice(),
            delivery.created_at.as_unix_ms(),
            codec::state_number(delivery.state.name()),
            due_at(delivery),
            delivery.attempts,
            delivery.last_attempt_at.map(|at| at.as_unix_ms()),
            detail.as_slice(),
            codec::delivery_sum(&mut scratch, delivery),
        ])?;
    }
    Ok(())
}

fn due_at(delivery: &Delivery) -> Option<i64> {
    delivery.next_attempt_at().map(|at| at.as_unix_ms())
}

pub(super) fn write_destinations(
    transaction: &Transaction<'_>,
    fold: &Fold,
) -> rusqlite::Result<()> {
    let mut update = transaction.prepare_cached(
        "UPDATE destinations SET circuit = ?3, circuit_crc = ?4 WHERE id = ?1 AND tenant = ?2",
    )?;
    for (id, (tenant, circuit)) in &fold.destinations {
        let circuit = rows::to_json(circuit)?;
        let crc = crc32fast::hash(circuit.as_bytes());
        update.execute(params![id.as_bytes().as_slice(), tenant.as_str(), circuit, crc])?;
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

/// What somebody paused or cancelled meanwhile stays so.
fn advance_replays(
    transaction: &Transaction<'_>,
    path: &Path,
    fold: &Fold,
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

pub(super) fn write_counters(transaction: &Transaction<'_>, fold: &Fold) -> rusqlite::Result<()> {
    let mut add = transaction.prepare_cached(
        "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (tenant) DO UPDATE SET accepted = accepted + ?2, queued = queued + ?3,
            waiting = waiting + ?4, delivered = delivered + ?5, dead = dead + ?6,
            cancelled = cancelled + ?7",
    )?;
    for (tenant, change) in &fold.ledger {
        add.execute(params![
            tenant.as_str(),
            change.accepted,
            change.queued,
            change.waiting,
            change.delivered,
            change.dead,
            change.cancelled
        ])?;
    }
    let mut add = transaction.prepare_cached(
        "INSERT INTO tallies VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (tenant, minute) DO UPDATE SET accepted = accepted + ?3,
            delivered = delivered + ?4, failed = failed + ?5, dead = dead + ?6",
    )?;
    for ((tenant, minute), tally) in &fold.tallies {
        for tenant in [Some(tenant), None] {
            add.execute(params![
                tenant.map_or("", TenantId::as_str),
                minute,
                signed(tally.accepted),
                signed(tally.delivered),
                signed(tally.failed),
                signed(tally.dead)
            ])?;
        }
    }
    let mut add = transaction.prepare_cached(
        "INSERT INTO backlog VALUES (?1, ?2)
         ON CONFLICT (destination) DO UPDATE SET waiting = waiting + ?2",
    )?;
    for (destination, change) in &fold.backlog {
        add.execute(params![destination.as_bytes().as_slice(), change])?;
    }
    Ok(())
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
