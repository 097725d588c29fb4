//! Lists by the index `deliveries_of_route`.
//!
//! A list of some routes is merged from their ranges of the index `deliveries_of_route`, newest
//! first, and each range is read no further than the page needs. Where many routes match, finding
//! the newest row of each costs more than reading some of the tenant's newest rows. So the tenant's
//! newest rows are read first: where most of them match, they fill the page.

use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::LazyLock;

use postrider_domain::delivery::StateName;
use postrider_domain::ids::SubscriptionId;
use rusqlite::{CachedStatement, params};

use super::older::{self, Source};
use super::{InDay, Newest, Wanted};
use crate::embedded::QuickSet;
use crate::embedded::contract::history::{name_number, unsigned};
use crate::embedded::files::At;
use crate::embedded::files::codec;
use crate::embedded::files::rows::{DELIVERY_COLUMNS, DELIVERY_JOINS, Reading};
use crate::error::StoreError;
use crate::records::DeliveryFilter;

/// Up to this many ranges are merged at once; with more, the newest rows are read first.
const MERGED_AT_ONCE: usize = 64;
/// How many of the newest rows are read before many ranges are merged.
const STRETCH: usize = 2_000;
/// With more routes than this, ranges are not merged at all.
const ROUTES_MAX: usize = 20_000;
/// How many rows of a range are read ahead.
const AHEAD: usize = 16;
/// The stored number of the state delivered. Most deliveries are in it, so it has no index of its
/// own.
const DELIVERED: u8 = 2;

/// A route's number and its subscription.
type Route = (i64, SubscriptionId);
/// The first and the last row number of a range.
type Numbers = (i64, i64);

/// Whether the file has the index. A large file of an earlier version does not.
pub(super) fn are_kept(file: &InDay<'_>) -> Result<bool, StoreError> {
    let find = "SELECT 1 FROM sqlite_schema WHERE name = 'deliveries_of_route'";
    file.connection.prepare_cached(find).at(file.path)?.exists([]).at(file.path)
}

/// Adds the newest selected deliveries.
pub(super) fn list(file: &InDay<'_>, page: &mut Newest<'_>) -> Result<(), StoreError> {
    let filter = page.wanted.filter;
    let mut numbers = page.wanted.numbers(file.day, file.tenant);
    let states = states(file, filter.state, numbers)?;
    let by_state = Source::by_state(filter.state);
    if states.is_empty() {
        return Ok(());
    }
    if page.wanted.is_wide() && filter.state != Some(StateName::Delivered) {
        return older::read(file, by_state, page);
    }
    let mut fetch = Fetch::new(file)?;
    if page.wanted.is_wide() {
        // Nearly all deliveries are delivered, so the newest rows usually fill the page.
        match stretch(&mut fetch, by_state, numbers, None, &states, page)? {
            None => return Ok(()),
            Some(next) => numbers.1 = next,
        }
    }
    let routes = routes(file, filter, ROUTES_MAX + 1)?;
    if routes.len() > ROUTES_MAX {
        return older::read(file, by_state, page);
    }
    if !page.wanted.is_wide() && routes.len() * states.len() > MERGED_AT_ONCE {
        match stretch(&mut fetch, by_state, numbers, Some(&routes), &states, page)? {
            None => return Ok(()),
            Some(next) => numbers.1 = next,
        }
    }
    merge(&mut fetch, numbers, &routes, &states, page)
}

/// The states of the filter that occur among the rows.
fn states(
    file: &InDay<'_>,
    wanted: Option<StateName>,
    (first, last): Numbers,
) -> Result<Vec<u8>, StoreError> {
    let find = "SELECT 1 FROM deliveries INDEXED BY deliveries_by_state
        WHERE state <> 2 AND state = ?1 AND n BETWEEN ?2 AND ?3";
    let mut statement = file.connection.prepare_cached(find).at(file.path)?;
    let wanted = match wanted {
        None => vec![DELIVERED, 0, 1, 3, 4],
        // In flight is a state of the engine's memory, never of the store.
        Some(StateName::InFlight) => Vec::new(),
        Some(state) => vec![codec::state_number(state)],
    };
    let mut found = Vec::new();
    for state in wanted {
        if state == DELIVERED || statement.exists(params![state, first, last]).at(file.path)? {
            found.push(state);
        }
    }
    Ok(found)
}

