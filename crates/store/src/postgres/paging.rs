//! One page of a list. A cursor is the position of the last entry of the page before.

use std::str::FromStr;

use postrider_domain::time::Timestamp;
use tokio_postgres::Row;

use super::rows::{count, get};
use crate::error::StoreError;
use crate::records::{Cursor, Page, PageRequest};

/// The position in a cursor of a list by time and identifier.
pub(super) fn place<I: FromStr>(request: &PageRequest) -> Result<Option<(i64, I)>, StoreError> {
    let Some(Cursor(text)) = &request.cursor else { return Ok(None) };
    let read = || {
        let (at, id) = text.split_once(' ')?;
        Some((at.parse().ok()?, id.parse().ok()?))
    };
    read().map(Some).ok_or(StoreError::UnknownCursor)
}

/// The position in a cursor of a list by one value.
pub(super) fn single<I: FromStr>(request: &PageRequest) -> Result<Option<I>, StoreError> {
    let Some(Cursor(text)) = &request.cursor else { return Ok(None) };
    text.parse().map(Some).map_err(|_| StoreError::UnknownCursor)
}

pub(super) fn cursor(at: Timestamp, id: impl ToString) -> Cursor {
    Cursor(format!("{} {}", at.as_unix_ms(), id.to_string()))
}

/// How many rows to ask for: one more than the page has, to see whether there is another page.
pub(super) fn limit(request: &PageRequest) -> i64 {
    count(request.limit).saturating_add(1)
}

/// Wraps a query so that it returns rows that are together not larger than `bytes_max`, but at
/// least one. The column `found` is the number of rows before the cut. The size of a value is known
/// without reading the value.
pub(super) fn within(listed: &str, order: &str, bytes: &str, bytes_max: usize) -> String {
    format!(
        "SELECT * FROM (SELECT *, sum({bytes}) OVER ({order} ROWS UNBOUNDED PRECEDING) AS held, \
         count(*) OVER () AS found, row_number() OVER ({order}) AS nth \
         FROM ({listed}) AS listed) AS sized WHERE nth = 1 OR held <= {bytes_max} {order}"
    )
}

/// Makes a page of the rows of a query by [`within`].
pub(super) fn page_within<T>(
    rows: &[Row],
    request: &PageRequest,
    read: impl Fn(&Row) -> Result<T, StoreError>,
    place: impl Fn(&T, &Row) -> Result<Cursor, StoreError>,
) -> Result<Page<T>, StoreError> {
    let found: i64 = rows.first().map_or(Ok(0), |row| get(row, "found"))?;
    let shown: Vec<&Row> = rows.iter().take(request.limit).collect();
    let items: Vec<T> = shown.iter().map(|row| read(row)).collect::<Result<_, _>>()?;
    let has_more = found > count(items.len());
    let next = match (items.last(), shown.last()) {
        (Some(last), Some(row)) if has_more => Some(place(last, row)?),
        (_, _) => None,
    };
    Ok(Page { items, next })
}

/// Makes a page of rows.
pub(super) fn page<T>(
    rows: &[Row],
    request: &PageRequest,
    read: impl Fn(&Row) -> Result<T, StoreError>,
    place: impl Fn(&T, &Row) -> Result<Cursor, StoreError>,
) -> Result<Page<T>, StoreError> {
    let shown = rows.iter().take(request.limit);
    let items: Vec<T> = shown.map(&read).collect::<Result<_, _>>()?;
    let next = match (items.last(), items.len().checked_sub(1).and_then(|n| rows.get(n))) {
        (Some(last), Some(row)) if rows.len() > items.len() => Some(place(last, row)?),
        (_, _) => None,
    };
    Ok(Page { items, next })
}
