//! The bodies and answers of Workfront's event subscription API, field by field as its documentation
//! has them: `camelCase`, but for a few that it writes with underscores.

use axum::http::HeaderValue;
use postrider_domain::circuit::{CircuitState, Counters};
use postrider_domain::filter::Filter;
use postrider_domain::ids::ObjectId;
use postrider_domain::limits::{PAGE_MAX, WORKFRONT_TOKEN_CHARS_MAX};
use postrider_domain::subscription::Subscription;
use postrider_domain::time::Timestamp;
use postrider_domain::workfront::filters::{self, Connector};
use postrider_domain::workfront::{Subject, Version, WorkfrontOptions};
use postrider_store::DestinationRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use zeroize::Zeroizing;

use crate::body::SecretText;
use crate::credentials::Credentials;
use crate::problem::Problem;

/// A subscription to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = NewSubscription)]
pub(super) struct SubscriptionBody {
    /// The code of the object, such as `PROJ` or `TASK`.
    #[schema(value_type = String, required = true, example = "PROJ")]
    obj_code: Option<String>,
    /// `CREATE`, `UPDATE` or `DELETE`.
    #[schema(value_type = String, required = true, example = "UPDATE")]
    event_type: Option<String>,
    /// Only events of the object with this identifier.
    obj_id: Option<String>,
    /// Where events are sent.
    #[schema(value_type = String, required = true, example = "https://hooks.example.com/in", max_length = 2048)]
    pub(super) url: Option<String>,
    /// Sent as `Authorization: Bearer …`.
    #[schema(value_type = String, required = true, example = "EauthTokenWorkfrontRocks1234_", max_length = 255)]
    auth_token: Option<SecretText>,
    /// Filters and groups of filters.
    #[schema(value_type = Option<Vec<Object>>)]
    filters: Option<Value>,
    /// How the filters are joined: `AND` (default) or `OR`.
    filter_connector: Option<String>,
    /// Whether both states are sent as base64 texts: `true`, `false` or an empty text.
    #[schema(value_type = Option<Encoded>)]
    base64_encoding: Option<Encoded>,
    /// `v1` or `v2` (default).
    version: Option<String>,
}

/// A truth value, or a text that says one.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Encoded {
    Truth(bool),
    Text(String),
}

impl Encoded {
    fn check(&self) -> Result<bool, Problem> {
        match self {
            Encoded::Truth(truth) => Ok(*truth),
            Encoded::Text(text) => match text.trim() {
                "true" => Ok(true),
                "false" | "" => Ok(false),
                _ => Err(Problem::field("base64Encoding", "true, false or an empty text")),
            },
        }
    }
}

/// A checked body.
pub(super) struct Wish {
    pub(super) subject: Subject,
    pub(super) object: Option<ObjectId>,
    pub(super) filter: Option<Filter>,
    pub(super) options: WorkfrontOptions,
    pub(super) token: Zeroizing<String>,
}

impl SubscriptionBody {
    pub(super) fn check(&self) -> Result<Wish, Problem> {
        let happening = required("eventType", self.event_type.as_deref())?;
        let happening = happening.parse().map_err(|why| Problem::field("eventType", why))?;
        let code = required("objCode", self.obj_code.as_deref())?;
        let subject =
            Subject::new(code, happening).map_err(|why| Problem::field("objCode", why))?;
        let object = match self.obj_id.as_deref() {
            None | Some("") => None,
            Some(id) => Some(id.parse().map_err(|why| Problem::field("objId", why))?),
        };
        let connector: Option<Connector> = self
            .filter_connector
            .as_deref()
            .map(|text| text.parse().map_err(|why| Problem::field("filterConnector", why)))
            .transpose()?;
        let filter = match &self.filters {
            None => None,
            Some(given) => filters::compile(given, connector.unwrap_or_default(), happening)
                .map_err(|error| Problem::field(error.place, error.why))?,
        };
        let version = match self.version.as_deref() {
            None => Version::default(),
            Some(text) => check_version(text)?,
        };
        let base64 = self.base64_encoding.as_ref().map_or(Ok(false), Encoded::check)?;
        let has_filters = filter.is_some();
        let options = WorkfrontOptions {
            version,
            base64,
            version_changed_at: None,
            both_sent: Vec::new(),
            filters: self.filters.clone().filter(|_| has_filters),
            connector: connector.filter(|_| has_filters),
        };
        Ok(Wish { subject, object, filter, options, token: self.token()? })
    }

