//! The calls of the API, by what they are about.

pub(crate) mod deliveries;
pub(crate) mod destinations;
pub(crate) mod erasures;
pub(crate) mod event_types;
pub(crate) mod events;
pub(crate) mod figures;
pub(crate) mod keys;
pub(crate) mod operations;
pub(crate) mod replays;
pub(crate) mod subscriptions;
pub(crate) mod tenants;

use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;

async fn get<T: DeserializeOwned>(client: &Client, words: &[&str]) -> Result<T, Error> {
    client.call(&Call::get(path(words)?)).await
}

async fn post<T: DeserializeOwned>(client: &Client, words: &[&str]) -> Result<T, Error> {
    client.call(&Call::post(path(words)?)).await
}

async fn post_json<T: DeserializeOwned>(
    client: &Client,
    words: &[&str],
    body: &impl Serialize,
) -> Result<T, Error> {
    client.call(&Call::post(path(words)?).json(body)?).await
}

async fn delete(client: &Client, words: &[&str]) -> Result<(), Error> {
    client.call(&Call::new(Method::DELETE, path(words)?)).await
}
