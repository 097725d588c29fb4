//! Days: the partitions of events, ended deliveries and attempts.
//!
//! Partitions are created some days ahead, and on demand for other days, by one node at a time. A
//! partition is created separately and then attached, so that no reader or writer waits for it.
//! Row-level security hides its rows from queries that name the partition itself: they are read
//! through the parent table.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use postrider_domain::time::Timestamp;

use super::pool::{Pool, Scope, Transaction};
use crate::error::StoreError;

/// An advisory lock, held while partitions are created or removed.
pub(super) const DAYS_LOCK: i64 = 0x706f_7374_0002;

/// Milliseconds of a day.
pub(super) const DAY_MS: i64 = 86_400_000;

/// How many days after today have partitions already.
const AHEAD: i64 = 2;

/// The tables that have a partition for each day.
pub(super) const TABLES: [&str; 3] = ["events", "deliveries_done", "attempts"];

/// The days whose partitions this node has seen.
#[derive(Default)]
pub(super) struct Days(Mutex<BTreeSet<i32>>);

pub(super) fn day_of(at: Timestamp) -> i32 {
    let day = at.as_unix_ms().div_euclid(DAY_MS);
    i32::try_from(day).unwrap_or(if day < 0 { i32::MIN } else { i32::MAX })
}

/// The name of a day's partition.
pub(super) fn partition(table: &str, day: i32) -> String {
    format!("postrider.\"{table}_{day}\"")
}

impl Days {
    /// Creates the missing partitions of these days.
    pub(super) async fn ensure(
        &self,
        pool: &Pool,
        mut wanted: BTreeSet<i32>,
    ) -> Result<(), StoreError> {
        {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.retain(|day| !known.contains(day));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let mut transaction = pool.begin(Scope::All).await?;
        transaction.query("SELECT pg_advisory_xact_lock($1)", &[&DAYS_LOCK]).await?;
        for day in &wanted {
            create(&mut transaction, *day).await?;
        }
        transaction.commit().await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(wanted);
        Ok(())
    }

    /// Creates the partitions of today and of the next days, by the database's clock.
    pub(super) async fn ahead(&self, pool: &Pool, now: Timestamp) -> Result<(), StoreError> {
        let days = (0..=AHEAD).map(|n| now.as_unix_ms().saturating_add(n * DAY_MS));
        self.ensure(pool, days.map(Timestamp::from_unix_ms).map(day_of).collect()).await
    }

    /// Forgets which partitions exist: another node may have removed some.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

async fn create(transaction: &mut Transaction<'_>, day: i32) -> Result<(), StoreError> {
    let known = transaction
        .query("SELECT 1 FROM postrider.days WHERE day = $1 AND NOT removing", &[&day])
        .await?;
    if !known.is_empty() {
        return Ok(());
    }
    let (from, to) = (i64::from(day) * DAY_MS, (i64::from(day) + 1) * DAY_MS);
    for table in TABLES {
        let name = partition(table, day);
        let sql = format!(
            "CREATE TABLE {name} (LIKE postrider.{table} INCLUDING DEFAULTS); \
             ALTER TABLE {name} ENABLE ROW LEVEL SECURITY; \
             ALTER TABLE {name} FORCE ROW LEVEL SECURITY; \
             ALTER TABLE postrider.{table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})"
        );
        transaction.batch(&sql).await?;
    }
    let sql = "INSERT INTO postrider.days (day) VALUES ($1) \
               ON CONFLICT (day) DO UPDATE SET removing = false";
    transaction.execute(sql, &[&day]).await?;
    Ok(())
}
