//! Reading events, deliveries, attempts, timelines and counters.

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, ObjectId, TenantId};
use postrider_domain::ledger::Ledger;
use postrider_domain::limits::{ATTEMPT_PAGE_BYTES_MAX, PAGE_BYTES_MAX};
use postrider_domain::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::counts::MINUTE_MS;
use super::delivery_columns::{DONE, OPEN, delivery, state_number};
use super::paging::{cursor, limit, page, page_within, place, single, within};
use super::pool::Scope;
use super::rows::{self, ATTEMPT, get, json, unsigned, uuid};
use crate::contract::History;
use crate::error::StoreError;
use crate::records::{
    Cursor, DeliveryFilter, EventFilter, EventRecord, Page, PageRequest, Tally, TallyAt,
};

/// SQL conditions with their parameters. The text depends only on which conditions are present, so
/// each combination is prepared once.
#[derive(Default)]
pub(super) struct Conditions {
    text: Vec<String>,
    params: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Conditions {
    /// Adds a condition; `?` stands for the parameter.
    pub(super) fn add(&mut self, condition: &str, param: impl ToSql + Sync + Send + 'static) {
        self.params.push(Box::new(param));
        self.text.push(condition.replace('?', &format!("${}", self.params.len())));
    }

    /// Adds a condition if the parameter is given.
    pub(super) fn add_opt<T: ToSql + Sync + Send + 'static>(
        &mut self,
        condition: &str,
        param: Option<T>,
    ) {
        if let Some(param) = param {
            self.add(condition, param);
        }
    }

    /// Restricts a list that is newest first to the entries after this position.
    pub(super) fn before<I: ToSql + Sync + Send + 'static>(
        &mut self,
        time: &str,
        mark: Option<(i64, I)>,
    ) {
        if let Some((at, id)) = mark {
            self.params.push(Box::new(at));
            self.params.push(Box::new(id));
            let n = self.params.len();
            self.text.push(format!("({time}, id) < (${}, ${n})", n - 1));
        }
    }

    /// Adds a parameter that is used outside the conditions.
    pub(super) fn argument(&mut self, param: impl ToSql + Sync + Send + 'static) -> String {
        self.params.push(Box::new(param));
        format!("${}", self.params.len())
    }

    pub(super) fn text(&self) -> String {
        self.text.join(" AND ")
    }

    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.params.iter().map(|param| &**param as &(dyn ToSql + Sync)).collect()
    }

    /// The conditions of a filter of one tenant's deliveries.
    pub(super) fn of_deliveries(tenant: &TenantId, filter: &DeliveryFilter) -> Self {
        let mut all = Conditions::of_deliveries_in_any_state(tenant, filter);
        all.add_opt("state = ?", filter.state.map(state_number));
        all
    }

    /// The conditions without the state, which is written into the SQL as a number: PostgreSQL uses
    /// a partial index only if the query's text implies the index's condition.
    pub(super) fn of_deliveries_in_any_state(tenant: &TenantId, filter: &DeliveryFilter) -> Self {
        let mut all = Conditions::default();
        all.add("tenant = ?", tenant.to_string());
        all.add_opt("destination = ?", filter.destination.map(|id| uuid(id.as_bytes())));
        all.add_opt("subscription = ?", filter.subscription.map(|id| uuid(id.as_bytes())));
        all.add_opt("event = ?", filter.event.as_ref().map(ToString::to_string));
        all.add_opt("kind = ?", filter.kind.as_ref().map(ToString::to_string));
        all.add_opt("created_at >= ?", rows::ms(filter.since));
        all.add_opt("created_at < ?", rows::ms(filter.until));
        // Of the finished ones alone: `parts` leaves the others out.
        all.add_opt("finished_at >= ?", rows::ms(filter.ended_since));
        all
    }
}

