//! Pruning and closing, and the methods that PostgreSQL's own tools replace.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::time::Timestamp;

use super::days::{DAY_MS, DAYS_LOCK, TABLES, day_of, partition};
use super::pool::Scope;
use super::rows::{get, unsigned};
use super::{PostgresStore, StoreState, counts};
use crate::contract::Upkeep;
use crate::error::StoreError;
use crate::records::{Pruned, ShardLeases};

/// How many rows are removed one by one in one transaction.
const CHUNK: i64 = 20_000;

/// The time limit for counting the rows to be pruned.
const LONGEST: Duration = Duration::from_secs(600);

/// Finds an unfinished delivery of a day, with one index lookup per tenant: it runs under locks that
/// others wait for, so its cost must not grow with the backlog.
const UNFINISHED: &str = "WITH RECURSIVE whose (tenant) AS ( \
         (SELECT tenant FROM postrider.deliveries_open ORDER BY tenant LIMIT 1) UNION ALL \
         SELECT (SELECT o.tenant FROM postrider.deliveries_open AS o \
                 WHERE o.tenant > whose.tenant ORDER BY o.tenant LIMIT 1) \
         FROM whose WHERE whose.tenant IS NOT NULL) \
     SELECT 1 FROM whose WHERE EXISTS (SELECT 1 FROM postrider.deliveries_open AS o \
         WHERE o.tenant = whose.tenant AND o.created_at >= $1 AND o.created_at < $2) LIMIT 1";

/// The number of rows of a day.
const CONTENTS: &str = "SELECT (SELECT count(*) FROM postrider.events \
         WHERE accepted_at >= $1 AND accepted_at < $2) AS events, \
     (SELECT count(*) FROM postrider.deliveries_done \
         WHERE created_at >= $1 AND created_at < $2) AS deliveries, \
     (SELECT count(*) FROM postrider.attempts \
         WHERE created_at >= $1 AND created_at < $2) AS attempts";

#[async_trait]
impl Upkeep for PostgresStore {
    async fn hold_shards(&self) -> Result<ShardLeases, StoreError> {
        self.core.hold_shards().await
    }

    async fn release_shards(&self) -> Result<(), StoreError> {
        self.core.release_shards().await
    }

    async fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError> {
        let core = &self.core;
        counts::fold(&core.vital).await?;
        core.prune_answers(before).await?;
        core.prune_notes().await?;
        let sql = "SELECT day FROM postrider.days WHERE day < $1 AND NOT removing ORDER BY day";
        let rows = core.vital.query(Scope::All, sql, &[&day_of(before)]).await?;
        let mut pruned = Pruned::default();
        for row in &rows {
            let of_day = core.prune_day(get(row, "day")?).await?;
            pruned.events += of_day.events;
            pruned.deliveries += of_day.deliveries;
            pruned.attempts += of_day.attempts;
        }
        core.finish_removing().await?;
        Ok(pruned)
    }

    /// Always fails, with an error that names PostgreSQL's own backup tools.
    async fn backup(&self, target: &Path) -> Result<(), StoreError> {
        Err(StoreError::Internal(format!(
            "PostgreSQL is backed up by its own tools, not to {}: use pg_dump for a copy of this \
             database, or pg_basebackup with archived WAL for the whole server",
            target.display()
        )))
    }

    async fn erase_freed(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        let sql = "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' \
                   AS refuses";
        let row = self.core.vital.query_opt(Scope::All, sql, &[]).await?;
        match row.as_ref().map(|row| get::<bool>(row, "refuses")).transpose()? {
            Some(false) => Ok(()),
            Some(true) | None => {
                Err(StoreError::Unavailable("the database takes no writes now".into()))
            }
        }
    }

    /// Leases are not released: call [`Upkeep::release_shards`] before.
    async fn close(&self) -> Result<(), StoreError> {
        self.core.notifier.stop();
        for pool in [&self.core.vital, &self.core.accepting, &self.core.settling] {
            pool.close();
        }
        self.core.pool.close();
        self.core.lists.close();
        Ok(())
    }
}

