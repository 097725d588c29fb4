//! Rows of events and deliveries.
//!
//! Events are written 64 at a time where that is possible: one statement opens its table once. It
//! skips rows whose numbers are taken. If it skipped any, all 64 are written again one by one,
//! which changes nothing for the rows that exist already. **Every statement can be repeated and
//! ends in the same rows.**
//!
//! Deliveries are written one by one. For a statement with several rows and explicit row numbers SQLite
//! keeps a copy of every page that it touches, to be able to undo that statement alone, and deliveries
//! of many routes touch many pages of an index.

use std::fmt::Write as _;
use std::sync::LazyLock;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, OptionalExtension, ToSql, Transaction, params};

use super::fold::Folded;
use crate::embedded::files::Day;
use crate::embedded::files::bloom::BloomFilters;
use crate::embedded::files::codec::{self, Encoder};
use crate::embedded::files::row_numbers;
use crate::embedded::files::rows::delivery::{
    CHANGE_DERIVED, CHANGE_INDEXED, Encoded, INSERT_INDEXED, PUT_DERIVED, RENEW_INDEXED, Rows,
    Table, Values,
};
use crate::records::Acceptance;

/// Events written by one statement.
pub(super) const TOGETHER: usize = 64;
/// Columns of an event's row.
const COLUMNS: usize = 13;

const EVENTS: &str = "events (n, tenant, id, kind, object, time, accepted_at, fingerprint,
    deliveries, crc, data, old, trace) VALUES ";
const OR_KEEP_EVENT: &str = " ON CONFLICT (n) DO UPDATE SET odd = odd
    WHERE tenant = excluded.tenant AND id = excluded.id AND odd IS NULL";
const INSERT_INDEXED_EVENT: &str = "INSERT INTO events (n, odd, tenant, id, kind, object, time,
        accepted_at, fingerprint, deliveries, crc, data, old, trace)
    VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13) ON CONFLICT DO NOTHING";

/// The SQL placeholders of this many rows.
fn places(rows: usize) -> String {
    let mut sql = String::new();
    for row in 0..rows {
        for column in 1..=COLUMNS {
            let before = match (row, column) {
                (0, 1) => "(",
                (_, 1) => ", (",
                (_, _) => ", ",
            };
            // Writing to a string never fails.
            write!(sql, "{before}?{}", row * COLUMNS + column).ok();
        }
        sql.push(')');
    }
    sql
}

static ONE_EVENT: LazyLock<String> =
    LazyLock::new(|| format!("INSERT INTO {EVENTS} {} {OR_KEEP_EVENT}", places(1)));
static SOME_EVENTS: LazyLock<String> =
    LazyLock::new(|| format!("INSERT OR IGNORE INTO {EVENTS} {}", places(TOGETHER)));
/// Binds the values of the n-th row of a statement.
fn bind(
    statement: &mut CachedStatement<'_>,
    nth: usize,
    values: &[&dyn ToSql],
) -> rusqlite::Result<()> {
    for (parameter, value) in (nth * COLUMNS + 1..).zip(values) {
        statement.raw_bind_parameter(parameter, value)?;
    }
    Ok(())
}

/// An event, with the numbers that its row needs.
pub(super) struct EventRow<'r> {
    pub(super) derived: Option<i64>,
    /// The event's index among the events of the day.
    pub(super) place: usize,
    pub(super) tenant: i64,
    pub(super) kind: i64,
    pub(super) acceptance: &'r Acceptance,
}

/// The statements that write events.
pub(super) struct EventRows<'w> {
    transaction: &'w Transaction<'w>,
    day: Day,
    some: CachedStatement<'w>,
    one: CachedStatement<'w>,
    values: EventValues,
}

/// The encoded values of an event's row.
#[derive(Default)]
struct EventValues {
    scratch: Encoder,
    owed: Vec<u8>,
}

