//! The client: one method for each kind of record that the API has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use serde::de::DeserializeOwned;
use url::Url;

use crate::call::Call;
use crate::error::Error;
use crate::resources::deliveries::Deliveries;
use crate::resources::destinations::Destinations;
use crate::resources::erasures::Erasures;
use crate::resources::event_types::EventTypes;
use crate::resources::events::Events;
use crate::resources::keys::Keys;
use crate::resources::operations::{Alerts, Operations, PortalLinks};
use crate::resources::replays::Replays;
use crate::resources::subscriptions::Subscriptions;
use crate::resources::tenants::Tenants;
use crate::transport::{CallOptions, Transport, bearer};

/// A client of one server with one key. A clone is cheap and shares the connections.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    options: CallOptions,
}

/// How to reach a server, and how patiently.
#[derive(Clone)]
pub struct Builder {
    server: String,
    key: Option<String>,
    tenant: Option<String>,
    user_agent: String,
    timeout: Duration,
    retries: u32,
    retry_wait_max: Duration,
}

impl Builder {
    /// An API key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Builder {
        self.key = Some(key.into());
        self
    }

    /// The tenant to act for, with an admin key; `default` where it is left out.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Builder {
        self.tenant = Some(tenant.into());
        self
    }

    /// The name of the program, for the server's log.
    #[must_use]
    pub fn user_agent(mut self, name: impl Into<String>) -> Builder {
        self.user_agent = name.into();
        self
    }

    /// The time limit of one attempt, until the whole answer has arrived. By default 35 s.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Builder {
        self.timeout = limit;
        self
    }

    /// How many times a failed request is sent again. By default 4.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Builder {
        self.retries = retries;
        self
    }

    /// The longest wait before a repeat. A longer `Retry-After` is not waited for. By default 30 s.
    #[must_use]
    pub fn retry_wait_max(mut self, wait: Duration) -> Builder {
        self.retry_wait_max = wait;
        self
    }

    /// The client. Nothing is sent yet.
    ///
    /// # Errors
    /// Where the URL, the key or the tenant cannot be used.
    pub fn build(self) -> Result<Client, Error> {
        let server = Url::parse(&self.server).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.host().is_some()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        });
        let server = server.ok_or_else(|| {
            let what = "the server must be a URL such as https://hooks.example.com, \
                without credentials, query or fragment";
            Error::Usage(what.to_owned())
        })?;
        let key = self.key.as_deref().map(bearer).transpose()?;
        let options = CallOptions {
            tenant: self.tenant.as_deref().map(|tenant| header("tenant", tenant)).transpose()?,
            timeout: self.timeout,
            retries: self.retries,
            retry_wait_max: self.retry_wait_max,
            idempotency_key: None,
        };
        let transport = Transport::new(server, key, header("user agent", &self.user_agent)?)?;
        Ok(Client { transport: Arc::new(transport), options })
    }
}

fn header(what: &str, text: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(text)
        .map_err(|_| Error::Usage(format!("the {what} has characters that a header cannot have")))
}

impl Client {
    /// A client of the server at this URL, to be completed.
    pub fn builder(server: impl Into<String>) -> Builder {
        Builder {
            server: server.into(),
            key: None,
            tenant: None,
            user_agent: concat!("postrider-rust/", env!("CARGO_PKG_VERSION")).to_owned(),
            timeout: Duration::from_secs(35),
            retries: 4,
            retry_wait_max: Duration::from_secs(30),
        }
    }

    /// A client of the server at this URL with this key.
    ///
    /// # Errors
    /// Where the URL or the key cannot be used.
    pub fn new(server: impl Into<String>, key: impl Into<String>) -> Result<Client, Error> {
        Client::builder(server).key(key).build()
    }

    /// The server's URL.
    pub fn server(&self) -> &Url {
        &self.transport.server
    }

    /// The same client for another tenant, with an admin key. `*` reads lists of all tenants.
    ///
    /// # Errors
    /// Where the name cannot be sent.
    pub fn for_tenant(&self, tenant: &str) -> Result<Client, Error> {
        let mut copy = self.clone();
        copy.options.tenant = Some(header("tenant", tenant)?);
        Ok(copy)
    }