impl StoreState {
    async fn prune_answers(&self, before: Timestamp) -> Result<(), StoreError> {
        let minute = before.as_unix_ms().div_euclid(counts::MINUTE_MS);
        let chunks = [
            (
                "DELETE FROM postrider.answers WHERE (tenant, key) IN (SELECT tenant, key \
                 FROM postrider.answers WHERE created_at < $1 LIMIT $2) RETURNING 1",
                before.as_unix_ms(),
            ),
            (
                "DELETE FROM postrider.tallies WHERE (tenant, minute) IN (SELECT tenant, minute \
                 FROM postrider.tallies WHERE minute < $1 LIMIT $2) RETURNING 1",
                minute,
            ),
        ];
        for (sql, limit) in chunks {
            while !self.vital.query(Scope::All, sql, &[&limit, &CHUNK]).await?.is_empty() {}
        }
        Ok(())
    }

    /// Drops the partitions of a day, unless a delivery of that day is unfinished.
    async fn prune_day(&self, day: i32) -> Result<Pruned, StoreError> {
        let (from, to) = (i64::from(day) * DAY_MS, (i64::from(day) + 1) * DAY_MS);
        if !self.vital.query(Scope::All, UNFINISHED, &[&from, &to]).await?.is_empty() {
            return Ok(Pruned::default());
        }
        // Counting takes long, so it is done before any lock is taken.
        let mut transaction = self.vital.begin(Scope::All).await?;
        transaction.take_time(LONGEST).await?;
        let counted = transaction.query(CONTENTS, &[&from, &to]).await?;
        transaction.commit().await?;
        let mut transaction = self.vital.begin(Scope::All).await?;
        transaction.query("SELECT pg_advisory_xact_lock($1)", &[&DAYS_LOCK]).await?;
        let mark = "UPDATE postrider.days SET removing = true WHERE day = $1 AND NOT removing";
        if transaction.execute(mark, &[&day]).await? == 0 {
            transaction.rollback().await?;
            return Ok(Pruned::default());
        }
        // A replay that needs a delivery of that day waits from here on, and then finds nothing.
        // Lock the tables before their partitions, as everybody else does. Do not wait for a long
        // read: everybody else would wait behind this transaction.
        let tables = TABLES.map(|table| format!("ONLY postrider.{table}")).join(", ");
        let names = TABLES.map(|table| partition(table, day)).join(", ");
        let lock = format!("SET LOCAL lock_timeout = 500; LOCK TABLE {tables}; LOCK TABLE {names}");
        transaction.batch(&lock).await?;
        if !transaction.query(UNFINISHED, &[&from, &to]).await?.is_empty() {
            transaction.rollback().await?;
            return Ok(Pruned::default());
        }
        transaction.batch(&format!("DROP TABLE {names}")).await?;
        transaction.commit().await?;
        self.days.forget();
        let Some(row) = counted.first() else { return Ok(Pruned::default()) };
        Ok(Pruned {
            events: unsigned(get(row, "events")?),
            deliveries: unsigned(get(row, "deliveries")?),
            attempts: unsigned(get(row, "attempts")?),
        })
    }

    /// Removes the event identifiers of days whose partitions are gone, in small steps.
    async fn finish_removing(&self) -> Result<(), StoreError> {
        let days = "SELECT day FROM postrider.days WHERE removing";
        for row in &self.vital.query(Scope::All, days, &[]).await? {
            let day: i32 = get(row, "day")?;
            let (from, to) = (i64::from(day) * DAY_MS, (i64::from(day) + 1) * DAY_MS);
            let sql = "DELETE FROM postrider.event_ids WHERE ctid = ANY (ARRAY( \
                       SELECT ctid FROM postrider.event_ids \
                       WHERE accepted_at >= $1 AND accepted_at < $2 LIMIT $3)) RETURNING 1";
            while !self.vital.query(Scope::All, sql, &[&from, &to, &CHUNK]).await?.is_empty() {}
            let sql = "DELETE FROM postrider.days WHERE day = $1 AND removing";
            self.vital.query(Scope::All, sql, &[&day]).await?;
        }
        Ok(())
    }
}
