//! Destinations: URLs with their circuits.

use serde::Serialize;
use serde_json::json;

use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{Destination, DestinationState, DestinationSummary, Enable, Transition};

/// Destinations: URLs with their circuits.
#[derive(Clone, Copy)]
pub struct Destinations<'a> {
    pub(crate) client: &'a Client,
}

/// Which destinations.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DestinationQuery {
    /// In this state.
    pub state: Option<DestinationState>,
    /// Whose URL has this text in it.
    pub q: Option<String>,
}

impl Destinations<'_> {
    /// Destinations.
    pub fn list(&self, query: &DestinationQuery) -> List<Destination> {
        List::new(self.client, path(&["destinations"]).map(|path| Call::get(path).fields(query)))
    }

    /// How many there are in each state.
    ///
    /// # Errors
    /// As every call.
    pub async fn summary(&self) -> Result<DestinationSummary, Error> {
        get(self.client, &["destinations", "summary"]).await
    }

    /// One destination.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Destination, Error> {
        get(self.client, &["destinations", id]).await
    }

    /// Every change of its state, newest first, with the evidence.
    pub fn timeline(&self, id: &str) -> List<Transition> {
        List::new(self.client, path(&["destinations", id, "timeline"]).map(Call::get))
    }

    /// Enables it: the only way out of frozen.
    ///
    /// # Errors
    /// As every call.
    pub async fn enable(&self, id: &str, why: &Enable) -> Result<Destination, Error> {
        post_json(self.client, &["destinations", id, "enable"], why).await
    }

    /// Stops all attempts until somebody enables it.
    ///
    /// # Errors
    /// As every call.
    pub async fn freeze(&self, id: &str, reason: Option<&str>) -> Result<Destination, Error> {
        let body = json!({ "reason": reason });
        post_json(self.client, &["destinations", id, "freeze"], &body).await
    }
}
