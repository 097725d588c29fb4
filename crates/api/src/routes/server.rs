//! The state of the server for its operator: version, lanes, mass-failure guard, disk, nodes.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use postrider_domain::time::Timestamp;
use postrider_store::Member;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::IsAdmin;
use crate::problem::{Code, Problem};
use crate::process::{About, Disk};
use crate::state::ApiState;

/// The node that answers, and what all nodes have together.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Server)]
pub(crate) struct ServerView {
    /// The version of the program.
    version: &'static str,
    /// When the process started.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// The server's time now.
    #[schema(value_type = String, format = DateTime)]
    now: Timestamp,
    /// What the policy's durations are divided by; 1 but for demonstrations.
    time_scale: u32,
    /// `embedded` or `postgres`.
    store: &'static str,
    /// By how much the server's time is ahead of its machine's clock.
    clock_ahead_ms: i64,
    /// Whether most destinations fail at once.
    mass_failure: MassFailureState,
    /// The disk of the node that answers; null where it cannot be read.
    disk: Option<DiskView>,
    /// Every node that is alive, by name; one without a name where the store has room for one node only.
    nodes: Vec<NodeView>,
    /// How busy the two lanes are.
    lanes: Lanes,
}

/// Whether transitions to disabled and frozen are suspended, because most destinations of this node fail
/// at once.
#[derive(Debug, Serialize, ToSchema)]
struct MassFailureState {
    /// True while no destination is disabled or frozen, because so many fail at once that the fault is probably ours.
    suspended: bool,
    /// Since when; null where they are not.
    #[schema(value_type = Option<String>, format = DateTime)]
    suspended_since: Option<Timestamp>,
}

/// A disk, in bytes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Disk)]
struct DiskView {
    /// Bytes that are free on the data directory's disk.
    free_bytes: u64,
    /// The size of that disk.
    total_bytes: u64,
    /// What the data directory takes.
    data_bytes: u64,
}

/// One node.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Node)]
struct NodeView {
    /// Its name; null for the only one.
    name: Option<String>,
    /// Whether it is the one that answers.
    this: bool,
    /// The version of its program; null where that is too old to say so.
    version: Option<String>,
    /// How many of the 256 shards it owns.
    shards: usize,
    /// When it last renewed its shards; null for the only one.
    #[schema(value_type = Option<String>, format = DateTime)]
    seen_at: Option<Timestamp>,
}

/// The two queues.
#[derive(Debug, Serialize, ToSchema)]
struct Lanes {
    /// The lane of first attempts.
    first: LaneView,
    /// The lane of retries.
    retry: LaneView,
}

/// One queue.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lane)]
struct LaneView {
    /// Deliveries in it, of all nodes; what is in flight is not.
    depth: u64,
    /// Attempts in flight, of the node that answers.
    in_flight: usize,
    /// For how long its oldest delivery is due, in the shards of the node that answers; null where none
    /// is.
    oldest_seconds: Option<f64>,
}

/// Show the server
///
/// The node that answers: version, disk, the guard against mass failures; and the nodes and lanes of the
/// whole cluster.
#[utoipa::path(
    get, path = "/v1/server", tag = "administration",
    responses((status = 200, body = ServerView, description = "The server"))
)]
pub(crate) async fn server(
    State(state): State<ApiState>,
    IsAdmin(_): IsAdmin,
) -> Result<Json<ServerView>, Problem> {
    let process = Arc::clone(state.process());
    let About { version, started_at, time_scale, store } = process.about();
    let disk = tokio::task::spawn_blocking(move || process.disk()).await;
    let disk = disk.map_err(|_| Problem::new(Code::Internal, "the disk could not be read"))?;
    let (gauges, now) = (state.engine().gauges().await?, state.now());
    let ledger = state.engine().ledger(None).await?;
    let (first, retry) = oldest(&state, now).await?;
    Ok(Json(ServerView {
        version,
        started_at,
        now,
        time_scale,
        store,
        clock_ahead_ms: state.clock_ahead_ms(),
        mass_failure: MassFailureState {
            suspended: gauges.suspended,
            suspended_since: gauges.suspended_since,
        },
        disk: disk.map(|Disk { free, total, data }| DiskView {
            free_bytes: free,
            total_bytes: total,
            data_bytes: data,
        }),
        nodes: nodes(&state, version, gauges.shards).await?,
        lanes: Lanes {
            first: LaneView {
                depth: ledger.queued,
                in_flight: gauges.in_flight_first,
                oldest_seconds: first.map(|age| age.as_secs_f64()),
            },
            retry: LaneView {
                depth: ledger.waiting,
                in_flight: gauges.in_flight_retry,
                oldest_seconds: retry.map(|age| age.as_secs_f64()),
            },
        },
    }))
}

/// For how long the oldest due delivery of each lane has been due.
async fn oldest(
    state: &ApiState,
    now: Timestamp,
) -> Result<(Option<Duration>, Option<Duration>), Problem> {
    let leases = state.engine().leases().await?;
    let queued = state.store().queued(&leases, None, 1).await?;
    let due = state.store().due(&leases, None, now, 1).await?;
    let first = queued.first().map(|delivery| now.since(delivery.created_at));
    let retry = due.first().and_then(|delivery| delivery.next_attempt_at());
    Ok((first, retry.map(|at| now.since(at))))
}

/// Every node that is alive, by name.
async fn nodes(state: &ApiState, version: &str, shards: usize) -> Result<Vec<NodeView>, Problem> {
    let mut members = state.store().members().await?;
    if members.is_empty() {
        let only = NodeView {
            name: None,
            this: true,
            version: Some(version.to_owned()),
            shards,
            seen_at: None,
        };
        return Ok(vec![only]);
    }
    members.sort_by(|a, b| a.name.cmp(&b.name));
    let own = state.store().node();
    let view = |member: Member| NodeView {
        this: Some(member.name.as_str()) == own,
        shards: member.shards.iter().count(),
        version: member.program,
        seen_at: Some(member.seen_at),
        name: Some(member.name),
    };
    Ok(members.into_iter().map(view).collect())
}
