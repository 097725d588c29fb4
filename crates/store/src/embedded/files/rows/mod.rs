//! Converts rows of SQLite to values of the domain.
//!
//! **Every row is verified against its checksum**, which is computed from the value and not from
//! the row's bytes: a read returns the value that was written, or an error that names the file and
//! the row.

mod attempt_hours;
mod counters;
mod day;
pub(in crate::embedded) mod delivery;
mod main;

use std::path::Path;

use postrider_domain::hex;
use postrider_domain::ids::EventId;
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, Params, Row};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(in crate::embedded) use self::attempt_hours::{
    ATTEMPT_HOURS, add_to_attempt_hour, attempt_hour_of,
};
pub(in crate::embedded) use self::counters::{
    DAYS, LEDGER, MARKS, TALLIES, add_to_backlog, add_to_day, add_to_ledger, add_to_tally,
    backlog_of, day_of, ledger_of, mark_of, meta, meta_of, put_mark, put_meta, tally_of,
};
pub(in crate::embedded) use self::day::{
    EVENT_COLUMNS, EVENT_JOINS, StoredEvent, attempt, attempt_sum, event, first_attempt,
};
pub(in crate::embedded) use self::delivery::{
    DELIVERY_COLUMNS, DELIVERY_JOINS, DELIVERY_NUMBER, FRESH, WAITING, delivery,
};
pub(in crate::embedded) use self::main::{
    answer_of, answer_sum, destination_of, destination_sum, key_of, key_sum, pass_sum, put_replay,
    replay, replay_of, scopes_text, subscription_of, subscription_sum, tenant_of, tenant_sum,
    transition_sum, transitions,
};
use super::codec::Malformed;
use super::{At, place, sqlite_error};
use crate::error::StoreError;

/// Sorts after every identifier, because it is longer than one.
pub(in crate::embedded) const AFTER_ALL: [u8; 17] = [0xff; 17];

