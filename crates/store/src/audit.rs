//! The audit log: who changed what, in which tenant, when, from where, and with which outcome.
//!
//! An entry is written once it is known how a change ended. **It never holds a secret or a payload**:
//! only names and identifiers. Entries are ordered by their identifiers, which begin with the time.

use async_trait::async_trait;
use postrider_domain::ids::{AuditId, TenantId};
use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::records::{Page, PageRequest};

/// One line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// The entry's identifier. It begins with the time at which the change ended.
    pub id: AuditId,
    /// When the change ended.
    pub at: Timestamp,
    /// The tenant of the changed thing; `None` where it belongs to no tenant.
    pub tenant: Option<TenantId>,
    /// Who did it.
    pub actor: Actor,
    /// What was done, by its stable name, such as `subscription.create`.
    pub action: String,
    /// The kind of the target, such as `subscription`.
    pub target_kind: String,
    /// The identifier of the target; `None` where nothing was created.
    pub target: Option<String>,
    /// The address that the request came from.
    pub address: Option<String>,
    /// The HTTP status of the answer; `None` for a change by the server itself.
    pub status: Option<u16>,
    /// The code of the problem document, where the change was refused or failed.
    pub problem: Option<String>,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The kind of actor.
    pub kind: ActorKind,
    /// The key's identifier; the name of `kind` where the actor is not a key.
    pub id: String,
    /// The display name of the key.
    pub name: Option<String>,
}

/// The kinds of actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// An API key.
    Key,
    /// The admin key that the operator set in an environment variable.
    Environment,
    /// The server itself.
    Server,
}

impl ActorKind {
    /// The stable name of the kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            ActorKind::Key => "key",
            ActorKind::Environment => "environment",
            ActorKind::Server => "server",
        }
    }
}

impl AuditEntry {
    /// Whether the change was refused: nothing was changed.
    pub fn is_refused(&self) -> bool {
        self.status.is_some_and(|status| (400..500).contains(&status))
    }
}

/// Selects entries of the audit log; every condition that is set must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Entries of this tenant; `None` selects entries of all tenants and of none.
    pub tenant: Option<TenantId>,
    /// Entries by the actor with this identifier.
    pub actor: Option<String>,
    /// Entries with this action.
    pub action: Option<String>,
    /// Entries about the target with this identifier.
    pub target: Option<String>,
    /// Entries at this time or later.
    pub since: Option<Timestamp>,
    /// Entries before this time.
    pub until: Option<Timestamp>,
}

impl AuditFilter {
    /// The range of identifiers that the filter's times allow, its end excluded. Where `below` is
    /// given, the range ends there: that is the last entry of the page before.
    pub fn bounds(&self, below: Option<AuditId>) -> ([u8; 16], [u8; 16]) {
        let low = self.since.map_or([0; 16], first_at);
        let high = self.until.map_or([u8::MAX; 16], first_at);
        (low, below.map_or(high, |below| high.min(*below.as_bytes())))
    }

    /// Whether an entry meets the filter. The times are not checked here, see
    /// [`AuditFilter::bounds`].
    pub fn wants(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        self.tenant.as_ref().is_none_or(|tenant| entry.tenant.as_ref() == Some(tenant))
            && is(&self.actor, Some(&entry.actor.id))
            && is(&self.action, Some(&entry.action))
            && is(&self.target, entry.target.as_deref())
    }
}

/// The lowest identifier that an entry of this time can have.
pub(crate) fn first_at(at: Timestamp) -> [u8; 16] {
    let ms = u64::try_from(at.as_unix_ms()).unwrap_or(0).min((1 << 48) - 1);
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
    bytes
}

/// The audit log.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Writes an entry, or replaces the one with its identifier.
    async fn put_audit(&self, entry: &AuditEntry) -> Result<(), StoreError>;
    /// Entries that a filter wants, newest first.
    async fn audit(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError>;
    /// Removes entries that are older than `before`. Of each tenant it also removes the oldest
    /// entries beyond `most`, and the oldest refused ones beyond `refused_most`. Entries without a
    /// tenant count as one more tenant. Returns how many were removed.
    async fn prune_audit(
        &self,
        before: Timestamp,
        most: u64,
        refused_most: u64,
    ) -> Result<u64, StoreError>;
}
