//! Tenants.

use hyper::Method;

use super::{delete, get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{NewTenant, Tenant, TenantChange};

/// Tenants, with an admin key.
#[derive(Clone, Copy)]
pub struct Tenants<'a> {
    pub(crate) client: &'a Client,
}

impl Tenants<'_> {
    /// Creates a tenant.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, tenant: &NewTenant) -> Result<Tenant, Error> {
        post_json(self.client, &["tenants"], tenant).await
    }

    /// One tenant.
    ///
    /// # Errors
    /// As every call.
    pub async fn get(&self, id: &str) -> Result<Tenant, Error> {
        get(self.client, &["tenants", id]).await
    }

    /// All tenants.
    pub fn list(&self) -> List<Tenant> {
        List::new(self.client, path(&["tenants"]).map(Call::get))
    }

    /// Changes some fields.
    ///
    /// # Errors
    /// As every call.
    pub async fn update(&self, id: &str, change: &TenantChange) -> Result<Tenant, Error> {
        let call = Call::new(Method::PATCH, path(&["tenants", id])?).json(change)?;
        self.client.call(&call).await
    }

    /// Deletes a tenant that has no subscriptions.
    ///
    /// # Errors
    /// As every call.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        delete(self.client, &["tenants", id]).await
    }
}
