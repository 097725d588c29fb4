//! Rows of events and attempts.

use std::sync::Arc;

use postrider_domain::attempt::Attempt;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::DeliveryId;

use super::Reading;
use crate::embedded::files::codec::{self, Decoder, Encoder};
use crate::error::StoreError;
use crate::records::EventRecord;

/// The columns that [`event`] reads, of `events AS e` with the joins.
pub(in crate::embedded) const EVENT_COLUMNS: &str =
    "e.id, t.name, k.name, e.object, e.time, e.accepted_at, e.fingerprint, e.deliveries, e.data,
     e.old, e.crc, e.n, e.trace";
/// The joins to `events AS e`.
pub(in crate::embedded) const EVENT_JOINS: &str =
    "CROSS JOIN names AS t ON t.n = e.tenant CROSS JOIN names AS k ON k.n = e.kind";

/// An event with the data of its acceptance.
#[derive(Debug)]
pub(in crate::embedded) struct StoredEvent {
    pub(in crate::embedded) record: EventRecord,
    pub(in crate::embedded) fingerprint: [u8; 32],
    pub(in crate::embedded) deliveries: Vec<DeliveryId>,
    /// The number of its row.
    pub(in crate::embedded) number: i64,
}

pub(in crate::embedded) fn event(reading: &Reading<'_>) -> Result<StoredEvent, StoreError> {
    let object: Option<String> = reading.get(3)?;
    let object = object.map(|object| object.parse()).transpose();
    let old: Option<Vec<u8>> = reading.get(9)?;
    let (trace, mark) = reading.decoded(codec::get_noted(reading.get(12)?))?;
    let event = Event {
        id: reading.event_id(0)?,
        tenant: reading.parse(1)?,
        kind: reading.parse(2)?,
        object: object.map_err(|_| reading.damaged("a text is not what it should be"))?,
        data: RawJson::from_trusted(reading.bytes(8)?),
        old: old.map(|old| RawJson::from_trusted(old.into())),
        time: reading.time(4)?,
        trace,
    };
    let accepted_at = reading.time(5)?;
    let fingerprint: [u8; 32] = reading.get(6)?;
    let owed = reading.bytes(7)?;
    let scratch = &mut Encoder::default();
    let sum = codec::event_sum(scratch, (&event, &mark), accepted_at, &fingerprint, &owed);
    reading.check(10, sum)?;
    let (ids, _) = owed.as_chunks::<16>();
    let deliveries: Vec<DeliveryId> = ids.iter().copied().map(DeliveryId::from_bytes).collect();
    let record = EventRecord {
        event: Arc::new(event),
        accepted_at,
        deliveries: u32::try_from(deliveries.len()).unwrap_or(u32::MAX),
        mark,
    };
    Ok(StoredEvent { record, fingerprint, deliveries, number: reading.get(11)? })
}

/// An attempt, of the columns `delivery, number, body, crc`.
pub(in crate::embedded) fn attempt(reading: &Reading<'_>) -> Result<Attempt, StoreError> {
    let body = reading.bytes(2)?;
    let delivery: [u8; 16] = reading.get(0)?;
    reading.check(3, attempt_sum(&delivery, &body))?;
    let attempt = reading.decoded(codec::get_attempt(&mut Decoder::new(body)))?;
    if attempt.number == reading.get::<u32>(1)? {
        Ok(attempt)
    } else {
        Err(reading.damaged("its columns contradict each other"))
    }
}

/// The checksum of an attempt's row.
pub(in crate::embedded) fn attempt_sum(delivery: &[u8; 16], body: &[u8]) -> u32 {
    super::sum(&[delivery, body])
}

/// The attempt inside a delivery's row, of the columns `id, first`.
pub(in crate::embedded) fn first_attempt(
    reading: &Reading<'_>,
) -> Result<Option<Attempt>, StoreError> {
    let id = reading.id(0, DeliveryId::from_bytes)?;
    let first: Option<Vec<u8>> = reading.get(1)?;
    let first = first.map(|bytes| codec::get_first_attempt(bytes.into(), id)).transpose();
    reading.decoded(first)
}
