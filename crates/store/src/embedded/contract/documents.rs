//! Documents.

use std::path::Path;

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use rusqlite::{Connection, Transaction, params};

use super::cursor;
use crate::documents::{Document, DocumentCount, DocumentKind, DocumentOrder, Documents, Expected};
use crate::embedded::EmbeddedStore;
use crate::embedded::files::At;
use crate::embedded::files::rows::{self, Reading};
use crate::error::StoreError;
use crate::records::{Cursor, Page, PageRequest};

/// The columns that [`document_of`] reads. The tenant '' is the server.
pub(in crate::embedded) const DOCUMENT: &str =
    "SELECT name, kind, tenant, open, body, crc FROM documents";

const COUNTS: &str =
    "SELECT count(*), coalesce(sum(open), 0), coalesce(sum(length(body)), 0) FROM documents";

/// The tenant as it is stored.
fn whose(tenant: Option<&TenantId>) -> String {
    tenant.map_or_else(String::new, |tenant| tenant.as_str().to_owned())
}

#[async_trait]
impl Documents for EmbeddedStore {
    async fn put_document(
        &self,
        document: &Document,
        expected: &Expected,
    ) -> Result<bool, StoreError> {
        let (document, expected) = (document.clone(), expected.clone());
        self.change(move |transaction, path| {
            let tenant = whose(document.tenant.as_ref());
            let there = find(transaction, path, document.kind, &tenant, &document.name)?;
            let is_expected = match (&there, expected) {
                (Some(there), _) if *there == document => return Ok(true),
                (None, Expected::Nothing) => true,
                (Some(there), Expected::Body(body)) => there.body == body,
                (Some(_), Expected::Nothing) | (None, Expected::Body(_)) => false,
            };
            if is_expected {
                write(transaction, path, &document)?;
            }
            Ok(is_expected)
        })
        .await
    }

    async fn document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<Option<Document>, StoreError> {
        let (tenant, name) = (whose(tenant), name.to_owned());
        // As for keys: an event does not wait for the applier or for a list.
        self.read_now(move |guard| {
            guard.main(|connection, path| find(connection, path, kind, &tenant, &name))
        })
        .await
    }

    async fn documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        order: DocumentOrder,
        page: &PageRequest,
    ) -> Result<Page<Document>, StoreError> {
        let (owner, tenant, page) = (tenant.cloned(), whose(tenant), page.clone());
        self.list_configured(owner, move |guard| {
            let after = page.cursor.as_ref().map(|cursor| cursor.0.clone());
            let (compared, direction) = match order {
                DocumentOrder::Ascending => (">", "ASC"),
                DocumentOrder::Descending => ("<", "DESC"),
            };
            let sql = format!(
                "{DOCUMENT} WHERE kind = ?1 AND tenant = ?2 AND (?3 IS NULL OR name {compared} ?3)
                ORDER BY name {direction} LIMIT ?4"
            );
            let values = params![kind.number(), tenant, after, cursor::limit(&page)];
            let found = guard.main(|connection, path| {
                rows::all(connection, path, "documents", &sql, values, document_of)
            })?;
            let found = found.into_iter().map(|one| (one.body.len(), one)).collect();
            let bytes = postrider_domain::limits::PAGE_BYTES_MAX;
            Ok(cursor::page_within(found, &page, bytes, |last| Cursor(last.name.clone())))
        })
        .await
    }

    async fn open_documents(&self, kind: DocumentKind) -> Result<Vec<Document>, StoreError> {
        self.read_now(move |guard| {
            guard.main(|connection, path| {
                let sql = format!("{DOCUMENT} WHERE kind = ?1 AND open = 1 ORDER BY tenant, name");
                rows::all(connection, path, "documents", &sql, [kind.number()], document_of)
            })
        })
        .await
    }

    async fn delete_document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<bool, StoreError> {
        let (tenant, name) = (whose(tenant), name.to_owned());
        self.change(move |transaction, path| {
            let delete = "DELETE FROM documents WHERE kind = ?1 AND tenant = ?2 AND name = ?3";
            let values = params![kind.number(), tenant, name];
            Ok(transaction.execute(delete, values).at(path)? > 0)
        })
        .await
    }

    async fn count_documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
    ) -> Result<DocumentCount, StoreError> {
        let tenant = whose(tenant);
        self.read_now(move |guard| {
            guard.main(|connection, path| {
                let sql = format!("{COUNTS} WHERE kind = ?1 AND tenant = ?2");
                connection.query_row(&sql, params![kind.number(), tenant], counts_of).at(path)
            })
        })
        .await
    }

    async fn count_all_documents(&self, kind: DocumentKind) -> Result<DocumentCount, StoreError> {
        self.read_now(move |guard| {
            guard.main(|connection, path| {
                let sql = format!("{COUNTS} WHERE kind = ?1");
                connection.query_row(&sql, [kind.number()], counts_of).at(path)
            })
        })
        .await
    }

    async fn forget_documents(
        &self,
        kind: DocumentKind,
        tenant: &TenantId,
        keep: u64,
    ) -> Result<u64, StoreError> {
        let tenant = whose(Some(tenant));
        self.change(move |transaction, path| {
            let delete = "DELETE FROM documents WHERE rowid IN (SELECT rowid FROM documents
                WHERE kind = ?1 AND tenant = ?2 AND open = 0
                ORDER BY name DESC LIMIT -1 OFFSET ?3)";
            let keep = i64::try_from(keep).unwrap_or(i64::MAX);
            let removed = transaction.execute(delete, params![kind.number(), tenant, keep]);
            Ok(u64::try_from(removed.at(path)?).unwrap_or(u64::MAX))
        })
        .await
    }
}

