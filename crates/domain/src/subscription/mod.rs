//! A subscription: which events go to which URL, in which format.
//!
//! A [`Subscription`] contains no secret, no token and no header value: credentials are stored
//! separately, so that matching, listing and logging a subscription can never show one.

mod about;
mod headers;
mod rate_limit;
mod types;

use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};

pub use self::about::{About, InvalidMetadata, Metadata};
pub use self::headers::{CustomHeader, InvalidHeader};
pub use self::rate_limit::{InvalidRateLimit, RateLimit};
pub use self::types::{InvalidTypePattern, InvalidTypeSet, TypePattern, TypeSet};
use crate::event::Event;
use crate::filter::{Filter, OverBudget};
use crate::ids::{DestinationId, ObjectId, SubscriptionId, TenantId};
use crate::payload::Format;
use crate::policy::SubscriptionPolicy;
use crate::time::Timestamp;
use crate::workfront;

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subscription {
    /// Its identifier.
    pub id: SubscriptionId,
    /// The tenant. The subscription gets only this tenant's events.
    pub tenant: TenantId,
    /// The destination of its tenant and URL.
    pub destination: DestinationId,
    /// The URL to send to, in the normal form of the `url` crate.
    pub url: String,
    /// The types of events.
    pub types: TypeSet,
    /// Only events of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectId>,
    /// Only events that pass this filter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// The format of the request's body.
    #[serde(default)]
    pub format: Format,
    /// The options of the format `workfront`; the default ones where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workfront: Option<Box<workfront::WorkfrontOptions>>,
    /// Custom headers in plain text, as version 0.1.0 stored them. Now always empty: headers are
    /// sealed with the other credentials.
    #[serde(default, deserialize_with = "headers::deserialize_all")]
    pub headers: Vec<CustomHeader>,
    /// The most requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// What it wants otherwise than the server's policy has it.
    #[serde(default, skip_serializing_if = "SubscriptionPolicy::is_empty")]
    pub policy: SubscriptionPolicy,
    /// A disabled subscription gets no new deliveries.
    pub enabled: bool,
    /// Its name, description, metadata and the application's own identifier.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl Subscription {
    /// Whether this event is to be delivered here; `ask` evaluates the filter, if there is one and
    /// everything else matches.
    pub fn verdict(
        &self,
        event: &Event,
        ask: impl FnOnce(&Filter) -> Result<bool, OverBudget>,
    ) -> Result<bool, OverBudget> {
        let is_meant = self.enabled
            && self.tenant == event.tenant
            && self.types.matches(&event.kind)
            && self.object.as_ref().is_none_or(|object| Some(object) == event.object.as_ref());
        match &self.filter {
            Some(filter) if is_meant => ask(filter),
            Some(_) | None => Ok(is_meant),
        }
    }

    /// Whether its filter reads an event's `data` or `old`.
    pub fn needs_json(&self) -> bool {
        self.filter.as_ref().is_some_and(Filter::needs_json)
    }

    /// Whether the other one gets the same events in the same way: same tenant, URL, set of types,
    /// object, filter and format, with the same encoding of its states. The version of the format
    /// `workfront` makes no difference, so that changing it never meets a twin.
    pub fn is_twin_of(&self, other: &Subscription) -> bool {
        self.twin_key() == other.twin_key()
    }

    /// A hash that twins share and other subscriptions hardly ever do.
    pub(crate) fn twin_fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.twin_key().hash(&mut hasher);
        hasher.finish()
    }

    fn twin_key(&self) -> impl Eq + Hash {
        let base64 = workfront::WorkfrontOptions::of(self).base64;
        (&self.tenant, &self.url, &self.types, &self.object, &self.filter, self.format, base64)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn subscription() -> Subscription {
        serde_json::from_value(json!({
            "id": "sub_019a86d99e3877078707070707070707",
            "tenant": "default",
            "destination": "dst_019a86d99e3877078707070707070707",
            "url": "https://hooks.example.com/in",
            "types": ["task.*", "note.added"],
            "filter": {"field": "data.status", "op": "eq", "value": "CUR"},
            "enabled": true,
            "created_at": "2026-11-15T09:30:00.000Z",
            "updated_at": "2026-11-15T09:30:00.000Z",
        }))
        .unwrap()
    }

    fn options(
        version: workfront::Version,
        base64: bool,
    ) -> Option<Box<workfront::WorkfrontOptions>> {
        Some(Box::new(workfront::WorkfrontOptions { version, base64, ..Default::default() }))
    }

    #[test]
    fn subscription_round_trips_through_json() {
        let mut full = subscription();
        full.object = Some("T-1".parse().unwrap());
        full.format = Format::Workfront;
        full.workfront = options(workfront::Version::V1, true);
        full.headers = vec![CustomHeader::new("x-a", "1").unwrap()];
        full.rate_limit = Some(RateLimit::per_second(2.5).unwrap());
        full.policy.retry_max = Some(3);
        full.about.uid = Some("hook-7".parse().unwrap());
        for subscription in [subscription(), full] {
            let json = serde_json::to_value(&subscription).unwrap();
            assert_eq!(serde_json::from_value::<Subscription>(json).unwrap(), subscription);
        }
    }

    #[test]
    fn headers_that_cannot_stand_together_do_not_come_in_by_json() {
        let mut json = serde_json::to_value(subscription()).unwrap();
        json["headers"] = json!([{"name": "x", "value": "1"}, {"name": "X", "value": "2"}]);
        let error = serde_json::from_value::<Subscription>(json).unwrap_err();
        assert!(error.to_string().contains("the header x is given twice"), "{error}");
    }

    #[test]
    fn twins_differ_in_nothing_that_changes_what_is_sent() {
        type Change = fn(&mut Subscription);
        let no_matter: [Change; 8] = [
            |s| s.id = SubscriptionId::from_bytes([1; 16]),
            |s| s.enabled = false,
            |s| s.rate_limit = RateLimit::per_second(1.0).ok(),
            |s| s.policy.retry_max = Some(3),
            |s| s.headers = vec![CustomHeader::new("x-a", "1").unwrap()],
            |s| s.updated_at = Timestamp::EPOCH,
            |s| s.workfront = options(workfront::Version::V1, false),
            |s| s.about.name = Some("Orders".to_owned()),
        ];
        let matter: [Change; 7] = [
            |s| s.tenant = "other".parse().unwrap(),
            |s| s.url.push('/'),
            |s| s.types = TypeSet::new(["task.*".parse().unwrap()]).unwrap(),
            |s| s.object = Some("T-1".parse().unwrap()),
            |s| s.filter = None,
            |s| s.format = Format::CloudEvents,
            |s| s.workfront = options(workfront::Version::V2, true),
        ];
        let changes = no_matter.iter().map(|c| (c, true)).chain(matter.iter().map(|c| (c, false)));
        for (change, twins) in changes {
            let (original, mut changed) = (subscription(), subscription());
            change(&mut changed);
            assert_eq!(original.is_twin_of(&changed), twins, "{changed:?}");
            assert_eq!(original.twin_fingerprint() == changed.twin_fingerprint(), twins);
        }
    }

    #[test]
    fn the_order_of_types_and_of_keys_makes_no_difference_to_twins() {
        let mut json = serde_json::to_value(subscription()).unwrap();
        json["types"] = json!(["note.added", "task.*", "note.added"]);
        let filter = r#"{"value": "CUR", "op": "eq", "field": "data.status"}"#;
        json["filter"] = serde_json::from_str(filter).unwrap();
        let other: Subscription = serde_json::from_value(json).unwrap();
        assert!(subscription().is_twin_of(&other));
        assert_eq!(subscription().twin_fingerprint(), other.twin_fingerprint());
    }
}
