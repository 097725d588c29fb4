//! Parses the dates of HTTP headers, in the three forms that RFC 9110 requires.
//!
//! | form | example |
//! |---|---|
//! | IMF-fixdate | `Sun, 06 Nov 1994 08:49:37 GMT` |
//! | RFC 850 | `Sunday, 06-Nov-94 08:49:37 GMT` |
//! | asctime | `Sun Nov  6 08:49:37 1994` |
//!
//! The day of the week is not checked: a wrong one does not change the date. Dates after the last
//! one that Postrider can show become that one.

use crate::time::Timestamp;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const SHORT_DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Reads a date in any of the three forms. `now` decides the century of a year with two digits.
pub fn parse(text: &str, now: Timestamp) -> Option<Timestamp> {
    let unix_ms = match text.split_once(", ") {
        Some((day, rest)) if SHORT_DAYS.contains(&day) => imf_fixdate(rest)?,
        Some((day, rest)) if LONG_DAYS.contains(&day) => rfc850(rest, now)?,
        Some(_) => return lenient(text),
        None => asctime(text).or_else(|| lenient(text).map(Timestamp::as_unix_ms))?,
    };
    Some(Timestamp::from_unix_ms(unix_ms).min(Timestamp::LAST_SHOWN))
}

/// Other forms of RFC 5322, such as a zone of `+0000`, which some receivers send.
fn lenient(text: &str) -> Option<Timestamp> {
    let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Timestamp::from_unix_ms(parsed.as_millisecond()))
}

/// `06 Nov 1994 08:49:37 GMT`.
fn imf_fixdate(text: &str) -> Option<i64> {
    let [day, month, year, time, zone] = words(text)?;
    if zone != "GMT" {
        return lenient(text).map(Timestamp::as_unix_ms);
    }
    unix_ms(digits(year, 4)?, month, digits(day, 2)?, time)
}

/// `06-Nov-94 08:49:37 GMT`. A year that appears to be more than 50 years in the future is the most
/// recent one in the past with the same last two digits.
fn rfc850(text: &str, now: Timestamp) -> Option<i64> {
    let [date, time, "GMT"] = words(text)? else { return None };
    let mut parts = date.split('-');
    let (day, month, year) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (day, year) = (digits(day, 2)?, digits(year, 2)?);
    let (this_year, ..) = civil(now.as_unix_ms().div_euclid(DAY_MS));
    // The latest year with these digits that is not more than 50 years from now.
    let mut year = this_year.div_euclid(100) * 100 + year;
    year += if year < this_year - 49 { 100 } else { 0 };
    let limit = fifty_years_after(now);
    let at = unix_ms(year, month, day, time);
    if at.is_none_or(|at| at > limit) { unix_ms(year - 100, month, day, time) } else { at }
}

/// `Sun Nov  6 08:49:37 1994`.
fn asctime(text: &str) -> Option<i64> {
    let (day_name, rest) = text.split_at_checked(4)?;
    let (month, rest) = rest.split_at_checked(4)?;
    let (day, rest) = rest.split_at_checked(3)?;
    let (time, year) = rest.split_once(' ')?;
    if !SHORT_DAYS.contains(&day_name.strip_suffix(' ')?) {
        return None;
    }
    let day = day.strip_suffix(' ')?;
    let day = match day.strip_prefix(' ') {
        Some(one) => digits(one, 1)?,
        None => digits(day, 2)?,
    };
    unix_ms(digits(year, 4)?, month.strip_suffix(' ')?, day, time)
}

fn fifty_years_after(now: Timestamp) -> i64 {
    let ms = now.as_unix_ms();
    let (year, month, day) = civil(ms.div_euclid(DAY_MS));
    days_from_civil(year + 50, month, day) * DAY_MS + ms.rem_euclid(DAY_MS)
}

/// Splits a text into exactly `N` words with single spaces between them.
fn words<const N: usize>(text: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = text.split(' ').collect();
    words.try_into().ok()
}

