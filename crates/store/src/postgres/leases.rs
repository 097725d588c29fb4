//! Leases: which node owns which shard.
//!
//! A node has one lease: a row with its end by the database's clock. It covers every shard whose
//! row names the node as the owner. **A shard changes its owner only in a transaction that has
//! locked the old owner's row**, and a settlement locks its own node's row: so a settlement either
//! ends before the shard changes hands, or sees that it did. Membership changes one node at a time,
//! under a lock. Each node has an equal share of the shards: it releases shards beyond its share
//! once its attempts there have ended, and takes free ones. A node that joins, leaves or releases
//! shards notifies the others, which then check their leases at once.
//!
//! **Versions.** Each node's row has the newest format level that the node reads. The level that
//! nodes may write is in `postrider.format`. It rises when every node with a row reads the higher
//! level, and never falls. A trigger refuses the row of a node that reads less than that, so an
//! older node that was stopped for longer than its lease cannot come back and find data that it
//! cannot read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use postrider_domain::ids::{SHARDS, Shard};
use postrider_domain::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::StoreState;
use super::nodes::level;
use super::notify::SHARDS as SHARDS_CHANNEL;
use super::pool::{Scope, Step, Transaction};
use super::rows::get;
use crate::error::StoreError;
use crate::nodes::{FORMAT, PROGRAM, ShardSet};
use crate::records::{Epoch, ShardLeases};

/// An advisory lock, held while nodes join, leave and take shards.
const MEMBERS_LOCK: i64 = 0x706f_7374_0004;

/// This process's view of its own membership.
pub(super) struct Leases {
    /// Distinguishes this process from another one with the same node name.
    instance: Uuid,
    /// Whether this process has written the node's row before.
    is_member: AtomicBool,
    /// Whether the housekeeping that follows a renewal is running.
    is_ahead: AtomicBool,
    /// The leases as of the last renewal.
    held: Mutex<ShardSet>,
    /// Leases that were renewed in the future of the database's clock: the time of that renewal,
    /// and when this node first saw it.
    watched: Mutex<BTreeMap<String, (String, Instant)>>,
    /// The cluster's format level when it was last read. It never falls.
    format: AtomicU32,
}

impl Leases {
    pub(super) fn new(instance: Uuid) -> Self {
        Leases {
            instance,
            is_member: AtomicBool::new(false),
            is_ahead: AtomicBool::new(false),
            held: Mutex::default(),
            watched: Mutex::default(),
            format: AtomicU32::new(0),
        }
    }

    pub(super) fn instance(&self) -> Uuid {
        self.instance
    }

    pub(super) fn held(&self) -> ShardSet {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_held(&self, held: ShardSet) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }
}

impl StoreState {
    /// Renews the lease; releases shards beyond this node's share, or takes free ones.
    pub(super) async fn hold_shards(self: &Arc<Self>) -> Result<ShardLeases, StoreError> {
        let mut transaction = self.vital.begin(Scope::All).await?;
        let to_give_back = self.share(&mut transaction).await?;
        self.free(&mut transaction, &to_give_back).await?;
        self.held(transaction).await
    }

    /// Renews the lease like [`StoreState::hold_shards`], but keeps the shards beyond this node's share
    /// and returns them.
    pub(super) async fn hold_and_keep(
        self: &Arc<Self>,
    ) -> Result<(ShardLeases, ShardSet), StoreError> {
        let mut transaction = self.vital.begin(Scope::All).await?;
        let to_give_back = self.share(&mut transaction).await?;
        Ok((self.held(transaction).await?, to_give_back))
    }

    /// Releases some shards.
    pub(super) async fn give_back(&self, shards: &ShardSet) -> Result<(), StoreError> {
        let mut transaction = self.vital.begin(Scope::All).await?;
        // A process that was replaced by another one of the same name has no shards any more.
        let steps = [
            Step { sql: LOCK_MEMBERS, params: vec![&MEMBERS_LOCK] },
            Step { sql: INSTANCE, params: vec![&self.options.node] },
        ];
        let found = transaction.query_all(&steps).await?.pop().unwrap_or_default();
        let instance = found.first().map(|row| get::<Uuid>(row, "instance")).transpose()?;
        if instance == Some(self.leases.instance) {
            self.free(&mut transaction, shards).await?;
        }
        // From here on, other nodes must be notified of events for these shards.
        self.leases.set_held(self.leases.held().without(shards));
        transaction.commit().await
    }

