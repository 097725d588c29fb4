//! Lists of the deliveries of one object's events.
//!
//! The index `events_of_object` of a day's file has the object's events in the order of time, and an event's row
//! lists its deliveries. So a page costs the deliveries of the events that it reads, not those of other objects.
//! A large file that an earlier version made has no such index: there the tenant's events of the day are read.

use std::path::Path;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, ObjectId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, params};

use super::cursor;
use super::deliveries::{Wanted, sort_newest_first};
use super::history::{delivery_in, name_number};
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::Reading;
use crate::embedded::files::{At, Day};
use crate::error::StoreError;
use crate::records::{DeliveryFilter, Page, PageRequest};

/// Whether a day's file has the index.
pub(super) fn is_indexed(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    let find = "SELECT 1 FROM sqlite_schema WHERE name = 'events_of_object'";
    connection.prepare_cached(find).at(path)?.exists([]).at(path)
}

/// One page, newest first.
pub(in crate::embedded) fn deliveries(
    guard: &ReadGuard<'_>,
    (tenant, object): (&TenantId, &ObjectId),
    filter: &DeliveryFilter,
    page: &PageRequest,
) -> Result<Page<Delivery>, StoreError> {
    let wanted = Wanted::new(filter, cursor::place(page)?, None);
    let limit = cursor::one_more(page);
    let mut found: Vec<(Timestamp, Delivery)> = Vec::new();
    for day in guard.days().into_iter().rev().filter(|day| wanted.touches(*day)) {
        if found.len() >= limit {
            break;
        }
        let left = limit - found.len();
        found.extend(of_day(guard, day, (tenant, object), &wanted, left)?);
    }
    found.truncate(limit);
    let Page { items, next } = cursor::page(found, page, |(at, last)| cursor::at(*at, last.id));
    Ok(Page { items: items.into_iter().map(|(_, delivery)| delivery).collect(), next })
}

fn of_day(
    guard: &ReadGuard<'_>,
    day: Day,
    (tenant, object): (&TenantId, &ObjectId),
    wanted: &Wanted<'_>,
    limit: usize,
) -> Result<Vec<(Timestamp, Delivery)>, StoreError> {
    guard.day(day, |connection, path| {
        let Some(number) = name_number(connection, path, tenant.as_str())? else {
            return Ok(Vec::new());
        };
        let is_indexed = is_indexed(connection, path)?;
        let index = if is_indexed { "INDEXED BY events_of_object" } else { "NOT INDEXED" };
        let find = format!(
            "SELECT e.id, e.n, e.deliveries FROM events AS e {index}
            WHERE e.tenant = ?1 AND e.object = ?2 AND e.n BETWEEN ?3 AND ?4 ORDER BY e.n DESC"
        );
        let (first, last) = wanted.numbers(day, number);
        let mut statement = connection.prepare_cached(&find).at(path)?;
        let values = params![number, object.as_str(), first, last];
        let mut rows = statement.query(values).at(path)?;
        let (mut found, mut group) = (Vec::new(), None);
        while let Some(row) = rows.next().at(path)? {
            let reading = Reading { row, path, table: "events" };
            // Deliveries of one millisecond are ordered by identifier, so all of them must be read.
            let event: i64 = reading.get(1)?;
            let this = row_numbers::group(event);
            if found.len() >= limit && group.is_some_and(|group| group != this) {
                break;
            }
            group = Some(this);
            guard.check()?;
            let owed: Vec<u8> = reading.get(2)?;
            for id in owed.as_chunks::<16>().0 {
                let id = DeliveryId::from_bytes(*id);
                let Some((_, delivery)) = delivery_in(connection, path, day, tenant, id)? else {
                    continue;
                };
                // Listed with its event, whose row may be slightly later than its time.
                let at = row_numbers::listed_at(day, event, delivery.created_at);
                if wanted.wants_row(at, &delivery) {
                    found.push((at, delivery));
                }
            }
        }
        sort_newest_first(&mut found);
        Ok(found)
    })
}
