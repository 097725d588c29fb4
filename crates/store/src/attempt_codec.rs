//! The bytes of an hour of a destination's attempts, the same in both backends.
//!
//! Counts: the number of each class that occurred, and its count with seven bits to a byte. Recent attempts: ten bytes
//! each. **A count that was zero takes no space**, so an hour with few kinds of outcomes is small.

use postrider_domain::attempt_tally::{
    AttemptTally, HOUR_MS, OutcomeClass, RecentAttempt, TIME_CLASSES, start_of,
};

/// The bytes of one recent attempt.
pub(crate) const RECENT_BYTES: usize = 10;

/// The number of the first class of response times, after those of outcomes.
const FIRST_TIME: u8 = 64;

/// The bytes of a tally.
pub(crate) fn encode_tally(tally: &AttemptTally) -> Vec<u8> {
    let mut out = Vec::with_capacity(32);
    let counts = (0..).zip(&tally.outcomes).chain((FIRST_TIME..).zip(&tally.times));
    for (number, count) in counts.filter(|(_, count)| **count > 0) {
        out.push(number);
        let mut rest = *count;
        while rest > 0x7f {
            out.push(u8::try_from(rest & 0x7f).unwrap_or(0) | 0x80);
            rest >>= 7;
        }
        out.push(u8::try_from(rest).unwrap_or(0));
    }
    out
}

/// The tally of these bytes; `None` where they are damaged.
pub(crate) fn decode_tally(bytes: &[u8]) -> Option<AttemptTally> {
    let (mut tally, mut bytes) = (AttemptTally::default(), bytes.iter().copied());
    while let Some(number) = bytes.next() {
        let (mut count, mut shift) = (0_u64, 0);
        loop {
            let byte = bytes.next()?;
            count |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
        let place = usize::from(number);
        *match number.checked_sub(FIRST_TIME) {
            None => tally.outcomes.get_mut(place)?,
            Some(class) => tally.times.get_mut(usize::from(class))?,
        } = count;
    }
    Some(tally)
}

/// The bytes of recent attempts of an hour.
pub(crate) fn encode_recent(hour: i64, recent: &[RecentAttempt]) -> Vec<u8> {
    let mut out = Vec::with_capacity(recent.len() * RECENT_BYTES);
    for attempt in recent {
        let offset = attempt.started_at.ms_from(start_of(hour)).clamp(0, HOUR_MS - 1);
        out.extend_from_slice(&u32::try_from(offset).unwrap_or(0).to_le_bytes()[..3]);
        out.extend_from_slice(&attempt.duration_ms.to_le_bytes());
        out.push(attempt.class.number());
        out.extend_from_slice(&attempt.status.unwrap_or(0).to_le_bytes());
    }
    out
}

/// The recent attempts of an hour; `None` where the bytes are damaged.
pub(crate) fn decode_recent(hour: i64, bytes: &[u8]) -> Option<Vec<RecentAttempt>> {
    let (attempts, rest) = bytes.as_chunks::<RECENT_BYTES>();
    let read = |[a, b, c, d, e, f, g, class, low, high]: &[u8; RECENT_BYTES]| {
        let offset = i64::from(u32::from_le_bytes([*a, *b, *c, 0]));
        Some(RecentAttempt {
            started_at: start_of(hour).moved_ms(offset),
            duration_ms: u32::from_le_bytes([*d, *e, *f, *g]),
            class: OutcomeClass::from_number(*class)?,
            status: Some(u16::from_le_bytes([*low, *high])).filter(|status| *status != 0),
        })
    };
    if rest.is_empty() { attempts.iter().map(read).collect() } else { None }
}

const _: () = assert!(OutcomeClass::ALL.len() <= FIRST_TIME as usize && TIME_CLASSES < 128);

#[cfg(test)]
mod tests {
    use postrider_domain::time::Timestamp;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tally_is_read_as_it_was_written(
            outcomes in proptest::array::uniform19(prop_oneof![Just(0), 0..300u64, any::<u64>()]),
            times in proptest::collection::vec(prop_oneof![Just(0), any::<u64>()], TIME_CLASSES),
        ) {
            let tally = AttemptTally { outcomes, times: times.try_into().unwrap() };
            prop_assert_eq!(decode_tally(&encode_tally(&tally)), Some(tally));
        }

        #[test]
        fn recent_attempts_are_read_as_they_were_written(
            hour in -1000..500_000i64,
            drawn in proptest::collection::vec((0..HOUR_MS, any::<u32>(), 0..19u8, 0..1000u16), 0..31),
        ) {
            let recent: Vec<RecentAttempt> = drawn.into_iter().map(|(ms, duration_ms, class, status)| {
                let started_at = Timestamp::from_unix_ms(hour * HOUR_MS + ms);
                let class = OutcomeClass::from_number(class).unwrap();
                let status = Some(status).filter(|status| *status != 0);
                RecentAttempt { started_at, duration_ms, class, status }
            }).collect();
            let bytes = encode_recent(hour, &recent);
            prop_assert_eq!(bytes.len(), recent.len() * RECENT_BYTES);
            prop_assert_eq!(decode_recent(hour, &bytes), Some(recent));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            decode_tally(&bytes);
            decode_recent(1, &bytes);
        }
    }

    #[test]
    fn damaged_bytes_are_no_tally() {
        for damaged in [&[0x00][..], &[19, 1], &[99, 1], &[0, 0xff]] {
            assert_eq!(decode_tally(damaged), None, "{damaged:?}");
        }
        assert_eq!(decode_recent(0, &[0; 9]), None);
        assert_eq!(decode_recent(0, &[0, 0, 0, 0, 0, 0, 0, 19, 0, 0]), None);
    }
}
