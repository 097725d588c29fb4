//! Converts errors of PostgreSQL to errors of the store.
//!
//! **In doubt the error is [`StoreError::Unavailable`]**: the outcome is unknown, and repeating is
//! safe.

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::days::TABLES;
use crate::error::StoreError;

/// A step of a transaction failed.
pub(super) fn failed(error: &Error) -> StoreError {
    let Some(code) = error.code() else {
        return StoreError::Unavailable(words(error));
    };
    if *code == SqlState::DISK_FULL {
        return StoreError::DiskFull { place: "the PostgreSQL server".into() };
    }
    if passes(code) {
        return StoreError::Unavailable(words(error));
    }
    StoreError::Internal(words(error))
}

/// Whether the condition is temporary: the server is starting, stopping, short of resources, or too
/// slow.
fn passes(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    let retry = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::INVALID_SQL_STATEMENT_NAME,
        SqlState::FEATURE_NOT_SUPPORTED,
    ];
    // 08: connection; 53: resources; 57: an operator (shutdown, timeout); 58: the system.
    ["08", "53", "57", "58"].contains(&class) || retry.contains(code)
}

/// The message with its cause, without any value that a client may have sent.
fn words(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// A copy of an error that concerns all callers of a shared transaction; `None` if it may concern
/// only one of them.
pub(super) fn for_everybody(error: &StoreError) -> Option<StoreError> {
    match error {
        StoreError::DiskFull { place } => Some(StoreError::DiskFull { place: place.clone() }),
        StoreError::Unavailable(why) => Some(StoreError::Unavailable(why.clone())),
        StoreError::Stopped(why) => Some(StoreError::Stopped(why.clone())),
        StoreError::NotWritable { .. }
        | StoreError::Locked { .. }
        | StoreError::NewerVersion { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Fenced { .. }
        | StoreError::UnknownCursor
        | StoreError::Busy
        | StoreError::TooSlow(_)
        | StoreError::Internal(_) => None,
    }
}

/// Whether a unique identifier exists already.
pub(super) fn is_taken(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

/// The SQLSTATE of `postrider.refuse_stale_match`. The standard reserves no class that begins with
/// `P`, and PostgreSQL has only `P0` of them.
pub(super) const STALE_MATCH: &str = "PR001";

/// Whether a subscription changed since the events were matched.
pub(super) fn is_stale(error: &Error) -> bool {
    error.code().is_some_and(|code| code.code() == STALE_MATCH)
}

/// Whether the partition for the row's day is missing.
///
/// PostgreSQL reports a missing partition as a check violation that names the table and no
/// constraint. A violated CHECK constraint always has a name; if it were taken for a missing
/// partition, the write would be retried in vain. An SQLSTATE of our own would need a default
/// partition with a trigger: then no partition could be detached concurrently, and nodes of the
/// previous version would not know the code.
pub(super) fn has_no_day(error: &Error) -> bool {
    error.as_db_error().is_some_and(|db| {
        *db.code() == SqlState::CHECK_VIOLATION
            && db.constraint().is_none()
            && db.table().is_some_and(|table| TABLES.contains(&table))
    })
}

/// A row is not what this program wrote.
pub(super) fn corrupt(place: &str, what: impl ToString) -> StoreError {
    StoreError::Corrupt { place: format!("table postrider.{place}"), what: what.to_string() }
}
