//! Statistics of destinations.
//!
//! A destination has one owner, and an owner settles in one transaction after another: so no two transactions change the
//! same hour, and a settlement writes the whole row that it has read.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_domain::attempt_tally::{AttemptHour, AttemptTally, first_hour, start_of};
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::limits::RECENT_ATTEMPTS_MAX;
use postrider_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::error::corrupt;
use super::pool::Scope;
use super::rows::{count, get, uuid};
use crate::attempt_codec::{
    RECENT_BYTES, decode_recent, decode_tally, encode_recent, encode_tally,
};
use crate::error::StoreError;
use crate::statistics::{AttemptSums, Statistics, SummingUp};

/// How many hours are removed in one transaction.
const CHUNK: i64 = 20_000;

/// All hours of some destinations, newest first; the recent attempts only where there are not enough of them in later
/// hours.
const HOURS: &str = "SELECT wanted.place, a.hour, a.counts, \
         CASE WHEN a.later < $3 THEN a.recent ELSE ''::bytea END AS recent \
     FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, place) CROSS JOIN LATERAL ( \
         SELECT h.hour, h.counts, h.recent, sum(octet_length(h.recent)) OVER (ORDER BY h.hour DESC) \
                - octet_length(h.recent) AS later \
         FROM postrider.attempt_hours AS h \
         WHERE h.destination = wanted.id AND ($2::text IS NULL OR h.tenant = $2)) AS a \
     ORDER BY wanted.place, a.hour DESC";

/// An hour of attempts, of the columns `hour`, `counts` and `recent`.
pub(super) fn attempt_hour(row: &Row) -> Result<AttemptHour, StoreError> {
    let damaged = || corrupt("attempt_hours", "its counts cannot be read");
    let tally = decode_tally(get(row, "counts")?).ok_or_else(damaged)?;
    let recent = decode_recent(get(row, "hour")?, get(row, "recent")?).ok_or_else(damaged)?;
    Ok(AttemptHour { tally, recent })
}

#[async_trait]
impl Statistics for PostgresStore {
    async fn attempt_sums(
        &self,
        tenant: Option<&TenantId>,
        destinations: &[DestinationId],
        since: [Timestamp; 2],
    ) -> Result<Vec<AttemptSums>, StoreError> {
        let ids: Vec<Uuid> = destinations.iter().map(|id| uuid(id.as_bytes())).collect();
        let enough = count(RECENT_ATTEMPTS_MAX * RECENT_BYTES);
        let whose = tenant.map(TenantId::as_str);
        let scope = tenant.map_or(Scope::All, Scope::Tenant);
        let params: [&(dyn ToSql + Sync); 3] = [&ids, &whose, &enough];
        let rows = self.core.lists.query(scope, HOURS, &params).await?;
        let mut sums: Vec<SummingUp> = ids.iter().map(|_| SummingUp::new(since)).collect();
        for row in &rows {
            let place: i64 = get(row, "place")?;
            let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
            if let Some(sums) = sums.get_mut(place) {
                sums.add(get(row, "hour")?, &attempt_hour(row)?);
            }
        }
        Ok(sums.into_iter().map(SummingUp::done).collect())
    }

    async fn attempt_hours(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        since: Timestamp,
    ) -> Result<Vec<(Timestamp, AttemptTally)>, StoreError> {
        let sql = "SELECT hour, counts, ''::bytea AS recent FROM postrider.attempt_hours \
                   WHERE destination = $1 AND tenant = $2 AND hour >= $3 ORDER BY hour";
        let (id, first) = (uuid(destination.as_bytes()), first_hour(since));
        let params: [&(dyn ToSql + Sync); 3] = [&id, &tenant.as_str(), &first];
        let rows = self.core.lists.query(Scope::Tenant(tenant), sql, &params).await?;
        rows.iter().map(|row| Ok((start_of(get(row, "hour")?), attempt_hour(row)?.tally))).collect()
    }

    async fn forget_attempt_hours(&self, before: Timestamp) -> Result<u64, StoreError> {
        let sql = "WITH gone AS (DELETE FROM postrider.attempt_hours WHERE (destination, hour) IN \
                       (SELECT destination, hour FROM postrider.attempt_hours \
                        WHERE hour < $1 ORDER BY hour LIMIT $2) RETURNING 1) \
                   SELECT count(*) AS n FROM gone";
        let (first, mut forgotten) = (first_hour(before), 0);
        loop {
            let row = self.core.vital.query_opt(Scope::All, sql, &[&first, &CHUNK]).await?;
            let gone: i64 = row.as_ref().map_or(Ok(0), |row| get(row, "n"))?;
            forgotten += u64::try_from(gone).unwrap_or(0);
            if gone < CHUNK {
                return Ok(forgotten);
            }
        }
    }
}

/// Rows of `attempt_hours` to be written.
#[derive(Default)]
pub(super) struct HourColumns<'a> {
    tenant: Vec<&'a str>,
    destination: Vec<Uuid>,
    hour: Vec<i64>,
    counts: Vec<Vec<u8>>,
    recent: Vec<Vec<u8>>,
}

impl<'a> HourColumns<'a> {
    /// Writes the hours of destinations that exist.
    pub(super) const SQL: &'static str = "INSERT INTO postrider.attempt_hours AS a \
         (tenant, destination, hour, counts, recent) \
         SELECT n.tenant, n.destination, n.hour, n.counts, n.recent \
         FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bytea[], $5::bytea[]) \
             AS n (tenant, destination, hour, counts, recent) \
         JOIN postrider.destinations AS d ON d.id = n.destination AND d.tenant = n.tenant \
         ON CONFLICT (destination, hour) DO UPDATE \
             SET counts = excluded.counts, recent = excluded.recent";

    pub(super) fn of(hours: BTreeMap<(DestinationId, i64), (&'a str, AttemptHour)>) -> Self {
        let mut columns = HourColumns::default();
        for ((destination, hour), (tenant, mut attempts)) in hours {
            attempts.trim();
            columns.tenant.push(tenant);
            columns.destination.push(uuid(destination.as_bytes()));
            columns.hour.push(hour);
            columns.counts.push(encode_tally(&attempts.tally));
            columns.recent.push(encode_recent(hour, &attempts.recent));
        }
        columns
    }

    pub(super) fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![&self.tenant, &self.destination, &self.hour, &self.counts, &self.recent]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tenant.is_empty()
    }
}
