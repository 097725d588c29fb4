//! Keys. The key itself is shown once, when it is created.

use postrider_domain::access::Scope;
use postrider_domain::time::Timestamp;
use postrider_store::Key;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::GivenAdmin;

/// A key to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub(crate) struct KeyBody {
    /// The tenant. By default a key with the scope `admin` is for all tenants, and any other is for
    /// the tenant of the request.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// The scopes: `ingest`, `manage`, `read`, `admin`.
    #[serde(default)]
    #[schema(value_type = Vec<String>, required = true)]
    pub(crate) scopes: Option<Vec<String>>,
    /// The display name.
    #[serde(default)]
    #[schema(max_length = 100)]
    pub(crate) name: Option<String>,
    /// When it stops working; by default never.
    #[serde(default)]
    #[schema(format = DateTime)]
    pub(crate) expires_at: Option<String>,
}

/// A key, without its secret text.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Key)]
pub(crate) struct KeyView {
    /// The public part of the key.
    id: String,
    /// The tenant; null for an admin key, which is for all tenants.
    tenant: Option<String>,
    /// What somebody called it.
    name: Option<String>,
    /// What it may do: `ingest`, `manage`, `read`, `admin`.
    scopes: Vec<&'static str>,
    /// When it was created; for the key of `POSTRIDER_ADMIN_KEY` when the server started.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it stops working; null for never.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// When it was last used, approximately.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
}

/// A key that was just created.
#[derive(Serialize, ToSchema)]
pub(crate) struct KeyCreated {
    #[serde(flatten)]
    pub(crate) view: KeyView,
    /// The key itself. It is not shown again.
    #[schema(example = "pr_0a1b2c3d4e5f6071_…")]
    pub(crate) key: String,
}

impl KeyView {
    /// The admin key that the operator chose, which this server has known since it started.
    pub(crate) fn given(started_at: Timestamp) -> Self {
        KeyView {
            id: GivenAdmin::KEY_ID.to_owned(),
            tenant: None,
            name: Some("POSTRIDER_ADMIN_KEY".to_owned()),
            scopes: vec![Scope::Admin.as_str()],
            created_at: started_at,
            expires_at: None,
            last_used_at: None,
        }
    }

    pub(crate) fn of(key: &Key) -> Self {
        KeyView {
            id: key.id.clone(),
            tenant: key.tenant.as_ref().map(ToString::to_string),
            name: key.name.clone(),
            scopes: key.scopes.iter().map(|scope| scope.as_str()).collect(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            last_used_at: key.last_used_at,
        }
    }
}
