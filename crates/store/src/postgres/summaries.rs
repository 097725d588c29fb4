//! Summaries of deliveries that have not arrived. Each is one statement that reads a limited number of rows of an index.

use async_trait::async_trait;
use postrider_domain::delivery::DeadReason;
use postrider_domain::ids::{DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use tokio_postgres::types::ToSql;

use super::PostgresStore;
use super::error::corrupt;
use super::pool::Scope;
use super::rows::{self, count, get};
use crate::error::StoreError;
use crate::summaries::{
    DUE_SPANS, DeadGroup, DeadLetters, DeadTally, DueCounts, DueTally, Summaries,
};

/// Of all tenants: each span by a range of the index `open_due`, up to `$3` of its rows.
const DUE_OF_ALL: &str = "SELECT (span.nth - 1)::bigint AS span, \
         (SELECT count(*) FROM (SELECT 1 FROM postrider.deliveries_open AS o \
              WHERE o.state = 1 AND o.due_at >= span.first AND o.due_at < span.until LIMIT $3) \
          AS counted) AS n \
     FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS span (first, until, nth)";
/// Of one tenant: no index has its deliveries by due time, so the newest `$3` of those that wait are read, by the index
/// `open_waiting`.
const DUE_OF_TENANT: &str = "SELECT width_bucket(due_at, $2::bigint[])::bigint AS span, \
         count(*) AS n \
     FROM (SELECT due_at FROM postrider.deliveries_open WHERE tenant = $1 AND state = 1 \
           ORDER BY created_at DESC, id DESC LIMIT $3) AS waiting GROUP BY 1";

/// The newest `$1` dead deliveries, and one more to know of, by the index `done_state` or `done_state_of_all`.
fn dead(condition: &str) -> String {
    let order = "ORDER BY created_at DESC, id DESC";
    format!(
        "SELECT tenant, destination, reason, count(*) FILTER (WHERE place <= $1::bigint) AS n, \
             min(finished_at) FILTER (WHERE place <= $1::bigint) AS first_at, \
             max(finished_at) FILTER (WHERE place <= $1::bigint) AS last_at, \
             bool_or(place > $1::bigint) AS has_more \
         FROM (SELECT tenant, destination, reason, finished_at, \
                   row_number() OVER ({order}) AS place \
               FROM postrider.deliveries_done WHERE {condition}state = 3 \
               {order} LIMIT $1::bigint + 1) AS newest \
         GROUP BY tenant, destination, reason"
    )
}

#[async_trait]
impl Summaries for PostgresStore {
    async fn due_counts(
        &self,
        tenant: Option<&TenantId>,
        now: Timestamp,
        most: u64,
    ) -> Result<DueCounts, StoreError> {
        let mut tally = DueTally::new(now, most);
        let ends: Vec<i64> = tally.ends().map(Timestamp::as_unix_ms).collect();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let lists = &self.core.lists;
        let rows = match tenant {
            Some(tenant) => {
                let limit = count(DUE_SPANS).saturating_mul(most).saturating_add(1);
                let params: [&(dyn ToSql + Sync); 3] = [&tenant.as_str(), &ends, &limit];
                let rows = lists.query(Scope::Tenant(tenant), DUE_OF_TENANT, &params).await?;
                let read = rows.iter().map(|row| get::<i64>(row, "n")).sum::<Result<i64, _>>()?;
                if read >= limit {
                    tally.has_more();
                }
                rows
            }
            None => {
                let firsts: Vec<i64> = [i64::MIN].into_iter().chain(ends.clone()).collect();
                let untils: Vec<i64> = ends.into_iter().chain([i64::MAX]).collect();
                let limit = most.saturating_add(1);
                lists.query(Scope::All, DUE_OF_ALL, &[&firsts, &untils, &limit]).await?
            }
        };
        for row in &rows {
            let span = usize::try_from(get::<i64>(row, "span")?).unwrap_or(usize::MAX);
            tally.add_to(span, rows::unsigned(get(row, "n")?));
        }
        Ok(tally.done())
    }

    async fn dead_letters(
        &self,
        tenant: Option<&TenantId>,
        most: usize,
    ) -> Result<DeadLetters, StoreError> {
        let most = count(most);
        let lists = &self.core.lists;
        let found = match tenant {
            Some(tenant) => {
                let params: [&(dyn ToSql + Sync); 2] = [&most, &tenant.as_str()];
                lists.query(Scope::Tenant(tenant), &dead("tenant = $2 AND "), &params).await?
            }
            None => lists.query(Scope::All, &dead(""), &[&most]).await?,
        };
        let (mut tally, mut is_whole) = (DeadTally::default(), true);
        for row in &found {
            is_whole &= !get::<bool>(row, "has_more")?;
            let n = rows::unsigned(get(row, "n")?);
            if n == 0 {
                continue;
            }
            let reason = match get::<i16>(row, "reason")? {
                0 => DeadReason::Exhausted,
                1 => DeadReason::NotAdmitted,
                other => return Err(corrupt("deliveries_done", format!("reason {other}"))),
            };
            tally.add(DeadGroup {
                tenant: rows::parse(row, "tenant")?,
                destination: DestinationId::from_bytes(rows::id(row, "destination")?),
                reason,
                count: n,
                first_at: rows::time(row, "first_at")?,
                last_at: rows::time(row, "last_at")?,
            });
        }
        Ok(tally.done(is_whole))
    }
}
