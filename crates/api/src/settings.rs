//! Every limit of the way in that an operator may turn, in one place. The hard walls are in
//! [`postrider_domain::limits`].

use std::time::Duration;

/// How the API behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiSettings {
    /// A body must be there within this time.
    pub body_deadline: Duration,
    /// A request must be answered within this time.
    pub request_deadline: Duration,
    /// Requests that one key may make; no limit where it is `None`.
    pub key_rate: Option<Rate>,
    /// Requests that all keys of one tenant together may make; no limit where it is `None`.
    pub tenant_rate: Option<Rate>,
    /// How long a key and a tenant are remembered before the store is asked again. A key that was
    /// deleted on another node goes on working for at most this long.
    pub key_memory: Duration,
    /// How often the last use of keys is written down.
    pub touch_every: Duration,
    /// How long the answer for an `Idempotency-Key` is kept.
    pub idempotency_memory: Duration,
    /// How often a stream that has nothing to say shows that it is alive.
    pub stream_heartbeat: Duration,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests in a second, in the long run.
    pub per_second: u32,
    /// Requests at once, after a pause.
    pub burst: u32,
}

impl Default for ApiSettings {
    fn default() -> Self {
        ApiSettings {
            body_deadline: Duration::from_secs(10),
            request_deadline: Duration::from_secs(30),
            key_rate: None,
            tenant_rate: None,
            key_memory: Duration::from_secs(5),
            touch_every: Duration::from_secs(60),
            idempotency_memory: Duration::from_secs(24 * 60 * 60),
            stream_heartbeat: Duration::from_secs(15),
        }
    }
}

/// Headers of one request; for the server that reads them.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// The request line and all headers of one request; for the server that reads them.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 * 1024;

/// A body that is not an event.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;
/// An `Idempotency-Key`.
pub(crate) const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
/// Keys and tenants that are remembered.
pub(crate) const REMEMBERED_MAX: usize = 100_000;
/// The name of a tenant or a key.
pub(crate) const NAME_CHARS_MAX: usize = 100;
/// A text in a query.
pub(crate) const CURSOR_CHARS_MAX: usize = 1024;
/// Spans in one answer of statistics.
pub(crate) const STATS_SPANS_MAX: u64 = 5_000;
/// The longest overlap of two signing secrets.
pub(crate) const OVERLAP_SECONDS_MAX: u64 = 30 * 24 * 60 * 60;
/// The overlap where none is named.
pub(crate) const OVERLAP_SECONDS_DEFAULT: u64 = 24 * 60 * 60;
/// The fastest pace of a replay.
pub(crate) const REPLAY_PER_SECOND_MAX: u32 = 100_000;
/// Streams that are open at the same time.
pub(crate) const STREAMS_MAX: usize = 1000;
