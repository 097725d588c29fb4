//! Read-only inspection of a database, for `doctor`. It does not join the cluster.

use std::time::Duration;

use postrider_domain::time::Timestamp;
use tokio_postgres::{Client, Row};

use super::address::{self, Target};
use super::clock;
use super::error::failed;
use super::nodes::{KEY_RING, level};
use super::rows::{get, time, unsigned};
use super::schema;
use super::transfer::progress;
use crate::error::StoreError;

/// A connection that only reads.
pub struct Visitor {
    client: Client,
    target: Target,
}

/// The version and the settings of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSight {
    /// The version as the server reports it: `15.9 (Debian …)`.
    pub version: String,
    /// The version as a number: 150009.
    pub version_number: i32,
    /// Whether the database is a standby, which takes no writes.
    pub is_standby: bool,
    /// Whether `fsync` is on.
    pub syncs: bool,
    /// The setting `synchronous_commit`: `on`, `off`, `local`, `remote_write` or `remote_apply`.
    pub synchronous_commit: String,
    /// The setting `synchronous_standby_names`; empty for none.
    pub synchronous_standby_names: String,
    /// Standbys that are connected.
    pub standbys: u64,
    /// The largest number of connections that the server allows.
    pub connections_max: u64,
    /// The number of open connections.
    pub connections: u64,
    /// Whether row-level security applies to the role.
    pub is_walled: bool,
    /// Whether the connection seems to go through a pooler that gives each transaction another
    /// session.
    pub is_pooled: bool,
    /// Whether the address has `pgbouncer=true`.
    pub is_said_to_be_pooled: bool,
    /// The time of its clock.
    pub now: Timestamp,
}

/// The state of a Postrider cluster in the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSight {
    /// The version of the schema; `None` where there is none yet.
    pub schema: Option<u32>,
    /// Whether a transfer into the database is unfinished.
    pub is_being_filled: bool,
    /// The fingerprint of the cluster's key ring; `None` if no node has ever started.
    pub key_ring: Option<Vec<u8>>,
    /// The nodes of the cluster, by name.
    pub nodes: Vec<NodeSight>,
    /// Shards without an owner.
    pub unowned: u64,
    /// How far the cluster's clock is ahead of the database's, as the running nodes say; `None` where none
    /// runs.
    pub clock_ahead_ms: Option<i64>,
}

/// A node as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSight {
    /// The name of the node.
    pub name: String,
    /// How long ago it renewed its lease.
    pub renewed_ago: Duration,
    /// Whether its lease has not ended.
    pub is_leased: bool,
    /// The number of shards that the node owns.
    pub shards: u64,
    /// The version of its program; `None` where that is too old to say so.
    pub program: Option<String>,
    /// The newest format level that it reads.
    pub format: u32,
}

const SERVER: &str = "SELECT current_setting('server_version') AS version, \
     current_setting('server_version_num')::integer AS version_number, \
     pg_is_in_recovery() AS is_standby, current_setting('fsync') = 'on' AS syncs, \
     current_setting('synchronous_commit') AS synchronous_commit, \
     current_setting('synchronous_standby_names') AS synchronous_standby_names, \
     (SELECT count(*) FROM pg_stat_replication) AS standbys, \
     current_setting('max_connections')::bigint AS connections_max, \
     (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections, \
     (SELECT NOT (rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname = current_user) AS is_walled, \
     floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";

/// When the session began, and whether that was before a given time.
const SESSION: &str = "SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()";

const NODES: &str = "SELECT n.name, n.expires_at > clock_timestamp() AS is_leased, \
     greatest(0, extract(epoch FROM clock_timestamp() - n.renewed_at) * 1000)::bigint AS renewed_ms, \
     n.program, n.format, (SELECT count(*) FROM postrider.shards AS s WHERE s.owner = n.name) AS shards \
     FROM postrider.nodes AS n ORDER BY n.name";

impl std::fmt::Debug for Visitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Visitor").finish_non_exhaustive()
    }
}

impl Visitor {
    /// The oldest supported PostgreSQL, as a version number.
    pub const OLDEST_SERVER: i32 = 150_000;

    /// The version of the schema that this program makes and needs.
    pub const SCHEMA: u32 = schema::VERSION;

    /// Connects, for reading only.
    pub async fn connect(url: &str) -> Result<Visitor, StoreError> {
        let target = address::target(url)?;
        Ok(Visitor { client: connect(&target).await?, target })
    }

    /// The process id of the server process for this connection, on the server's machine.
    pub async fn process(&self) -> Result<Option<u32>, StoreError> {
        let row = one(&self.client, "SELECT pg_backend_pid() AS id").await?;
        Ok(u32::try_from(get::<i32>(&row, "id")?).ok())
    }