/// The parts of a list of deliveries: columns, table and condition on the state. Indexes by subscription
/// and by type have the state before the time, so each state is a part of its own there.
pub(super) fn parts(filter: &DeliveryFilter) -> Vec<(&'static str, &'static str, &'static str)> {
    let (open, done) = (OPEN.as_str(), DONE.as_str());
    let queued = (open, "deliveries_open", " AND state = 0");
    let waiting = (open, "deliveries_open", " AND state = 1");
    let delivered = (done, "deliveries_done", " AND state = 2");
    let dead = (done, "deliveries_done", " AND state = 3");
    let cancelled = (done, "deliveries_done", " AND state = 4");
    let is_finished = filter.ended_since.is_some();
    match filter.state {
        Some(StateName::Queued | StateName::Waiting) if is_finished => Vec::new(),
        None if is_finished => vec![delivered, dead, cancelled],
        None if filter.subscription.is_some() || filter.kind.is_some() => {
            vec![queued, waiting, delivered, dead, cancelled]
        }
        None => vec![(open, "deliveries_open", ""), (done, "deliveries_done", "")],
        Some(StateName::Queued) => vec![queued],
        Some(StateName::Waiting) => vec![waiting],
        Some(StateName::Delivered) => vec![delivered],
        Some(StateName::Dead) => vec![dead],
        Some(StateName::Cancelled) => vec![cancelled],
        // In flight is a state of the engine's memory, never of the store.
        Some(StateName::InFlight) => Vec::new(),
    }
}

impl PostgresStore {
    /// The statement of a list of deliveries; `None` where there are none.
    async fn list_statement(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        request: &PageRequest,
    ) -> Result<(Option<String>, Conditions), StoreError> {
        let mark: Option<(i64, DeliveryId)> = place(request)?;
        let mut conditions = self.narrowed(tenant, filter).await?;
        // A separate condition, so that PostgreSQL skips the partitions of later days.
        conditions.add_opt("created_at <= ?", mark.as_ref().map(|(at, _)| *at));
        let mark: Option<(i64, Uuid)> = mark.map(|(at, id)| (at, uuid(id.as_bytes())));
        conditions.before("created_at", mark);
        let most = conditions.argument(limit(request));
        let (which, order) = (conditions.text(), "ORDER BY created_at DESC, id DESC");
        let parts = parts(filter).into_iter().map(|(columns, table, is_state)| {
            format!(
                "(SELECT {columns} FROM postrider.{table} WHERE {which}{is_state} {order} \
                 LIMIT {most})"
            )
        });
        let parts = parts.collect::<Vec<_>>().join(" UNION ALL ");
        // One statement sees one snapshot, so a delivery that ends meanwhile is listed once.
        let sql = (!parts.is_empty())
            .then(|| format!("SELECT * FROM ({parts}) AS all_of_them {order} LIMIT {most}"));
        Ok((sql, conditions))
    }

    /// The query plan of a list of deliveries.
    #[cfg(feature = "testing")]
    pub async fn plan_of_list(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        request: &PageRequest,
    ) -> Result<String, StoreError> {
        let (sql, conditions) = self.list_statement(tenant, filter, request).await?;
        let sql = format!("EXPLAIN (COSTS OFF) {}", sql.unwrap_or_default());
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &conditions.params()).await?;
        let lines: Result<Vec<String>, StoreError> =
            rows.iter().map(|row| get(row, "QUERY PLAN")).collect();
        Ok(lines?.join("\n"))
    }

    /// Counts the deliveries of a filter that also meet a further condition on `d`.
    async fn count(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        further: &str,
    ) -> Result<u64, StoreError> {
        let conditions = self.narrowed(tenant, filter).await?;
        let which = conditions.text();
        let counts = parts(filter).into_iter().map(|(_, table, is_state)| {
            format!(
                "(SELECT count(*) FROM postrider.{table} AS d WHERE {which}{is_state}{further})"
            )
        });
        let counts = counts.collect::<Vec<_>>().join(" + ");
        if counts.is_empty() {
            return Ok(0);
        }
        let sql = format!("SELECT {counts} AS n");
        let lists = &self.core.lists;
        let row = lists.query_opt(Scope::Tenant(tenant), &sql, &conditions.params()).await?;
        row.as_ref().map_or(Ok(0), |row| get(row, "n").map(unsigned))
    }

    /// Adds the time of an event to the filter: deliveries have the time of their event, so only
    /// one partition is read.
    async fn narrowed(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<Conditions, StoreError> {
        let mut conditions = Conditions::of_deliveries_in_any_state(tenant, filter);
        if let Some(event) = &filter.event {
            let sql = "SELECT accepted_at FROM postrider.event_ids WHERE tenant = $1 AND id = $2";
            let (whose, id) = (tenant.as_str(), event.as_str());
            let row = self.core.lists.query_opt(Scope::Tenant(tenant), sql, &[&whose, &id]).await?;
            if let Some(row) = row {
                conditions.add("created_at = ?", get::<i64>(&row, "accepted_at")?);
            }
        }
        Ok(conditions)
    }
}

