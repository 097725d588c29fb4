//! Counters, and the table `meta` of facts about a file.
//!
//! A counter's checksum is verified before the counter is changed: **a damaged counter is never
//! added to**.

use std::path::Path;

use postrider_domain::ids::{DestinationId, TenantId};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params};

use super::{Reading, one, sum};
use crate::embedded::files::At;
use crate::error::StoreError;

fn sum_of<const N: usize>(key: &[&[u8]], numbers: &[i64; N]) -> u32 {
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let values: Vec<&[u8]> = key.iter().copied().chain([numbers.as_slice()]).collect();
    sum(&values)
}

/// The numbers of a row from a column on, verified against the checksum after them.
fn numbers_of<const N: usize>(
    reading: &Reading<'_>,
    key: &[&[u8]],
    first: usize,
) -> Result<[i64; N], StoreError> {
    let mut numbers = [0; N];
    for (column, number) in (first..).zip(&mut numbers) {
        *number = reading.get(column)?;
    }
    reading.check(first + N, sum_of(key, &numbers))?;
    Ok(numbers)
}

fn plus<const N: usize>(before: Option<[i64; N]>, change: &[i64; N]) -> [i64; N] {
    let mut after = before.unwrap_or([0; N]);
    for (number, change) in after.iter_mut().zip(change) {
        *number = number.saturating_add(*change);
    }
    after
}

/// A tenant's ledger, of the columns `tenant, accepted, queued, waiting, delivered, dead, cancelled,
/// crc`.
pub(in crate::embedded) fn ledger_of(reading: &Reading<'_>) -> Result<[i64; 6], StoreError> {
    numbers_of(reading, &[reading.get::<String>(0)?.as_bytes()], 1)
}

/// Selects the columns that [`ledger_of`] reads.
pub(in crate::embedded) const LEDGER: &str = "SELECT tenant, accepted, queued, waiting, delivered,
    dead, cancelled, crc FROM ledger";

/// Adds to a tenant's ledger.
pub(in crate::embedded) fn add_to_ledger(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    change: &[i64; 6],
) -> Result<(), StoreError> {
    let find = format!("{LEDGER} WHERE tenant = ?1");
    let before = one(connection, path, "ledger", &find, [tenant.as_str()], ledger_of)?;
    let [accepted, queued, waiting, delivered, dead, cancelled] = plus(before, change);
    let after = [accepted, queued, waiting, delivered, dead, cancelled];
    let crc = sum_of(&[tenant.as_str().as_bytes()], &after);
    let put = "INSERT OR REPLACE INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values =
        params![tenant.as_str(), accepted, queued, waiting, delivered, dead, cancelled, crc];
    connection.prepare_cached(put).and_then(|mut put| put.execute(values)).at(path).map(drop)
}

/// The counts of one minute, of the columns `tenant, minute, accepted, delivered, failed, dead,
/// crc`; returned with the minute.
pub(in crate::embedded) fn tally_of(reading: &Reading<'_>) -> Result<(i64, [i64; 4]), StoreError> {
    let (tenant, minute): (String, i64) = (reading.get(0)?, reading.get(1)?);
    let key = [tenant.as_bytes(), &minute.to_le_bytes()];
    Ok((minute, numbers_of(reading, &key, 2)?))
}

/// Selects the columns that [`tally_of`] reads.
pub(in crate::embedded) const TALLIES: &str =
    "SELECT tenant, minute, accepted, delivered, failed, dead, crc FROM tallies";

/// Adds to the counts of a minute of a tenant; the empty name stands for all tenants together.
pub(in crate::embedded) fn add_to_tally(
    connection: &Connection,
    path: &Path,
    (tenant, minute): (&str, i64),
    change: &[i64; 4],
) -> Result<(), StoreError> {
    let find = format!("{TALLIES} WHERE tenant = ?1 AND minute = ?2");
    let before = one(connection, path, "tallies", &find, params![tenant, minute], tally_of)?;
    let [accepted, delivered, failed, dead] = plus(before.map(|(_, tally)| tally), change);
    let key = [tenant.as_bytes(), &minute.to_le_bytes()];
    let crc = sum_of(&key, &[accepted, delivered, failed, dead]);
    let put = "INSERT OR REPLACE INTO tallies VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![tenant, minute, accepted, delivered, failed, dead, crc];
    connection.prepare_cached(put).and_then(|mut put| put.execute(values)).at(path).map(drop)
}

/// The number of waiting deliveries of a destination, of the columns `destination, waiting, crc`.
pub(in crate::embedded) fn backlog_of(reading: &Reading<'_>) -> Result<i64, StoreError> {
    let [waiting] = numbers_of(reading, &[&reading.bytes(0)?], 1)?;
    Ok(waiting)
}

