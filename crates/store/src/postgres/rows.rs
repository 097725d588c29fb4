//! How events and attempts are written to rows and read back, and how columns become values.
//!
//! Batches are sent as one array per column. **A read returns exactly what was written**: any other
//! row is damage, and is reported as such.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{
    Answer, Attempt, BodyEnd, Ending, Failure, FailureClass, OwnFault, OwnFaultKind, RetryAfter,
    Timings, Turn,
};
use postrider_domain::catalogue::EventMark;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::DestinationId;
use postrider_domain::ledger::Ledger;
use postrider_domain::time::Timestamp;
use postrider_domain::trace::TraceContext;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql};
use uuid::Uuid;

use super::error::corrupt;
use crate::error::StoreError;
use crate::records::EventRecord;

pub(super) fn uuid(bytes: &[u8; 16]) -> Uuid {
    Uuid::from_bytes(*bytes)
}

pub(super) fn shard(destination: &DestinationId) -> i16 {
    i16::from(destination.shard().0)
}

pub(super) fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// Reads a ledger. A store does not know what is in flight.
pub(super) fn ledger(row: &Row) -> Result<Ledger, StoreError> {
    let n = |column| get(row, column).map(unsigned);
    Ok(Ledger {
        accepted: n("accepted")?,
        queued: n("queued")?,
        in_flight: 0,
        waiting: n("waiting")?,
        delivered: n("delivered")?,
        dead: n("dead")?,
        cancelled: n("cancelled")?,
    })
}

pub(super) fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// A number of attempts as its column's type. It never comes near the column's limit.
pub(super) fn number(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// A column of a row.
pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|e| corrupt(column, e))
}

pub(super) fn time(row: &Row, column: &str) -> Result<Timestamp, StoreError> {
    Ok(Timestamp::from_unix_ms(get(row, column)?))
}

pub(super) fn time_opt(row: &Row, column: &str) -> Result<Option<Timestamp>, StoreError> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_unix_ms))
}

pub(super) fn ms(at: Option<Timestamp>) -> Option<i64> {
    at.map(Timestamp::as_unix_ms)
}

pub(super) fn id(row: &Row, column: &str) -> Result<[u8; 16], StoreError> {
    Ok(get::<Uuid>(row, column)?.into_bytes())
}

/// Parses a text column.
pub(super) fn parse<T: FromStr>(row: &Row, column: &str) -> Result<T, StoreError> {
    let text: &str = get(row, column)?;
    text.parse().map_err(|_| corrupt(column, format!("cannot parse {text:?}")))
}

/// Parses a text column of JSON.
pub(super) fn json<T: for<'de> Deserialize<'de>>(row: &Row, column: &str) -> Result<T, StoreError> {
    serde_json::from_str(get(row, column)?).map_err(|e| corrupt(column, e))
}

pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|e| StoreError::Internal(e.to_string()))
}

pub(super) fn u32_of(row: &Row, column: &str) -> Result<u32, StoreError> {
    u32::try_from(get::<i32>(row, column)?).map_err(|e| corrupt(column, e))
}

fn trace(bytes: &[u8]) -> Result<TraceContext, StoreError> {
    let read = bytes.try_into().ok().and_then(TraceContext::from_bytes);
    read.ok_or_else(|| corrupt("events", "an unknown trace"))
}

/// Reads an event.
pub(super) fn event(row: &Row) -> Result<EventRecord, StoreError> {
    let raw = |bytes: &[u8]| RawJson::from_trusted(Bytes::copy_from_slice(bytes));
    let object = match get::<Option<&str>>(row, "object")? {
        Some(_) => Some(parse(row, "object")?),
        None => None,
    };
    let event = Event {
        id: parse(row, "id")?,
        tenant: parse(row, "tenant")?,
        kind: parse(row, "kind")?,
        object,
        data: raw(get(row, "data")?),
        old: get::<Option<&[u8]>>(row, "old")?.map(raw),
        time: time(row, "time")?,
        trace: get::<Option<&[u8]>>(row, "trace")?.map(trace).transpose()?,
    };
    let mark = match get::<Option<&str>>(row, "mark")? {
        Some(_) => json(row, "mark")?,
        None => EventMark::default(),
    };
    Ok(EventRecord {
        event: Arc::new(event),
        accepted_at: time(row, "accepted_at")?,
        deliveries: u32_of(row, "deliveries")?,
        mark,
    })
}

