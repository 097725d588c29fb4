//! Lists of deliveries.
//!
//! A day's deliveries stand in three orders, each by time: those of a tenant, those that are in a
//! state (but for delivered, which most are), and those of a route (subscription, destination and
//! type). A list merges the orders that together have what is wanted; each is read no further than
//! the page needs.

use std::path::Path;

use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use super::codec;
use super::cursor;
use super::files::{At, Day};
use super::history::{delivery_in, find_event, name_number, unsigned};
use super::numbering;
use super::pool::Looking;
use super::rows::{self, DELIVERY_COLUMNS, DELIVERY_JOINS, DELIVERY_NUMBER, Reading};
use crate::error::StoreError;
use crate::records::{DeliveryFilter, Page, PageRequest, ReplayJob};

/// With more routes than this, reading by state and leaving out the others is quicker.
const ROUTES_MAX: usize = 100;
/// After every identifier.
const LAST_ID: [u8; 16] = [0xff; 16];

/// One of the orders of a day's file.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// All of a tenant's.
    All,
    /// Those in a state other than delivered.
    State(u8),
    /// The deliveries of a route.
    Route(i64),
}

impl Source {
    /// Its index, the condition that it stands for, and the value of `?1` in it.
    fn sql(self) -> (&'static str, &'static str, i64) {
        match self {
            Source::All => ("NOT INDEXED", "?1 = ?1", 0),
            Source::State(state) => (
                "INDEXED BY deliveries_by_state",
                "d.state <> 2 AND d.state = ?1",
                i64::from(state),
            ),
            Source::Route(route) => ("INDEXED BY deliveries_by_route", "d.route = ?1", route),
        }
    }
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

    /// Whether a delivery that stands in lists at this time is one of them, as far as times go.
    fn wants(&self, at: Timestamp, delivery: &Delivery) -> bool {
        (at, *delivery.id.as_bytes()) < self.before
            && delivery.created_at >= self.since
            && self.filter.until.is_none_or(|until| delivery.created_at < until)
    }

    /// Whether they are of any state, subscription, destination and type.
    fn is_whole(&self) -> bool {
        self.is_wide() && self.filter.state.is_none()
    }

    /// Whether they are of any subscription, destination and type.
    fn is_wide(&self) -> bool {
        let filter = self.filter;
        filter.subscription.is_none() && filter.destination.is_none() && filter.kind.is_none()
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
    let mut found: Vec<(Timestamp, Delivery)> = Vec::new();
    if filter.event.is_some() {
        let of_event = of_event(looking, tenant, filter)?.into_iter();
        found = of_event.map(|delivery| (delivery.created_at, delivery)).collect();
        found.retain(|(at, delivery)| (*at, *delivery.id.as_bytes()) < wanted.before);
        newest_first(&mut found, limit);
    } else {
        for day in looking.days().into_iter().rev().filter(|day| wanted.touches(*day)) {
            if found.len() >= limit {
                break;
            }
            looking.check()?;
            let left = limit - found.len();
            found.extend(looking.day(day, |connection, path| {
                list_day(connection, path, day, tenant, &wanted, left)
            })?);
        }
    }
    let Page { items, next } = cursor::page(found, page, |(at, last)| cursor::at(*at, last.id));
    Ok(Page { items: items.into_iter().map(|(_, delivery)| delivery).collect(), next })
}

fn newest_first(found: &mut Vec<(Timestamp, Delivery)>, limit: usize) {
    found.sort_by_key(|(at, delivery)| std::cmp::Reverse((*at, delivery.id)));
    found.truncate(limit);
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
        count += looking
            .day(day, |connection, path| count_day(connection, path, day, tenant, &wanted))?;
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
            let delivery = delivery_in(connection, path, day, tenant, id)?;
            found.extend(delivery.map(|(_, found)| found).filter(|d| filter.matches(d)));
        }
        Ok(found)
    })
}

