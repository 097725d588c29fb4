//! RFC 3339 times inside filters and events, to the nanosecond.
//!
//! Stricter than a calendar library on form (a date alone, or a time without an offset, is text)
//! and wider on range: every year that RFC 3339 can write is a time, 9999-12-31 included.

use jiff::civil;

/// A point in time, parsed from RFC 3339 text only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Moment {
    unix_seconds: i64,
    nanos: u32,
}

impl Moment {
    /// Parses `2026-11-15T09:30:00.123456789+01:00` and its variants; digits after the ninth
    /// decimal are dropped.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Moment::parse_with(text, offset_seconds)
    }

    /// Parses the same, and offsets without their colon, as in `2026-11-15T09:30:00.123+0100`: for
    /// conditions that ask for it.
    pub(super) fn parse_loosely(text: &str) -> Option<Self> {
        Moment::parse_with(text, |offset| match *offset {
            [sign, h1, h2, m1, m2] => offset_seconds(&[sign, h1, h2, b':', m1, m2]),
            _ => offset_seconds(offset),
        })
    }

    fn parse_with(text: &str, offset_seconds: impl Fn(&[u8]) -> Option<i64>) -> Option<Self> {
        let (date_time, rest) = text.as_bytes().split_at_checked(19)?;
        let (date, time) = date_time.split_at_checked(10)?;
        let (separator, time) = time.split_first()?;
        if !matches!(separator, b'T' | b't' | b' ') {
            return None;
        }
        let (nanos, offset) = match rest.split_first()? {
            (b'.', decimals) => fraction(decimals)?,
            _ => (0, rest),
        };
        let unix_seconds = days_seconds(date)? + day_seconds(time)? - offset_seconds(offset)?;
        Some(Moment { unix_seconds, nanos })
    }
}

/// `2026-11-15`, in seconds since 1970.
fn days_seconds(date: &[u8]) -> Option<i64> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = date else { return None };
    let year = i16::try_from(number(&[y1, y2, y3, y4])?).ok()?;
    let month = i8::try_from(number(&[m1, m2])?).ok()?;
    let day = i8::try_from(number(&[d1, d2])?).ok()?;
    let date = civil::Date::new(year, month, day).ok()?;
    Some(date.duration_since(civil::date(1970, 1, 1)).as_secs())
}

/// `09:30:00`, in seconds since midnight. Second 60 is a leap second.
fn day_seconds(time: &[u8]) -> Option<i64> {
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    (hour < 24 && minute < 60 && second <= 60)
        .then(|| i64::from(hour * 3600 + minute * 60 + second))
}

/// `Z` or `+01:00`, in seconds.
fn offset_seconds(offset: &[u8]) -> Option<i64> {
    let (sign, h1, h2, m1, m2) = match *offset {
        [b'Z' | b'z'] => return Some(0),
        [b'+', h1, h2, b':', m1, m2] => (1, h1, h2, m1, m2),
        [b'-', h1, h2, b':', m1, m2] => (-1, h1, h2, m1, m2),
        _ => return None,
    };
    let (hour, minute) = (number(&[h1, h2])?, number(&[m1, m2])?);
    (hour < 24 && minute < 60).then(|| sign * i64::from(hour * 3600 + minute * 60))
}

/// At least one decimal, as nanoseconds, and what follows.
fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (decimals, rest) = text.split_at_checked(length)?;
    let mut nanos = [b'0'; 9];
    for (place, decimal) in nanos.iter_mut().zip(decimals) {
        *place = *decimal;
    }
    if decimals.is_empty() { None } else { Some((number(&nanos)?, rest)) }
}

/// Up to nine digits.
fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number: u32, byte| {
        byte.is_ascii_digit().then(|| number * 10 + u32::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_to_the_nanosecond() {
        for (text, unix_seconds, nanos) in [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("1970-01-01t00:00:00.5z", 0, 500_000_000),
            ("1970-01-01 00:00:01.000000001-00:00", 1, 1),
            ("1970-01-01T01:00:00.1234567899+01:00", 0, 123_456_789),
            ("1969-12-31T23:59:59.75Z", -1, 750_000_000),
            ("2025-11-15T09:30:00+05:45", 1_763_199_000 - 20_700, 0),
            ("2025-11-15T09:30:00-05:45", 1_763_199_000 + 20_700, 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("0000-01-01T00:00:00Z", -62_167_219_200, 0),
            ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
        ] {
            assert_eq!(Moment::parse(text), Some(Moment { unix_seconds, nanos }), "{text}");
        }
    }

    #[test]
    fn loosely_an_offset_needs_no_colon() {
        let strict = Moment::parse("2022-12-11T16:00:00.000-08:00");
        assert!(strict.is_some());
        for text in ["2022-12-11T16:00:00.000-0800", "2022-12-11T16:00:00.000-08:00"] {
            assert_eq!(Moment::parse_loosely(text), strict, "{text}");
        }
        for text in ["2022-12-11T16:00:00.000-080", "2022-12-11T16:00:00.000*0800", "2022-12-11"] {
            assert_eq!(Moment::parse_loosely(text), None, "{text}");
        }
    }

    #[test]
    fn text_that_is_not_rfc_3339_is_not_a_time() {
        for text in [
            "",
            "2026-11-15",
            "2026-11-15T09:30:00",
            "2026-11-15T09:30Z",
            "2026-11-15T09:30:00.Z",
            "2026-11-15T09:30:00.5",
            "2026-11-15T09:30:00+0100",
            "2026-11-15T09:30:00+24:00",
            "2026-11-15T09:30:00+01:60",
            "2026-11-15T09:30:00Zulu",
            "2026-11-15T24:00:00Z",
            "2026-11-15T09:60:00Z",
            "2026-11-15T09:30:61Z",
            "2026-02-30T09:30:00Z",
            "2026-13-01T09:30:00Z",
            "2026-11-15_09:30:00Z",
            "2026/11/15T09:30:00Z",
            "2026-11-15T09.30.00Z",
            "20261115T093000Z1234",
            "+026-11-15T09:30:00Z",
            "2026-11-15T09:30:0äZ",
        ] {
            assert_eq!(Moment::parse(text), None, "{text}");
        }
    }
}
