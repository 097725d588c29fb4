//! Lists of events.
//!
//! A list reads the rows of a day by their numbers, which are in the order of time. If a type is
//! asked for, the table `seconds` says in which seconds of the day there are events of this type. If an
//! object is asked for, the index `events_of_object` has its rows. Payloads are read last, and only for the
//! events on the page. Unapplied events come from the [`Overlay`].

use std::path::Path;

use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::limits::PAGE_BYTES_MAX;
use postrider_domain::time::Timestamp;
use rusqlite::{Connection, params};

use super::cursor;
use super::history::name_number;
use super::object_list;
use crate::embedded::apply::Overlay;
use crate::embedded::files::read_pool::ReadGuard;
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::{self, EVENT_COLUMNS, EVENT_JOINS};
use crate::embedded::files::{At, Day};
use crate::error::StoreError;
use crate::records::{EventFilter, EventRecord, Page, PageRequest};

/// One page of a tenant's events, newest first.
pub(in crate::embedded) fn list(
    guard: &ReadGuard<'_>,
    tenant: &TenantId,
    filter: &EventFilter,
    page: &PageRequest,
    overlay: &Overlay,
) -> Result<Page<EventRecord>, StoreError> {
    let from: Option<(Timestamp, EventId)> = cursor::place(page)?;
    let wanted = WantedEvents {
        kind: filter.kind.as_ref().map(|kind| kind.as_str()),
        object: filter.object.as_ref().map(|object| object.as_str()),
        since: filter.since.unwrap_or(Timestamp::from_unix_ms(i64::MIN)),
        until: filter.until,
        before: from.map(|(at, id)| (at, id.to_string())),
        limit: cursor::one_more(page),
        overlay,
    };
    let mut found: Vec<Listed> = Vec::new();
    for day in guard.days().into_iter().rev() {
        let last = wanted.last_at();
        if found.len() >= wanted.limit || day.end() <= wanted.since || day.start() > last {
            continue;
        }
        guard.check()?;
        let left = wanted.limit - found.len();
        found.extend(guard.day(day, |connection, path| {
            match name_number(connection, path, tenant.as_str())? {
                Some(tenant) => wanted.of_day(connection, path, day, tenant, left),
                None => Ok(Vec::new()),
            }
        })?);
    }
    let unapplied = overlay.events().filter(|record| filter.matches(record));
    found.extend(unapplied.map(Listed::unapplied).filter(|listed| wanted.wants(listed)));
    sort_newest_first(&mut found);
    found.truncate(wanted.limit);
    let found = found.into_iter().map(|listed| (listed.bytes, listed)).collect();
    let page =
        cursor::page_within(found, page, PAGE_BYTES_MAX, |last| cursor::at(last.at, &last.id));
    let items = page.items.iter().map(|listed| whole_event(guard, listed));
    Ok(Page { items: items.collect::<Result<_, _>>()?, next: page.next })
}

/// Reads the event of a list's entry, with its payload.
fn whole_event(guard: &ReadGuard<'_>, listed: &Listed) -> Result<EventRecord, StoreError> {
    match &listed.source {
        ListedIn::Row(day, number) => event_at(guard, *day, *number),
        ListedIn::Overlay(record) => Ok(record.clone()),
    }
}

/// Reads an event by the number of its row.
pub(super) fn event_at(
    guard: &ReadGuard<'_>,
    day: Day,
    number: i64,
) -> Result<EventRecord, StoreError> {
    let found = guard.day(day, |connection, path| {
        let find = format!("SELECT {EVENT_COLUMNS} FROM events AS e {EVENT_JOINS} WHERE e.n = ?1");
        rows::one(connection, path, "events", &find, [number], rows::event)
    })?;
    match found {
        Some(stored) => Ok(stored.record),
        None => Err(StoreError::Internal(format!("event row {number} is listed and not there"))),
    }
}

/// An entry of a list of events, without its payload, which may be large.
struct Listed {
    source: ListedIn,
    at: Timestamp,
    accepted_at: Timestamp,
    id: EventId,
    /// The size of its payload.
    bytes: usize,
}

/// Where the whole event is: in the file of a day, under its row number, or not applied yet.
enum ListedIn {
    Row(Day, i64),
    Overlay(EventRecord),
}

impl Listed {
    fn unapplied(record: &EventRecord) -> Self {
        let EventRecord { event, accepted_at, .. } = record;
        let old = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        Listed {
            source: ListedIn::Overlay(record.clone()),
            at: *accepted_at,
            accepted_at: *accepted_at,
            id: event.id.clone(),
            bytes: event.data.as_bytes().len() + old,
        }
    }
}

fn sort_newest_first(found: &mut [Listed]) {
    found.sort_unstable_by(|one, other| {
        (other.at, other.id.as_str()).cmp(&(one.at, one.id.as_str()))
    });
}