/// Which orders of a day have what is wanted.
fn sources(
    connection: &Connection,
    path: &Path,
    tenant: i64,
    filter: &DeliveryFilter,
) -> Result<Vec<Source>, StoreError> {
    let by_state = match filter.state {
        None | Some(StateName::Delivered) => Source::All,
        Some(state) => Source::State(codec::state_number(state)),
    };
    let kind = match &filter.kind {
        Some(kind) => match name_number(connection, path, kind.as_str())? {
            Some(kind) => Some(kind),
            None => return Ok(Vec::new()),
        },
        None => None,
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
        (None, None, None) => return Ok(vec![by_state]),
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
    Ok(if routes.len() > ROUTES_MAX { vec![by_state] } else { routes })
}

/// What follows the order itself: `?2` and `?3` say from where to where, the others are the rest of
/// a filter. What an order has by itself is checked once more, at no cost.
const REST: &str = "AND d.n BETWEEN ?2 AND ?3 AND (?4 < 0 OR d.state = ?4) AND r.tenant = ?5
    AND (?6 IS NULL OR r.subscription = ?6) AND (?7 IS NULL OR r.destination = ?7)
    AND (?8 IS NULL OR r.kind = (SELECT n FROM names WHERE name = ?8))";

/// The values of `?1` to `?8`.
fn values(
    source: Source,
    day: Day,
    tenant: i64,
    wanted: &Wanted<'_>,
) -> [rusqlite::types::Value; 8] {
    let filter = wanted.filter;
    let state = filter.state.map_or(-1, |state| i64::from(codec::state_number(state)));
    [
        source.sql().2.into(),
        numbering::first_at(tenant, day, wanted.since).into(),
        match wanted.before {
            // Nothing of that time comes before its first identifier.
            (before, [0, .., 0]) if Some(before) == filter.until => {
                (numbering::first_at(tenant, day, before) - 1).into()
            }
            (before, _) => numbering::last_at(tenant, day, before).into(),
        },
        state.into(),
        tenant.into(),
        filter.subscription.map(|id| id.as_bytes().to_vec()).into(),
        filter.destination.map(|id| id.as_bytes().to_vec()).into(),
        filter.kind.as_ref().map(|kind| kind.as_str().to_owned()).into(),
    ]
}

fn list_day(
    connection: &Connection,
    path: &Path,
    day: Day,
    tenant: &TenantId,
    wanted: &Wanted<'_>,
    limit: usize,
) -> Result<Vec<(Timestamp, Delivery)>, StoreError> {
    let Some(tenant) = name_number(connection, path, tenant.as_str())? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for source in sources(connection, path, tenant, wanted.filter)? {
        let (index, condition, _) = source.sql();
        let select = format!(
            "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {index} {DELIVERY_JOINS}
            WHERE {condition} {REST} ORDER BY d.n DESC"
        );
        let mut statement = connection.prepare_cached(&select).at(path)?;
        let values = params_from_iter(values(source, day, tenant, wanted));
        let mut rows = statement.query(values).at(path)?;
        let (mut group, mut of_source) = (None, 0);
        while let Some(row) = rows.next().at(path)? {
            let reading = Reading { row, path, table: "deliveries" };
            let number: i64 = reading.get(DELIVERY_NUMBER)?;
            // Within a millisecond the order is that of identifiers: all of it is needed.
            let this = numbering::group(number);
            if of_source >= limit && group.is_some_and(|group| group != this) {
                break;
            }
            group = Some(this);
            let delivery = rows::delivery(&reading)?;
            let at = numbering::listed_at(day, number, delivery.created_at);
            if wanted.wants(at, &delivery) {
                of_source += 1;
                found.push((at, delivery));
            }
        }
    }
    newest_first(&mut found, limit);
    Ok(found)
}

fn count_day(
    connection: &Connection,
    path: &Path,
    day: Day,
    tenant: &TenantId,
    wanted: &Wanted<'_>,
) -> Result<u64, StoreError> {
    let Some(tenant) = name_number(connection, path, tenant.as_str())? else { return Ok(0) };
    let last_name = "SELECT coalesce(max(n), 0) FROM names";
    let last_name = connection.query_row(last_name, [], |row| row.get(0)).at(path)?;
    let are_shared = numbering::are_shared(last_name);
    let ask = |sql: &str, source: Source| {
        let mut statement = connection.prepare_cached(sql).at(path)?;
        // A statement is given the values that it has places for.
        let values = values(source, day, tenant, wanted);
        let values = values.into_iter().take(statement.parameter_count());
        let count = statement.query_row(params_from_iter(values), |row| row.get(0)).at(path)?;
        Ok::<u64, StoreError>(unsigned(count))
    };
    let mut count = 0;
    for source in sources(connection, path, tenant, wanted.filter)? {
        let (index, condition, _) = source.sql();
        count += match source {
            // The smallest index that has every delivery of the tenant.
            Source::All if wanted.is_whole() => ask(OF_ALL_ROUTES, source)?,
            Source::State(_) if wanted.is_wide() && !are_shared => {
                let select = format!(
                    "SELECT count(*) FROM deliveries AS d {index}
                    WHERE {condition} AND d.n BETWEEN ?2 AND ?3"
                );
                ask(&select, source)?
            }
            Source::All | Source::State(_) | Source::Route(_) => {
                let select = format!(
                    "SELECT count(*) FROM deliveries AS d {index}
                    CROSS JOIN routes AS r ON r.n = d.route WHERE {condition} {REST}"
                );
                ask(&select, source)?
            }
        };
    }
    Ok(count)
}

const OF_ALL_ROUTES: &str = "SELECT count(*) FROM routes AS r
    CROSS JOIN deliveries AS d INDEXED BY deliveries_by_route ON d.route = r.n
    WHERE ?1 = ?1 AND d.n BETWEEN ?2 AND ?3 AND ?4 = ?4 AND r.tenant = ?5";

/// The next deliveries of a replay job, by identifier.
pub(super) fn candidates(
    looking: &Looking<'_>,
    job: &ReplayJob,
    limit: usize,
) -> Result<Vec<Delivery>, StoreError> {
    let wanted = Wanted::new(&job.filter, None);
    let mut days = Vec::new();
    for day in looking.days().into_iter().filter(|day| wanted.touches(*day)) {
        let first = looking.day(day, |connection, path| first_id(connection, path, &job.tenant))?;
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
            looking.day(day, |connection, path| {
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
    let (first, last) = numbering::range(tenant);
    let plain = "SELECT id FROM deliveries WHERE n BETWEEN ?1 AND ?2 AND odd IS NULL
        ORDER BY n LIMIT 1";
    let plain = connection.query_row(plain, [first, last], |row| row.get(0)).optional();
    let odd = "SELECT min(id) FROM deliveries INDEXED BY deliveries_odd WHERE odd = 1";
    let odd: Option<Vec<u8>> = connection.query_row(odd, [], |row| row.get(0)).at(path)?;
    let plain: Option<Vec<u8>> = plain.at(path)?;
    Ok(plain.into_iter().chain(odd).min())
}

/// Plain rows stand in the order of identifiers; so do odd ones in their index.
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
    let (first, last) = numbering::range(tenant);
    let position = job.position.map_or([0; 16], |id| *id.as_bytes());
    let first = numbering::plain(tenant, day, &position).unwrap_or(first);
    let state = job.filter.state.map(codec::state_number);
    let (index, is_state) = match job.filter.state {
        None | Some(StateName::Delivered) => ("NOT INDEXED", "(?5 IS NULL OR d.state = ?5)"),
        Some(_) => ("INDEXED BY deliveries_by_state", "d.state <> 2 AND d.state = ?5"),
    };
    let plain = format!(
        "{index} {DELIVERY_JOINS} WHERE d.n BETWEEN ?1 AND ?2 AND d.odd IS NULL AND {is_state}
            AND d.id > ?3 AND r.tenant = ?4 AND d.state >= 2 AND d.at <= ?6 ORDER BY d.n"
    );
    let odd = format!(
        "INDEXED BY deliveries_odd {DELIVERY_JOINS} WHERE ?1 = ?1 AND ?2 = ?2 AND d.odd = 1
            AND (?5 IS NULL OR d.state = ?5) AND d.id > ?3 AND r.tenant = ?4 AND d.state >= 2
            AND d.at <= ?6 ORDER BY d.id"
    );
    let mut found = Vec::new();
    for order in [plain, odd] {
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
            if job.filter.matches(&delivery) {
                of_order += 1;
                found.push(delivery);
            }
        }
    }
    found.sort_by_key(|delivery| delivery.id);
    found.truncate(limit);
    Ok(found)
}
