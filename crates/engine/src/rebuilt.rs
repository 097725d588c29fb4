//! Rebuilds the HTTP request of a past attempt. Requests are not stored: this one is rendered again
//! from the event, by the code that sends, with the subscription as it is now. **Its secrets are
//! masked.**

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use postrider_domain::credentials::mask;
use postrider_domain::delivery::Delivery;
use postrider_domain::egress::DestinationUrl;
use postrider_domain::signature::SIGNATURE_HEADER;
use postrider_domain::time::Timestamp;
use postrider_domain::trace::TraceContext;
use postrider_transport::Target;

use crate::attempt::{self, AttemptPlan};
use crate::handle::{CommandError, EngineHandle};
use crate::loaded::Loaded;

/// The request of a past attempt, as it would be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuiltRequest {
    /// The URL of the destination.
    pub url: String,
    /// The names and values of the headers, with secrets masked.
    pub headers: Vec<(String, String)>,
    /// The body of the request.
    pub body: Bytes,
    /// Whether the subscription was changed after the attempt: headers and format may have been
    /// different.
    pub is_changed_since: bool,
}

impl EngineHandle {
    /// Rebuilds the request of attempt `number` of a delivery, which began at `started_at`.
    pub async fn rebuild_request(
        &self,
        delivery: &Delivery,
        number: u32,
        started_at: Timestamp,
    ) -> Result<RebuiltRequest, CommandError> {
        let shared = &self.shared;
        let mut prepared = shared.directory.get(delivery.subscription);
        if prepared.is_none() {
            // Another node may have created the subscription a moment ago.
            shared.refresher.catch_up().await?;
            prepared = shared.directory.get(delivery.subscription);
        }
        let prepared = prepared.filter(|known| known.subscription.tenant == delivery.tenant);
        let prepared = prepared.ok_or(CommandError::SubscriptionGone)?;
        let event = shared.store.event(&delivery.tenant, &delivery.event).await?;
        let event = event.ok_or(CommandError::NotFound)?.event;
        let destination = shared.store.destination(&delivery.tenant, delivery.destination).await?;
        let url = destination.ok_or(CommandError::NotFound)?.url;
        let target = DestinationUrl::from_trusted(&url)
            .ok()
            .and_then(|url| {
                Target::new(delivery.tenant.clone(), delivery.destination, url, None).ok()
            })
            .ok_or(CommandError::NotFound)?;
        let limits = shared.policy.borrow().attempt_for(&prepared.subscription.policy);
        let target = Arc::new(target);
        let context = TraceContext::of_attempt(event.trace, delivery.id, number);
        let is_changed_since = prepared.subscription.updated_at > started_at;
        let event = Arc::new(Loaded::new(event));
        let plan = AttemptPlan {
            delivery: delivery.id,
            number,
            event,
            prepared: Arc::clone(&prepared),
            target: Some(Arc::clone(&target)),
            limits,
        };
        let Ok(keys) = &prepared.keys else { return Err(CommandError::SubscriptionGone) };
        let request = attempt::request(&plan, keys, target, context, (started_at, started_at));
        let headers = request.sent_headers();
        let shown = headers.iter().map(|(name, value)| {
            let value = match name {
                name if *name == AUTHORIZATION => masked_authorization(value),
                name if name.as_str() == SIGNATURE_HEADER => masked_signatures(value),
                _ if value.is_sensitive() => mask(&text(value)),
                _ => text(value),
            };
            (name.as_str().to_owned(), value)
        });
        let length = (CONTENT_LENGTH.as_str().to_owned(), request.body.len().to_string());
        let headers = shown.chain([length]).collect();
        Ok(RebuiltRequest { url, headers, body: request.body.to_bytes(), is_changed_since })
    }
}

fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// Masks the header `authorization`, as `Bearer ****abcd`.
fn masked_authorization(value: &HeaderValue) -> String {
    let text = text(value);
    match text.split_once(' ') {
        Some((scheme, token)) => format!("{scheme} {}", mask(token)),
        None => mask(&text),
    }
}

/// Masks each signature, as `v1,****`. The signatures are not those that were sent if secrets were
/// rotated since.
fn masked_signatures(value: &HeaderValue) -> String {
    let text = text(value);
    let each = text.split(' ').map(|one| {
        let version = one.split_once(',').map_or("", |(version, _)| version);
        format!("{version},****")
    });
    each.collect::<Vec<_>>().join(" ")
}
