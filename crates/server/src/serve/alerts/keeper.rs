//! Keeps the book of alerts in the store, so that it survives restarts and nodes share it.
//!
//! A change is applied to the newest book and written only if nobody else wrote meanwhile; otherwise
//! it is applied again. **A store that cannot be written does not silence alerts**: then the book in
//! memory goes on, and each node of a cluster tells what it knows itself.

use std::sync::Arc;
use std::time::Duration;

use postrider_domain::alerts::Book;
use postrider_store::{Store, StoreError};

/// The name of the record in the store.
const NAME: &str = "alerts";
/// How often a change is applied again because another node was quicker.
const TRIES: u32 = 10;
/// A store that does not answer within this time is left alone.
const PATIENCE: Duration = Duration::from_secs(5);

/// The book of the alerts, as a copy of the stored one that is ahead of it by changes not written yet.
pub(super) struct Keeper {
    store: Arc<dyn Store>,
    book: Book,
    /// The bytes of the book that the store had at the last read or write; `None` before the first.
    stored: Option<Vec<u8>>,
    /// Whether the store has every change of this copy.
    is_saved: bool,
}

impl Keeper {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Keeper { store, book: Book::default(), stored: None, is_saved: true }
    }

    pub(super) fn book(&self) -> &Book {
        &self.book
    }

    /// Whether a change could not be written yet.
    pub(super) fn is_behind(&self) -> bool {
        !self.is_saved
    }

    /// Reads the book, which another node may have changed.
    pub(super) async fn read(&mut self) -> Result<(), StoreError> {
        let timeout = |_| StoreError::Unavailable("no answer".into());
        let asked = self.store.claimed(NAME);
        self.stored = tokio::time::timeout(PATIENCE, asked).await.map_err(timeout)??;
        self.is_saved = true;
        self.book = match self.stored.as_deref().map(serde_json::from_slice).transpose() {
            Ok(book) => book.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "the stored book of alerts cannot be read: it begins anew");
                Book::default()
            }
        };
        Ok(())
    }

    /// Changes the book. `change` may be called several times.
    pub(super) async fn change<T>(&mut self, change: impl Fn(&mut Book) -> T) -> T {
        for _ in 0..TRIES {
            let mut next = self.book.clone();
            let result = change(&mut next);
            if next == self.book && self.is_saved {
                return result;
            }
            let Ok(bytes) = serde_json::to_vec(&next) else { break };
            let write = self.store.replace_claim(NAME, self.stored.as_deref(), &bytes);
            match tokio::time::timeout(PATIENCE, write).await {
                Ok(Ok(true)) => {
                    (self.book, self.stored, self.is_saved) = (next, Some(bytes), true);
                    return result;
                }
                Ok(Ok(false)) if self.read().await.is_ok() => {}
                Ok(Ok(false)) | Err(_) => break,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "the book of alerts is not written for now");
                    break;
                }
            }
        }
        self.is_saved = false;
        change(&mut self.book)
    }
}
