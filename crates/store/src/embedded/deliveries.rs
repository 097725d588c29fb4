//! Lists of deliveries.
//!
//! A day's deliveries stand in two orders: by state, and by route (subscription, destination and
//! type). A list merges the orders that together have what is wanted; each is read from an index
//! and no further than the page needs.

use std::path::Path;

use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::codec;
use super::cursor;
use super::files::{At, Day};
use super::history::{delivery_in, find_event, unsigned};
use super::pool::Looking;
use super::rows::{self, DELIVERY_COLUMNS, DELIVERY_JOINS, Reading};
use crate::error::StoreError;
use crate::records::{DeliveryFilter, Page, PageRequest, ReplayJob};

/// With more routes than this, reading by state and leaving out the others is quicker.
const ROUTES_MAX: usize = 100;
/// After every identifier.
const LAST_ID: [u8; 16] = [0xff; 16];

/// The states in which a delivery can be stored.
const STATES: [StateName; 5] = [
    StateName::Queued,
    StateName::Waiting,
    StateName::Delivered,
    StateName::Dead,
    StateName::Cancelled,
];

/// One of the orders of a day's file.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// A tenant's deliveries in a state.
    State { tenant: i64, state: u8 },
    /// The deliveries of a route.
    Route(i64),
}

/// What of a day is wanted.
struct Wanted<'w> {
    filter: &'w DeliveryFilter,
    since: Timestamp,
    before: (Timestamp, [u8; 16]),
}

impl<'w> Wanted<'w> {
    fn new(filter: &'w DeliveryFilter, from: Option<(Timestamp, DeliveryId)>) -> Self {
        let end = (Timestamp::MAX, LAST_ID);
        let until = filter.until.map_or(end, |until| (until, [0; 16]));
        let from = from.map_or(end, |(at, id)| (at, *id.as_bytes()));
        let since = filter.since.unwrap_or(Timestamp::from_unix_ms(i64::MIN));
        Wanted { filter, since, before: from.min(until) }
    }

    fn touches(&self, day: Day) -> bool {
        day.end() > self.since && day.start() <= self.before.0
    }
}

/// One page, newest first.
pub(super) fn list(
    looking: &Looking<'_>,
    tenant: &TenantId,
    filter: &DeliveryFilter,
    page: &PageRequest,
) -> Result<Page<Delivery>, StoreError> {
    let wanted = Wanted::new(filter, cursor::place(page)?);
    let limit = cursor::one_more(page);
    let mut found = Vec::new();
    if filter.event.is_some() {
        found = of_event(looking, tenant, filter)?;
        found.retain(|delivery| (delivery.created_at, *delivery.id.as_bytes()) < wanted.before);
        found.sort_by_key(|delivery| std::cmp::Reverse((delivery.created_at, delivery.id)));
        found.truncate(limit);
    } else {
        for day in looking.days().into_iter().rev().filter(|day| wanted.touches(*day)) {
            if found.len() >= limit {
                break;
            }
            let left = limit - found.len();
            found.extend(
                looking.day(day, |connection, path| {
                    list_day(connection, path, tenant, &wanted, left)
                })?,
            );
        }
    }
    Ok(cursor::page(found, page, |last| cursor::at(last.created_at, last.id)))
}

/// How many there are.
pub(super) fn count(
    looking: &Looking<'_>,
    tenant: &TenantId,
    filter: &DeliveryFilter,
) -> Result<u64, StoreError> {
    if filter.event.is_some() {
        let found = of_event(looking, tenant, filter)?;
        return Ok(u64::try_from(found.len()).unwrap_or(u64::MAX));
    }
    let wanted = Wanted::new(filter, None);
    let mut count = 0;
    for day in looking.days().into_iter().filter(|day| wanted.touches(*day)) {
        count +=
            looking.day(day, |connection, path| count_day(connection, path, tenant, &wanted))?;
    }
    Ok(count)
}

/// An event names its deliveries.
fn of_event(
    looking: &Looking<'_>,
    tenant: &TenantId,
    filter: &DeliveryFilter,
) -> Result<Vec<Delivery>, StoreError> {
    let Some(event) = &filter.event else { return Ok(Vec::new()) };
    let Some((day, stored)) = find_event(looking, tenant, event)? else { return Ok(Vec::new()) };
    looking.day(day, |connection, path| {
        let mut found = Vec::new();
        for id in stored.deliveries {
            found.extend(delivery_in(connection, path, id)?.filter(|d| filter.matches(d)));
        }
        Ok(found)
    })
}

