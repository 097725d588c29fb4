//! The operator's view: lists of all tenants together.
//!
//! Events and deliveries have no index by time alone: it would cost every acceptance. They are read by spans of time
//! instead, through an index of block ranges: the newest second first, then twice as much at a time, until the
//! page is full or the oldest day is reached.

use async_trait::async_trait;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId};
use postrider_domain::limits::PAGE_BYTES_MAX;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::configuration::{before, destination, key, subscription};
use super::days::DAY_MS;
use super::delivery_columns::{DONE, OPEN, delivery};
use super::history::Conditions;
use super::paging::{cursor, limit, page, page_within, place, within};
use super::pool::Scope;
use super::rows::{self, get, uuid};
use crate::error::StoreError;
use crate::overview::{Overview, Shown, Span};
use crate::records::{DestinationRecord, EventRecord, Key, Page, PageRequest, SubscriptionRecord};

/// The length of the first span.
const FIRST_SPAN_MS: i64 = 1_000;

#[async_trait]
impl Overview for PostgresStore {
    async fn keys_of_all(&self, request: &PageRequest) -> Result<Page<Key>, StoreError> {
        let before: Option<(i64, String)> = place(request)?;
        let (at, id) = before.unwrap_or((i64::MAX, String::new()));
        let sql = "SELECT * FROM postrider.keys WHERE (created_at, id) < ($1, $2) \
                   ORDER BY created_at DESC, id DESC LIMIT $3";
        let rows = self.core.lists.query(Scope::All, sql, &[&at, &id, &limit(request)]).await?;
        page(&rows, request, key, |key, _| Ok(cursor(key.created_at, &key.id)))
    }

    async fn subscriptions_of_all(
        &self,
        request: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        let (at, id) = before(place::<SubscriptionId>(request)?, |id| uuid(id.as_bytes()));
        let listed = "SELECT * FROM postrider.subscriptions WHERE deleted_at IS NULL \
                      AND ($1::bigint IS NULL OR (created_at, id) < ($1, $2)) \
                      ORDER BY created_at DESC, id DESC LIMIT $3";
        let order = "ORDER BY created_at DESC, id DESC";
        let sql = within(listed, order, "octet_length(record)", PAGE_BYTES_MAX);
        let rows = self.core.lists.query(Scope::All, &sql, &[&at, &id, &limit(request)]).await?;
        page_within(&rows, request, subscription, |record, _| {
            Ok(cursor(record.subscription.created_at, record.subscription.id))
        })
    }

    async fn destinations_of_all(
        &self,
        shown: Shown,
        request: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        let (at, id) = before(place::<DestinationId>(request)?, |id| uuid(id.as_bytes()));
        let failing = match shown {
            Shown::All => "",
            Shown::Failing => "failing AND",
        };
        let sql = format!(
            "SELECT * FROM postrider.destinations WHERE {failing} unused_since IS NULL \
             AND ($1::bigint IS NULL OR (created_at, id) < ($1, $2)) \
             ORDER BY created_at DESC, id DESC LIMIT $3"
        );
        let rows = self.core.lists.query(Scope::All, &sql, &[&at, &id, &limit(request)]).await?;
        page(&rows, request, destination, |record, _| Ok(cursor(record.created_at, record.id)))
    }

    async fn waiting_of_all(&self, destinations: &[DestinationId]) -> Result<Vec<u64>, StoreError> {
        let ids: Vec<Uuid> = destinations.iter().map(|id| uuid(id.as_bytes())).collect();
        let sql = "SELECT (SELECT count(*) FROM postrider.deliveries_open AS o \
                   WHERE o.destination = wanted.id AND o.state = 1) AS n \
                   FROM unnest($1::uuid[]) WITH ORDINALITY AS wanted (id, place) ORDER BY place";
        let rows = self.core.lists.query(Scope::All, sql, &[&ids]).await?;
        rows.iter().map(|row| get(row, "n").map(rows::unsigned)).collect()
    }

    async fn events_of_all(
        &self,
        span: Span,
        request: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let mark: Option<(i64, String)> = place(request)?;
        let (at, name) = mark.map_or((None, String::new()), |(at, name)| (Some(at), name));
        let (id, tenant) = name.split_once(' ').unwrap_or((&name, ""));
        let from = at.unwrap_or(i64::MAX);
        let order = "ORDER BY accepted_at DESC, id DESC, tenant DESC";
        // Payloads are read for the page alone.
        let sql = format!(
            "SELECT tenant, id, accepted_at, \
                 octet_length(data) + coalesce(octet_length(old), 0) AS bytes \
             FROM postrider.events WHERE accepted_at >= $1 AND accepted_at <= $2 \
                 AND (accepted_at, id, tenant) < ($3, $4, $5) {order} LIMIT $6"
        );
        let most = limit(request);
        let mut spans = self.spans(span, at).await?;
        let mut found: Vec<Row> = Vec::new();
        while found.len() <= request.limit
            && let Some((first, last)) = spans.next()
        {
            let params: [&(dyn ToSql + Sync); 6] = [&first, &last, &from, &id, &tenant, &most];
            found.extend(self.core.lists.query(Scope::All, &sql, &params).await?);
        }
        self.page_of_events(&found, request).await
    }