/// Reads every row of a query.
pub(in crate::embedded) fn all<T>(
    connection: &Connection,
    path: &Path,
    table: &'static str,
    sql: &str,
    values: impl Params,
    make: impl Fn(&Reading<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut statement = connection.prepare_cached(sql).at(path)?;
    let mut rows = statement.query(values).at(path)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().at(path)? {
        found.push(make(&Reading { row, path, table })?);
    }
    Ok(found)
}

/// Reads the rows of a query, each with the size of one of its columns, until they are together
/// larger than `bytes_max`.
pub(in crate::embedded) fn within<T>(
    (connection, path): (&Connection, &Path),
    table: &'static str,
    (sql, values): (&str, impl Params),
    (column, bytes_max): (usize, usize),
    make: impl Fn(&Reading<'_>) -> Result<T, StoreError>,
) -> Result<Vec<(usize, T)>, StoreError> {
    let mut statement = connection.prepare_cached(sql).at(path)?;
    let mut rows = statement.query(values).at(path)?;
    let (mut found, mut bytes) = (Vec::new(), 0usize);
    while bytes <= bytes_max
        && let Some(row) = rows.next().at(path)?
    {
        let size = match row.get_ref(column).at(path)? {
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 0,
        };
        bytes = bytes.saturating_add(size);
        found.push((size, make(&Reading { row, path, table })?));
    }
    Ok(found)
}

/// Reads the only row of a query, if there is one.
pub(in crate::embedded) fn one<T>(
    connection: &Connection,
    path: &Path,
    table: &'static str,
    sql: &str,
    values: impl Params,
    make: impl Fn(&Reading<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    Ok(all(connection, path, table, sql, values, make)?.pop())
}

/// A row, with its file and table for error messages.
pub(in crate::embedded) struct Reading<'r> {
    pub(in crate::embedded) row: &'r Row<'r>,
    pub(in crate::embedded) path: &'r Path,
    pub(in crate::embedded) table: &'static str,
}

impl Reading<'_> {
    pub(in crate::embedded) fn get<T: FromSql>(&self, column: usize) -> Result<T, StoreError> {
        self.row.get(column).map_err(|error| {
            if matches!(error, rusqlite::Error::SqliteFailure(..)) {
                return sqlite_error(self.path, &error);
            }
            self.damaged(&error.to_string())
        })
    }

    pub(in crate::embedded) fn parse<T: std::str::FromStr>(
        &self,
        column: usize,
    ) -> Result<T, StoreError> {
        let text: &str = self
            .row
            .get_ref(column)
            .map_err(|error| sqlite_error(self.path, &error))?
            .as_str()
            .map_err(|error| self.damaged(&error.to_string()))?;
        text.parse().map_err(|_| self.damaged("a text is not what it should be"))
    }

    /// The identifier of an event: stored as text, or as bytes if Postrider made it.
    pub(in crate::embedded) fn event_id(&self, column: usize) -> Result<EventId, StoreError> {
        let value = self.row.get_ref(column).map_err(|error| sqlite_error(self.path, &error))?;
        match value {
            ValueRef::Blob(bytes) => {
                let mut text = String::with_capacity(4 + 2 * bytes.len());
                text.push_str("evt_");
                for byte in bytes {
                    for digit in [byte >> 4, byte & 0x0f] {
                        text.extend(char::from_digit(u32::from(digit), 16));
                    }
                }
                text.parse().map_err(|_| self.damaged("an identifier is not what it should be"))
            }
            ValueRef::Text(_) => self.parse(column),
            ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => {
                Err(self.damaged("its event is not there"))
            }
        }
    }

    pub(in crate::embedded) fn id<T>(
        &self,
        column: usize,
        make: fn([u8; 16]) -> T,
    ) -> Result<T, StoreError> {
        self.get(column).map(make)
    }

    pub(in crate::embedded) fn time(
        &self,
        column: usize,
    ) -> Result<postrider_domain::time::Timestamp, StoreError> {
        self.get(column).map(postrider_domain::time::Timestamp::from_unix_ms)
    }

    pub(in crate::embedded) fn time_or_none(
        &self,
        column: usize,
    ) -> Result<Option<postrider_domain::time::Timestamp>, StoreError> {
        let unix_ms: Option<i64> = self.get(column)?;
        Ok(unix_ms.map(postrider_domain::time::Timestamp::from_unix_ms))
    }

    pub(in crate::embedded) fn bytes(&self, column: usize) -> Result<bytes::Bytes, StoreError> {
        let bytes = self
            .row
            .get_ref(column)
            .map_err(|error| sqlite_error(self.path, &error))?
            .as_blob()
            .map_err(|error| self.damaged(&error.to_string()))?;
        Ok(bytes::Bytes::copy_from_slice(bytes))
    }

    pub(in crate::embedded) fn json<T: DeserializeOwned>(
        &self,
        text: &str,
    ) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| self.damaged(&error.to_string()))
    }

    pub(in crate::embedded) fn decoded<T>(
        &self,
        decoded: Result<T, Malformed>,
    ) -> Result<T, StoreError> {
        decoded.map_err(|error| self.damaged(&error.to_string()))
    }

    /// Checks that the checksum in the column equals `sum`.
    pub(in crate::embedded) fn check(&self, column: usize, sum: u32) -> Result<(), StoreError> {
        if self.get::<u32>(column)? == sum {
            Ok(())
        } else {
            Err(self.damaged("its checksum is wrong"))
        }
    }

    /// The error for a row that is not what was written. It names the row by the value of its first
    /// column.
    pub(in crate::embedded) fn damaged(&self, what: &str) -> StoreError {
        let key = match self.row.get_ref(0) {
            Ok(ValueRef::Blob(bytes)) => hex::encode(bytes),
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(ValueRef::Integer(number)) => number.to_string(),
            Ok(ValueRef::Null | ValueRef::Real(_)) | Err(_) => "?".to_owned(),
        };
        let place = format!("{}, table {}, row {key}", place(self.path), self.table);
        StoreError::Corrupt { place, what: what.to_owned() }
    }
}

/// The checksum of a row's values, each with its length.
pub(in crate::embedded) fn sum(values: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    for value in values {
        sum.update(&u64::try_from(value.len()).unwrap_or(u64::MAX).to_le_bytes());
        sum.update(value);
    }
    sum.finalize()
}

/// The JSON of a value of the domain.
pub(in crate::embedded) fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}
