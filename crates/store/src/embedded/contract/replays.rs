//! Bulk replay jobs.

use std::path::Path;

use async_trait::async_trait;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{ReplayId, TenantId};
use rusqlite::{Transaction, params};

use super::cursor;
use super::deliveries;
use crate::contract::Replays;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::Needs;
use crate::embedded::files::At;
use crate::embedded::files::rows::{self, AFTER_ALL};
use crate::error::StoreError;
use crate::records::{Page, PageRequest, ReplayJob};

#[async_trait]
impl Replays for EmbeddedStore {
    async fn put_replay(&self, job: &ReplayJob) -> Result<(), StoreError> {
        let mut job = job.clone();
        let put = move |transaction: &Transaction<'_>, path: &Path| {
            let stored = rows::replay(transaction, path, &job.tenant, job.id)?;
            job.outcomes = stored.map(|stored| stored.outcomes).unwrap_or_default();
            rows::put_replay(transaction, &job).at(path)
        };
        self.change(put).await
    }

    async fn replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<Option<ReplayJob>, StoreError> {
        let whose = tenant.clone();
        self.read_one(tenant, Needs::Replays, move |guard| {
            guard.main(|connection, path| rows::replay(connection, path, &whose, id))
        })
        .await
    }

    async fn replays(
        &self,
        tenant: &TenantId,
        page: &PageRequest,
    ) -> Result<Page<ReplayJob>, StoreError> {
        let (whose, page) = (tenant.clone(), page.clone());
        self.read_list(tenant, Needs::Replays, move |guard| {
            let sql = "SELECT id, body, crc FROM replays
                WHERE tenant = ?1 AND (created_at, id) < (?2, ?3)
                ORDER BY created_at DESC, id DESC LIMIT ?4";
            let (at, id) = cursor::before::<ReplayId>(&page)?;
            let id = id.map_or(AFTER_ALL.to_vec(), |id| id.as_bytes().to_vec());
            let limit = cursor::limit(&page);
            let values = params![whose.as_str(), at, id, limit];
            let found = guard.main(|connection, path| {
                rows::all(connection, path, "replays", sql, values, rows::replay_of)
            })?;
            Ok(cursor::page(found, &page, |last| cursor::at(last.created_at, last.id)))
        })
        .await
    }

    async fn running_replays(&self) -> Result<Vec<ReplayJob>, StoreError> {
        // Without a barrier while no job advances: every new replay asks, of whichever tenant.
        if self.queue.unapplied()?.has_replays() {
            self.barrier().await?;
        }
        self.read_now(|guard| {
            guard.main(|connection, path| {
                let sql = "SELECT id, body, crc FROM replays WHERE running = 1";
                rows::all(connection, path, "replays", sql, [], rows::replay_of)
            })
        })
        .await
    }

    async fn replay_candidates(
        &self,
        job: &ReplayJob,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let (of, job) = (job.tenant.clone(), job.clone());
        self.read_list(&of, Needs::Everything, move |guard| {
            deliveries::candidates(guard, &job, limit)
        })
        .await
    }
}
