//! Every limit of the engine, in one place: they keep memory and work bounded. The numbers of the
//! contract are in [`postrider_domain::policy`].

use std::time::Duration;

use postrider_domain::ids::TenantId;

use crate::quotas::Quotas;

/// The limits of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Attempts in flight, all destinations together.
    pub in_flight_max: usize,
    /// The part of `in_flight_max` that retries can never use.
    pub first_lane_reserved: usize,
    /// The part of `in_flight_max` that first attempts can never use, so that retries continue under
    /// any load.
    pub retry_lane_reserved: usize,
    /// The initial limit of attempts in flight at a destination.
    pub destination_in_flight_start: u32,
    /// The highest limit of attempts in flight at a destination that answers quickly.
    pub destination_in_flight_max: u32,
    /// An answer within this time is a quick one.
    pub quick_answer: Duration,
    /// Attempts in flight for one tenant; `None` for a fair share.
    pub tenant_in_flight_max: Option<usize>,
    /// Bytes of payloads in flight, all destinations together.
    pub in_flight_bytes_max: usize,
    /// Bytes of payloads in flight for one tenant; `None` for a fair share.
    pub tenant_in_flight_bytes_max: Option<usize>,
    /// The rate of events of one tenant; `None` for no limit.
    pub tenant_ingest: Option<IngestRate>,

    /// Threads that match large events and test filters; `None` for one fewer than the machine has
    /// cores.
    pub matching_threads: Option<usize>,

    /// The quotas of tenants and of the server.
    pub quotas: Quotas,

    /// The operator's tenant: its subscriptions get operational events about every tenant's
    /// destinations.
    pub operator_tenant: Option<TenantId>,

    /// Accepted batches on their way to the lanes.
    pub handover_batches_max: usize,
    /// Accepted deliveries on their way to the lanes; one tenant has at most half of them.
    pub handover_deliveries_max: usize,
    /// Deliveries in memory until their turn, all destinations together. A lane without any may
    /// have one more, and deliveries in flight have a limit of their own.
    pub resident_max: usize,
    /// Deliveries in memory for each lane of a destination; the others are read from the store when
    /// their turn comes.
    pub lane_resident_max: usize,
    /// Bytes of payloads in memory that wait for their first attempt.
    pub payload_bytes_max: usize,
    /// A destination is evicted from memory when it was not used for this long.
    pub destination_idle: Duration,
    /// How far ahead waiting deliveries are read into memory.
    pub due_window: Duration,
    /// Rows in one read of the store.
    pub page: usize,

    /// Changes in one commit.
    pub commit_changes_max: usize,
    /// Changes that are not durable yet; beyond this nothing more is sent.
    pub unpersisted_max: usize,
    /// The pause after a failed commit; it doubles up to `store_retry_max`.
    pub store_retry_min: Duration,
    /// The longest pause between two tries of a commit.
    pub store_retry_max: Duration,

    /// Deliveries that a job without a rate replays at a time.
    pub replay_batch: usize,
    /// How many live events a slow listener may lag behind before it misses some.
    pub live_events_max: usize,
    /// How often old events are pruned.
    pub prune_every: Duration,
    /// How often the leases are renewed.
    pub hold_every: Duration,
    /// The longest sleep, after which a jump of the clock is noticed.
    pub sleep_max: Duration,
}

/// The rate limit of a tenant's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestRate {
    /// The sustained rate.
    pub per_second: u32,
    /// The most events at once, after a pause.
    pub burst: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            in_flight_max: 4096,
            first_lane_reserved: 1024,
            retry_lane_reserved: 256,
            destination_in_flight_start: 8,
            destination_in_flight_max: 64,
            quick_answer: Duration::from_secs(1),
            tenant_in_flight_max: None,
            in_flight_bytes_max: 256 * 1024 * 1024,
            tenant_in_flight_bytes_max: None,
            tenant_ingest: None,
            matching_threads: None,
            quotas: Quotas::default(),
            operator_tenant: None,
            handover_batches_max: 4096,
            handover_deliveries_max: 100_000,
            resident_max: 200_000,
            lane_resident_max: 4096,
            payload_bytes_max: 64 * 1024 * 1024,
            destination_idle: Duration::from_secs(10 * 60),
            due_window: Duration::from_secs(120),
            page: 1000,
            commit_changes_max: 1000,
            unpersisted_max: 20_000,
            store_retry_min: Duration::from_millis(50),
            store_retry_max: Duration::from_secs(5),
            replay_batch: 200,
            live_events_max: 16_384,
            prune_every: Duration::from_secs(60 * 60),
            hold_every: Duration::from_secs(5),
            sleep_max: Duration::from_secs(60),
        }
    }
}
