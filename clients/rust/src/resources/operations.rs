//! The server itself, its alerts and backups, and portal links.

use serde::Deserialize;
use serde_json::json;

use super::{delete, get, post_json};
use crate::call::{Call, path};
use crate::client::Client;
use crate::error::Error;
use crate::list::List;
use crate::types::{
    AlertTarget, AlertTestResult, Backup, NewPortalLink, PortalLink, PortalLinkCreated, Server,
    Setting,
};

/// An answer that has all entries at once.
#[derive(Deserialize)]
pub(super) struct Data<T> {
    pub(super) data: Vec<T>,
}

/// The server itself, with an admin key.
#[derive(Clone, Copy)]
pub struct Operations<'a> {
    pub(crate) client: &'a Client,
}

impl Operations<'_> {
    /// Nodes, lanes, disk and clock.
    ///
    /// # Errors
    /// As every call.
    pub async fn server(&self) -> Result<Server, Error> {
        get(self.client, &["server"]).await
    }

    /// Every setting, and where it comes from. Secrets are masked.
    ///
    /// # Errors
    /// As every call.
    pub async fn settings(&self) -> Result<Vec<Setting>, Error> {
        Ok(get::<Data<Setting>>(self.client, &["config"]).await?.data)
    }

    /// The last backup.
    ///
    /// # Errors
    /// As every call.
    pub async fn backup(&self) -> Result<Backup, Error> {
        get(self.client, &["backup"]).await
    }

    /// Writes a backup to a directory of the server's machine: an absolute path, new or empty.
    ///
    /// # Errors
    /// As every call.
    pub async fn start_backup(&self, to: &str) -> Result<Backup, Error> {
        post_json(self.client, &["backup"], &json!({ "to": to })).await
    }
}

/// Targets of the operator's alerts, with an admin key.
#[derive(Clone, Copy)]
pub struct Alerts<'a> {
    pub(crate) client: &'a Client,
}

impl Alerts<'_> {
    /// The targets, and what each was told.
    ///
    /// # Errors
    /// As every call.
    pub async fn list(&self) -> Result<Vec<AlertTarget>, Error> {
        Ok(get::<Data<AlertTarget>>(self.client, &["alerts"]).await?.data)
    }

    /// Sends a test message to one target, or to all of them, and says how each went.
    ///
    /// # Errors
    /// As every call.
    pub async fn test(&self, target: Option<&str>) -> Result<Vec<AlertTestResult>, Error> {
        let body = json!({ "target": target });
        Ok(post_json::<Data<AlertTestResult>>(self.client, &["alerts", "test"], &body).await?.data)
    }
}

/// Links that open the page for one tenant, once and without a key.
#[derive(Clone, Copy)]
pub struct PortalLinks<'a> {
    pub(crate) client: &'a Client,
}

impl PortalLinks<'_> {
    /// Makes a link. It is shown this once.
    ///
    /// # Errors
    /// As every call.
    pub async fn create(&self, link: &NewPortalLink) -> Result<PortalLinkCreated, Error> {
        post_json(self.client, &["portal-links"], link).await
    }

    /// Links, without the links themselves.
    pub fn list(&self) -> List<PortalLink> {
        List::new(self.client, path(&["portal-links"]).map(Call::get))
    }

    /// Revokes a link. The session that it opened ends too.
    ///
    /// # Errors
    /// As every call.
    pub async fn revoke(&self, id: &str) -> Result<(), Error> {
        delete(self.client, &["portal-links", id]).await
    }
}
