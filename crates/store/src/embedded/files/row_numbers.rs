//! The numbers of rows in a day's file.
//!
//! A row's number consists of its tenant, the time of its acceptance and the beginning of its
//! identifier, in this order: so the rows of a tenant lie side by side in the order of time, and a
//! list needs no index.
//!
//! ```text
//! 0 │ tenant's number, 18 bits │ millisecond of the day, 27 bits │ identifier, 18 bits
//! ```
//!
//! An identifier that Postrider made begins with the time at which it was made, which is the time of
//! acceptance. **A row whose number follows from its identifier is *derived* and is found by that
//! number. Every other row is *indexed*:** its identifier was chosen by the application, or two
//! identifiers begin alike. Indexed rows have `odd = 1` and are found through a partial index.
//! Tenants beyond the 262,144th of a day share numbers with others, and a millisecond that is full
//! spills into the next one: a reader by number must compare the row's tenant and identifier too.

use std::time::Duration;

use postrider_domain::ids::TenantId;
use postrider_domain::time::Timestamp;

use super::Day;

const TENANT_BITS: u32 = 18;
const MS_BITS: u32 = 27;
const ID_BITS: u32 = 18;
/// The last millisecond that a number can hold; a day has fewer.
const MS_MAX: i64 = (1 << MS_BITS) - 1;
const ID_MASK: i64 = (1 << ID_BITS) - 1;

/// How many numbers are tried for an indexed row. If all are taken, the end of the taken numbers is
/// searched, which takes long where a millisecond is full.
pub(in crate::embedded) const TRIES: i64 = 24;
/// How many of the tries are in the row's own millisecond; the others are at growing distances
/// after it.
const TRIES_INSIDE: i64 = 8;