/// The routes that a filter selects, at most `most` of them.
pub(super) fn routes(
    file: &InDay<'_>,
    filter: &DeliveryFilter,
    most: usize,
) -> Result<Vec<Route>, StoreError> {
    let InDay { connection, path, tenant, .. } = *file;
    let kind = match &filter.kind {
        Some(kind) => match name_number(connection, path, kind.as_str())? {
            Some(kind) => Some(kind),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let subscription = filter.subscription.map(|id| id.as_bytes().to_vec());
    let destination = filter.destination.map(|id| id.as_bytes().to_vec());
    // Each of the three conditions has an index: read by one of them, check the others row by row.
    let first = match (&subscription, &destination, kind) {
        (Some(_), _, _) => "subscription = ?2",
        (None, Some(_), _) => "destination = ?3",
        (None, None, Some(_)) => "kind = ?4",
        (None, None, None) => "?1 = ?1",
    };
    let find = format!(
        "SELECT n, subscription FROM routes WHERE tenant = ?1 AND {first}
            AND (?2 IS NULL OR subscription = ?2) AND (?3 IS NULL OR destination = ?3)
            AND (?4 IS NULL OR kind = ?4) LIMIT ?5"
    );
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&find).at(path)?;
    let mut rows =
        statement.query(params![tenant, subscription, destination, kind, most]).at(path)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().at(path)? {
        let reading = Reading { row, path, table: "routes" };
        found.push((reading.get(0)?, reading.id(1, SubscriptionId::from_bytes)?));
    }
    Ok(found)
}

/// Reads up to [`STRETCH`] rows of another index and adds those of these routes and states. Returns
/// the number of the first row that was not read, or `None` when the page is complete.
fn stretch(
    fetch: &mut Fetch<'_>,
    order: Source,
    (first, last): Numbers,
    routes: Option<&[Route]>,
    states: &[u8],
    page: &mut Newest<'_>,
) -> Result<Option<i64>, StoreError> {
    let file = fetch.file;
    let routes: Option<QuickSet<i64>> =
        routes.map(|routes| routes.iter().map(|(route, _)| *route).collect());
    let is_wanted = |route: i64| routes.as_ref().is_none_or(|routes| routes.contains(&route));
    let (index, condition, value) = order.sql();
    let select = format!(
        "SELECT d.n, d.route, d.state FROM deliveries AS d {index}
        WHERE {condition} AND d.n BETWEEN ?2 AND ?3 ORDER BY d.n DESC"
    );
    let mut statement = file.connection.prepare_cached(&select).at(file.path)?;
    let mut rows = statement.query(params![value, first, last]).at(file.path)?;
    let mut read = 0;
    while let Some(row) = rows.next().at(file.path)? {
        let number: i64 = row.get(0).at(file.path)?;
        if page.is_complete(number) {
            return Ok(None);
        }
        if read == STRETCH {
            return Ok(Some(number));
        }
        read += 1;
        let (route, state): (i64, u8) = (row.get(1).at(file.path)?, row.get(2).at(file.path)?);
        if is_wanted(route) && states.contains(&state) {
            fetch.add(number, page)?;
        }
    }
    Ok(None)
}

static FETCH: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {DELIVERY_JOINS}
        WHERE d.n = ?1 AND r.tenant = ?2"
    )
});

/// The statement that reads a delivery by its number, prepared once for a list.
struct Fetch<'l> {
    file: &'l InDay<'l>,
    statement: CachedStatement<'l>,
}

impl<'l> Fetch<'l> {
    fn new(file: &'l InDay<'l>) -> Result<Self, StoreError> {
        let statement = file.connection.prepare_cached(&FETCH).at(file.path)?;
        Ok(Fetch { file, statement })
    }

    /// Adds the delivery with this number.
    fn add(&mut self, number: i64, page: &mut Newest<'_>) -> Result<(), StoreError> {
        let InDay { path, tenant, .. } = *self.file;
        let mut rows = self.statement.query([number, tenant]).at(path)?;
        match rows.next().at(path)? {
            Some(row) => page.add(&Reading { row, path, table: "deliveries" }),
            None => Ok(()),
        }
    }
}

const FIND_RANGE: &str = "SELECT n FROM deliveries INDEXED BY deliveries_of_route
    WHERE route = ?1 AND state = ?2 AND n BETWEEN ?3 AND ?4 ORDER BY n DESC LIMIT ?5";

