//! Links that can be exchanged for a session, once: the sign-in link that a server prints at its
//! start, and portal links.

use std::time::Duration;

use postrider_domain::access::Scope;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Pass, PassKind, PassLimits, PassPut, StoreError};
use zeroize::Zeroizing;

use super::grant::{Access, Grant, LinkBody, Theme};
use super::{behind, full, token};
use crate::auth::Identity;
use crate::draw::Draw;
use crate::problem::{Code, Problem};
use crate::random::NoRandomness;
use crate::state::ApiState;

/// How long a sign-in link can be used.
pub const SIGN_IN_LINK_LIFETIME: Duration = Duration::from_secs(600);
/// The most sign-in links of one key, and of all keys: one for each start, and a few more.
const SIGN_IN_LINKS: PassLimits = PassLimits { of_owner: 16, in_total: 1_000 };

/// Why no sign-in link could be made.
#[derive(Debug, thiserror::Error)]
pub enum SignInLinkError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system gave no random bytes for the token.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// The limit of sign-in links is reached.
    #[error("there are too many sign-in links: they expire after ten minutes")]
    Full,
}

/// The token of a new link that signs in as an admin key, once; `None` if there is no admin key.
/// The key is the one that the operator set in the configuration, else the oldest one in the store.
pub async fn sign_in_token(state: &ApiState) -> Result<Option<Zeroizing<String>>, SignInLinkError> {
    let now = state.now();
    let (grant, owner) = match state.given_admin() {
        Some(given) => {
            let mark = given.mark(state.vault());
            (Grant::Given { mark }, crate::auth::GivenAdmin::KEY_ID.to_owned())
        }
        None => match oldest_admin_key(state, now).await? {
            Some(id) => (Grant::Key { id: id.clone() }, id),
            None => return Ok(None),
        },
    };
    let token = token::new(state.vault(), token::LINK, token::LINK_ID, &Draw::default())?;
    let usable_until = now.saturating_add(SIGN_IN_LINK_LIFETIME);
    let body = LinkBody { hash: token.hash, grant, usable_until, theme: Theme::default() };
    let pass = Pass {
        id: token.id,
        kind: PassKind::SignInLink,
        owner,
        tenant: None,
        created_at: now,
        expires_at: usable_until,
        used_at: None,
        body: body.bytes(),
    };
    match state.store().put_pass(&pass, SIGN_IN_LINKS).await? {
        PassPut::Stored => Ok(Some(token.text)),
        PassPut::Full => Err(SignInLinkError::Full),
    }
}

async fn oldest_admin_key(state: &ApiState, now: Timestamp) -> Result<Option<String>, StoreError> {
    let mut page = postrider_store::PageRequest { limit: 1000, cursor: None };
    let mut oldest = None;
    loop {
        let found = state.store().keys(None, &page).await?;
        let usable = found.items.into_iter().filter(|key| {
            key.scopes.contains(&Scope::Admin) && key.expires_at.is_none_or(|at| now < at)
        });
        oldest = usable.last().map(|key| key.id).or(oldest);
        page.cursor = found.next;
        if page.cursor.is_none() {
            return Ok(oldest);
        }
    }
}

/// The settings of a portal link that is to be made.
pub(crate) struct NewPortalLink {
    pub(crate) tenant: TenantId,
    pub(crate) access: Access,
    pub(crate) expires_in: Duration,
    pub(crate) theme: Theme,
}

/// Makes a portal link: its pass, and its token, which is shown once.
pub(crate) async fn new_portal_link(
    state: &ApiState,
    wish: NewPortalLink,
    draw: &Draw,
) -> Result<(Pass, Zeroizing<String>), Problem> {
    let settings = state.settings();
    let now = draw.created_at(state);
    let token = token::new(state.vault(), token::LINK, token::LINK_ID, draw)?;
    let usable_until = now.saturating_add(wish.expires_in);
    let grant = Grant::Portal { link: token.id.clone(), access: wish.access };
    let body = LinkBody { hash: token.hash, grant, usable_until, theme: wish.theme };
    let pass = Pass {
        id: token.id,
        kind: PassKind::PortalLink,
        owner: wish.tenant.to_string(),
        tenant: Some(wish.tenant),
        created_at: now,
        expires_at: usable_until,
        used_at: None,
        body: body.bytes(),
    };
    let limits = PassLimits {
        of_owner: settings.tenant_portal_links_max,
        in_total: settings.portal_links_max,
    };
    match state.store().put_pass(&pass, limits).await? {
        PassPut::Stored => Ok((pass, token.text)),
        PassPut::Full => Err(full("portal links", settings.portal_links_max)),
    }
}

/// A link that was found by its token and can still be used.
pub(crate) struct Redeemable {
    id: String,
    pub(crate) grant: Grant,
    pub(crate) who: Identity,
}

/// Finds the link of a token, and checks that it can be used.
pub(crate) async fn find(
    state: &ApiState,
    token: &[u8],
    now: Timestamp,
) -> Result<Redeemable, Problem> {
    let unknown = || gone("is not valid, or was revoked");
    let (digits, secret) = token::parse(token::LINK, token).ok_or_else(unknown)?;
    let id = format!("{}{digits}", token::LINK_ID);
    let pass = state.store().pass(&id).await?.ok_or_else(unknown)?;
    let body = LinkBody::of(&pass).ok_or_else(unknown)?;
    if !token::is_secret_of(state.vault(), &id, secret, &body.hash) {
        return Err(unknown());
    }
    if pass.used_at.is_some() {
        return Err(used());
    }
    if now >= body.usable_until {
        return Err(gone("has expired"));
    }
    let who = behind(state, &body.grant, pass.tenant.as_ref(), now).await?;
    let who = who.ok_or_else(|| gone("belongs to a key that was revoked"))?;
    Ok(Redeemable { id, grant: body.grant, who })
}

/// Marks a link as used; fails if it was used before. Its pass stays in the store as long as its
/// session may last.
pub(crate) async fn redeem(
    state: &ApiState,
    link: &Redeemable,
    now: Timestamp,
) -> Result<(), Problem> {
    let keep_until = now.saturating_add(state.settings().session_lifetime);
    let is_first = state.store().use_pass(&link.id, now, keep_until).await?;
    state.passes().forget(&link.id);
    if is_first { Ok(()) } else { Err(used()) }
}

fn used() -> Problem {
    gone("was used already")
}

fn gone(why: &str) -> Problem {
    let detail =
        format!("this link {why}: each works once and for a short time; ask for a new one");
    Problem::new(Code::LinkGone, detail)
}
