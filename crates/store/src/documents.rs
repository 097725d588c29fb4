//! Small records of the configuration that the layers above read and write whole: event types, a tenant's choices
//! about them, and jobs that erase payloads.
//!
//! The store does not know what is in a document. **A document holds no secret.**

use async_trait::async_trait;
use postrider_domain::ids::TenantId;

use crate::error::StoreError;
use crate::records::{Page, PageRequest};

/// A small record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What kind of record it is.
    pub kind: DocumentKind,
    /// The tenant that it belongs to; `None` where it belongs to the server.
    pub tenant: Option<TenantId>,
    /// Its name, unique among those of its kind and tenant. Printable ASCII.
    pub name: String,
    /// Whether there is something left to do with it.
    pub is_open: bool,
    /// Everything else, as JSON.
    pub body: String,
}

/// The kinds of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKind {
    /// A type of the catalogue, by its name.
    EventType,
    /// What a tenant does with events that do not fit its catalogue.
    EventConducts,
    /// A job that erases payloads, by its identifier.
    Erasure,
}

impl DocumentKind {
    /// All of them.
    pub const ALL: [DocumentKind; 3] =
        [DocumentKind::EventType, DocumentKind::EventConducts, DocumentKind::Erasure];

    /// The number that a store writes.
    pub(crate) const fn number(self) -> i16 {
        match self {
            DocumentKind::EventType => 0,
            DocumentKind::EventConducts => 1,
            DocumentKind::Erasure => 2,
        }
    }

    /// The kind with this number.
    pub(crate) fn of_number(number: i16) -> Option<DocumentKind> {
        DocumentKind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// What must be there before a document is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// No document of this kind, tenant and name.
    Nothing,
    /// One with this body.
    Body(String),
}

/// The order of a list of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentOrder {
    /// By name.
    Ascending,
    /// By name, the last one first: for names that begin with a time, the newest first.
    Descending,
}

/// How many documents there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DocumentCount {
    /// Documents.
    pub count: u64,
    /// Of these, the ones that are open.
    pub open: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// Documents.
#[async_trait]
pub trait Documents: Send + Sync + 'static {
    /// Writes a document; `false`, and nothing is written, where what is there is not as expected. A document
    /// that is there exactly as given was written by an earlier try: `true`.
    async fn put_document(
        &self,
        document: &Document,
        expected: &Expected,
    ) -> Result<bool, StoreError>;
    /// One document.
    async fn document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<Option<Document>, StoreError>;
    /// Documents of a tenant, or of the server for `None`, in this order.
    async fn documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        order: DocumentOrder,
        page: &PageRequest,
    ) -> Result<Page<Document>, StoreError>;
    /// Every open document of a kind, of all tenants, by tenant and name.
    async fn open_documents(&self, kind: DocumentKind) -> Result<Vec<Document>, StoreError>;
    /// Removes a document; `false` where there is none.
    async fn delete_document(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<bool, StoreError>;
    /// How many documents of a kind a tenant has, or the server for `None`.
    async fn count_documents(
        &self,
        kind: DocumentKind,
        tenant: Option<&TenantId>,
    ) -> Result<DocumentCount, StoreError>;
    /// How many documents of a kind there are, of all tenants and of the server.
    async fn count_all_documents(&self, kind: DocumentKind) -> Result<DocumentCount, StoreError>;
    /// Removes a tenant's documents that are not open, but for the last `keep` of them by name. Returns how many
    /// were removed.
    async fn forget_documents(
        &self,
        kind: DocumentKind,
        tenant: &TenantId,
        keep: u64,
    ) -> Result<u64, StoreError>;
}
