//! Every limit of the engine, in one place. The numbers of the contract are in
//! [`postrider_domain::policy`]; these keep memory and work bounded.

use std::time::Duration;

use postrider_domain::ids::TenantId;

use crate::quotas::Quotas;

/// The limits of one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Attempts in flight, all destinations together.
    pub in_flight_max: usize,
    /// What of it retries can never take.
    pub first_lane_reserved: usize,
    /// What of it first attempts can never take, so that retries go on under any load.
    pub retry_lane_reserved: usize,
    /// Attempts in flight at a destination that nothing is known of.
    pub destination_in_flight_start: u32,
    /// Attempts in flight at a destination that answers quickly.
    pub destination_in_flight_max: u32,
    /// An answer within this time is a quick one.
    pub quick_answer: Duration,
    /// Attempts in flight for one tenant; its share of all where it is `None`.
    pub tenant_in_flight_max: Option<usize>,
    /// Bytes of payloads in flight, all destinations together.
    pub flying_bytes_max: usize,
    /// Bytes of payloads in flight for one tenant; its share of all where it is `None`.
    pub tenant_flying_bytes_max: Option<usize>,
    /// Events that one tenant may send; no limit where it is `None`.
    pub tenant_ingest: Option<IngestRate>,

    /// Threads that match large events and try filters; one fewer than the machine has cores where
    /// it is `None`.
    pub matching_threads: Option<usize>,

    /// What tenants may have.
    pub quotas: Quotas,

    /// The tenant of whoever runs the server: its subscriptions are told of every tenant's
    /// destinations.
    pub operator_tenant: Option<TenantId>,

    /// Accepted batches on their way to the lanes.
    pub handover_batches_max: usize,
    /// Accepted deliveries on their way to the lanes; one tenant has at most half of them.
    pub handover_deliveries_max: usize,
    /// Deliveries that are held in memory until their turn, all destinations together. A lane that
    /// has none there may have one beyond it, and what is in flight has its own limit.
    pub resident_max: usize,
    /// Deliveries that are held in memory for each lane of a destination; the rest is read back
    /// from the store when it is its turn.
    pub lane_resident_max: usize,
    /// Payloads that are held in memory until their first attempt, in bytes.
    pub payload_bytes_max: usize,
    /// A destination leaves memory when nothing has happened with it for so long.
    pub destination_idle: Duration,
    /// How far ahead waiting deliveries are read into memory.
    pub due_window: Duration,
    /// Rows in one read of the store.
    pub page: usize,

    /// Changes in one commit.
    pub commit_changes_max: usize,
    /// Changes that are not durable yet; beyond it nothing more is sent.
    pub unpersisted_max: usize,
    /// The pause after a commit that failed; doubles up to the next one.
    pub store_retry_min: Duration,
    /// The longest pause between two tries of a commit.
    pub store_retry_max: Duration,

    /// Deliveries that an unpaced replay job brings back at a time.
    pub replay_batch: usize,
    /// Live events that a slow listener may lag behind before it misses some.
    pub live_events_max: usize,
    /// How often what is too old is removed.
    pub prune_every: Duration,
    /// How often the shards that are held are held anew.
    pub hold_every: Duration,
    /// The longest sleep: a clock that jumped is noticed after it.
    pub sleep_max: Duration,
}

/// How many events a tenant may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestRate {
    /// In the long run.
    pub per_second: u32,
    /// At once, after a pause.
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
            flying_bytes_max: 256 * 1024 * 1024,
            tenant_flying_bytes_max: None,
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
