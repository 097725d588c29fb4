//! Documents.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::error::corrupt;
use super::paging::limit;
use super::pool::Scope;
use super::rows::{get, unsigned};
use crate::documents::{Document, DocumentCount, DocumentKind, DocumentOrder, Documents, Expected};
use crate::error::StoreError;
use crate::records::{Cursor, Page, PageRequest};

const COUNTS: &str = "SELECT count(*) AS n, count(*) FILTER (WHERE open) AS open, \
     coalesce(sum(octet_length(body)), 0)::bigint AS bytes FROM postrider.documents";

/// The tenant as it is stored: '' is the server.
pub(super) fn whose(tenant: Option<&TenantId>) -> &str {
    tenant.map_or("", TenantId::as_str)
}

/// A text that PostgreSQL cannot store is the name of nothing.
fn is_name(text: &str) -> bool {
    !text.contains('\0')
}

#[async_trait]
impl Documents for PostgresStore {
    async fn put_document(
        &self,
        document: &Document,
        expected: &Expected,
    ) -> Result<bool, StoreError> {
        let Document { kind, tenant, name, is_open, body } = document;
        let (kind, tenant) = (kind.number(), whose(tenant.as_ref()));
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&kind, &tenant, name, is_open, body];
        let sql = match expected {
            Expected::Nothing => {
                "INSERT INTO postrider.documents AS d (kind, tenant, name, open, body) \
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kind, tenant, name) DO UPDATE \
                 SET body = d.body WHERE d.body = $5 AND d.open = $4 RETURNING 1"
            }
            Expected::Body(before) => {
                params.push(before);
                "UPDATE postrider.documents SET open = $4, body = $5 WHERE kind = $1 \
                 AND tenant = $2 AND name = $3 AND (body = $6 OR (body = $5 AND open = $4)) \
                 RETURNING 1"
            }
        };
        Ok(!self.core.pool.query(Scope::All, sql, &params).await?.is_empty())
    }

    async fn document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<Option<Document>, StoreError> {
        if !is_name(name) {
            return Ok(None);
        }
        let sql = "SELECT * FROM postrider.documents \
                   WHERE kind = $1 AND tenant = $2 AND name = $3";
        let params: [&(dyn ToSql + Sync); 3] = [&kind.number(), &whose(tenant), &name];
        let row = self.core.pool.query_opt(Scope::All, sql, &params).await?;
        row.as_ref().map(document).transpose()
    }

    async fn documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        order: DocumentOrder,
        request: &PageRequest,
    ) -> Result<Page<Document>, StoreError> {
        let after = request.cursor.as_ref().map(|cursor| cursor.0.as_str());
        if after.is_some_and(|after| !is_name(after)) {
            return Err(StoreError::UnknownCursor);
        }
        let sql = match order {
            DocumentOrder::Ascending => {
                "SELECT * FROM postrider.documents WHERE kind = $1 AND tenant = $2 \
                 AND ($3::text IS NULL OR name > $3) ORDER BY name LIMIT $4"
            }
            DocumentOrder::Descending => {
                "SELECT * FROM postrider.documents WHERE kind = $1 AND tenant = $2 \
                 AND ($3::text IS NULL OR name < $3) ORDER BY name DESC LIMIT $4"
            }
        };
        let params: [&(dyn ToSql + Sync); 4] =
            [&kind.number(), &whose(tenant), &after, &limit(request)];
        let rows = match tenant {
            Some(tenant) => self.core.lists.query(Scope::Tenant(tenant), sql, &params).await?,
            None => self.core.pool.query(Scope::All, sql, &params).await?,
        };
        let found: Vec<Document> = rows.iter().map(document).collect::<Result<_, _>>()?;
        Ok(page_of(found, request))
    }

    async fn open_documents(&self, kind: DocumentKind) -> Result<Vec<Document>, StoreError> {
        let sql = "SELECT * FROM postrider.documents WHERE kind = $1 AND open \
                   ORDER BY tenant, name";
        let rows = self.core.pool.query(Scope::All, sql, &[&kind.number()]).await?;
        rows.iter().map(document).collect()
    }

    async fn delete_document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<bool, StoreError> {
        if !is_name(name) {
            return Ok(false);
        }
        let sql = "DELETE FROM postrider.documents \
                   WHERE kind = $1 AND tenant = $2 AND name = $3 RETURNING 1";
        let params: [&(dyn ToSql + Sync); 3] = [&kind.number(), &whose(tenant), &name];
        Ok(!self.core.pool.query(Scope::All, sql, &params).await?.is_empty())
    }

    async fn count_documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
    ) -> Result<DocumentCount, StoreError> {
        let sql = format!("{COUNTS} WHERE kind = $1 AND tenant = $2");
        let params: [&(dyn ToSql + Sync); 2] = [&kind.number(), &whose(tenant)];
        let row = self.core.pool.query_opt(Scope::All, &sql, &params).await?;
        row.as_ref().map_or(Ok(DocumentCount::default()), counts)
    }

    async fn count_all_documents(&self, kind: DocumentKind) -> Result<DocumentCount, StoreError> {
        let sql = format!("{COUNTS} WHERE kind = $1");
        let row = self.core.pool.query_opt(Scope::All, &sql, &[&kind.number()]).await?;
        row.as_ref().map_or(Ok(DocumentCount::default()), counts)
    }

    async fn forget_documents(
        &self,
        kind: DocumentKind,
        tenant: &TenantId,
        keep: u64,
    ) -> Result<u64, StoreError> {
        let sql = "DELETE FROM postrider.documents WHERE kind = $1 AND tenant = $2 AND name IN \
                   (SELECT name FROM postrider.documents WHERE kind = $1 AND tenant = $2 \
                    AND NOT open ORDER BY name DESC OFFSET $3) RETURNING 1";
        let keep = i64::try_from(keep).unwrap_or(i64::MAX);
        let params: [&(dyn ToSql + Sync); 3] = [&kind.number(), &tenant.as_str(), &keep];
        let rows = self.core.pool.query(Scope::Tenant(tenant), sql, &params).await?;
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }
}

/// A page of these documents, of which there is one more than asked for where there are more.
fn page_of(found: Vec<Document>, request: &PageRequest) -> Page<Document> {
    let (mut items, mut bytes, mut has_more) = (Vec::new(), 0usize, false);
    for document in found {
        bytes = bytes.saturating_add(document.body.len());
        let is_large = bytes > postrider_domain::limits::PAGE_BYTES_MAX;
        if items.len() >= request.limit || (is_large && !items.is_empty()) {
            has_more = true;
            break;
        }
        items.push(document);
    }
    let last = items.last().filter(|_| has_more);
    let next = last.map(|last: &Document| Cursor(last.name.clone()));
    Page { items, next }
}

fn counts(row: &Row) -> Result<DocumentCount, StoreError> {
    let number = |column| get(row, column).map(unsigned);
    Ok(DocumentCount { count: number("n")?, open: number("open")?, bytes: number("bytes")? })
}

/// Reads a document.
pub(super) fn document(row: &Row) -> Result<Document, StoreError> {
    let (kind, tenant): (i16, &str) = (get(row, "kind")?, get(row, "tenant")?);
    let tenant = match tenant {
        "" => None,
        named => Some(named.parse().map_err(|e| corrupt("documents", e))?),
    };
    Ok(Document {
        kind: DocumentKind::of_number(kind)
            .ok_or_else(|| corrupt("documents", "an unknown kind"))?,
        tenant,
        name: get(row, "name")?,
        is_open: get(row, "open")?,
        body: get(row, "body")?,
    })
}
