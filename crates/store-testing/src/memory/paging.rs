//! One page of a list. A cursor is the position of the last entry of the page before.

use std::str::FromStr;

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;
use postrider_store::{Cursor, Page, PageRequest, StoreError};

/// The position of an entry in its list.
pub(super) trait SortKey: Ord + Sized {
    fn write(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl SortKey for TenantId {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl SortKey for u64 {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl SortKey for u32 {
    fn write(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl<I: Ord + FromStr + ToString> SortKey for (Timestamp, I) {
    fn write(&self) -> String {
        format!("{} {}", self.0.as_unix_ms(), self.1.to_string())
    }

    fn read(text: &str) -> Option<Self> {
        let (at, id) = text.split_once(' ')?;
        Some((Timestamp::from_unix_ms(at.parse().ok()?), id.parse().ok()?))
    }
}

/// A page of entries in descending order.
pub(super) fn descending<P: SortKey, T>(
    entries: impl Iterator<Item = (P, T)>,
    request: &PageRequest,
) -> Result<Page<T>, StoreError> {
    descending_within(entries.map(|entry| (0, entry)), request, usize::MAX)
}

/// A page of entries with their sizes, in descending order; it ends early if they are together too
/// large.
pub(super) fn descending_within<P: SortKey, T>(
    entries: impl Iterator<Item = (usize, (P, T))>,
    request: &PageRequest,
    bytes_max: usize,
) -> Result<Page<T>, StoreError> {
    let mark = mark::<P>(request)?;
    let is_before = |place: &P| mark.as_ref().is_some_and(|mark| place >= mark);
    take(entries.skip_while(|(_, (place, _))| is_before(place)), request, bytes_max)
}

/// A page of entries in ascending order.
pub(super) fn ascending<P: SortKey, T>(
    entries: impl Iterator<Item = (P, T)>,
    request: &PageRequest,
) -> Result<Page<T>, StoreError> {
    ascending_within(entries.map(|entry| (0, entry)), request, usize::MAX)
}

/// A page of entries with their sizes, in ascending order; it ends early if they are together too
/// large.
pub(super) fn ascending_within<P: SortKey, T>(
    entries: impl Iterator<Item = (usize, (P, T))>,
    request: &PageRequest,
    bytes_max: usize,
) -> Result<Page<T>, StoreError> {
    let mark = mark::<P>(request)?;
    let is_before = |place: &P| mark.as_ref().is_some_and(|mark| place <= mark);
    take(entries.skip_while(|(_, (place, _))| is_before(place)), request, bytes_max)
}

fn mark<P: SortKey>(request: &PageRequest) -> Result<Option<P>, StoreError> {
    match &request.cursor {
        None => Ok(None),
        Some(Cursor(text)) => P::read(text).map(Some).ok_or(StoreError::UnknownCursor),
    }
}

fn take<P: SortKey, T>(
    entries: impl Iterator<Item = (usize, (P, T))>,
    request: &PageRequest,
    bytes_max: usize,
) -> Result<Page<T>, StoreError> {
    let mut entries = entries.peekable();
    let (mut items, mut last, mut bytes) = (Vec::new(), None, 0usize);
    while items.len() < request.limit
        && let Some((_, (place, item))) = entries.next_if(|(size, _)| {
            bytes = bytes.saturating_add(*size);
            items.is_empty() || bytes <= bytes_max
        })
    {
        items.push(item);
        last = Some(place);
    }
    let next = entries.peek().and(last).map(|place| Cursor(place.write()));
    Ok(Page { items, next })
}
