//! Times for people: how long ago, or how soon. `--json` has the exact ones.

use postrider_domain::time::Timestamp;

/// The distance of two times in the largest unit that still says enough: `84s`, `12m`, `30h`, `9d`.
pub fn distance(one: Timestamp, other: Timestamp) -> String {
    let seconds = one.ms_from(other).unsigned_abs() / 1000;
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        172_800.. => format!("{}d", seconds / 86_400),
    }
}

/// `3m ago`, `in 3m`, or `now`.
pub fn relative(now: Timestamp, then: Timestamp) -> String {
    match then.ms_from(now) {
        -999..=999 => "now".to_owned(),
        ahead @ 1_000.. => {
            // Rounded up: what is due in 1.9 s is not due in one second.
            let then = now.moved_ms(ahead.saturating_add(999));
            format!("in {}", distance(then, now))
        }
        ..=-1_000 => format!("{} ago", distance(now, then)),
    }
}

/// The exact time to the second, as people write it: `2026-11-18 02:14:57 UTC`.
pub fn exact(then: Timestamp) -> String {
    let text = then.to_string();
    let text = text.split_once('.').map_or(text.as_str(), |(whole, _)| whole);
    format!("{} UTC", text.replace('T', " "))
}

/// The time of day: `02:14:57`.
pub fn of_day(then: Timestamp) -> String {
    let text = exact(then);
    text.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// How far away, and exactly: `3m ago (2026-11-18 02:14:57 UTC)`.
pub fn both(now: Timestamp, then: Timestamp) -> String {
    format!("{} ({})", relative(now, then), exact(then))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_uses_the_largest_unit_that_still_says_enough() {
        let now: Timestamp = "2026-11-18T02:14:57.500Z".parse().unwrap();
        for (ms, words) in [
            (0, "now"),
            (-999, "now"),
            (-1_000, "1s ago"),
            (-119_999, "119s ago"),
            (-120_000, "2m ago"),
            (-7_200_000, "2h ago"),
            (-172_800_000, "2d ago"),
            (1_000, "in 1s"),
            (1_001, "in 2s"),
            (84_800, "in 85s"),
            (594_000, "in 9m"),
            (173_585_600, "in 2d"),
        ] {
            assert_eq!(relative(now, now.moved_ms(ms)), words, "{ms}");
        }
        assert_eq!(both(now, now), "now (2026-11-18 02:14:57 UTC)");
        assert_eq!(of_day(now), "02:14:57");
        assert!(relative(now, Timestamp::MAX).starts_with("in "));
        assert!(relative(now, Timestamp::from_unix_ms(i64::MIN)).ends_with("d ago"));
    }
}
