//! Cursors of lists. A cursor is the position of the last entry of the page before.

use std::fmt::Display;
use std::str::FromStr;

use postrider_domain::time::Timestamp;

use crate::error::StoreError;
use crate::records::{Cursor, Page, PageRequest};

/// Parses a cursor into the position (time and identifier) that a page begins after.
pub(in crate::embedded) fn place<I: FromStr>(
    request: &PageRequest,
) -> Result<Option<(Timestamp, I)>, StoreError> {
    let Some(Cursor(text)) = &request.cursor else { return Ok(None) };
    let read = || {
        let (at, id) = text.split_once('.')?;
        Some((Timestamp::from_unix_ms(at.parse().ok()?), id.parse().ok()?))
    };
    read().map(Some).ok_or(StoreError::UnknownCursor)
}

/// Parses a cursor that is a single value.
pub(in crate::embedded) fn single<I: FromStr>(
    request: &PageRequest,
) -> Result<Option<I>, StoreError> {
    let Some(Cursor(text)) = &request.cursor else { return Ok(None) };
    text.parse().map(Some).map_err(|_| StoreError::UnknownCursor)
}

/// Makes the cursor of a position.
pub(in crate::embedded) fn at(at: Timestamp, id: impl Display) -> Cursor {
    Cursor(format!("{}.{id}", at.as_unix_ms()))
}

/// Makes a page of entries. The caller has read one entry more than asked for, if there are more.
pub(in crate::embedded) fn page<T>(
    mut items: Vec<T>,
    request: &PageRequest,
    cursor: impl FnOnce(&T) -> Cursor,
) -> Page<T> {
    let more = items.len() > request.limit;
    items.truncate(request.limit);
    let next = if more { items.last().map(cursor) } else { None };
    Page { items, next }
}

/// Makes a page of entries with their sizes: it ends early where they are together larger than
/// `bytes_max`, but has at least one entry.
pub(in crate::embedded) fn page_within<T>(
    mut items: Vec<(usize, T)>,
    request: &PageRequest,
    bytes_max: usize,
    cursor: impl FnOnce(&T) -> Cursor,
) -> Page<T> {
    let (mut kept, mut bytes) = (0, 0usize);
    for (size, _) in items.iter().take(request.limit) {
        bytes = bytes.saturating_add(*size);
        if kept > 0 && bytes > bytes_max {
            break;
        }
        kept += 1;
    }
    let more = items.len() > kept;
    items.truncate(kept);
    let next = items.last().filter(|_| more).map(|(_, last)| cursor(last));
    Page { items: items.into_iter().map(|(_, item)| item).collect(), next }
}

/// How many entries to read: one more than asked for, to learn whether there is another page.
pub(in crate::embedded) fn one_more(request: &PageRequest) -> usize {
    request.limit.saturating_add(1)
}

/// The position that a page begins after, as parameters of a query; the first page begins after a
/// position beyond every entry.
pub(in crate::embedded) fn before<I: FromStr>(
    request: &PageRequest,
) -> Result<(i64, Option<I>), StoreError> {
    let place = place(request)?;
    Ok(place.map_or((i64::MAX, None), |(at, id)| (at.as_unix_ms(), Some(id))))
}

/// How many entries to read, as a parameter of a query.
pub(in crate::embedded) fn limit(request: &PageRequest) -> i64 {
    i64::try_from(one_more(request)).unwrap_or(i64::MAX)
}

/// Makes the cursor of a position that is a single value.
pub(in crate::embedded) fn of(id: impl Display) -> Cursor {
    Cursor(id.to_string())
}
