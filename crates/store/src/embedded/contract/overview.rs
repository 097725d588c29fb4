//! The operator's view: lists of all tenants together.
//!
//! The rows of a day's file lie by tenant and then by time, so a list of all tenants is merged: it looks up the newest
//! row of each tenant, and then reads the rows of one tenant in one millisecond after another, newest first, until
//! the page is full. **A page costs two steps for each tenant of the days that it reads, and two for each entry.**

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;

use async_trait::async_trait;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId};
use postrider_domain::limits::PAGE_BYTES_MAX;
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::configuration::{DESTINATION, KEY, SUBSCRIPTION};
use super::cursor;
use super::deliveries::Source;
use super::event_list::event_at;
use super::history::unsigned;
use crate::embedded::EmbeddedStore;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::{
    self, AFTER_ALL, DELIVERY_COLUMNS, DELIVERY_JOINS, DELIVERY_NUMBER,
};
use crate::embedded::files::{At, Day};
use crate::error::StoreError;
use crate::overview::{Overview, Shown, Span};
use crate::records::{DestinationRecord, EventRecord, Key, Page, PageRequest, SubscriptionRecord};

#[async_trait]
impl Overview for EmbeddedStore {
    async fn keys_of_all(&self, page: &PageRequest) -> Result<Page<Key>, StoreError> {
        let page = page.clone();
        let place: Option<(Timestamp, String)> = cursor::place(&page)?;
        self.list_configured(None, move |guard| {
            let found = guard.main(|connection, path| {
                let sql = format!(
                    "{KEY} WHERE (created_at, id) < (?1, ?2)
                    ORDER BY created_at DESC, id DESC LIMIT ?3"
                );
                let end = (i64::MAX, String::new());
                let (at, id) = place.map_or(end, |(at, id)| (at.as_unix_ms(), id));
                let values = params![at, id, cursor::limit(&page)];
                rows::all(connection, path, "keys", &sql, values, rows::key_of)
            })?;
            Ok(cursor::page(found, &page, |last| cursor::at(last.created_at, &last.id)))
        })
        .await
    }

    async fn subscriptions_of_all(
        &self,
        page: &PageRequest,
    ) -> Result<Page<SubscriptionRecord>, StoreError> {
        let page = page.clone();
        let (at, id) = cursor::before::<SubscriptionId>(&page)?;
        self.list_configured(None, move |guard| {
            let found = guard.main(|connection, path| {
                let sql = format!(
                    "{SUBSCRIPTION} WHERE (created_at, id) < (?1, ?2) AND deleted_at IS NULL
                    ORDER BY created_at DESC, id DESC LIMIT ?3"
                );
                let id = id.map_or(AFTER_ALL.to_vec(), |id| id.as_bytes().to_vec());
                let values = params![at, id, cursor::limit(&page)];
                let (size, make) = ((1, PAGE_BYTES_MAX), rows::subscription_of);
                rows::within((connection, path), "subscriptions", (&sql, values), size, make)
            })?;
            Ok(cursor::page_within(found, &page, PAGE_BYTES_MAX, |last| {
                cursor::at(last.subscription.created_at, last.subscription.id)
            }))
        })
        .await
    }

    async fn destinations_of_all(
        &self,
        shown: Shown,
        page: &PageRequest,
    ) -> Result<Page<DestinationRecord>, StoreError> {
        let page = page.clone();
        let (at, id) = cursor::before::<DestinationId>(&page)?;
        self.read_list_of_all(move |guard| {
            let found = guard.main(|connection, path| {
                let failing = match shown {
                    Shown::All => "",
                    Shown::Failing => "failing = 1 AND",
                };
                let sql = format!(
                    "{DESTINATION} WHERE {failing} unused_since IS NULL
                        AND (created_at, id) < (?1, ?2)
                    ORDER BY created_at DESC, id DESC LIMIT ?3"
                );
                let id = id.map_or(AFTER_ALL.to_vec(), |id| id.as_bytes().to_vec());
                let values = params![at, id, cursor::limit(&page)];
                let make = rows::destination_of;
                rows::all(connection, path, "destinations", &sql, values, make)
            })?;
            Ok(cursor::page(found, &page, |last| cursor::at(last.created_at, last.id)))
        })
        .await
    }

