//! Valid sample values for tests. A test changes the fields that it is about.

use postrider_domain::ids::{DestinationId, SubscriptionId, TenantId};
use postrider_domain::payload::Format;
use postrider_domain::policy::SubscriptionPolicy;
use postrider_domain::subscription::{About, Subscription, TypeSet};
use postrider_domain::time::Timestamp;

/// An enabled subscription to these types without a filter, in the standard format, created at
/// `now`.
pub fn subscription(
    id: SubscriptionId,
    tenant: &TenantId,
    url: &str,
    types: &[&str],
    now: Timestamp,
) -> Subscription {
    Subscription {
        id,
        tenant: tenant.clone(),
        destination: DestinationId::of(tenant, url),
        url: url.to_owned(),
        types: TypeSet::new(types.iter().map(|text| text.parse().unwrap())).unwrap(),
        object: None,
        filter: None,
        format: Format::Standard,
        workfront: None,
        headers: Vec::new(),
        rate_limit: None,
        policy: SubscriptionPolicy::default(),
        about: About::default(),
        enabled: true,
        created_at: now,
        updated_at: now,
    }
}