/// The number of a name in a day's file.
fn number(connection: &Connection, path: &Path, name: &str) -> Result<Option<i64>, StoreError> {
    let find = "SELECT n FROM names WHERE name = ?1";
    let mut statement = connection.prepare_cached(find).at(path)?;
    statement.query_row([name], |row| row.get(0)).optional().at(path)
}

/// Which orders of a day have what is wanted.
fn sources(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    filter: &DeliveryFilter,
) -> Result<Vec<Source>, StoreError> {
    let Some(tenant) = number(connection, path, tenant.as_str())? else { return Ok(Vec::new()) };
    let kind = match &filter.kind {
        Some(kind) => match number(connection, path, kind.as_str())? {
            Some(kind) => Some(kind),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let by_state = || {
        let states = STATES.into_iter().filter(|state| filter.state.is_none_or(|s| s == *state));
        states.map(|state| Source::State { tenant, state: codec::state_number(state) }).collect()
    };
    let (subscription, destination) = (
        filter.subscription.map(|id| id.as_bytes().to_vec()),
        filter.destination.map(|id| id.as_bytes().to_vec()),
    );
    // An index for each of the three ways to ask; the rest is checked.
    let first = match (&subscription, &destination, kind) {
        (Some(_), _, _) => "subscription = ?2",
        (None, Some(_), _) => "destination = ?3",
        (None, None, Some(_)) => "kind = ?4",
        (None, None, None) => return Ok(by_state()),
    };
    let find = format!(
        "SELECT n FROM routes WHERE tenant = ?1 AND {first}
            AND (?2 IS NULL OR subscription = ?2) AND (?3 IS NULL OR destination = ?3)
            AND (?4 IS NULL OR kind = ?4) LIMIT ?5"
    );
    let limit = i64::try_from(ROUTES_MAX + 1).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&find).at(path)?;
    let values = params![tenant, subscription, destination, kind, limit];
    let mut rows = statement.query(values).at(path)?;
    let mut routes = Vec::new();
    while let Some(row) = rows.next().at(path)? {
        routes.push(Source::Route(row.get(0).at(path)?));
    }
    Ok(if routes.len() > ROUTES_MAX { by_state() } else { routes })
}

/// The conditions of one order; `?1` and `?2` say which, `?3` to `?5` from where to where, and
/// `?6` to `?9` the rest of a filter.
fn conditions(source: Source) -> (&'static str, i64, i64) {
    match source {
        Source::State { tenant, state } => {
            ("INDEXED BY deliveries_by_state", tenant, i64::from(state))
        }
        Source::Route(route) => ("INDEXED BY deliveries_by_route", route, 0),
    }
}

fn where_clause(source: Source) -> &'static str {
    match source {
        Source::State { .. } => {
            "WHERE d.tenant = ?1 AND d.state = ?2 AND d.created_at >= ?3
                AND (d.created_at, d.id) < (?4, ?5) AND ?6 = ?6
                AND (?7 IS NULL OR r.subscription = ?7) AND (?8 IS NULL OR r.destination = ?8)
                AND (?9 IS NULL OR r.kind = (SELECT n FROM names WHERE name = ?9))"
        }
        Source::Route(_) => {
            "WHERE d.route = ?1 AND ?2 = ?2 AND d.created_at >= ?3
                AND (d.created_at, d.id) < (?4, ?5) AND (?6 < 0 OR d.state = ?6)
                AND ?7 IS ?7 AND ?8 IS ?8 AND ?9 IS ?9"
        }
    }
}

fn list_day(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    wanted: &Wanted<'_>,
    limit: usize,
) -> Result<Vec<Delivery>, StoreError> {
    let mut found = Vec::new();
    for source in sources(connection, path, tenant, wanted.filter)? {
        let (index, first, second) = conditions(source);
        let select = format!(
            "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {index} {DELIVERY_JOINS} {}
            ORDER BY d.created_at DESC, d.id DESC LIMIT ?10",
            where_clause(source)
        );
        let mut statement = connection.prepare_cached(&select).at(path)?;
        let state = wanted.filter.state.map_or(-1, |state| i64::from(codec::state_number(state)));
        let mut rows = statement
            .query(params![
                first,
                second,
                wanted.since.as_unix_ms(),
                wanted.before.0.as_unix_ms(),
                wanted.before.1.as_slice(),
                state,
                wanted.filter.subscription.map(|id| id.as_bytes().to_vec()),
                wanted.filter.destination.map(|id| id.as_bytes().to_vec()),
                wanted.filter.kind.as_ref().map(|kind| kind.as_str()),
                i64::try_from(limit).unwrap_or(i64::MAX),
            ])
            .at(path)?;
        while let Some(row) = rows.next().at(path)? {
            found.push(rows::delivery(&Reading { row, path, table: "deliveries" })?);
        }
    }
    found.sort_by_key(|delivery| std::cmp::Reverse((delivery.created_at, delivery.id)));
    found.truncate(limit);
    Ok(found)
}