/// Which events a page selects.
struct WantedEvents<'w> {
    kind: Option<&'w str>,
    object: Option<&'w str>,
    since: Timestamp,
    until: Option<Timestamp>,
    before: Option<(Timestamp, String)>,
    limit: usize,
    overlay: &'w Overlay,
}

impl WantedEvents<'_> {
    fn last_at(&self) -> Timestamp {
        let before = self.before.as_ref().map_or(Timestamp::MAX, |(at, _)| *at);
        self.until.map_or(before, |until| until.min(before))
    }

    fn wants(&self, listed: &Listed) -> bool {
        let at = listed.accepted_at;
        at >= self.since
            && self.until.is_none_or(|until| at < until)
            && self
                .before
                .as_ref()
                .is_none_or(|(before, id)| (listed.at, listed.id.as_str()) < (*before, id.as_str()))
    }

    /// The newest events of a day that the filter selects.
    fn of_day(
        &self,
        connection: &Connection,
        path: &Path,
        day: Day,
        tenant: i64,
        limit: usize,
    ) -> Result<Vec<Listed>, StoreError> {
        let range = (
            row_numbers::first_at(tenant, day, self.since),
            row_numbers::last_at(tenant, day, self.last_at()),
        );
        let mut found = Vec::new();
        let kind = match self.kind {
            Some(kind) => match name_number(connection, path, kind)? {
                Some(kind) => Some(kind),
                None => return Ok(found),
            },
            None => None,
        };
        // All of an object's events are few, so they are read through the object's index, whatever the type.
        let Some(kind) = kind.filter(|_| self.object.is_none()) else {
            self.of_range(connection, path, (day, tenant, kind), range, limit, &mut found)?;
            found.truncate(limit);
            return Ok(found);
        };
        let seconds = "SELECT second FROM seconds WHERE tenant = ?1 AND kind = ?2
            AND second BETWEEN ?3 AND ?4 ORDER BY second DESC";
        let (first, last) = (row_numbers::second(range.0), row_numbers::second(range.1));
        let mut statement = connection.prepare_cached(seconds).at(path)?;
        let mut rows = statement.query([tenant, kind, first, last]).at(path)?;
        while found.len() < limit
            && let Some(row) = rows.next().at(path)?
        {
            let of_second = row_numbers::range_of_second(tenant, row.get(0).at(path)?);
            let part = (range.0.max(of_second.0), range.1.min(of_second.1));
            self.of_range(connection, path, (day, tenant, Some(kind)), part, limit, &mut found)?;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Adds the events of a range of row numbers, until there are enough.
    fn of_range(
        &self,
        connection: &Connection,
        path: &Path,
        (day, tenant, kind): (Day, i64, Option<i64>),
        (first, last): (i64, i64),
        limit: usize,
        found: &mut Vec<Listed>,
    ) -> Result<(), StoreError> {
        // SQLite stores the length of a payload in front of it, so `length` does not read the
        // payload.
        let by_object = match self.object {
            Some(_) if object_list::is_indexed(connection, path)? => {
                "INDEXED BY events_of_object WHERE e.object = ?5 AND"
            }
            Some(_) => "NOT INDEXED WHERE e.object = ?5 AND",
            None => "NOT INDEXED WHERE ?5 IS NULL AND",
        };
        let find = format!(
            "SELECT e.n, e.id, e.accepted_at, length(e.data) + coalesce(length(e.old), 0)
            FROM events AS e {by_object} e.n BETWEEN ?1 AND ?2 AND e.tenant = ?3
                AND (?4 IS NULL OR e.kind = ?4) ORDER BY e.n DESC"
        );
        let mut statement = connection.prepare_cached(&find).at(path)?;
        let mut rows = statement.query(params![first, last, tenant, kind, self.object]).at(path)?;
        let begin = found.len();
        let mut group = None;
        while let Some(row) = rows.next().at(path)? {
            let reading = rows::Reading { row, path, table: "events" };
            let number: i64 = reading.get(0)?;
            // Rows of one millisecond are ordered by identifier, so all of them must be read.
            let this = row_numbers::group(number);
            if found.len() >= limit && group.is_some_and(|group| group != this) {
                break;
            }
            group = Some(this);
            let (id, accepted_at) = (reading.event_id(1)?, reading.time(2)?);
            let at = row_numbers::listed_at(day, number, accepted_at);
            let bytes: i64 = reading.get(3)?;
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let source = ListedIn::Row(day, number);
            let is_unapplied = self.overlay.event(&id).is_some();
            let listed = Listed { source, at, accepted_at, id, bytes };
            if !is_unapplied && self.wants(&listed) {
                found.push(listed);
            }
        }
        sort_newest_first(found.get_mut(begin..).unwrap_or_default());
        Ok(())
    }
}
