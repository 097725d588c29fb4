//! Lists of deliveries.
//!
//! A day's file has three indexes of deliveries, each by time: by tenant, by state (except delivered,
//! which most are), and by route (subscription, destination and type) and state. **The cost of a page
//! follows the size of the page and the number of matching routes, not the number of deliveries**: a
//! list reads one of the indexes or merges several, and reads each no further than the page needs.
//!
//! A delivery that has unapplied changes is listed as the [`Overlay`] has it, and its row is skipped.

mod older;
mod orders;

pub(super) use self::older::Source;
use std::collections::HashSet;
use std::path::Path;

use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::cursor;
use super::history::{delivery_in, find_event, name_number};
use crate::embedded::apply::Overlay;
use crate::embedded::files::codec;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::{
    self, DELIVERY_COLUMNS, DELIVERY_JOINS, DELIVERY_NUMBER, Reading,
};
use crate::embedded::files::{At, Day};
use crate::error::StoreError;
use crate::records::{DeliveryFilter, Page, PageRequest, ReplayJob};

/// Sorts after every identifier.
const LAST_ID: [u8; 16] = [0xff; 16];

/// The deliveries that a list selects.
pub(super) struct Wanted<'w> {
    filter: &'w DeliveryFilter,
    since: Timestamp,
    before: (Timestamp, [u8; 16]),
    /// Deliveries whose rows are not the latest.
    overlay: Option<&'w Overlay>,
}

impl<'w> Wanted<'w> {
    pub(super) fn new(
        filter: &'w DeliveryFilter,
        from: Option<(Timestamp, DeliveryId)>,
        overlay: Option<&'w Overlay>,
    ) -> Self {
        let end = (Timestamp::MAX, LAST_ID);
        let until = filter.until.map_or(end, |until| (until, [0; 16]));
        let from = from.map_or(end, |(at, id)| (at, *id.as_bytes()));
        let since = filter.since.unwrap_or(Timestamp::from_unix_ms(i64::MIN));
        Wanted { filter, since, before: from.min(until), overlay }
    }

    /// Whether the filter selects a delivery that is listed at this time.
    fn wants(&self, at: Timestamp, delivery: &Delivery) -> bool {
        (at, *delivery.id.as_bytes()) < self.before && self.filter.matches(delivery)
    }

    /// Whether a delivery is selected that was read from its row.
    pub(super) fn wants_row(&self, at: Timestamp, delivery: &Delivery) -> bool {
        let is_latest = self.overlay.is_none_or(|overlay| overlay.delivery(delivery.id).is_none());
        is_latest && self.wants(at, delivery)
    }

    /// Whether the filter has no subscription, destination or type.
    fn is_wide(&self) -> bool {
        let filter = self.filter;
        filter.subscription.is_none() && filter.destination.is_none() && filter.kind.is_none()
    }

    pub(super) fn touches(&self, day: Day) -> bool {
        day.end() > self.since && day.start() <= self.before.0
    }

    /// The first and the last row number of a tenant that the filter may select.
    pub(super) fn numbers(&self, day: Day, tenant: i64) -> (i64, i64) {
        let last = match self.before {
            // The filter excludes `until` itself, so the range ends before that millisecond.
            (before, [0, .., 0]) if Some(before) == self.filter.until => {
                row_numbers::first_at(tenant, day, before) - 1
            }
            (before, _) => row_numbers::last_at(tenant, day, before),
        };
        (row_numbers::first_at(tenant, day, self.since), last)
    }
}

/// A day's file, for a list of one tenant's deliveries.
#[derive(Clone, Copy)]
struct InDay<'l> {
    guard: &'l ReadGuard<'l>,
    connection: &'l Connection,
    path: &'l Path,
    day: Day,
    /// The tenant's number in this file.
    tenant: i64,
}

/// The newest deliveries of a day that the filter selects, as far as they were read.
struct Newest<'w> {
    wanted: &'w Wanted<'w>,
    day: Day,
    limit: usize,
    found: Vec<(Timestamp, Delivery)>,
    /// The millisecond of the last row that was read.
    group: Option<i64>,
}

impl Newest<'_> {
    /// An empty page with the same filter.
    fn another(&self) -> Self {
        Newest { found: Vec::new(), group: None, ..*self }
    }

    /// Whether the page is complete before the row with this number. Rows of one millisecond are
    /// ordered by identifier, so all rows of a millisecond must be read.
    fn is_complete(&self, number: i64) -> bool {
        let this = row_numbers::group(number);
        self.found.len() >= self.limit && self.group.is_some_and(|group| group != this)
    }

    /// Adds a row if the filter selects it. Rows must be added newest first.
    fn add(&mut self, reading: &Reading<'_>) -> Result<(), StoreError> {
        let number: i64 = reading.get(DELIVERY_NUMBER)?;
        self.group = Some(row_numbers::group(number));
        let delivery = rows::delivery(reading)?;
        let at = row_numbers::listed_at(self.day, number, delivery.created_at);
        if self.wanted.wants_row(at, &delivery) {
            self.found.push((at, delivery));
        }
        Ok(())
    }
}