impl EventValues {
    fn bind(
        &mut self,
        statement: &mut CachedStatement<'_>,
        nth: usize,
        n: i64,
        row: &EventRow<'_>,
    ) -> rusqlite::Result<()> {
        let EventRow { tenant, kind, acceptance, .. } = row;
        let (event, at) = (&acceptance.event, acceptance.accepted_at);
        let fingerprint = &acceptance.fingerprint;
        self.owed.clear();
        for delivery in &acceptance.deliveries {
            self.owed.extend_from_slice(delivery.id.as_bytes());
        }
        let mark = &acceptance.mark;
        let crc = codec::event_sum(&mut self.scratch, (event, mark), at, fingerprint, &self.owed);
        let made = row_numbers::made(event.id.as_str());
        let values: [&dyn ToSql; COLUMNS] = [
            &n,
            tenant,
            &stored_id(event.id.as_str(), made.as_ref()),
            kind,
            &event.object.as_ref().map(|object| object.as_str()),
            &event.time.as_unix_ms(),
            &at.as_unix_ms(),
            &fingerprint.as_slice(),
            &self.owed.as_slice(),
            &crc,
            &event.data.as_bytes().as_ref(),
            &event.old.as_ref().map(|old| old.as_bytes().as_ref()),
            &codec::noted(event.trace, mark),
        ];
        bind(statement, nth, &values)
    }
}

/// An identifier as it is stored: as bytes if Postrider made it, else as text.
fn stored_id<'i>(id: &'i str, made: Option<&'i [u8; 16]>) -> ToSqlOutput<'i> {
    ToSqlOutput::Borrowed(match made {
        Some(bytes) => ValueRef::Blob(bytes),
        None => ValueRef::Text(id.as_bytes()),
    })
}

impl<'w> EventRows<'w> {
    pub(super) fn new(transaction: &'w Transaction<'w>, day: Day) -> rusqlite::Result<Self> {
        Ok(EventRows {
            transaction,
            day,
            some: transaction.prepare_cached(&SOME_EVENTS)?,
            one: transaction.prepare_cached(&ONE_EVENT)?,
            values: EventValues::default(),
        })
    }

    /// Writes all rows in one statement; `false` if that is not possible or a row was skipped: then the
    /// caller writes each row alone.
    pub(super) fn insert_together(&mut self, rows: &[EventRow<'_>]) -> rusqlite::Result<bool> {
        if rows.len() != TOGETHER || rows.iter().any(|row| row.derived.is_none()) {
            return Ok(false);
        }
        for (nth, row) in rows.iter().enumerate() {
            self.values.bind(&mut self.some, nth, row.derived.unwrap_or_default(), row)?;
        }
        Ok(self.some.raw_execute()? == TOGETHER)
    }

    /// Writes one event; returns its number. The hash of an indexed one is added to `indexed`.
    pub(super) fn insert(
        &mut self,
        row: &EventRow<'_>,
        indexed: &mut Vec<u64>,
    ) -> rusqlite::Result<i64> {
        let EventRows { transaction, day, one, values, .. } = self;
        let mut run = |statement: &mut CachedStatement<'_>, n: i64| {
            values.bind(statement, 0, n, row)?;
            Ok(statement.raw_execute()? > 0)
        };
        if let Some(n) = row.derived
            && run(one, n)?
        {
            return Ok(n);
        }
        let (event, at) = (&row.acceptance.event, row.acceptance.accepted_at);
        indexed.push(BloomFilters::hash(&event.tenant, &event.id));
        let hash = crc32fast::hash(event.id.as_str().as_bytes());
        let made = row_numbers::made(event.id.as_str());
        let known = || {
            let find = "SELECT n FROM events WHERE odd = 1 AND tenant = ?1 AND id = ?2";
            let id = stored_id(event.id.as_str(), made.as_ref());
            number_of(transaction, find, params![row.tenant, id])
        };
        let mut insert = transaction.prepare_cached(INSERT_INDEXED_EVENT)?;
        let place = |n| row_numbers::indexed(row.tenant, *day, at, hash, n);
        place_indexed((transaction, "events"), place, |n| run(&mut insert, n), known)
    }
}

