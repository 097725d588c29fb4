//! Summaries of deliveries that have not arrived.
//!
//! When deliveries fall due is counted from an index of `main.db` alone: `waiting_due` for all tenants, `waiting_due_of`
//! for each destination of one tenant. A span that is full is left by a seek to its end, so a count reads at most as
//! many rows as all spans together may have, and one more for each seek.
//!
//! Dead deliveries are read through the index by state, newest day first, up to a number of rows. Like other counts,
//! this does not verify the checksum of a delivery, which would need its event.

use std::collections::HashMap;
use std::path::Path;

use async_trait::async_trait;
use postrider_domain::delivery::{DeadReason, DeliveryState};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, params};

use super::history::name_number;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Needs;
use crate::embedded::files::At;
use crate::embedded::files::codec::{self, Decoder};
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::{self, Reading};
use crate::error::StoreError;
use crate::summaries::{DeadGroup, DeadLetters, DeadTally, DueCounts, DueTally, Summaries};

/// How many destinations of one tenant are looked at for what is due.
const DESTINATIONS_MAX: usize = 10_000;

/// Due times of all tenants from `?1` on.
const OF_ALL: &str = "SELECT due_at FROM waiting INDEXED BY waiting_due
    WHERE ?2 IS NULL AND due_at >= ?1 ORDER BY due_at";
/// Due times of the destination `?2` from `?1` on.
const OF_DESTINATION: &str = "SELECT due_at FROM waiting INDEXED BY waiting_due_of
    WHERE destination = ?2 AND due_at >= ?1 ORDER BY due_at";
/// The destinations of a tenant at which deliveries wait.
const WAITED_AT: &str = "SELECT d.id FROM destinations AS d INDEXED BY destinations_of_tenant
    CROSS JOIN backlog AS b ON b.destination = d.id
    WHERE d.tenant = ?1 AND b.waiting > 0 LIMIT ?2";

#[async_trait]
impl Summaries for EmbeddedStore {
    async fn due_counts(
        &self,
        tenant: Option<&TenantId>,
        now: Timestamp,
        most: u64,
    ) -> Result<DueCounts, StoreError> {
        let of = tenant.cloned();
        let read = move |guard: &ReadGuard<'_>| {
            guard.main(|connection, path| {
                let mut tally = DueTally::new(now, most);
                let Some(tenant) = &of else {
                    count_due(guard, (connection, path), None, &mut tally)?;
                    return Ok(tally.done());
                };
                let all = waited_at(connection, path, tenant)?;
                for destination in all.iter().take(DESTINATIONS_MAX) {
                    count_due(guard, (connection, path), Some(*destination), &mut tally)?;
                }
                if all.len() > DESTINATIONS_MAX {
                    tally.has_more();
                }
                Ok(tally.done())
            })
        };
        match tenant {
            Some(tenant) => self.read_list(tenant, Needs::Everything, read).await,
            None => self.read_list_of_all(read).await,
        }
    }

    async fn dead_letters(
        &self,
        tenant: Option<&TenantId>,
        most: usize,
    ) -> Result<DeadLetters, StoreError> {
        let of = tenant.cloned();
        let read = move |guard: &ReadGuard<'_>| {
            let (mut tally, mut left) = (DeadTally::default(), most);
            let mut is_whole = true;
            for day in guard.days().into_iter().rev() {
                let (read, has_more) = guard.day(day, |connection, path| {
                    dead_of_day((connection, path), of.as_ref(), left, &mut tally)
                })?;
                left = left.saturating_sub(read);
                if has_more {
                    is_whole = false;
                    break;
                }
            }
            Ok(tally.done(is_whole))
        };
        match tenant {
            Some(tenant) => self.read_list(tenant, Needs::Everything, read).await,
            None => self.read_list_of_all(read).await,
        }
    }
}

fn waited_at(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
) -> Result<Vec<DestinationId>, StoreError> {
    let limit = i64::try_from(DESTINATIONS_MAX + 1).unwrap_or(i64::MAX);
    let make = |reading: &Reading<'_>| reading.id(0, DestinationId::from_bytes);
    let values = params![tenant.as_str(), limit];
    rows::all(connection, path, "destinations", WAITED_AT, values, make)
}

