//! Counts for quotas.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::pool::Scope;
use super::rows::{get, unsigned};
use crate::contract::Usages;
use crate::error::StoreError;
use crate::records::Usage;

#[async_trait]
impl Usages for PostgresStore {
    async fn usage(&self, tenant: Option<&TenantId>) -> Result<Usage, StoreError> {
        let sql = "SELECT \
            (SELECT count(*) FROM postrider.keys WHERE tenant IS NOT DISTINCT FROM $1::text) AS keys, \
            (SELECT count(*) FROM postrider.destinations WHERE tenant = $1) AS destinations, \
            (SELECT count(*) FROM postrider.replays WHERE tenant = $1) AS replays, \
            (SELECT count(*) FROM postrider.replays WHERE tenant = $1 AND state = 0) AS running";
        let name = tenant.map(TenantId::as_str);
        let scope = tenant.map_or(Scope::All, Scope::Tenant);
        let row = self.core.pool.query_opt(scope, sql, &[&name]).await?;
        let Some(row) = row else { return Ok(Usage::default()) };
        Ok(Usage {
            keys: unsigned(get(&row, "keys")?),
            destinations: unsigned(get(&row, "destinations")?),
            replays: unsigned(get(&row, "replays")?),
            replays_running: unsigned(get(&row, "running")?),
        })
    }

    async fn tenant_count(&self) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) AS tenants FROM postrider.tenants";
        let row = self.core.pool.query_opt(Scope::All, sql, &[]).await?;
        row.as_ref().map_or(Ok(0), |row| Ok(unsigned(get(row, "tenants")?)))
    }

    async fn forget_replays(&self, tenant: &TenantId, keep: u64) -> Result<u64, StoreError> {
        // Only jobs that are finished (2) or cancelled (3).
        let sql = "WITH gone AS (DELETE FROM postrider.replays WHERE tenant = $1 AND id IN \
                   (SELECT id FROM postrider.replays WHERE tenant = $1 AND state >= 2 \
                    ORDER BY created_at DESC, id DESC OFFSET $2) RETURNING id), \
                   outcomes AS (DELETE FROM postrider.replay_outcomes AS o USING gone \
                    WHERE o.tenant = $1 AND o.replay = gone.id) SELECT 1 FROM gone";
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &keep];
        let rows = self.core.pool.query(Scope::Tenant(tenant), sql, &params).await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }
}
