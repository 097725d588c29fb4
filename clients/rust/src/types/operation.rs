//! Tenants, keys, replays, figures, and the audit log.

use std::collections::BTreeMap;
use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::Fields;
use crate::secret::Secret;

/// One customer of the application that sends the events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tenant {
    /// When it was created.
    pub created_at: Timestamp,
    /// A longer text.
    pub description: Option<String>,
    /// The most events per second; absent where the server's limit holds.
    pub events_per_second: Option<u32>,
    /// Its identifier.
    pub id: String,
    /// Pairs of the application's own.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// The display name.
    pub name: Option<String>,
    /// Limits of its own, by the names of `GET /v1/limits`.
    #[serde(default)]
    pub quotas: BTreeMap<String, u64>,
    /// The most requests per second; absent where the server's limit holds.
    pub requests_per_second: Option<u32>,
}

/// A tenant to be created.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewTenant {
    /// A longer text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The most events per second, instead of the server's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_second: Option<u32>,
    /// 1 to 64 lowercase letters, digits, `-` and `_`.
    pub id: String,
    /// Pairs of the application's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Limits of its own, by the names of `GET /v1/limits`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<String, u64>,
    /// The most requests per second, instead of the server's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u32>,
}

/// Fields of a tenant to be changed. What is not named stays as it is; `None` removes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct TenantChange {
    fields: Fields,
}

impl TenantChange {
    /// A change of nothing.
    pub fn new() -> TenantChange {
        TenantChange::default()
    }

    fn set(self, name: &'static str, value: impl Into<Value>) -> TenantChange {
        TenantChange { fields: self.fields.with(name, value) }
    }

    /// Changes the display name.
    #[must_use]
    pub fn name(self, name: Option<&str>) -> TenantChange {
        self.set("name", name)
    }

    /// Changes the longer text.
    #[must_use]
    pub fn description(self, description: Option<&str>) -> TenantChange {
        self.set("description", description)
    }

    /// Replaces all pairs of the operator's own.
    #[must_use]
    pub fn metadata(self, metadata: &BTreeMap<String, String>) -> TenantChange {
        self.set("metadata", json!(metadata))
    }

    /// Replaces all limits of its own, by the names of `GET /v1/limits`.
    #[must_use]
    pub fn quotas(self, quotas: &BTreeMap<String, u64>) -> TenantChange {
        self.set("quotas", json!(quotas))
    }

    /// Changes the most requests per second.
    #[must_use]
    pub fn requests_per_second(self, limit: Option<u32>) -> TenantChange {
        self.set("requests_per_second", limit)
    }

    /// Changes the most events per second.
    #[must_use]
    pub fn events_per_second(self, limit: Option<u32>) -> TenantChange {
        self.set("events_per_second", limit)
    }
}

/// A key, without its secret text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Key {
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Its identifier.
    pub id: String,
    /// When it was last used, approximately.
    pub last_used_at: Option<Timestamp>,
    /// The display name.
    pub name: Option<String>,
    /// What it may do.
    pub scopes: Vec<String>,
    /// The tenant; absent for an admin key, which is for all tenants.
    pub tenant: Option<String>,
}

/// A key that was just created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct KeyCreated {
    /// What is known of it.
    #[serde(flatten)]
    pub about: Key,
    /// The key itself. It is not shown again.
    pub key: Secret,
}

impl Deref for KeyCreated {
    type Target = Key;

    fn deref(&self) -> &Key {
        &self.about
    }
}

/// A key to be created.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewKey {
    /// When it stops working; by default never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The scopes: `ingest`, `manage`, `read`, `admin`.
    pub scopes: Vec<String>,
    /// The tenant. By default a key with the scope `admin` is for all tenants, and any other is for
    /// the tenant of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

/// A bulk replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Replay {
    /// When it was created.
    pub created_at: Timestamp,
    /// How many deliveries it has replayed.
    pub done: u64,
    /// The deliveries that it replays.
    pub filter: ReplayFilter,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its identifier.
    pub id: String,
    /// What became of the deliveries that it sent. `None` if the server does not know, or is older.
    #[serde(default)]
    pub outcomes: Option<ReplayOutcomes>,
    /// The most in a second.
    pub per_second: Option<u32>,
    /// When it has finished: how many of `total` it did not send. They were on their way without
    /// it, had ended or been replayed meanwhile, their subscription was deleted, or their
    /// destination is frozen.
    pub skipped: Option<u64>,
    /// Where it stands.
    pub state: ReplayState,
    /// How many deliveries it will replay, as counted at the start.
    pub total: u64,
}