/// The time at which an identifier of version 7 was made.
pub(in crate::embedded) fn made_at(id: &[u8; 16]) -> Timestamp {
    let [a, b, c, d, e, f, ..] = *id;
    Timestamp::from_unix_ms(i64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Whether it is a UUID of version 7. Only for these does the order of row numbers follow the order
/// of identifiers.
fn is_timed(id: &[u8; 16]) -> bool {
    id[6] >> 4 == 7 && id[8] >> 6 == 0b10
}

fn slot(tenant: i64) -> i64 {
    (tenant & ((1 << TENANT_BITS) - 1)) << (MS_BITS + ID_BITS)
}

fn ms_of_day(day: Day, at: Timestamp) -> i64 {
    at.as_unix_ms().saturating_sub(day.first_ms()).clamp(0, MS_MAX)
}

/// The first bits of an identifier after its timestamp.
fn bits(id: &[u8; 16]) -> i64 {
    let (a, b, c) = (i64::from(id[6] & 0x0f), i64::from(id[7]), i64::from(id[8] & 0x3f));
    (a << 14) | (b << 6) | c
}

/// The number of a derived row with this identifier; `None` where no such row can be in this day's
/// file.
pub(in crate::embedded) fn derived(tenant: i64, day: Day, id: &[u8; 16]) -> Option<i64> {
    let made_at = made_at(id);
    (is_timed(id) && Day::of(made_at) == day)
        .then(|| slot(tenant) | (ms_of_day(day, made_at) << ID_BITS) | bits(id))
}

/// The number of the derived row with this identifier and time of acceptance.
pub(in crate::embedded) fn derived_at(
    tenant: i64,
    day: Day,
    at: Timestamp,
    id: &[u8; 16],
) -> Option<i64> {
    if made_at(id) == at { derived(tenant, day, id) } else { None }
}

/// The number that an indexed row gets at the n-th try.
pub(in crate::embedded) fn indexed(tenant: i64, day: Day, at: Timestamp, hash: u32, n: i64) -> i64 {
    let spread = (i64::from(hash) + n.wrapping_mul(0x9E37_79B1)) & ID_MASK;
    let after = if n < TRIES_INSIDE { 0 } else { 1 << (n - TRIES_INSIDE).min(MS_BITS.into()) };
    first_at(tenant, day, at.saturating_add(Duration::from_millis(after))) | spread
}

/// The first row number of a time.
pub(in crate::embedded) fn first_at(tenant: i64, day: Day, at: Timestamp) -> i64 {
    slot(tenant) | (ms_of_day(day, at) << ID_BITS)
}

/// The last row number of a time.
pub(in crate::embedded) fn last_at(tenant: i64, day: Day, at: Timestamp) -> i64 {
    first_at(tenant, day, at) | ID_MASK
}

/// The first and the last row number of a tenant.
pub(in crate::embedded) fn range(tenant: i64) -> (i64, i64) {
    let first = slot(tenant);
    (first, first | ((1 << (MS_BITS + ID_BITS)) - 1))
}

/// The time at which a row is listed: its acceptance, or slightly later where its millisecond was
/// full.
pub(in crate::embedded) fn listed_at(day: Day, number: i64, at: Timestamp) -> Timestamp {
    let ms = (number >> ID_BITS) & MS_MAX;
    if ms == ms_of_day(day, at) { at } else { Timestamp::from_unix_ms(day.first_ms() + ms) }
}

/// The part of a row number that comes from the tenant.
pub(in crate::embedded) fn slot_of(number: i64) -> i64 {
    number >> (MS_BITS + ID_BITS)
}

/// The millisecond of the day of a row number.
pub(in crate::embedded) fn ms_of(number: i64) -> i64 {
    (number >> ID_BITS) & MS_MAX
}

/// The first and the last row number of a tenant in a millisecond of the day.
pub(in crate::embedded) fn range_of_ms(slot: i64, ms: i64) -> (i64, i64) {
    let first = (slot << (MS_BITS + ID_BITS)) | (ms << ID_BITS);
    (first, first | ID_MASK)
}

/// The millisecond of a row number; rows of one tenant in one millisecond have the same value.
pub(in crate::embedded) fn group(number: i64) -> i64 {
    number >> ID_BITS
}

/// The second of the day in which a row number falls.
pub(in crate::embedded) fn second(number: i64) -> i64 {
    ((number >> ID_BITS) & MS_MAX) / 1000
}

/// The first and the last row number of a second of the day.
pub(in crate::embedded) fn range_of_second(tenant: i64, second: i64) -> (i64, i64) {
    let first = slot(tenant) | ((second * 1000) << ID_BITS);
    (first, first + (1000 << ID_BITS) - 1)
}

/// The sixteen bytes of an event's identifier, if it has the form of Postrider's own identifiers.
pub(in crate::embedded) fn made(id: &str) -> Option<[u8; 16]> {
    let digits = id.strip_prefix("evt_")?.as_bytes();
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// A stable hash of an event's identifier: FNV-1a with a final mix. It is stored, so it never changes.
pub(in crate::embedded) fn hash_of(tenant: &TenantId, id: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in tenant.as_str().bytes().chain([0]).chain(id.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_domain::ids::{DeliveryId, EventId};

    const AT: Timestamp = Timestamp::from_unix_ms(1_794_735_000_123);

    #[test]
    fn an_indexed_row_tries_its_millisecond_first_and_then_ever_later_ones() {
        let (day, at) = (Day::of(AT), AT);
        let places: Vec<i64> = (0..TRIES).map(|n| indexed(3, day, at, 77, n)).collect();
        let own = group(first_at(3, day, at));
        let after: Vec<i64> = places.iter().map(|number| group(*number) - own).collect();
        assert_eq!(after[..8], [0; 8]);
        assert_eq!(after[8..], (0..16).map(|n| 1 << n).collect::<Vec<i64>>());
        let all: std::collections::BTreeSet<_> = places.iter().collect();
        assert_eq!(all.len(), places.len(), "none is tried twice");
        // After the last millisecond of a day there are spare numbers.
        let end = Timestamp::from_unix_ms(day.first_ms() + 86_399_999);
        assert!(indexed(3, day, end, 77, TRIES - 1) <= range(3).1);
    }

    #[test]
    fn numbers_follow_tenant_then_time_then_identifier() {
        let day = Day::of(AT);
        let later = Timestamp::from_unix_ms(AT.as_unix_ms() + 1);
        let of = |tenant, at, random| {
            derived(tenant, day, DeliveryId::new(at, random).as_bytes()).unwrap()
        };
        let numbers = [
            of(1, AT, [0; 10]),
            of(1, AT, [1; 10]),
            of(1, AT, [0xff; 10]),
            of(1, later, [0; 10]),
            of(2, AT, [0; 10]),
        ];
        assert!(numbers.is_sorted_by(|one, other| one < other), "{numbers:?}");
        let (first, last) = range(1);
        assert!(first <= numbers[0] && numbers[3] <= last && last < numbers[4]);
        assert_eq!(listed_at(day, numbers[3], later), later);
        assert_eq!(listed_at(day, numbers[3], AT), later, "it was spilled");
        assert!(numbers.iter().all(|number| *number > 0));
        assert_eq!(
            derived(1, Day::of(Timestamp::EPOCH), DeliveryId::new(AT, [0; 10]).as_bytes()),
            None
        );
        let id = DeliveryId::new(AT, [3; 10]);
        assert_eq!(derived_at(1, day, later, id.as_bytes()), None, "another time");
        assert_eq!(derived(1, day, &[0x11; 16]), None, "another version");
    }

    #[test]
    fn times_outside_the_calendar_have_numbers_too() {
        for ms in [i64::MIN, -1, 0, i64::MAX] {
            let at = Timestamp::from_unix_ms(ms);
            let day = Day::of(at);
            let number = indexed(7, day, at, 9, 3);
            assert!((range(7).0..=range(7).1).contains(&number));
            assert_eq!(listed_at(day, number, at), at);
        }
    }

    #[test]
    fn identifiers_that_postrider_made_become_bytes() {
        let id = EventId::new(AT, [0xa5; 10]);
        let bytes = made(id.as_str()).unwrap();
        assert_eq!(made_at(&bytes), AT);
        for other in ["evt_", "e1", "evt_0193g", "EVT_019a86d99e3877078707070707070707"] {
            assert_eq!(made(other), None, "{other}");
        }
        let upper = id.as_str().replace('a', "A");
        assert_eq!(made(&upper), None);
    }
}
