//! Bulk replay jobs.

use async_trait::async_trait;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, ReplayId, TenantId};
use postrider_domain::job_outcomes::{JobOutcomes, OutcomeChange};
use postrider_domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::delivery_columns::{DONE, OPEN, deliveries};
use super::error::corrupt;
use super::history::Conditions;
use super::paging::{cursor, limit, page, place};
use super::pool::Scope;
use super::rows::{self, count, get, json, ms, parse, time, time_opt, to_json, unsigned, uuid};
use crate::contract::Replays;
use crate::error::StoreError;
use crate::records::{DeliveryFilter, Page, PageRequest, ReplayJob, ReplayState};

/// The number by which a job's state is stored.
pub(super) const fn state_number(state: ReplayState) -> i16 {
    match state {
        ReplayState::Running => 0,
        ReplayState::Paused => 1,
        ReplayState::Finished => 2,
        ReplayState::Cancelled => 3,
    }
}

/// A filter as it is stored in JSON, with identifiers and types as text.
#[derive(Serialize, Deserialize)]
struct FilterRecord {
    state: Option<String>,
    destination: Option<postrider_domain::ids::DestinationId>,
    subscription: Option<postrider_domain::ids::SubscriptionId>,
    event: Option<postrider_domain::ids::EventId>,
    kind: Option<String>,
    since_ms: Option<i64>,
    until_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended_since_ms: Option<i64>,
}

fn filter_record(filter: &DeliveryFilter) -> FilterRecord {
    FilterRecord {
        state: filter.state.map(|state| state.to_string()),
        destination: filter.destination,
        subscription: filter.subscription,
        event: filter.event.clone(),
        kind: filter.kind.as_ref().map(ToString::to_string),
        since_ms: ms(filter.since),
        until_ms: ms(filter.until),
        ended_since_ms: ms(filter.ended_since),
    }
}

/// A filter as the text of its column.
pub(super) fn filter_text(filter: &DeliveryFilter) -> Result<String, StoreError> {
    to_json(&filter_record(filter))
}

fn filter(row: &Row) -> Result<DeliveryFilter, StoreError> {
    let record: FilterRecord = json(row, "filter")?;
    let unknown = |what: &str| corrupt("replays", format!("{what:?} in the filter"));
    let state = match &record.state {
        None => None,
        Some(name) => {
            let known = StateName::ALL.into_iter().find(|state| state.as_str() == name);
            Some(known.ok_or_else(|| unknown(name))?)
        }
    };
    let kind = match &record.kind {
        None => None,
        Some(kind) => Some(kind.parse().map_err(|_| unknown(kind))?),
    };
    Ok(DeliveryFilter {
        state,
        destination: record.destination,
        subscription: record.subscription,
        event: record.event,
        kind,
        since: record.since_ms.map(Timestamp::from_unix_ms),
        until: record.until_ms.map(Timestamp::from_unix_ms),
        ended_since: record.ended_since_ms.map(Timestamp::from_unix_ms),
    })
}

/// Selects jobs with their outcomes, from `postrider.replays AS r`.
pub(super) const SELECT: &str = "SELECT r.*, o.* FROM postrider.replays AS r CROSS JOIN LATERAL \
     (SELECT sum(pending)::bigint AS pending, sum(failed)::bigint AS failed, \
         sum(delivered)::bigint AS delivered, sum(dead)::bigint AS dead, \
         sum(withdrawn)::bigint AS withdrawn \
      FROM postrider.replay_outcomes AS n WHERE n.tenant = r.tenant AND n.replay = r.id) AS o";

/// Adds to the outcomes of jobs that this node (`$8`) settled.
pub(super) const ADD_OUTCOMES: &str = "INSERT INTO postrider.replay_outcomes AS o \
     (tenant, replay, pending, failed, delivered, dead, withdrawn, node) \
     SELECT n.*, $8 FROM unnest($1::text[], $2::uuid[], $3::bigint[], $4::bigint[], $5::bigint[], \
         $6::bigint[], $7::bigint[]) AS n (tenant, id, pending, failed, delivered, dead, withdrawn) \
     WHERE EXISTS (SELECT 1 FROM postrider.replays AS r WHERE r.tenant = n.tenant AND r.id = n.id) \
     ON CONFLICT (tenant, replay, node) DO UPDATE SET pending = o.pending + excluded.pending, \
         failed = o.failed + excluded.failed, delivered = o.delivered + excluded.delivered, \
         dead = o.dead + excluded.dead, withdrawn = o.withdrawn + excluded.withdrawn";

/// The parameters of [`ADD_OUTCOMES`] but for the node.
#[derive(Default)]
pub(super) struct OutcomeColumns<'a>(Vec<&'a str>, Vec<Uuid>, [Vec<i64>; JobOutcomes::KINDS]);

