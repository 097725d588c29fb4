//! Documents and erasing, passed on as they are.

use async_trait::async_trait;
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{
    Document, DocumentCount, DocumentKind, DocumentOrder, Documents, Erasing, EventErasure,
    Expected, Page, PageRequest, StoreError,
};

use super::InstrumentedStore;

#[async_trait]
impl Documents for InstrumentedStore {
    async fn put_document(
        &self,
        document: &Document,
        expected: &Expected,
    ) -> Result<bool, StoreError> {
        self.store.put_document(document, expected).await
    }

    async fn document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<Option<Document>, StoreError> {
        self.store.document(kind, tenant, name).await
    }

    async fn documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        order: DocumentOrder,
        page: &PageRequest,
    ) -> Result<Page<Document>, StoreError> {
        self.store.documents(kind, tenant, order, page).await
    }

    async fn open_documents(&self, kind: DocumentKind) -> Result<Vec<Document>, StoreError> {
        self.store.open_documents(kind).await
    }

    async fn delete_document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<bool, StoreError> {
        self.store.delete_document(kind, tenant, name).await
    }

    async fn count_documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
    ) -> Result<DocumentCount, StoreError> {
        self.store.count_documents(kind, tenant).await
    }

    async fn count_all_documents(&self, kind: DocumentKind) -> Result<DocumentCount, StoreError> {
        self.store.count_all_documents(kind).await
    }

    async fn forget_documents(
        &self,
        kind: DocumentKind,
        tenant: &TenantId,
        keep: u64,
    ) -> Result<u64, StoreError> {
        self.store.forget_documents(kind, tenant, keep).await
    }
}

#[async_trait]
impl Erasing for InstrumentedStore {
    async fn erase_event(
        &self,
        tenant: &TenantId,
        id: &EventId,
        now: Timestamp,
    ) -> Result<EventErasure, StoreError> {
        self.store.erase_event(tenant, id, now).await
    }

    async fn scrub_erased(&self) -> Result<(), StoreError> {
        self.store.scrub_erased().await
    }
}