fn count_day(
    connection: &Connection,
    path: &Path,
    tenant: &TenantId,
    wanted: &Wanted<'_>,
) -> Result<u64, StoreError> {
    let mut count = 0;
    let filter = wanted.filter;
    let is_narrow =
        filter.subscription.is_some() || filter.destination.is_some() || filter.kind.is_some();
    for source in sources(connection, path, tenant, filter)? {
        let (index, first, second) = conditions(source);
        // Without the joins the index alone has the answer.
        let join = if is_narrow { "CROSS JOIN routes AS r ON r.n = d.route" } else { "" };
        let condition = match source {
            Source::State { .. } if !is_narrow => {
                "WHERE d.tenant = ?1 AND d.state = ?2 AND d.created_at >= ?3
                    AND (d.created_at, d.id) < (?4, ?5)
                    AND ?6 = ?6 AND ?7 IS ?7 AND ?8 IS ?8 AND ?9 IS ?9"
            }
            Source::State { .. } | Source::Route(_) => where_clause(source),
        };
        let select = format!("SELECT count(*) FROM deliveries AS d {index} {join} {condition}");
        let mut statement = connection.prepare_cached(&select).at(path)?;
        let state = filter.state.map_or(-1, |state| i64::from(codec::state_number(state)));
        let values = params![
            first,
            second,
            wanted.since.as_unix_ms(),
            wanted.before.0.as_unix_ms(),
            wanted.before.1.as_slice(),
            state,
            filter.subscription.map(|id| id.as_bytes().to_vec()),
            filter.destination.map(|id| id.as_bytes().to_vec()),
            filter.kind.as_ref().map(|kind| kind.as_str()),
        ];
        count += unsigned(statement.query_row(values, |row| row.get(0)).at(path)?);
    }
    Ok(count)
}

/// The next deliveries of a replay job, by identifier.
pub(super) fn candidates(
    looking: &Looking<'_>,
    job: &ReplayJob,
    limit: usize,
) -> Result<Vec<Delivery>, StoreError> {
    let wanted = Wanted::new(&job.filter, None);
    let mut days = Vec::new();
    for day in looking.days().into_iter().filter(|day| wanted.touches(*day)) {
        let first: Option<Vec<u8>> = looking.day(day, |connection, path| {
            let first = "SELECT min(id) FROM deliveries";
            connection.query_row(first, [], |row| row.get(0)).at(path)
        })?;
        days.extend(first.map(|first| (first, day)));
    }
    days.sort();
    let mut found: Vec<Delivery> = Vec::new();
    for (first, day) in days {
        // Identifiers mostly follow time: the next day's come after those that are found.
        let is_enough = found.len() >= limit
            && found.last().is_some_and(|last| last.id.as_bytes().as_slice() < first.as_slice());
        if is_enough {
            break;
        }
        found.extend(
            looking.day(day, |connection, path| candidates_of_day(connection, path, job, limit))?,
        );
        found.sort_by_key(|delivery| delivery.id);
        found.truncate(limit);
    }
    Ok(found)
}

fn candidates_of_day(
    connection: &Connection,
    path: &Path,
    job: &ReplayJob,
    limit: usize,
) -> Result<Vec<Delivery>, StoreError> {
    let select = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {DELIVERY_JOINS}
        WHERE d.id > ?1 AND d.tenant = (SELECT n FROM names WHERE name = ?2)
            AND d.state >= 2 AND (?3 IS NULL OR d.state = ?3) AND d.at <= ?4 ORDER BY d.id"
    );
    let mut statement = connection.prepare_cached(&select).at(path)?;
    let position = job.position.map_or(Vec::new(), |id| id.as_bytes().to_vec());
    let state = job.filter.state.map(codec::state_number);
    let values = params![position, job.tenant.as_str(), state, job.created_at.as_unix_ms()];
    let mut rows = statement.query(values).at(path)?;
    let mut found = Vec::new();
    while found.len() < limit
        && let Some(row) = rows.next().at(path)?
    {
        let delivery = rows::delivery(&Reading { row, path, table: "deliveries" })?;
        if job.filter.matches(&delivery) {
            found.push(delivery);
        }
    }
    Ok(found)
}