    async fn free(
        &self,
        transaction: &mut Transaction<'_>,
        shards: &ShardSet,
    ) -> Result<(), StoreError> {
        let shards: Vec<i16> = shards.iter().map(|shard| i16::from(shard.0)).collect();
        if shards.is_empty() {
            return Ok(());
        }
        let sql = "UPDATE postrider.shards SET owner = NULL \
                   WHERE owner = $1 AND shard = ANY($2::smallint[])";
        transaction.execute(sql, &[&self.options.node, &shards]).await?;
        transaction.query(TELL, &[&SHARDS_CHANNEL]).await.map(drop)
    }

    /// Commits, and returns the leases of this node.
    async fn held(
        self: &Arc<Self>,
        mut transaction: Transaction<'_>,
    ) -> Result<ShardLeases, StoreError> {
        let node = &self.options.node;
        let owned = "SELECT shard, epoch FROM postrider.shards WHERE owner = $1 ORDER BY shard";
        let steps =
            [Step { sql: owned, params: vec![node] }, Step { sql: super::NOW, params: Vec::new() }];
        let mut answers = transaction.query_all(&steps).await?.into_iter();
        transaction.commit().await?;
        self.leases.is_member.store(true, Ordering::Relaxed);
        let shards = answers.next().unwrap_or_default();
        let shards = shards.iter().map(|row| {
            let shard = u8::try_from(get::<i16>(row, "shard")?).unwrap_or_default();
            Ok((Shard(shard), Epoch(super::rows::unsigned(get(row, "epoch")?))))
        });
        let leases = ShardLeases { shards: shards.collect::<Result<_, StoreError>>()? };
        self.leases.set_held(leases.shards.iter().map(|(shard, _)| *shard).collect());
        if let Some(row) = answers.next().unwrap_or_default().first() {
            self.look_ahead(super::rows::time(row, "now")?);
        }
        Ok(leases)
    }

    /// Creates the partitions of the next days and folds counts, in a task of its own, so that a
    /// lease never waits for it. If it fails, the next renewal starts it again.
    fn look_ahead(self: &Arc<Self>, now: Timestamp) {
        if self.leases.is_ahead.swap(true, Ordering::AcqRel) {
            return;
        }
        let core = Arc::clone(self);
        tokio::spawn(async move {
            drop(core.days.ahead(&core.vital, now).await);
            drop(core.folding.fold_if_due(&core.vital).await);
            core.leases.is_ahead.store(false, Ordering::Release);
        });
    }