/// The deliveries of one route (subscription, destination and type) in one state, newest first.
struct Range {
    route: i64,
    state: u8,
    /// Row numbers that are read already; the next one is the last of the vector.
    ahead: Vec<i64>,
    /// Whether the range has no further rows.
    is_read: bool,
}

impl Range {
    /// Reads further rows of the range, by [`FIND_RANGE`].
    fn read(
        &mut self,
        (find, path): (&mut CachedStatement<'_>, &Path),
        (first, last): Numbers,
        most: usize,
    ) -> Result<(), StoreError> {
        let limit = i64::try_from(most).unwrap_or(i64::MAX);
        let mut rows = find.query(params![self.route, self.state, first, last, limit]).at(path)?;
        while let Some(row) = rows.next().at(path)? {
            self.ahead.push(row.get(0).at(path)?);
        }
        self.is_read = self.ahead.len() < most;
        self.ahead.reverse();
        Ok(())
    }
}

/// Adds the newest rows of these routes in these states.
fn merge(
    fetch: &mut Fetch<'_>,
    (first, last): Numbers,
    routes: &[Route],
    states: &[u8],
    page: &mut Newest<'_>,
) -> Result<(), StoreError> {
    let each =
        routes.iter().flat_map(|(route, _)| states.iter().map(move |state| (*route, *state)));
    let mut ranges: Vec<Range> = each
        .map(|(route, state)| Range { route, state, ahead: Vec::new(), is_read: false })
        .collect();
    let file = fetch.file;
    let mut find = file.connection.prepare_cached(FIND_RANGE).at(file.path)?;
    let at_first = if ranges.len() <= AHEAD { page.limit } else { 1 };
    let mut newest = BinaryHeap::new();
    for (place, range) in ranges.iter_mut().enumerate() {
        if place % 256 == 0 {
            file.guard.check()?;
        }
        range.read((&mut find, file.path), (first, last), at_first)?;
        newest.extend(range.ahead.pop().map(|number| (number, place)));
    }
    while let Some((number, place)) = newest.pop() {
        if page.is_complete(number) {
            break;
        }
        fetch.add(number, page)?;
        let Some(range) = ranges.get_mut(place) else { continue };
        if range.ahead.is_empty() && !range.is_read {
            range.read((&mut find, file.path), (first, number - 1), AHEAD)?;
        }
        newest.extend(range.ahead.pop().map(|number| (number, place)));
    }
    Ok(())
}

/// How many deliveries the filter selects, of the subscriptions that `counts` accepts.
pub(super) fn count(
    file: &InDay<'_>,
    wanted: &Wanted<'_>,
    counts: impl Fn(&SubscriptionId) -> bool,
) -> Result<u64, StoreError> {
    let (first, last) = wanted.numbers(file.day, file.tenant);
    let (index, is_state, states) = match (wanted.filter.state, are_kept(file)?) {
        (Some(StateName::InFlight), _) => return Ok(0),
        (Some(state), true) => {
            ("deliveries_of_route", "state = ?2", vec![codec::state_number(state)])
        }
        (Some(state), false) => {
            ("deliveries_by_route", "state = ?2", vec![codec::state_number(state)])
        }
        (None, true) => ("deliveries_of_route", "state = ?2", vec![0, 1, 2, 3, 4]),
        (None, false) => ("deliveries_by_route", "?2 = ?2", vec![0]),
    };
    let ended_since = wanted.filter.ended_since.map(|since| since.as_unix_ms());
    // Without the condition the index answers alone.
    let has_ended = match ended_since {
        None => "?5 IS NULL",
        Some(_) => "state >= 2 AND at >= ?5",
    };
    let sql = format!(
        "SELECT count(*) FROM deliveries INDEXED BY {index}
        WHERE route = ?1 AND {is_state} AND n BETWEEN ?3 AND ?4 AND {has_ended}"
    );
    let mut statement = file.connection.prepare_cached(&sql).at(file.path)?;
    let mut count = 0;
    for (route, _) in routes(file, wanted.filter, usize::MAX)?.iter().filter(|(_, id)| counts(id)) {
        file.guard.check()?;
        for state in &states {
            let values = params![route, state, first, last, ended_since];
            let rows: i64 = statement.query_row(values, |row| row.get(0)).at(file.path)?;
            count += unsigned(rows);
        }
    }
    Ok(count)
}
