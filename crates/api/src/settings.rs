//! All limits of the API that an operator may change. The fixed limits are in
//! [`postrider_domain::limits`].

use std::time::Duration;

use postrider_domain::catalogue::Conducts;
use postrider_domain::forecast::Work;
use postrider_domain::limits::FILTER_STEPS_MAX;

pub use crate::web_origin::{InvalidOrigin, Origin, Origins};

use crate::budget::Quota;

const MIB: usize = 1024 * 1024;

/// The settings of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiSettings {
    /// The time limit for receiving a body.
    pub body_deadline: Duration,
    /// The time limit for answering a request.
    pub request_deadline: Duration,
    /// The rate limit of one key; `None` for no limit.
    pub key_rate: Option<Rate>,
    /// The rate limit of all keys of one tenant together; `None` for no limit.
    pub tenant_rate: Option<Rate>,
    /// How long keys and tenants are cached. A key that was deleted on another node keeps working
    /// for at most this long.
    pub key_memory: Duration,
    /// How often the last use of keys is written to the store.
    pub touch_every: Duration,
    /// How long the answer for an `Idempotency-Key` is stored.
    pub idempotency_memory: Duration,
    /// Stored answers for idempotency keys of one tenant; the oldest are removed.
    pub tenant_answers_max: u64,
    /// Bytes of these answers of one tenant; the oldest are removed.
    pub tenant_answer_bytes_max: u64,
    /// Entries of the audit log of one tenant; the oldest are removed.
    pub tenant_audit_max: u64,
    /// Entries for refused mutations of one tenant; the oldest are removed.
    pub tenant_audit_refused_max: u64,
    /// Concurrent mutations of one tenant.
    pub tenant_mutations_max: usize,
    /// Concurrent mutations of all tenants together.
    pub mutations_max: usize,
    /// How often an idle stream sends a comment.
    pub stream_heartbeat: Duration,
    /// How often the key of a stream is checked.
    pub stream_check: Duration,
    /// Open streams.
    pub streams: Quota,
    /// Concurrent requests.
    pub in_progress: Quota,
    /// How long a request waits for a permit before it is refused.
    pub in_progress_wait: Duration,
    /// Bytes of request bodies in memory.
    pub request_bytes: Quota,
    /// Bytes of answers that clients have not read yet.
    pub answer_bytes: Quota,
    /// How long a session lasts, whatever is done in it.
    pub session_lifetime: Duration,
    /// Sessions of one key; the oldest give way.
    pub key_sessions_max: u64,
    /// Sessions of all keys and portals.
    pub sessions_max: u64,
    /// Portal links of one tenant that can be used, or whose session lasts; the oldest give way.
    pub tenant_portal_links_max: u64,
    /// Portal links of all tenants.
    pub portal_links_max: u64,
    /// Where the portal may be framed.
    pub frame_ancestors: Origins,
    /// Where browsers reach this server; what the request for a link names unless set.
    pub public_url: Option<Origin>,
    /// What is done with events that do not fit the catalogue, where a tenant has made no choice.
    pub conducts: Conducts,
    /// The shortest time between two scrubs of the store's files after erasures.
    pub scrub_interval: Duration,
    /// Whether the metrics are served at an address of their own, and only there.
    pub metrics_elsewhere: bool,
    /// Whether the API of Adobe Workfront's event subscriptions is served.
    pub workfront: bool,
    /// The most steps of a filter that is tried. Fixed; tests have less, to reach it with little work.
    pub filter_steps_max: u64,
    /// The most work of one plan of a simulation. Fixed; tests have less, to reach it with little work.
    pub simulation_work: Work,
}

