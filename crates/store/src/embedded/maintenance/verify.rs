//! Checks every stored byte: for `doctor`, and for tests.
//!
//! SQLite checks the structure of each file; every row's checksum is checked; the ledger must
//! balance and agree with the queue.

use std::path::Path;

use rusqlite::Connection;

use crate::embedded::EmbeddedStore;
use crate::embedded::contract::upkeep::{contents, counted};
use crate::embedded::contract::{audit, documents, passes};
use crate::embedded::files::bloom::BloomFilter;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::rows::{
    self, DELIVERY_COLUMNS, DELIVERY_JOINS, EVENT_COLUMNS, EVENT_JOINS, FRESH, Reading, WAITING,
};
use crate::embedded::files::{At, Day, place};
use crate::error::StoreError;

impl EmbeddedStore {
    /// Reads everything; returns the first damage as an error.
    pub async fn verify(&self) -> Result<(), StoreError> {
        self.verify_watched(|_| {}).await
    }

    /// Like [`Self::verify`]; after each file `watch` is told its length in bytes.
    pub async fn verify_watched(
        &self,
        watch: impl Fn(u64) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |guard| {
            guard.main(|connection, path| {
                verify_main(connection, path)?;
                watch(length(path));
                Ok(())
            })?;
            for day in guard.days() {
                guard.day(day, |connection, path| {
                    verify_day(connection, path)?;
                    watch(length(path));
                    Ok(())
                })?;
                verify_count(guard, day)?;
            }
            verify_ledger(guard)
        })
        .await
    }
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |found| found.len())
}

fn integrity(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let check = "PRAGMA integrity_check(1)";
    let said: String = connection.query_row(check, [], |row| row.get(0)).at(path)?;
    if said == "ok" { Ok(()) } else { Err(StoreError::Corrupt { place: place(path), what: said }) }
}