    /// Releases all shards and removes the node's row.
    pub(super) async fn release_shards(&self) -> Result<(), StoreError> {
        let (node, instance) = (&self.options.node, &self.leases.instance);
        let mut transaction = self.vital.begin(Scope::All).await?;
        transaction.query(LOCK_MEMBERS, &[&MEMBERS_LOCK]).await?;
        let leave = "DELETE FROM postrider.nodes WHERE name = $1 AND instance = $2";
        if transaction.execute(leave, &[node, instance]).await? > 0 {
            let free = "UPDATE postrider.shards SET owner = NULL WHERE owner = $1";
            transaction.execute(free, &[node]).await?;
            transaction.query(TELL, &[&SHARDS_CHANNEL]).await?;
        }
        transaction.commit().await?;
        self.leases.set_held(ShardSet::default());
        self.leases.is_member.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The format level of the cluster; it is raised first if no older node has a row any more.
    pub(super) async fn format(&self) -> Result<u32, StoreError> {
        let known = self.leases.format.load(Ordering::Relaxed);
        if known >= FORMAT {
            return Ok(FORMAT);
        }
        let mut transaction = self.vital.begin(Scope::All).await?;
        let own = i32::try_from(FORMAT).unwrap_or(i32::MAX);
        let steps = [
            Step { sql: LOCK_MEMBERS, params: vec![&MEMBERS_LOCK] },
            Step { sql: RAISE, params: vec![&own] },
        ];
        let raised = transaction.query_all(&steps).await?.pop().unwrap_or_default();
        transaction.commit().await?;
        let level = raised.first().map_or(Ok(0), |row| level(row, "level"))?;
        self.leases.format.store(level, Ordering::Relaxed);
        Ok(level.min(FORMAT))
    }

    /// Renews the node's lease or inserts a new one; returns whether the membership changes. If the
    /// row belongs to an older process of the same name, it is taken over, which raises the epochs.
    async fn join(&self, transaction: &mut Transaction<'_>) -> Result<bool, StoreError> {
        let node = &self.options.node;
        let steps = [
            Step { sql: LOCK_MEMBERS, params: vec![&MEMBERS_LOCK] },
            Step { sql: INSTANCE, params: vec![node] },
        ];
        let found = transaction.query_all(&steps).await?.pop().unwrap_or_default();
        let Some(row) = found.first() else {
            self.refuse_newer_format(transaction).await?;
            return Ok(true);
        };
        let is_other = get::<Uuid>(row, "instance")? != self.leases.instance;
        if is_other && self.leases.is_member.load(Ordering::Relaxed) {
            let why = format!("another process runs as node {node}; give each a name of its own");
            return Err(StoreError::Stopped(why));
        }
        if is_other {
            self.refuse_newer_format(transaction).await?;
            let sql = "UPDATE postrider.shards SET epoch = epoch + 1 WHERE owner = $1";
            transaction.execute(sql, &[node]).await?;
        }
        Ok(false)
    }

    /// Refuses to join if this node cannot read what the others may have written.
    async fn refuse_newer_format(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<(), StoreError> {
        let rows = transaction.query(LEVEL, &[]).await?;
        let found = rows.first().map_or(Ok(0), |row| level(row, "level"))?;
        if found <= FORMAT {
            return Ok(());
        }
        Err(StoreError::Stopped(format!(
            "the nodes of this cluster write format level {found}, and this version reads {FORMAT}; \
             upgrade postrider"
        )))
    }

    /// Handles leases whose renewal lies in the future, because the database's clock was set back.
    /// That clock cannot tell whether their nodes are alive, so this node watches them by its own
    /// clock for the length of a lease. Returns the nodes that did not renew in that time.
    fn silent(&self, ahead: Vec<Row>) -> Result<Vec<String>, StoreError> {
        let now = instant();
        let mut watched = self.leases.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *watched);
        let mut silent = Vec::new();
        for row in &ahead {
            let name: String = get(row, "name")?;
            let renewed: String = get(row, "renewed")?;
            let known = before.get(&name).filter(|(then, _)| *then == renewed);
            let since = known.map_or(now, |(_, since)| *since);
            if now.duration_since(since) >= self.options.lease {
                silent.push(name.clone());
            }
            watched.insert(name, (renewed, since));
        }
        Ok(silent)
    }

    /// Renews the lease, removes nodes whose lease has ended (after their running settlements), and
    /// takes free shards up to this node's share. Returns the shards beyond its share; these stay
    /// the same while the membership does not change.
    async fn share(&self, transaction: &mut Transaction<'_>) -> Result<ShardSet, StoreError> {
        let is_new = self.join(transaction).await?;
        let node = &self.options.node;
        let seconds = self.options.lease.as_secs_f64();
        let (program, format) = (PROGRAM, i32::try_from(FORMAT).unwrap_or(i32::MAX));
        let silent = self.silent(transaction.query(AHEAD, &[&seconds]).await?)?;
        let steps = [
            Step {
                sql: RENEW,
                params: vec![node, &self.leases.instance, &seconds, &program, &format],
            },
            Step { sql: BURY, params: vec![&seconds] },
            Step { sql: BURY_THESE, params: vec![&silent] },
            Step { sql: FREE, params: Vec::new() },
            Step { sql: COUNT, params: vec![node] },
        ];
        let mut answers = transaction.query_all(&steps).await?;
        let (rows, freed) = (answers.pop().unwrap_or_default(), answers.pop().unwrap_or_default());
        let Some(row) = rows.first() else { return Ok(ShardSet::default()) };
        let share = share_of(get(row, "nodes")?, get(row, "before")?);
        let mine: i64 = get(row, "mine")?;
        if is_new || !freed.is_empty() {
            transaction.query(TELL, &[&SHARDS_CHANNEL]).await?;
        }
        if mine < share {
            let sql = "UPDATE postrider.shards SET owner = $1, epoch = epoch + 1 WHERE shard IN \
                       (SELECT shard FROM postrider.shards WHERE owner IS NULL \
                        ORDER BY shard LIMIT $2)";
            transaction.execute(sql, &[node, &(share - mine)]).await?;
        }
        if mine <= share {
            return Ok(ShardSet::default());
        }
        let sql =
            "SELECT shard FROM postrider.shards WHERE owner = $1 ORDER BY shard DESC LIMIT $2";
        let rows = transaction.query(sql, &[node, &(mine - share)]).await?;
        let shards = rows
            .iter()
            .map(|row| Ok(Shard(u8::try_from(get::<i16>(row, "shard")?).unwrap_or_default())));
        shards.collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "measures how long a lease was not renewed")]
fn instant() -> Instant {
    Instant::now()
}

const LOCK_MEMBERS: &str = "SELECT pg_advisory_xact_lock($1)";
const INSTANCE: &str = "SELECT instance FROM postrider.nodes WHERE name = $1 FOR UPDATE";
/// Notifies other nodes that the shards may have changed.
const TELL: &str = "SELECT pg_notify($1, '')";
const RENEW: &str = "INSERT INTO postrider.nodes \
     (name, instance, expires_at, renewed_at, program, format) \
     VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3), clock_timestamp(), $4, $5) \
     ON CONFLICT (name) DO UPDATE SET instance = excluded.instance, \
     expires_at = excluded.expires_at, renewed_at = excluded.renewed_at, \
     program = excluded.program, format = excluded.format";
const LEVEL: &str = "SELECT level FROM postrider.format";
/// Raises the format level to the lowest level that any node with a row reads; the first node sets
/// its own level.
const RAISE: &str = "UPDATE postrider.format SET level = greatest(level, least($1, \
     (SELECT min(format) FROM postrider.nodes))) RETURNING level";
/// Removes nodes whose lease has ended. While the database was down no node could renew, so each
/// gets the length of a lease after the server's start. A node that is settling holds a lock on its
/// row; it is skipped until the next time.
const BURY: &str = "DELETE FROM postrider.nodes WHERE name IN (SELECT name FROM postrider.nodes \
     WHERE expires_at <= clock_timestamp() AND (renewed_at >= pg_postmaster_start_time() \
     OR pg_postmaster_start_time() + make_interval(secs => $1) <= clock_timestamp()) \
     FOR UPDATE SKIP LOCKED)";
/// Finds leases that were renewed in the future of the database's clock.
const AHEAD: &str = "SELECT name, renewed_at::text AS renewed FROM postrider.nodes \
     WHERE renewed_at > clock_timestamp() + make_interval(secs => $1)";
const BURY_THESE: &str = "DELETE FROM postrider.nodes WHERE name IN (SELECT name FROM postrider.nodes \
     WHERE name = ANY($1::text[]) FOR UPDATE SKIP LOCKED)";
const FREE: &str = "UPDATE postrider.shards SET owner = NULL WHERE owner IS NOT NULL \
     AND owner NOT IN (SELECT name FROM postrider.nodes) RETURNING shard";
const COUNT: &str = "SELECT (SELECT count(*) FROM postrider.nodes) AS nodes, \
     (SELECT count(*) FROM postrider.nodes WHERE name < $1) AS before, \
     (SELECT count(*) FROM postrider.shards WHERE owner = $1) AS mine";

/// How many shards a node should have; `before` is its index among the sorted nodes.
fn share_of(nodes: i64, before: i64) -> i64 {
    let (all, nodes) = (i64::from(SHARDS), nodes.max(1));
    all / nodes + i64::from(before < all % nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_differ_by_one_at_most() {
        for nodes in 1..=300 {
            let shares: Vec<i64> = (0..nodes).map(|before| share_of(nodes, before)).collect();
            assert_eq!(shares.iter().sum::<i64>(), i64::from(SHARDS));
            assert!(shares[0] - shares[shares.len() - 1] <= 1, "{nodes}");
        }
    }
}
