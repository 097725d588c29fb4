//! A delivery in the files of the embedded store: its columns in SQLite and its bytes in the journal.
//!
//! Every statement that reads or writes a delivery is made of [`COLUMNS`], and so is the mapping from
//! and to rows. A new column is a line of that list, a field in [`delivery`], a field of the bytes and
//! a step in `schema.rs`.
//!
//! A delivery has a row in its day's file from acceptance on. While it has not ended, it has another
//! one in a lane of `main.db`.

use std::fmt::{self, Display};
use std::ops::Deref;
use std::sync::LazyLock;

use postrider_domain::attempt::Attempt;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::EventType;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Statement};

use super::Reading;
use crate::embedded::files::codec::{self, Decoder, Encoder, Malformed};
use crate::error::StoreError;

/// The tables that have rows of deliveries; the order of the arrays in [`Column`].
#[derive(Debug, Clone, Copy)]
pub(in crate::embedded) enum Table {
    /// `deliveries` of a day's file.
    Day = 0,
    /// `fresh` of `main.db`: the first lane.
    First = 1,
    /// `waiting` of `main.db`: the retry lane.
    Retry = 2,
}

/// Whether a column changes after its row was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// The table has no such column.
    Absent,
    Fixed,
    Changes,
    /// Keeps the first value that is not NULL.
    SetOnce,
}
use Life::{Absent, Changes, Fixed, SetOnce};

