//! One HTTP request made for a delivery, and how its outcome is classified.
//!
//! A failed attempt is a value, never an `Err`: every way in which a request can end has a variant
//! here, and [`Ending::verdict`] is the only place that says which of them is a success. Faults of
//! our own are distinguished from failures of the destination, because they never count against it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::http_date;
use crate::time::Timestamp;

/// An attempt that has ended, as the transport reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// When it began: before the name was resolved.
    pub started_at: Timestamp,
    /// How long each phase took.
    pub timings: Timings,
    /// How it ended.
    pub ending: Ending,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// A status line and the end of headers arrived in time.
    Answered(Answer),
    /// The destination, or the network on the way to it, failed.
    Failed(Failure),
    /// Postrider itself failed; the destination is not to blame.
    OwnFault(OwnFault),
}

/// A receiver's response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status of the status line.
    pub status: u16,
    /// The header `Retry-After`, if there was one that could be parsed.
    pub retry_after: Option<RetryAfter>,
    /// The first bytes of the body, for the attempt log.
    pub body: Bytes,
    /// Whether `body` is the whole body, and if not, why.
    pub body_end: BodyEnd,
}

/// Why reading a response's body stopped. None of these turns a success into a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyEnd {
    /// The whole body was read.
    Whole,
    /// The body is longer than the limit for the log.
    Cut,
    /// The deadline came before the end of the body.
    Late,
    /// The connection broke, or the body was garbled.
    Broken,
}

/// A failure of the destination, or of the network on the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The class of the failure. This is shown to the tenant.
    pub class: FailureClass,
    /// Details for the operator. Never contains a secret.
    pub detail: String,
}

/// The classes of failures without a response status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// The connection was refused, or there is no route.
    Refused,
    /// The connection was reset or closed before the end of headers.
    Reset,
    /// The name does not resolve.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// The deadline passed in this phase.
    Timeout(Phase),
    /// The address is one that Postrider must not connect to.
    Blocked,
    /// The response is not valid HTTP.
    Protocol,
}

/// The phases of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Resolving the name.
    Dns,
    /// Connecting.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Sending the request.
    Request,
    /// Waiting for the end of the response's headers.
    Response,
}

/// A fault of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFault {
    /// The part of Postrider that failed.
    pub kind: OwnFaultKind,
    /// Details for the operator.
    pub detail: String,
}

/// The parts of Postrider that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnFaultKind {
    /// The configured DNS resolver does not answer.
    Resolver,
    /// The configured egress proxy failed.
    Proxy,
    /// No free port, file descriptor or memory.
    Resources,
    /// The server is shutting down.
    Shutdown,
    /// A bug or broken state, such as a secret that cannot be decrypted.
    Internal,
}

/// The classification of an ending, for the delivery and its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered.
    Success,
    /// Not delivered, and the destination is to blame.
    Failure,
    /// Not delivered, because the receiver says that it is gone for good.
    Gone,
    /// Not delivered, and the fault is ours.
    OwnFault,
}

/// How long each phase took; `None` for a phase that did not happen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// Resolving the name.
    pub dns: Option<Duration>,
    /// Connecting.
    pub connect: Option<Duration>,
    /// The TLS handshake.
    pub tls: Option<Duration>,
    /// From the first byte sent to the end of the response's headers.
    pub response: Option<Duration>,
    /// The whole attempt, including the body.
    pub total: Duration,
    /// The connection that was used.
    pub connection: Connection,
}

/// The connection that an attempt used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// A new connection, opened for this attempt.
    #[default]
    Fresh,
    /// An open connection of the pool.
    Reused,
    /// An open connection that was closed before the first byte of the response; the request was
    /// sent again on a new one.
    Resent,
}

/// When a receiver asks to be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// This long after the response.
    Delay(Duration),
    /// At this time.
    At(Timestamp),
}

impl RetryAfter {
    /// Parses the header's value: whole seconds, or an HTTP date. `now` is needed for dates with a
    /// two-digit year.
    pub fn parse(value: &str, now: Timestamp) -> Option<Self> {
        let value = value.trim();
        if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
            // More digits than fit in a `u64` are a very long time, not an error.
            return Some(RetryAfter::Delay(Duration::from_secs(value.parse().unwrap_or(u64::MAX))));
        }
        http_date::parse(value, now).map(RetryAfter::At)
    }

    /// The time that is meant, for a response that came at `now`.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            RetryAfter::Delay(delay) => now.saturating_add(delay),
            RetryAfter::At(time) => time,
        }
    }
}

