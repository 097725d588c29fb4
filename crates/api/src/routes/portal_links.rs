//! Links to the portal of a tenant, for the customers of the application, and the logos that
//! portals show.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use postrider_store::PassKind;

use super::PathId;
use super::subscriptions::PageQuery;
use crate::auth::{CanManage, CanRead};
use crate::body::Strict;
use crate::draw::Draw;
use crate::paging::{List, ListOf, Query, page};
use crate::problem::{Problem, ProblemBody};
use crate::session::link::{NewPortalLink, new_portal_link};
use crate::session::origin::OwnOrigin;
use crate::session::{Access, Mode, Theme, logo};
use crate::settings::{LINK_SECONDS, LINK_SECONDS_DEFAULT};
use crate::state::ApiState;
use crate::wire::check_text;
use crate::wire::portal::{PortalLinkBody, PortalLinkCreated, PortalLinkView, ThemeBody};

const NAME_CHARS_MAX: usize = 100;
/// Cached by browsers without asking again: a logo's identifier is a hash of its bytes.
const FOR_A_DAY: HeaderValue = HeaderValue::from_static("public, max-age=86400, immutable");

/// Create a portal link
///
/// A link that opens the portal of the request's tenant, once, and without a key. The session that it opens
/// sees this tenant only, and never keys, tenants, the audit log or portal links. Needs the scopes `manage`
/// and `read`.
#[utoipa::path(
    post, path = "/v1/portal-links", tag = "portal",
    request_body = PortalLinkBody,
    responses((status = 201, body = PortalLinkCreated, description = "Created"))
)]
pub(crate) async fn create(
    State(state): State<ApiState>,
    // The portal can read, so its creator must have the scope `read` too.
    _: CanRead,
    CanManage(caller): CanManage,
    own: OwnOrigin,
    draw: Draw,
    Strict(body): Strict<PortalLinkBody>,
) -> Result<(StatusCode, Json<PortalLinkCreated>), Problem> {
    let access = match body.access.as_deref() {
        None => return Err(Problem::missing("access")),
        Some("read") => Access::Read,
        Some("manage") => Access::Manage,
        Some(_) => return Err(Problem::field("access", "`read` or `manage`")),
    };
    let seconds = body.expires_in.unwrap_or(LINK_SECONDS_DEFAULT);
    if !LINK_SECONDS.contains(&seconds) {
        let why = format!("{} to {} seconds", LINK_SECONDS.start(), LINK_SECONDS.end());
        return Err(Problem::field("expires_in", why));
    }
    let expires_in = Duration::from_secs(seconds);
    let (mut theme, picture) = checked(body.theme.unwrap_or_default())?;
    if let Some(picture) = picture {
        let now = draw.created_at(&state);
        let kept = logo::keep(&state, &caller.tenant, picture, now, expires_in).await?;
        theme.logo = Some(kept);
    }
    let wish = NewPortalLink { tenant: caller.tenant, access, expires_in, theme };
    let (pass, token) = new_portal_link(&state, wish, &draw).await?;
    let view = PortalLinkView::of(&pass).ok_or_else(Problem::internal)?;
    let base = state.settings().public_url.as_ref().map_or(own.0.as_str(), |url| url.as_str());
    let url = format!("{base}/portal#/signin?token={}", *token);
    Ok((StatusCode::CREATED, Json(PortalLinkCreated { view, url })))
}

/// A theme without its logo, and the logo.
fn checked(body: ThemeBody) -> Result<(Theme, Option<Vec<u8>>), Problem> {
    let name = check_text("theme.name", body.name, NAME_CHARS_MAX)?;
    let accent = body.accent.map(|accent| {
        let is_colour = accent
            .strip_prefix('#')
            .is_some_and(|rest| rest.len() == 6 && rest.bytes().all(|b| b.is_ascii_hexdigit()));
        let wrong = || Problem::field("theme.accent", "a colour such as #0a7d4b");
        is_colour.then(|| accent.to_ascii_lowercase()).ok_or_else(wrong)
    });
    let mode = body.mode.map(|mode| match mode.as_str() {
        "light" => Ok(Mode::Light),
        "dark" => Ok(Mode::Dark),
        _ => Err(Problem::field("theme.mode", "`light` or `dark`")),
    });
    let (accent, mode) = (accent.transpose()?, mode.transpose()?);
    let picture = body.logo.as_deref().map(logo::decode).transpose()?;
    Ok((Theme { name, logo: None, accent, mode }, picture))
}

/// List portal links
///
/// Newest first, without the links themselves. One stays in the list until it has expired and the session
/// that it opened has ended.
#[utoipa::path(
    get, path = "/v1/portal-links", tag = "portal", params(PageQuery),
    responses((status = 200, body = List<PortalLinkView>, description = "A page of portal links"))
)]
pub(crate) async fn list(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<PortalLinkView>>, Problem> {
    let list = ListOf { name: "portal-links", tenant: Some(&caller.tenant), filters: &[] };
    let asked = page(list, query.limit.as_deref(), query.cursor.as_deref())?;
    let kind = PassKind::PortalLink;
    let links = state.store().passes(&caller.tenant, kind, &asked.request).await?;
    let shown = List::try_of(&asked, links, |link| {
        PortalLinkView::of(&link).ok_or_else(Problem::internal)
    })?;
    Ok(Json(shown))
}

/// Revoke a portal link
///
/// It cannot be used any more, and the session that it opened ends; on other nodes of a cluster within
/// seconds.
#[utoipa::path(
    delete, path = "/v1/portal-links/{id}", tag = "portal",
    params(("id" = String, Path, description = "The portal link")),
    responses((status = 204, description = "Revoked"))
)]
pub(crate) async fn delete(
    State(state): State<ApiState>,
    CanManage(caller): CanManage,
    draw: Draw,
    id: PathId,
) -> Result<StatusCode, Problem> {
    let found = state.store().pass(&id.0).await?;
    let is_own = found.is_some_and(|pass| {
        pass.kind == PassKind::PortalLink && pass.tenant.as_ref() == Some(&caller.tenant)
    });
    let deleted = is_own && state.store().delete_pass(&id.0).await?;
    state.passes().forget(&id.0);
    // If an earlier request with the same idempotency key began, it may have deleted the link.
    let is_gone = deleted || draw.repeats().is_some();
    if is_gone { Ok(StatusCode::NO_CONTENT) } else { Err(id.unknown("portal link")) }
}

/// Show the logo of a portal
///
/// The picture that came with a portal link, as it is.
#[utoipa::path(
    get, path = "/portal/logos/{id}", tag = "portal", security(()),
    params(("id" = String, Path, description = "The logo")),
    responses(
        (status = 200, content_type = "image/png", body = String, description = "A PNG, JPEG or WebP"),
        (status = 404, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `not_found`"),
        (status = 503, body = ProblemBody, content_type = "application/problem+json", description = "A problem: `unavailable`")
    )
)]
pub(crate) async fn show_logo(
    State(state): State<ApiState>,
    id: PathId,
) -> Result<Response, Problem> {
    let (kind, bytes) =
        logo::find(&state, &id.0).await?.ok_or_else(|| id.unknown("logo of a portal"))?;
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, FOR_A_DAY);
    Ok(response)
}