/// Counts what is due at one destination, or at all of them.
fn count_due(
    guard: &ReadGuard<'_>,
    (connection, path): (&Connection, &Path),
    destination: Option<DestinationId>,
    tally: &mut DueTally,
) -> Result<(), StoreError> {
    let find = if destination.is_some() { OF_DESTINATION } else { OF_ALL };
    let id = destination.map(|id| id.as_bytes().to_vec());
    let mut statement = connection.prepare_cached(find).at(path)?;
    let mut from = Some(i64::MIN);
    while let Some(first) = from.take() {
        guard.check()?;
        let mut rows = statement.query(params![first, id]).at(path)?;
        while let Some(row) = rows.next().at(path)? {
            let due_at = Timestamp::from_unix_ms(row.get(0).at(path)?);
            if !tally.add(due_at) {
                from = tally.end_of(due_at).map(Timestamp::as_unix_ms);
                break;
            }
        }
    }
    Ok(())
}

/// Adds the newest dead deliveries of a day. Returns how many rows were read, and whether there are more.
fn dead_of_day(
    (connection, path): (&Connection, &Path),
    tenant: Option<&TenantId>,
    left: usize,
    tally: &mut DeadTally,
) -> Result<(usize, bool), StoreError> {
    let number = match tenant {
        None => None,
        Some(tenant) => match name_number(connection, path, tenant.as_str())? {
            Some(number) => Some(number),
            None => return Ok((0, false)),
        },
    };
    let (first, last) = number.map_or((i64::MIN, i64::MAX), row_numbers::range);
    let find = "SELECT d.id, r.tenant, r.destination, d.detail
        FROM deliveries AS d INDEXED BY deliveries_by_state
        CROSS JOIN routes AS r ON r.n = d.route
        WHERE d.state <> 2 AND d.state = 3 AND d.n BETWEEN ?1 AND ?2
            AND (?3 IS NULL OR r.tenant = ?3) ORDER BY d.n DESC LIMIT ?4";
    let limit = i64::try_from(left).unwrap_or(i64::MAX).saturating_add(1);
    let mut statement = connection.prepare_cached(find).at(path)?;
    let mut rows = statement.query(params![first, last, number, limit]).at(path)?;
    let mut names = HashMap::new();
    let mut read = 0;
    while let Some(row) = rows.next().at(path)? {
        if read == left {
            return Ok((read, true));
        }
        read += 1;
        let reading = Reading { row, path, table: "deliveries" };
        let number: i64 = reading.get(1)?;
        let tenant = match names.get(&number) {
            Some(tenant) => TenantId::clone(tenant),
            None => {
                let tenant = name_of(connection, path, number)?;
                names.insert(number, tenant.clone());
                tenant
            }
        };
        let destination = reading.id(2, DestinationId::from_bytes)?;
        let (at, reason) = death_of(&reading)?;
        tally.add(DeadGroup { tenant, destination, reason, count: 1, first_at: at, last_at: at });
    }
    Ok((read, false))
}

/// When and why the delivery of a row died, of the column 3.
fn death_of(reading: &Reading<'_>) -> Result<(Timestamp, DeadReason), StoreError> {
    match reading.decoded(codec::get_state(&mut Decoder::new(reading.bytes(3)?)))? {
        DeliveryState::Dead { at, reason } => Ok((at, reason)),
        DeliveryState::Queued
        | DeliveryState::Waiting(_)
        | DeliveryState::Delivered { .. }
        | DeliveryState::Cancelled { .. } => {
            Err(reading.damaged("its columns contradict each other"))
        }
    }
}

/// The tenant with this number in a day's file.
fn name_of(connection: &Connection, path: &Path, number: i64) -> Result<TenantId, StoreError> {
    let find = "SELECT name FROM names WHERE n = ?1";
    let found = rows::one(connection, path, "names", find, [number], |reading| reading.parse(0))?;
    found
        .ok_or_else(|| StoreError::Internal(format!("a route of tenant {number}, who has no name")))
}