    /// A copy whose changes carry this idempotency key: for one call, and for its repeat after the
    /// program has crashed.
    ///
    /// # Errors
    /// Where the key cannot be sent.
    pub fn with_idempotency_key(&self, key: &str) -> Result<Client, Error> {
        let mut copy = self.clone();
        copy.options.idempotency_key = Some(header("idempotency key", key)?);
        Ok(copy)
    }

    /// A copy that repeats a failed request so many times.
    #[must_use]
    pub fn with_retries(&self, retries: u32) -> Client {
        let mut copy = self.clone();
        copy.options.retries = retries;
        copy
    }

    /// A copy with another time limit for an attempt.
    #[must_use]
    pub fn with_timeout(&self, limit: Duration) -> Client {
        let mut copy = self.clone();
        copy.options.timeout = limit;
        copy
    }

    /// A copy without an idempotency key of the caller's own, for calls of several requests.
    pub(crate) fn unkeyed(&self) -> Client {
        let mut copy = self.clone();
        copy.options.idempotency_key = None;
        copy
    }

    /// Events: what happened.
    pub fn events(&self) -> Events<'_> {
        Events { client: self }
    }

    /// Subscriptions: who wants to know what, and where.
    pub fn subscriptions(&self) -> Subscriptions<'_> {
        Subscriptions { client: self }
    }

    /// Deliveries: one event owed to one subscription.
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries { client: self }
    }

    /// Destinations: URLs with their circuits.
    pub fn destinations(&self) -> Destinations<'_> {
        Destinations { client: self }
    }

    /// Bulk replays.
    pub fn replays(&self) -> Replays<'_> {
        Replays { client: self }
    }

    /// Event types, and what is done with events that do not fit them.
    pub fn event_types(&self) -> EventTypes<'_> {
        EventTypes { client: self }
    }

    /// Erasures of payloads.
    pub fn erasures(&self) -> Erasures<'_> {
        Erasures { client: self }
    }

    /// Links that open the page for one tenant, once and without a key.
    pub fn portal_links(&self) -> PortalLinks<'_> {
        PortalLinks { client: self }
    }

    /// Targets of the operator's alerts, with an admin key.
    pub fn alerts(&self) -> Alerts<'_> {
        Alerts { client: self }
    }

    /// The server itself, with an admin key.
    pub fn operations(&self) -> Operations<'_> {
        Operations { client: self }
    }

    /// Tenants, with an admin key.
    pub fn tenants(&self) -> Tenants<'_> {
        Tenants { client: self }
    }

    /// API keys, with an admin key.
    pub fn keys(&self) -> Keys<'_> {
        Keys { client: self }
    }

    /// Sends any call of the API, for those that have no method here. An answer without a body is
    /// JSON's null.
    ///
    /// # Errors
    /// As every call.
    pub async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Error> {
        let body = self.transport.send(call, &self.options).await?;
        let text: &[u8] = if body.is_empty() { b"null" } else { &body };
        serde_json::from_slice(text).map_err(|error| {
            // The message of a syntax error can repeat a part of the answer, which may be secret.
            let place = format!("line {}, column {}", error.line(), error.column());
            let cause = match error.is_data() {
                true => format!("the answer has another shape ({place}): is the server newer?"),
                false => "the answer is not JSON".to_owned(),
            };
            Error::Answer { call: call.name(), cause }
        })
    }

    /// Sends a call once: status and body, whatever the status is.
    ///
    /// # Errors
    /// Where no answer arrives.
    pub async fn fetch(&self, call: &Call) -> Result<(StatusCode, Bytes), Error> {
        self.transport.fetch(call, &self.options).await
    }

    /// Sends a call once, and leaves the body of the answer to the caller.
    ///
    /// # Errors
    /// Where no answer arrives, or a refusal.
    pub async fn open(&self, call: &Call) -> Result<Incoming, Error> {
        self.transport.open(call, &self.options).await
    }
}

impl fmt::Debug for Client {
    /// The server alone: the key is secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("server", &self.transport.server.as_str()).finish()
    }
}
