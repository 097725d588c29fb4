//! Writing to a day's file.
//!
//! **Every write is idempotent: it sets a row to a value and never adds to one**, so applying the
//! same records again ends in the same rows. The file counts its transactions, so that lost ones
//! are noticed (`check.rs`).

use std::path::PathBuf;

use postrider_domain::attempt::{Attempt, Ending};
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::day_rows::{DeliveryRow, DeliveryRows, EventRow, EventRows, TOGETHER};
use super::fold::{Folded, OfDay};
use crate::embedded::files::bloom::BloomFilter;
use crate::embedded::files::codec::{self, Encoder};
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows;
use crate::embedded::files::schema;
use crate::embedded::files::{At, Day, LARGE_PAGE_BYTES, Layout, open_writer, sync_directory};
use crate::embedded::maintenance::check::WRITES;
use crate::embedded::{QuickMap, QuickSet};
use crate::error::StoreError;
use crate::records::Acceptance;

/// The cache of names and routes is cleared when it has this many entries.
const REMEMBERED_MAX: usize = 200_000;

type Route = (i64, SubscriptionId, DestinationId, i64);

/// A day's file, open for writing.
#[derive(Debug)]
pub(in crate::embedded) struct DayFile {
    day: Day,
    connection: Connection,
    path: PathBuf,
    numbers: Numbers,
    /// How many transactions the file has seen.
    writes: i64,
    /// The file may contain a saved Bloom filter.
    keeps: bool,
}

/// A cache of the numbers of names and routes.
#[derive(Debug, Default)]
struct Numbers {
    names: QuickMap<String, i64>,
    routes: QuickMap<Route, i64>,
}

impl DayFile {
    /// Opens the file; the flag says whether it is new.
    pub(super) fn open(layout: &Layout, day: Day) -> Result<(Self, bool), StoreError> {
        let path = layout.day(day);
        let is_new = !path.exists();
        let steps = schema::day_steps(&path);
        let mut connection = open_writer(&path, true, LARGE_PAGE_BYTES)?;
        schema::migrate(&mut connection, &path, steps)?;
        if is_new {
            sync_directory(&layout.history())?;
        }
        let writes = match rows::meta(&connection, &path, WRITES)? {
            Some(Value::Integer(writes)) => writes,
            Some(_) | None => 0,
        };
        let numbers = Numbers::default();
        Ok((DayFile { day, connection, path, numbers, writes, keeps: true }, is_new))
    }

    /// Saves the Bloom filter of the day.
    pub(super) fn keep(&mut self, bloom: &BloomFilter) -> Result<(), StoreError> {
        self.keeps = true;
        bloom.keep(&mut self.connection).at(&self.path)
    }

    pub(in crate::embedded) fn connection(&mut self) -> (&mut Connection, &PathBuf) {
        (&mut self.connection, &self.path)
    }

