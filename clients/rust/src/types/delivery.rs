//! Deliveries and their attempts.

use std::ops::Deref;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeliveryState {
    /// Waiting for its first attempt.
    Queued,
    /// Being sent now.
    InFlight,
    /// Waiting for a retry, or for its destination.
    Waiting,
    /// Arrived: the receiver answered with 2xx.
    Delivered,
    /// Given up; kept, and it can be replayed.
    Dead,
    /// Ended by somebody.
    Cancelled,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// One event owed to one subscription.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Delivery {
    /// The tenant, in lists of all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// How often it was attempted, probes and replays included.
    pub attempts: u32,
    /// When it was created.
    pub created_at: Timestamp,
    /// The destination.
    pub destination_id: String,
    /// The event.
    pub event_id: String,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// What the receiver sees as `webhook-id`.
    pub id: String,
    /// When it is attempted next, if the destination allows it.
    pub next_attempt_at: Option<Timestamp>,
    /// The reason, if it is dead or cancelled.
    pub reason: Option<String>,
    /// Where it stands.
    pub state: DeliveryState,
    /// The subscription.
    pub subscription_id: String,
    /// The type of the event.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A delivery with its attempts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeliveryDetail {
    /// The delivery.
    #[serde(flatten)]
    pub delivery: Delivery,
    /// The attempts, oldest first.
    pub attempt_log: Vec<Attempt>,
    /// Give this as `cursor` to `/v1/deliveries/{id}/attempts` to get the attempts that are not in
    /// `attempt_log`; absent if it has all of them.
    pub attempt_log_cursor: Option<String>,
    /// The slots that it follows; absent where the server is too old to say so.
    pub schedule: Option<Schedule>,
}

impl Deref for DeliveryDetail {
    type Target = Delivery;

    fn deref(&self) -> &Delivery {
        &self.delivery
    }
}

/// The schedule that a delivery follows, or followed last: a replay begins a new one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Schedule {
    /// When an attempt is made that somebody asked for before the next slot; it takes no slot.
    pub asked_for_at: Option<Timestamp>,
    /// Whether that is known. False before the first attempt, and where a replay that has ended had
    /// none.
    pub exact: bool,
    /// Whether its subscription has a schedule of its own.
    #[serde(default)]
    pub own_policy: bool,
    /// Whether it began with a replay.
    pub replay: bool,
    /// Slot 0, the first attempt, then one for each retry. Probes and attempts that somebody asked
    /// for take no slot: `attempt_log` has them.
    pub slots: Vec<ScheduleSlot>,
    /// What the slots are counted from: the first attempt, else acceptance or the replay.
    pub started_at: Timestamp,
}

/// One slot of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ScheduleSlot {
    /// The number of the attempt that was made in it.
    pub attempt: Option<u32>,
    /// When it falls or fell due, by the policy as it is now.
    pub due_at: Timestamp,
    /// Retry n; 0 for the first attempt.
    pub number: u32,
    /// Where it stands.
    pub state: SlotState,
}

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SlotState {
    /// An attempt was made in it and arrived.
    Delivered,
    /// An attempt was made in it and failed.
    Failed,
    /// It passed without an attempt.
    Spent,
    /// An attempt of it is being made.
    InFlight,
    /// It is the next one.
    Next,
    /// It is to come.
    Ahead,
    /// It is not needed any more.
    Unneeded,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// Whether a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It arrived.
    Delivered,
    /// It failed.
    Failed,
    /// A word that this version of the client does not know.
    #[serde(other)]
    Unknown,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestOutcome {
    /// For admin keys only: details about the cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The class of the failure: `status 500`, `refused`, `reset`, `dns`, `tls`, `timeout
    /// (connect)`, `blocked`, `protocol`, or a fault of our own.
    pub error: Option<String>,
    /// Whether it arrived.
    pub outcome: AttemptOutcome,
    /// The first 16 KiB of the response's body.
    pub response_body: Option<String>,
    /// Whether `response_body` is the whole body: `whole`, `cut`, `late` or `broken`.
    pub response_body_end: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// The status of the response; absent if there was none.
    pub status: Option<u16>,
    /// How long each phase took.
    pub timings: Timings,
}

/// How long each phase took, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timings {
    /// Connecting.
    pub connect_ms: Option<u64>,
    /// The connection: `fresh`, `reused` or `resent`.
    pub connection: String,
    /// Resolving the name.
    pub dns_ms: Option<u64>,
    /// From the request to the answer.
    pub response_ms: Option<u64>,
    /// The TLS handshake.
    pub tls_ms: Option<u64>,
}