    fn token(&self) -> Result<Zeroizing<String>, Problem> {
        let Some(token) = &self.auth_token else { return Err(Problem::missing("authToken")) };
        let text = &token.0;
        let is_clean = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_clean || text.is_empty() || text.len() > WORKFRONT_TOKEN_CHARS_MAX {
            let allowed =
                format!("1 to {WORKFRONT_TOKEN_CHARS_MAX} visible ASCII characters, no spaces");
            return Err(Problem::field("authToken", allowed));
        }
        Ok(text.clone())
    }
}

fn required<'v>(name: &str, value: Option<&'v str>) -> Result<&'v str, Problem> {
    value.ok_or_else(|| Problem::missing(name))
}

pub(super) fn check_version(text: &str) -> Result<Version, Problem> {
    text.parse().map_err(|why| Problem::field("version", why))
}

/// A subscription that was created, or whose version was changed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionVersion)]
pub(super) struct VersionView {
    pub(super) id: String,
    /// `v1` or `v2`.
    pub(super) version: &'static str,
}

/// The version of one subscription.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VersionChange)]
pub(super) struct VersionBody {
    /// `v1` or `v2`.
    #[schema(value_type = String, required = true, example = "v2")]
    pub(super) version: Option<String>,
}

/// The version of several subscriptions: of those that are named, or of all.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = VersionsChange)]
pub(super) struct VersionsBody {
    /// The subscriptions, at most 1000.
    #[schema(max_items = 1000)]
    pub(super) subscription_ids: Option<Vec<String>>,
    /// Whether it is for all subscriptions of the customer.
    pub(super) all_customer_subscriptions: Option<bool>,
    /// `v1` or `v2`.
    #[schema(value_type = String, required = true, example = "v2")]
    pub(super) version: Option<String>,
}

/// The subscriptions that have this version now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionVersions)]
pub(super) struct VersionsView {
    pub(super) subscription_ids: Vec<String>,
    /// `v1` or `v2`.
    pub(super) version: &'static str,
}

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Subscription)]
pub(super) struct SubscriptionView {
    id: String,
    /// In UTC, as all times here, and without an offset.
    #[serde(rename = "date_created")]
    #[schema(example = "2024-04-11T17:10:10.305000")]
    date_created: String,
    #[serde(rename = "date_modified")]
    date_modified: String,
    /// `v1` or `v2`.
    version: &'static str,
    /// When the version was last changed; null if it never was.
    date_version_updated: Option<String>,
    /// The tenant.
    customer_id: String,
    obj_id: Option<String>,
    obj_code: String,
    url: String,
    event_type: &'static str,
    /// The masked token: at most its last four characters are shown.
    auth_token: Option<String>,
    /// The filters as they were given; null if there are none, or if the filter was changed by
    /// another API.
    #[schema(value_type = Option<Vec<Object>>)]
    filters: Option<Value>,
    /// How the filters are joined: `AND` or `OR`.
    filter_connector: &'static str,
    base64_encoding: bool,
    #[serde(rename = "subscription_url")]
    subscription_url: UrlView,
}

/// The URL of a subscription, shared by all subscriptions with the same one.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionUrl)]
struct UrlView {
    url: String,
    date_created: String,
    /// Successful attempts since the counters were last reset.
    successes: u64,
    /// Failed attempts since then.
    failures: u64,
    /// Since when it is tried every ten minutes only.
    disabled_at: Option<String>,
    /// Since when it is not tried at all, until somebody enables it.
    frozen_at: Option<String>,
}

