//! Deliveries: one event owed to one subscription.

use jiff::Timestamp;
use serde::Serialize;

use super::{get, post};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    Attempt, DeadLetters, Delivery, DeliveryDetail, DeliveryState, Explanation, RetriesDue,
    SentRequest,
};

/// Deliveries: one event owed to one subscription.
#[derive(Clone, Copy)]
pub struct Deliveries<'a> {
    pub(crate) client: &'a Client,
}

/// Which deliveries.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeliveryQuery {
    /// In this state.
    pub state: Option<DeliveryState>,
    /// To this destination.
    pub destination: Option<String>,
    /// Of this subscription.
    pub subscription: Option<String>,
    /// Of this event.
    pub event: Option<String>,
    /// Of events of this type.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Of events of this object.
    pub object: Option<String>,
    /// Accepted at this time or later.
    pub since: Option<Timestamp>,
    /// Accepted before this time.
    pub until: Option<Timestamp>,
}

impl Deliveries<'_> {
    /// Deliveries, newest first.
    pub fn list(&self, query: &DeliveryQuery) -> List<Delivery> {
        List::new(self.client, path(&["deliveries"]).map(|path| Call::get(path).fields(query)))
    }

    /// How many waiting deliveries fall due in each of the next 48 hours.
    ///
    /// # Errors
    /// As every call.
    pub async fn due(&self) -> Result<RetriesDue, Error> {
        get(self.client, &["deliveries", "due"]).await
    }

    /// Dead deliveries by destination and reason, at most `limit` groups, the largest first; 50 for
    /// `None`.
    ///
    /// # Errors
    /// As every call.
    pub async fn dead(&self, limit: Option<u32>) -> Result<DeadLetters, Error> {
        let call = Call::get(path(&["deliveries", "dead"])?);
        let call = match limit {
            Some(limit) => call.query("limit", limit.to_string()),
            None => call,
        };
        self.client.call(&call).await
    }

    /// One delivery with its first attempts; see [`Deliveries::attempts`] for all of them.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<DeliveryDetail, Error> {
        get(self.client, &["deliveries", id]).await
    }

    /// The attempts, oldest first.
    pub fn attempts(&self, id: &str) -> List<Attempt> {
        List::new(self.client, path(&["deliveries", id, "attempts"]).map(Call::get))
    }

    /// What was sent to the receiver in an attempt, made again from the event. Its secrets are
    /// masked.
    ///
    /// # Errors
    /// As every call.
    pub async fn request(&self, id: &str, attempt: u32) -> Result<SentRequest, Error> {
        let number = attempt.to_string();
        get(self.client, &["deliveries", id, "attempts", &number, "request"]).await
    }

    /// Where it stands, why, what happens next, and what would help.
    ///
    /// # Errors
    /// As every call.
    pub async fn explain(&self, id: &str) -> Result<Explanation, Error> {
        get(self.client, &["deliveries", id, "explain"]).await
    }

    /// Attempts a waiting delivery now, without waiting for its slot.
    ///
    /// # Errors
    /// As every call.
    pub async fn retry(&self, id: &str) -> Result<Delivery, Error> {
        post(self.client, &["deliveries", id, "retry"]).await
    }

    /// Sends a delivery that has ended once more.
    ///
    /// # Errors
    /// As every call.
    pub async fn replay(&self, id: &str) -> Result<Delivery, Error> {
        post(self.client, &["deliveries", id, "replay"]).await
    }

    /// Ends a delivery that has not ended.
    ///
    /// # Errors
    /// As every call.
    pub async fn cancel(&self, id: &str) -> Result<Delivery, Error> {
        post(self.client, &["deliveries", id, "cancel"]).await
    }
}
