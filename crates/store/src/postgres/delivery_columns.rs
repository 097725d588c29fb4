//! The columns of a delivery, in one list: all statements that read or write a delivery are built
//! from it, and so is the mapping from and to rows.
//!
//! A new column is a line of the list, a field in [`delivery`] and a migration. Unfinished
//! deliveries are in `deliveries_open`, ended ones in `deliveries_done`.

use std::sync::LazyLock;

use postrider_domain::delivery::{CancelReason, DeadReason, Delivery, DeliveryState, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, SubscriptionId};
use postrider_domain::job_outcomes::ByJob;
use postrider_domain::retry::{ScheduleClock, Slot};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::error::corrupt;
use super::rows::{get, id, ms, number, parse, shard, time, time_opt, u32_of, uuid};
use crate::error::StoreError;

/// Which table has a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Both,
    Open,
    /// Only in `deliveries_open`, for its indexes; the value is derived from other columns.
    OpenIndex,
    Done,
}

/// Whether a column changes after its row was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Fixed,
    Changes,
}

struct Column {
    name: &'static str,
    sql_type: &'static str,
    of: Of,
    life: Life,
}

/// A value for each delivery, for one column.
type Array<'a> = &'a (dyn ToSql + Sync);

/// Defines the list, the struct with one array per column, and the function that adds a delivery to
/// it.
macro_rules! columns {
    (|$delivery:ident, $slot:ident| $($of:ident $life:ident $name:ident: $sql:literal, $type:ty = $value:expr;)+) => {
        const COLUMNS: &[Column] = &[
            $(Column {
                name: stringify!($name),
                sql_type: $sql,
                of: Of::$of,
                life: Life::$life,
            },)+
        ];

        /// Deliveries as one array per column.
        #[derive(Default)]
        pub(super) struct DeliveryColumns<'a> {
            $($name: Vec<$type>,)+
        }

        impl<'a> DeliveryColumns<'a> {
            pub(super) fn push(&mut self, $delivery: &'a Delivery) {
                let $slot = slot_of(&$delivery.state);
                $(self.$name.push($value);)+
            }

            /// The arrays in the order of the list.
            fn arrays(&self) -> Vec<Array<'_>> {
                vec![$(&self.$name as Array<'_>),+]
            }
        }
    };
}

columns! {
    |delivery, slot|
    Both Fixed id: "uuid", Uuid = uuid(delivery.id.as_bytes());
    Both Fixed tenant: "text", &'a str = delivery.tenant.as_str();
    Both Fixed event: "text", &'a str = delivery.event.as_str();
    Both Fixed subscription: "uuid", Uuid = uuid(delivery.subscription.as_bytes());
    Both Fixed destination: "uuid", Uuid = uuid(delivery.destination.as_bytes());
    Both Fixed kind: "text", &'a str = delivery.kind.as_str();
    Both Fixed created_at: "bigint", i64 = delivery.created_at.as_unix_ms();
    Both Changes attempts: "integer", i32 = number(delivery.attempts);
    Both Changes last_attempt_at: "bigint", Option<i64> = ms(delivery.last_attempt_at);
    Both Changes state: "smallint", i16 = state_number(delivery.state.name());
    Open Changes slot: "bigint", Option<i64> = slot.map(|slot| i64::from(slot.number));
    Open Changes due_at: "bigint", Option<i64> = ms(slot.map(|slot| slot.due_at));
    Open Changes anchor_at: "bigint", Option<i64> = ms(slot.map(|slot| slot.clock.anchor_at));
    Open Changes previous_at: "bigint", Option<i64> = ms(slot.map(|slot| slot.clock.previous_at));
    Open Changes ahead_of: "bigint", Option<i64> = ms(slot.and_then(|slot| slot.ahead_of));
    Open Changes by_job: "bytea", Option<Vec<u8>> = slot.and_then(|slot| slot.by_job).map(job_bytes);
    OpenIndex Fixed shard: "smallint", i16 = shard(&delivery.destination);
    Done Changes finished_at: "bigint", Option<i64> = ms(delivery.finished_at());
    Done Changes reason: "smallint", Option<i16> = reason_number(&delivery.state);
}

/// Reads a delivery, of the columns [`OPEN`] or [`DONE`].
pub(super) fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    Ok(Delivery {
        id: DeliveryId::from_bytes(id(row, "id")?),
        tenant: parse(row, "tenant")?,
        event: parse(row, "event")?,
        subscription: SubscriptionId::from_bytes(id(row, "subscription")?),
        destination: DestinationId::from_bytes(id(row, "destination")?),
        kind: parse(row, "kind")?,
        created_at: time(row, "created_at")?,
        state: state(row)?,
        attempts: u32_of(row, "attempts")?,
        last_attempt_at: time_opt(row, "last_attempt_at")?,
    })
}

pub(super) fn deliveries(rows: &[Row]) -> Result<Vec<Delivery>, StoreError> {
    rows.iter().map(delivery).collect()
}

impl Column {
    fn is_open(&self) -> bool {
        matches!(self.of, Of::Both | Of::Open | Of::OpenIndex)
    }

