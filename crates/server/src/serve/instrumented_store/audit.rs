//! The audit log, passed through.

use async_trait::async_trait;
use postrider_domain::time::Timestamp;
use postrider_store::{Audit, AuditEntry, AuditFilter, Page, PageRequest, StoreError};

use super::InstrumentedStore;

#[async_trait]
impl Audit for InstrumentedStore {
    async fn put_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        self.store.put_audit(entry).await
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        self.store.audit(filter, page).await
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        most: u64,
        refused_most: u64,
    ) -> Result<u64, StoreError> {
        self.store.prune_audit(before, most, refused_most).await
    }
}
