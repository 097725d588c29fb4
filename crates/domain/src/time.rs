//! A point in time, in whole milliseconds since the Unix epoch.
//!
//! Nothing here reads a clock: callers pass a `Timestamp`. Arithmetic saturates, so that no
//! configured duration can cause a panic.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::fmt::temporal::DateTimePrinter;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Milliseconds since the Unix epoch, UTC. Shown as RFC 3339 with exactly three decimals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00.000Z.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// Later than every real time; the result of saturated arithmetic.
    pub const MAX: Timestamp = Timestamp(i64::MAX);
    /// The last time that can be shown as a date: 9999-12-30T22:00:00.999Z.
    pub const LAST_SHOWN: Timestamp = Timestamp(253_402_207_200_999);

    /// The point `unix_ms` milliseconds after the epoch.
    pub const fn from_unix_ms(unix_ms: i64) -> Self {
        Timestamp(unix_ms)
    }

    /// Milliseconds since the epoch.
    pub const fn as_unix_ms(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_unix_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let ms = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }

    /// Milliseconds from `other` to `self`, negative if `self` is earlier.
    pub const fn ms_from(self, other: Timestamp) -> i64 {
        self.0.saturating_sub(other.0)
    }

    /// `self` moved by `ms` milliseconds, earlier if negative.
    #[must_use]
    pub const fn moved_ms(self, ms: i64) -> Self {
        Timestamp(self.0.saturating_add(ms))
    }

    /// `self` moved later by `duration`, never past [`Timestamp::MAX`].
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(millis(duration)))
    }

    /// `self` moved earlier by `duration`.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_sub(millis(duration)))
    }
}

/// Whole milliseconds of a duration, saturating.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Why a text is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an RFC 3339 time such as 2026-11-15T09:30:00.000Z")]
pub struct NotATime;

impl FromStr for Timestamp {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        // jiff also takes other ISO 8601 forms; RFC 3339 has a `T` (or a space) and an offset.
        let parsed: jiff::Timestamp = text.parse().map_err(|_| NotATime)?;
        Ok(Timestamp(parsed.as_millisecond()))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A time outside the calendar is shown as the end of the calendar.
        let end = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let shown = jiff::Timestamp::from_millisecond(self.0).unwrap_or(end);
        f.write_str(&DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&shown))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc_with_three_decimals() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (1, "1970-01-01T00:00:00.001Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (1_763_199_000_120, "2025-11-15T09:30:00.120Z"),
        ];
        for (unix_ms, shown) in cases {
            assert_eq!(Timestamp::from_unix_ms(unix_ms).to_string(), shown);
            assert_eq!(shown.parse(), Ok(Timestamp::from_unix_ms(unix_ms)));
            assert_eq!(format!("{:?}", Timestamp::from_unix_ms(unix_ms)), shown);
        }
    }

    #[test]
    fn the_far_ends_are_shown_without_a_panic() {
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-30T22:00:00.999Z");
        assert_eq!(Timestamp::LAST_SHOWN.to_string().parse(), Ok(Timestamp::LAST_SHOWN));
        assert_eq!(Timestamp::LAST_SHOWN.to_string(), Timestamp::MAX.to_string());
        assert!(Timestamp::from_unix_ms(i64::MIN).to_string().starts_with("-009999-"));
    }

    #[test]
    fn offsets_are_understood_and_nonsense_is_not() {
        assert_eq!("1970-01-01T01:00:00+01:00".parse(), Ok(Timestamp::EPOCH));
        for text in ["", "yesterday", "2026-11-15", "2026-11-15T09:30:00", "1763199000"] {
            assert_eq!(text.parse::<Timestamp>(), Err(NotATime), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let far = Duration::from_secs(u64::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_add(far), Timestamp::MAX);
        assert_eq!(Timestamp::EPOCH.saturating_sub(far), Timestamp::from_unix_ms(-i64::MAX));
        assert_eq!(Timestamp::EPOCH.since(Timestamp::MAX), Duration::ZERO);
        let (low, high) = (Timestamp::from_unix_ms(i64::MIN), Timestamp::MAX);
        assert_eq!(high.since(low), Duration::from_millis(i64::MAX.unsigned_abs()));
    }

    #[test]
    fn seconds_round_down_also_before_the_epoch() {
        assert_eq!(Timestamp::from_unix_ms(1_999).as_unix_seconds(), 1);
        assert_eq!(Timestamp::from_unix_ms(-1).as_unix_seconds(), -1);
    }

    #[test]
    fn json_has_times_as_text() {
        let time = Timestamp::from_unix_ms(120);
        let json = serde_json::to_string(&time).unwrap();
        assert_eq!(json, "\"1970-01-01T00:00:00.120Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), time);
        assert!(serde_json::from_str::<Timestamp>("\"soon\"").is_err());
    }
}
