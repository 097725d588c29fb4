//! Entries of the audit log, as they are shown.

use postrider_domain::time::Timestamp;
use postrider_store::AuditEntry;
use serde::Serialize;
use utoipa::ToSchema;

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditView {
    #[schema(example = "aud_019a86d99e3877078707070707070707")]
    id: String,
    /// When the change ended.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Whose thing it was about; null where it is no tenant's.
    tenant: Option<String>,
    /// `key`, `environment` (the admin key of the environment) or `server`.
    #[schema(example = "key")]
    actor: &'static str,
    /// The key's identifier; where it was no key: `environment`, `server`, or `operator` for what the
    /// operator did at the machine.
    key: String,
    /// What people call the key.
    key_name: Option<String>,
    /// What was done.
    #[schema(example = "subscription.create")]
    action: String,
    /// To what kind of thing.
    #[schema(example = "subscription")]
    target_kind: String,
    /// To which one; null where nothing came to be.
    target: Option<String>,
    /// The address that the request came from.
    address: Option<String>,
    /// The status of the answer; null for what no request asked for.
    #[schema(example = 201)]
    status: Option<u16>,
    /// The code of the problem, where it was refused or failed.
    problem: Option<String>,
}

impl AuditView {
    pub(crate) fn of(entry: AuditEntry) -> Self {
        AuditView {
            id: entry.id.to_string(),
            at: entry.at,
            tenant: entry.tenant.map(|tenant| tenant.to_string()),
            actor: entry.actor.kind.as_str(),
            key: entry.actor.id,
            key_name: entry.actor.name,
            action: entry.action,
            target_kind: entry.target_kind,
            target: entry.target,
            address: entry.address,
            status: entry.status,
            problem: entry.problem,
        }
    }
}
