//! What the store keeps of a session and of a link, as the JSON in the body of a pass. **No secret is in it**:
//! only keyed hashes.

use postrider_domain::access::Scope;
use postrider_domain::time::Timestamp;
use postrider_store::{Pass, PassKind};
use serde::{Deserialize, Serialize};

/// What a session or a link stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Grant {
    /// A key, with the scopes that it has.
    Key {
        /// Its public part.
        id: String,
    },
    /// The admin key that the operator chose, as long as it is this one.
    Given {
        /// Made of its hash.
        mark: String,
    },
    /// One tenant's portal.
    Portal {
        /// The link that opened it.
        link: String,
        /// What may be done in it.
        access: Access,
    },
}

/// What may be done in a portal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Access {
    /// Look.
    Read,
    /// Look, and change subscriptions, destinations and deliveries.
    Manage,
}

impl Access {
    /// The scopes of such a session. Never `ingest` and never `admin`.
    pub(crate) const fn scopes(self) -> &'static [Scope] {
        match self {
            Access::Read => &[Scope::Read],
            Access::Manage => &[Scope::Manage, Scope::Read],
        }
    }

    /// As it is written.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Manage => "manage",
        }
    }
}

/// How a portal looks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Theme {
    pub(crate) name: Option<String>,
    /// The identifier of the logo.
    pub(crate) logo: Option<String>,
    /// `#rrggbb`.
    pub(crate) accent: Option<String>,
    pub(crate) mode: Option<Mode>,
}

/// Light or dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Mode {
    /// As it is written.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Mode::Light => "light",
            Mode::Dark => "dark",
        }
    }
}

/// The body of a session.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionBody {
    pub(super) hash: String,
    pub(super) grant: Grant,
    /// Whether its token is held by a script and sent as a bearer token, and never a cookie.
    pub(super) in_memory: bool,
}

/// The body of a link.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkBody {
    pub(super) hash: String,
    pub(super) grant: Grant,
    /// Until when it can be used. Its pass lives longer, as long as the session that it opened.
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

    /// What may be done in the portal that it opens; `None` where it opens none.
    pub(crate) fn access(&self) -> Option<Access> {
        match self.grant {
            Grant::Portal { access, .. } => Some(access),
            Grant::Key { .. } | Grant::Given { .. } => None,
        }
    }
}
