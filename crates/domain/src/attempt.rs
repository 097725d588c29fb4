//! One HTTP request made for a delivery, and what the way it ended means.
//!
//! A failed attempt is a value, never an `Err`: every way in which a request can end has a variant
//! here, and [`Ending::verdict`] is the only place that says which of them is a success. Faults of
//! our own are told apart from the destination's, because they never count against it.

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
    /// The destination, or the way to it, failed.
    Failed(Failure),
    /// We failed; the destination has no part in it.
    OwnFault(OwnFault),
}

/// What a receiver answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status of the status line.
    pub status: u16,
    /// The header `Retry-After`, where there was one that could be read.
    pub retry_after: Option<RetryAfter>,
    /// The first bytes of the body, for the log.
    pub body: Bytes,
    /// Whether that was all of it.
    pub body_end: BodyEnd,
}

/// Why reading a response's body stopped. None of these turns a success into a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyEnd {
    /// The whole body is in the log.
    Whole,
    /// The body was longer than what is kept of it.
    Cut,
    /// The deadline came before the end of the body.
    Late,
    /// The connection broke, or the body was garbled.
    Broken,
}

/// The destination, or the way to it, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure it was. This is what a tenant is shown.
    pub class: FailureClass,
    /// What helps an operator to find the cause. Never holds a secret.
    pub detail: String,
}

/// The kinds of failure that have no answer with a status.
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
    /// The deadline came, in this phase.
    Timeout(Phase),
    /// The address is one that we do not connect to.
    Blocked,
    /// What came back is not HTTP.
    Protocol,
}

/// Where in an attempt something happened.
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
    /// What of ours failed.
    pub kind: OwnFaultKind,
    /// What helps an operator to find the cause.
    pub detail: String,
}

/// What of ours can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnFaultKind {
    /// Our resolver does not answer.
    Resolver,
    /// The configured egress proxy failed.
    Proxy,
    /// No free port, file or memory.
    Resources,
    /// The server is stopping.
    Shutdown,
    /// Something of ours that should not happen, such as a secret that cannot be read.
    Internal,
}

/// What an ending means for the delivery and its destination.
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

/// How long each phase took; `None` where the attempt had no such phase or did not get there.
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
    /// All of it, the body included.
    pub total: Duration,
    /// What connection carried it.
    pub connection: Connection,
}

/// What connection carried an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// One that was opened for it.
    #[default]
    Fresh,
    /// One that was open already.
    Reused,
    /// A reused one died before the first byte of the answer, and the request was sent once more.
    Resent,
}

/// When a receiver wants to be asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAfter {
    /// So long after the answer.
    Delay(Duration),
    /// At this time.
    At(Timestamp),
}

impl RetryAfter {
    /// Reads the header's value: whole seconds, or an HTTP date. `now` is the time of day, which a
    /// year of two digits is read by.
    pub fn parse(value: &str, now: Timestamp) -> Option<Self> {
        let value = value.trim();
        if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
            // More digits than fit are a very long time, not an error.
            return Some(RetryAfter::Delay(Duration::from_secs(value.parse().unwrap_or(u64::MAX))));
        }
        http_date::parse(value, now).map(RetryAfter::At)
    }

    /// The time that is meant, where the answer came at `now`.
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            RetryAfter::Delay(delay) => now.saturating_add(delay),
            RetryAfter::At(time) => time,
        }
    }
}

impl Ending {
    /// What this ending means. Success is a status from 200 to 299 and nothing else.
    pub fn verdict(&self) -> Verdict {
        match self {
            Ending::Answered(Answer { status: 200..=299, .. }) => Verdict::Success,
            Ending::Answered(Answer { status: 410, .. }) => Verdict::Gone,
            Ending::Answered(_) | Ending::Failed(_) => Verdict::Failure,
            Ending::OwnFault(_) => Verdict::OwnFault,
        }
    }

    /// Whether the delivery arrived.
    pub fn is_success(&self) -> bool {
        match self.verdict() {
            Verdict::Success => true,
            Verdict::Failure | Verdict::Gone | Verdict::OwnFault => false,
        }
    }

    /// When the receiver wants to be asked again: only 429 and 503 may say so.
    pub fn retry_after(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Ending::Answered(Answer { status: 429 | 503, retry_after, .. }) => {
                retry_after.map(|wish| wish.at(now))
            }
            Ending::Answered(_) | Ending::Failed(_) | Ending::OwnFault(_) => None,
        }
    }

    /// The status, where there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Ending::Answered(answer) => Some(answer.status),
            Ending::Failed(_) | Ending::OwnFault(_) => None,
        }
    }
}

/// Which place in its delivery's schedule an attempt takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// The first of a schedule.
    First,
    /// Retry n, in slot n.
    Retry(u32),
    /// The probe of a disabled destination; takes no slot.
    Probe,
    /// Somebody asked for it, before its slot; takes no slot.
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

    /// The number of the retry, where it is one.
    pub const fn retry(self) -> Option<u32> {
        match self {
            Turn::Retry(number) => Some(number),
            Turn::First | Turn::Probe | Turn::Manual => None,
        }
    }
}

/// An attempt as it is kept. Immutable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// From 1; goes on counting through probes and replays.
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
    fn every_other_ending_has_its_class_and_its_words() {
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