/// One page, newest first.
pub(in crate::embedded) fn list(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
    filter: &DeliveryFilter,
    page: &PageRequest,
    overlay: &Overlay,
) -> Result<Page<Delivery>, StoreError> {
    let wanted = Wanted::new(filter, cursor::place(page)?, Some(overlay));
    let limit = cursor::one_more(page);
    let mut found: Vec<(Timestamp, Delivery)> = Vec::new();
    if filter.event.is_some() {
        found = of_event(guard, tenant, &wanted, limit)?;
    } else {
        for day in guard.days().into_iter().rev().filter(|day| wanted.touches(*day)) {
            if found.len() >= limit {
                break;
            }
            guard.check()?;
            let left = limit - found.len();
            found.extend(list_day(guard, day, tenant, &wanted, left)?);
        }
    }
    let unapplied = overlay.deliveries().filter(|one| wanted.wants(one.created_at, one));
    found.extend(unapplied.map(|delivery| (delivery.created_at, delivery.clone())));
    sort_newest_first(&mut found);
    found.truncate(limit);
    let Page { items, next } = cursor::page(found, page, |(at, last)| cursor::at(*at, last.id));
    Ok(Page { items: items.into_iter().map(|(_, delivery)| delivery).collect(), next })
}

pub(super) fn sort_newest_first(found: &mut [(Timestamp, Delivery)]) {
    found.sort_by_key(|(at, delivery)| std::cmp::Reverse((*at, delivery.id)));
}

fn list_day(
    guard: &ReadGuard<'_>,
    day: Day,
    tenant: &TenantId,
    wanted: &Wanted<'_>,
    limit: usize,
) -> Result<Vec<(Timestamp, Delivery)>, StoreError> {
    guard.day(day, |connection, path| {
        let Some(tenant) = name_number(connection, path, tenant.as_str())? else {
            return Ok(Vec::new());
        };
        // One transaction, so that all statements of the list see the same state of the file.
        let moment = connection.unchecked_transaction().at(path)?;
        let file = InDay { guard, connection, path, day, tenant };
        let mut page = Newest { wanted, day, limit, found: Vec::new(), group: None };
        if orders::are_kept(&file)? {
            orders::list(&file, &mut page)?;
        } else {
            older::list(&file, &mut page)?;
        }
        moment.finish().at(path)?;
        sort_newest_first(&mut page.found);
        page.found.truncate(limit);
        Ok(page.found)
    })
}

/// How many deliveries a filter selects; with `replayable`, only those of subscriptions that exist.
pub(in crate::embedded) fn count(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
    filter: &DeliveryFilter,
    replayable: bool,
) -> Result<u64, StoreError> {
    let live = if replayable { Some(live_subscriptions(guard, tenant)?) } else { None };
    let counts = |id: &SubscriptionId| live.as_ref().is_none_or(|live| live.contains(id));
    let wanted = Wanted::new(filter, None, None);
    if filter.event.is_some() {
        let found = of_event(guard, tenant, &wanted, usize::MAX)?;
        let found = found.iter().filter(|(_, delivery)| counts(&delivery.subscription));
        return Ok(u64::try_from(found.count()).unwrap_or(u64::MAX));
    }
    let mut count = 0;
    for day in guard.days().into_iter().filter(|day| wanted.touches(*day)) {
        count += guard.day(day, |connection, path| {
            match name_number(connection, path, tenant.as_str())? {
                Some(tenant) => {
                    let file = InDay { guard, connection, path, day, tenant };
                    orders::count(&file, &wanted, counts)
                }
                None => Ok(0),
            }
        })?;
    }
    Ok(count)
}

/// The subscriptions of a tenant that are not deleted.
fn live_subscriptions(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
) -> Result<HashSet<SubscriptionId>, StoreError> {
    guard.main(|connection, path| {
        let find = "SELECT id FROM subscriptions WHERE tenant = ?1 AND deleted_at IS NULL";
        let make = |reading: &Reading<'_>| reading.id(0, SubscriptionId::from_bytes);
        let all = rows::all(connection, path, "subscriptions", find, [tenant.as_str()], make)?;
        Ok(all.into_iter().collect())
    })
}

/// The newest deliveries of one event that the filter selects: the event's row lists its
/// deliveries.
fn of_event(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
    wanted: &Wanted<'_>,
    limit: usize,
) -> Result<Vec<(Timestamp, Delivery)>, StoreError> {
    let Some(event) = &wanted.filter.event else { return Ok(Vec::new()) };
    let Some((day, stored)) = find_event(guard, tenant, event)? else { return Ok(Vec::new()) };
    let mut ids = stored.deliveries;
    ids.sort_unstable_by(|one, other| other.cmp(one));
    guard.day(day, |connection, path| {
        let mut found = Vec::new();
        for (place, id) in ids.into_iter().enumerate() {
            if found.len() >= limit {
                break;
            }
            if place % 256 == 0 {
                guard.check()?;
            }
            let delivery = delivery_in(connection, path, day, tenant, id)?;
            let delivery = delivery.map(|(_, delivery)| (delivery.created_at, delivery));
            found.extend(delivery.filter(|(at, delivery)| wanted.wants_row(*at, delivery)));
        }
        Ok(found)
    })
}

