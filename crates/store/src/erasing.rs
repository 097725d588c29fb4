//! Erasing payloads: the event stays as a tombstone, and its payload is gone from everywhere in the store.

use async_trait::async_trait;
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::time::Timestamp;

use crate::error::StoreError;

/// What became of an event whose payload was to be erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventErasure {
    /// The payload is erased, and so are the response bodies of this many attempts.
    Erased {
        /// Attempts whose response body was not empty.
        attempts: u64,
    },
    /// The payload was erased before. This many attempts were logged since; their bodies are erased now.
    Already {
        /// Attempts whose response body was not empty.
        attempts: u64,
    },
    /// One of its deliveries has not ended: nothing was erased.
    Unfinished,
    /// There is no such event.
    NotFound,
}

/// Erasing payloads.
#[async_trait]
pub trait Erasing: Send + Sync + 'static {
    /// Erases the payload of an event whose deliveries have all ended: `data`, `old`, the digest of the request,
    /// the place of its fault, and the response bodies of all its attempts. The event, its deliveries and its
    /// attempts stay, and so does the ledger. A repeat of the event is a conflict from now on.
    async fn erase_event(
        &self,
        tenant: &TenantId,
        id: &EventId,
        now: Timestamp,
    ) -> Result<EventErasure, StoreError>;
    /// Overwrites what is left of erased payloads in the store's own files. Where nothing was erased since the
    /// last time, it does nothing. Time and space grow with the days that have something to overwrite;
    /// acknowledging goes on meanwhile. On PostgreSQL this does nothing: the server's vacuum decides.
    async fn scrub_erased(&self) -> Result<(), StoreError>;
}
