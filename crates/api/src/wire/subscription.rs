//! Subscriptions in and out. The secret is shown once, the token and the headers' values never whole.

use std::collections::BTreeMap;
use std::fmt;

use postrider_domain::filter::Filter;
use postrider_domain::limits::{AUTH_TOKEN_BYTES_MAX, PEM_BYTES_MAX};
use postrider_domain::payload::Format;
use postrider_domain::signature::SigningSecret;
use postrider_domain::subscription::{CustomHeader, RateLimit, Subscription, TypePattern, TypeSet};
use postrider_domain::time::Timestamp;
use postrider_transport::{CertificateFacts, Part};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use crate::body::{Patch, SecretText};
use crate::credentials::{ClientCertificate, Credentials, TlsCredentials};
use crate::problem::Problem;

/// A subscription to be created, or the fields of one to be changed. On a change, what is left out
/// stays as it is, and null removes what can be removed.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSubscription)]
pub(crate) struct SubscriptionBody {
    /// Where deliveries go. Changing it drops the token, the headers and the
    /// certificates, which must be given again.
    #[serde(default)]
    #[schema(value_type = String, required = true, example = "https://hooks.example.com/in", max_length = 2048)]
    pub(crate) url: Patch<String>,
    /// Which event types: `task.updated`, `task.*` or `*`.
    #[serde(default)]
    #[schema(value_type = Vec<String>, required = true, example = json!(["task.*"]))]
    pub(crate) types: Patch<Vec<String>>,
    /// Events of this object alone.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) object: Patch<String>,
    /// Events that this filter lets through.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub(crate) filter: Patch<Value>,
    /// `standard` (default), `cloudevents` or `raw`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) format: Patch<String>,
    /// Sent as `Authorization: Bearer …`. Shown masked from then on.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) auth_token: Patch<SecretText>,
    /// PEM: the certificate that is shown to the receiver (mutual TLS), then those that lead to its
    /// root. Together with `client_key`, for an https URL; dropped when the URL changes.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) client_certificate: Patch<String>,
    /// PEM: the key of `client_certificate`, without a passphrase. Never shown.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) client_key: Patch<SecretText>,
    /// PEM: the authorities of which one must have signed the receiver's certificate, instead of
    /// those that everybody believes. For an https URL; dropped when the URL changes.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) ca_certificates: Patch<String>,
    /// Headers that are added to each request, by name. Their values are secrets: sealed, shown masked
    /// from then on, dropped when the URL changes.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub(crate) headers: Patch<Headers>,
    /// `whsec_…` or `whsk_…`; made where it is left out. Not on a change: rotate it instead.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) secret: Patch<SecretText>,
    /// At most so many requests per second.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub(crate) rate_limit: Patch<f64>,
    /// Off: no new deliveries.
    #[serde(default)]
    #[schema(value_type = Option<bool>)]
    pub(crate) enabled: Patch<bool>,
}

/// Headers as they were given, in order and with repetitions.
#[derive(Clone)]
pub(crate) struct Headers(Vec<(String, String)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Headers({})", self.0.len())
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and values")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Headers, M::Error> {
                let mut headers = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    headers.push(pair);
                }
                Ok(Headers(headers))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

pub(crate) fn check_types(types: &[String]) -> Result<TypeSet, Problem> {
    let patterns: Result<Vec<TypePattern>, Problem> = types
        .iter()
        .enumerate()
        .map(|(n, text)| text.parse().map_err(|e| Problem::field(format!("types[{n}]"), e)))
        .collect();
    TypeSet::new(patterns?).map_err(|error| Problem::field("types", error))
}

pub(crate) fn check_filter(filter: &Value) -> Result<Filter, Problem> {
    Filter::compile(filter).map_err(|error| Problem::field(error.place, error.fault))
}

pub(crate) fn check_format(format: &str) -> Result<Format, Problem> {
    format.parse().map_err(|error| Problem::field("format", error))
}

pub(crate) fn check_rate_limit(per_second: f64) -> Result<RateLimit, Problem> {
    RateLimit::per_second(per_second).map_err(|error| Problem::field("rate_limit", error))
}

pub(crate) fn check_headers(headers: &Headers) -> Result<Vec<CustomHeader>, Problem> {
    let checked: Result<Vec<CustomHeader>, Problem> = headers
        .0
        .iter()
        .map(|(name, value)| {
            // A name may hold anything; what is repeated of it is what can be shown.
            let shown: String = name.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
            let place = format!("headers.{shown}");
            CustomHeader::new(name, value).map_err(|error| Problem::field(place, error))
        })
        .collect();
    let checked = checked?;
    CustomHeader::check_all(&checked).map_err(|error| Problem::field("headers", error))?;
    Ok(checked)
}

pub(crate) fn check_token(token: &SecretText) -> Result<Zeroizing<String>, Problem> {
    let text = &token.0;
    let is_clean = text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_clean || text.is_empty() || text.len() > AUTH_TOKEN_BYTES_MAX {
        let allowed = format!("1 to {AUTH_TOKEN_BYTES_MAX} visible ASCII characters, no spaces");
        return Err(Problem::field("auth_token", allowed));
    }
    Ok(text.clone())
}

pub(crate) fn check_secret(secret: &SecretText) -> Result<SigningSecret, Problem> {
    secret.0.parse().map_err(|error| Problem::field("secret", error))
}

