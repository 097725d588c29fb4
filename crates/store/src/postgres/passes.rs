//! Passes of the PostgreSQL store.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::error::corrupt;
use super::paging::{cursor, limit, page, place};
use super::pool::Scope;
use super::rows::{get, ms, time, time_opt, unsigned};
use crate::error::StoreError;
use crate::passes::{Pass, PassKind, PassLimits, PassPut, Passes};
use crate::records::{Page, PageRequest};

/// Held while a pass is counted and stored, so that two nodes cannot exceed a limit together.
const PASS_LOCK: i64 = 0x706f_7374_0011;
/// The most passes that are removed in one transaction.
const CHUNK: i64 = 2_000;

#[async_trait]
impl Passes for PostgresStore {
    async fn put_pass(&self, pass: &Pass, limits: PassLimits) -> Result<PassPut, StoreError> {
        let mut transaction = self.core.pool.begin(Scope::All).await?;
        transaction.query("SELECT pg_advisory_xact_lock($1)", &[&PASS_LOCK]).await?;
        let (kind, expires_at) = (pass.kind.number(), pass.expires_at.as_unix_ms());
        let longer = "UPDATE postrider.passes SET expires_at = greatest(expires_at, $2) \
                      WHERE id = $1";
        if transaction.execute(longer, &[&pass.id, &expires_at]).await? > 0 {
            transaction.commit().await?;
            return Ok(PassPut::Stored);
        }
        let count = "SELECT count(*) AS total, count(*) FILTER (WHERE owner = $2) AS own \
                     FROM postrider.passes WHERE kind = $1";
        let rows = transaction.query(count, &[&kind, &pass.owner]).await?;
        let number = |column| rows.first().map_or(Ok(0), |row| get(row, column)).map(unsigned);
        let (total, own) = (number("total")?, number("own")?);
        let excess = own.saturating_add(1).saturating_sub(limits.of_owner);
        if total.saturating_sub(excess) >= limits.in_total {
            transaction.rollback().await?;
            return Ok(PassPut::Full);
        }
        let excess = i64::try_from(excess).unwrap_or(i64::MAX);
        let oldest = "DELETE FROM postrider.passes WHERE id IN (SELECT id FROM postrider.passes \
                      WHERE kind = $1 AND owner = $2 ORDER BY created_at, id LIMIT $3)";
        transaction.execute(oldest, &[&kind, &pass.owner, &excess]).await?;
        let insert = "INSERT INTO postrider.passes (id, kind, owner, tenant, created_at, \
                      expires_at, used_at, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
        let params: [&(dyn ToSql + Sync); 8] = [
            &pass.id,
            &kind,
            &pass.owner,
            &pass.tenant.as_ref().map(TenantId::as_str),
            &pass.created_at.as_unix_ms(),
            &expires_at,
            &ms(pass.used_at),
            &pass.body,
        ];
        transaction.execute(insert, &params).await?;
        transaction.commit().await?;
        Ok(PassPut::Stored)
    }

    async fn pass(&self, id: &str) -> Result<Option<Pass>, StoreError> {
        if id.contains('\0') {
            return Ok(None);
        }
        let sql = "SELECT * FROM postrider.passes WHERE id = $1";
        self.core.pool.query_opt(Scope::All, sql, &[&id]).await?.as_ref().map(pass).transpose()
    }

    async fn passes(
        &self,
        tenant: &TenantId,
        kind: PassKind,
        request: &PageRequest,
    ) -> Result<Page<Pass>, StoreError> {
        let before: Option<(i64, String)> = place(request)?;
        let (at, id) = before.map_or((None, None), |(at, id)| (Some(at), Some(id)));
        let sql = "SELECT * FROM postrider.passes WHERE tenant = $1 AND kind = $2 \
                   AND ($3::bigint IS NULL OR (created_at, id) < ($3, $4)) \
                   ORDER BY created_at DESC, id DESC LIMIT $5";
        let params: [&(dyn ToSql + Sync); 5] =
            [&tenant.as_str(), &kind.number(), &at, &id, &limit(request)];
        let rows = self.core.lists.query(Scope::Tenant(tenant), sql, &params).await?;
        page(&rows, request, pass, |pass, _| Ok(cursor(pass.created_at, &pass.id)))
    }

    async fn use_pass(
        &self,
        id: &str,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, StoreError> {
        let sql = "UPDATE postrider.passes SET used_at = $2, \
                   expires_at = greatest(expires_at, $3) \
                   WHERE id = $1 AND used_at IS NULL RETURNING 1";
        let params: [&(dyn ToSql + Sync); 3] = [&id, &now.as_unix_ms(), &keep_until.as_unix_ms()];
        Ok(!self.core.pool.query(Scope::All, sql, &params).await?.is_empty())
    }

    async fn delete_pass(&self, id: &str) -> Result<bool, StoreError> {
        let sql = "DELETE FROM postrider.passes WHERE id = $1 RETURNING 1";
        Ok(!self.core.pool.query(Scope::All, sql, &[&id]).await?.is_empty())
    }

    async fn prune_passes(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = "DELETE FROM postrider.passes WHERE id IN (SELECT id FROM postrider.passes \
                   WHERE expires_at < $1 LIMIT $2) RETURNING 1";
        self.core.repeat(sql, &[&before.as_unix_ms(), &CHUNK]).await
    }
}

/// Reads a pass from a row.
fn pass(row: &Row) -> Result<Pass, StoreError> {
    let tenant: Option<&str> = get(row, "tenant")?;
    let kind: i16 = get(row, "kind")?;
    Ok(Pass {
        id: get(row, "id")?,
        kind: PassKind::of_number(kind).ok_or_else(|| corrupt("passes", "an unknown kind"))?,
        owner: get(row, "owner")?,
        tenant: tenant.map(|id| id.parse().map_err(|e| corrupt("passes", e))).transpose()?,
        created_at: time(row, "created_at")?,
        expires_at: time(row, "expires_at")?,
        used_at: time_opt(row, "used_at")?,
        body: get(row, "body")?,
    })
}
