//! Passes: short-lived records of the API. A pass is a session, a link that can be exchanged for a
//! session, or the logo of a portal link, which is kept as long as the link.
//!
//! The store does not know what is in the body of a pass. **A pass holds no secret**: the API puts
//! only a keyed hash into the body. Passes are not moved to another store.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;

use crate::error::StoreError;
use crate::records::{Page, PageRequest};

/// A session, a link or a logo, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// The identifier, which is not a secret.
    pub id: String,
    /// The kind of pass.
    pub kind: PassKind,
    /// Whose limit the pass counts for, such as the identifier of the key that it was made with.
    pub owner: String,
    /// The tenant that the pass is for; `None` if it is for all tenants.
    pub tenant: Option<TenantId>,
    /// When the pass was made.
    pub created_at: Timestamp,
    /// From when on the pass may be removed.
    pub expires_at: Timestamp,
    /// When the pass was used; `None` until then.
    pub used_at: Option<Timestamp>,
    /// Everything else, as bytes that the store does not interpret.
    pub body: Vec<u8>,
}

/// The kinds of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassKind {
    /// A session: somebody is signed in.
    Session,
    /// A link that signs in as a key, once.
    SignInLink,
    /// A link that opens the portal of a tenant, once.
    PortalLink,
    /// A picture that a portal shows.
    Logo,
}

impl PassKind {
    /// All kinds.
    pub const ALL: [PassKind; 4] =
        [PassKind::Session, PassKind::SignInLink, PassKind::PortalLink, PassKind::Logo];

    /// The number that a store writes for this kind.
    pub(crate) const fn number(self) -> i16 {
        match self {
            PassKind::Session => 0,
            PassKind::SignInLink => 1,
            PassKind::PortalLink => 2,
            PassKind::Logo => 3,
        }
    }

    /// The kind with this number.
    pub(crate) fn of_number(number: i16) -> Option<PassKind> {
        PassKind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// How many passes of one kind there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassLimits {
    /// The most passes of one owner, at least 1. The oldest are removed for a new one.
    pub of_owner: u64,
    /// The most passes of all owners together.
    pub in_total: u64,
}

/// The result of storing a new pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassPut {
    /// The pass is stored.
    Stored,
    /// There are too many passes of its kind: nothing was written.
    Full,
}

/// The store of passes.
#[async_trait]
pub trait Passes: Send + Sync + 'static {
    /// Stores a new pass. If a pass with this identifier exists, it stays as it is, but is kept at
    /// least as long as the new one would be. If the owner has too many of the kind, its oldest are
    /// removed.
    async fn put_pass(&self, pass: &Pass, limits: PassLimits) -> Result<PassPut, StoreError>;
    /// Finds a pass of any tenant by its identifier: a request learns its tenant from the pass.
    async fn pass(&self, id: &str) -> Result<Option<Pass>, StoreError>;
    /// Passes of one kind of a tenant, newest first.
    async fn passes(
        &self,
        tenant: &TenantId,
        kind: PassKind,
        page: &PageRequest,
    ) -> Result<Page<Pass>, StoreError>;
    /// Marks a pass as used. Returns `false`, and writes nothing, if there is no such pass or it
    /// was used before. The pass is kept at least until `keep_until`.
    async fn use_pass(
        &self,
        id: &str,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Removes a pass; `false` if there is none.
    async fn delete_pass(&self, id: &str) -> Result<bool, StoreError>;
    /// Removes the passes that expired before this time. Returns how many.
    async fn prune_passes(&self, before: Timestamp) -> Result<u64, StoreError>;
}
