//! Writing tenants.

use std::path::Path;

use rusqlite::{Transaction, params};

use super::configuration::TENANT;
use crate::embedded::files::At;
use crate::embedded::files::rows;
use crate::error::StoreError;
use crate::records::Tenant;

/// Writes a tenant, unless there is one with that id. Returns whether it did.
pub(in crate::embedded) fn insert_tenant(
    transaction: &Transaction<'_>,
    path: &Path,
    tenant: &Tenant,
) -> Result<bool, StoreError> {
    let details = details_text(tenant, path)?;
    let insert = "INSERT INTO tenants (id, name, created_at, crc, details)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
    let values = params![
        tenant.id.as_str(),
        tenant.name,
        tenant.created_at.as_unix_ms(),
        rows::tenant_sum(tenant, details.as_deref()),
        details,
    ];
    Ok(transaction.execute(insert, values).at(path)? > 0)
}

fn details_text(tenant: &Tenant, path: &Path) -> Result<Option<String>, StoreError> {
    if tenant.details.is_empty() {
        return Ok(None);
    }
    rows::to_json(&tenant.details).at(path).map(Some)
}

/// Replaces a tenant's name and details; `false` where it does not exist.
pub(super) fn update_tenant(
    transaction: &Transaction<'_>,
    path: &Path,
    tenant: &Tenant,
) -> Result<bool, StoreError> {
    let sql = format!("{TENANT} WHERE id = ?1");
    let make = rows::tenant_of;
    let found = rows::one(transaction, path, "tenants", &sql, [tenant.id.as_str()], make)?;
    let Some(found) = found else { return Ok(false) };
    let tenant = Tenant { created_at: found.created_at, ..tenant.clone() };
    let details = details_text(&tenant, path)?;
    let update = "UPDATE tenants SET name = ?2, crc = ?3, details = ?4 WHERE id = ?1";
    let crc = rows::tenant_sum(&tenant, details.as_deref());
    let values = params![tenant.id.as_str(), tenant.name, crc, details];
    Ok(transaction.execute(update, values).at(path)? > 0)
}
