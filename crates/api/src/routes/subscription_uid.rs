//! Subscriptions by the application's own identifier: it stands wherever an id can, and a subscription that is created
//! with the `uid` and the body of an existing one is that one.

use postrider_domain::ids::{SubscriptionId, SubscriptionUid, TenantId};
use postrider_domain::subscription::Subscription;
use postrider_store::SubscriptionRecord;
use serde_json::{Map, Value};

use super::PathId;
use crate::credentials::Credentials;
use crate::problem::{Code, Problem};
use crate::state::ApiState;
use crate::wire::subscription::SubscriptionView;

/// The subscription that an id or a `uid` names.
pub(super) async fn find(
    state: &ApiState,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<SubscriptionRecord>, Problem> {
    if let Ok(id) = name.parse::<SubscriptionId>() {
        return Ok(state.store().subscription(tenant, id).await?);
    }
    match name.parse::<SubscriptionUid>() {
        Ok(uid) => Ok(state.store().subscription_by_uid(tenant, &uid).await?),
        Err(_) => Ok(None),
    }
}

/// The id in a path, in the place of a `uid`: whoever locks a subscription locks it by its id.
pub(super) async fn canonical(
    state: &ApiState,
    tenant: &TenantId,
    id: PathId,
) -> Result<PathId, Problem> {
    if id.0.parse::<SubscriptionId>().is_ok() {
        return Ok(id);
    }
    let found = find(state, tenant, &id.0).await?;
    let found = found.ok_or_else(|| id.unknown("subscription"))?;
    Ok(PathId(found.subscription.id.to_string()))
}

/// The subscription in a filter, by its id or its `uid`. Deliveries of a deleted one are found by its id.
pub(crate) async fn in_filter(
    state: &ApiState,
    tenant: &TenantId,
    name: Option<&str>,
) -> Result<Option<SubscriptionId>, Problem> {
    let Some(name) = name else { return Ok(None) };
    if let Ok(id) = name.parse::<SubscriptionId>() {
        return Ok(Some(id));
    }
    match find(state, tenant, name).await? {
        Some(record) => Ok(Some(record.subscription.id)),
        None => {
            let detail =
                "neither the id of a subscription (sub_…) nor the uid of one that there is";
            Err(Problem::field("subscription", detail))
        }
    }
}

/// A subscription that somebody wants to create.
pub(super) struct Wish<'w> {
    pub(super) subscription: &'w Subscription,
    pub(super) credentials: &'w Credentials,
}

impl Wish<'_> {
    /// The existing subscription with this `uid`, if it is the same; a problem if it is another one. A secret is
    /// compared only where one was given.
    pub(super) async fn existing(
        &self,
        state: &ApiState,
        is_secret_given: bool,
    ) -> Result<Option<SubscriptionView>, Problem> {
        let Some(uid) = &self.subscription.about.uid else { return Ok(None) };
        let found = state.store().subscription_by_uid(&self.subscription.tenant, uid).await?;
        let Some(found) = found else { return Ok(None) };
        let credentials = Credentials::open(state.vault(), &found)?;
        let mut fields = self.differing_fields(&found.subscription);
        fields.extend(self.differing_credentials(&credentials, is_secret_given));
        let existing = &found.subscription;
        if fields.is_empty() {
            return Ok(Some(SubscriptionView::of(
                existing,
                &credentials,
                &state.policy(),
                state.now(),
            )));
        }
        let detail = format!(
            "{} has this uid and another {}: change it with PATCH /v1/subscriptions/{uid}, or repeat its body",
            existing.id,
            fields.join(", "),
        );
        Err(Problem::new(Code::UidTaken, detail).at("uid").existing(existing.id))
    }

    /// The fields in which the existing subscription differs, by their names in the API.
    fn differing_fields(&self, existing: &Subscription) -> Vec<String> {
        let wanted = Subscription {
            id: existing.id,
            created_at: existing.created_at,
            updated_at: existing.updated_at,
            headers: existing.headers.clone(),
            // It follows from the URL.
            destination: existing.destination,
            ..self.subscription.clone()
        };
        let (wanted, existing) = (flat(&wanted), flat(existing));
        let names = wanted.keys().chain(existing.keys().filter(|name| !wanted.contains_key(*name)));
        names.filter(|name| wanted.get(*name) != existing.get(*name)).cloned().collect()
    }

    fn differing_credentials(
        &self,
        existing: &Credentials,
        is_secret_given: bool,
    ) -> impl Iterator<Item = String> {
        let wanted = self.credentials;
        let is_secret_other =
            wanted.secrets.current().expose() != existing.secrets.current().expose();
        let all = [
            ("auth_token", wanted.token != existing.token),
            ("headers", wanted.headers != existing.headers),
            ("client_certificate", wanted.tls.client != existing.tls.client),
            ("ca_certificates", wanted.tls.authorities != existing.tls.authorities),
            ("secret", is_secret_given && is_secret_other),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name.to_owned())
    }
}

/// The fields of a subscription as the API has them: those of its description stand beside the others.
fn flat(subscription: &Subscription) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(subscription) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) | Err(_) => Map::new(),
    };
    if let Some(Value::Object(about)) = fields.remove("about") {
        fields.extend(about);
    }
    fields
}