impl Ending {
    /// Classifies the ending. Success is a status from 200 to 299 and nothing else.
    pub fn verdict(&self) -> Verdict {
        match self {
            Ending::Answered(Answer { status: 200..=299, .. }) => Verdict::Success,
            Ending::Answered(Answer { status: 410, .. }) => Verdict::Gone,
            Ending::Answered(_) | Ending::Failed(_) => Verdict::Failure,
            Ending::OwnFault(_) => Verdict::OwnFault,
        }
    }

    /// Whether the delivery succeeded.
    pub fn is_success(&self) -> bool {
        match self.verdict() {
            Verdict::Success => true,
            Verdict::Failure | Verdict::Gone | Verdict::OwnFault => false,
        }
    }

    /// When the receiver asks to be retried. Only the header of a 429 or 503 counts.
    pub fn retry_after(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Ending::Answered(Answer { status: 429 | 503, retry_after, .. }) => {
                retry_after.map(|wish| wish.at(now))
            }
            Ending::Answered(_) | Ending::Failed(_) | Ending::OwnFault(_) => None,
        }
    }

    /// The status, if there was a response.
    pub fn status(&self) -> Option<u16> {
        match self {
            Ending::Answered(answer) => Some(answer.status),
            Ending::Failed(_) | Ending::OwnFault(_) => None,
        }
    }
}

/// The kind of an attempt: its place in the delivery's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// The first attempt of a schedule.
    First,
    /// Retry n, in slot n.
    Retry(u32),
    /// The probe of a disabled destination; takes no slot.
    Probe,
    /// An attempt that somebody requested before its slot; takes no slot.
    Manual,
}

impl Turn {
    /// `first`, `retry`, `probe` or `manual`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Turn::First => "first",
            Turn::Retry(_) => "retry",
            Turn::Probe => "probe",
            Turn::Manual => "manual",
        }
    }

    /// The number of the retry, if it is one.
    pub const fn retry(self) -> Option<u32> {
        match self {
            Turn::Retry(number) => Some(number),
            Turn::First | Turn::Probe | Turn::Manual => None,
        }
    }
}

/// An attempt as it is stored. Immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Counted from 1, through probes and replays.
    pub number: u32,
    /// Which turn it was.
    pub turn: Turn,
    /// When it began.
    pub started_at: Timestamp,
    /// How long each phase took.
    pub timings: Timings,
    /// How it ended.
    pub ending: Ending,
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FailureClass::Refused => f.write_str("refused"),
            FailureClass::Reset => f.write_str("reset"),
            FailureClass::Dns => f.write_str("dns"),
            FailureClass::Tls => f.write_str("tls"),
            FailureClass::Timeout(phase) => write!(f, "timeout ({phase})"),
            FailureClass::Blocked => f.write_str("blocked"),
            FailureClass::Protocol => f.write_str("protocol"),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Dns => "dns",
            Phase::Connect => "connect",
            Phase::Tls => "tls",
            Phase::Request => "request",
            Phase::Response => "response",
        })
    }
}