    /// Changes rows that exist, all or nothing. SQLite overwrites with zeros what the change frees.
    pub(in crate::embedded) fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let secure = |connection: &Connection, is_on: bool| {
            let set = format!("PRAGMA secure_delete = {}", u8::from(is_on));
            connection.query_row(&set, [], |_| Ok(()))
        };
        secure(&self.connection, true).at(&self.path)?;
        let writes = self.writes.saturating_add(1);
        let transaction = self.connection.transaction().at(&self.path)?;
        let changed = change(&transaction).and_then(|answer| {
            rows::put_meta(&transaction, WRITES, &Value::Integer(writes)).at(&self.path)?;
            transaction.commit().at(&self.path)?;
            Ok(answer)
        });
        secure(&self.connection, false).at(&self.path)?;
        if changed.is_ok() {
            self.writes = writes;
        }
        changed
    }

    /// How many transactions the file has seen.
    pub(in crate::embedded) fn writes(&self) -> i64 {
        self.writes
    }

    /// Writes all rows, or nothing. Returns the hashes of the indexed events.
    pub(super) fn write(&mut self, of_day: &OfDay<'_>) -> Result<Vec<u64>, StoreError> {
        if self.numbers.names.len() + self.numbers.routes.len() > REMEMBERED_MAX {
            self.numbers = Numbers::default();
        }
        let transaction = self.connection.transaction().at(&self.path)?;
        let mut writing = Writing {
            transaction: &transaction,
            numbers: &mut self.numbers,
            day: self.day,
            indexed: Vec::new(),
        };
        let written = writing
            .events(&of_day.events)
            .and_then(|events| writing.deliveries(&of_day.deliveries, &events))
            .and_then(|()| write_attempts(&transaction, &of_day.attempts));
        let indexed = writing.indexed;
        let makes_wrong = self.keeps && !indexed.is_empty();
        let writes = self.writes.saturating_add(1);
        let written = written
            .and_then(|()| rows::put_meta(&transaction, WRITES, &Value::Integer(writes)))
            .and_then(
                |()| if makes_wrong { BloomFilter::forget_kept(&transaction) } else { Ok(()) },
            )
            .and_then(|()| transaction.commit());
        if written.is_err() {
            // The transaction is rolled back, and with it the numbers that it assigned.
            self.numbers = Numbers::default();
        }
        written.at(&self.path)?;
        self.writes = writes;
        self.keeps &= !makes_wrong;
        Ok(indexed)
    }
}

/// A transaction that is under way.
struct Writing<'w> {
    transaction: &'w Transaction<'w>,
    numbers: &'w mut Numbers,
    day: Day,
    /// The hashes of indexed events.
    indexed: Vec<u64>,
}

/// A row to be written: its number if that is derived, its index in the batch, and its tenant.
type Planned = (Option<i64>, usize, i64);

/// Sorts rows: those without a number first, the others by number.
fn in_order(plan: &mut [Planned]) -> (&[Planned], &[Planned]) {
    plan.sort_by_key(|(derived, ..)| derived.unwrap_or(i64::MIN));
    plan.split_at(plan.partition_point(|(derived, ..)| derived.is_none()))
}

impl Writing<'_> {
    /// Writes the events in the order of their numbers; returns the number of each.
    fn events(&mut self, events: &[&Acceptance]) -> rusqlite::Result<Vec<i64>> {
        let mut plan = Vec::with_capacity(events.len());
        for (place, acceptance) in events.iter().enumerate() {
            let (event, at) = (&acceptance.event, acceptance.accepted_at);
            let tenant = self.numbers.name(self.transaction, event.tenant.as_str())?;
            let derived = row_numbers::made(event.id.as_str())
                .and_then(|id| row_numbers::derived_at(tenant, self.day, at, &id));
            plan.push((derived, place, tenant));
        }
        let (indexed, derived) = in_order(&mut plan);
        let mut rows = EventRows::new(self.transaction, self.day)?;
        let mut written = vec![0; events.len()];
        let mut seconds: QuickSet<(i64, i64, i64)> = QuickSet::default();
        let mut chunk = Vec::with_capacity(TOGETHER);
        for planned in derived.chunks(TOGETHER).chain(indexed.chunks(1)) {
            chunk.clear();
            for &(derived, place, tenant) in planned {
                let Some(&acceptance) = events.get(place) else { continue };
                let kind = self.numbers.name(self.transaction, acceptance.event.kind.as_str())?;
                chunk.push(EventRow { derived, place, tenant, kind, acceptance });
            }
            let are_together = rows.insert_together(&chunk)?;
            for row in &chunk {
                let number = match row.derived {
                    Some(n) if are_together => n,
                    Some(_) | None => rows.insert(row, &mut self.indexed)?,
                };
                seconds.insert((row.tenant, row.kind, row_numbers::second(number)));
                if let Some(entry) = written.get_mut(row.place) {
                    *entry = number;
                }
            }
        }
        self.note(seconds)?;
        Ok(written)
    }

    /// Records in which seconds of the day there were events of a type.
    fn note(&self, seconds: QuickSet<(i64, i64, i64)>) -> rusqlite::Result<()> {
        let note = "INSERT OR IGNORE INTO seconds VALUES (?1, ?2, ?3)";
        let mut note = self.transaction.prepare_cached(note)?;
        for (tenant, kind, second) in seconds {
            note.execute([tenant, kind, second])?;
        }
        Ok(())
    }

    fn deliveries(&mut self, deliveries: &[Folded<'_>], events: &[i64]) -> rusqlite::Result<()> {
        let mut plan = Vec::with_capacity(deliveries.len());
        for (place, Folded { delivery, .. }) in deliveries.iter().enumerate() {
            let tenant = self.numbers.name(self.transaction, delivery.tenant.as_str())?;
            let (at, id) = (delivery.created_at, delivery.id.as_bytes());
            plan.push((row_numbers::derived_at(tenant, self.day, at, id), place, tenant));
        }
        let (indexed, derived) = in_order(&mut plan);
        let mut rows = DeliveryRows::new(self.transaction, self.day)?;
        for &(derived, place, tenant) in derived.iter().chain(indexed) {
            let Some(folded) = deliveries.get(place) else { continue };
            // The row of a delivery that was accepted earlier exists already, except in very rare
            // cases.
            if folded.event.is_some() || !rows.change(derived, folded)? {
                let route = self.numbers.route(self.transaction, tenant, folded.delivery)?;
                let event = folded.event.and_then(|place| events.get(place)).copied();
                rows.insert(&DeliveryRow { derived, tenant, route, event, folded })?;
            }
        }
        Ok(())
    }
}