/// The next deliveries of a replay job, by identifier.
pub(in crate::embedded) fn candidates(
    guard: &ReadGuard<'_>,
    job: &ReplayJob,
    limit: usize,
) -> Result<Vec<Delivery>, StoreError> {
    let wanted = Wanted::new(&job.filter, None, None);
    let mut days = Vec::new();
    for day in guard.days().into_iter().filter(|day| wanted.touches(*day)) {
        let first = guard.day(day, |connection, path| first_id(connection, path, &job.tenant))?;
        days.extend(first.map(|first| (first, day)));
    }
    days.sort();
    let mut found: Vec<Delivery> = Vec::new();
    for (first, day) in days {
        // Identifiers begin with the time, so those of later days mostly come after these.
        let is_enough = found.len() >= limit
            && found.last().is_some_and(|last| last.id.as_bytes().as_slice() < first.as_slice());
        if is_enough {
            break;
        }
        found.extend(
            guard.day(day, |connection, path| {
                candidates_of_day(connection, path, day, job, limit)
            })?,
        );
        found.sort_by_key(|delivery| delivery.id);
        found.truncate(limit);
    }
    Ok(found)
}

/// The first identifier of a tenant's deliveries in a day's file.
fn first_id(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(tenant) = name_number(connection, path, tenant.as_str())? else { return Ok(None) };
    let (first, last) = row_numbers::range(tenant);
    let derived = "SELECT id FROM deliveries WHERE n BETWEEN ?1 AND ?2 AND odd IS NULL
        ORDER BY n LIMIT 1";
    let derived = connection.query_row(derived, [first, last], |row| row.get(0)).optional();
    let indexed = "SELECT min(id) FROM deliveries INDEXED BY deliveries_odd WHERE odd = 1";
    let indexed: Option<Vec<u8>> = connection.query_row(indexed, [], |row| row.get(0)).at(path)?;
    let derived: Option<Vec<u8>> = derived.at(path)?;
    Ok(derived.into_iter().chain(indexed).min())
}

/// Rows with a derived number are stored in the order of identifiers; the index of the other rows
/// has the same order.
fn candidates_of_day(
    connection: &Connection,
    path: &Path,
    day: Day,
    job: &ReplayJob,
    limit: usize,
) -> Result<Vec<Delivery>, StoreError> {
    let Some(tenant) = name_number(connection, path, job.tenant.as_str())? else {
        return Ok(Vec::new());
    };
    let (first, last) = row_numbers::range(tenant);
    let position = job.position.map_or([0; 16], |id| *id.as_bytes());
    let first = row_numbers::derived(tenant, day, &position).unwrap_or(first);
    let state = job.filter.state.map(codec::state_number);
    let (index, is_state) = match job.filter.state {
        None | Some(StateName::Delivered) => ("NOT INDEXED", "(?5 IS NULL OR d.state = ?5)"),
        Some(_) => ("INDEXED BY deliveries_by_state", "d.state <> 2 AND d.state = ?5"),
    };
    // The time of a row is when it ended, or when it is due.
    let is_left = if job.retries() { "?6 = ?6" } else { "d.state >= 2 AND d.at <= ?6" };
    let derived = format!(
        "{index} {DELIVERY_JOINS} WHERE d.n BETWEEN ?1 AND ?2 AND d.odd IS NULL AND {is_state}
            AND d.id > ?3 AND r.tenant = ?4 AND {is_left} ORDER BY d.n"
    );
    let indexed = format!(
        "INDEXED BY deliveries_odd {DELIVERY_JOINS} WHERE ?1 = ?1 AND ?2 = ?2 AND d.odd = 1
            AND (?5 IS NULL OR d.state = ?5) AND d.id > ?3 AND r.tenant = ?4 AND {is_left}
            ORDER BY d.id"
    );
    let mut found = Vec::new();
    for order in [derived, indexed] {
        let select = format!("SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {order}");
        let mut statement = connection.prepare_cached(&select).at(path)?;
        let created_at = job.created_at.as_unix_ms();
        let values = params![first, last, position.as_slice(), tenant, state, created_at];
        let mut rows = statement.query(values).at(path)?;
        let mut of_order = 0;
        while of_order < limit
            && let Some(row) = rows.next().at(path)?
        {
            let delivery = rows::delivery(&Reading { row, path, table: "deliveries" })?;
            if job.takes(&delivery) {
                of_order += 1;
                found.push(delivery);
            }
        }
    }
    found.sort_by_key(|delivery| delivery.id);
    found.truncate(limit);
    Ok(found)
}