/// Reads every row of a table, which verifies its checksum.
fn each<T>(
    connection: &Connection,
    path: &Path,
    table: &'static str,
    sql: &str,
    make: impl Fn(&Reading<'_>) -> Result<T, StoreError>,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare(sql).at(path)?;
    let mut rows = statement.query([]).at(path)?;
    while let Some(row) = rows.next().at(path)? {
        make(&Reading { row, path, table })?;
    }
    Ok(())
}

fn verify_main(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    integrity(connection, path)?;
    let select = |columns: &str, table: &str| format!("SELECT {columns} FROM {table}");
    let sql = select("id, name, created_at, crc, details", "tenants");
    each(connection, path, "tenants", &sql, rows::tenant_of)?;
    let columns = "id, tenant, name, scopes, hash, created_at, expires_at, last_used_at, crc";
    each(connection, path, "keys", &select(columns, "keys"), rows::key_of)?;
    let sql = select("id, body, credentials, deleted_at, crc", "subscriptions");
    each(connection, path, "subscriptions", &sql, rows::subscription_of)?;
    let sql = select("id, tenant, url, created_at, circuit, crc, circuit_crc", "destinations");
    each(connection, path, "destinations", &sql, rows::destination_of)?;
    each(connection, path, "replays", &select("id, body, crc", "replays"), rows::replay_of)?;
    each(connection, path, "meta", &select("key, value, crc", "meta"), rows::meta_of)?;
    each(connection, path, "ledger", rows::LEDGER, rows::ledger_of)?;
    each(connection, path, "tallies", rows::TALLIES, rows::tally_of)?;
    each(connection, path, "attempt_hours", rows::ATTEMPT_HOURS, rows::attempt_hour_of)?;
    each(connection, path, "days", rows::DAYS, rows::day_of)?;
    each(connection, path, "marks", rows::MARKS, rows::mark_of)?;
    let sql = select("destination, waiting, crc", "backlog");
    each(connection, path, "backlog", &sql, rows::backlog_of)?;
    each(connection, path, "fresh", &FRESH, rows::delivery)?;
    each(connection, path, "waiting", &WAITING, rows::delivery)?;
    let sql = "SELECT key, request, status, body, created_at, crc, tenant FROM answers";
    each(connection, path, "answers", sql, |reading| {
        let key: String = reading.get(0)?;
        rows::answer_of(reading, &reading.parse(6)?, &key)
    })?;
    each(connection, path, "audit", audit::ENTRY, audit::entry_of)?;
    each(connection, path, "passes", passes::PASS, passes::pass_of)?;
    each(connection, path, "documents", documents::DOCUMENT, documents::document_of)?;
    let sql = "SELECT n, body, crc, tenant, destination FROM transitions";
    each(connection, path, "transitions", sql, |reading| {
        let body: String = reading.get(1)?;
        let id = reading.id(4, postrider_domain::ids::DestinationId::from_bytes)?;
        reading.check(2, rows::transition_sum(&reading.parse(3)?, id, &body))
    })
}

pub(in crate::embedded) fn verify_day(
    connection: &Connection,
    path: &Path,
) -> Result<(), StoreError> {
    integrity(connection, path)?;
    let sql = format!("SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS}");
    each(connection, path, "events", &sql, rows::event)?;
    let sql = format!("SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {DELIVERY_JOINS}");
    each(connection, path, "deliveries", &sql, rows::delivery)?;
    let sql = "SELECT delivery, number, body, crc FROM attempts";
    each(connection, path, "attempts", sql, rows::attempt)?;
    let sql = "SELECT id, first FROM deliveries WHERE first IS NOT NULL";
    each(connection, path, "deliveries", sql, rows::first_attempt)?;
    each(connection, path, "meta", "SELECT key, value, crc FROM meta", rows::meta_of)?;
    BloomFilter::load(connection, path)?;
    // The joins above skip rows whose name or route is missing, so compare the counts.
    let orphans = "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM deliveries)
        - (SELECT count(*) FROM events AS e JOIN names AS t ON t.n = e.tenant
            JOIN names AS k ON k.n = e.kind JOIN seconds AS s ON s.tenant = e.tenant
            AND s.kind = e.kind AND s.second = ((e.n >> 18) & 134217727) / 1000)
        - (SELECT count(*) FROM deliveries AS d JOIN routes AS r ON r.n = d.route
            JOIN names AS t ON t.n = r.tenant JOIN names AS k ON k.n = r.kind)";
    let orphans: i64 = connection.query_row(orphans, [], |row| row.get(0)).at(path)?;
    if orphans == 0 {
        return Ok(());
    }
    let what = format!("{orphans} rows refer to names or routes that are not there");
    Err(StoreError::Corrupt { place: place(path), what })
}

/// Checks that the file of a day has as many rows as `main.db` says.
fn verify_count(guard: &ReadGuard<'_>, day: Day) -> Result<(), StoreError> {
    let (said, has) = (contents(guard, day)?, guard.day(day, counted)?);
    if said == has {
        return Ok(());
    }
    let what = format!("it has {has:?} but should have {said:?}");
    guard.day(day, |_, path| Err(StoreError::Corrupt { place: place(path), what }))
}

fn verify_ledger(guard: &ReadGuard<'_>) -> Result<(), StoreError> {
    guard.main(|connection, path| {
        let wrong = "SELECT tenant FROM ledger AS l
            WHERE accepted <> queued + waiting + delivered + dead + cancelled
            OR queued <> (SELECT count(*) FROM fresh WHERE tenant = l.tenant)
            OR waiting <> (SELECT count(*) FROM waiting WHERE tenant = l.tenant)";
        let mut statement = connection.prepare(wrong).at(path)?;
        let mut rows = statement.query([]).at(path)?;
        match rows.next().at(path)? {
            None => Ok(()),
            Some(row) => {
                let tenant: String = row.get(0).at(path)?;
                let what = format!("the ledger of tenant {tenant} does not agree with the queue");
                Err(StoreError::Corrupt { place: place(path), what })
            }
        }
    })
}