/// Takes over what a body says of certificates, and sees whether it can be used.
pub(crate) fn apply_tls(
    tls: &mut TlsCredentials,
    body: &SubscriptionBody,
    url: &str,
    now: Timestamp,
) -> Result<(), Problem> {
    const TOGETHER: &str = "client_certificate and client_key are given, or removed, together";
    tls.client = match (&body.client_certificate, &body.client_key) {
        (Patch::Absent, Patch::Absent) => tls.client.take(),
        (Patch::Null, Patch::Absent | Patch::Null) => None,
        (Patch::Value(chain), Patch::Value(key)) => {
            check_length("client_certificate", chain.len())?;
            check_length("client_key", key.0.len())?;
            Some(ClientCertificate { chain: chain.clone(), key: key.0.clone() })
        }
        (Patch::Absent | Patch::Null, _) => {
            return Err(Problem::field("client_certificate", TOGETHER));
        }
        (Patch::Value(_), Patch::Absent | Patch::Null) => {
            return Err(Problem::field("client_key", TOGETHER));
        }
    };
    match &body.ca_certificates {
        Patch::Absent => {}
        Patch::Null => tls.authorities = None,
        Patch::Value(pem) => {
            check_length("ca_certificates", pem.len())?;
            tls.authorities = Some(pem.clone());
        }
    }
    tls.identity().map_err(|error| Problem::field(field_of(error.part), error))?;
    if !tls.is_empty() && !url.starts_with("https:") {
        let part = if tls.client.is_some() { Part::Certificate } else { Part::Roots };
        return Err(Problem::field(field_of(part), "is of use with an https url only"));
    }
    let was_given = matches!(body.client_certificate, Patch::Value(_));
    match tls.facts().0 {
        Some(facts) if was_given && facts.expires_at <= now => {
            let detail = format!("expired at {}: give a certificate that holds", facts.expires_at);
            Err(Problem::field("client_certificate", detail))
        }
        Some(_) | None => Ok(()),
    }
}

fn field_of(part: Part) -> &'static str {
    match part {
        Part::Certificate => "client_certificate",
        Part::Key => "client_key",
        Part::Roots => "ca_certificates",
    }
}

fn check_length(field: &'static str, bytes: usize) -> Result<(), Problem> {
    if bytes > PEM_BYTES_MAX {
        return Err(Problem::field(field, format!("at most {PEM_BYTES_MAX} bytes of PEM")));
    }
    Ok(())
}

/// A certificate, without anything that would be of use to others.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Certificate)]
pub(crate) struct CertificateView {
    /// Whose it is.
    #[schema(example = "CN=client.example.com")]
    subject: String,
    /// Until when it holds.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// SHA-256 of the certificate, in hexadecimal digits.
    fingerprint: String,
}

impl CertificateView {
    fn of(facts: CertificateFacts) -> Self {
        let CertificateFacts { subject, expires_at, fingerprint, .. } = facts;
        CertificateView { subject, expires_at, fingerprint }
    }
}

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Subscription)]
pub(crate) struct SubscriptionView {
    id: String,
    url: String,
    destination_id: String,
    types: Vec<String>,
    object: Option<String>,
    #[schema(value_type = Option<Object>)]
    filter: Option<Value>,
    /// `standard`, `cloudevents` or `raw`.
    format: &'static str,
    /// The last four characters of the token, the rest masked; all masked where it is short.
    auth_token: Option<String>,
    /// The certificate that is shown to the receiver. Its key is never shown.
    client_certificate: Option<CertificateView>,
    /// The authorities that are believed instead of the usual ones; none: the usual ones.
    ca_certificates: Vec<CertificateView>,
    /// Names of the headers, each with the last four characters of its value, the rest masked; all
    /// masked where it is short.
    headers: BTreeMap<String, String>,
    #[schema(value_type = Option<f64>)]
    rate_limit: Option<RateLimit>,
    enabled: bool,
    /// What verifies signatures, where the secret is a `whsk_` one.
    public_key: Option<String>,
    /// How many older secrets still sign along.
    retiring_secrets: usize,
    /// When the last older secret stops signing along; null where none does.
    #[schema(value_type = Option<String>, format = DateTime)]
    secret_overlap_ends_at: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// A subscription with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct SubscriptionWithSecret {
    #[serde(flatten)]
    pub(crate) view: SubscriptionView,
    /// The signing secret. It is not shown again.
    #[schema(example = "whsec_…")]
    pub(crate) secret: String,
}

impl SubscriptionView {
    pub(crate) fn of(
        subscription: &Subscription,
        credentials: &Credentials,
        now: Timestamp,
    ) -> Self {
        let (client_certificate, ca_certificates) = credentials.tls.facts();
        SubscriptionView {
            id: subscription.id.to_string(),
            url: subscription.url.clone(),
            destination_id: subscription.destination.to_string(),
            types: subscription.types.patterns().iter().map(ToString::to_string).collect(),
            object: subscription.object.as_ref().map(ToString::to_string),
            filter: subscription.filter.as_ref().map(|filter| filter.source().clone()),
            format: subscription.format.as_str(),
            auth_token: credentials.masked_token(),
            client_certificate: client_certificate.map(CertificateView::of),
            ca_certificates: ca_certificates.into_iter().map(CertificateView::of).collect(),
            headers: credentials.masked_headers().map(|(n, v)| (n.to_owned(), v)).collect(),
            rate_limit: subscription.rate_limit,
            enabled: subscription.enabled,
            public_key: credentials.secrets.current().public_key(),
            retiring_secrets: credentials.secrets.valid_at(now).count() - 1,
            secret_overlap_ends_at: credentials.secrets.overlap_ends_at(now),
            created_at: subscription.created_at,
            updated_at: subscription.updated_at,
        }
    }
}

/// How long the secret before signs along.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Rotation)]
pub(crate) struct RotateBody {
    /// 86400 (a day) where it is left out; at most 30 days.
    #[serde(default)]
    pub(crate) overlap_seconds: Option<u64>,
}
