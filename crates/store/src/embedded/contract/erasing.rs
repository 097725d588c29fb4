//! Erasing payloads.
//!
//! The rows of an event are changed in its day's file, by the applier, after everything that was acknowledged before:
//! so no record of the journal that is still to be applied brings the payload back. SQLite then overwrites what it
//! frees (`secure_delete`), but earlier copies of a row may be left where pages were split. So the file remembers
//! that it has something to overwrite ([`UNSCRUBBED`]), and scrubbing writes it anew, empties its write-ahead log,
//! and has the journal continue in files without stale bytes.

use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use postrider_domain::attempt::{Attempt, Ending};
use postrider_domain::ids::{DeliveryId, EventId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Transaction, params};

use super::history::{delivery_in, event_number, name_number};
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Applier;
use crate::embedded::files::codec::{self, Encoder};
use crate::embedded::files::rows::{self, EVENT_COLUMNS, EVENT_JOINS, StoredEvent};
use crate::embedded::files::{At, Day};
use crate::erasing::{Erasing, EventErasure};
use crate::error::StoreError;

/// The key in `meta` of a day's file that says whether remains of erased payloads may be in it.
const UNSCRUBBED: &str = "unscrubbed";

#[async_trait]
impl Erasing for EmbeddedStore {
    async fn erase_event(
        &self,
        tenant: &TenantId,
        id: &EventId,
        now: Timestamp,
    ) -> Result<EventErasure, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.run_in_applier(move |applier| {
            for day in applier.days_of(&tenant, &id) {
                let erased = applier.erase(day, &tenant, &id, now)?;
                if erased != EventErasure::NotFound {
                    return Ok(erased);
                }
            }
            Ok(EventErasure::NotFound)
        })
        .await
    }

    async fn scrub_erased(&self) -> Result<(), StoreError> {
        let unscrubbed = self.read(|guard| {
            let mut unscrubbed = Vec::new();
            for day in guard.days() {
                if guard.day(day, is_unscrubbed)? {
                    unscrubbed.push(day);
                }
            }
            Ok(unscrubbed)
        });
        let unscrubbed = unscrubbed.await?;
        if unscrubbed.is_empty() {
            return Ok(());
        }
        // The journal first: where this is interrupted, the days still say that there is something to do.
        self.journal.scrub().await.map_err(|error| self.refused(&error))?;
        for day in unscrubbed {
            self.run_in_applier(move |applier| applier.scrub(day)).await?;
        }
        Ok(())
    }
}

fn is_unscrubbed(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    Ok(rows::meta(connection, path, UNSCRUBBED)? == Some(Value::Integer(1)))
}

impl Applier {
    /// Erases the payload of an event, if it is in this day's file.
    fn erase(
        &mut self,
        day: Day,
        tenant: &TenantId,
        id: &EventId,
        now: Timestamp,
    ) -> Result<EventErasure, StoreError> {
        let file = self.day(day)?;
        let (connection, path) = file.connection();
        let path = path.clone();
        let Some(stored) = stored_event(connection, &path, day, tenant, id)? else {
            return Ok(EventErasure::NotFound);
        };
        let mut deliveries = Vec::with_capacity(stored.deliveries.len());
        for delivery in &stored.deliveries {
            let found = delivery_in(connection, &path, day, tenant, *delivery)?;
            // A delivery without a row would be damage, which reading it reports.
            let Some((number, found)) = found else { continue };
            if found.finished_at().is_none() {
                return Ok(EventErasure::Unfinished);
            }
            deliveries.push((number, *delivery));
        }
        let was_erased = stored.record.event.is_erased();
        let attempts = file.change(|transaction| {
            let mut attempts = 0;
            for (number, delivery) in &deliveries {
                attempts += erase_attempts(transaction, &path, *number, *delivery)?;
            }
            if !was_erased {
                erase_row(transaction, &stored, now).at(&path)?;
            }
            if attempts > 0 || !was_erased {
                rows::put_meta(transaction, UNSCRUBBED, &Value::Integer(1)).at(&path)?;
            }
            Ok(attempts)
        })?;
        let writes = self.day(day)?.writes();
        self.put_mark(day, writes)?;
        Ok(match was_erased {
            true => EventErasure::Already { attempts },
            false => EventErasure::Erased { attempts },
        })
    }

