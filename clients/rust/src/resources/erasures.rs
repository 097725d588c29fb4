//! Erasures of payloads.

use std::time::Duration;

use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::transport::rest;
use crate::types::{Erasure, ErasureState, NewErasure};

/// Between two questions whether an erasure has ended.
const PAUSE: Duration = Duration::from_millis(500);

/// Erasures of payloads.
#[derive(Clone, Copy)]
pub struct Erasures<'a> {
    pub(crate) client: &'a Client,
}

impl Erasures<'_> {
    /// Erases the payload of one event, or of all events of an object. It returns when the work is
    /// recorded.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, what: &NewErasure) -> Result<Erasure, Error> {
        post_json(self.client, &["erasures"], what).await
    }

    /// One erasure with its progress.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Erasure, Error> {
        get(self.client, &["erasures", id]).await
    }

    /// Erasures, newest first.
    pub fn list(&self) -> List<Erasure> {
        List::new(self.client, path(&["erasures"]).map(Call::get))
    }

    /// Waits until the payloads cannot be read any more. Dropping the future ends it.
    ///
    /// # Errors
    /// As every call.
    pub async fn wait_erased(&self, id: &str) -> Result<Erasure, Error> {
        self.wait_until(id, |state| state != ErasureState::Erasing).await
    }

    /// Waits until nothing of the payloads is left in the store's files. The server overwrites those
    /// together for all erasures of some minutes (`erasure.scrub_interval`).
    ///
    /// # Errors
    /// As every call.
    pub async fn wait(&self, id: &str) -> Result<Erasure, Error> {
        self.wait_until(id, |state| state == ErasureState::Finished).await
    }

    async fn wait_until(
        &self,
        id: &str,
        has_ended: impl Fn(ErasureState) -> bool,
    ) -> Result<Erasure, Error> {
        loop {
            let erasure = self.get(id).await?;
            if has_ended(erasure.state) {
                return Ok(erasure);
            }
            rest(PAUSE).await;
        }
    }
}
