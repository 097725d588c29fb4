//! Destinations: URLs with their circuits.

use serde::Serialize;
use serde_json::json;

use super::operations::Data;
use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    Destination, DestinationFigures, DestinationState, DestinationStats, DestinationSummary,
    Enable, Transition,
};

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

    /// The figures of at most 100 destinations, in the order of `ids`; all zero for one that does
    /// not exist.
    ///
    /// # Errors
    /// As every call.
    pub async fn figures<I: AsRef<str>>(
        &self,
        ids: &[I],
    ) -> Result<Vec<DestinationFigures>, Error> {
        let ids = ids.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(",");
        let call = Call::get(path(&["destinations", "stats"])?).fields(&json!({ "ids": ids }));
        Ok(self.client.call::<Data<DestinationFigures>>(&call).await?.data)
    }

    /// One destination.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Destination, Error> {
        get(self.client, &["destinations", id]).await
    }

    /// Its attempts by the hour, for the last hours, at most 168; 24 by default.
    ///
    /// # Errors
    /// As every call.
    pub async fn stats(&self, id: &str, hours: Option<u32>) -> Result<DestinationStats, Error> {
        let call = Call::get(path(&["destinations", id, "stats"])?);
        self.client.call(&call.fields(&json!({ "hours": hours }))).await
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