    fn is_done(&self) -> bool {
        matches!(self.of, Of::Both | Of::Done)
    }
}

/// The columns of a table, renamed to what [`delivery`] reads.
fn read_list(is_here: fn(&Column) -> bool) -> String {
    let read = COLUMNS.iter().filter(|column| column.of != Of::OpenIndex);
    let each = read.map(|column| {
        let Column { name, sql_type, .. } = column;
        if is_here(column) { (*name).to_owned() } else { format!("NULL::{sql_type} AS {name}") }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The names of a table's columns.
fn names(is_here: fn(&Column) -> bool) -> String {
    let names: Vec<&str> = COLUMNS.iter().filter(|c| is_here(c)).map(|c| c.name).collect();
    names.join(", ")
}

/// The parameters `$1`, `$2`, … as one row per delivery.
fn unnested(is_here: fn(&Column) -> bool) -> String {
    let here = (1..).zip(COLUMNS.iter().filter(|column| is_here(column)));
    let each: Vec<String> =
        here.map(|(n, column)| format!("${n}::{}[]", column.sql_type)).collect();
    format!("unnest({})", each.join(", "))
}

/// The parameter (`$n`) of a column.
fn parameter(name: &str, is_here: fn(&Column) -> bool) -> String {
    let mut here = COLUMNS.iter().filter(|column| is_here(column));
    let place = here.position(|column| column.name == name).unwrap_or_default();
    format!("${}", place + 1)
}

fn insert(table: &str, is_here: fn(&Column) -> bool) -> String {
    let (names, rows) = (names(is_here), unnested(is_here));
    format!("INSERT INTO postrider.{table} ({names}) SELECT * FROM {rows}")
}

/// Updates rows by identifier. For a partitioned table also by the time of acceptance, which tells
/// the partition.
fn update(table: &str, is_here: fn(&Column) -> bool, is_partitioned: bool) -> String {
    let changing = COLUMNS.iter().filter(|c| is_here(c) && c.life == Life::Changes);
    let set: Vec<String> = changing.map(|c| format!("{0} = n.{0}", c.name)).collect();
    let (set, rows, names) = (set.join(", "), unnested(is_here), names(is_here));
    let ids = parameter("id", is_here);
    let mut sql = format!(
        "UPDATE postrider.{table} AS d SET {set} FROM {rows} AS n ({names}) \
         WHERE d.id = n.id AND d.id = ANY({ids})"
    );
    if is_partitioned {
        let days = parameter("created_at", is_here);
        sql.push_str(&format!(" AND d.created_at = ANY({days})"));
    }
    sql
}

/// The columns of `deliveries_open` that [`delivery`] reads.
pub(super) static OPEN: LazyLock<String> = LazyLock::new(|| read_list(Column::is_open));
/// The columns of `deliveries_done` that [`delivery`] reads.
pub(super) static DONE: LazyLock<String> = LazyLock::new(|| read_list(Column::is_done));

/// Writes deliveries that have not ended.
pub(super) static INSERT_OPEN: LazyLock<String> =
    LazyLock::new(|| insert("deliveries_open", Column::is_open));
/// Writes deliveries that have ended.
pub(super) static INSERT_DONE: LazyLock<String> =
    LazyLock::new(|| insert("deliveries_done", Column::is_done));
/// Changes unfinished deliveries that stay unfinished.
pub(super) static UPDATE_OPEN: LazyLock<String> =
    LazyLock::new(|| update("deliveries_open", Column::is_open, false));
/// Changes deliveries that have ended.
pub(super) static UPDATE_DONE: LazyLock<String> =
    LazyLock::new(|| update("deliveries_done", Column::is_done, true));

/// Removes deliveries from `deliveries_open`.
pub(super) const DELETE_OPEN: &str =
    "DELETE FROM postrider.deliveries_open WHERE id = ANY($1::uuid[])";
/// Removes deliveries from `deliveries_done`.
pub(super) const DELETE_DONE: &str = "DELETE FROM postrider.deliveries_done AS d \
     WHERE d.id = ANY($1::uuid[]) AND d.created_at = ANY($2::bigint[])";

impl DeliveryColumns<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    fn of(&self, is_here: fn(&Column) -> bool) -> Vec<Array<'_>> {
        let all = COLUMNS.iter().zip(self.arrays());
        all.filter(|(column, _)| is_here(column)).map(|(_, array)| array).collect()
    }

    /// The parameters of [`INSERT_OPEN`] and [`UPDATE_OPEN`].
    pub(super) fn open(&self) -> Vec<Array<'_>> {
        self.of(Column::is_open)
    }

    /// The parameters of [`INSERT_DONE`] and [`UPDATE_DONE`].
    pub(super) fn done(&self) -> Vec<Array<'_>> {
        self.of(Column::is_done)
    }

    /// The parameters of [`DELETE_OPEN`].
    pub(super) fn ids(&self) -> Vec<Array<'_>> {
        vec![&self.id]
    }

    /// The parameters of [`DELETE_DONE`].
    pub(super) fn ids_and_days(&self) -> Vec<Array<'_>> {
        vec![&self.id, &self.created_at]
    }
}