/// Adds to the number of waiting deliveries of a destination.
pub(in crate::embedded) fn add_to_backlog(
    connection: &Connection,
    path: &Path,
    destination: DestinationId,
    change: i64,
) -> Result<(), StoreError> {
    let key = destination.as_bytes().as_slice();
    let find = "SELECT destination, waiting, crc FROM backlog WHERE destination = ?1";
    let before = one(connection, path, "backlog", find, [key], backlog_of)?;
    let [waiting] = plus(before.map(|waiting| [waiting]), &[change]);
    let put = "INSERT OR REPLACE INTO backlog VALUES (?1, ?2, ?3)";
    let values = params![key, waiting, sum_of(&[key], &[waiting])];
    connection.prepare_cached(put).and_then(|mut put| put.execute(values)).at(path).map(drop)
}

/// The numbers of rows in a day's file, of the columns `day, whole, events, deliveries, attempts,
/// crc`; returned with the day.
pub(in crate::embedded) fn day_of(reading: &Reading<'_>) -> Result<(i64, [i64; 4]), StoreError> {
    let day: i64 = reading.get(0)?;
    Ok((day, numbers_of(reading, &[&day.to_le_bytes()], 1)?))
}

/// Selects the columns that [`day_of`] reads.
pub(in crate::embedded) const DAYS: &str =
    "SELECT day, whole, events, deliveries, attempts, crc FROM days";

/// Adds to the numbers of rows in a day's file; `is_whole` where the file was empty before.
pub(in crate::embedded) fn add_to_day(
    connection: &Connection,
    path: &Path,
    (day, is_whole): (i64, bool),
    change: [i64; 3],
) -> Result<(), StoreError> {
    let find = format!("{DAYS} WHERE day = ?1");
    let before = one(connection, path, "days", &find, [day], day_of)?;
    let before = before.map_or([i64::from(is_whole), 0, 0, 0], |(_, before)| before);
    let [events, deliveries, attempts] = change;
    let after = plus(Some(before), &[0, events, deliveries, attempts]);
    let [whole, events, deliveries, attempts] = after;
    let put = "INSERT OR REPLACE INTO days VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let crc = sum_of(&[&day.to_le_bytes()], &after);
    let values = params![day, whole, events, deliveries, attempts, crc];
    connection.prepare_cached(put).and_then(|mut put| put.execute(values)).at(path).map(drop)
}

/// The least number of transactions that a day's file must have, of the columns `day, writes, crc`;
/// returned with the day.
pub(in crate::embedded) fn mark_of(reading: &Reading<'_>) -> Result<(i64, i64), StoreError> {
    let day: i64 = reading.get(0)?;
    let [writes] = numbers_of(reading, &[&day.to_le_bytes()], 1)?;
    Ok((day, writes))
}

/// Selects the columns that [`mark_of`] reads.
pub(in crate::embedded) const MARKS: &str = "SELECT day, writes, crc FROM marks";

/// Records how many transactions a day's file has.
pub(in crate::embedded) fn put_mark(
    connection: &Connection,
    day: i64,
    writes: i64,
) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2, ?3)")?;
    put.execute(params![day, writes, sum_of(&[&day.to_le_bytes()], &[writes])]).map(drop)
}

/// A value of `meta`, of the columns `key, value, crc`.
pub(in crate::embedded) fn meta_of(reading: &Reading<'_>) -> Result<Value, StoreError> {
    let (key, value): (String, Value) = (reading.get(0)?, reading.get(1)?);
    reading.check(2, meta_sum(&key, (&value).into()))?;
    Ok(value)
}

fn meta_sum(key: &str, value: ValueRef<'_>) -> u32 {
    match value {
        ValueRef::Integer(number) => sum(&[key.as_bytes(), b"i", &number.to_le_bytes()]),
        ValueRef::Blob(bytes) => sum(&[key.as_bytes(), b"b", bytes]),
        ValueRef::Text(text) => sum(&[key.as_bytes(), b"t", text]),
        ValueRef::Null | ValueRef::Real(_) => sum(&[key.as_bytes()]),
    }
}

/// Reads one value of `meta`.
pub(in crate::embedded) fn meta(
    connection: &Connection,
    path: &Path,
    key: &str,
) -> Result<Option<Value>, StoreError> {
    let find = "SELECT key, value, crc FROM meta WHERE key = ?1";
    one(connection, path, "meta", find, [key], meta_of)
}

/// Writes one value of `meta`.
pub(in crate::embedded) fn put_meta(
    connection: &Connection,
    key: &str,
    value: &Value,
) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2, ?3)")?;
    put.execute(params![key, value, meta_sum(key, value.into())]).map(drop)
}
