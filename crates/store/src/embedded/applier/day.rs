//! Writing to a day's file.
//!
//! **Every write says what a row is, not how it changes**: doing the writes of a stretch of the
//! journal again ends in the same rows. That is why no position has to be kept with each file.

use std::collections::HashMap;
use std::path::PathBuf;

use postrider_domain::attempt::{Attempt, Ending};
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId};
use postrider_domain::trace::TraceContext;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::super::codec::{self, Encoder};
use super::super::files::{At, Day, LARGE_PAGE_BYTES, Layout, open_writer, sync_directory};
use super::super::rows;
use super::super::schema;
use super::fold::Folded;
use crate::error::StoreError;
use crate::records::Acceptance;

/// Names and routes are looked up again when so many are remembered.
const REMEMBERED_MAX: usize = 200_000;

type Route = (i64, SubscriptionId, DestinationId, i64);

/// A day's file, open for writing.
#[derive(Debug)]
pub(in crate::embedded) struct DayFile {
    connection: Connection,
    path: PathBuf,
    numbers: Numbers,
}

/// The numbers of names and routes, as far as they were needed.
#[derive(Debug, Default)]
struct Numbers {
    names: HashMap<String, i64>,
    routes: HashMap<Route, i64>,
}

impl DayFile {
    pub(super) fn open(layout: &Layout, day: Day) -> Result<Self, StoreError> {
        let path = layout.day(day);
        let is_new = !path.exists();
        let mut connection = open_writer(&path, true, LARGE_PAGE_BYTES)?;
        schema::migrate(&mut connection, &path, schema::DAY)?;
        if is_new {
            sync_directory(&layout.history())?;
        }
        Ok(DayFile { connection, path, numbers: Numbers::default() })
    }

    pub(in crate::embedded) fn connection(&mut self) -> (&mut Connection, &PathBuf) {
        (&mut self.connection, &self.path)
    }

    /// Writes all of it, or nothing.
    pub(super) fn write(
        &mut self,
        events: &[Acceptance],
        deliveries: &[Folded],
        attempts: &[(DeliveryId, Attempt)],
    ) -> Result<(), StoreError> {
        if self.numbers.names.len() + self.numbers.routes.len() > REMEMBERED_MAX {
            self.numbers = Numbers::default();
        }
        let transaction = self.connection.transaction().at(&self.path)?;
        let numbers = &mut self.numbers;
        let written = write_events(&transaction, numbers, events)
            .and_then(|()| write_deliveries(&transaction, numbers, deliveries))
            .and_then(|()| write_attempts(&transaction, attempts))
            .and_then(|()| transaction.commit());
        if written.is_err() {
            // Numbers that were given out in a transaction that is undone are not theirs.
            self.numbers = Numbers::default();
        }
        written.at(&self.path)
    }
}

fn write_events(
    transaction: &Transaction<'_>,
    numbers: &mut Numbers,
    events: &[Acceptance],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT INTO events (tenant, id, kind, object, time, accepted_at, fingerprint, deliveries,
            data, old, trace, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (tenant, id) DO NOTHING",
    )?;
    let (mut scratch, mut owed) = (Encoder::default(), Vec::new());
    for acceptance in events {
        let event = &acceptance.event;
        owed.clear();
        for delivery in &acceptance.deliveries {
            owed.extend_from_slice(delivery.id.as_bytes());
        }
        let fingerprint = &acceptance.fingerprint;
        let crc = codec::event_sum(&mut scratch, event, acceptance.accepted_at, fingerprint, &owed);
        insert.execute(params![
            numbers.name(transaction, event.tenant.as_str())?,
            event.id.as_str(),
            numbers.name(transaction, event.kind.as_str())?,
            event.object.as_ref().map(|object| object.as_str()),
            event.time.as_unix_ms(),
            acceptance.accepted_at.as_unix_ms(),
            fingerprint.as_slice(),
            owed.as_slice(),
            event.data.as_bytes().as_ref(),
            event.old.as_ref().map(|old| old.as_bytes().as_ref()),
            event.trace.map(TraceContext::to_bytes),
            crc,
        ])?;
    }
    Ok(())
}

fn write_deliveries(
    transaction: &Transaction<'_>,
    numbers: &mut Numbers,
    deliveries: &[Folded],
) -> rusqlite::Result<()> {
    let mut upsert = transaction.prepare_cached(
        "INSERT INTO deliveries (id, tenant, state, created_at, route, event, at, attempts,
            last_attempt_at, detail, crc) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (id) DO UPDATE SET state = ?3, at = ?7, attempts = ?8, last_attempt_at = ?9,
            detail = ?10, crc = ?11",
    )?;
    let (mut scratch, mut detail) = (Encoder::default(), Encoder::default());
    for Folded { delivery, .. } in deliveries {
        let crc = codec::delivery_sum(&mut scratch, delivery);
        detail.clear();
        codec::put_state(&mut detail, &delivery.state);
        let tenant = numbers.name(transaction, delivery.tenant.as_str())?;
        let at = delivery.finished_at().or(delivery.next_attempt_at());
        upsert.execute(params![
            delivery.id.as_bytes().as_slice(),
            tenant,
            codec::state_number(delivery.state.name()),
            delivery.created_at.as_unix_ms(),
            numbers.route(transaction, tenant, delivery)?,
            delivery.event.as_str(),
            at.map(|at| at.as_unix_ms()),
            delivery.attempts,
            delivery.last_attempt_at.map(|at| at.as_unix_ms()),
            detail.as_slice(),
            crc,
        ])?;
    }
    Ok(())
}

fn write_attempts(
    transaction: &Transaction<'_>,
    attempts: &[(DeliveryId, Attempt)],
) -> rusqlite::Result<()> {
    let mut insert = transaction.prepare_cached(
        "INSERT OR REPLACE INTO attempts (delivery, number, started_at, status, error, body, crc)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut body = Encoder::default();
    for (delivery, attempt) in attempts {
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