/// The number by which a state is stored.
pub(super) const fn state_number(state: StateName) -> i16 {
    match state {
        StateName::Queued => 0,
        StateName::Waiting => 1,
        StateName::Delivered => 2,
        StateName::Dead => 3,
        StateName::Cancelled => 4,
        StateName::InFlight => 5,
    }
}

fn slot_of(state: &DeliveryState) -> Option<Slot> {
    match *state {
        DeliveryState::Waiting(slot) => Some(slot),
        DeliveryState::Queued
        | DeliveryState::Delivered { .. }
        | DeliveryState::Dead { .. }
        | DeliveryState::Cancelled { .. } => None,
    }
}

/// The job that sent a delivery, as its column holds it.
fn job_bytes(by_job: ByJob) -> Vec<u8> {
    let ByJob { job, has_failed } = by_job;
    [job.as_bytes().as_slice(), &[u8::from(has_failed)]].concat()
}

/// Reads the job that sent a delivery, of the column `by_job`.
pub(super) fn by_job(row: &Row) -> Result<Option<ByJob>, StoreError> {
    let bytes: Option<&[u8]> = get(row, "by_job")?;
    let Some(bytes) = bytes else { return Ok(None) };
    let unknown = || corrupt("deliveries_open", "by_job");
    let (failed, id) = bytes.split_last().ok_or_else(unknown)?;
    let id: [u8; 16] = id.try_into().map_err(|_| unknown())?;
    Ok(Some(ByJob { job: ReplayId::from_bytes(id), has_failed: *failed != 0 }))
}

fn state(row: &Row) -> Result<DeliveryState, StoreError> {
    let at = || time(row, "finished_at");
    let reason = || get::<i16>(row, "reason");
    match get::<i16>(row, "state")? {
        0 => Ok(DeliveryState::Queued),
        1 => {
            let clock = ScheduleClock {
                anchor_at: time(row, "anchor_at")?,
                previous_at: time(row, "previous_at")?,
            };
            let number = u32::try_from(get::<i64>(row, "slot")?);
            let number = number.map_err(|e| corrupt("deliveries_open", e))?;
            let due_at = time(row, "due_at")?;
            // A node of the previous version does not clear this column when it moves a delivery to
            // its next slot.
            let ahead_of = time_opt(row, "ahead_of")?.filter(|at| *at > due_at);
            let by_job = by_job(row)?;
            Ok(DeliveryState::Waiting(Slot { number, due_at, clock, ahead_of, by_job }))
        }
        2 => Ok(DeliveryState::Delivered { at: at()? }),
        3 => {
            let reason = match reason()? {
                0 => DeadReason::Exhausted,
                1 => DeadReason::NotAdmitted,
                other => return Err(corrupt("deliveries_done", format!("reason {other}"))),
            };
            Ok(DeliveryState::Dead { at: at()?, reason })
        }
        4 => {
            let reason = match reason()? {
                0 => CancelReason::Asked,
                1 => CancelReason::SubscriptionDeleted,
                other => return Err(corrupt("deliveries_done", format!("reason {other}"))),
            };
            Ok(DeliveryState::Cancelled { at: at()?, reason })
        }
        other => Err(corrupt("deliveries", format!("state {other}"))),
    }
}

fn reason_number(state: &DeliveryState) -> Option<i16> {
    match state {
        DeliveryState::Queued | DeliveryState::Waiting(_) | DeliveryState::Delivered { .. } => None,
        DeliveryState::Dead { reason: DeadReason::Exhausted, .. } => Some(0),
        DeliveryState::Dead { reason: DeadReason::NotAdmitted, .. } => Some(1),
        DeliveryState::Cancelled { reason: CancelReason::Asked, .. } => Some(0),
        DeliveryState::Cancelled { reason: CancelReason::SubscriptionDeleted, .. } => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_number_their_parameters_in_the_order_of_the_list() {
        let open = "id, tenant, event, subscription, destination, kind, created_at, attempts, \
            last_attempt_at, state, slot, due_at, anchor_at, previous_at, ahead_of, by_job";
        assert_eq!(*OPEN, format!("{open}, NULL::bigint AS finished_at, NULL::smallint AS reason"));
        assert!(INSERT_OPEN.starts_with(&format!(
            "INSERT INTO postrider.deliveries_open ({open}, shard) SELECT * FROM unnest($1::uuid[], "
        )));
        assert!(INSERT_OPEN.ends_with("$15::bigint[], $16::bytea[], $17::smallint[])"));
        assert!(UPDATE_OPEN.contains("SET attempts = n.attempts, last_attempt_at ="));
        assert!(!UPDATE_OPEN.contains("shard ="), "what is fixed is not updated");
        assert!(UPDATE_DONE.ends_with("d.id = ANY($1) AND d.created_at = ANY($7)"));
        let columns = DeliveryColumns::default();
        assert_eq!((columns.open().len(), columns.done().len()), (17, 12));
    }
}
