//! Counts for quotas.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use rusqlite::params;

use crate::contract::Usages;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Needs;
use crate::embedded::files::At;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::rows;
use crate::error::StoreError;
use crate::records::{ReplayJob, ReplayState, Usage};

#[async_trait]
impl Usages for EmbeddedStore {
    async fn usage(&self, tenant: Option<&TenantId>) -> Result<Usage, StoreError> {
        let whose = tenant.cloned();
        let count = move |guard: &ReadGuard<'_>| {
            guard.main(|connection, path| {
                // Each count reads only an index.
                let sql = "SELECT (SELECT count(*) FROM keys WHERE tenant IS ?1),
                    (SELECT count(*) FROM destinations WHERE tenant = ?1),
                    (SELECT count(*) FROM replays WHERE tenant = ?1),
                    (SELECT count(*) FROM replays WHERE tenant = ?1 AND running = 1)";
                let of_row = |row: &rusqlite::Row<'_>| {
                    let count = |n| row.get::<_, i64>(n).map(i64::unsigned_abs);
                    Ok(Usage {
                        keys: count(0)?,
                        destinations: count(1)?,
                        replays: count(2)?,
                        replays_running: count(3)?,
                    })
                };
                let whose = whose.as_ref().map(TenantId::as_str);
                connection.query_row(sql, [whose], of_row).at(path)
            })
        };
        match tenant {
            // Only the progress of a replay is written by the applier; the rest by changes, which are
            // answered after they are in SQLite.
            Some(tenant) => self.read_one(tenant, Needs::Replays, count).await,
            None => self.read_now(count).await,
        }
    }

    async fn tenant_count(&self) -> Result<u64, StoreError> {
        self.read_now(|guard| {
            guard.main(|connection, path| {
                let sql = "SELECT count(*) FROM tenants";
                let count = connection.query_row(sql, [], |row| row.get::<_, i64>(0)).at(path)?;
                Ok(count.unsigned_abs())
            })
        })
        .await
    }

    async fn forget_replays(&self, tenant: &TenantId, keep: u64) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.change(move |transaction, path| {
            let sql = "SELECT id, body, crc FROM replays WHERE tenant = ?1
                ORDER BY created_at DESC, id DESC";
            let find = rows::replay_of;
            let jobs = rows::all(transaction, path, "replays", sql, [tenant.as_str()], find)?;
            let has_ended = |job: &&ReplayJob| match job.state {
                ReplayState::Running | ReplayState::Paused => false,
                ReplayState::Finished | ReplayState::Cancelled => true,
            };
            let keep = usize::try_from(keep).unwrap_or(usize::MAX);
            let mut forgotten = 0;
            for job in jobs.iter().filter(has_ended).skip(keep) {
                let delete = "DELETE FROM replays WHERE id = ?1 AND tenant = ?2";
                let values = params![job.id.as_bytes().as_slice(), tenant.as_str()];
                transaction.execute(delete, values).at(path)?;
                forgotten += 1;
            }
            Ok(forgotten)
        })
        .await
    }
}
