//! Coordination of nodes: changes of the configuration, messages, and claims.

use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::ids::{Shard, TenantId};
use tokio::sync::broadcast;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::corrupt;
use super::notify::MESSAGES;
use super::pool::Scope;
use super::rows::{get, parse, time, unsigned};
use super::{PostgresStore, StoreState};
use crate::error::StoreError;
use crate::nodes::{Change, Changes, Hint, Member, Nodes, PeerMessage, ShardSet};
use crate::records::{Acceptance, Accepted, ShardLeases};

/// The name of the claim that holds the fingerprint of the cluster's key ring.
pub const KEY_RING: &str = "key ring";

/// How many changes one answer has at most.
const CHANGES_MAX: i64 = 1_000;

/// Kinds of changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Subscription,
    Tenant,
}

impl Kind {
    /// The number by which the kind is stored. A key is 1.
    pub(super) const fn number(self) -> i16 {
        match self {
            Kind::Subscription => 0,
            Kind::Tenant => 2,
        }
    }
}

#[async_trait]
impl Nodes for PostgresStore {
    fn node(&self) -> Option<&str> {
        Some(&self.core.options.node)
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.core.options.lease)
    }

    async fn format(&self) -> Result<u32, StoreError> {
        self.core.format().await
    }

    async fn hold_and_keep(&self) -> Result<(ShardLeases, ShardSet), StoreError> {
        self.core.hold_and_keep().await
    }

    async fn give_back(&self, shards: &ShardSet) -> Result<(), StoreError> {
        self.core.give_back(shards).await
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        Some(self.core.notifier.subscribe())
    }

    async fn accept_as_of(
        &self,
        batch: Vec<Acceptance>,
        version: u64,
    ) -> Result<Option<Vec<Accepted>>, StoreError> {
        self.hand_in(batch, Some(version)).await
    }

    async fn changes(&self, version: u64) -> Result<Changes, StoreError> {
        let after = i64::try_from(version).unwrap_or(i64::MAX);
        let sql = "SELECT c.version AS newest, c.pruned, l.version, l.kind, l.tenant, l.id \
                   FROM postrider.changed AS c LEFT JOIN LATERAL \
                       (SELECT * FROM postrider.changes WHERE version > $1 \
                        ORDER BY version LIMIT $2) AS l ON true";
        let rows = self.core.vital.query(Scope::All, sql, &[&after, &CHANGES_MAX]).await?;
        let Some(first) = rows.first() else {
            return Err(corrupt("changed", "it has no row"));
        };
        let newest = unsigned(get(first, "newest")?);
        if unsigned(get(first, "pruned")?) > version {
            let everything = true;
            return Ok(Changes { version: newest, everything, ..Changes::default() });
        }
        let mut changes = Changes { version: newest, ..Changes::default() };
        for row in &rows {
            let Some(number) = get::<Option<i64>>(row, "version")? else { continue };
            changes.version = unsigned(number);
            changes.list.push(change(row)?);
        }
        changes.is_cut = changes.version < newest;
        Ok(changes)
    }

    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        let sql = "SELECT n.name, n.program, n.format, \
                       floor(extract(epoch FROM n.renewed_at) * 1000)::bigint AS seen_at, \
                       array_remove(array_agg(s.shard), NULL) AS shards \
                   FROM postrider.nodes AS n LEFT JOIN postrider.shards AS s ON s.owner = n.name \
                   WHERE n.expires_at > clock_timestamp() GROUP BY n.name";
        let rows = self.core.vital.query(Scope::All, sql, &[]).await?;
        let member = |row: &Row| {
            let shards = get::<Vec<i16>>(row, "shards")?.into_iter();
            let shards: ShardSet = shards.filter_map(|n| u8::try_from(n).ok().map(Shard)).collect();
            Ok(Member {
                name: get(row, "name")?,
                shards,
                program: get(row, "program")?,
                format: level(row, "format")?,
                seen_at: time(row, "seen_at")?,
            })
        };
        rows.iter().map(member).collect()
    }

    async fn send_messages(&self, messages: &[PeerMessage]) -> Result<(), StoreError> {
        let ids: Vec<Uuid> = messages.iter().map(|message| Uuid::from_bytes(message.id)).collect();
        let column = |of: fn(&PeerMessage) -> &str| messages.iter().map(of).collect::<Vec<&str>>();
        let (from, to) = (column(|message| &message.from), column(|message| &message.to));
        let bodies = column(|message| &message.body);
        // A message need not be durable, so its commit does not wait for the disk.
        let sql = "WITH fast AS (SELECT set_config('synchronous_commit', 'off', true)), \
                   sent AS (INSERT INTO postrider.letters (id, sender, recipient, body) \
                       SELECT l.* FROM fast, unnest($1::uuid[], $2::text[], $3::text[], $4::text[]) \
                       AS l ON CONFLICT DO NOTHING RETURNING recipient) \
                   SELECT pg_notify($5, recipient) FROM sent GROUP BY recipient";
        let params: [&(dyn ToSql + Sync); 5] = [&ids, &from, &to, &bodies, &MESSAGES];
        self.core.vital.query(Scope::All, sql, &params).await?;
        Ok(())
    }

    async fn take_messages(&self) -> Result<Vec<PeerMessage>, StoreError> {
        let sql = "WITH fast AS (SELECT set_config('synchronous_commit', 'off', true)) \
                   DELETE FROM postrider.letters AS l USING fast WHERE l.recipient = $1 \
                   RETURNING l.id, l.sender, l.recipient, l.body";
        let rows = self.core.vital.query(Scope::All, sql, &[&self.core.options.node]).await?;
        let message = |row: &Row| {
            Ok(PeerMessage {
                id: get::<Uuid>(row, "id")?.into_bytes(),
                from: get(row, "sender")?,
                to: get(row, "recipient")?,
                body: get(row, "body")?,
            })
        };
        rows.iter().map(message).collect()
    }

    async fn claim(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        // The update changes nothing; it is there so that RETURNING returns the existing row.
        let sql = "INSERT INTO postrider.claims AS c (name, value) VALUES ($1, $2) \
                   ON CONFLICT (name) DO UPDATE SET value = c.value RETURNING c.value";
        let row = self.core.pool.query_opt(Scope::All, sql, &[&name, &value]).await?;
        row.as_ref().map_or(Ok(value.to_vec()), |row| get(row, "value"))
    }

    async fn claimed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let sql = "SELECT value FROM postrider.claims WHERE name = $1";
        let row = self.core.pool.query_opt(Scope::All, sql, &[&name]).await?;
        row.as_ref().map(|row| get(row, "value")).transpose()
    }

    async fn replace_claim(
        &self,
        name: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let replaced = match expected {
            Some(expected) => {
                let sql = "UPDATE postrider.claims SET value = $3 \
                           WHERE name = $1 AND value = $2 RETURNING 1";
                self.core.pool.query(Scope::All, sql, &[&name, &expected, &value]).await?
            }
            None => {
                let sql = "INSERT INTO postrider.claims (name, value) VALUES ($1, $2) \
                           ON CONFLICT (name) DO NOTHING RETURNING 1";
                self.core.pool.query(Scope::All, sql, &[&name, &value]).await?
            }
        };
        Ok(!replaced.is_empty())
    }

    async fn begin_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let sql = "INSERT INTO postrider.answering AS a (tenant, key, node, expires_at) \
                   VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4)) \
                   ON CONFLICT (tenant, key) DO UPDATE \
                   SET node = excluded.node, expires_at = excluded.expires_at \
                   WHERE a.node = excluded.node OR a.expires_at <= clock_timestamp() RETURNING 1";
        let (node, seconds) = (&self.core.options.node, within.as_secs_f64());
        let params: [&(dyn ToSql + Sync); 4] = [&tenant.as_str(), &key, node, &seconds];
        Ok(!self.core.pool.query(Scope::Tenant(tenant), sql, &params).await?.is_empty())
    }

    async fn end_answer(&self, tenant: &TenantId, key: &str) -> Result<(), StoreError> {
        let sql = "DELETE FROM postrider.answering WHERE tenant = $1 AND key = $2 AND node = $3";
        let params: [&(dyn ToSql + Sync); 3] = [&tenant.as_str(), &key, &self.core.options.node];
        self.core.pool.query(Scope::Tenant(tenant), sql, &params).await?;
        Ok(())
    }
}