    /// Reads the version and the settings of the server.
    pub async fn server(&self) -> Result<ServerSight, StoreError> {
        let row = one(&self.client, SERVER).await?;
        Ok(ServerSight {
            version: get(&row, "version")?,
            version_number: get(&row, "version_number")?,
            is_standby: get(&row, "is_standby")?,
            syncs: get(&row, "syncs")?,
            synchronous_commit: get(&row, "synchronous_commit")?,
            synchronous_standby_names: get(&row, "synchronous_standby_names")?,
            standbys: unsigned(get(&row, "standbys")?),
            connections_max: unsigned(get(&row, "connections_max")?),
            connections: unsigned(get(&row, "connections")?),
            is_walled: get::<Option<bool>>(&row, "is_walled")?.unwrap_or(true),
            is_pooled: self.is_pooled().await?,
            is_said_to_be_pooled: self.target.is_pooled,
            now: time(&row, "now")?,
        })
    }

    /// Whether there is a pooler: a session that is older than its connection was used by another
    /// one before.
    async fn is_pooled(&self) -> Result<bool, StoreError> {
        let before = one(&self.client, "SELECT clock_timestamp()::text AS now").await?;
        let before: String = get(&before, "now")?;
        let second = connect(&self.target).await?;
        // The time is in the server's own text form.
        let sql = format!("SELECT backend_start < '{before}' AS is_older FROM ({SESSION}) AS s");
        get(&one(&second, &sql).await?, "is_older")
    }

    /// Reads the state of the cluster.
    pub async fn cluster(&self) -> Result<ClusterSight, StoreError> {
        let is_there = "SELECT to_regclass('postrider.migrations') IS NOT NULL AS is_there";
        if !get::<bool>(&one(&self.client, is_there).await?, "is_there")? {
            return Ok(ClusterSight::default());
        }
        let newest = "SELECT coalesce(max(version), 0) AS version FROM postrider.migrations";
        let version: i32 = get(&one(&self.client, newest).await?, "version")?;
        let mut sight = ClusterSight {
            schema: Some(u32::try_from(version).unwrap_or_default()),
            ..ClusterSight::default()
        };
        if sight.schema != Some(schema::VERSION) {
            // Another version of the schema may have other tables.
            return Ok(sight);
        }
        let begin = "BEGIN READ ONLY; SET LOCAL postrider.scope = 'all'";
        self.client.batch_execute(begin).await.map_err(|e| failed(&e))?;
        let looked = self.look(&mut sight).await;
        self.client.batch_execute("ROLLBACK").await.map_err(|e| failed(&e))?;
        looked.map(|()| sight)
    }

    async fn look(&self, sight: &mut ClusterSight) -> Result<(), StoreError> {
        let unowned = "SELECT count(*) AS unowned FROM postrider.shards WHERE owner IS NULL";
        sight.unowned = unsigned(get(&one(&self.client, unowned).await?, "unowned")?);
        let ahead = format!("SELECT ({}) AS ahead", clock::AHEAD);
        sight.clock_ahead_ms = get(&one(&self.client, &ahead).await?, "ahead")?;
        let moved = all(&self.client, "SELECT progress FROM postrider.transfer").await?;
        sight.is_being_filled = progress(moved.first())?.is_some_and(|moved| !moved.finished);
        let ring = format!("SELECT value FROM postrider.claims WHERE name = '{KEY_RING}'");
        let ring = all(&self.client, &ring).await?;
        sight.key_ring = ring.first().map(|row| get(row, "value")).transpose()?;
        for row in &all(&self.client, NODES).await? {
            sight.nodes.push(NodeSight {
                name: get(row, "name")?,
                renewed_ago: Duration::from_millis(unsigned(get(row, "renewed_ms")?)),
                is_leased: get(row, "is_leased")?,
                shards: unsigned(get(row, "shards")?),
                program: get(row, "program")?,
                format: level(row, "format")?,
            });
        }
        Ok(())
    }
}

async fn connect(target: &Target) -> Result<Client, StoreError> {
    let connect = target.config.connect(target.connector.clone());
    let (client, driver) = connect.await.map_err(|e| failed(&e))?;
    // The driver ends when the client is dropped or the connection is lost; the client reports its
    // error.
    tokio::spawn(async move { drop(driver.await) });
    Ok(client)
}

/// Runs an unnamed statement: behind a pooler a named one might be missing on the next session.
async fn all(client: &Client, sql: &str) -> Result<Vec<Row>, StoreError> {
    client.query_typed(sql, &[]).await.map_err(|e| failed(&e))
}

async fn one(client: &Client, sql: &str) -> Result<Row, StoreError> {
    let row = all(client, sql).await?.into_iter().next();
    row.ok_or_else(|| StoreError::Internal(format!("no answer to: {sql}")))
}
