//! Portal links as JSON.

use postrider_domain::time::Timestamp;
use postrider_store::Pass;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::session::{Access, LinkBody, Mode, Theme};

/// A portal link to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPortalLink)]
pub(crate) struct PortalLinkBody {
    /// What may be done in the portal: `read`, or `manage`, which includes it.
    #[serde(default)]
    #[schema(value_type = String, required = true, example = "read")]
    pub(crate) access: Option<String>,
    /// For how many seconds the link can be used: 10 to 86400; 600 where it is left out.
    #[serde(default)]
    #[schema(minimum = 10, maximum = 86400)]
    pub(crate) expires_in: Option<u64>,
    /// How the portal looks.
    #[serde(default)]
    pub(crate) theme: Option<ThemeBody>,
}

/// How a portal is to look. Everything may be left out.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewTheme)]
pub(crate) struct ThemeBody {
    /// What stands in place of Postrider's name.
    #[serde(default)]
    #[schema(max_length = 100)]
    pub(crate) name: Option<String>,
    /// A PNG, JPEG or WebP of at most 32 KiB, in base64.
    #[serde(default)]
    pub(crate) logo: Option<String>,
    /// `#rrggbb`.
    #[serde(default)]
    #[schema(example = "#0a7d4b")]
    pub(crate) accent: Option<String>,
    /// `light` or `dark`; what the viewer prefers where it is left out.
    #[serde(default)]
    pub(crate) mode: Option<String>,
}

/// How a portal looks.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Theme)]
pub(crate) struct ThemeView {
    /// The name that is shown in place of Postrider's.
    name: Option<String>,
    /// The address of the logo, relative to the server's.
    #[schema(example = "portal/logos/lg_…")]
    logo: Option<String>,
    /// The colour of buttons and links, as `#rrggbb`.
    accent: Option<String>,
    /// `light` or `dark`.
    mode: Option<&'static str>,
}

impl ThemeView {
    pub(crate) fn of(theme: &Theme) -> Self {
        ThemeView {
            name: theme.name.clone(),
            logo: theme.logo.as_ref().map(|id| format!("portal/logos/{id}")),
            accent: theme.accent.clone(),
            mode: theme.mode.map(Mode::as_str),
        }
    }
}

/// A portal link, without the link itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PortalLink)]
pub(crate) struct PortalLinkView {
    /// The identifier, by which it is revoked.
    #[schema(example = "pl_0a1b2c3d4e5f6071")]
    id: String,
    /// Whose portal it opens.
    tenant: Option<String>,
    /// `read` or `manage`.
    access: Option<&'static str>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Until when it can be used.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// When it was used; null until then.
    #[schema(value_type = Option<String>, format = DateTime)]
    used_at: Option<Timestamp>,
    /// When the session that it opened ends at the latest; null until it is used.
    #[schema(value_type = Option<String>, format = DateTime)]
    session_expires_at: Option<Timestamp>,
    /// How the portal looks.
    theme: ThemeView,
}

impl PortalLinkView {
    /// The view of a link; `None` if the pass is not a portal link.
    pub(crate) fn of(pass: &Pass) -> Option<Self> {
        let body = LinkBody::of(pass)?;
        Some(PortalLinkView {
            id: pass.id.clone(),
            tenant: pass.tenant.as_ref().map(ToString::to_string),
            access: body.access().map(Access::as_str),
            created_at: pass.created_at,
            expires_at: body.usable_until,
            used_at: pass.used_at,
            session_expires_at: pass.used_at.map(|_| pass.expires_at),
            theme: ThemeView::of(&body.theme),
        })
    }
}

/// A portal link that was just made.
#[derive(Serialize, ToSchema)]
pub(crate) struct PortalLinkCreated {
    #[serde(flatten)]
    pub(crate) view: PortalLinkView,
    /// The link. It works once and is not shown again.
    #[schema(example = "https://hooks.example.com/portal#/signin?token=pt_…")]
    pub(crate) url: String,
}