struct Column {
    name: &'static str,
    life: [Life; 3],
    /// The SQL that selects it; empty where [`delivery`] does not need it.
    read: [&'static str; 3],
    value: for<'v> fn(&'v Values<'_>) -> ToSqlOutput<'v>,
}

const NOT_READ: [&str; 3] = [""; 3];

/// The columns. The value of the first one identifies a damaged row in error messages.
const COLUMNS: &[Column] = &[
    Column {
        name: "id",
        life: [Fixed; 3],
        read: ["d.id", "id", "id"],
        value: |v| blob(v.delivery.id.as_bytes()),
    },
    Column {
        name: "tenant",
        life: [Absent, Fixed, Fixed],
        read: ["t.name", "tenant", "tenant"],
        value: |v| text(v.delivery.tenant.as_str()),
    },
    Column {
        name: "event",
        life: [Absent, Fixed, Fixed],
        read: ["coalesce(d.event_id, e.id)", "event", "event"],
        value: |v| text(v.delivery.event.as_str()),
    },
    Column {
        name: "kind",
        life: [Absent, Fixed, Fixed],
        read: ["k.name", "kind", "kind"],
        value: |v| text(v.delivery.kind.as_str()),
    },
    Column {
        name: "subscription",
        life: [Absent, Fixed, Fixed],
        read: ["r.subscription", "subscription", "subscription"],
        value: |v| blob(v.delivery.subscription.as_bytes()),
    },
    Column {
        name: "destination",
        life: [Absent, Fixed, Fixed],
        read: ["r.destination", "destination", "destination"],
        value: |v| blob(v.delivery.destination.as_bytes()),
    },
    Column {
        name: "created_at",
        life: [Fixed; 3],
        read: ["d.created_at", "created_at", "created_at"],
        value: |v| time(Some(v.delivery.created_at)),
    },
    Column {
        name: "state",
        life: [Changes, Absent, Absent],
        read: ["d.state", "0", "1"],
        value: |v| integer(codec::state_number(v.delivery.state.name()).into()),
    },
    // When the delivery falls due, or when it ended.
    Column {
        name: "at",
        life: [Changes, Absent, Absent],
        read: ["d.at", "created_at", "due_at"],
        value: |v| time(due_or_ended_at(v.delivery)),
    },
    Column {
        name: "due_at",
        life: [Absent, Absent, Changes],
        read: NOT_READ,
        value: |v| time(v.delivery.next_attempt_at()),
    },
    Column {
        name: "attempts",
        life: [Changes; 3],
        read: ["d.attempts", "attempts", "attempts"],
        value: |v| integer(v.delivery.attempts.into()),
    },
    Column {
        name: "last_attempt_at",
        life: [Changes; 3],
        read: ["d.last_attempt_at", "last_attempt_at", "last_attempt_at"],
        value: |v| time(v.delivery.last_attempt_at),
    },
    Column {
        name: "detail",
        life: [Changes; 3],
        read: ["d.detail", "detail", "detail"],
        value: |v| blob(v.encoded.detail.as_slice()),
    },
    Column {
        name: "crc",
        life: [Changes; 3],
        read: ["d.crc", "crc", "crc"],
        value: |v| integer(v.encoded.crc.into()),
    },
    // The row's number, see row_numbers.rs.
    Column {
        name: "n",
        life: [Fixed, Absent, Absent],
        read: ["d.n", "0", "0"],
        value: |v| integer(v.rows.number),
    },
    Column {
        name: "first",
        life: [SetOnce, Absent, Absent],
        read: NOT_READ,
        value: |v| match v.encoded.first() {
            Some(first) => blob(first),
            None => null(),
        },
    },
    Column {
        name: "route",
        life: [Fixed, Absent, Absent],
        read: NOT_READ,
        value: |v| integer(v.rows.route),
    },
    // The number of the event's row; the identifier is stored only where there is no number.
    Column {
        name: "event",
        life: [Fixed, Absent, Absent],
        read: NOT_READ,
        value: |v| v.rows.event.map_or_else(null, integer),
    },
    Column {
        name: "event_id",
        life: [Fixed, Absent, Absent],
        read: NOT_READ,
        value: |v| match v.rows.event {
            Some(_) => null(),
            None => text(v.delivery.event.as_str()),
        },
    },
];

/// The joins to `deliveries AS d` of a day's file; their order matters.
pub(in crate::embedded) const DELIVERY_JOINS: &str = "CROSS JOIN routes AS r ON r.n = d.route
     CROSS JOIN names AS t ON t.n = r.tenant CROSS JOIN names AS k ON k.n = r.kind
     LEFT JOIN events AS e ON e.n = d.event";
/// The index of the row's number among the selected columns.
pub(in crate::embedded) const DELIVERY_NUMBER: usize = at("n");

/// Reads a delivery from the columns [`DELIVERY_COLUMNS`], [`FRESH`] or [`WAITING`].
pub(in crate::embedded) fn delivery(reading: &Reading<'_>) -> Result<Delivery, StoreError> {
    let detail = reading.bytes(const { at("detail") })?;
    let delivery = Delivery {
        id: reading.id(const { at("id") }, DeliveryId::from_bytes)?,
        tenant: reading.parse(const { at("tenant") })?,
        event: reading.event_id(const { at("event") })?,
        kind: reading.parse(const { at("kind") })?,
        subscription: reading.id(const { at("subscription") }, SubscriptionId::from_bytes)?,
        destination: reading.id(const { at("destination") }, DestinationId::from_bytes)?,
        created_at: reading.time(const { at("created_at") })?,
        state: reading.decoded(codec::get_state(&mut Decoder::new(detail)))?,
        attempts: reading.get(const { at("attempts") })?,
        last_attempt_at: reading.time_or_none(const { at("last_attempt_at") })?,
    };
    let sum = delivery_sum(&mut Encoder::default(), &delivery);
    reading.check(const { at("crc") }, sum)?;
    // Lists select by these columns, so they must agree with the encoded state.
    let state: u8 = reading.get(const { at("state") })?;
    let listed_at = reading.time_or_none(const { at("at") })?;
    if state != codec::state_number(delivery.state.name())
        || listed_at != due_or_ended_at(&delivery)
    {
        return Err(reading.damaged("its columns contradict each other"));
    }
    Ok(delivery)
}

/// Encodes a delivery without its tenant, event and type, which the caller encodes once for all
/// deliveries of an event.
pub(in crate::embedded) fn put_delivery_body(out: &mut Encoder, delivery: &Delivery) {
    out.fixed(delivery.id.as_bytes());
    out.fixed(delivery.subscription.as_bytes());
    out.fixed(delivery.destination.as_bytes());
    out.time(delivery.created_at);
    codec::put_state(out, &delivery.state);
    out.unsigned(u64::from(delivery.attempts));
    out.option(delivery.last_attempt_at, Encoder::time);
}

pub(in crate::embedded) fn get_delivery_body(
    from: &mut Decoder,
    tenant: TenantId,
    event: EventId,
    kind: EventType,
) -> Result<Delivery, Malformed> {
    Ok(Delivery {
        id: DeliveryId::from_bytes(from.fixed()?),
        tenant,
        event,
        kind,
        subscription: SubscriptionId::from_bytes(from.fixed()?),
        destination: DestinationId::from_bytes(from.fixed()?),
        created_at: from.time()?,
        state: codec::get_state(from)?,
        attempts: from.number()?,
        last_attempt_at: from.option(Decoder::time)?,
    })
}

pub(in crate::embedded) fn put_delivery(out: &mut Encoder, delivery: &Delivery) {
    out.text(delivery.tenant.as_str());
    out.text(delivery.event.as_str());
    out.text(delivery.kind.as_str());
    put_delivery_body(out, delivery);
}

pub(in crate::embedded) fn get_delivery(from: &mut Decoder) -> Result<Delivery, Malformed> {
    let (tenant, event, kind) = (from.parse()?, from.parse()?, from.parse()?);
    get_delivery_body(from, tenant, event, kind)
}

/// The checksum of a delivery's row, computed from the whole delivery and not from the row's bytes.
pub(in crate::embedded) fn delivery_sum(scratch: &mut Encoder, delivery: &Delivery) -> u32 {
    scratch.clear();
    put_delivery(scratch, delivery);
    crc32fast::hash(scratch.as_slice())
}

fn due_or_ended_at(delivery: &Delivery) -> Option<Timestamp> {
    delivery.finished_at().or(delivery.next_attempt_at())
}

/// The index of a column among the selected ones; it is the same for all tables.
const fn at(name: &str) -> usize {
    let (mut n, mut place) = (0, 0);
    while n < COLUMNS.len() {
        if !COLUMNS[n].read[0].is_empty() {
            if is_same(COLUMNS[n].name, name) {
                return place;
            }
            place += 1;
        }
        n += 1;
    }
    panic!("there is no such column")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut n = 0;
    while n < one.len() && n < other.len() && one[n] == other[n] {
        n += 1;
    }
    n == one.len() && n == other.len()
}

fn integer(number: i64) -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(Value::Integer(number))
}

