//! Subscriptions: who wants to know what, and where.

use std::time::Duration;

use hyper::Method;
use serde::Serialize;
use serde_json::json;

use super::{delete, get, post, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    NewSubscription, Subscription, SubscriptionChange, SubscriptionWithSecret, TestOutcome,
};

/// Subscriptions: who wants to know what, and where.
#[derive(Clone, Copy)]
pub struct Subscriptions<'a> {
    pub(crate) client: &'a Client,
}

/// Which subscriptions.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SubscriptionQuery {
    /// Of this destination.
    pub destination: Option<String>,
    /// With this identifier of the application's own.
    pub uid: Option<String>,
    /// With this text in the name, description, uid, URL or a value of the metadata.
    pub q: Option<String>,
    /// With this pair of the metadata, as `key:value`.
    pub metadata: Option<String>,
}

impl Subscriptions<'_> {
    /// Creates a subscription. Its secret is shown this once. With the `uid` and the fields of one
    /// that exists, the answer is that one, and its secret is empty.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, new: &NewSubscription) -> Result<SubscriptionWithSecret, Error> {
        post_json(self.client, &["subscriptions"], new).await
    }

    /// One subscription.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Subscription, Error> {
        get(self.client, &["subscriptions", id]).await
    }

    /// Subscriptions.
    pub fn list(&self, query: &SubscriptionQuery) -> List<Subscription> {
        List::new(self.client, path(&["subscriptions"]).map(|path| Call::get(path).fields(query)))
    }

    /// Changes some fields.
    ///
    /// # Errors
    /// As every call.
    pub async fn update(
        &self,
        id: &str,
        change: &SubscriptionChange,
    ) -> Result<Subscription, Error> {
        let call = Call::new(Method::PATCH, path(&["subscriptions", id])?).json(change)?;
        self.client.call(&call).await
    }

    /// Deletes a subscription. Its unfinished deliveries are cancelled.
    ///
    /// # Errors
    /// As every call.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        delete(self.client, &["subscriptions", id]).await
    }

    /// Makes a new secret. The one before signs along for `overlap`, by default a day.
    ///
    /// # Errors
    /// As every call.
    pub async fn rotate_secret(
        &self,
        id: &str,
        overlap: Option<Duration>,
    ) -> Result<SubscriptionWithSecret, Error> {
        let body = match overlap {
            Some(overlap) => json!({ "overlap_seconds": overlap.as_secs() }),
            None => json!({}),
        };
        post_json(self.client, &["subscriptions", id, "secret", "rotate"], &body).await
    }

    /// Sends a test event now, and says how it went.
    ///
    /// # Errors
    /// As every call.
    pub async fn test(&self, id: &str) -> Result<TestOutcome, Error> {
        post(self.client, &["subscriptions", id, "test"]).await
    }
}