impl SubscriptionView {
    pub(super) fn of(
        subscription: &Subscription,
        subject: Subject,
        credentials: &Credentials,
        destination: Option<&DestinationRecord>,
    ) -> Self {
        let options = WorkfrontOptions::of(subscription);
        SubscriptionView {
            id: subscription.id.to_string(),
            date_created: shown(subscription.created_at),
            date_modified: shown(subscription.updated_at),
            version: options.version.as_str(),
            date_version_updated: options.version_changed_at.map(shown),
            customer_id: subscription.tenant.to_string(),
            obj_id: subscription.object.as_ref().map(ToString::to_string),
            obj_code: subject.object_code,
            url: subscription.url.clone(),
            event_type: subject.happening.as_str(),
            auth_token: credentials.masked_token(),
            filters: options.filters.clone(),
            filter_connector: options.connector.unwrap_or_default().as_str(),
            base64_encoding: options.base64,
            subscription_url: UrlView::of(subscription, destination),
        }
    }
}

impl UrlView {
    fn of(subscription: &Subscription, destination: Option<&DestinationRecord>) -> Self {
        let counters = destination.map(|found| found.circuit.shown_counters());
        let Counters { successes, failures, .. } = counters.unwrap_or_default();
        let (disabled_at, frozen_at) = match destination.map(|found| &found.circuit.state) {
            None | Some(CircuitState::Closed) => (None, None),
            Some(CircuitState::Open { since, .. } | CircuitState::HalfOpen { since, .. }) => {
                (Some(*since), None)
            }
            Some(CircuitState::Frozen { since, .. }) => (None, Some(*since)),
        };
        let created = destination.map_or(subscription.created_at, |found| found.created_at);
        UrlView {
            url: subscription.url.clone(),
            date_created: shown(created),
            successes,
            failures,
            disabled_at: disabled_at.map(shown),
            frozen_at: frozen_at.map(shown),
        }
    }
}

/// A time as Workfront shows it: in UTC without saying so, with microseconds.
fn shown(at: Timestamp) -> String {
    let text = at.to_string();
    format!("{}000", text.strip_suffix('Z').unwrap_or(&text))
}

/// A page of subscriptions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Subscriptions)]
pub(super) struct PageView {
    pub(super) subscriptions: Vec<SubscriptionView>,
    pub(super) meta: MetaView,
}

/// The number of the page, its size, and the total counts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Meta)]
pub(super) struct MetaView {
    /// The number of the page, from 1.
    pub(super) page: usize,
    /// How many pages there are.
    pub(super) page_count: usize,
    /// The most subscriptions on a page.
    pub(super) limit: usize,
    /// How many subscriptions there are.
    pub(super) total_count: usize,
}

/// A subscription in the deprecated list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeprecatedSubscription)]
pub(super) struct DeprecatedView {
    id: String,
    customer_id: String,
    obj_id: Option<String>,
    obj_code: String,
    url: String,
    event_type: &'static str,
    auth_token: Option<String>,
}

impl DeprecatedView {
    pub(super) fn of(view: SubscriptionView) -> Self {
        let SubscriptionView { id, customer_id, obj_id, obj_code, url, event_type, .. } = view;
        let auth_token = view.auth_token;
        DeprecatedView { id, customer_id, obj_id, obj_code, url, event_type, auth_token }
    }
}

/// Selects a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// The number of the page, from 1.
    page: Option<String>,
    /// Subscriptions on a page, 1 to 1000; 100 by default, 1000 in the deprecated list.
    limit: Option<String>,
}

/// A checked selection.
pub(super) struct AskedPage {
    pub(super) page: usize,
    pub(super) limit: usize,
}

/// The highest number of a page: more than all subscriptions of the largest tenant.
const PAGE_NUMBER_MAX: usize = 1_000_000;

impl PageQuery {
    pub(super) fn check(&self, limit_default: usize) -> Result<AskedPage, Problem> {
        let number = |name: &str, text: &Option<String>, default: usize, max: usize| {
            let Some(text) = text else { return Ok(default) };
            let number = text.parse().ok().filter(|number| (1..=max).contains(number));
            number.ok_or_else(|| Problem::field(name, format!("a number from 1 to {max}")))
        };
        Ok(AskedPage {
            page: number("page", &self.page, 1, PAGE_NUMBER_MAX)?,
            limit: number("limit", &self.limit, limit_default, PAGE_MAX)?,
        })
    }
}

/// The header `Location` of a new subscription.
pub(super) fn location(base: &str, path: &str, id: &str) -> Result<HeaderValue, Problem> {
    HeaderValue::try_from(format!("{base}{path}/{id}")).map_err(|_| Problem::internal())
}
