//! Entries of the audit log in the API.

use postrider_domain::time::Timestamp;
use postrider_store::AuditEntry;
use serde::Serialize;
use utoipa::ToSchema;

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct AuditView {
    /// The identifier of the entry.
    #[schema(example = "aud_019a86d99e3877078707070707070707")]
    id: String,
    /// When the change ended.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// The tenant of the target; null if it has none.
    tenant: Option<String>,
    /// `key`, `environment` (the admin key of the environment) or `server`.
    #[schema(example = "key")]
    actor: &'static str,
    /// The key's identifier; otherwise `environment`, `server`, or `operator` for actions at the
    /// machine.
    key: String,
    /// The display name of the key.
    key_name: Option<String>,
    /// The action.
    #[schema(example = "subscription.create")]
    action: String,
    /// The kind of the target.
    #[schema(example = "subscription")]
    target_kind: String,
    /// The identifier of the target; null if nothing was created.
    target: Option<String>,
    /// The address that the request came from.
    address: Option<String>,
    /// The status of the answer; null for a change without a request.
    #[schema(example = 201)]
    status: Option<u16>,
    /// The code of the problem, if it was refused or failed.
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
