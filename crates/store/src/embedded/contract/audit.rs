//! The audit log.
//!
//! Every filter has an index: the cost of a page follows the size of the page, not of the log.

use std::path::Path;

use async_trait::async_trait;
use postrider_domain::ids::{AuditId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, ToSql, Transaction, params};

use super::cursor;
use crate::audit::{Audit, AuditEntry, AuditFilter, first_at};
use crate::embedded::EmbeddedStore;
use crate::embedded::files::At;
use crate::embedded::files::rows::{self, Reading};
use crate::error::StoreError;
use crate::records::{Page, PageRequest};

/// Entries that are removed in one transaction.
const CHUNK: usize = 2_000;

/// The columns that [`entry_of`] reads.
pub(in crate::embedded) const ENTRY: &str = "SELECT body, crc FROM audit";

#[async_trait]
impl Audit for EmbeddedStore {
    async fn put_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        let entry = entry.clone();
        self.change_first(move |transaction, path| put(transaction, path, &entry)).await
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let (filter, page) = (filter.clone(), page.clone());
        let below: Option<AuditId> = cursor::single(&page)?;
        self.list_configured(filter.tenant.clone(), move |guard| {
            let found = guard.main(|connection, path| {
                list(connection, path, &filter, below, cursor::limit(&page))
            })?;
            Ok(cursor::page(found, &page, |last| cursor::of(last.id)))
        })
        .await
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        most: u64,
        refused_most: u64,
    ) -> Result<u64, StoreError> {
        let first = first_at(before);
        let old = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE id < ?1 LIMIT ?2)";
        let mut removed = self.remove_audit(old, None, first).await?;
        for (only, most) in [("", most), ("AND refused = 1", refused_most)] {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            // Counting takes long, so it is done outside the applier.
            let crowded = self.read_list_of_all(move |guard| {
                guard.main(|connection, path| crowded(connection, path, only, most))
            });
            for (tenant, last) in crowded.await? {
                let excess = format!(
                    "DELETE FROM audit WHERE id IN (SELECT id FROM audit
                     WHERE tenant IS ?3 {only} AND id <= ?1 LIMIT ?2)"
                );
                removed += self.remove_audit(&excess, Some(tenant), last).await?;
            }
        }
        Ok(u64::try_from(removed).unwrap_or(u64::MAX))
    }
}

impl EmbeddedStore {
    /// Removes the entries that a statement selects, in chunks.
    async fn remove_audit(
        &self,
        sql: &str,
        tenant: Option<Option<String>>,
        bound: [u8; 16],
    ) -> Result<usize, StoreError> {
        let mut removed = 0;
        loop {
            let (sql, tenant) = (sql.to_owned(), tenant.clone());
            let chunk = self.change(move |transaction, path| {
                let most = i64::try_from(CHUNK).unwrap_or(i64::MAX);
                let mut values: Vec<&dyn ToSql> = vec![&bound, &most];
                values.extend(tenant.as_ref().map(|tenant| tenant as &dyn ToSql));
                transaction.execute(&sql, &*values).at(path)
            });
            let chunk = chunk.await?;
            removed += chunk;
            if chunk < CHUNK {
                return Ok(removed);
            }
        }
    }
}

/// A tenant with too many entries, and the newest of its entries that are to be removed.
type Crowded = (Option<String>, [u8; 16]);

/// Tenants with too many entries, each with the newest of its entries that are to be removed.
fn crowded(
    connection: &Connection,
    path: &Path,
    only: &str,
    most: i64,
) -> Result<Vec<Crowded>, StoreError> {
    let sql =
        format!("SELECT tenant FROM audit WHERE true {only} GROUP BY tenant HAVING count(*) > ?1");
    let tenants: Vec<Option<String>> =
        rows::all(connection, path, "audit", &sql, [most], |reading| reading.get(0))?;
    let mut found = Vec::new();
    for tenant in tenants {
        let sql = format!(
            "SELECT id FROM audit WHERE tenant IS ?1 {only} ORDER BY id DESC LIMIT 1 OFFSET ?2"
        );
        let last: Option<[u8; 16]> =
            rows::one(connection, path, "audit", &sql, params![tenant, most], |r| r.get(0))?;
        found.extend(last.map(|last| (tenant, last)));
    }
    Ok(found)
}

fn list(
    connection: &Connection,
    path: &Path,
    filter: &AuditFilter,
    below: Option<AuditId>,
    limit: i64,
) -> Result<Vec<AuditEntry>, StoreError> {
    let (low, high) = filter.bounds(below);
    let tenant = filter.tenant.as_ref().map(TenantId::as_str);
    let AuditFilter { actor, action, target, .. } = filter;
    // Use the index of the most selective filter; the other conditions are checked row by row.
    let index = match (tenant, actor, action, target) {
        (_, _, _, Some(_)) => "INDEXED BY audit_by_target",
        (Some(_), Some(_), _, None) => "INDEXED BY audit_of_actor",
        (None, Some(_), _, None) => "INDEXED BY audit_by_actor",
        (Some(_), None, Some(_), None) => "INDEXED BY audit_of_action",
        (None, None, Some(_), None) => "INDEXED BY audit_by_action",
        (Some(_), None, None, None) => "INDEXED BY audit_of_tenant",
        (None, None, None, None) => "",
    };
    let mut sql = format!("{ENTRY} {index} WHERE id >= ?1 AND id < ?2");
    let mut values: Vec<&dyn ToSql> = vec![&low, &high, &limit];
    let given: [(&str, Option<&dyn ToSql>); 4] = [
        ("tenant", tenant.as_ref().map(|value| value as &dyn ToSql)),
        ("actor", actor.as_ref().map(|value| value as &dyn ToSql)),
        ("action", action.as_ref().map(|value| value as &dyn ToSql)),
        ("target", target.as_ref().map(|value| value as &dyn ToSql)),
    ];
    for (column, value) in given.iter().filter_map(|(column, value)| Some((column, (*value)?))) {
        values.push(value);
        sql.push_str(&format!(" AND {column} = ?{}", values.len()));
    }
    sql.push_str(" ORDER BY id DESC LIMIT ?3");
    rows::all(connection, path, "audit", &sql, &*values, entry_of)
}

/// Reads an entry from the columns `body, crc`.
pub(in crate::embedded) fn entry_of(reading: &Reading<'_>) -> Result<AuditEntry, StoreError> {
    let body: String = reading.get(0)?;
    reading.check(1, crc32fast::hash(body.as_bytes()))?;
    reading.json(&body)
}

/// Writes an entry.
pub(in crate::embedded) fn put(
    transaction: &Transaction<'_>,
    path: &Path,
    entry: &AuditEntry,
) -> Result<(), StoreError> {
    let body = rows::to_json(entry).at(path)?;
    let insert = "INSERT OR REPLACE INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let values = params![
        entry.id.as_bytes().as_slice(),
        entry.tenant.as_ref().map(TenantId::as_str),
        entry.actor.id,
        entry.action,
        entry.target,
        entry.is_refused(),
        body,
        crc32fast::hash(body.as_bytes()),
    ];
    let mut insert = transaction.prepare_cached(insert).at(path)?;
    insert.execute(values).at(path).map(drop)
}
