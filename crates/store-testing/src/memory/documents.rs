//! Documents.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::limits::PAGE_BYTES_MAX;
use postrider_store::{
    Cursor, Document, DocumentCount, DocumentKind, DocumentOrder, Documents, Expected, Page,
    PageRequest, StoreError,
};

use super::MemoryStore;
use super::state::State;

#[async_trait]
impl Documents for MemoryStore {
    async fn put_document(
        &self,
        document: &Document,
        expected: &Expected,
    ) -> Result<bool, StoreError> {
        let (document, expected) = (document.clone(), expected.clone());
        self.write(move |state| {
            let key = (document.kind, document.tenant.clone(), document.name.clone());
            let is_expected = match (state.documents.get(&key), expected) {
                (Some(there), _) if *there == document => true,
                (None, Expected::Nothing) => true,
                (Some(there), Expected::Body(body)) => there.body == body,
                (Some(_), Expected::Nothing) | (None, Expected::Body(_)) => false,
            };
            if is_expected {
                state.documents.insert(key, document);
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
        let key = (kind, tenant.cloned(), name.to_owned());
        self.read(|state| Ok(state.documents.get(&key).cloned())).await
    }

    async fn documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        order: DocumentOrder,
        page: &PageRequest,
    ) -> Result<Page<Document>, StoreError> {
        self.read(|state| {
            let mut found: Vec<&Document> = state.documents_of(kind, tenant).collect();
            if order == DocumentOrder::Descending {
                found.reverse();
            }
            if let Some(Cursor(after)) = &page.cursor {
                found.retain(|one| match order {
                    DocumentOrder::Ascending => one.name > *after,
                    DocumentOrder::Descending => one.name < *after,
                });
            }
            let (mut items, mut bytes) = (Vec::new(), 0);
            for one in &found {
                bytes += one.body.len();
                if items.len() >= page.limit || (bytes > PAGE_BYTES_MAX && !items.is_empty()) {
                    break;
                }
                items.push((*one).clone());
            }
            let last = items.last().filter(|_| items.len() < found.len());
            let next = last.map(|last: &Document| Cursor(last.name.clone()));
            Ok(Page { items, next })
        })
        .await
    }

    async fn open_documents(&self, kind: DocumentKind) -> Result<Vec<Document>, StoreError> {
        self.read(|state| {
            let open = state.documents.values().filter(|one| one.kind == kind && one.is_open);
            Ok(open.cloned().collect())
        })
        .await
    }

    async fn delete_document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<bool, StoreError> {
        let key = (kind, tenant.cloned(), name.to_owned());
        self.write(move |state| Ok(state.documents.remove(&key).is_some())).await
    }

    async fn count_documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
    ) -> Result<DocumentCount, StoreError> {
        self.read(|state| Ok(count(state.documents_of(kind, tenant)))).await
    }

    async fn count_all_documents(&self, kind: DocumentKind) -> Result<DocumentCount, StoreError> {
        self.read(|state| Ok(count(state.documents.values().filter(|one| one.kind == kind)))).await
    }

    async fn forget_documents(
        &self,
        kind: DocumentKind,
        tenant: &TenantId,
        keep: u64,
    ) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.write(move |state| {
            let ended = state.documents_of(kind, Some(&tenant)).filter(|one| !one.is_open);
            let names: Vec<String> = ended.map(|one| one.name.clone()).collect();
            let keep = usize::try_from(keep).unwrap_or(usize::MAX);
            let removed = names.len().saturating_sub(keep);
            for name in names.into_iter().take(removed) {
                state.documents.remove(&(kind, Some(tenant.clone()), name));
            }
            Ok(u64::try_from(removed).unwrap_or(u64::MAX))
        })
        .await
    }
}

impl State {
    /// The documents of a kind and tenant, by name.
    fn documents_of(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
    ) -> impl Iterator<Item = &Document> {
        self.documents.values().filter(move |one| one.kind == kind && one.tenant.as_ref() == tenant)
    }
}

fn count<'a>(documents: impl Iterator<Item = &'a Document>) -> DocumentCount {
    documents.fold(DocumentCount::default(), |sum, one| DocumentCount {
        count: sum.count + 1,
        open: sum.open + u64::from(one.is_open),
        bytes: sum.bytes + u64::try_from(one.body.len()).unwrap_or(u64::MAX),
    })
}
