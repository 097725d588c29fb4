//! The store of a cluster: any number of nodes on one PostgreSQL.
//!
//! Every method is one transaction, and no transaction stays open while something else is awaited.
//! Acceptances of many callers share one commit, and so do settlements. Unfinished deliveries are
//! in `deliveries_open`; ended ones are in `deliveries_done`, partitioned by day. **Only the owner
//! of a shard settles in it**: a settlement locks its node's lease and compares every epoch, so a
//! settlement after the lease has ended, or after another node took the shard, is refused.
//!
//! **Clocks.** Leases use the database's clock alone. If that clock is set back, a lease may have
//! been renewed in its future; such a lease ends when it is not renewed for the length of a lease.
//! Due times and all other times come from the caller, whose clock starts with the database's time
//! and does not change when the database's clock is set: [`ClockSight`] has the differences.
//!
//! **PgBouncer** in transaction mode may be used, with `pgbouncer=true` in the URL: all settings
//! and locks are local to a transaction, and statements have no names. (From PgBouncer 1.21 on with
//! `max_prepared_statements` above 0 that setting is not needed, and the cost is lower.) `LISTEN`
//! does not work through it: give [`PostgresOptions::listen_url`] a direct address, or new work of
//! other nodes is found by polling alone.

mod address;
mod answers;
mod audit;
mod clock;
mod configuration;
mod counts;
mod days;
mod delivery_columns;
mod documents;
mod erasing;
mod error;
mod history;
mod intake;
mod leases;
mod nodes;
mod notify;
mod object_list;
mod overview;
mod paging;
mod passes;
mod pool;
mod replays;
mod rows;
mod schema;
mod session;
mod settle;
mod shown;
mod statistics;
mod summaries;
mod tls;
mod transfer;
mod unused_destinations;
mod upkeep;
mod usage;
mod visit;
mod work;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use postrider_domain::time::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;

pub use self::clock::ClockSight;
use self::counts::Folding;
use self::days::Days;
use self::leases::Leases;
pub use self::nodes::KEY_RING;
use self::notify::Notifier;
use self::pool::{Lists, Pool, Scope};
use self::rows::get;
pub use self::shown::{masked, shown};
pub use self::visit::{ClusterSight, NodeSight, ServerSight, Visitor};
use crate::error::StoreError;

/// How a node uses the database.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The name of this node. Two nodes that run at the same time must not share a name: the one
    /// that started first is stopped.
    pub node: String,
    /// The most connections (at least four), beside the one that listens. Half of them are reserved
    /// for the engine, a quarter for lists.
    pub connections: usize,
    /// How long a lease lasts after its renewal. A node with shards must call
    /// [`crate::Upkeep::hold_shards`] about four times in that time, and must stop sending once
    /// this time has passed since the *start* of the last successful call.
    pub lease: Duration,
    /// How long a statement may take on the server.
    pub statement_timeout: Duration,
    /// Whether to send and receive hints about new work.
    pub listen: bool,
    /// The address to listen on, if it differs from the other connections: one that bypasses a
    /// pooler.
    pub listen_url: Option<String>,
}

impl PostgresOptions {
    /// Checks whether a text is a valid database address.
    pub fn check(url: &str) -> Result<(), StoreError> {
        address::target(url).map(drop)
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        PostgresOptions {
            node: "postrider".into(),
            connections: 8,
            lease: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            listen: true,
            listen_url: None,
        }
    }
}

/// How far the database's clock is ahead of the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// To be added to the caller's time, in milliseconds.
    pub offset_ms: i64,
    /// The error of `offset_ms` is at most this many milliseconds.
    pub within_ms: i64,
}

/// A store on PostgreSQL.
pub struct PostgresStore {
    core: Arc<StoreState>,
    acceptances: mpsc::Sender<intake::Request>,
    settlements: mpsc::Sender<settle::Request>,
}

/// The state that the store shares with its tasks.
struct StoreState {
    /// For reads of single records, for the configuration, and for authentication.
    pool: Pool,
    /// For lists; tenants take turns.
    lists: Lists,
    /// For the engine, which never waits for reads of tenants.
    vital: Arc<Pool>,
    /// For accepting events and for settling, which never wait for a read.
    accepting: Arc<Pool>,
    settling: Arc<Pool>,
    options: PostgresOptions,
    days: Days,
    leases: Leases,
    notifier: Notifier,
    folding: Folding,
}

