//! A client for Postrider, the webhook delivery server, and [`verify`] for receivers of its webhooks.
//!
//! [`Client`] has one method for each kind of record: `client.events().send(…)`,
//! `client.deliveries().list(…)`. A call is repeated after a broken connection, a time limit, 408,
//! 429 and 5xx; a change carries one `Idempotency-Key` through all its attempts, so it has its
//! effect once. No error, log or `Debug` output shows a key or a secret.
//!
//! A receiver needs only [`verify`]: leave the feature `client` out, and no HTTP client is built.

mod verify;

#[cfg(feature = "client")]
mod call;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod connect;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod list;
#[cfg(feature = "client")]
mod resources;
#[cfg(feature = "client")]
mod secret;
#[cfg(feature = "client")]
mod stream;
#[cfg(feature = "client")]
mod transport;
#[cfg(feature = "client")]
pub mod types;

pub use verify::{VerificationError, Verified, Verifier, VerifierError, verify};

#[cfg(feature = "client")]
pub use crate::{
    call::Call,
    client::{Builder, Client},
    error::{Error, Problem},
    list::{List, Page},
    resources::deliveries::{Deliveries, DeliveryQuery},
    resources::destinations::{DestinationQuery, Destinations},
    resources::erasures::Erasures,
    resources::event_types::EventTypes,
    resources::events::{EventQuery, Events, SendAll},
    resources::figures::{AuditQuery, FilterTrial, StatsQuery},
    resources::keys::{KeyQuery, Keys},
    resources::operations::{Alerts, Operations, PortalLinks},
    resources::replays::Replays,
    resources::subscriptions::{SubscriptionQuery, Subscriptions},
    resources::tenants::Tenants,
    secret::Secret,
    stream::{Happening, Stream, StreamQuery},
};
