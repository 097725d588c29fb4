//! The JSON that the store keeps in the body of a pass, for sessions and for links. **It holds no
//! secret**: only keyed hashes of tokens.

use postrider_domain::access::Scope;
use postrider_domain::time::Timestamp;
use postrider_store::{Pass, PassKind};
use serde::{Deserialize, Serialize};

/// The right that a session has, or that a link gives to the session it opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Grant {
    /// An API key: the session has the scopes that the key has now.
    Key {
        /// The public part of the key.
        id: String,
    },
    /// The admin key that the operator set in the configuration. The session ends when the operator
    /// sets another one.
    Given {
        /// Derived from the hash of that key; it differs for every key.
        mark: String,
    },
    /// The portal of one tenant.
    Portal {
        /// The identifier of the portal link that opened the session.
        link: String,
        /// Whether the session may only read, or also change things.
        access: Access,
    },
}

/// What the session of a portal link may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Access {
    /// Read everything that a portal shows.
    Read,
    /// Read, and change subscriptions, destinations and deliveries, never what is sent: see
    /// [`super::Session::permits`].
    Manage,
}

impl Access {
    /// The scopes of a portal session with this access. Never `ingest` and never `admin`.
    pub(crate) const fn scopes(self) -> &'static [Scope] {
        match self {
            Access::Read => &[Scope::Read],
            Access::Manage => &[Scope::Manage, Scope::Read],
        }
    }

    /// The word in JSON: `read` or `manage`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Manage => "manage",
        }
    }
}

/// The appearance of a portal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Theme {
    pub(crate) name: Option<String>,
    /// The identifier of the logo.
    pub(crate) logo: Option<String>,
    /// A colour as `#rrggbb`.
    pub(crate) accent: Option<String>,
    pub(crate) mode: Option<Mode>,
}

/// The colour scheme of a portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Dark text on a light ground.
    Light,
    /// Light text on a dark ground.
    Dark,
}

impl Mode {
    /// The word in JSON: `light` or `dark`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Mode::Light => "light",
            Mode::Dark => "dark",
        }
    }
}

/// The body of a session's pass.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionBody {
    pub(super) hash: String,
    pub(super) grant: Grant,
    /// Whether a script holds the session's token and sends it as a bearer token. Such a token is
    /// never accepted from a cookie.
    pub(super) in_memory: bool,
}

/// The body of a link's pass.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkBody {
    pub(super) hash: String,
    pub(super) grant: Grant,
    /// Until when the link can be used. Its pass is kept longer: as long as the session that it
    /// opened may last.
    pub(crate) usable_until: Timestamp,
    pub(crate) theme: Theme,
}

impl SessionBody {
    pub(super) fn of(pass: &Pass) -> Option<Self> {
        let is_session = pass.kind == PassKind::Session;
        serde_json::from_slice(&pass.body).ok().filter(|_| is_session)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl LinkBody {
    pub(crate) fn of(pass: &Pass) -> Option<Self> {
        let is_link = matches!(pass.kind, PassKind::SignInLink | PassKind::PortalLink);
        serde_json::from_slice(&pass.body).ok().filter(|_| is_link)
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What the portal session of this link may do; `None` if the link opens no portal.
    pub(crate) fn access(&self) -> Option<Access> {
        match self.grant {
            Grant::Portal { access, .. } => Some(access),
            Grant::Key { .. } | Grant::Given { .. } => None,
        }
    }
}