/// A token bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The sustained rate per second.
    pub per_second: u32,
    /// The most requests at once, after a pause.
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
            tenant_answers_max: 1_000_000,
            tenant_answer_bytes_max: 512 * 1024 * 1024,
            tenant_audit_max: 200_000,
            tenant_audit_refused_max: 10_000,
            tenant_mutations_max: 1_000,
            mutations_max: 4_000,
            stream_heartbeat: Duration::from_secs(15),
            stream_check: Duration::from_secs(2),
            streams: Quota { per_tenant: 100, in_total: 1000 },
            in_progress: Quota { per_tenant: 128, in_total: 1024 },
            in_progress_wait: Duration::from_secs(2),
            request_bytes: Quota { per_tenant: 64 * MIB, in_total: 256 * MIB },
            answer_bytes: Quota { per_tenant: 64 * MIB, in_total: 256 * MIB },
            session_lifetime: Duration::from_secs(12 * 60 * 60),
            key_sessions_max: 100,
            sessions_max: 100_000,
            tenant_portal_links_max: 1_000,
            portal_links_max: 100_000,
            frame_ancestors: Origins::default(),
            public_url: None,
            conducts: Conducts::default(),
            scrub_interval: Duration::from_secs(10 * 60),
            metrics_elsewhere: false,
            workfront: false,
            filter_steps_max: FILTER_STEPS_MAX,
            // About a tenth of a second of computing, and 20 MiB.
            simulation_work: Work::limited(200_000, 50_000),
        }
    }
}

/// Attempts to sign in from one address, whether they succeed or not.
pub(crate) const SIGN_IN_RATE: Rate = Rate { per_second: 1, burst: 30 };
/// Look-ups of unknown keys and sessions by one address: many clients may share it, and a key that
/// exists costs nothing.
pub(crate) const STRANGER_RATE: Rate = Rate { per_second: 20, burst: 300 };
/// Those that an address has before they count for all addresses together.
pub(crate) const STRANGER_FIRST_RATE: Rate = Rate { per_second: 1, burst: 10 };
/// Look-ups of unknown keys and sessions by all addresses together.
pub(crate) const STRANGERS_RATE: Rate = Rate { per_second: 500, burst: 3_000 };
/// The body of a request to sign in.
pub(crate) const SIGN_IN_BYTES_MAX: usize = 4 * 1024;
/// How long a portal link can be used.
pub(crate) const LINK_SECONDS: std::ops::RangeInclusive<u64> = 10..=24 * 60 * 60;
/// How long a portal link is valid if its creator does not say.
pub(crate) const LINK_SECONDS_DEFAULT: u64 = 10 * 60;

/// Headers of one request; for the server that reads them.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// The largest request line with all headers; for the listener.
pub const REQUEST_HEAD_BYTES_MAX: usize = 32 * 1024;

/// The largest body that is not an event.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;
/// The longest `Idempotency-Key`.
pub(crate) const IDEMPOTENCY_KEY_CHARS_MAX: usize = 255;
/// The most cached keys and tenants.
pub(crate) const REMEMBERED_MAX: usize = 100_000;
/// The most that a tenant's own rate can be, per second.
pub(crate) const RATE_MAX: u32 = 1_000_000;
/// The longest name of a tenant or a key.
pub(crate) const NAME_CHARS_MAX: usize = 100;
/// The longest text in a query.
pub(crate) const CURSOR_CHARS_MAX: usize = 1024;
/// The most spans in one answer of statistics.
pub(crate) const STATS_SPANS_MAX: u64 = 5_000;
/// The most destinations in one answer of statistics.
pub(crate) const STATS_DESTINATIONS_MAX: usize = 100;
/// The most waiting deliveries that are counted for an hour in which they fall due.
pub(crate) const DUE_COUNT_MAX: u64 = 20_000;
/// The most dead deliveries that are counted in groups.
pub(crate) const DEAD_READ_MAX: usize = 50_000;
/// The longest overlap of two signing secrets.
pub(crate) const OVERLAP_SECONDS_MAX: u64 = 30 * 24 * 60 * 60;
/// The default overlap.
pub(crate) const OVERLAP_SECONDS_DEFAULT: u64 = 24 * 60 * 60;
/// The highest rate of a replay.
pub(crate) const REPLAY_PER_SECOND_MAX: u32 = 100_000;