/// The time by the database's clock.
const NOW: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now";

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("node", &self.core.options.node)
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Connects, brings the schema up to date, and creates the partitions of the next days.
    ///
    /// The URL is `postgres://user:password@host:port/database`, with optional `sslmode`
    /// (`disable`, `prefer`, `require`, `verify-full`), `sslrootcert` and `pgbouncer=true`. With a
    /// standby, name several hosts and `target_session_attrs=read-write`.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Arc<Self>, StoreError> {
        let store = PostgresStore::connect_to_fill(url, options).await?;
        store.refuse_unfinished().await?;
        Ok(store)
    }

    /// Connects even if a transfer into the database is unfinished, to continue the transfer.
    pub async fn connect_to_fill(
        url: &str,
        options: PostgresOptions,
    ) -> Result<Arc<Self>, StoreError> {
        let target = address::target(url)?;
        let half = options.connections / 2;
        let of_lists = half / 2;
        let pool = Pool::new(target.clone(), half - of_lists, options.statement_timeout);
        let lists = Lists::new(target.clone(), of_lists, options.statement_timeout);
        let [vital, accepting, settling] = engines(&target, options.connections - half, &options);
        schema::migrate(&vital).await?;
        let instance = vital.query_opt(Scope::All, "SELECT gen_random_uuid() AS id", &[]).await?;
        let instance: Uuid = instance.as_ref().map_or(Ok(Uuid::nil()), |row| get(row, "id"))?;
        let listener = match &options.listen_url {
            Some(url) => Some(address::target(url)?),
            None => (!target.is_pooled).then_some(target),
        };
        let notifier = Notifier::new(listener.filter(|_| options.listen));
        let leases = Leases::new(instance);
        let (days, folding) = (Days::default(), Folding::default());
        let core = Arc::new(StoreState {
            pool,
            lists,
            vital,
            accepting,
            settling,
            options,
            days,
            leases,
            notifier,
            folding,
        });
        let now = core.database_now().await?;
        core.days.ahead(&core.vital, now).await?;
        notify::spawn(&core);
        let acceptances = intake::spawn(Arc::clone(&core));
        let settlements = settle::spawn(Arc::clone(&core));
        Ok(Arc::new(PostgresStore { core, acceptances, settlements }))
    }

    /// The time of the database's clock.
    pub async fn database_now(&self) -> Result<Timestamp, StoreError> {
        self.core.database_now().await
    }

    /// How far the database's clock is ahead of `clock`. Call this regularly, and add the offset to
    /// every time that is passed to this store.
    pub async fn clock_offset(
        &self,
        clock: impl Fn() -> Timestamp,
    ) -> Result<ClockOffset, StoreError> {
        let before = clock().as_unix_ms();
        let there = self.database_now().await?.as_unix_ms();
        let after = clock().as_unix_ms();
        let middle = before.saturating_add(after.saturating_sub(before) / 2);
        let within_ms = after.saturating_sub(before) / 2 + 1;
        Ok(ClockOffset { offset_ms: there.saturating_sub(middle), within_ms })
    }

    /// Whether row-level security applies to the database role. It does not for a superuser or a
    /// role with `BYPASSRLS`: then tenants are separated only by the tenant in every query, and the
    /// operator is warned.
    pub async fn is_walled(&self) -> Result<bool, StoreError> {
        let sql = "SELECT rolsuper OR rolbypassrls AS above FROM pg_roles \
                   WHERE rolname = current_user";
        let row = self.core.pool.query_opt(Scope::All, sql, &[]).await?;
        row.as_ref().map_or(Ok(false), |row| get::<bool>(row, "above").map(|above| !above))
    }
}

/// The engine's pools: for its reads, for accepting (one connection) and for settling (one
/// connection). With fewer than three connections, all three are one shared pool.
fn engines(target: &address::Target, size: usize, options: &PostgresOptions) -> [Arc<Pool>; 3] {
    let pool = |size| Arc::new(Pool::for_all(target.clone(), size, options.statement_timeout));
    if size < 3 {
        let all = pool(size);
        return [Arc::clone(&all), Arc::clone(&all), all];
    }
    [pool(size - 2), pool(1), pool(1)]
}

impl StoreState {
    async fn database_now(&self) -> Result<Timestamp, StoreError> {
        let row = self.vital.query_opt(Scope::All, NOW, &[]).await?;
        row.as_ref().map_or(Ok(Timestamp::EPOCH), |row| rows::time(row, "now"))
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.core.notifier.stop();
    }
}
