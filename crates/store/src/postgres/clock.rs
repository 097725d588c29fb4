//! The offsets of the nodes' clocks from the database's clock.
//!
//! A node's clock does not change when the database's clock is set. A node that starts needs the
//! time of the running nodes, so each of them stores every few seconds how far its clock is ahead
//! of the database's. The difference is computed in the statement that stores it: the row is
//! correct for the moment that it names, even if the database's clock is set a moment later.

use postrider_domain::time::Timestamp;

use super::PostgresStore;
use super::pool::Scope;
use super::rows::{self, get};
use crate::error::StoreError;

/// The database's clock, and the offsets that the nodes have stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSight {
    /// The database's clock.
    pub now: Timestamp,
    /// How far the other nodes' clocks are ahead of the database's: the largest offset stored in the last
    /// seconds. (A node's clock may stand still with its machine, but never runs ahead of the
    /// others.)
    pub others_ahead_ms: Option<i64>,
    /// Whether there are other nodes.
    pub has_others: bool,
    /// The latest time of any node's clock that was ever stored, and how far it was ahead then.
    pub last: Option<(Timestamp, i64)>,
}

/// The largest offset that any node has stored in the last seconds.
pub(super) const AHEAD: &str = "SELECT max(ahead_ms) FROM postrider.clocks WHERE read_at BETWEEN \
     clock_timestamp() - interval '6 seconds' AND clock_timestamp() + interval '1 second'";

/// The offsets of other nodes, and the latest row of any node. `$1` is this node.
const SIGHT: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now, \
     (SELECT max(ahead_ms) FROM postrider.clocks WHERE node <> $1 AND read_at BETWEEN \
      clock_timestamp() - interval '6 seconds' AND clock_timestamp() + interval '1 second') AS others, \
     EXISTS (SELECT 1 FROM postrider.nodes WHERE name <> $1) AS has_others, \
     last.at AS last_at, last.ahead_ms AS last_ahead \
     FROM (SELECT 1) AS one LEFT JOIN LATERAL (SELECT ahead_ms, \
      floor(extract(epoch FROM read_at) * 1000)::bigint + ahead_ms AS at FROM postrider.clocks \
      ORDER BY at DESC LIMIT 1) AS last ON true";

const TELL: &str = "INSERT INTO postrider.clocks (node, ahead_ms, read_at) \
     SELECT $1, $2 - floor(extract(epoch FROM at) * 1000)::bigint, at \
     FROM (SELECT clock_timestamp() AS at) AS now \
     ON CONFLICT (node) DO UPDATE SET ahead_ms = excluded.ahead_ms, read_at = excluded.read_at";

impl PostgresStore {
    /// Stores that this node's clock is at `now`.
    pub async fn tell_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        let (node, now) = (&self.core.options.node, now.as_unix_ms());
        self.core.vital.query(Scope::All, TELL, &[node, &now]).await.map(drop)
    }

    /// Reads the database's clock and the offsets of the nodes.
    pub async fn look_at_clock(&self) -> Result<ClockSight, StoreError> {
        let node = &self.core.options.node;
        let row = self.core.vital.query_opt(Scope::All, SIGHT, &[node]).await?;
        let row = row.ok_or_else(|| StoreError::Internal("the database said no time".into()))?;
        let last_at: Option<i64> = get(&row, "last_at")?;
        let last_ahead: Option<i64> = get(&row, "last_ahead")?;
        Ok(ClockSight {
            now: rows::time(&row, "now")?,
            others_ahead_ms: get(&row, "others")?,
            has_others: get(&row, "has_others")?,
            last: last_at.map(Timestamp::from_unix_ms).zip(last_ahead),
        })
    }
}