    async fn waiting_of_all(&self, destinations: &[DestinationId]) -> Result<Vec<u64>, StoreError> {
        let destinations = destinations.to_vec();
        self.read_list_of_all(move |guard| {
            guard.main(|connection, path| {
                let find = "SELECT destination, waiting, crc FROM backlog WHERE destination = ?1";
                let count = |id: &DestinationId| {
                    let values = [id.as_bytes().as_slice()];
                    let make = rows::backlog_of;
                    let found = rows::one(connection, path, "backlog", find, values, make)?;
                    Ok(unsigned(found.unwrap_or(0)))
                };
                destinations.iter().map(count).collect()
            })
        })
        .await
    }

    async fn events_of_all(
        &self,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let page = page.clone();
        let from: Option<(Timestamp, String)> = cursor::place(&page)?;
        self.read_list_of_all(move |guard| events(guard, span, from, &page)).await
    }

    async fn deliveries_of_all(
        &self,
        state: Option<StateName>,
        span: Span,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let page = page.clone();
        let from: Option<(Timestamp, DeliveryId)> = cursor::place(&page)?;
        self.read_list_of_all(move |guard| deliveries(guard, state, span, from, &page)).await
    }
}

/// An event of a page, without its payload: its place in the list, its row, and the size of its payload.
struct ListedEvent {
    at: Timestamp,
    /// The identifier and the tenant, in the order of the list.
    name: String,
    row: (Day, i64),
    bytes: usize,
}

fn events(
    guard: &ReadGuard<'_>,
    span: Span,
    from: Option<(Timestamp, String)>,
    page: &PageRequest,
) -> Result<Page<EventRecord>, StoreError> {
    let limit = cursor::one_more(page);
    let last = from.as_ref().map_or(Timestamp::MAX, |(at, _)| *at);
    let read = |walk: &Walk<'_>, (first, last): (i64, i64), found: &mut Vec<ListedEvent>| {
        let Walk { connection, path, day, .. } = *walk;
        let find = "SELECT e.id, e.n, t.name, e.accepted_at,
                length(e.data) + coalesce(length(e.old), 0)
            FROM events AS e JOIN names AS t ON t.n = e.tenant WHERE e.n BETWEEN ?1 AND ?2";
        let some = rows::all(connection, path, "events", find, [first, last], |reading| {
            let (id, number) = (reading.event_id(0)?, reading.get(1)?);
            let (tenant, accepted_at): (String, _) = (reading.get(2)?, reading.time(3)?);
            let bytes: i64 = reading.get(4)?;
            let at = row_numbers::listed_at(day, number, accepted_at);
            // A space sorts before every character of either.
            let name = format!("{id} {tenant}");
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            Ok((accepted_at, ListedEvent { at, name, row: (day, number), bytes }))
        })?;
        let is_after = |one: &ListedEvent| {
            from.as_ref().is_none_or(|(at, name)| (one.at, &one.name) < (*at, name))
        };
        let wanted = some.into_iter().filter(|(at, one)| span.has(*at) && is_after(one));
        found.extend(wanted.map(|(_, one)| one));
        Ok(())
    };
    let mut found = walk_days(guard, "events", Source::All, (span, last), limit, read)?;
    found.sort_by(|one, other| (other.at, &other.name).cmp(&(one.at, &one.name)));
    found.truncate(limit);
    let found = found.into_iter().map(|one| (one.bytes, one)).collect();
    let page =
        cursor::page_within(found, page, PAGE_BYTES_MAX, |last| cursor::at(last.at, &last.name));
    let items = page.items.iter().map(|one| event_at(guard, one.row.0, one.row.1));
    Ok(Page { items: items.collect::<Result<_, _>>()?, next: page.next })
}

