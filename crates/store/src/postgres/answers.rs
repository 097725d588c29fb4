//! Stored answers for repeated requests (idempotency keys), and notes of requests that have begun.

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::StoreState;
use super::configuration::answer;
use super::pool::Scope;
use super::rows::get;
use crate::error::StoreError;
use crate::records::IdempotentAnswer;

/// Answers that are removed in one transaction.
const CHUNK: i64 = 5_000;

/// Replaces a row only under the conditions of [`IdempotentAnswer::gives_way`], and returns the row
/// afterwards. It is one statement, so that no other node can write in between.
const KEEP: &str = "INSERT INTO postrider.answers AS a \
         (tenant, key, request, status, body, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
     ON CONFLICT (tenant, key) DO UPDATE SET (request, status, body, created_at) = ( \
         SELECT CASE WHEN w.it THEN excluded.request ELSE a.request END, \
                CASE WHEN w.it THEN excluded.status ELSE a.status END, \
                CASE WHEN w.it THEN excluded.body ELSE a.body END, \
                CASE WHEN w.it THEN excluded.created_at ELSE a.created_at END \
         FROM (SELECT a.created_at < $7 OR (a.status = 0 AND excluded.status <> 0) AS it) AS w) \
     RETURNING a.*";

const FORGET_OLD: &str = "DELETE FROM postrider.answers WHERE (tenant, key) IN (SELECT tenant, key \
     FROM postrider.answers WHERE created_at < $1 LIMIT $2) RETURNING 1";

const CROWDED: &str = "SELECT tenant FROM postrider.answers GROUP BY tenant \
     HAVING count(*) > $1 OR sum(length(body)) > $2";

const FORGET_EXCESS: &str = "DELETE FROM postrider.answers AS a USING ( \
         SELECT key, created_at FROM (SELECT key, created_at, row_number() OVER newest AS n, \
             sum(length(body)) OVER newest AS bytes FROM postrider.answers WHERE tenant = $1 \
             WINDOW newest AS (ORDER BY created_at DESC, key DESC)) AS ranked \
         WHERE n > $2 OR bytes > $3 LIMIT $4) AS gone \
     WHERE a.tenant = $1 AND a.key = gone.key AND a.created_at = gone.created_at RETURNING 1";

impl StoreState {
    pub(super) async fn keep_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        kept: &IdempotentAnswer,
        since: Timestamp,
    ) -> Result<IdempotentAnswer, StoreError> {
        let params: [&(dyn ToSql + Sync); 7] = [
            &tenant.as_str(),
            &key,
            &&kept.request[..],
            &i32::from(kept.status),
            &kept.body,
            &kept.created_at.as_unix_ms(),
            &since.as_unix_ms(),
        ];
        let row = self.pool.query_opt(Scope::Tenant(tenant), KEEP, &params).await?;
        row.as_ref().map_or(Ok(kept.clone()), answer)
    }

    pub(super) async fn forget_answers(
        &self,
        before: Timestamp,
        most: u64,
        bytes_most: u64,
    ) -> Result<u64, StoreError> {
        let before = before.as_unix_ms();
        let [most, bytes_most] =
            [most, bytes_most].map(|most| i64::try_from(most).unwrap_or(i64::MAX));
        let mut forgotten = self.repeat(FORGET_OLD, &[&before, &CHUNK]).await?;
        let crowded = self.vital.query(Scope::All, CROWDED, &[&most, &bytes_most]).await?;
        for row in &crowded {
            let tenant: &str = get(row, "tenant")?;
            let params: [&(dyn ToSql + Sync); 4] = [&tenant, &most, &bytes_most, &CHUNK];
            forgotten += self.repeat(FORGET_EXCESS, &params).await?;
        }
        Ok(forgotten)
    }

    /// Runs a statement until it changes nothing; returns how many rows it changed.
    pub(super) async fn repeat(
        &self,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, StoreError> {
        let mut all = 0;
        loop {
            let changed = self.vital.query(Scope::All, sql, params).await?.len();
            if changed == 0 {
                return Ok(all);
            }
            all += u64::try_from(changed).unwrap_or(u64::MAX);
        }
    }
}
