//! Event types, and what is done with events that do not fit them.

use hyper::Method;
use serde::Serialize;

use super::{get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    Catalogue, CatalogueChange, EventType, EventTypeChange, EventTypeScope, NewEventType,
};

/// Event types, and what is done with events that do not fit them.
#[derive(Clone, Copy)]
pub struct EventTypes<'a> {
    pub(crate) client: &'a Client,
}

#[derive(Serialize)]
struct Scope {
    scope: Option<EventTypeScope>,
}

impl EventTypes<'_> {
    /// Adds an event type to the catalogue.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, new: &NewEventType) -> Result<EventType, Error> {
        post_json(self.client, &["event-types"], new).await
    }

    /// One event type by its name: by default the tenant's own, or else the server's.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, name: &str, scope: Option<EventTypeScope>) -> Result<EventType, Error> {
        let call = Call::get(path(&["event-types", name])?).fields(&Scope { scope });
        self.client.call(&call).await
    }

    /// Event types by name: by default the tenant's own and the server's.
    pub fn list(&self, scope: Option<EventTypeScope>) -> List<EventType> {
        let call = path(&["event-types"]).map(|path| Call::get(path).fields(&Scope { scope }));
        List::new(self.client, call)
    }

    /// Changes some fields.
    ///
    /// # Errors
    /// As every call.
    pub async fn update(
        &self,
        name: &str,
        scope: Option<EventTypeScope>,
        change: &EventTypeChange,
    ) -> Result<EventType, Error> {
        let call = Call::new(Method::PATCH, path(&["event-types", name])?);
        self.client.call(&call.fields(&Scope { scope }).json(change)?).await
    }

    /// Deletes an event type. Its events and the subscriptions to it stay.
    ///
    /// # Errors
    /// As every call.
    pub async fn delete(&self, name: &str, scope: Option<EventTypeScope>) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, path(&["event-types", name])?);
        self.client.call(&call.fields(&Scope { scope })).await
    }

    /// What is done with events of unknown types, and with those that do not fit their schema.
    ///
    /// # Errors
    /// As every call.
    pub async fn catalogue(&self) -> Result<Catalogue, Error> {
        get(self.client, &["catalogue"]).await
    }

    /// Changes what is done with events that do not fit.
    ///
    /// # Errors
    /// As every call.
    pub async fn update_catalogue(&self, change: &CatalogueChange) -> Result<Catalogue, Error> {
        let call = Call::new(Method::PATCH, path(&["catalogue"])?).json(change)?;
        self.client.call(&call).await
    }
}