/// A delivery, with the numbers that its row needs.
pub(super) struct DeliveryRow<'r> {
    pub(super) derived: Option<i64>,
    pub(super) tenant: i64,
    pub(super) route: i64,
    pub(super) event: Option<i64>,
    pub(super) folded: &'r Folded<'r>,
}

/// The statements that write deliveries.
pub(super) struct DeliveryRows<'w> {
    transaction: &'w Transaction<'w>,
    day: Day,
    put: CachedStatement<'w>,
    change: CachedStatement<'w>,
    encoded: Encoded,
}

impl<'w> DeliveryRows<'w> {
    pub(super) fn new(transaction: &'w Transaction<'w>, day: Day) -> rusqlite::Result<Self> {
        Ok(DeliveryRows {
            transaction,
            day,
            put: transaction.prepare_cached(&PUT_DERIVED)?,
            change: transaction.prepare_cached(&CHANGE_DERIVED)?,
            encoded: Encoded::default(),
        })
    }

    /// Changes an existing row; `false` where there is none.
    pub(super) fn change(
        &mut self,
        derived: Option<i64>,
        folded: &Folded<'_>,
    ) -> rusqlite::Result<bool> {
        self.encoded.encode(folded.delivery, folded.first);
        let rows = Rows::default();
        let values = Values { delivery: folded.delivery, encoded: &self.encoded, rows };
        if derived.is_some() && values.change(&mut self.change, derived)? {
            return Ok(true);
        }
        let mut indexed = self.transaction.prepare_cached(&CHANGE_INDEXED)?;
        values.change(&mut indexed, None)
    }

    /// Writes a new row.
    pub(super) fn insert(&mut self, row: &DeliveryRow<'_>) -> rusqlite::Result<()> {
        let DeliveryRows { transaction, day, put, encoded, .. } = self;
        let delivery = row.folded.delivery;
        encoded.encode(delivery, row.folded.first);
        let encoded = &*encoded;
        let values = |number| {
            let rows = Rows { number, route: row.route, event: row.event };
            Values { delivery, encoded, rows }
        };
        if let Some(number) = row.derived
            && values(number).put(put, Table::Day)?
        {
            return Ok(());
        }
        let mut insert = transaction.prepare_cached(&INSERT_INDEXED)?;
        let mut renew = transaction.prepare_cached(&RENEW_INDEXED)?;
        let hash = crc32fast::hash(delivery.id.as_bytes());
        let place = |n| row_numbers::indexed(row.tenant, *day, delivery.created_at, hash, n);
        let run = |number| values(number).put(&mut insert, Table::Day);
        // The row exists already: set it to the current state.
        let known = || Ok(values(0).change(&mut renew, None)?.then_some(0));
        place_indexed((transaction, "deliveries"), place, run, known).map(drop)
    }
}

fn number_of(
    transaction: &Transaction<'_>,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Option<i64>> {
    transaction.prepare_cached(sql)?.query_row(values, |row| row.get(0)).optional()
}

/// Finds a free number for an indexed row that has none yet: in the millisecond of its acceptance,
/// or else after it.
fn place_indexed(
    (transaction, table): (&Transaction<'_>, &str),
    place: impl Fn(i64) -> i64,
    mut insert: impl FnMut(i64) -> rusqlite::Result<bool>,
    known: impl FnOnce() -> rusqlite::Result<Option<i64>>,
) -> rusqlite::Result<i64> {
    let first = place(0);
    if insert(first)? {
        return Ok(first);
    }
    if let Some(known) = known()? {
        return Ok(known);
    }
    for number in (1..row_numbers::TRIES).map(place) {
        if insert(number)? {
            return Ok(number);
        }
    }
    // The last of the consecutive numbers that are taken.
    let last = format!(
        "SELECT n FROM {table} AS r WHERE n >= ?1
            AND NOT EXISTS (SELECT 1 FROM {table} WHERE n = r.n + 1) ORDER BY n LIMIT 1"
    );
    let last = number_of(transaction, &last, [first])?;
    let number = last.map_or(first, |last| last.saturating_add(1));
    if insert(number)? {
        return Ok(number);
    }
    Err(rusqlite::Error::QueryReturnedNoRows)
}
