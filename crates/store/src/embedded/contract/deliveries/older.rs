//! Lists by one index of a day's file: by tenant, by state, or by route.
//!
//! A large file of an earlier version keeps its index by route without the state: there the state is
//! checked row by row.

use postrider_domain::delivery::StateName;
use rusqlite::params_from_iter;
use rusqlite::types::Value;

use super::{InDay, Newest, Wanted, orders};
use crate::embedded::files::At;
use crate::embedded::files::codec;
use crate::embedded::files::rows::{DELIVERY_COLUMNS, DELIVERY_JOINS, DELIVERY_NUMBER, Reading};
use crate::error::StoreError;

/// With more routes than this it is faster to read by state and to skip rows of other routes.
const ROUTES_MAX: usize = 100;

/// One of the indexes of a day's file.
#[derive(Debug, Clone, Copy)]
pub(in crate::embedded::contract) enum Source {
    /// All deliveries of a tenant.
    All,
    /// Deliveries in a state other than delivered.
    State(u8),
    /// Deliveries of a route, in files without the index `deliveries_of_route`.
    Route(i64),
}

impl Source {
    /// The index to read for a state.
    pub(in crate::embedded::contract) fn by_state(state: Option<StateName>) -> Self {
        match state {
            None | Some(StateName::Delivered) => Source::All,
            Some(state) => Source::State(codec::state_number(state)),
        }
    }

    /// The SQL of the index, its condition, and the value of `?1` in that condition.
    pub(in crate::embedded::contract) fn sql(self) -> (&'static str, &'static str, i64) {
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

/// The rest of the condition: `?2` and `?3` are the range of row numbers, the others come from the
/// filter. A condition that the index implies already costs nothing.
const REST: &str = "AND d.n BETWEEN ?2 AND ?3 AND (?4 < 0 OR d.state = ?4) AND r.tenant = ?5
    AND (?6 IS NULL OR r.subscription = ?6) AND (?7 IS NULL OR r.destination = ?7)
    AND (?8 IS NULL OR r.kind = (SELECT n FROM names WHERE name = ?8))";

/// The values of `?1` to `?8`.
fn values(source: Source, file: &InDay<'_>, wanted: &Wanted<'_>) -> [Value; 8] {
    let filter = wanted.filter;
    let state = filter.state.map_or(-1, |state| i64::from(codec::state_number(state)));
    let (first, last) = wanted.numbers(file.day, file.tenant);
    [
        source.sql().2.into(),
        first.into(),
        last.into(),
        state.into(),
        file.tenant.into(),
        filter.subscription.map(|id| id.as_bytes().to_vec()).into(),
        filter.destination.map(|id| id.as_bytes().to_vec()).into(),
        filter.kind.as_ref().map(|kind| kind.as_str().to_owned()).into(),
    ]
}

/// Adds the newest selected deliveries of a file without the index `deliveries_of_route`.
pub(super) fn list(file: &InDay<'_>, page: &mut Newest<'_>) -> Result<(), StoreError> {
    let filter = page.wanted.filter;
    if page.wanted.is_wide() {
        return read(file, Source::by_state(filter.state), page);
    }
    let routes = orders::routes(file, filter, ROUTES_MAX + 1)?;
    if routes.len() > ROUTES_MAX {
        return read(file, Source::by_state(filter.state), page);
    }
    for (route, _) in routes {
        file.guard.check()?;
        let mut of_route = page.another();
        read(file, Source::Route(route), &mut of_route)?;
        page.found.extend(of_route.found);
    }
    Ok(())
}

/// Reads an index until the page is complete.
pub(super) fn read(
    file: &InDay<'_>,
    source: Source,
    page: &mut Newest<'_>,
) -> Result<(), StoreError> {
    let (index, condition, _) = source.sql();
    let select = format!(
        "SELECT {DELIVERY_COLUMNS} FROM deliveries AS d {index} {DELIVERY_JOINS}
        WHERE {condition} {REST} ORDER BY d.n DESC"
    );
    let mut statement = file.connection.prepare_cached(&select).at(file.path)?;
    let values = params_from_iter(values(source, file, page.wanted));
    let mut rows = statement.query(values).at(file.path)?;
    while let Some(row) = rows.next().at(file.path)? {
        let reading = Reading { row, path: file.path, table: "deliveries" };
        if page.is_complete(reading.get(DELIVERY_NUMBER)?) {
            break;
        }
        page.add(&reading)?;
    }
    Ok(())
}
