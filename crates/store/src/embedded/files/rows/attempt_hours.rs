//! Hours of attempts, one row for a destination and an hour.
//!
//! As with counters, a row's checksum is verified before the row is changed.

use std::path::Path;

use postrider_domain::attempt_tally::AttemptHour;
use postrider_domain::ids::DestinationId;
use rusqlite::{Connection, params};

use super::{Reading, one, sum};
use crate::attempt_codec::{decode_recent, decode_tally, encode_recent, encode_tally};
use crate::embedded::files::At;
use crate::error::StoreError;

/// Selects the columns that [`attempt_hour_of`] reads.
pub(in crate::embedded) const ATTEMPT_HOURS: &str =
    "SELECT destination, hour, counts, recent, crc FROM attempt_hours";

/// An hour of attempts, of the columns `destination, hour, counts, recent, crc`; returned with the hour.
pub(in crate::embedded) fn attempt_hour_of(
    reading: &Reading<'_>,
) -> Result<(i64, AttemptHour), StoreError> {
    let hour: i64 = reading.get(1)?;
    let (counts, recent) = (reading.bytes(2)?, reading.bytes(3)?);
    reading.check(4, sum(&[&reading.bytes(0)?, &hour.to_le_bytes(), &counts, &recent]))?;
    let damaged = || reading.damaged("its counts cannot be read");
    let tally = decode_tally(&counts).ok_or_else(damaged)?;
    let recent = decode_recent(hour, &recent).ok_or_else(damaged)?;
    Ok((hour, AttemptHour { tally, recent }))
}

/// Adds attempts to an hour of a destination. A destination that does not exist has none.
pub(in crate::embedded) fn add_to_attempt_hour(
    connection: &Connection,
    path: &Path,
    (destination, hour): (DestinationId, i64),
    later: &AttemptHour,
) -> Result<(), StoreError> {
    let key = destination.as_bytes().as_slice();
    let find = format!("{ATTEMPT_HOURS} WHERE destination = ?1 AND hour = ?2");
    let values = params![key, hour];
    let before = one(connection, path, "attempt_hours", &find, values, attempt_hour_of)?;
    let put = if before.is_some() {
        "UPDATE attempt_hours SET counts = ?3, recent = ?4, crc = ?5
            WHERE destination = ?1 AND hour = ?2"
    } else {
        "INSERT INTO attempt_hours SELECT ?1, ?2, ?3, ?4, ?5
            WHERE EXISTS (SELECT 1 FROM destinations WHERE id = ?1)"
    };
    let mut after = before.map_or_else(AttemptHour::default, |(_, before)| before);
    after.append(later);
    let (counts, recent) = (encode_tally(&after.tally), encode_recent(hour, &after.recent));
    let crc = sum(&[key, &hour.to_le_bytes(), &counts, &recent]);
    let values = params![key, hour, counts, recent, crc];
    connection.prepare_cached(put).and_then(|mut put| put.execute(values)).at(path).map(drop)
}
