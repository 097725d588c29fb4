//! Passes of the embedded store, in SQLite.

use std::path::Path;

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::cursor;
use crate::embedded::EmbeddedStore;
use crate::embedded::files::At;
use crate::embedded::files::rows::{self, Reading};
use crate::error::StoreError;
use crate::passes::{Pass, PassKind, PassLimits, PassPut, Passes};
use crate::records::{Page, PageRequest};

/// The most passes that are removed in one transaction.
const CHUNK: usize = 2_000;

/// The columns that [`pass_of`] reads.
pub(in crate::embedded) const PASS: &str =
    "SELECT id, kind, owner, tenant, created_at, expires_at, used_at, body, crc FROM passes";

#[async_trait]
impl Passes for EmbeddedStore {
    async fn put_pass(&self, pass: &Pass, limits: PassLimits) -> Result<PassPut, StoreError> {
        let pass = pass.clone();
        self.change(move |transaction, path| put(transaction, path, &pass, limits)).await
    }

    async fn pass(&self, id: &str) -> Result<Option<Pass>, StoreError> {
        let id = id.to_owned();
        // As for keys: authentication must not wait for the applier or for a slow list.
        self.read_now(move |guard| guard.main(|connection, path| find(connection, path, &id))).await
    }

    async fn passes(
        &self,
        tenant: &TenantId,
        kind: PassKind,
        page: &PageRequest,
    ) -> Result<Page<Pass>, StoreError> {
        let (tenant, page) = (tenant.clone(), page.clone());
        let place: Option<(Timestamp, String)> = cursor::place(&page)?;
        self.list_configured(Some(tenant.clone()), move |guard| {
            let found = guard.main(|connection, path| {
                let sql = format!(
                    "{PASS} WHERE tenant = ?1 AND kind = ?2
                    AND (?3 IS NULL OR (created_at, id) < (?3, ?4))
                    ORDER BY created_at DESC, id DESC LIMIT ?5"
                );
                let (at, id) = place.map_or((None, None), |(at, id)| (Some(at), Some(id)));
                let at = at.map(|at| at.as_unix_ms());
                let values = params![tenant.as_str(), kind.number(), at, id, cursor::limit(&page)];
                rows::all(connection, path, "passes", &sql, values, pass_of)
            })?;
            Ok(cursor::page(found, &page, |last| cursor::at(last.created_at, &last.id)))
        })
        .await
    }

    async fn use_pass(
        &self,
        id: &str,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.change(move |transaction, path| {
            let unused = find(transaction, path, &id)?.filter(|pass| pass.used_at.is_none());
            let Some(mut pass) = unused else { return Ok(false) };
            pass.used_at = Some(now);
            pass.expires_at = pass.expires_at.max(keep_until);
            change(transaction, path, &pass)?;
            Ok(true)
        })
        .await
    }

    async fn delete_pass(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.change(move |transaction, path| {
            Ok(transaction.execute("DELETE FROM passes WHERE id = ?1", [id]).at(path)? > 0)
        })
        .await
    }

    async fn prune_passes(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let chunk = self.change(move |transaction, path| {
                let sql = "DELETE FROM passes WHERE id IN
                    (SELECT id FROM passes WHERE expires_at < ?1 LIMIT ?2)";
                let most = i64::try_from(CHUNK).unwrap_or(i64::MAX);
                transaction.execute(sql, params![before.as_unix_ms(), most]).at(path)
            });
            let chunk = chunk.await?;
            removed += u64::try_from(chunk).unwrap_or(u64::MAX);
            if chunk < CHUNK {
                return Ok(removed);
            }
        }
    }
}

fn find(connection: &Connection, path: &Path, id: &str) -> Result<Option<Pass>, StoreError> {
    let sql = format!("{PASS} WHERE id = ?1");
    rows::one(connection, path, "passes", &sql, [id], pass_of)
}

fn put(
    transaction: &Transaction<'_>,
    path: &Path,
    pass: &Pass,
    limits: PassLimits,
) -> Result<PassPut, StoreError> {
    if let Some(mut known) = find(transaction, path, &pass.id)? {
        known.expires_at = known.expires_at.max(pass.expires_at);
        change(transaction, path, &known)?;
        return Ok(PassPut::Stored);
    }
    let kind = pass.kind.number();
    let count = |sql: &str, values: &[&dyn rusqlite::ToSql]| -> Result<u64, StoreError> {
        let count: i64 = transaction.query_row(sql, values, |row| row.get(0)).at(path)?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    let total = count("SELECT count(*) FROM passes WHERE kind = ?1", &[&kind])?;
    let own = "SELECT count(*) FROM passes WHERE kind = ?1 AND owner = ?2";
    let own = count(own, &[&kind, &pass.owner])?;
    let excess = own.saturating_add(1).saturating_sub(limits.of_owner);
    if total.saturating_sub(excess) >= limits.in_total {
        return Ok(PassPut::Full);
    }
    if excess > 0 {
        let oldest = "DELETE FROM passes WHERE id IN (SELECT id FROM passes
            WHERE kind = ?1 AND owner = ?2 ORDER BY created_at, id LIMIT ?3)";
        let excess = i64::try_from(excess).unwrap_or(i64::MAX);
        transaction.execute(oldest, params![kind, pass.owner, excess]).at(path)?;
    }
    let insert = "INSERT INTO passes
        (id, kind, owner, tenant, created_at, expires_at, used_at, body, crc)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let values = params![
        pass.id,
        kind,
        pass.owner,
        pass.tenant.as_ref().map(TenantId::as_str),
        pass.created_at.as_unix_ms(),
        pass.expires_at.as_unix_ms(),
        pass.used_at.map(|at| at.as_unix_ms()),
        pass.body,
        rows::pass_sum(pass),
    ];
    transaction.execute(insert, values).at(path)?;
    Ok(PassPut::Stored)
}

/// Writes the times of an existing pass.
fn change(transaction: &Transaction<'_>, path: &Path, pass: &Pass) -> Result<(), StoreError> {
    let update = "UPDATE passes SET expires_at = ?2, used_at = ?3, crc = ?4 WHERE id = ?1";
    let values = params![
        pass.id,
        pass.expires_at.as_unix_ms(),
        pass.used_at.map(|at| at.as_unix_ms()),
        rows::pass_sum(pass),
    ];
    transaction.execute(update, values).at(path)?;
    Ok(())
}

/// Reads a pass from the columns of [`PASS`].
pub(in crate::embedded) fn pass_of(reading: &Reading<'_>) -> Result<Pass, StoreError> {
    let damaged = || reading.damaged("a value is not what it should be");
    let tenant: Option<String> = reading.get(3)?;
    let pass = Pass {
        id: reading.get(0)?,
        kind: PassKind::of_number(reading.get(1)?).ok_or_else(damaged)?,
        owner: reading.get(2)?,
        tenant: tenant.map(|tenant| tenant.parse().map_err(|_| damaged())).transpose()?,
        created_at: reading.time(4)?,
        expires_at: reading.time(5)?,
        used_at: reading.time_or_none(6)?,
        body: reading.get(7)?,
    };
    reading.check(8, rows::pass_sum(&pass))?;
    Ok(pass)
}