    /// Writes a day's file anew, without what was freed in it.
    fn scrub(&mut self, day: Day) -> Result<(), StoreError> {
        let file = self.day(day)?;
        let (connection, path) = file.connection();
        let path = path.clone();
        // SQLite's copy goes to a temporary file, because its size is not limited.
        let vacuum = "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY;";
        connection.execute_batch(vacuum).at(&path)?;
        empty_log(connection, &path)?;
        file.change(|transaction| {
            rows::put_meta(transaction, UNSCRUBBED, &Value::Integer(0)).at(&path)
        })?;
        let writes = self.day(day)?.writes();
        self.put_mark(day, writes)
    }
}

/// Copies a write-ahead log into its file and cuts it off. Fails where a reader still needs it.
fn empty_log(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
    let is_busy: i64 = connection.query_row(truncate, [], |row| row.get(0)).at(path)?;
    if is_busy == 0 { Ok(()) } else { Err(StoreError::Busy) }
}

fn stored_event(
    connection: &Connection,
    path: &Path,
    day: Day,
    tenant: &TenantId,
    id: &EventId,
) -> Result<Option<StoredEvent>, StoreError> {
    let Some(number) = name_number(connection, path, tenant.as_str())? else { return Ok(None) };
    let Some(n) = event_number(connection, path, day, number, id)? else { return Ok(None) };
    let find = format!("SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS} WHERE e.n = ?1");
    rows::one(connection, path, "events", &find, [n], rows::event)
}

/// Removes the payload from an event's row.
fn erase_row(
    transaction: &Transaction<'_>,
    stored: &StoredEvent,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (event, fingerprint) = (stored.record.event.erased(), [0; 32]);
    let mark = stored.record.mark.erased(now);
    let owed: Vec<u8> = stored.deliveries.iter().flat_map(|id| *id.as_bytes()).collect();
    let accepted_at = stored.record.accepted_at;
    let scratch = &mut Encoder::default();
    let crc = codec::event_sum(scratch, (&event, &mark), accepted_at, &fingerprint, &owed);
    let update = "UPDATE events SET data = ?2, old = NULL, fingerprint = ?3, trace = ?4, crc = ?5
        WHERE n = ?1";
    let trace = codec::noted(event.trace, &mark);
    let values = params![stored.number, &[] as &[u8], fingerprint.as_slice(), trace, crc];
    transaction.execute(update, values).map(drop)
}

/// Removes the response bodies of a delivery's attempts; returns how many there were.
fn erase_attempts(
    transaction: &Transaction<'_>,
    path: &Path,
    number: i64,
    delivery: DeliveryId,
) -> Result<u64, StoreError> {
    let mut erased = 0;
    let find = "SELECT id, first FROM deliveries WHERE n = ?1";
    let first = rows::one(transaction, path, "deliveries", find, [number], rows::first_attempt)?;
    if let Some(without) = first.flatten().as_ref().and_then(without_body) {
        let mut bytes = Encoder::default();
        codec::put_first_attempt(&mut bytes, delivery, &without);
        let update = "UPDATE deliveries SET first = ?2 WHERE n = ?1";
        transaction.execute(update, params![number, bytes.as_slice()]).at(path)?;
        erased += 1;
    }
    let find = "SELECT delivery, number, body, crc FROM attempts WHERE delivery = ?1";
    let values = [delivery.as_bytes().as_slice()];
    let attempts = rows::all(transaction, path, "attempts", find, values, rows::attempt)?;
    for without in attempts.iter().filter_map(without_body) {
        let mut body = Encoder::default();
        codec::put_attempt(&mut body, &without);
        let update = "UPDATE attempts SET body = ?3, crc = ?4 WHERE delivery = ?1 AND number = ?2";
        let crc = rows::attempt_sum(delivery.as_bytes(), body.as_slice());
        let values = params![delivery.as_bytes().as_slice(), without.number, body.as_slice(), crc];
        transaction.execute(update, values).at(path)?;
        erased += 1;
    }
    Ok(erased)
}

/// The attempt without its response body; `None` where it has none.
fn without_body(attempt: &Attempt) -> Option<Attempt> {
    let mut without = attempt.clone();
    match &mut without.ending {
        Ending::Answered(answer) if !answer.body.is_empty() => answer.body = Bytes::new(),
        Ending::Answered(_) | Ending::Failed(_) | Ending::OwnFault(_) => return None,
    }
    Some(without)
}
