//! Looking back.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, TenantId};
use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::EmbeddedStore;
use super::applier::minute;
use super::cursor;
use super::deliveries;
use super::files::{At, Day};
use super::pool::Looking;
use super::rows::{
    self, DELIVERY_COLUMNS, DELIVERY_JOINS, EVENT_COLUMNS, EVENT_JOINS, StoredEvent,
};
use crate::contract::History;
use crate::error::StoreError;
use crate::records::{
    Cursor, DeliveryFilter, EventFilter, EventRecord, Page, PageRequest, Tally, TallyAt,
};

#[async_trait]
impl History for EmbeddedStore {
    async fn event(
        &self,
        tenant: &TenantId,
        id: &EventId,
    ) -> Result<Option<EventRecord>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |looking| {
            Ok(find_event(looking, &tenant, &id)?.map(|(_, stored)| stored.record))
        })
        .await
    }

    async fn list_events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.read(move |looking| list_events(looking, &tenant, &filter, &page)).await
    }

    async fn delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |looking| {
            let found = find_delivery(looking, id)?.map(|(_, delivery)| delivery);
            Ok(found.filter(|delivery| delivery.tenant == tenant))
        })
        .await
    }

    async fn list_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let (tenant, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.read(move |looking| deliveries::list(looking, &tenant, &filter, &page)).await
    }

    async fn count_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        self.read(move |looking| deliveries::count(looking, &tenant, &filter)).await
    }

    async fn attempts(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Result<Vec<Attempt>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |looking| match find_delivery(looking, delivery)? {
            Some((day, found)) if found.tenant == tenant => {
                looking.day(day, |connection, path| attempts_of(connection, path, delivery))
            }
            Some(_) | None => Ok(Vec::new()),
        })
        .await
    }

    async fn transitions(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        page: &PageRequest,
    ) -> Result<Page<Transition>, StoreError> {
        let (tenant, page) = (tenant.clone(), page.clone());
        let before = cursor::single(&page)?;
        self.read(move |looking| {
            let found = looking.main(|connection, path| {
                let limit = cursor::one_more(&page);
                rows::transitions(connection, path, &tenant, destination, before, limit)
            })?;
            let Page { items, next } =
                cursor::page(found, &page, |(number, _)| Cursor(number.to_string()));
            Ok(Page { items: items.into_iter().map(|(_, transition)| transition).collect(), next })
        })
        .await
    }

    async fn waiting_counts(
        &self,
        tenant: &TenantId,
        destinations: &[DestinationId],
    ) -> Result<Vec<u64>, StoreError> {
        let (tenant, destinations) = (tenant.clone(), destinations.to_vec());
        self.read(move |looking| {
            looking.main(|connection, path| {
                let find = "SELECT b.waiting FROM backlog AS b
                    JOIN destinations AS d ON d.id = b.destination
                    WHERE b.destination = ?1 AND d.tenant = ?2";
                let mut statement = connection.prepare_cached(find).at(path)?;
                let count = |id: &DestinationId| {
                    let values = params![id.as_bytes().as_slice(), tenant.as_str()];
                    let found: rusqlite::Result<i64> =
                        statement.query_row(values, |row| row.get(0));
                    Ok(unsigned(found.optional().at(path)?.unwrap_or(0)))
                };
                destinations.iter().map(count).collect()
            })
        })
        .await
    }

    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError> {
        let tenant = tenant.cloned();
        self.read(move |looking| {
            looking.main(|connection, path| ledger(connection, path, tenant.as_ref()))
        })
        .await
    }

    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError> {
        let tenant = tenant.cloned();
        self.read(move |looking| {
            looking.main(|connection, path| {
                let minutes = (first_minute(since), first_minute(until));
                tallies(connection, path, tenant.as_ref(), minutes, step_minutes)
            })
        })
        .await
    }
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The first minute that begins at or after a time.
fn first_minute(time: Timestamp) -> i64 {
    let before = Timestamp::from_unix_ms(time.as_unix_ms().saturating_sub(1));
    minute(before) + 1
}

/// The day to look in first: identifiers mostly begin with the time at which they were made.
fn days_for(looking: &Looking<'_>, likely: Day) -> Vec<Day> {
    let mut days: Vec<Day> = looking.days().into_iter().rev().collect();
    if let Some(place) = days.iter().position(|day| *day == likely) {
        days.remove(place);
        days.insert(0, likely);
    }
    days
}

