//! The bytes of the events, and how a receiver recognises them.
//!
//! An event contains its number and its scheduled time. The scheduled time counts, not the time of
//! sending: so a late event does not look faster.

use std::time::{SystemTime, UNIX_EPOCH};

/// The text before the number of an event, in every format.
const MARK: &[u8] = b"\"data\":{\"n\":";
/// The text between the number and the time.
const AT: &[u8] = b",\"at\":";

/// Microseconds since the Unix epoch: all processes of a measurement read the same clock.
#[expect(clippy::disallowed_methods, reason = "a measurement reads the machine's clock")]
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Appends an event of about `payload_bytes` of data.
pub(crate) fn put_event(out: &mut Vec<u8>, kind: u64, n: u64, at_us: u64, payload_bytes: u64) {
    out.extend_from_slice(format!("{{\"type\":\"bench.k{kind}\",").as_bytes());
    put_data(out, n, at_us, payload_bytes);
    out.push(b'}');
}

/// Appends `"data": …` with realistic text and numbers.
pub(crate) fn put_data(out: &mut Vec<u8>, n: u64, at_us: u64, payload_bytes: u64) {
    const FILLING: &[u8] = b"{\"name\":\"Quarterly report\",\"status\":\"CUR\",\"percent\":42.5},";
    let begin = out.len();
    out.extend_from_slice(MARK);
    out.extend_from_slice(n.to_string().as_bytes());
    out.extend_from_slice(AT);
    out.extend_from_slice(at_us.to_string().as_bytes());
    out.extend_from_slice(b",\"items\":[");
    let room = usize::try_from(payload_bytes).unwrap_or(usize::MAX).saturating_add(begin);
    while out.len() + FILLING.len() + 4 < room {
        out.extend_from_slice(FILLING);
    }
    out.extend_from_slice(b"0]}");
}

/// The data alone of an event that has no scheduled time.
pub(crate) fn data(n: u64, payload_bytes: u64) -> Vec<u8> {
    const NAME: &[u8] = b"\"data\":";
    let mut out = Vec::new();
    put_data(&mut out, n, 0, payload_bytes);
    out.split_off(NAME.len())
}

/// The number and the scheduled time of the event in a body.
pub(crate) fn find(body: &[u8]) -> Option<(u64, u64)> {
    let begin = body.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let (n, rest) = number(body.get(begin..)?)?;
    let (at_us, _) = number(rest.strip_prefix(AT)?)?;
    Some((n, at_us))
}

fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at(end);
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_json_of_its_size_and_is_found_again() {
        for payload_bytes in [500, 20_000] {
            let mut event = Vec::new();
            put_event(&mut event, 3, 1234, 1_763_199_000_123_456, payload_bytes);
            let json: serde_json::Value = serde_json::from_slice(&event).unwrap();
            assert_eq!((&json["type"], &json["data"]["n"]), (&"bench.k3".into(), &1234.into()));
            assert!(event.len().abs_diff(usize::try_from(payload_bytes).unwrap()) < 100);
            assert_eq!(find(&event), Some((1234, 1_763_199_000_123_456)));
        }
        for foreign in ["", "{}", "{\"data\":{\"n\":", "{\"data\":{\"n\":1}}"] {
            assert_eq!(find(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
