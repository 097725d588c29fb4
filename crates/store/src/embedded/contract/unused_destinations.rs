//! Destinations that nothing uses: no subscription and no unfinished delivery.
//!
//! They are marked with the time since when, left out of lists, and removed later. **A destination that is
//! used again before that still has its circuit**, so deleting a subscription and creating it again does not
//! thaw a frozen URL.

use std::path::Path;

use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

use crate::embedded::files::At;
use crate::embedded::files::rows::{self, Reading};
use crate::error::StoreError;

/// Whether nothing uses the destination `d`. A subscription that is marked as deleted uses it until it is
/// removed.
const IS_UNUSED: &str = "NOT EXISTS (SELECT 1 FROM subscriptions WHERE destination = d.id)
    AND NOT EXISTS (SELECT 1 FROM waiting WHERE destination = d.id)
    AND NOT EXISTS (SELECT 1 FROM fresh WHERE destination = d.id)";

/// Marks a destination as unused since a time, if nothing uses it.
pub(super) fn mark(
    transaction: &Transaction<'_>,
    path: &Path,
    id: &[u8; 16],
    since: i64,
) -> Result<(), StoreError> {
    let update = format!(
        "UPDATE destinations AS d SET unused_since = ?2
        WHERE id = ?1 AND unused_since IS NULL AND {IS_UNUSED}"
    );
    transaction.execute(&update, params![id, since]).at(path).map(drop)
}

/// Takes the mark from a destination that a subscription uses.
pub(super) fn use_again(
    transaction: &Transaction<'_>,
    path: &Path,
    id: DestinationId,
) -> Result<(), StoreError> {
    let update = "UPDATE destinations SET unused_since = NULL
        WHERE id = ?1 AND unused_since IS NOT NULL";
    transaction.execute(update, [id.as_bytes().as_slice()]).at(path).map(drop)
}

/// Destinations whose marks are wrong, at most `limit` of them. This looks at every destination, so it runs outside
/// the applier.
pub(super) fn wrong_marks(
    connection: &Connection,
    path: &Path,
    limit: usize,
) -> Result<Vec<[u8; 16]>, StoreError> {
    let find = format!(
        "SELECT id FROM destinations AS d WHERE (unused_since IS NULL) = ({IS_UNUSED}) LIMIT ?1"
    );
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    rows::all(connection, path, "destinations", &find, [limit], |reading| reading.get(0))
}

/// Sets the marks of these destinations, and returns destinations that are unused since before `before`.
pub(super) fn sweep(
    transaction: &Transaction<'_>,
    path: &Path,
    wrong: &[[u8; 16]],
    (now, before): (Timestamp, Timestamp),
    limit: usize,
) -> Result<Vec<(TenantId, DestinationId)>, StoreError> {
    let clear = format!(
        "UPDATE destinations AS d SET unused_since = NULL
        WHERE id = ?1 AND unused_since IS NOT NULL AND NOT ({IS_UNUSED})"
    );
    for id in wrong {
        transaction.execute(&clear, [id]).at(path)?;
        mark(transaction, path, id, now.as_unix_ms())?;
    }
    let find = "SELECT id, tenant FROM destinations INDEXED BY destinations_unused
        WHERE unused_since IS NOT NULL AND unused_since < ?1 ORDER BY unused_since LIMIT ?2";
    let values = params![before.as_unix_ms(), i64::try_from(limit).unwrap_or(i64::MAX)];
    rows::all(transaction, path, "destinations", find, values, |reading: &Reading<'_>| {
        Ok((reading.parse(1)?, reading.id(0, DestinationId::from_bytes)?))
    })
}

/// Removes a destination with its timeline and statistics, if it is unused since before `before`.
pub(super) fn remove(
    transaction: &Transaction<'_>,
    path: &Path,
    tenant: &TenantId,
    id: DestinationId,
    before: Timestamp,
) -> Result<bool, StoreError> {
    let delete = format!(
        "DELETE FROM destinations AS d
        WHERE id = ?1 AND tenant = ?2 AND unused_since < ?3 AND {IS_UNUSED}"
    );
    let bytes = id.as_bytes().as_slice();
    let values = params![bytes, tenant.as_str(), before.as_unix_ms()];
    if transaction.execute(&delete, values).at(path)? == 0 {
        return Ok(false);
    }
    for table in ["transitions", "backlog", "attempt_hours"] {
        let delete = format!("DELETE FROM {table} WHERE destination = ?1");
        transaction.execute(&delete, [bytes]).at(path)?;
    }
    Ok(true)
}
