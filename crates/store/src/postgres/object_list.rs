//! Lists of the deliveries of one object's events.
//!
//! The index `events_object` has the object's events in the order of time. Deliveries have the time of their event, so
//! the deliveries of some events are found by their times. A page reads the events of the object step by step, until
//! it is full.

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, ObjectId, TenantId};

use super::PostgresStore;
use super::delivery_columns::delivery;
use super::history::{Conditions, parts};
use super::paging::{cursor, place};
use super::pool::Scope;
use super::rows::{get, uuid};
use crate::error::StoreError;
use crate::records::{DeliveryFilter, Page, PageRequest};

/// How many events are read in one step. Events of the same time as the last one are read with it.
const STEP: i64 = 200;

impl PostgresStore {
    /// One page, newest first.
    pub(super) async fn of_object(
        &self,
        tenant: &TenantId,
        object: &ObjectId,
        filter: &DeliveryFilter,
        request: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let mark: Option<(i64, DeliveryId)> = place(request)?;
        let until = filter.until.map_or(i64::MAX, |until| until.as_unix_ms().saturating_sub(1));
        let since = filter.since.map_or(i64::MIN, |since| since.as_unix_ms());
        let mut last = mark.as_ref().map_or(until, |(at, _)| until.min(*at));
        let mut found: Vec<Delivery> = Vec::new();
        while found.len() <= request.limit && last >= since {
            let sql = format!(
                "SELECT id, accepted_at FROM postrider.events \
                 WHERE tenant = $1 AND object = $2 AND accepted_at <= $3 AND accepted_at >= $4 \
                 ORDER BY accepted_at DESC FETCH FIRST {STEP} ROWS WITH TIES"
            );
            let (whose, what) = (tenant.as_str(), object.as_str());
            let lists = &self.core.lists;
            let rows =
                lists.query(Scope::Tenant(tenant), &sql, &[&whose, &what, &last, &since]).await?;
            let events: Result<Vec<(String, i64)>, StoreError> =
                rows.iter().map(|row| Ok((get(row, "id")?, get(row, "accepted_at")?))).collect();
            let events = events?;
            let Some((_, oldest)) = events.last() else { break };
            last = oldest.saturating_sub(1);
            let is_end = i64::try_from(events.len()).unwrap_or(i64::MAX) < STEP;
            found.extend(self.of_events(tenant, filter, events, mark).await?);
            if is_end {
                break;
            }
        }
        let has_more = found.len() > request.limit;
        found.truncate(request.limit);
        let next = found.last().filter(|_| has_more).map(|last| cursor(last.created_at, last.id));
        Ok(Page { items: found, next })
    }

    /// The deliveries of these events that the filter selects, newest first, after the mark.
    async fn of_events(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        events: Vec<(String, i64)>,
        mark: Option<(i64, DeliveryId)>,
    ) -> Result<Vec<Delivery>, StoreError> {
        let mut conditions = Conditions::of_deliveries_in_any_state(tenant, filter);
        let (ids, times): (Vec<String>, Vec<i64>) = events.into_iter().unzip();
        // Both ends, so that PostgreSQL skips the partitions of other days.
        conditions.add_opt("created_at <= ?", times.first().copied());
        conditions.add_opt("created_at >= ?", times.last().copied());
        conditions.add("created_at = ANY(?)", times);
        conditions.add("event = ANY(?)", ids);
        conditions.before("created_at", mark.map(|(at, id)| (at, uuid(id.as_bytes()))));
        let which = conditions.text();
        let parts = parts(filter).into_iter().map(|(columns, table, is_state)| {
            format!("(SELECT {columns} FROM postrider.{table} WHERE {which}{is_state})")
        });
        let parts = parts.collect::<Vec<_>>().join(" UNION ALL ");
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let sql =
            format!("SELECT * FROM ({parts}) AS all_of_them ORDER BY created_at DESC, id DESC");
        let rows = self.core.lists.query(Scope::Tenant(tenant), &sql, &conditions.params()).await?;
        rows.iter().map(delivery).collect()
    }
}
