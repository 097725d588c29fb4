//! Reading events, deliveries, attempts, timelines and counters.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, ObjectId, TenantId};
use postrider_domain::ledger::Ledger;
use postrider_domain::limits::ATTEMPT_PAGE_BYTES_MAX;
use postrider_domain::time::Timestamp;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, params};

use super::cursor;
use super::deliveries;
use super::event_list;
use super::object_list;
use crate::contract::History;
use crate::embedded::EmbeddedStore;
use crate::embedded::apply::{Needs, Overlay, Unapplied, minute};
use crate::embedded::files::codec::{Encoder, put_attempt};
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::{
    self, DELIVERY_COLUMNS, DELIVERY_JOINS, DELIVERY_NUMBER, EVENT_COLUMNS, EVENT_JOINS,
    StoredEvent,
};
use crate::embedded::files::{At, Day};
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
        let (of, id) = (tenant.clone(), id.clone());
        self.read_one_now(tenant, Unapplied::of, move |guard, overlay: &Overlay| {
            match overlay.event(&id) {
                Some(unapplied) => Ok(Some(unapplied.clone())),
                None => Ok(find_event(guard, &of, &id)?.map(|(_, stored)| stored.record)),
            }
        })
        .await
    }

    async fn list_events(
        &self,
        tenant: &TenantId,
        filter: &EventFilter,
        page: &PageRequest,
    ) -> Result<Page<EventRecord>, StoreError> {
        let (of, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.read_list_now(tenant, Unapplied::of, move |guard, overlay| {
            event_list::list(guard, &of, &filter, &page, overlay)
        })
        .await
    }

    async fn delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, StoreError> {
        let of = tenant.clone();
        self.read_one_now(tenant, Unapplied::of, move |guard, overlay: &Overlay| {
            match overlay.delivery(id) {
                Some(unapplied) => Ok(Some(unapplied.clone())),
                None => Ok(find_delivery(guard, &of, id)?.map(|(_, _, delivery)| delivery)),
            }
        })
        .await
    }

    async fn list_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let (of, filter, page) = (tenant.clone(), filter.clone(), page.clone());
        self.read_list_now(tenant, Unapplied::of, move |guard, overlay| {
            deliveries::list(guard, &of, &filter, &page, overlay)
        })
        .await
    }

    async fn deliveries_of_object(
        &self,
        tenant: &TenantId,
        object: &ObjectId,
        filter: &DeliveryFilter,
        page: &PageRequest,
    ) -> Result<Page<Delivery>, StoreError> {
        let (tenant, object) = (tenant.clone(), object.clone());
        let (filter, page) = (filter.clone(), page.clone());
        let whose = tenant.clone();
        self.read_list(&whose, Needs::Everything, move |guard| {
            object_list::deliveries(guard, (&tenant, &object), &filter, &page)
        })
        .await
    }

    async fn count_deliveries(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        let whose = tenant.clone();
        self.read_list(&whose, Needs::Everything, move |guard| {
            deliveries::count(guard, &tenant, &filter, false)
        })
        .await
    }

    async fn count_replayable(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
    ) -> Result<u64, StoreError> {
        let (tenant, filter) = (tenant.clone(), filter.clone());
        let whose = tenant.clone();
        self.read_list(&whose, Needs::Everything, move |guard| {
            deliveries::count(guard, &tenant, &filter, true)
        })
        .await
    }

    async fn attempt_page(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
        page: &PageRequest,
    ) -> Result<Page<Attempt>, StoreError> {
        let (tenant, page) = (tenant.clone(), page.clone());
        let after: Option<u32> = cursor::single(&page)?;
        let (whose, after) = (tenant.clone(), after.unwrap_or(0));
        let unapplied = move |unapplied: &Unapplied, tenant: &TenantId| {
            Some(unapplied.attempts(tenant, delivery))
        };
        self.read_list_now(&whose, unapplied, move |guard, unapplied: &Vec<Attempt>| {
            let mut found = match find_delivery(guard, &tenant, delivery)? {
                Some((day, number, _)) => guard.day(day, |connection, path| {
                    let limit = cursor::limit(&page);
                    attempts_after((connection, path), (number, delivery), after, limit)
                })?,
                None => Vec::new(),
            };
            add_unapplied(&mut found, unapplied, after);
            Ok(cursor::page_within(found, &page, ATTEMPT_PAGE_BYTES_MAX, |last| {
                cursor::of(last.number)
            }))
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
        let (whose, needs) = (tenant.clone(), Needs::TransitionsOf(destination));
        self.read_list(&whose, needs, move |guard| {
            let found = guard.main(|connection, path| {
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
        let (whose, destinations) = (tenant.clone(), destinations.to_vec());
        let (tenant, needs) = (whose.clone(), Needs::WaitingFor(destinations.clone()));
        self.read_list(&whose, needs, move |guard| {
            guard.main(|connection, path| {
                let find = "SELECT b.destination, b.waiting, b.crc FROM backlog AS b
                    JOIN destinations AS d ON d.id = b.destination
                    WHERE b.destination = ?1 AND d.tenant = ?2";
                let count = |id: &DestinationId| {
                    let values = params![id.as_bytes().as_slice(), tenant.as_str()];
                    let found =
                        rows::one(connection, path, "backlog", find, values, rows::backlog_of)?;
                    Ok(unsigned(found.unwrap_or(0)))
                };
                destinations.iter().map(count).collect()
            })
        })
        .await
    }

    async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, StoreError> {
        let whose = tenant.cloned();
        let read = move |guard: &ReadGuard<'_>| {
            guard.main(|connection, path| ledger(connection, path, whose.as_ref()))
        };
        match tenant {
            Some(tenant) => self.read_one(tenant, Needs::Everything, read).await,
            None => self.read(read).await,
        }
    }

    async fn tallies(
        &self,
        tenant: Option<&TenantId>,
        since: Timestamp,
        until: Timestamp,
        step_minutes: u32,
    ) -> Result<Vec<TallyAt>, StoreError> {
        let whose = tenant.cloned();
        let read = move |guard: &ReadGuard<'_>| {
            guard.main(|connection, path| {
                let minutes = (first_minute(since), first_minute(until));
                tallies(connection, path, whose.as_ref(), minutes, step_minutes)
            })
        };
        match tenant {
            Some(tenant) => self.read_list(tenant, Needs::Everything, read).await,
            None => self.read_list_of_all(read).await,
        }
    }
}

pub(in crate::embedded) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// The first minute that begins at or after a time.
fn first_minute(time: Timestamp) -> i64 {
    let before = Timestamp::from_unix_ms(time.as_unix_ms().saturating_sub(1));
    minute(before) + 1
}

/// The days to search for an identifier, the likely one first: most identifiers begin with a time.
fn days_for(guard: &ReadGuard<'_>, likely: Day) -> Vec<Day> {
    let mut days: Vec<Day> = guard.days().into_iter().rev().collect();
    if let Some(place) = days.iter().position(|day| *day == likely) {
        days.remove(place);
        days.insert(0, likely);
    }
    days
}

/// The number of a name in a day's file.
pub(in crate::embedded) fn name_number(
    connection: &Connection,
    path: &Path,
    name: &str,
) -> Result<Option<i64>, StoreError> {
    let find = "SELECT n FROM names WHERE name = ?1";
    let mut statement = connection.prepare_cached(find).at(path)?;
    statement.query_row([name], |row| row.get(0)).optional().at(path)
}

/// The number of an event's row in a day's file.
pub(in crate::embedded) fn event_number(
    connection: &Connection,
    path: &Path,
    day: Day,
    tenant: i64,
    id: &EventId,
) -> Result<Option<i64>, StoreError> {
    let made = row_numbers::made(id.as_str());
    let id = match &made {
        Some(bytes) => ValueRef::Blob(bytes),
        None => ValueRef::Text(id.as_str().as_bytes()),
    };
    let mut found = None;
    if let Some(n) = made.and_then(|id| row_numbers::derived(tenant, day, &id)) {
        let find = "SELECT n FROM events WHERE n = ?1 AND tenant = ?2 AND id = ?3 AND odd IS NULL";
        let values = params![n, tenant, ToSqlOutput::Borrowed(id)];
        let mut statement = connection.prepare_cached(find).at(path)?;
        found = statement.query_row(values, |row| row.get(0)).optional().at(path)?;
    }
    if found.is_none() {
        let find = "SELECT n FROM events INDEXED BY events_odd
            WHERE odd = 1 AND tenant = ?1 AND id = ?2";
        let values = params![tenant, ToSqlOutput::Borrowed(id)];
        let mut statement = connection.prepare_cached(find).at(path)?;
        found = statement.query_row(values, |row| row.get(0)).optional().at(path)?;
    }
    Ok(found)
}

/// The event with this identifier, and its day.
pub(in crate::embedded) fn find_event(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
    id: &EventId,
) -> Result<Option<(Day, StoredEvent)>, StoreError> {
    for day in guard.days_of(tenant, id) {
        let found = guard.day(day, |connection, path| {
            let Some(number) = name_number(connection, path, tenant.as_str())? else {
                return Ok(None);
            };
            let Some(n) = event_number(connection, path, day, number, id)? else {
                return Ok(None);
            };
            let find =
                format!("SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS} WHERE e.n = ?1");
            rows::one(connection, path, "events", &find, [n], |reading| {
                let found = rows::event(reading)?;
                let event = &found.record.event;
                // A damaged index can lead to a valid row with another identifier.
                let is_it = event.id == *id && event.tenant == *tenant;
                if is_it {
                    Ok(found)
                } else {
                    Err(reading.damaged("an index leads to another event"))
                }
            })
        })?;
        if let Some(found) = found {
            return Ok(Some((day, found)));
        }
    }
    Ok(None)
}

/// The delivery with this identifier, its day, and the number of its row.
pub(in crate::embedded) fn find_delivery(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Option<(Day, i64, Delivery)>, StoreError> {
    for day in days_for(guard, Day::of(row_numbers::made_at(id.as_bytes()))) {
        let found =
            guard.day(day, |connection, path| delivery_in(connection, path, day, tenant, id))?;
        if let Some((number, found)) = found {
            return Ok(Some((day, number, found)));
        }
    }
    Ok(None)
}

/// The delivery with this identifier in a day's file, with the number of its row.
pub(in crate::embedded) fn delivery_in(
    connection: &Connection,
    path: &Path,
    day: Day,
    tenant: &TenantId,
    id: DeliveryId,
) -> Result<Option<(i64, Delivery)>, StoreError> {
    let Some(number) = name_number(connection, path, tenant.as_str())? else { return Ok(None) };
    let of = |condition: &str, value: &dyn rusqlite::ToSql| {
        let find = format!(
            "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {DELIVERY_JOINS}
            WHERE {condition} AND d.id = ?2 AND r.tenant = ?3"
        );
        let values = params![value, id.as_bytes().as_slice(), number];
        rows::one(connection, path, "deliveries", &find, values, |reading| {
            let found = rows::delivery(reading)?;
            if found.id != id || found.tenant != *tenant {
                return Err(reading.damaged("an index leads to another delivery"));
            }
            Ok((reading.get(DELIVERY_NUMBER)?, found))
        })
    };
    if let Some(n) = row_numbers::derived(number, day, id.as_bytes())
        && let Some(found) = of("d.n = ?1 AND d.odd IS NULL", &n)?
    {
        return Ok(Some(found));
    }
    of("?1 IS NULL AND d.odd = 1", &rusqlite::types::Null)
}

/// A delivery's attempts after the given number, oldest first, with their sizes, up to the limits.
fn attempts_after(
    (connection, path): (&Connection, &Path),
    (number, delivery): (i64, DeliveryId),
    after: u32,
    limit: i64,
) -> Result<Vec<(usize, Attempt)>, StoreError> {
    let mut found = Vec::new();
    if after == 0 {
        let find = "SELECT id, first FROM deliveries WHERE n = ?1";
        let at = (connection, path);
        let size = (1, ATTEMPT_PAGE_BYTES_MAX);
        let first = rows::within(at, "deliveries", (find, [number]), size, rows::first_attempt)?;
        found.extend(first.into_iter().filter_map(|(size, first)| Some((size, first?))));
    }
    let find = "SELECT delivery, number, body, crc FROM attempts
        WHERE delivery = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
    let values = params![delivery.as_bytes().as_slice(), after, limit];
    let size = (2, ATTEMPT_PAGE_BYTES_MAX);
    let others = rows::within((connection, path), "attempts", (find, values), size, rows::attempt)?;
    found.extend(others);
    // An attempt that was applied twice may be both in the delivery's row and in `attempts`.
    found.dedup_by_key(|(_, attempt)| attempt.number);
    Ok(found)
}

/// Adds the attempts that are not applied, each once. Their sizes are those of their rows.
fn add_unapplied(found: &mut Vec<(usize, Attempt)>, unapplied: &[Attempt], after: u32) {
    for attempt in unapplied.iter().filter(|attempt| attempt.number > after) {
        if found.iter().all(|(_, known)| known.number != attempt.number) {
            let mut encoded = Encoder::default();
            put_attempt(&mut encoded, attempt);
            found.push((encoded.as_slice().len(), attempt.clone()));
        }
    }
    found.sort_by_key(|(_, attempt)| attempt.number);
}

/// The attempts of a delivery in a day's file, oldest first.
pub(in crate::embedded) fn attempts_of(
    connection: &Connection,
    path: &Path,
    number: i64,
    delivery: DeliveryId,
) -> Result<Vec<Attempt>, StoreError> {
    let find = "SELECT delivery, number, body, crc FROM attempts WHERE delivery = ?1
        ORDER BY number";
    let values = [delivery.as_bytes().as_slice()];
    let mut attempts = rows::all(connection, path, "attempts", find, values, rows::attempt)?;
    let find = "SELECT id, first FROM deliveries WHERE n = ?1";
    let first = rows::one(connection, path, "deliveries", find, [number], rows::first_attempt)?;
    if let Some(first) = first.flatten() {
        let place = attempts.partition_point(|attempt| attempt.number < first.number);
        attempts.insert(place, first);
    }
    // An attempt that was applied twice may be both in the delivery's row and in `attempts`.
    attempts.dedup_by_key(|attempt| attempt.number);
    Ok(attempts)
}

fn ledger(
    connection: &Connection,
    path: &Path,
    tenant: Option<&TenantId>,
) -> Result<Ledger, StoreError> {
    let find = format!("{} WHERE ?1 IS NULL OR tenant = ?1", rows::LEDGER);
    let values = [tenant.map(TenantId::as_str)];
    let all = rows::all(connection, path, "ledger", &find, values, rows::ledger_of)?;
    let mut ledger = Ledger::default();
    for [accepted, queued, waiting, delivered, dead, cancelled] in all {
        ledger.accepted += unsigned(accepted);
        ledger.queued += unsigned(queued);
        ledger.waiting += unsigned(waiting);
        ledger.delivered += unsigned(delivered);
        ledger.dead += unsigned(dead);
        ledger.cancelled += unsigned(cancelled);
    }
    Ok(ledger)
}

fn tallies(
    connection: &Connection,
    path: &Path,
    tenant: Option<&TenantId>,
    (since, until): (i64, i64),
    step_minutes: u32,
) -> Result<Vec<TallyAt>, StoreError> {
    let wanted = "WHERE tenant = ?1 AND minute >= ?2 AND minute < ?3 ORDER BY minute";
    let find = format!("{} {wanted}", rows::TALLIES);
    let values = params![tenant.map_or("", TenantId::as_str), since, until];
    let step = i64::from(step_minutes.max(1));
    let mut spans: BTreeMap<i64, Tally> = BTreeMap::new();
    let all = rows::all(connection, path, "tallies", &find, values, rows::tally_of)?;
    for (minute, [accepted, delivered, failed, dead]) in all {
        let span = spans.entry(minute.div_euclid(step) * step).or_default();
        span.accepted += unsigned(accepted);
        span.delivered += unsigned(delivered);
        span.failed += unsigned(failed);
        span.dead += unsigned(dead);
    }
    let at = |minute: i64| Timestamp::from_unix_ms(minute.saturating_mul(60_000));
    Ok(spans.into_iter().map(|(minute, tally)| TallyAt { at: at(minute), tally }).collect())
}