/// What became of the deliveries that a bulk replay sent; together they are as many as it sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayOutcomes {
    /// Dead.
    pub dead: u64,
    /// Delivered.
    pub delivered: u64,
    /// Attempted since, and each time it failed; they wait for their next slots.
    pub failed: u64,
    /// Not attempted since.
    pub pending: u64,
    /// Cancelled, or sent by a later bulk replay, before they were delivered or dead.
    pub withdrawn: u64,
}

/// Where a bulk replay stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReplayState {
    /// It sends.
    Running,
    /// It waits until somebody resumes it.
    Paused,
    /// It has ended.
    Finished,
    /// Somebody ended it.
    Cancelled,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// The deliveries that a job replays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayFilter {
    /// Of this destination.
    pub destination: Option<String>,
    /// Ended at this time or later.
    pub ended_since: Option<Timestamp>,
    /// From this time on.
    pub since: Option<Timestamp>,
    /// Where it stands.
    pub state: Option<String>,
    /// Of this subscription.
    pub subscription: Option<String>,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Before this time.
    pub until: Option<Timestamp>,
}

/// The deliveries to replay, and the rate.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct NewReplay {
    /// Deliveries to this destination.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Ended at or after: for dead ones, when they died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_since: Option<Timestamp>,
    /// At most so many a second; as fast as the lanes take them where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// Deliveries accepted at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// `dead` (default), `delivered` or `cancelled`: they are replayed. Or `waiting`: each is
    /// attempted once, as soon as its turn comes, without waiting for its slot, which stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Deliveries for this subscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// Deliveries of events of this type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Deliveries accepted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// `accepted = queued + in_flight + waiting + delivered + dead + cancelled`, always.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ledger {
    /// Accepted.
    pub accepted: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Dead.
    pub dead: u64,
    /// Delivered.
    pub delivered: u64,
    /// Being sent now.
    pub in_flight: u64,
    /// Waiting for the first attempt.
    pub queued: u64,
    /// Waiting for a retry.
    pub waiting: u64,
}

/// Statistics over time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Stats {
    /// How long deliveries took lately; absent where none arrived, or where the server is older.
    pub arrivals: Option<Arrivals>,
    /// One entry for each span, oldest first; spans in which nothing happened are zero.
    pub data: Vec<Span>,
    /// From this time on.
    pub since: Timestamp,
    /// The length of a span, in minutes.
    pub step_minutes: u32,
    /// Before this time.
    pub until: Timestamp,
}

/// The time from acceptance to arrival, of deliveries that arrived in the last five minutes at their
/// first attempt, at the node that answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Arrivals {
    /// How many arrived.
    pub count: u64,
    /// The time that half of them did not exceed. It may be off by a fifth, and so may the other.
    pub p50_ms: u64,
    /// The time that 99 of 100 did not exceed.
    pub p99_ms: u64,
}

/// The counts of one span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Span {
    /// Deliveries that were accepted.
    pub accepted: u64,
    /// The start of the span.
    pub at: Timestamp,
    /// Deliveries that became dead.
    pub dead: u64,
    /// Deliveries that succeeded.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
}

/// A limit and its current use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Limit {
    /// The limit; absent if there is none.
    pub limit: Option<u64>,
    /// The name of the limit.
    pub name: String,
    /// Whether it is the tenant's own, instead of the server's.
    #[serde(default)]
    pub own: bool,
    /// The operator's setting.
    pub setting: String,
    /// The current use. `unfinished_bytes` is an estimate.
    pub used: u64,
}

/// The most that a tenant may ask for in a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateLimit {
    /// The limit; absent if there is none.
    pub limit: Option<u32>,
    /// `requests_per_second` or `events_per_second`.
    pub name: String,
    /// Whether it is the tenant's own limit, and not the server's.
    pub own: bool,
    /// The operator's setting for all tenants.
    pub setting: String,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// The action.
    pub action: String,
    /// `key`, `environment` (the admin key of the environment) or `server`.
    pub actor: String,
    /// The address that the request came from.
    pub address: Option<String>,
    /// When the change ended.
    pub at: Timestamp,
    /// Its identifier.
    pub id: String,
    /// The key's identifier; otherwise `environment`, `server`, or `operator` for actions at the
    /// machine.
    pub key: String,
    /// The display name of the key.
    pub key_name: Option<String>,
    /// The code of the problem, if it was refused or failed.
    pub problem: Option<String>,
    /// The status of the answer; absent for a change without a request.
    pub status: Option<u16>,
    /// The identifier of the target; absent if nothing was created.
    pub target: Option<String>,
    /// The kind of the target.
    pub target_kind: String,
    /// The tenant of the target; absent if it has none.
    pub tenant: Option<String>,
}