fn deliveries(
    guard: &ReadGuard<'_>,
    state: Option<StateName>,
    span: Span,
    from: Option<(Timestamp, DeliveryId)>,
    page: &PageRequest,
) -> Result<Page<Delivery>, StoreError> {
    if state == Some(StateName::InFlight) {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let limit = cursor::one_more(page);
    let last = from.as_ref().map_or(Timestamp::MAX, |(at, _)| *at);
    let source = Source::by_state(state);
    let read = |walk: &Walk<'_>, (first, last), found: &mut Vec<(Timestamp, Delivery)>| {
        let Walk { connection, path, day, .. } = *walk;
        let (index, condition, value) = source.sql();
        let find = format!(
            "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {index} {DELIVERY_JOINS}
            WHERE {condition} AND d.n BETWEEN ?2 AND ?3"
        );
        let values = params![value, first, last];
        let some = rows::all(connection, path, "deliveries", &find, values, |reading| {
            let delivery = rows::delivery(reading)?;
            let number = reading.get(DELIVERY_NUMBER)?;
            Ok((row_numbers::listed_at(day, number, delivery.created_at), delivery))
        })?;
        found.extend(some.into_iter().filter(|(at, delivery)| {
            state.is_none_or(|state| state == delivery.state.name())
                && span.has(delivery.created_at)
                && from.is_none_or(|from| (*at, delivery.id) < from)
        }));
        Ok(())
    };
    let mut found = walk_days(guard, "deliveries", source, (span, last), limit, read)?;
    found.sort_by_key(|(at, delivery)| Reverse((*at, delivery.id)));
    found.truncate(limit);
    let Page { items, next } = cursor::page(found, page, |(at, last)| cursor::at(*at, last.id));
    Ok(Page { items: items.into_iter().map(|(_, delivery)| delivery).collect(), next })
}

/// A day's file that is read from its newest row on.
struct Walk<'w> {
    connection: &'w Connection,
    path: &'w Path,
    day: Day,
    /// The statement that finds the newest row of a range.
    newest: String,
    /// The value of `?1` in it.
    value: i64,
}

impl Walk<'_> {
    fn newest(&self, (first, last): (i64, i64)) -> Result<Option<i64>, StoreError> {
        let mut statement = self.connection.prepare_cached(&self.newest).at(self.path)?;
        let values = params![self.value, first, last];
        statement.query_row(values, |row| row.get(0)).optional().at(self.path)
    }

    /// The newest millisecond of each tenant, up to a time.
    fn heads(
        &self,
        guard: &ReadGuard<'_>,
        until: Timestamp,
    ) -> Result<BinaryHeap<(i64, i64)>, StoreError> {
        let mut heads = BinaryHeap::new();
        let mut last = i64::MAX;
        while let Some(number) = self.newest((i64::MIN, last))? {
            guard.check()?;
            let slot = row_numbers::slot_of(number);
            let first = row_numbers::range(slot).0;
            let newest = row_numbers::last_at(slot, self.day, until);
            let newest =
                if number <= newest { Some(number) } else { self.newest((first, newest))? };
            heads.extend(newest.map(|number| (row_numbers::ms_of(number), slot)));
            last = first - 1;
        }
        Ok(heads)
    }
}

/// Reads days, newest first, until enough is found: `read` adds the rows of a range of numbers.
fn walk_days<T>(
    guard: &ReadGuard<'_>,
    table: &'static str,
    source: Source,
    (span, last): (Span, Timestamp),
    limit: usize,
    read: impl Fn(&Walk<'_>, (i64, i64), &mut Vec<T>) -> Result<(), StoreError>,
) -> Result<Vec<T>, StoreError> {
    let until = span.until.map_or(last, |until| until.min(last));
    let since = span.since.unwrap_or(Timestamp::from_unix_ms(i64::MIN));
    let (index, condition, value) = source.sql();
    let newest = format!(
        "SELECT d.n FROM {table} AS d {index} WHERE {condition} AND d.n BETWEEN ?2 AND ?3
        ORDER BY d.n DESC LIMIT 1"
    );
    let mut found = Vec::new();
    for day in guard.days().into_iter().rev() {
        if found.len() >= limit {
            break;
        }
        if day.end() <= since || day.start() > until {
            continue;
        }
        guard.day(day, |connection, path| {
            let walk = Walk { connection, path, day, newest: newest.clone(), value };
            let oldest = row_numbers::ms_of(row_numbers::first_at(0, day, since));
            let mut heads = walk.heads(guard, until)?;
            let mut before = i64::MAX;
            while let Some((ms, slot)) = heads.pop() {
                // Rows of one millisecond are ordered by identifier, so all of them must be read.
                if ms < oldest || found.len() >= limit && ms < before {
                    break;
                }
                before = ms;
                guard.check()?;
                let range = row_numbers::range_of_ms(slot, ms);
                read(&walk, range, &mut found)?;
                let next = walk.newest((row_numbers::range(slot).0, range.0 - 1))?;
                heads.extend(next.map(|number| (row_numbers::ms_of(number), slot)));
            }
            Ok(())
        })?;
    }
    Ok(found)
}