impl<'a> OutcomeColumns<'a> {
    pub(super) fn push(&mut self, tenant: &'a str, id: ReplayId, change: &OutcomeChange) {
        self.0.push(tenant);
        self.1.push(uuid(id.as_bytes()));
        self.2.iter_mut().zip(change).for_each(|(column, n)| column.push(*n));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all<'s>(&'s self, node: &'s &str) -> Vec<&'s (dyn ToSql + Sync)> {
        let mut all: Vec<&(dyn ToSql + Sync)> = vec![&self.0, &self.1];
        all.extend(self.2.iter().map(|column| column as &(dyn ToSql + Sync)));
        all.push(node);
        all
    }
}

fn outcomes(row: &Row) -> Result<JobOutcomes, StoreError> {
    let mut outcomes = JobOutcomes::default();
    let names = ["pending", "failed", "delivered", "dead", "withdrawn"];
    for (count, name) in outcomes.0.iter_mut().zip(names) {
        *count = get::<Option<i64>>(row, name)?.map_or(0, unsigned);
    }
    Ok(outcomes)
}

/// Reads a job, of the columns of [`SELECT`].
pub(super) fn job(row: &Row) -> Result<ReplayJob, StoreError> {
    let state = match get::<i16>(row, "state")? {
        0 => ReplayState::Running,
        1 => ReplayState::Paused,
        2 => ReplayState::Finished,
        3 => ReplayState::Cancelled,
        other => return Err(corrupt("replays", format!("state {other}"))),
    };
    let per_second: Option<i64> = get(row, "per_second")?;
    let position: Option<Uuid> = get(row, "position")?;
    Ok(ReplayJob {
        id: ReplayId::from_bytes(rows::id(row, "id")?),
        tenant: parse(row, "tenant")?,
        filter: filter(row)?,
        per_second: per_second.map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
        created_at: time(row, "created_at")?,
        state,
        total: unsigned(get(row, "total")?),
        done: unsigned(get(row, "done")?),
        position: position.map(|id| DeliveryId::from_bytes(id.into_bytes())),
        finished_at: time_opt(row, "finished_at")?,
        outcomes: outcomes(row)?,
    })
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[async_trait]
impl Replays for PostgresStore {
    async fn put_replay(&self, job: &ReplayJob) -> Result<(), StoreError> {
        let sql = "INSERT INTO postrider.replays (tenant, id, filter, per_second, created_at, \
                   state, total, done, position, finished_at) \
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) \
                   ON CONFLICT (tenant, id) DO UPDATE SET filter = excluded.filter, \
                   per_second = excluded.per_second, created_at = excluded.created_at, \
                   state = excluded.state, total = excluded.total, done = excluded.done, \
                   position = excluded.position, finished_at = excluded.finished_at";
        let filter = filter_text(&job.filter)?;
        let position = job.position.map(|id| uuid(id.as_bytes()));
        let params: [&(dyn ToSql + Sync); 10] = [
            &job.tenant.as_str(),
            &uuid(job.id.as_bytes()),
            &filter,
            &job.per_second.map(i64::from),
            &job.created_at.as_unix_ms(),
            &state_number(job.state),
            &signed(job.total),
            &signed(job.done),
            &position,
            &ms(job.finished_at),
        ];
        self.core.pool.query(Scope::Tenant(&job.tenant), sql, &params).await?;
        Ok(())
    }

    async fn replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<Option<ReplayJob>, StoreError> {
        let sql = format!("{SELECT} WHERE r.tenant = $1 AND r.id = $2");
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &uuid(id.as_bytes())];
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), &sql, &params).await?;
        row.as_ref().map(job).transpose()
    }

    async fn replays(
        &self,
        tenant: &TenantId,
        request: &PageRequest,
    ) -> Result<Page<ReplayJob>, StoreError> {
        let mark: Option<(i64, ReplayId)> = place(request)?;
        let (at, id) = mark.map_or((None, None), |(at, id)| (Some(at), Some(uuid(id.as_bytes()))));
        let sql = format!(
            "{SELECT} WHERE r.tenant = $1 \
             AND ($2::bigint IS NULL OR (r.created_at, r.id) < ($2, $3)) \
             ORDER BY r.created_at DESC, r.id DESC LIMIT $4"
        );
        let params: [&(dyn ToSql + Sync); 4] = [&tenant.as_str(), &at, &id, &limit(request)];
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &params).await?;
        page(&rows, request, job, |job, _| Ok(cursor(job.created_at, job.id)))
    }

    async fn running_replays(&self) -> Result<Vec<ReplayJob>, StoreError> {
        let sql = format!("{SELECT} WHERE r.state = 0");
        self.core.pool.query(Scope::All, &sql, &[]).await?.iter().map(job).collect()
    }

    async fn replay_candidates(
        &self,
        job: &ReplayJob,
        most: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        if job.retries() && job.filter.ended_since.is_some() {
            // What waits has not ended, and its table has no such column.
            return Ok(Vec::new());
        }
        let mut conditions = Conditions::of_deliveries(&job.tenant, &job.filter);
        let created_at = job.created_at.as_unix_ms();
        let (columns, table) = if job.retries() {
            conditions.add("created_at <= ?", created_at);
            conditions.add("(last_attempt_at IS NULL OR last_attempt_at <= ?)", created_at);
            (OPEN.as_str(), "deliveries_open")
        } else {
            conditions.add("finished_at <= ?", created_at);
            (DONE.as_str(), "deliveries_done")
        };
        conditions.add_opt("id > ?", job.position.map(|id| uuid(id.as_bytes())));
        let most = conditions.argument(count(most));
        let sql = format!(
            "SELECT {columns} FROM postrider.{table} WHERE {} ORDER BY id LIMIT {most}",
            conditions.text()
        );
        let pool = &self.core.lists;
        let rows = pool.query(Scope::Tenant(&job.tenant), &sql, &conditions.params()).await?;
        deliveries(&rows)
    }
}