fn counts_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<DocumentCount> {
    let number = |n| row.get::<_, i64>(n).map(i64::unsigned_abs);
    Ok(DocumentCount { count: number(0)?, open: number(1)?, bytes: number(2)? })
}

fn find(
    connection: &Connection,
    path: &Path,
    kind: DocumentKind,
    tenant: &str,
    name: &str,
) -> Result<Option<Document>, StoreError> {
    let sql = format!("{DOCUMENT} WHERE kind = ?1 AND tenant = ?2 AND name = ?3");
    let values = params![kind.number(), tenant, name];
    rows::one(connection, path, "documents", &sql, values, document_of)
}

/// Creates or replaces a document.
pub(in crate::embedded) fn write(
    transaction: &Transaction<'_>,
    path: &Path,
    document: &Document,
) -> Result<(), StoreError> {
    let put = "INSERT INTO documents (kind, tenant, name, open, body, crc)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (kind, tenant, name)
        DO UPDATE SET open = excluded.open, body = excluded.body, crc = excluded.crc";
    let values = params![
        document.kind.number(),
        whose(document.tenant.as_ref()),
        document.name,
        document.is_open,
        document.body,
        sum(document),
    ];
    transaction.execute(put, values).at(path).map(drop)
}

fn sum(document: &Document) -> u32 {
    rows::sum(&[
        &document.kind.number().to_le_bytes(),
        whose(document.tenant.as_ref()).as_bytes(),
        document.name.as_bytes(),
        &[u8::from(document.is_open)],
        document.body.as_bytes(),
    ])
}

/// A document, of the columns of [`DOCUMENT`].
pub(in crate::embedded) fn document_of(reading: &Reading<'_>) -> Result<Document, StoreError> {
    let damaged = || reading.damaged("a value is not what it should be");
    let tenant: String = reading.get(2)?;
    let tenant = match tenant.as_str() {
        "" => None,
        named => Some(named.parse().map_err(|_| damaged())?),
    };
    let document = Document {
        kind: DocumentKind::of_number(reading.get(1)?).ok_or_else(damaged)?,
        tenant,
        name: reading.get(0)?,
        is_open: reading.get(3)?,
        body: reading.get(4)?,
    };
    reading.check(5, sum(&document))?;
    Ok(document)
}
