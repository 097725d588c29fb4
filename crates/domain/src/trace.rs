//! The trace that a delivery belongs to (W3C Trace Context).
//!
//! An event keeps the trace context of the request that sent it, so that its attempts are in the
//! same trace, even after days and restarts. Without a context, each delivery is a trace of its
//! own. **No random number is needed**: the span of an attempt is computed from the delivery and
//! the attempt's number, so the exporter and the sender get the same span.
//!
//! ```text
//! traceparent = 00 - trace (32 hex digits) - span (16 hex digits) - flags (2 hex digits)
//! ```

use std::fmt;

use crate::hex;
use crate::ids::DeliveryId;
use crate::mixing::STEP;

/// The header that carries a context.
pub const HEADER: &str = "traceparent";

/// The flag "sampled": the trace is being recorded.
const SAMPLED: u8 = 1;

/// A trace, and the parent span in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: [u8; 16],
    span: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// The length of the stored form.
    pub const BYTES: usize = 25;

    /// The context of these identifiers; `None` where one of them is all zeros.
    pub fn new(trace: [u8; 16], span: [u8; 8], is_sampled: bool) -> Option<Self> {
        let flags = if is_sampled { SAMPLED } else { 0 };
        let is_valid = trace != [0; 16] && span != [0; 8];
        is_valid.then_some(TraceContext { trace, span, flags })
    }

    /// Parses the value of a `traceparent`. A malformed one counts as absent, as the specification
    /// says; of a later version the known part is parsed.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (version, flags) =
            (hex::decode::<1>(bytes.get(..2)?)?[0], hex::decode::<1>(bytes.get(53..55)?)?[0]);
        let is_joined = [2, 35, 52].iter().all(|&at| bytes[at] == b'-');
        let is_ended = match version {
            0 => bytes.len() == 55,
            1..=0xfe => bytes.get(55).is_none_or(|next| *next == b'-'),
            0xff => false,
        };
        if !is_joined || !is_ended {
            return None;
        }
        let context = Self::new(hex::decode(&bytes[3..35])?, hex::decode(&bytes[36..52])?, false)?;
        Some(TraceContext { flags: flags & SAMPLED, ..context })
    }

    /// The bytes, as they are stored.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.trace);
        bytes[16..24].copy_from_slice(&self.span);
        bytes[24] = self.flags;
        bytes
    }

    /// The context of stored bytes.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let (trace, rest) = bytes.split_first_chunk()?;
        let (span, rest) = rest.split_first_chunk()?;
        let context = Self::new(*trace, *span, false)?;
        Some(TraceContext { flags: *rest.first()?, ..context })
    }

    /// The context that attempt `number` of a delivery sends, as a child of the event's context.
    pub fn of_attempt(event: Option<TraceContext>, delivery: DeliveryId, number: u32) -> Self {
        let id = delivery.as_bytes();
        let low = id.last_chunk::<8>().map_or(0, |low| u64::from_be_bytes(*low));
        // The step is odd, so no two attempts of a delivery have the same span.
        let span = (low ^ u64::from(number).wrapping_mul(STEP)).max(1).to_be_bytes();
        match event {
            Some(event) => TraceContext { span, ..event },
            None => TraceContext { trace: *id, span, flags: 0 },
        }
    }

    /// The trace.
    pub fn trace(&self) -> [u8; 16] {
        self.trace
    }

    /// The span.
    pub fn span(&self) -> [u8; 8] {
        self.span
    }

    /// Whether the trace is being recorded.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
}

/// The form of the `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every attempt needs one, so it is written digit by digit, which is faster than the
        // formatter.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        let places = (3..35).step_by(2).chain((36..52).step_by(2)).chain([53]);
        for (place, byte) in places.zip(self.trace.iter().chain(&self.span).chain([&self.flags])) {
            [text[place], text[place + 1]] = hex::digits(*byte, DIGITS);
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn delivery() -> DeliveryId {
        "dlv_019a86d99e3877078707070707070707".parse().unwrap()
    }

    #[test]
    fn a_context_is_read_as_the_specification_says() {
        for (text, read) in [
            (GIVEN, Some(GIVEN)),
            // Unknown flags are not passed on.
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-fe",
                Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"),
            ),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Some(GIVEN)),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what", Some(GIVEN)),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01what", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what", None),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0", None),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b-701", None),
            ("00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("", None),
        ] {
            let found = TraceContext::parse(text).map(|context| context.to_string());
            assert_eq!(found.as_deref(), read, "{text}");
        }
    }

    #[test]
    fn an_attempt_continues_the_trace_of_its_event_in_a_span_of_its_own() {
        let event = TraceContext::parse(GIVEN).unwrap();
        let sent = TraceContext::of_attempt(Some(event), delivery(), 1);
        assert_eq!(sent.trace(), event.trace());
        assert_ne!(sent.span(), event.span());
        assert!(sent.is_sampled());
        assert_eq!(sent, TraceContext::of_attempt(Some(event), delivery(), 1));
        let spans: BTreeSet<_> =
            (1..=12).map(|n| TraceContext::of_attempt(Some(event), delivery(), n).span()).collect();
        assert_eq!(spans.len(), 12);
    }

    #[test]
    fn delivery_without_a_context_is_a_trace_of_its_own() {
        let sent = TraceContext::of_attempt(None, delivery(), 3);
        assert_eq!(sent.trace(), *delivery().as_bytes());
        assert!(!sent.is_sampled());
        assert_eq!(TraceContext::parse(&sent.to_string()), Some(sent));
    }

    proptest! {
        #[test]
        fn parsed_context_round_trips_through_text_and_bytes(
            text in prop_oneof![any::<String>(), "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.{0,3}"],
        ) {
            if let Some(context) = TraceContext::parse(&text) {
                prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
                prop_assert_eq!(TraceContext::from_bytes(context.to_bytes()), Some(context));
            }
        }
    }
}