    async fn deliveries_of_all(
        &self,
        state: Option<StateName>,
        span: Span,
        request: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let mark: Option<(i64, DeliveryId)> = place(request)?;
        let mut spans = self.spans(span, mark.map(|(at, _)| at)).await?;
        let mut found: Vec<Row> = Vec::new();
        while found.len() <= request.limit
            && let Some((first, last)) = spans.next()
        {
            let mut conditions = Conditions::default();
            conditions.add("created_at >= ?", first);
            conditions.add("created_at <= ?", last);
            conditions.before("created_at", mark.map(|(at, id)| (at, uuid(id.as_bytes()))));
            let most = conditions.argument(limit(request));
            let (which, order) = (conditions.text(), "ORDER BY created_at DESC, id DESC");
            let parts = parts(state).into_iter().map(|(columns, table, is_state)| {
                format!(
                    "(SELECT {columns} FROM postrider.{table} WHERE {which}{is_state} {order} \
                     LIMIT {most})"
                )
            });
            let parts = parts.collect::<Vec<_>>().join(" UNION ALL ");
            if parts.is_empty() {
                break;
            }
            let sql = format!("SELECT * FROM ({parts}) AS all_of_them {order} LIMIT {most}");
            found.extend(self.core.lists.query(Scope::All, &sql, &conditions.params()).await?);
        }
        page(&found, request, delivery, |delivery, _| Ok(cursor(delivery.created_at, delivery.id)))
    }
}

/// The parts of a list of deliveries: columns, table and condition on the state, each with an index by time.
fn parts(state: Option<StateName>) -> Vec<(&'static str, &'static str, &'static str)> {
    let (open, done) = (OPEN.as_str(), DONE.as_str());
    let queued = (open, "deliveries_open", " AND state = 0");
    let waiting = (open, "deliveries_open", " AND state = 1");
    match state {
        None => vec![queued, waiting, (done, "deliveries_done", "")],
        Some(StateName::Queued) => vec![queued],
        Some(StateName::Waiting) => vec![waiting],
        Some(StateName::Delivered) => vec![(done, "deliveries_done", " AND state = 2")],
        Some(StateName::Dead) => vec![(done, "deliveries_done", " AND state = 3")],
        Some(StateName::Cancelled) => vec![(done, "deliveries_done", " AND state = 4")],
        // In flight is a state of the engine's memory, never of the store.
        Some(StateName::InFlight) => Vec::new(),
    }
}

/// Spans of time from the newest to the oldest, each twice as long as the one before it.
struct Spans {
    /// The end of the next span, which is part of it; `None` when there are no more.
    last: Option<i64>,
    /// The beginning of the next span, where it is not before the oldest time.
    first: i64,
    length: i64,
    oldest: i64,
}

impl Iterator for Spans {
    type Item = (i64, i64);

    fn next(&mut self) -> Option<(i64, i64)> {
        let last = self.last.filter(|last| *last >= self.oldest)?;
        let first = self.first.max(self.oldest);
        self.length = self.length.saturating_mul(2);
        self.last = first.checked_sub(1);
        self.first = first.saturating_sub(self.length);
        Some((first, last))
    }
}

impl PostgresStore {
    /// The spans to read for a page that begins at a time, or at the newest record.
    async fn spans(&self, span: Span, from: Option<i64>) -> Result<Spans, StoreError> {
        let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now, \
                   (SELECT min(day) FROM postrider.days) AS oldest";
        let row = self.core.lists.query_opt(Scope::All, sql, &[]).await?;
        let (now, oldest): (i64, Option<i32>) = match &row {
            Some(row) => (get(row, "now")?, get(row, "oldest")?),
            None => (i64::MAX, None),
        };
        let since = span.since.map_or(i64::MIN, |since| since.as_unix_ms());
        let until = span.until.map_or(i64::MAX, |until| until.as_unix_ms().saturating_sub(1));
        let last = from.map_or(until, |from| from.min(until));
        let oldest = oldest.map_or(i64::MAX, |day| i64::from(day).saturating_mul(DAY_MS));
        Ok(Spans {
            last: Some(last),
            // Records of a node whose clock is ahead are later than now.
            first: last.min(now).saturating_sub(FIRST_SPAN_MS),
            length: FIRST_SPAN_MS,
            oldest: oldest.max(since),
        })
    }

    /// The events of a page, with their payloads. The page ends early where these are large.
    async fn page_of_events(
        &self,
        found: &[Row],
        request: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let (mut tenants, mut ids, mut times) = (Vec::new(), Vec::new(), Vec::new());
        let mut held = 0usize;
        for row in found.iter().take(request.limit) {
            let bytes: i32 = get(row, "bytes")?;
            held = held.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
            if !ids.is_empty() && held > PAGE_BYTES_MAX {
                break;
            }
            tenants.push(get::<&str>(row, "tenant")?);
            ids.push(get::<&str>(row, "id")?);
            times.push(get::<i64>(row, "accepted_at")?);
        }
        let has_more = found.len() > ids.len();
        let sql = "SELECT e.* FROM unnest($1::text[], $2::text[], $3::bigint[]) \
                       WITH ORDINALITY AS w (tenant, id, accepted_at, nth) \
                   JOIN postrider.events AS e ON e.tenant = w.tenant AND e.id = w.id \
                       AND e.accepted_at = w.accepted_at ORDER BY w.nth";
        let rows = self.core.lists.query(Scope::All, sql, &[&tenants, &ids, &times]).await?;
        let items: Vec<EventRecord> = rows.iter().map(rows::event).collect::<Result<_, _>>()?;
        let next = items.last().filter(|_| has_more).map(|last| {
            // A space sorts before every character of either.
            cursor(last.accepted_at, format!("{} {}", last.event.id, last.event.tenant))
        });
        Ok(Page { items, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_cover_the_time_without_gaps_and_grow() {
        let spans = Spans { last: Some(i64::MAX), first: 99_000, length: 1_000, oldest: 90_000 };
        let all: Vec<_> = spans.collect();
        assert_eq!(all, [(99_000, i64::MAX), (97_000, 98_999), (93_000, 96_999), (90_000, 92_999)]);
        let none = Spans { last: Some(5), first: 4, length: 1, oldest: 6 };
        assert_eq!(none.count(), 0);
    }
}