/// A number of exactly `count` digits.
fn digits(text: &str, count: usize) -> Option<i64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn unix_ms(year: i64, month: &str, day: i64, time: &str) -> Option<i64> {
    let month = i64::try_from(MONTHS.iter().position(|name| *name == month)?).ok()? + 1;
    let mut parts = time.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    let (hour, minute, second) = (digits(hour, 2)?, digits(minute, 2)?, digits(second, 2)?);
    // A leap second is the next second.
    let is_time = hour < 24 && minute < 60 && second <= 60 && parts.next().is_none();
    let days = days_from_civil(year, month, day);
    let is_date = civil(days) == (year, month, day);
    (is_time && is_date).then_some(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000)
}

/// Days since 1970-01-01 of a date of the Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // The year begins in March here, so that the leap day is its last day.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-16T08:00:00Z.
    const NOW: Timestamp = Timestamp::from_unix_ms(1_794_816_000_000);

    fn check(text: &str, expected: &str) {
        let read = parse(text, NOW).map(|at| at.to_string());
        assert_eq!(read.as_deref().unwrap_or("-"), expected, "{text:?}");
    }

    #[test]
    fn all_three_forms_of_a_date_are_read() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Tue, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 +0000",
        ] {
            check(text, "1994-11-06T08:49:37.000Z");
        }
        check("Sat Nov 26 23:59:60 2016", "2016-11-27T00:00:00.000Z");
        check("Thu, 29 Feb 2024 00:00:00 GMT", "2024-02-29T00:00:00.000Z");
    }

    #[test]
    fn a_year_of_two_digits_is_at_most_fifty_years_from_now() {
        check("Monday, 16-Nov-26 08:00:00 GMT", "2026-11-16T08:00:00.000Z");
        check("Monday, 16-Nov-76 08:00:00 GMT", "2076-11-16T08:00:00.000Z");
        check("Monday, 16-Nov-76 08:00:01 GMT", "1976-11-16T08:00:01.000Z");
        check("Monday, 01-Jan-77 00:00:00 GMT", "1977-01-01T00:00:00.000Z");
        check("Friday, 31-Dec-99 23:59:59 GMT", "1999-12-31T23:59:59.000Z");
        check("Friday, 01-Jan-00 00:00:00 GMT", "2000-01-01T00:00:00.000Z");
        // In 1999, the year 49 belongs to the next century.
        let then = Timestamp::from_unix_ms(930_000_000_000);
        let read = parse("Friday, 01-Jan-49 00:00:00 GMT", then).unwrap();
        assert_eq!(read.to_string(), "2049-01-01T00:00:00.000Z");
    }

    #[test]
    fn a_date_past_the_calendar_is_the_last_one_that_can_be_shown() {
        for text in ["Fri, 31 Dec 9999 23:59:59 GMT", "Fri Dec 31 23:59:59 9999"] {
            assert_eq!(parse(text, NOW), Some(Timestamp::LAST_SHOWN), "{text}");
        }
        check("Thu, 30 Dec 9999 00:00:00 GMT", "9999-12-30T00:00:00.000Z");
    }

    #[test]
    fn malformed_date_is_refused() {
        for text in [
            "",
            "soon",
            "Sun, 06 Nov 1994",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 CET",
            "Sun Nov 6 08:49:37 1994",
            "Son Nov  6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
        ] {
            check(text, "-");
        }
    }

    proptest! {
        #[test]
        fn every_date_is_read_as_it_is_written(seconds in 0_i64..253_402_000_000) {
            let at = jiff::Timestamp::from_second(seconds).unwrap();
            let expected = Some(Timestamp::from_unix_ms(seconds * 1000));
            let imf = at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            prop_assert_eq!(parse(&imf, NOW), expected, "{}", imf);
            let asctime = at.strftime("%a %b %e %H:%M:%S %Y").to_string();
            prop_assert_eq!(parse(&asctime, NOW), expected, "{}", asctime);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}", ms: i64) {
            parse(&text, Timestamp::from_unix_ms(ms));
        }
    }
}
