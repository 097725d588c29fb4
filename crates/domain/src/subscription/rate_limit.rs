//! The largest number of requests per second that a subscriber wants.
//!
//! Stored as an integer, so that equal limits compare equal.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::limits;

/// Requests per second, with up to three decimals.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "f64")]
pub struct RateLimit {
    per_1000_seconds: u32,
}

/// Why a number is not a rate limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a rate limit: requests per second, from 0.001 to {max}; leave it out for no limit",
    max = limits::RATE_LIMIT_PER_SECOND_MAX
)]
pub struct InvalidRateLimit;

impl RateLimit {
    /// A limit in requests per second, rounded to three decimals.
    pub fn per_second(per_second: f64) -> Result<Self, InvalidRateLimit> {
        let max = f64::from(limits::RATE_LIMIT_PER_SECOND_MAX);
        if !(0.001..=max).contains(&per_second) {
            return Err(InvalidRateLimit);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 1 and 10^9, as was just checked"
        )]
        let per_1000_seconds = (per_second * 1000.0).round() as u32;
        Ok(RateLimit { per_1000_seconds })
    }

    /// Requests per thousand seconds: an exact integer.
    pub const fn per_1000_seconds(self) -> u32 {
        self.per_1000_seconds
    }

    /// Requests per second.
    pub fn as_per_second(self) -> f64 {
        f64::from(self.per_1000_seconds) / 1000.0
    }
}

impl TryFrom<f64> for RateLimit {
    type Error = InvalidRateLimit;

    fn try_from(per_second: f64) -> Result<Self, InvalidRateLimit> {
        RateLimit::per_second(per_second)
    }
}

impl Serialize for RateLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Write `5`, not `5.0`.
        if self.per_1000_seconds.is_multiple_of(1000) {
            serializer.serialize_u32(self.per_1000_seconds / 1000)
        } else {
            serializer.serialize_f64(self.as_per_second())
        }
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.as_per_second())
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_kept_to_three_decimals_and_read_as_they_were_written() {
        for (json, per_1000_seconds, shown) in [
            ("5", 5_000, "5/s"),
            ("0.001", 1, "0.001/s"),
            ("0.5", 500, "0.5/s"),
            ("33.333", 33_333, "33.333/s"),
            ("1000000", 1_000_000_000, "1000000/s"),
        ] {
            let limit: RateLimit = serde_json::from_str(json).unwrap();
            assert_eq!(limit.per_1000_seconds(), per_1000_seconds);
            assert_eq!(serde_json::to_string(&limit).unwrap(), json);
            assert_eq!(format!("{limit} {limit:?}"), format!("{shown} {shown}"));
        }
        assert_eq!(RateLimit::per_second(0.1 + 0.2), RateLimit::per_second(0.3));
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed() {
        for bad in [0.0, -1.0, 0.0009, 1_000_000.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = RateLimit::per_second(bad).unwrap_err();
            assert!(error.to_string().contains("from 0.001 to 1000000"), "{bad}");
        }
        assert!(serde_json::from_str::<RateLimit>("0").is_err());
        assert!(serde_json::from_str::<RateLimit>("\"5\"").is_err());
    }
}
