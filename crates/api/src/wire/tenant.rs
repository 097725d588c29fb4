//! Tenants.

use postrider_domain::time::Timestamp;
use postrider_store::Tenant;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    #[schema(max_length = 100)]
    pub(crate) name: Option<String>,
}

/// One customer of the application that sends the events.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenant)]
pub(crate) struct TenantView {
    id: String,
    name: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl TenantView {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        TenantView {
            id: tenant.id.to_string(),
            name: tenant.name.clone(),
            created_at: tenant.created_at,
        }
    }
}
