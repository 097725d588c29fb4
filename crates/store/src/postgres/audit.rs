//! The audit log.

use async_trait::async_trait;
use postrider_domain::ids::{AuditId, TenantId};
use postrider_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::paging::{limit, page, single};
use super::pool::Scope;
use super::rows::{get, json, to_json, uuid};
use crate::audit::{Audit, AuditEntry, AuditFilter, first_at};
use crate::error::StoreError;
use crate::records::{Cursor, Page, PageRequest};

/// Entries that are removed in one transaction.
const CHUNK: i64 = 2_000;

const PUT: &str = "INSERT INTO postrider.audit \
         (id, tenant, actor, action, target, refused, record) VALUES ($1, $2, $3, $4, $5, $6, $7) \
     ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, actor = excluded.actor, \
         action = excluded.action, target = excluded.target, refused = excluded.refused, \
         record = excluded.record";

#[async_trait]
impl Audit for PostgresStore {
    async fn put_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        let record = to_json(entry)?;
        let params: [&(dyn ToSql + Sync); 7] = [
            &uuid(entry.id.as_bytes()),
            &entry.tenant.as_ref().map(TenantId::as_str),
            &entry.actor.id,
            &entry.action,
            &entry.target,
            &entry.is_refused(),
            &record,
        ];
        self.core.pool.query(Scope::All, PUT, &params).await?;
        Ok(())
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        request: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let below: Option<AuditId> = single(request)?;
        let (low, high) = filter.bounds(below);
        let (low, high, most) = (Uuid::from_bytes(low), Uuid::from_bytes(high), limit(request));
        let tenant = filter.tenant.as_ref().map(TenantId::as_str);
        let mut sql =
            "SELECT id, record FROM postrider.audit WHERE id >= $1 AND id < $2".to_owned();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&low, &high, &most];
        let given: [(&str, Option<&(dyn ToSql + Sync)>); 4] = [
            ("tenant", tenant.as_ref().map(|value| value as &(dyn ToSql + Sync))),
            ("actor", filter.actor.as_ref().map(|value| value as &(dyn ToSql + Sync))),
            ("action", filter.action.as_ref().map(|value| value as &(dyn ToSql + Sync))),
            ("target", filter.target.as_ref().map(|value| value as &(dyn ToSql + Sync))),
        ];
        for (column, value) in given.iter().filter_map(|(column, value)| Some((column, (*value)?)))
        {
            params.push(value);
            sql.push_str(&format!(" AND {column} = ${}", params.len()));
        }
        sql.push_str(" ORDER BY id DESC LIMIT $3");
        let scope = filter.tenant.as_ref().map_or(Scope::All, Scope::Tenant);
        let rows = self.core.lists.query(scope, &sql, &params).await?;
        page(&rows, request, entry, |entry, _| Ok(Cursor(entry.id.to_string())))
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        most: u64,
        refused_most: u64,
    ) -> Result<u64, StoreError> {
        let core = &self.core;
        let first = Uuid::from_bytes(first_at(before));
        let old = "DELETE FROM postrider.audit WHERE id IN (SELECT id FROM postrider.audit \
                   WHERE id < $1 LIMIT $2) RETURNING 1";
        let mut removed = core.repeat(old, &[&first, &CHUNK]).await?;
        for (only, most) in [("", most), ("AND refused", refused_most)] {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let crowded = format!(
                "SELECT tenant FROM postrider.audit WHERE true {only} GROUP BY tenant \
                 HAVING count(*) > $1"
            );
            for row in &core.vital.query(Scope::All, &crowded, &[&most]).await? {
                let tenant: Option<&str> = get(row, "tenant")?;
                let excess = format!(
                    "DELETE FROM postrider.audit WHERE id IN (SELECT id FROM postrider.audit \
                     WHERE tenant IS NOT DISTINCT FROM $1 {only} ORDER BY id DESC \
                     OFFSET $2 LIMIT $3) RETURNING 1"
                );
                removed += core.repeat(&excess, &[&tenant, &most, &CHUNK]).await?;
            }
        }
        Ok(removed)
    }
}

/// Reads an entry.
pub(super) fn entry(row: &Row) -> Result<AuditEntry, StoreError> {
    json(row, "record")
}
