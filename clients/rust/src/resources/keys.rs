//! API keys.

use serde::Serialize;

use super::{delete, get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{Key, KeyCreated, NewKey};

/// API keys, with an admin key.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    pub(crate) client: &'a Client,
}

/// Which keys.
#[derive(Debug, Clone, Default, Serialize)]
pub struct KeyQuery {
    /// Of this tenant.
    pub tenant: Option<String>,
    /// `admin` for admin keys.
    pub scope: Option<String>,
}

impl Keys<'_> {
    /// Creates a key. It is shown this once.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, key: &NewKey) -> Result<KeyCreated, Error> {
        post_json(self.client, &["keys"], key).await
    }

    /// One key, without its secret text.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Key, Error> {
        get(self.client, &["keys", id]).await
    }

    /// Keys.
    pub fn list(&self, query: &KeyQuery) -> List<Key> {
        List::new(self.client, path(&["keys"]).map(|path| Call::get(path).fields(query)))
    }

    /// Revokes a key.
    ///
    /// # Errors
    /// As every call.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        delete(self.client, &["keys", id]).await
    }
}
