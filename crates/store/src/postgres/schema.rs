//! The schema and its migrations.
//!
//! Any number of nodes may start at once: one of them migrates, under a lock that ends with its
//! transaction, and the others find the work done. A released migration is never edited.

use std::time::Duration;

use super::pool::{Pool, Scope};
use super::rows::get;
use crate::error::StoreError;

/// An advisory lock, held while the schema changes.
const SCHEMA_LOCK: i64 = 0x706f_7374_0001;

/// How long a migration may take.
const LONGEST: Duration = Duration::from_secs(3_600);

/// All migrations, in order; the first one leads to version 1.
const MIGRATIONS: [&str; VERSION as usize] = [
    include_str!("migrations/0001.sql"),
    include_str!("migrations/0002.sql"),
    include_str!("migrations/0003.sql"),
    include_str!("migrations/0004.sql"),
    include_str!("migrations/0005.sql"),
    include_str!("migrations/0006.sql"),
    include_str!("migrations/0007.sql"),
    include_str!("migrations/0008.sql"),
    include_str!("migrations/0009.sql"),
    include_str!("migrations/0010.sql"),
    include_str!("migrations/0011.sql"),
    include_str!("migrations/0012.sql"),
    include_str!("migrations/0013.sql"),
    include_str!("migrations/0014.sql"),
    include_str!("migrations/0015.sql"),
];

/// The version that they lead to.
pub(super) const VERSION: u32 = 15;

/// Brings the schema to the version that this program knows.
pub(super) async fn migrate(pool: &Pool) -> Result<(), StoreError> {
    let known = VERSION;
    let mut transaction = pool.begin(Scope::All).await?;
    // A large migration takes long, and nodes that start meanwhile wait for it.
    transaction.take_time(LONGEST).await?;
    transaction.query("SELECT pg_advisory_xact_lock($1)", &[&SCHEMA_LOCK]).await?;
    let create = "SET LOCAL client_min_messages = warning; \
                  CREATE SCHEMA IF NOT EXISTS postrider; \
                  CREATE TABLE IF NOT EXISTS postrider.migrations ( \
                      version integer PRIMARY KEY, \
                      applied_at timestamptz NOT NULL DEFAULT now())";
    transaction.batch(create).await?;
    let newest = "SELECT coalesce(max(version), 0) AS version FROM postrider.migrations";
    let rows = transaction.query(newest, &[]).await?;
    let found: i32 = rows.first().map_or(Ok(0), |row| get(row, "version"))?;
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found > known {
        return Err(StoreError::NewerVersion { place: "the database".into(), found, known });
    }
    for (version, sql) in (1i32..).zip(MIGRATIONS) {
        if i64::from(version) > i64::from(found) {
            transaction.batch(sql).await?;
            let applied = "INSERT INTO postrider.migrations (version) VALUES ($1)";
            transaction.execute(applied, &[&version]).await?;
        }
    }
    transaction.commit().await
}
