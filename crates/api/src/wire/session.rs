//! Signing in, and who is signed in, as JSON.

use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::portal::ThemeView;
use crate::body::SecretText;

/// Who wants to sign in: exactly one of `key` and `token`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SignIn)]
pub(crate) struct SignInBody {
    /// A key.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "pr_0a1b2c3d4e5f6071_…")]
    pub(crate) key: Option<SecretText>,
    /// The token of a sign-in link or a portal link, which works once.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub(crate) token: Option<SecretText>,
    /// For portal links: answer with a token for `Authorization: Bearer`, to be held in memory, and set no
    /// cookie. For a page in a frame of another site, where browsers keep cookies away.
    #[serde(default)]
    pub(crate) in_memory: bool,
}

/// A session whose token is held in memory.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionToken {
    /// Send it as `Authorization: Bearer`. It is not shown again.
    #[schema(example = "ps_…")]
    pub(crate) token: String,
    /// When the session ends.
    #[schema(value_type = String, format = DateTime)]
    pub(crate) expires_at: Timestamp,
}

/// Who is signed in.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct SessionView {
    /// Null for an admin key, which is for all tenants: name one by `postrider-tenant`.
    pub(crate) tenant: Option<String>,
    /// What may be done.
    pub(crate) scopes: Vec<&'static str>,
    /// `key`, or `portal` where a portal link was used.
    #[schema(example = "key")]
    pub(crate) kind: &'static str,
    /// When the session ends; null where the request came with a key, not with a session.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub(crate) expires_at: Option<Timestamp>,
    /// How the portal looks; null where this is none.
    pub(crate) theme: Option<ThemeView>,
}