fn write_attempts(
    transaction: &Transaction<'_>,
    attempts: &[(DeliveryId, &Attempt)],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO attempts (delivery, number, started_at, status, error, body, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut sorted: Vec<&(DeliveryId, &Attempt)> = attempts.iter().collect();
    sorted.sort_unstable_by_key(|(delivery, attempt)| (*delivery, attempt.number));
    let mut body = Encoder::default();
    for (delivery, attempt) in sorted {
        body.clear();
        codec::put_attempt(&mut body, attempt);
        let error = match &attempt.ending {
            Ending::Answered(_) => None,
            Ending::Failed(_) | Ending::OwnFault(_) => Some(attempt.ending.to_string()),
        };
        insert.execute(params![
            delivery.as_bytes().as_slice(),
            attempt.number,
            attempt.started_at.as_unix_ms(),
            attempt.ending.status(),
            error,
            body.as_slice(),
            rows::attempt_sum(delivery.as_bytes(), body.as_slice()),
        ])?;
    }
    Ok(())
}

impl Numbers {
    fn name(&mut self, transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<i64> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let find = "SELECT n FROM names WHERE name = ?1";
        let found = transaction.query_row(find, [name], |row| row.get(0)).optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                transaction.execute("INSERT INTO names (name) VALUES (?1)", [name])?;
                transaction.last_insert_rowid()
            }
        };
        self.names.insert(name.to_owned(), number);
        Ok(number)
    }

    fn route(
        &mut self,
        transaction: &Transaction<'_>,
        tenant: i64,
        delivery: &Delivery,
    ) -> rusqlite::Result<i64> {
        let kind = self.name(transaction, delivery.kind.as_str())?;
        let route = (tenant, delivery.subscription, delivery.destination, kind);
        if let Some(&number) = self.routes.get(&route) {
            return Ok(number);
        }
        let subscription = delivery.subscription.as_bytes().as_slice();
        let values =
            params![tenant, subscription, delivery.destination.as_bytes().as_slice(), kind];
        let find = "SELECT n FROM routes
            WHERE tenant = ?1 AND subscription = ?2 AND destination = ?3 AND kind = ?4";
        let found = transaction.query_row(find, values, |row| row.get(0)).optional()?;
        let number = match found {
            Some(number) => number,
            None => {
                let insert = "INSERT INTO routes (tenant, subscription, destination, kind)
                    VALUES (?1, ?2, ?3, ?4)";
                transaction.execute(insert, values)?;
                transaction.last_insert_rowid()
            }
        };
        self.routes.insert(route, number);
        Ok(number)
    }
}
