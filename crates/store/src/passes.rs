//! Passes: what lets somebody in for a while without showing a key: a session, or a link that is exchanged
//! for one; and the logos of portal links, which live as long as these.
//!
//! The store does not know what is in a pass. **A pass holds no secret**: the layer above keeps a keyed hash
//! in its body. Passes are short-lived and are not moved to another store.

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;

use crate::error::StoreError;
use crate::records::{Page, PageRequest};

/// What lets somebody in for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Its identifier, which is no secret.
    pub id: String,
    /// What kind of pass it is.
    pub kind: PassKind,
    /// Whose limit it counts for, such as the identifier of the key that it was made with.
    pub owner: String,
    /// The tenant that it is for; `None` where it is for all of them.
    pub tenant: Option<TenantId>,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it may be removed.
    pub expires_at: Timestamp,
    /// When it was used; `None` until then.
    pub used_at: Option<Timestamp>,
    /// Everything else. Opaque here.
    pub body: Vec<u8>,
}

/// The kinds of passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PassKind {
    /// Somebody is signed in.
    Session,
    /// A link that signs in as a key, once.
    SignInLink,
    /// A link that opens the portal of a tenant, once.
    PortalLink,
    /// A picture that portals show.
    Logo,
}

impl PassKind {
    /// All of them.
    pub const ALL: [PassKind; 4] =
        [PassKind::Session, PassKind::SignInLink, PassKind::PortalLink, PassKind::Logo];

    /// The number that a store writes.
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

/// How many passes of a kind there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassLimits {
    /// Of one owner; the oldest give way to a new one. At least 1.
    pub of_owner: u64,
    /// Of all owners together.
    pub in_total: u64,
}

/// What became of a new pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassPut {
    /// The store has it.
    Stored,
    /// There are too many of its kind: nothing was written.
    Full,
}

/// Passes.
#[async_trait]
pub trait Passes: Send + Sync + 'static {
    /// Stores a new pass. One that has its identifier already stays as it is, but lives at least as long as
    /// the new one. Of an owner that has too many of the kind, the oldest are removed.
    async fn put_pass(&self, pass: &Pass, limits: PassLimits) -> Result<PassPut, StoreError>;
    /// The pass with this identifier, of any tenant: this is how a request finds its tenant.
    async fn pass(&self, id: &str) -> Result<Option<Pass>, StoreError>;
    /// Passes of one kind of a tenant, newest first.
    async fn passes(
        &self,
        tenant: &TenantId,
        kind: PassKind,
        page: &PageRequest,
    ) -> Result<Page<Pass>, StoreError>;
    /// Uses a pass, once: returns `false`, and writes nothing, where there is none, or where it was used
    /// before. It lives at least until `keep_until`.
    async fn use_pass(
        &self,
        id: &str,
        now: Timestamp,
        keep_until: Timestamp,
    ) -> Result<bool, StoreError>;
    /// Removes a pass; `false` where there is none.
    async fn delete_pass(&self, id: &str) -> Result<bool, StoreError>;
    /// Removes passes that expired before `before`. Returns how many.
    async fn prune_passes(&self, before: Timestamp) -> Result<u64, StoreError>;
}
