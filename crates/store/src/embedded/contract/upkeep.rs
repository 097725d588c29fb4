//! Leases, pruning and closing.

use std::fs;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use postrider_domain::ids::Shard;
use postrider_domain::time::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension};

use super::history::unsigned;
use crate::contract::Upkeep;
use crate::embedded::apply::{Applier, minute};
use crate::embedded::files::read_pool::{ReadGuard, ReadPool};
use crate::embedded::files::rows;
use crate::embedded::files::{At, Day, io_error, sync_directory};
use crate::embedded::{Days, EmbeddedStore};
use crate::error::StoreError;
use crate::nodes::Nodes;
use crate::records::{Epoch, Pruned, ShardLeases};

/// The epoch of every shard: this node owns all of them for ever.
pub(in crate::embedded) const EPOCH: Epoch = Epoch(1);

/// There are no other nodes: all defaults apply.
#[async_trait]
impl Nodes for EmbeddedStore {
    async fn claim(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (name, value) = (claim_key(name), value.to_vec());
        self.change(move |transaction, path| match claimed(transaction, path, &name)? {
            Some(claimed) => Ok(claimed),
            None => {
                rows::put_meta(transaction, &name, &Value::Blob(value.clone())).at(path)?;
                Ok(value)
            }
        })
        .await
    }

    async fn claimed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = claim_key(name);
        self.read(move |guard| guard.main(|connection, path| claimed(connection, path, &name)))
            .await
    }

    async fn replace_claim(
        &self,
        name: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let (name, value) = (claim_key(name), value.to_vec());
        let expected = expected.map(<[u8]>::to_vec);
        self.change(move |transaction, path| {
            let is_expected = claimed(transaction, path, &name)? == expected;
            if is_expected {
                rows::put_meta(transaction, &name, &Value::Blob(value)).at(path)?;
            }
            Ok(is_expected)
        })
        .await
    }
}

/// The key of a claim in `meta`.
fn claim_key(name: &str) -> String {
    format!("claim {name}")
}

fn claimed(connection: &Connection, path: &Path, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
    Ok(match rows::meta(connection, path, key)? {
        Some(Value::Blob(claimed)) => Some(claimed),
        Some(_) | None => None,
    })
}

#[async_trait]
impl Upkeep for EmbeddedStore {
    async fn hold_shards(&self) -> Result<ShardLeases, StoreError> {
        self.queue.is_done()?;
        Ok(ShardLeases { shards: (0..=u8::MAX).map(|number| (Shard(number), EPOCH)).collect() })
    }

    async fn release_shards(&self) -> Result<(), StoreError> {
        self.queue.is_done().map(drop)
    }

    /// Removes the files of whole days; a day with an unfinished delivery stays.
    async fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError> {
        self.change(move |transaction, path| {
            let delete = "DELETE FROM answers WHERE created_at < ?1";
            transaction.execute(delete, [before.as_unix_ms()]).at(path)?;
            let delete = "DELETE FROM tallies WHERE minute < ?1";
            transaction.execute(delete, [minute(before)]).at(path).map(drop)
        })
        .await?;
        let old = self.read(move |guard| {
            let old = guard.days().into_iter().filter(|day| day.end() <= before);
            old.map(|day| Ok((day, contents(guard, day)?))).collect::<Result<Vec<_>, _>>()
        });
        let mut pruned = Pruned::default();
        for (day, of_day) in old.await? {
            let (pool, days) = (Arc::clone(&self.pool), Arc::clone(&self.days));
            if self.run_in_applier(move |applier| remove(applier, &pool, &days, day)).await? {
                pruned.events += of_day.events;
                pruned.deliveries += of_day.deliveries;
                pruned.attempts += of_day.attempts;
            }
        }
        Ok(pruned)
    }

    async fn backup(&self, target: &Path) -> Result<(), StoreError> {
        self.copy_to(target).await
    }

    async fn erase_freed(&self) -> Result<(), StoreError> {
        self.run_in_applier(|applier| applier.main().rewrite()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.queue.is_done()?;
        self.check_room(1)
    }

    async fn close(&self) -> Result<(), StoreError> {
        match self.closing() {
            None => Ok(()),
            Some(close) => {
                let closed = tokio::task::spawn_blocking(close).await;
                closed.map_err(|error| StoreError::Internal(error.to_string()))?
            }
        }
    }
}

/// The number of rows of a day: the sums in `main.db`. Where these are incomplete, the rows are
/// counted, which takes long and so runs outside the applier.
pub(in crate::embedded) fn contents(guard: &ReadGuard<'_>, day: Day) -> Result<Pruned, StoreError> {
    let find = format!("{} WHERE day = ?1", rows::DAYS);
    let known = guard.main(|connection, path| {
        rows::one(connection, path, "days", &find, [day.number()], rows::day_of)
    })?;
    match known {
        Some((_, [1, events, deliveries, attempts])) => Ok(Pruned {
            events: unsigned(events),
            deliveries: unsigned(deliveries),
            attempts: unsigned(attempts),
        }),
        Some(_) | None => guard.day(day, counted),
    }
}

/// Counts the rows of a day.
pub(in crate::embedded) fn counted(
    connection: &Connection,
    path: &Path,
) -> Result<Pruned, StoreError> {
    let count = |table: &str| {
        let count = format!("SELECT count(*) FROM {table}");
        connection.query_row(&count, [], |row| row.get(0)).map(unsigned).at(path)
    };
    let (events, deliveries) = (count("events")?, count("deliveries")?);
    let first = "deliveries WHERE first IS NOT NULL";
    Ok(Pruned { events, deliveries, attempts: count("attempts")? + count(first)? })
}

/// Removes the file of a day, unless a delivery of that day is unfinished.
fn remove(
    applier: &mut Applier,
    pool: &ReadPool,
    days: &Days,
    day: Day,
) -> Result<bool, StoreError> {
    if !days.lock().unwrap_or_else(PoisonError::into_inner).contains(&day) {
        return Ok(false);
    }
    let (connection, path) = applier.day(day)?.connection();
    let unfinished = "SELECT 1 FROM deliveries INDEXED BY deliveries_by_state
        WHERE state <> 2 AND state IN (0, 1) LIMIT 1";
    let unfinished = connection.query_row(unfinished, [], |_| Ok(())).optional().at(path)?;
    if unfinished.is_some() {
        return Ok(false);
    }
    // Remove the sums first: left without their file, they would be taken for those of a later file
    // of the same day.
    applier.main().change(|transaction, path| {
        for table in ["days", "marks"] {
            let delete = format!("DELETE FROM {table} WHERE day = ?1");
            transaction.execute(&delete, [day.number()]).at(path)?;
        }
        Ok(())
    })?;
    let path = applier.layout().day(day);
    let _nobody_looks = pool.keep_out();
    applier.close_day(day);
    applier.blooms().forget(day);
    pool.forget(&path);
    days.lock().unwrap_or_else(PoisonError::into_inner).remove(&day);
    for suffix in ["-wal", "-shm", ""] {
        let mut name = path.clone().into_os_string();
        name.push(suffix);
        match fs::remove_file(&name) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(&path, &error)),
        }
    }
    sync_directory(&applier.layout().history())?;
    Ok(true)
}