/// One HTTP request made for a delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// How the request ended.
    #[serde(flatten)]
    pub result: RequestOutcome,
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The number of the retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<u32>,
    /// `first`, `retry`, `probe`, or `manual` if somebody requested it.
    pub turn: String,
}

impl Deref for Attempt {
    type Target = RequestOutcome;

    fn deref(&self) -> &RequestOutcome {
        &self.result
    }
}

/// The explanation of a delivery, as sentences and data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The reasons, one sentence each.
    pub because: Vec<String>,
    /// The delivery.
    pub delivery: Delivery,
    /// What happens next; absent if nothing happens by itself.
    pub next: Option<NextStep>,
    /// The slot that it waits for; absent where it waits for none.
    pub slot: Option<RetryPlace>,
    /// What a due delivery waits for; absent if it is not due, or another node sends it.
    pub standing: Option<Standing>,
    /// The state in a sentence.
    pub summary: String,
    /// What a person can do about it; empty if nothing is needed.
    pub unblock: Vec<Unblock>,
}

/// What happens next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NextStep {
    /// When it happens; absent if that does not depend on time.
    pub at: Option<Timestamp>,
    /// What, in a sentence.
    pub what: String,
}

/// Which retry of how many.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryPlace {
    /// When its slot falls due. An attempt that somebody asked for comes before it and takes no
    /// slot.
    pub due_at: Timestamp,
    /// How many retries there are.
    pub max: u32,
    /// Retry n; 0 for the first attempt of a replay.
    pub number: u32,
}

/// What a due delivery waits for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Standing {
    /// Deliveries to the same destination that are sent before it; a lower bound if `stored` is
    /// true.
    pub ahead: u64,
    /// Whether it is still only in the store, behind all deliveries in memory.
    pub stored: bool,
    /// What the first delivery of the queue waits for.
    pub waits_for: Vec<Wait>,
}

/// One reason for waiting. Fields that do not belong to the reason are null.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Wait {
    /// When the next request may be sent; absent if that is not known.
    pub at: Option<Timestamp>,
    /// Destinations of its tenant that are served before it.
    pub destinations: Option<u64>,
    /// Attempts, or bytes, in flight.
    pub in_flight: Option<u64>,
    /// The limit.
    pub limit: Option<u64>,
    /// Requests per second.
    pub per_second: Option<f64>,
    /// `destination_limit`, `destination_rate`, `tenant_limit`, `tenant_bytes`, `total_limit`,
    /// `turn` or `pause`.
    pub reason: String,
    /// Tenants that are served before it.
    pub tenants: Option<u64>,
    /// The reason as a sentence.
    pub what: String,
}

/// An action that would help.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Unblock {
    /// `fix_receiver`, `enable_destination`, `retry`, `replay` or `resubscribe`.
    pub action: String,
    /// What, in a sentence.
    pub what: String,
}

/// A request to a receiver. Its secrets are masked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentRequest {
    /// The body as text; what is not UTF-8 is replaced.
    pub body: String,
    /// The size of the body.
    pub body_bytes: u64,
    /// Whether the subscription was changed after the attempt: what was sent may have had other
    /// headers or another format.
    pub changed_since: bool,
    /// In the order in which they are sent over HTTP/1.1. Tokens, signatures and the values of
    /// a subscription's own headers are masked.
    pub headers: Vec<SentHeader>,
    /// Always `POST`.
    pub method: String,
    /// Always true: requests are not kept. This one is rendered again from the event, by the
    /// code that sends.
    pub rebuilt: bool,
    /// The URL.
    pub url: String,
}

/// One header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SentHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}