fn null() -> ToSqlOutput<'static> {
    ToSqlOutput::Owned(Value::Null)
}

fn time(at: Option<Timestamp>) -> ToSqlOutput<'static> {
    at.map_or_else(null, |at| integer(at.as_unix_ms()))
}

fn text(text: &str) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
}

fn blob(bytes: &[u8]) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Blob(bytes))
}

/// The encoded values of a delivery's row. The buffers are reused for the next delivery.
#[derive(Default)]
pub(in crate::embedded) struct Encoded {
    scratch: Encoder,
    detail: Encoder,
    first: Encoder,
    has_first: bool,
    crc: u32,
}

impl Encoded {
    /// Encodes a delivery, and its first attempt if that is given.
    pub(in crate::embedded) fn encode(&mut self, delivery: &Delivery, first: Option<&Attempt>) {
        self.crc = delivery_sum(&mut self.scratch, delivery);
        self.detail.clear();
        codec::put_state(&mut self.detail, &delivery.state);
        self.first.clear();
        self.has_first = first.is_some();
        if let Some(attempt) = first {
            codec::put_first_attempt(&mut self.first, delivery.id, attempt);
        }
    }

    fn first(&self) -> Option<&[u8]> {
        self.has_first.then(|| self.first.as_slice())
    }
}

/// The row numbers that a row of a day's file has and refers to. A lane needs none.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::embedded) struct Rows {
    pub(in crate::embedded) number: i64,
    pub(in crate::embedded) route: i64,
    /// The number of the event's row, if it is known.
    pub(in crate::embedded) event: Option<i64>,
}

/// The values of a row.
pub(in crate::embedded) struct Values<'r> {
    pub(in crate::embedded) delivery: &'r Delivery,
    /// The same delivery, encoded.
    pub(in crate::embedded) encoded: &'r Encoded,
    pub(in crate::embedded) rows: Rows,
}

impl Values<'_> {
    /// Runs a statement that writes a row of a table; returns whether a row was inserted or
    /// changed.
    pub(in crate::embedded) fn put(
        &self,
        statement: &mut CachedStatement<'_>,
        table: Table,
    ) -> rusqlite::Result<bool> {
        self.bind(statement, columns_of(table))?;
        Ok(statement.raw_execute()? > 0)
    }

    /// Runs a statement that changes a row of a day's file: the row with this number, or the
    /// indexed row with this identifier. Returns whether the row exists.
    pub(in crate::embedded) fn change(
        &self,
        statement: &mut CachedStatement<'_>,
        number: Option<i64>,
    ) -> rusqlite::Result<bool> {
        let next = self.bind(statement, changing(Table::Day))?;
        statement.raw_bind_parameter(next, self.delivery.id.as_bytes().as_slice())?;
        if let Some(number) = number {
            statement.raw_bind_parameter(next + 1, number)?;
        }
        Ok(statement.raw_execute()? > 0)
    }

    /// Binds columns from the first parameter on; returns the index of the next parameter.
    fn bind(
        &self,
        statement: &mut Statement<'_>,
        columns: impl Iterator<Item = &'static Column>,
    ) -> rusqlite::Result<usize> {
        let mut parameter = 1;
        for column in columns {
            statement.raw_bind_parameter(parameter, (column.value)(self))?;
            parameter += 1;
        }
        Ok(parameter)
    }
}