#[async_trait]
impl History for PostgresStore {
    async fn event(
        &self,
        tenant: &TenantId,
        id: &EventId,
    ) -> Result<Option<EventRecord>, StoreError> {
        let sql = "SELECT e.* FROM postrider.event_ids AS i \
                   JOIN postrider.events AS e ON e.tenant = i.tenant AND e.id = i.id \
                   AND e.accepted_at = i.accepted_at WHERE i.tenant = $1 AND i.id = $2";
        let (whose, id) = (tenant.as_str(), id.as_str());
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), sql, &[&whose, &id]).await?;
        row.as_ref().map(rows::event).transpose()
    }

    async fn list_events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        request: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let mark: Option<(i64, EventId)> = place(request)?;
        let mut conditions = Conditions::default();
        conditions.add("tenant = ?", tenant.to_string());
        conditions.add_opt("kind = ?", filter.kind.as_ref().map(ToString::to_string));
        conditions.add_opt("object = ?", filter.object.as_ref().map(ToString::to_string));
        conditions.add_opt("accepted_at >= ?", rows::ms(filter.since));
        conditions.add_opt("accepted_at < ?", rows::ms(filter.until));
        let upper = mark.as_ref().map(|(at, _)| *at);
        conditions.add_opt("accepted_at <= ?", upper);
        conditions.before("accepted_at", mark.map(|(at, id)| (at, id.to_string())));
        let most = conditions.argument(limit(request));
        let order = "ORDER BY accepted_at DESC, id DESC";
        let listed = format!(
            "SELECT * FROM postrider.events WHERE {} {order} LIMIT {most}",
            conditions.text()
        );
        let bytes = "octet_length(data) + coalesce(octet_length(old), 0)";
        let sql = within(&listed, order, bytes, PAGE_BYTES_MAX);
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &conditions.params()).await?;
        page_within(&rows, request, rows::event, |record, _| {
            Ok(cursor(record.accepted_at, &record.event.id))
        })
    }

    async fn delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError> {
        let sql = format!(
            "SELECT {} FROM postrider.deliveries_open WHERE id = $2 AND tenant = $1 UNION ALL \
             SELECT {} FROM postrider.deliveries_done WHERE id = $2 AND tenant = $1",
            *OPEN, *DONE
        );
        let (whose, id) = (tenant.as_str(), uuid(id.as_bytes()));
        let row = self.core.pool.query_opt(Scope::Tenant(tenant), &sql, &[&whose, &id]).await?;
        row.as_ref().map(delivery).transpose()
    }

    async fn list_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        request: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let (sql, conditions) = self.list_statement(tenant, filter, request).await?;
        let Some(sql) = sql else { return Ok(Page { items: Vec::new(), next: None }) };
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &conditions.params()).await?;
        page(&rows, request, delivery, |delivery, _| Ok(cursor(delivery.created_at, delivery.id)))
    }

    async fn deliveries_of_object(
        &self,
        tenant: &TenantId,
        object: &ObjectId,
        filter: &DeliveryFilter,
        request: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        self.of_object(tenant, object, filter, request).await
    }

    async fn count_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        self.count(tenant, filter, "").await
    }

    async fn count_replayable(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        let is_live = " AND EXISTS (SELECT FROM postrider.subscriptions AS s \
                       WHERE s.tenant = d.tenant AND s.id = d.subscription \
                       AND s.deleted_at IS NULL)";
        self.count(tenant, filter, is_live).await
    }

    async fn attempt_page(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
        request: &PageRequest,
    ) -> Result<Page<Attempt>, StoreError> {
        let after: Option<i32> = single(request)?;
        let listed = format!(
            "SELECT {ATTEMPT} FROM postrider.attempts WHERE tenant = $1 AND delivery = $2 \
             AND number > $3 ORDER BY number LIMIT $4"
        );
        let bytes = "octet_length(record) + coalesce(octet_length(body), 0)";
        let sql = within(&listed, "ORDER BY number", bytes, ATTEMPT_PAGE_BYTES_MAX);
        let (whose, id) = (tenant.as_str(), uuid(delivery.as_bytes()));
        let (after, most) = (after.unwrap_or(0), limit(request));
        let params: [&(dyn ToSql + Sync); 4] = [&whose, &id, &after, &most];
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &params).await?;
        page_within(&rows, request, rows::attempt, |last, _| Ok(Cursor(last.number.to_string())))
    }

    async fn transitions(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        request: &PageRequest,
    ) -> Result<Page<Transition>, StoreError> {
        let before: Option<i64> = single(request)?;
        let sql = "SELECT number, record FROM postrider.transitions \
                   WHERE tenant = $1 AND destination = $2 AND number < $3 \
                   ORDER BY number DESC LIMIT $4";
        let (whose, id) = (tenant.as_str(), uuid(destination.as_bytes()));
        let (before, most) = (before.unwrap_or(i64::MAX), limit(request));
        let params: [&(dyn ToSql + Sync); 4] = [&whose, &id, &before, &most];
        let rows = self.core.lists.query(Scope::Tenant(tenant), sql, &params).await?;
        let number = |_: &Transition, row: &Row| Ok(Cursor(get::<i64>(row, "number")?.to_string()));
        page(&rows, request, |row| json(row, "record"), number)
    }

    async fn waiting_counts(
        &self,
        tenant: &TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<u64>, StoreError> {
        let ids: Vec<Uuid> = destinations.iter().map(|id| uuid(id.as_bytes())).collect();
        let sql = "SELECT (SELECT count(*) FROM postrider.deliveries_open AS o \
                   WHERE o.destination = wanted.id AND o.state = 1 AND o.tenant = $1) AS n \
                   FROM unnest($2::uuid[]) WITH ORDINALITY AS wanted (id, place) ORDER BY place";
        let params: [&(dyn ToSql + Sync); 2] = [&tenant.as_str(), &ids];
        let rows = self.core.lists.query(Scope::Tenant(tenant), sql, &params).await?;
        rows.iter().map(|row| get(row, "n").map(unsigned)).collect()
    }

    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError> {
        let columns = "accepted, queued, waiting, delivered, dead, cancelled";
        let sums = columns.split(", ").map(|c| format!("coalesce(sum({c}), 0)::bigint AS {c}"));
        let sums: Vec<String> = sums.collect();
        let which = if tenant.is_some() { "WHERE tenant = $1" } else { "" };
        let sql = format!(
            "SELECT {} FROM (SELECT {columns} FROM postrider.ledgers {which} UNION ALL \
             SELECT {columns} FROM postrider.ledger_deltas {which}) AS both_of_them",
            sums.join(", ")
        );
        let whose = tenant.map(TenantId::as_str);
        let params: Vec<&(dyn ToSql + Sync)> =
            whose.as_ref().map(|id| id as &(dyn ToSql + Sync)).into_iter().collect();
        let scope = tenant.map_or(Scope::All, Scope::Tenant);
        let row = self.core.pool.query_opt(scope, &sql, &params).await?;
        row.as_ref().map_or(Ok(Ledger::default()), rows::ledger)
    }

    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError> {
        let mut conditions = Conditions::default();
        // Minutes that begin at or after `since` and before `until`.
        let first = |at: Timestamp| {
            let (ms, minute) = (at.as_unix_ms(), at.as_unix_ms().div_euclid(MINUTE_MS));
            minute + i64::from(ms.rem_euclid(MINUTE_MS) != 0)
        };
        conditions.add("minute >= ?", first(since));
        conditions.add("minute < ?", first(until));
        conditions.add_opt("tenant = ?", tenant.map(ToString::to_string));
        let step = conditions.argument(i64::from(step_minutes.max(1)));
        let (which, columns) = (conditions.text(), "minute, accepted, delivered, failed, dead");
        let sql = format!(
            "SELECT floor(minute / {step}::bigint::numeric)::bigint * {step} AS minute, \
             sum(accepted)::bigint AS accepted, sum(delivered)::bigint AS delivered, \
             sum(failed)::bigint AS failed, sum(dead)::bigint AS dead FROM ( \
             SELECT {columns} FROM postrider.tallies WHERE {which} UNION ALL \
             SELECT {columns} FROM postrider.tally_deltas WHERE {which}) AS both_of_them \
             GROUP BY 1 ORDER BY 1"
        );
        let scope = tenant.map_or(Scope::All, Scope::Tenant);
        let rows = self.core.lists.query(scope, &sql, &conditions.params()).await?;
        rows.iter().map(tally).collect()
    }
}

fn tally(row: &Row) -> Result<TallyAt, StoreError> {
    let n = |column| get(row, column).map(unsigned);
    let tally = Tally {
        accepted: n("accepted")?,
        delivered: n("delivered")?,
        failed: n("failed")?,
        dead: n("dead")?,
    };
    let minute: i64 = get(row, "minute")?;
    Ok(TallyAt { at: Timestamp::from_unix_ms(minute.saturating_mul(MINUTE_MS)), tally })
}
