//! Tenants.

use std::collections::BTreeMap;

use postrider_domain::time::Timestamp;
use postrider_engine::{Quota, Whose};
use postrider_store::{Tenant, TenantDetails};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::check_name;
use super::subscription::{check_description, check_metadata};
use crate::body::Patch;
use crate::problem::Problem;
use crate::settings::RATE_MAX;

/// A tenant to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTenant)]
pub(crate) struct TenantBody {
    /// 1 to 64 lowercase letters, digits, `-` and `_`.
    #[serde(default)]
    #[schema(value_type = String, required = true, example = "acme")]
    pub(crate) id: Option<String>,
    /// The display name.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 100)]
    pub(crate) name: Patch<String>,
    /// A description of the tenant, at most 1000 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 1000)]
    pub(crate) description: Patch<String>,
    /// Pairs of the operator's own: at most 50, keys of up to 64 letters, digits, `-`, `_` and `.`, values of up to 500
    /// characters, 16 KiB together.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub(crate) metadata: Patch<BTreeMap<String, String>>,
    /// Limits of its own instead of the server's, by the names that `GET /v1/limits` shows.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, u64>>, example = json!({"subscriptions": 50}))]
    pub(crate) quotas: Patch<BTreeMap<String, u64>>,
    /// The most requests per second, instead of `limits.tenant_requests_per_second`.
    #[serde(default)]
    #[schema(value_type = Option<u32>)]
    pub(crate) requests_per_second: Patch<u32>,
    /// The most events per second, instead of `limits.tenant_events_per_second`.
    #[serde(default)]
    #[schema(value_type = Option<u32>)]
    pub(crate) events_per_second: Patch<u32>,
}

/// The fields of a tenant to be changed. Absent fields stay unchanged, and null removes a value.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = TenantChange)]
pub(crate) struct TenantChange {
    /// The display name.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 100)]
    name: Patch<String>,
    /// A description of the tenant, at most 1000 characters.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 1000)]
    description: Patch<String>,
    /// Pairs of the operator's own. A change replaces all of them.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    metadata: Patch<BTreeMap<String, String>>,
    /// Limits of its own instead of the server's, by the names that `GET /v1/limits` shows. A change replaces all of
    /// them.
    #[serde(default)]
    #[schema(value_type = Option<BTreeMap<String, u64>>)]
    quotas: Patch<BTreeMap<String, u64>>,
    /// The most requests per second, instead of `limits.tenant_requests_per_second`.
    #[serde(default)]
    #[schema(value_type = Option<u32>)]
    requests_per_second: Patch<u32>,
    /// The most events per second, instead of `limits.tenant_events_per_second`.
    #[serde(default)]
    #[schema(value_type = Option<u32>)]
    events_per_second: Patch<u32>,
}

impl TenantBody {
    /// The identifier, and the other fields as a change of an empty tenant.
    pub(crate) fn split(self) -> (Option<String>, TenantChange) {
        let TenantBody { id, name, description, metadata, quotas, .. } = self;
        let (requests_per_second, events_per_second) =
            (self.requests_per_second, self.events_per_second);
        let change = TenantChange {
            name,
            description,
            metadata,
            quotas,
            requests_per_second,
            events_per_second,
        };
        (id, change)
    }
}

impl TenantChange {
    /// Applies and checks the fields.
    pub(crate) fn apply(self, tenant: &mut Tenant) -> Result<(), Problem> {
        let details = &mut tenant.details;
        match self.name {
            Patch::Absent => {}
            Patch::Null => tenant.name = None,
            Patch::Value(name) => tenant.name = check_name(Some(name))?,
        }
        match self.description {
            Patch::Absent => {}
            Patch::Null => details.description = None,
            Patch::Value(text) => details.description = check_description(&text)?,
        }
        match self.metadata {
            Patch::Absent => {}
            Patch::Null => details.metadata = check_metadata(&BTreeMap::new())?,
            Patch::Value(pairs) => details.metadata = check_metadata(&pairs)?,
        }
        match self.quotas {
            Patch::Absent => {}
            Patch::Null => details.quotas = BTreeMap::new(),
            Patch::Value(quotas) => {
                check_quotas(&quotas)?;
                details.quotas = quotas;
            }
        }
        let TenantDetails { requests_per_second, events_per_second, .. } = details;
        set_rate("requests_per_second", requests_per_second, self.requests_per_second)?;
        set_rate("events_per_second", events_per_second, self.events_per_second)
    }
}

fn set_rate(field: &str, rate: &mut Option<u32>, given: Patch<u32>) -> Result<(), Problem> {
    match given {
        Patch::Absent => {}
        Patch::Null => *rate = None,
        Patch::Value(given) if (1..=RATE_MAX).contains(&given) => *rate = Some(given),
        Patch::Value(_) => {
            return Err(Problem::field(field, format!("a number from 1 to {RATE_MAX}")));
        }
    }
    Ok(())
}

fn check_quotas(quotas: &BTreeMap<String, u64>) -> Result<(), Problem> {
    let own = Quota::ALL.iter().filter(|quota| quota.whose() == Whose::Tenant);
    let known: Vec<&str> = own.map(|quota| quota.name()).collect();
    match quotas.keys().find(|name| !known.contains(&name.as_str())) {
        // The name may contain anything, so it is not repeated.
        Some(_) => Err(Problem::field("quotas", format!("by these names: {}", known.join(", ")))),
        None => Ok(()),
    }
}

/// One customer of the application that sends the events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantView {
    /// The identifier.
    id: String,
    /// What somebody called it.
    name: Option<String>,
    /// What it is.
    description: Option<String>,
    /// Pairs of the application.
    metadata: BTreeMap<String, String>,
    /// Limits of its own, by name; for all others the server's hold.
    quotas: BTreeMap<String, u64>,
    /// The most requests per second; null where the server's limit holds.
    requests_per_second: Option<u32>,
    /// The most events per second; null where the server's limit holds.
    events_per_second: Option<u32>,
    /// When it was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl TenantView {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        let details = &tenant.details;
        TenantView {
            id: tenant.id.to_string(),
            name: tenant.name.clone(),
            description: details.description.clone(),
            metadata: details.metadata.pairs().clone(),
            quotas: details.quotas.clone(),
            requests_per_second: details.requests_per_second,
            events_per_second: details.events_per_second,
            created_at: tenant.created_at,
        }
    }
}