impl fmt::Display for OwnFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OwnFaultKind::Resolver => "our resolver",
            OwnFaultKind::Proxy => "our proxy",
            OwnFaultKind::Resources => "our resources",
            OwnFaultKind::Shutdown => "our shutdown",
            OwnFaultKind::Internal => "our own error",
        })
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Answered(answer) => write!(f, "status {}", answer.status),
            Ending::Failed(failure) => failure.class.fmt(f),
            Ending::OwnFault(fault) => fault.kind.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, retry_after: Option<RetryAfter>) -> Ending {
        Ending::Answered(Answer {
            status,
            retry_after,
            body: Bytes::new(),
            body_end: BodyEnd::Whole,
        })
    }

    #[test]
    fn success_is_200_to_299_and_nothing_else() {
        for status in 100..=599 {
            let expected = match status {
                200..=299 => Verdict::Success,
                410 => Verdict::Gone,
                _ => Verdict::Failure,
            };
            let ending = answered(status, None);
            assert_eq!(ending.verdict(), expected, "{status}");
            assert_eq!(ending.is_success(), expected == Verdict::Success, "{status}");
        }
    }

    #[test]
    fn a_body_never_turns_a_success_into_a_failure() {
        for body_end in [BodyEnd::Whole, BodyEnd::Cut, BodyEnd::Late, BodyEnd::Broken] {
            let body = Bytes::from_static(b"error");
            let ending =
                Ending::Answered(Answer { status: 200, retry_after: None, body, body_end });
            assert_eq!(ending.verdict(), Verdict::Success);
        }
    }

    #[test]
    fn every_other_ending_has_a_class_and_a_description() {
        let failed = |class| Ending::Failed(Failure { class, detail: String::new() });
        let ours = |kind| Ending::OwnFault(OwnFault { kind, detail: String::new() });
        let cases = [
            (failed(FailureClass::Refused), Verdict::Failure, "refused"),
            (failed(FailureClass::Reset), Verdict::Failure, "reset"),
            (failed(FailureClass::Dns), Verdict::Failure, "dns"),
            (failed(FailureClass::Tls), Verdict::Failure, "tls"),
            (failed(FailureClass::Timeout(Phase::Dns)), Verdict::Failure, "timeout (dns)"),
            (failed(FailureClass::Timeout(Phase::Connect)), Verdict::Failure, "timeout (connect)"),
            (failed(FailureClass::Timeout(Phase::Tls)), Verdict::Failure, "timeout (tls)"),
            (failed(FailureClass::Timeout(Phase::Request)), Verdict::Failure, "timeout (request)"),
            (
                failed(FailureClass::Timeout(Phase::Response)),
                Verdict::Failure,
                "timeout (response)",
            ),
            (failed(FailureClass::Blocked), Verdict::Failure, "blocked"),
            (failed(FailureClass::Protocol), Verdict::Failure, "protocol"),
            (ours(OwnFaultKind::Resolver), Verdict::OwnFault, "our resolver"),
            (ours(OwnFaultKind::Proxy), Verdict::OwnFault, "our proxy"),
            (ours(OwnFaultKind::Resources), Verdict::OwnFault, "our resources"),
            (ours(OwnFaultKind::Shutdown), Verdict::OwnFault, "our shutdown"),
            (ours(OwnFaultKind::Internal), Verdict::OwnFault, "our own error"),
            (answered(503, None), Verdict::Failure, "status 503"),
        ];
        for (ending, verdict, words) in cases {
            assert_eq!(ending.verdict(), verdict, "{ending:?}");
            assert_eq!(ending.to_string(), words);
            assert_eq!(ending.status(), if words == "status 503" { Some(503) } else { None });
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let seconds = |n| Some(RetryAfter::Delay(Duration::from_secs(n)));
        let date = Some(RetryAfter::At(Timestamp::from_unix_ms(784_111_777_000)));
        let cases = [
            ("0", seconds(0)),
            (" 120 ", seconds(120)),
            ("99999999999999999999999", seconds(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", date),
            ("Sunday, 06-Nov-94 08:49:37 GMT", date),
            ("Sun Nov  6 08:49:37 1994", date),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(RetryAfter::At(Timestamp::LAST_SHOWN))),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ];
        for (value, expected) in cases {
            assert_eq!(RetryAfter::parse(value, Timestamp::EPOCH), expected, "{value:?}");
        }
    }

    #[test]
    fn only_429_and_503_may_ask_for_a_later_time() {
        let now = Timestamp::from_unix_ms(1_000);
        let wish = Some(RetryAfter::Delay(Duration::from_secs(2)));
        for status in 100..=599 {
            let expected = matches!(status, 429 | 503).then_some(Timestamp::from_unix_ms(3_000));
            assert_eq!(answered(status, wish).retry_after(now), expected, "{status}");
        }
        let at = Some(RetryAfter::At(Timestamp::from_unix_ms(5)));
        assert_eq!(answered(429, at).retry_after(now), Some(Timestamp::from_unix_ms(5)));
        assert_eq!(answered(429, None).retry_after(now), None);
        let forever = Some(RetryAfter::Delay(Duration::MAX));
        assert_eq!(answered(503, forever).retry_after(now), Some(Timestamp::MAX));
        let failed = Ending::Failed(Failure { class: FailureClass::Reset, detail: String::new() });
        assert_eq!(failed.retry_after(now), None);
    }
}