/// Reads a format level.
pub(super) fn level(row: &Row, column: &str) -> Result<u32, StoreError> {
    Ok(u32::try_from(get::<i32>(row, column)?).unwrap_or_default())
}

fn change(row: &Row) -> Result<Change, StoreError> {
    match get::<i16>(row, "kind")? {
        0 => Ok(Change::Subscription(parse(row, "tenant")?, parse(row, "id")?)),
        1 => Ok(Change::Key(get(row, "id")?)),
        2 => Ok(Change::Tenant(parse(row, "id")?)),
        other => Err(corrupt("changes", format!("kind {other}"))),
    }
}

impl StoreState {
    /// Removes old changes and messages.
    pub(super) async fn prune_notes(&self) -> Result<(), StoreError> {
        let old = "WITH gone AS (DELETE FROM postrider.changes \
                       WHERE changed_at < clock_timestamp() - interval '1 day' RETURNING version) \
                   UPDATE postrider.changed SET pruned = greatest(pruned, \
                       (SELECT max(version) FROM gone)) WHERE EXISTS (SELECT 1 FROM gone)";
        let messages = "DELETE FROM postrider.letters \
                       WHERE sent_at < clock_timestamp() - interval '10 minutes'";
        let answering = "DELETE FROM postrider.answering WHERE expires_at < clock_timestamp()";
        // Rows of nodes that have left: the clocks of running nodes are later by now.
        let clocks = "DELETE FROM postrider.clocks WHERE EXISTS (SELECT 1 FROM postrider.clocks \
                       WHERE read_at BETWEEN clock_timestamp() - interval '6 seconds' \
                       AND clock_timestamp()) \
                       AND abs(extract(epoch FROM clock_timestamp() - read_at)) > 7 * 86400";
        for sql in [old, messages, answering, clocks] {
            self.vital.query(Scope::All, sql, &[]).await?;
        }
        Ok(())
    }
}