/// An attempt without its number, its start and the response's body, which have columns of their
/// own.
#[derive(Serialize, Deserialize)]
struct AttemptRecord {
    turn: Turn,
    timings: Timings,
    ending: EndingRecord,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EndingRecord {
    Answered { retry_after: Option<RetryRecord>, body_end: BodyEnd },
    Failed { class: FailureClass, detail: String },
    OwnFault { kind: OwnFaultKind, detail: String },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RetryRecord {
    Delay(Duration),
    At(i64),
}

/// Attempts as one array per column.
#[derive(Default)]
pub(super) struct AttemptColumns<'a> {
    tenant: Vec<&'a str>,
    delivery: Vec<Uuid>,
    created_at: Vec<i64>,
    number: Vec<i32>,
    started_at: Vec<i64>,
    status: Vec<Option<i32>>,
    record: Vec<String>,
    body: Vec<Option<&'a [u8]>>,
}

impl<'a> AttemptColumns<'a> {
    pub(super) fn push(
        &mut self,
        delivery: &'a Delivery,
        attempt: &'a Attempt,
    ) -> Result<(), StoreError> {
        let (ending, body) = ending_record(&attempt.ending);
        let record = AttemptRecord { turn: attempt.turn, timings: attempt.timings, ending };
        self.tenant.push(delivery.tenant.as_str());
        self.delivery.push(uuid(delivery.id.as_bytes()));
        self.created_at.push(delivery.created_at.as_unix_ms());
        self.number.push(number(attempt.number));
        self.started_at.push(attempt.started_at.as_unix_ms());
        self.status.push(attempt.ending.status().map(i32::from));
        self.record.push(to_json(&record)?);
        self.body.push(body);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.delivery.is_empty()
    }

    pub(super) fn all(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.tenant,
            &self.delivery,
            &self.created_at,
            &self.number,
            &self.started_at,
            &self.status,
            &self.record,
            &self.body,
        ]
    }
}

fn ending_record(ending: &Ending) -> (EndingRecord, Option<&[u8]>) {
    match ending {
        Ending::Answered(Answer { status: _, retry_after, body, body_end }) => {
            let retry_after = retry_after.map(|wish| match wish {
                RetryAfter::Delay(delay) => RetryRecord::Delay(delay),
                RetryAfter::At(at) => RetryRecord::At(at.as_unix_ms()),
            });
            (EndingRecord::Answered { retry_after, body_end: *body_end }, Some(body))
        }
        Ending::Failed(Failure { class, detail }) => {
            (EndingRecord::Failed { class: *class, detail: detail.clone() }, None)
        }
        Ending::OwnFault(OwnFault { kind, detail }) => {
            (EndingRecord::OwnFault { kind: *kind, detail: detail.clone() }, None)
        }
    }
}

/// The columns of an attempt as [`attempt`] reads them.
pub(super) const ATTEMPT: &str = "number, started_at, status, record, body";

/// Reads an attempt.
pub(super) fn attempt(row: &Row) -> Result<Attempt, StoreError> {
    let record: AttemptRecord = json(row, "record")?;
    let ending = match record.ending {
        EndingRecord::Answered { retry_after, body_end } => {
            let status: i32 = get(row, "status")?;
            Ending::Answered(Answer {
                status: u16::try_from(status).map_err(|e| corrupt("attempts", e))?,
                retry_after: retry_after.map(|wish| match wish {
                    RetryRecord::Delay(delay) => RetryAfter::Delay(delay),
                    RetryRecord::At(at) => RetryAfter::At(Timestamp::from_unix_ms(at)),
                }),
                body: Bytes::copy_from_slice(get(row, "body")?),
                body_end,
            })
        }
        EndingRecord::Failed { class, detail } => Ending::Failed(Failure { class, detail }),
        EndingRecord::OwnFault { kind, detail } => Ending::OwnFault(OwnFault { kind, detail }),
    };
    Ok(Attempt {
        number: u32_of(row, "number")?,
        turn: record.turn,
        started_at: time(row, "started_at")?,
        timings: record.timings,
        ending,
    })
}