/// The time at which an identifier of version 7 was made.
fn made_at(bytes: &[u8; 16]) -> Timestamp {
    let [a, b, c, d, e, f, ..] = *bytes;
    Timestamp::from_unix_ms(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// The event with this identifier, and its day.
pub(super) fn find_event(
    looking: &Looking<'_>,
    tenant: &TenantId,
    id: &EventId,
) -> Result<Option<(Day, StoredEvent)>, StoreError> {
    // An identifier that Postrider made says when.
    let digits = id.as_str().strip_prefix("evt_").and_then(|digits| digits.get(..12));
    let made_at = digits.and_then(|digits| i64::from_str_radix(digits, 16).ok());
    let likely = Day::of(Timestamp::from_unix_ms(made_at.unwrap_or(i64::MIN)));
    for day in days_for(looking, likely) {
        let found = looking.day(day, |connection, path| {
            let find = format!(
                "SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS}
                WHERE e.tenant = (SELECT n FROM names WHERE name = ?1) AND e.id = ?2"
            );
            let values = params![tenant.as_str(), id.as_str()];
            rows::one(connection, path, "events", &find, values, rows::event)
        })?;
        if let Some(found) = found {
            return Ok(Some((day, found)));
        }
    }
    Ok(None)
}

/// The delivery with this identifier, and its day.
pub(super) fn find_delivery(
    looking: &Looking<'_>,
    id: DeliveryId,
) -> Result<Option<(Day, Delivery)>, StoreError> {
    for day in days_for(looking, Day::of(made_at(id.as_bytes()))) {
        let found = looking.day(day, |connection, path| delivery_in(connection, path, id))?;
        if let Some(found) = found {
            return Ok(Some((day, found)));
        }
    }
    Ok(None)
}

/// The delivery with this identifier in a day's file.
pub(super) fn delivery_in(
    connection: &Connection,
    path: &Path,
    id: DeliveryId,
) -> Result<Option<Delivery>, StoreError> {
    let find =
        format!("SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {DELIVERY_JOINS} WHERE d.id = ?1");
    let values = [id.as_bytes().as_slice()];
    rows::one(connection, path, "deliveries", &find, values, rows::delivery)
}

/// The attempts of a delivery in a day's file, oldest first.
pub(super) fn attempts_of(
    connection: &Connection,
    path: &Path,
    delivery: DeliveryId,
) -> Result<Vec<Attempt>, StoreError> {
    let find = "SELECT delivery, number, body, crc FROM attempts WHERE delivery = ?1
        ORDER BY number";
    let values = [delivery.as_bytes().as_slice()];
    rows::all(connection, path, "attempts", find, values, rows::attempt)
}

fn list_events(
    looking: &Looking<'_>,
    tenant: &TenantId,
    filter: &EventFilter,
    page: &PageRequest,
) -> Result<Page<EventRecord>, StoreError> {
    let from: Option<(Timestamp, EventId)> = cursor::place(page)?;
    let since = filter.since.unwrap_or(Timestamp::from_unix_ms(i64::MIN));
    let until = (filter.until.unwrap_or(Timestamp::MAX), String::new());
    let from = from.map_or((Timestamp::MAX, "\u{7f}".to_owned()), |(at, id)| (at, id.to_string()));
    // Times at the far end are events too, unless the filter excludes them.
    let before = if filter.until.is_some() { from.min(until) } else { from };
    let wanted = cursor::one_more(page);
    let mut found = Vec::new();
    for day in looking.days().into_iter().rev() {
        if found.len() >= wanted || day.end() <= since || day.start() > before.0 {
            continue;
        }
        looking.day(day, |connection, path| {
            let find = format!(
                "SELECT {EVENT_COLUMNS} FROM events AS e INDEXED BY events_by_time {EVENT_JOINS}
                WHERE e.tenant = (SELECT n FROM names WHERE name = ?1) AND e.accepted_at >= ?2
                    AND (e.accepted_at, e.id) < (?3, ?4)
                    AND (?5 IS NULL OR e.kind = (SELECT n FROM names WHERE name = ?5))
                ORDER BY e.accepted_at DESC, e.id DESC LIMIT ?6"
            );
            let limit = i64::try_from(wanted - found.len()).unwrap_or(i64::MAX);
            let kind = filter.kind.as_ref().map(|kind| kind.as_str());
            let (at, id) = (before.0.as_unix_ms(), before.1.as_str());
            let values = params![tenant.as_str(), since.as_unix_ms(), at, id, kind, limit];
            let of_day = rows::all(connection, path, "events", &find, values, rows::event)?;
            found.extend(of_day.into_iter().map(|stored| stored.record));
            Ok(())
        })?;
    }
    Ok(cursor::page(found, page, |last| cursor::at(last.accepted_at, &last.event.id)))
}

fn ledger(
    connection: &Connection,
    path: &Path,
    tenant: Option<&TenantId>,
) -> Result<Ledger, StoreError> {
    let sum = "SELECT coalesce(sum(accepted), 0), coalesce(sum(queued), 0),
            coalesce(sum(waiting), 0), coalesce(sum(delivered), 0), coalesce(sum(dead), 0),
            coalesce(sum(cancelled), 0)
        FROM ledger WHERE ?1 IS NULL OR tenant = ?1";
    let tenant = tenant.map(TenantId::as_str);
    let ledger = connection.query_row(sum, [tenant], |row| {
        let count = |column| row.get(column).map(unsigned);
        Ok(Ledger {
            accepted: count(0)?,
            queued: count(1)?,
            in_flight: 0,
            waiting: count(2)?,
            delivered: count(3)?,
            dead: count(4)?,
            cancelled: count(5)?,
        })
    });
    ledger.at(path)
}

fn tallies(
    connection: &Connection,
    path: &Path,
    tenant: Option<&TenantId>,
    (since, until): (i64, i64),
    step_minutes: u32,
) -> Result<Vec<TallyAt>, StoreError> {
    let find = "SELECT minute, accepted, delivered, failed, dead FROM tallies
        WHERE tenant = ?1 AND minute >= ?2 AND minute < ?3 ORDER BY minute";
    let mut statement = connection.prepare_cached(find).at(path)?;
    let tenant = tenant.map_or("", TenantId::as_str);
    let mut rows = statement.query(params![tenant, since, until]).at(path)?;
    let step = i64::from(step_minutes.max(1));
    let mut spans: BTreeMap<i64, Tally> = BTreeMap::new();
    while let Some(row) = rows.next().at(path)? {
        let number = |column| row.get(column).map(unsigned).at(path);
        let minute: i64 = row.get(0).at(path)?;
        let span = spans.entry(minute.div_euclid(step) * step).or_default();
        span.accepted += number(1)?;
        span.delivered += number(2)?;
        span.failed += number(3)?;
        span.dead += number(4)?;
    }
    let at = |minute: i64| Timestamp::from_unix_ms(minute.saturating_mul(60_000));
    Ok(spans.into_iter().map(|(minute, tally)| TallyAt { at: at(minute), tally }).collect())
}