fn columns_of(table: Table) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| column.life[table as usize] != Absent)
}

fn changing(table: Table) -> impl Iterator<Item = &'static Column> {
    let changes = move |life: Life| matches!(life, Changes | SetOnce);
    COLUMNS.iter().filter(move |column| changes(column.life[table as usize]))
}

/// A part of a statement, built at its first use.
pub(in crate::embedded) struct Sql(LazyLock<String>);

impl Deref for Sql {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Display for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// Joins the texts that a function makes of the columns.
fn join(
    columns: impl Iterator<Item = &'static Column>,
    each: impl Fn(usize, &Column) -> String,
) -> String {
    columns.enumerate().map(|(n, column)| each(n + 1, column)).collect::<Vec<_>>().join(", ")
}

fn selected(table: Table) -> String {
    let read = COLUMNS.iter().filter(|column| !column.read[table as usize].is_empty());
    join(read, |_, column| column.read[table as usize].to_owned())
}

fn insert(table: Table, name: &str, more: &str, more_values: &str) -> String {
    let names = join(columns_of(table), |_, column| column.name.to_owned());
    let values = join(columns_of(table), |n, _| format!("?{n}"));
    format!("INTO {name} ({names}{more}) VALUES ({values}{more_values})")
}

fn take_excluded(table: Table) -> String {
    join(changing(table), |_, column| format!("{0} = excluded.{0}", column.name))
}

/// An update of the row with a number, or of an indexed row.
fn update(keeps_first: bool, has_number: bool) -> String {
    let set = join(changing(Table::Day), |n, column| match column.life[Table::Day as usize] {
        SetOnce if keeps_first => format!("{0} = coalesce({0}, ?{n})", column.name),
        Absent | Fixed | Changes | SetOnce => format!("{} = ?{n}", column.name),
    });
    let id = changing(Table::Day).count() + 1;
    let which =
        if has_number { format!("n = ?{} AND odd IS NULL", id + 1) } else { "odd = 1".into() };
    format!("UPDATE deliveries SET {set} WHERE id = ?{id} AND {which}")
}

/// The columns that [`delivery`] reads, of `deliveries AS d` with the joins.
pub(in crate::embedded) static DELIVERY_COLUMNS: Sql = Sql(LazyLock::new(|| selected(Table::Day)));
/// Selects what [`delivery`] reads from the first lane.
pub(in crate::embedded) static FRESH: Sql =
    Sql(LazyLock::new(|| format!("SELECT {} FROM fresh", selected(Table::First))));
/// Selects what [`delivery`] reads from the retry lane.
pub(in crate::embedded) static WAITING: Sql =
    Sql(LazyLock::new(|| format!("SELECT {} FROM waiting", selected(Table::Retry))));

/// Puts a delivery into the first lane.
pub(in crate::embedded) static PUT_FRESH: Sql =
    Sql(LazyLock::new(|| format!("INSERT OR REPLACE {}", insert(Table::First, "fresh", "", ""))));
/// Puts a delivery into the retry lane.
pub(in crate::embedded) static PUT_WAITING: Sql = Sql(LazyLock::new(|| {
    let (insert, set) = (insert(Table::Retry, "waiting", "", ""), take_excluded(Table::Retry));
    format!("INSERT {insert} ON CONFLICT (id) DO UPDATE SET {set}")
}));

/// Writes a row whose number is derived; an existing row is set to the new values.
pub(in crate::embedded) static PUT_DERIVED: Sql = Sql(LazyLock::new(|| {
    let (insert, set) = (insert(Table::Day, "deliveries", "", ""), take_excluded(Table::Day));
    format!(
        "INSERT {insert} ON CONFLICT (n) DO UPDATE SET {set}
        WHERE id = excluded.id AND odd IS NULL"
    )
}));
/// Writes an indexed row, unless its number is taken or the row exists already.
pub(in crate::embedded) static INSERT_INDEXED: Sql = Sql(LazyLock::new(|| {
    format!("INSERT {} ON CONFLICT DO NOTHING", insert(Table::Day, "deliveries", ", odd", ", 1"))
}));
/// Changes a row whose number is derived.
pub(in crate::embedded) static CHANGE_DERIVED: Sql = Sql(LazyLock::new(|| update(true, true)));
/// Changes an indexed row.
pub(in crate::embedded) static CHANGE_INDEXED: Sql = Sql(LazyLock::new(|| update(true, false)));
/// Sets an indexed row that is written again to the new values.
pub(in crate::embedded) static RENEW_INDEXED: Sql = Sql(LazyLock::new(|| update(false, false)));
