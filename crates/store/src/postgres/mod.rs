//! The store of a cluster: any number of nodes on one PostgreSQL.
//!
//! Every method is one transaction, and no transaction is open while anything else is waited for.
//! Acceptances of many callers share one commit, and so do settlements. What has not ended is in
//! `deliveries_open`; what has is in `deliveries_done`, by days. **Only the owner of a shard
//! settles in it**: a settlement locks its node's lease and compares every epoch, so what a node
//! says after its lease has ended, or after another took the shard, is refused.
//!
//! **Clocks.** Leases go by the database's clock alone; a lease that was renewed in its future, because
//! it was set back, ends when nobody has renewed it for as long as a lease lasts. Due times and
//! everything else that is handed in come from the caller, whose clock starts at the database's and does
//! not follow when that is set: [`ClockSight`] says how the nodes' clocks stand to it.
//!
//! **PgBouncer** in transaction mode may stand in between, with `pgbouncer=true` in the URL: all
//! settings and locks are local to a transaction, and statements have no names. (From PgBouncer 1.21
//! on with `max_prepared_statements` above 0 it works without that word, and costs less.) What does
//! not work through it is `LISTEN`: give [`PostgresOptions::listen_url`] a direct address, or new work of
//! other nodes is found by polling alone.

mod address;
mod answers;
mod audit;
mod clock;
mod configuration;
mod counts;
mod days;
mod delivery_columns;
mod error;
mod history;
mod intake;
mod leases;
mod nodes;
mod notify;
mod paging;
mod passes;
mod pool;
mod replays;
mod rows;
mod schema;
mod session;
mod settle;
mod shown;
mod tls;
mod transfer;
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
    /// What this node is called. No two nodes that run at the same time may share it: the one that
    /// came first is stopped.
    pub node: String,
    /// At most so many connections, and at least four, beside the one that listens. Half of them are
    /// the engine's own, a quarter is for lists.
    pub connections: usize,
    /// How long a lease holds after it was renewed. A node with shards must call
    /// [`crate::Upkeep::hold_shards`] about four times as often, and stop sending when so long has
    /// passed since the last call that succeeded *began*.
    pub lease: Duration,
    /// How long a statement may take on the server.
    pub statement_timeout: Duration,
    /// Whether other nodes' new work is announced and heard.
    pub listen: bool,
    /// Where to listen, where that is another address than the rest: past a pooler.
    pub listen_url: Option<String>,
}

impl PostgresOptions {
    /// Whether an address can be one of a database.
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
    /// The true offset is within so many milliseconds of it.
    pub within_ms: i64,
}

/// A store on PostgreSQL.
pub struct PostgresStore {
    core: Arc<Core>,
    acceptances: mpsc::Sender<intake::Request>,
    settlements: mpsc::Sender<settle::Request>,
}

/// The state that the store shares with its tasks.
struct Core {
    /// For reads of one thing, for the configuration, and for authentication.
    pool: Pool,
    /// For lists, at which tenants take turns.
    lists: Lists,
    /// For the engine: it never waits for reads of tenants.
    vital: Arc<Pool>,
    /// For accepting and for settling: neither waits for a read.
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
    /// Connects, brings the schema up to date, and makes the partitions of the next days.
    ///
    /// The URL is `postgres://user:password@host:port/database`, with `sslmode` (`disable`,
    /// `prefer`, `require`, `verify-full`), `sslrootcert`, and `pgbouncer=true` where wanted; several
    /// hosts with `target_session_attrs=read-write` where there is a standby.
    pub async fn connect(url: &str, options: PostgresOptions) -> Result<Arc<Self>, StoreError> {
        let store = PostgresStore::connect_to_fill(url, options).await?;
        store.refuse_unfinished().await?;
        Ok(store)
    }

    /// The same, also where a transfer into the database is unfinished, to continue the transfer.
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
        let core = Arc::new(Core {
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

    /// How far the database's clock is ahead of `clock`. Ask now and then, and add it to every time
    /// that is handed to this store.
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

    /// Whether row-level security binds the database role: not where it is a superuser or has
    /// `BYPASSRLS`. Then only the tenant in every query separates tenants, and the operator is warned.
    pub async fn is_walled(&self) -> Result<bool, StoreError> {
        let sql = "SELECT rolsuper OR rolbypassrls AS above FROM pg_roles \
                   WHERE rolname = current_user";
        let row = self.core.pool.query_opt(Scope::All, sql, &[]).await?;
        row.as_ref().map_or(Ok(false), |row| get::<bool>(row, "above").map(|above| !above))
    }
}

/// The engine's pools: for its reads, for accepting (one connection) and for settling (one connection);
/// or one shared pool where there are fewer than three connections.
fn engines(target: &address::Target, size: usize, options: &PostgresOptions) -> [Arc<Pool>; 3] {
    let pool = |size| Arc::new(Pool::for_all(target.clone(), size, options.statement_timeout));
    if size < 3 {
        let all = pool(size);
        return [Arc::clone(&all), Arc::clone(&all), all];
    }
    [pool(size - 2), pool(1), pool(1)]
}

impl Core {
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
