//! Parses the command line (rates, outages, durations), and shows times.

use std::time::Duration;

use postrider_domain::forecast::Traffic;

use crate::config::parse_duration;

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY_MINUTES: u64 = 24 * 60;
const WEEK_MINUTES: u64 = 7 * DAY_MINUTES;

/// The start and the length of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outage {
    /// The minute of the week in which it begins, if it was given.
    pub(super) begins: Option<u64>,
    pub(super) length: Duration,
}

impl Outage {
    /// A time after the beginning of the outage, as text.
    pub(super) fn shown(&self, at: Duration) -> String {
        match self.begins {
            None => format!("+{}", short(at)),
            Some(begins) => {
                let minute = (begins + at.as_secs() / 60) % WEEK_MINUTES;
                let day = usize::try_from(minute / DAY_MINUTES).unwrap_or(0);
                let (hour, minute) = (minute % DAY_MINUTES / 60, minute % 60);
                format!("{} {hour:02}:{minute:02}", DAYS[day])
            }
        }
    }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "a duration is written 6h, 90m, 2d12h".to_owned())
}

/// Parses a duration, or two times of the week.
pub(super) fn outage(text: &str) -> Result<Outage, String> {
    let expected = "an outage is written 6h, 2d12h, or from when to when: \"fri 18:00..mon 08:00\"";
    if let Some(length) = parse_duration(text) {
        return Ok(Outage { begins: None, length });
    }
    let (from, to) = text.split_once("..").ok_or(expected)?;
    let begins = minute_of_week(from).ok_or(expected)?;
    let ends = minute_of_week(to).ok_or(expected)?;
    let minutes = match (ends + WEEK_MINUTES - begins) % WEEK_MINUTES {
        0 => WEEK_MINUTES,
        minutes => minutes,
    };
    Ok(Outage { begins: Some(begins), length: Duration::from_secs(minutes * 60) })
}

/// `fri 18:00`, `Friday 6:30`, `fri`.
fn minute_of_week(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace();
    let day = words.next()?.to_ascii_lowercase();
    let day = DAYS.iter().position(|known| {
        day.len() >= 3 && day.is_char_boundary(3) && known.eq_ignore_ascii_case(&day[..3])
    })?;
    let minute = match words.next() {
        None => 0,
        Some(time) => {
            let (hour, minute) = time.split_once(':')?;
            let (hour, minute): (u64, u64) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)?
        }
    };
    let day = u64::try_from(day).ok()?;
    words.next().is_none().then_some(day * DAY_MINUTES + minute)
}

/// `50/s`, `200/min`, `10/h`, `50`.
pub(super) fn traffic(text: &str) -> Result<Traffic, String> {
    let expected = "a rate is written 50/s, 200/min, 10/h or 100/d";
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let deliveries = number.trim().parse().ok().filter(|n| *n > 0).ok_or(expected)?;
    let seconds = match unit.trim() {
        "s" | "sec" | "second" => 1,
        "m" | "min" | "minute" => 60,
        "h" | "hour" => 3_600,
        "d" | "day" => 86_400,
        _ => return Err(expected.to_owned()),
    };
    Ok(Traffic { deliveries, per: Duration::from_secs(seconds) })
}

/// A duration in its two largest units: `2d 14h`, `3h 5m`, `40s`.
pub(super) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")];
    for (large, large_name, small, small_name) in units {
        if seconds >= large {
            let rest = seconds % large / small;
            let head = format!("{}{large_name}", seconds / large);
            return if rest == 0 { head } else { format!("{head} {rest}{small_name}") };
        }
    }
    if seconds == 0 && !duration.is_zero() {
        return format!("{}ms", duration.as_millis());
    }
    format!("{seconds}s")
}

/// A number with thousands separators.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
