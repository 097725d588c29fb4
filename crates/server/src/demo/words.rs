//! Numbers, times and sentences of the demonstration.

use std::time::Duration;

/// `12,345`.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Minutes and seconds of the demonstration: `1:05`.
pub(super) fn stopwatch(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// How long something took: `4 ms`, `1.3 s`.
pub(super) fn latency(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}

/// A span of time in at most two units: `3 s`, `10 min`, `1 h 29 min`, `2 d 3 h`.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_millis() >= 500);
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let Some(first) = units.iter().position(|(_, size)| seconds >= *size) else {
        return if time.is_zero() { "0 s".to_owned() } else { format!("{} ms", time.as_millis()) };
    };
    let (name, size) = units[first];
    let mut text = format!("{} {name}", seconds / size);
    if let Some((name, smaller)) = units.get(first + 1)
        && seconds % size / smaller > 0
    {
        text.push_str(&format!(" {} {name}", seconds % size / smaller));
    }
    text
}

/// `1st`, `2nd`, `3rd`, `4th`.
pub(super) fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// `/a`, `/a and /b`, `/a, /b and /c`.
pub(super) fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [rest @ .., last] => format!("{} and {last}", rest.join(", ")),
    }
}

/// The text in lines of at most `width` characters, broken between words where that is possible.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        while let Some(line) = lines.last_mut() {
            let used = line.chars().count();
            let gap = usize::from(used > 0);
            if used + gap + word.len() <= width {
                line.extend(std::iter::repeat_n(' ', gap).chain(word));
                break;
            }
            if used > 0 {
                lines.push(String::new());
                continue;
            }
            line.extend(word.drain(..width));
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_read_as_people_write_them() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(n), text);
        }
        for (ms, text) in [
            (0, "0 s"),
            (300, "300 ms"),
            (2_600, "3 s"),
            (600_000, "10 min"),
            (5_342_400, "1 h 29 min"),
            (183_600_000, "2 d 3 h"),
        ] {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
        for (ms, text) in [(4, "4 ms"), (999, "999 ms"), (5_040, "5.0 s"), (12_390, "12.3 s")] {
            assert_eq!(latency(Duration::from_millis(ms)), text);
        }
        for (n, text) in
            [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
        {
            assert_eq!(ordinal(n), text);
        }
        assert_eq!(stopwatch(Duration::from_secs(65)), "1:05");
        let names = ["/a", "/b", "/c"].map(str::to_owned);
        assert_eq!(listed(&names), "/a, /b and /c");
        assert_eq!(listed(&names[..1]), "/a");
    }

    #[test]
    fn text_is_broken_between_words_and_never_longer_than_the_width() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("", 5), [""]);
    }
}
