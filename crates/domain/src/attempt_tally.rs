//! What the attempts of one destination came to, hour by hour: counts by outcome, response times, and the last
//! attempts themselves.
//!
//! Times are counted into few classes ([`AttemptTally`]), so that tallies of many hours can be added up and still
//! tell percentiles. **All stores use these functions, so that they count alike.** An attempt belongs to the hour in
//! which it began.

use std::time::Duration;

use crate::attempt::{Attempt, Ending, FailureClass, Phase};
use crate::limits::RECENT_ATTEMPTS_MAX;
use crate::time::Timestamp;

/// Milliseconds of an hour.
pub const HOUR_MS: i64 = 3_600_000;

/// The hour of a time, counted from the Unix epoch.
pub fn hour_of(time: Timestamp) -> i64 {
    time.as_unix_ms().div_euclid(HOUR_MS)
}

/// The start of an hour that is counted from the Unix epoch.
pub fn start_of(hour: i64) -> Timestamp {
    Timestamp::from_unix_ms(hour.saturating_mul(HOUR_MS))
}

/// The first hour that begins at this time or later.
pub fn first_hour(time: Timestamp) -> i64 {
    hour_of(time) + i64::from(time.as_unix_ms().rem_euclid(HOUR_MS) != 0)
}

/// How an attempt ended, as far as statistics distinguish it. The numbers are stored: never change one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OutcomeClass {
    /// A status from 200 to 299.
    Delivered = 0,
    /// A status from 300 to 399: redirects are not followed.
    Status3xx = 1,
    /// A status from 400 to 499 that has no class of its own.
    Status4xx = 2,
    /// The status 410: the receiver is gone for good.
    Status410 = 3,
    /// The status 429: the receiver wants fewer requests.
    Status429 = 4,
    /// A status from 500 to 599.
    Status5xx = 5,
    /// Any other status.
    StatusOther = 6,
    /// The connection was refused, or there is no route.
    Refused = 7,
    /// The connection was reset or closed before the end of headers.
    Reset = 8,
    /// The name does not resolve.
    Dns = 9,
    /// The TLS handshake failed.
    Tls = 10,
    /// The deadline passed while the name was resolved.
    TimeoutDns = 11,
    /// The deadline passed while connecting.
    TimeoutConnect = 12,
    /// The deadline passed in the TLS handshake.
    TimeoutTls = 13,
    /// The deadline passed while the request was sent.
    TimeoutRequest = 14,
    /// The deadline passed before the end of the response's headers.
    TimeoutResponse = 15,
    /// The address is one that Postrider must not connect to.
    Blocked = 16,
    /// The response is not valid HTTP.
    Protocol = 17,
    /// Postrider itself failed; the destination is not to blame.
    OwnFault = 18,
}

impl OutcomeClass {
    /// All of them, by number.
    pub const ALL: [OutcomeClass; 19] = [
        OutcomeClass::Delivered,
        OutcomeClass::Status3xx,
        OutcomeClass::Status4xx,
        OutcomeClass::Status410,
        OutcomeClass::Status429,
        OutcomeClass::Status5xx,
        OutcomeClass::StatusOther,
        OutcomeClass::Refused,
        OutcomeClass::Reset,
        OutcomeClass::Dns,
        OutcomeClass::Tls,
        OutcomeClass::TimeoutDns,
        OutcomeClass::TimeoutConnect,
        OutcomeClass::TimeoutTls,
        OutcomeClass::TimeoutRequest,
        OutcomeClass::TimeoutResponse,
        OutcomeClass::Blocked,
        OutcomeClass::Protocol,
        OutcomeClass::OwnFault,
    ];

    /// The class of an ending.
    pub fn of(ending: &Ending) -> Self {
        if ending.is_success() {
            return OutcomeClass::Delivered;
        }
        match ending {
            Ending::Answered(answer) => match answer.status {
                300..=399 => OutcomeClass::Status3xx,
                410 => OutcomeClass::Status410,
                429 => OutcomeClass::Status429,
                400..=499 => OutcomeClass::Status4xx,
                500..=599 => OutcomeClass::Status5xx,
                _ => OutcomeClass::StatusOther,
            },
            Ending::Failed(failure) => match failure.class {
                FailureClass::Refused => OutcomeClass::Refused,
                FailureClass::Reset => OutcomeClass::Reset,
                FailureClass::Dns => OutcomeClass::Dns,
                FailureClass::Tls => OutcomeClass::Tls,
                FailureClass::Timeout(Phase::Dns) => OutcomeClass::TimeoutDns,
                FailureClass::Timeout(Phase::Connect) => OutcomeClass::TimeoutConnect,
                FailureClass::Timeout(Phase::Tls) => OutcomeClass::TimeoutTls,
                FailureClass::Timeout(Phase::Request) => OutcomeClass::TimeoutRequest,
                FailureClass::Timeout(Phase::Response) => OutcomeClass::TimeoutResponse,
                FailureClass::Blocked => OutcomeClass::Blocked,
                FailureClass::Protocol => OutcomeClass::Protocol,
            },
            Ending::OwnFault(_) => OutcomeClass::OwnFault,
        }
    }

    /// The class with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        OutcomeClass::ALL.get(usize::from(number)).copied()
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            OutcomeClass::Delivered => "delivered",
            OutcomeClass::Status3xx => "status_3xx",
            OutcomeClass::Status4xx => "status_4xx",
            OutcomeClass::Status410 => "status_410",
            OutcomeClass::Status429 => "status_429",
            OutcomeClass::Status5xx => "status_5xx",
            OutcomeClass::StatusOther => "status_other",
            OutcomeClass::Refused => "refused",
            OutcomeClass::Reset => "reset",
            OutcomeClass::Dns => "dns",
            OutcomeClass::Tls => "tls",
            OutcomeClass::TimeoutDns => "timeout_dns",
            OutcomeClass::TimeoutConnect => "timeout_connect",
            OutcomeClass::TimeoutTls => "timeout_tls",
            OutcomeClass::TimeoutRequest => "timeout_request",
            OutcomeClass::TimeoutResponse => "timeout_response",
            OutcomeClass::Blocked => "blocked",
            OutcomeClass::Protocol => "protocol",
            OutcomeClass::OwnFault => "own_fault",
        }
    }
}

/// How many classes of response times there are: up to 1 ms, then two for each doubling.
pub const TIME_CLASSES: usize = 35;

/// The class of a response time. The limits of classes are stored implicitly: never change them.
fn time_class(ms: u64) -> usize {
    let Some(exponent) = ms.checked_ilog2() else { return 0 };
    if exponent > 16 {
        return TIME_CLASSES - 1;
    }
    // The upper half begins at the square root of two times the power.
    let is_upper = ms * ms >= 2_u64 << (2 * exponent);
    1 + 2 * usize::try_from(exponent).unwrap_or(0) + usize::from(is_upper)
}

/// The least time of a class in milliseconds.
fn time_floor(class: usize) -> u64 {
    let Some(steps) = class.checked_sub(1) else { return 0 };
    let power = 1_u64 << (steps / 2);
    if steps % 2 == 0 { power } else { (2 * power * power).isqrt() + 1 }
}

/// Counts of attempts by outcome, and of response times by class. Only attempts that were answered have a response
/// time: how quickly a connection is refused says nothing about the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptTally {
    /// Attempts by the number of their [`OutcomeClass`].
    pub outcomes: [u64; OutcomeClass::ALL.len()],
    /// Answered attempts by the class of the whole attempt's duration.
    pub times: [u64; TIME_CLASSES],
}

impl Default for AttemptTally {
    fn default() -> Self {
        AttemptTally { outcomes: [0; OutcomeClass::ALL.len()], times: [0; TIME_CLASSES] }
    }
}

impl AttemptTally {
    fn count(&mut self, attempt: &RecentAttempt) {
        self.outcomes[usize::from(attempt.class.number())] += 1;
        if attempt.status.is_some() {
            self.times[time_class(u64::from(attempt.duration_ms))] += 1;
        }
    }

    /// Counts a time alone, without an outcome.
    pub fn count_time(&mut self, took: Duration) {
        self.times[time_class(u64::try_from(took.as_millis()).unwrap_or(u64::MAX))] += 1;
    }

    /// How many times were counted.
    pub fn times_counted(&self) -> u64 {
        self.times.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Adds the counts of another tally.
    pub fn add(&mut self, other: &AttemptTally) {
        let sum = |mine: &mut u64, theirs: &u64| *mine = mine.saturating_add(*theirs);
        self.outcomes.iter_mut().zip(&other.outcomes).for_each(|(mine, theirs)| sum(mine, theirs));
        self.times.iter_mut().zip(&other.times).for_each(|(mine, theirs)| sum(mine, theirs));
    }

    /// The attempts with an outcome of this class.
    pub fn of(&self, class: OutcomeClass) -> u64 {
        self.outcomes[usize::from(class.number())]
    }

    /// All attempts.
    pub fn attempts(&self) -> u64 {
        self.outcomes.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// Attempts that failed by the destination's fault, or by the network's on the way to it.
    pub fn failures(&self) -> u64 {
        self.attempts() - self.of(OutcomeClass::Delivered) - self.of(OutcomeClass::OwnFault)
    }

    /// The classes of failures that occurred, faults of our own included, most frequent first.
    pub fn failure_classes(&self) -> Vec<(OutcomeClass, u64)> {
        let all = OutcomeClass::ALL.into_iter().skip(1).map(|class| (class, self.of(class)));
        let mut found: Vec<_> = all.filter(|(_, count)| *count > 0).collect();
        found.sort_by_key(|(class, count)| (std::cmp::Reverse(*count), *class));
        found
    }

    /// The response time that this many thousandths of the answered attempts did not exceed, rounded to the
    /// millisecond; `None` where none was answered. It is interpolated within its class, so it may be off by a fifth.
    pub fn percentile(&self, thousandths: u32) -> Option<Duration> {
        let answered = self.times.iter().fold(0_u128, |sum, n| sum + u128::from(*n));
        let rank = (answered * u128::from(thousandths)).div_ceil(1_000).clamp(1, answered.max(1));
        let mut before = 0_u128;
        for (class, count) in self.times.iter().enumerate() {
            let count = u128::from(*count);
            if count > 0 && before + count >= rank {
                let (low, high) = (time_floor(class), time_floor(class + 1));
                let within = u128::from(high - low) * (rank - before);
                let within = u64::try_from(within.div_ceil(count)).unwrap_or(u64::MAX);
                return Some(Duration::from_millis(low + within));
            }
            before += count;
        }
        None
    }
}

/// What is kept of one of a destination's last attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentAttempt {
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took.
    pub duration_ms: u32,
    /// How it ended.
    pub class: OutcomeClass,
    /// The status, where it was answered.
    pub status: Option<u16>,
}

impl RecentAttempt {
    /// What is kept of an attempt.
    pub fn of(attempt: &Attempt) -> Self {
        RecentAttempt {
            started_at: attempt.started_at,
            duration_ms: u32::try_from(attempt.timings.total.as_millis()).unwrap_or(u32::MAX),
            class: OutcomeClass::of(&attempt.ending),
            status: attempt.ending.status(),
        }
    }
}

/// The attempts of a destination that began in one hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttemptHour {
    /// All of them, counted.
    pub tally: AttemptTally,
    /// The last of them, in the order in which they were settled, at most [`RECENT_ATTEMPTS_MAX`].
    pub recent: Vec<RecentAttempt>,
}

impl AttemptHour {
    /// Counts an attempt that was settled after all others.
    pub fn count(&mut self, attempt: &Attempt) {
        let attempt = RecentAttempt::of(attempt);
        self.tally.count(&attempt);
        // Of a long row of attempts, only every thirtieth moves the others.
        if self.recent.len() >= 2 * RECENT_ATTEMPTS_MAX {
            self.recent.drain(..=RECENT_ATTEMPTS_MAX);
        }
        self.recent.push(attempt);
    }

    /// Adds the attempts of the same hour that were settled later.
    pub fn append(&mut self, later: &AttemptHour) {
        self.tally.add(&later.tally);
        self.recent.extend_from_slice(&later.recent);
        self.trim();
    }

    /// Drops all but the last attempts. [`AttemptHour::count`] leaves some more for speed.
    pub fn trim(&mut self) {
        let surplus = self.recent.len().saturating_sub(RECENT_ATTEMPTS_MAX);
        self.recent.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::attempt::{
        Answer, BodyEnd, Failure, OwnFault, OwnFaultKind, Timings, Turn, Verdict,
    };

    fn answered(status: u16) -> Ending {
        Ending::Answered(Answer {
            status,
            retry_after: None,
            body: Bytes::new(),
            body_end: BodyEnd::Whole,
        })
    }

    fn failed(class: FailureClass) -> Ending {
        Ending::Failed(Failure { class, detail: String::new() })
    }

    fn attempt(at: i64, ms: u64, ending: Ending) -> Attempt {
        let timings = Timings { total: Duration::from_millis(ms), ..Timings::default() };
        let started_at = Timestamp::from_unix_ms(at);
        Attempt { number: 1, turn: Turn::First, started_at, timings, ending }
    }

    #[test]
    fn every_ending_has_a_class_that_agrees_with_its_verdict() {
        let statuses = (100..=999).map(answered);
        let classes = [
            FailureClass::Refused,
            FailureClass::Reset,
            FailureClass::Dns,
            FailureClass::Tls,
            FailureClass::Timeout(Phase::Dns),
            FailureClass::Timeout(Phase::Connect),
            FailureClass::Timeout(Phase::Tls),
            FailureClass::Timeout(Phase::Request),
            FailureClass::Timeout(Phase::Response),
            FailureClass::Blocked,
            FailureClass::Protocol,
        ];
        let kind = OwnFaultKind::Proxy;
        let ours = Ending::OwnFault(OwnFault { kind, detail: String::new() });
        let mut seen = std::collections::BTreeSet::new();
        for ending in statuses.chain(classes.map(failed)).chain([ours]) {
            let class = OutcomeClass::of(&ending);
            let expected = match ending.verdict() {
                Verdict::Success => class == OutcomeClass::Delivered,
                Verdict::Gone => class == OutcomeClass::Status410,
                Verdict::OwnFault => class == OutcomeClass::OwnFault,
                Verdict::Failure => !matches!(
                    class,
                    OutcomeClass::Delivered | OutcomeClass::Status410 | OutcomeClass::OwnFault
                ),
            };
            assert!(expected, "{ending}: {}", class.as_str());
            seen.insert(class);
        }
        assert_eq!(seen.len(), OutcomeClass::ALL.len(), "each class has an ending");
        for (number, class) in (0..).zip(OutcomeClass::ALL) {
            assert_eq!((class.number(), OutcomeClass::from_number(number)), (number, Some(class)));
        }
        assert_eq!(OutcomeClass::from_number(19), None);
    }

    #[test]
    fn classes_of_times_follow_each_other_without_a_gap() {
        assert_eq!((time_class(0), time_class(1), time_class(2), time_class(3)), (0, 1, 3, 4));
        let mut last = 0;
        for ms in 0..200_000 {
            let class = time_class(ms);
            assert!(class >= last && class < TIME_CLASSES);
            assert!(time_floor(class) <= ms, "{ms}");
            assert!(ms < time_floor(class + 1) || class == TIME_CLASSES - 1, "{ms}");
            last = class;
        }
        assert_eq!((time_class(u64::MAX), last), (TIME_CLASSES - 1, TIME_CLASSES - 1));
    }

    #[test]
    fn hours_begin_at_multiples_and_a_time_within_one_belongs_to_it() {
        let at = Timestamp::from_unix_ms;
        let cases = [(0, 0, 0), (1, 0, 1), (HOUR_MS - 1, 0, 1), (HOUR_MS, 1, 1), (-1, -1, 0)];
        for (ms, hour, first) in cases {
            assert_eq!((hour_of(at(ms)), first_hour(at(ms))), (hour, first), "{ms}");
        }
        assert_eq!(start_of(2), at(2 * HOUR_MS));
    }

    #[test]
    fn only_answered_attempts_have_a_response_time() {
        let mut hour = AttemptHour::default();
        hour.count(&attempt(0, 100, answered(200)));
        hour.count(&attempt(1, 100, answered(503)));
        hour.count(&attempt(2, 1, failed(FailureClass::Refused)));
        assert_eq!(hour.tally.times.iter().sum::<u64>(), 2);
        assert_eq!((hour.tally.attempts(), hour.tally.failures()), (3, 2));
        let classes = [(OutcomeClass::Status5xx, 1), (OutcomeClass::Refused, 1)];
        assert_eq!(hour.tally.failure_classes(), classes);
        let median = hour.tally.percentile(500).unwrap();
        assert!((91..=128).contains(&median.as_millis()), "{median:?}");
        assert_eq!(AttemptTally::default().percentile(500), None);
    }

    #[test]
    fn recent_attempts_are_the_last_ones_however_they_were_added() {
        let all: Vec<Attempt> = (0..200).map(|n| attempt(n, 5, answered(200))).collect();
        let mut whole = AttemptHour::default();
        all.iter().for_each(|one| whole.count(one));
        whole.trim();
        let mut parts = AttemptHour::default();
        for chunk in all.chunks(7) {
            let mut part = AttemptHour::default();
            chunk.iter().for_each(|one| part.count(one));
            parts.append(&part);
        }
        assert_eq!(whole, parts);
        let times: Vec<i64> = whole.recent.iter().map(|one| one.started_at.as_unix_ms()).collect();
        assert_eq!(times, (170..200).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn percentiles_are_within_a_class_of_the_true_ones(
            mut times in proptest::collection::vec(0u64..90_000, 1..300),
            thousandths in 1u32..=1000,
        ) {
            let mut hour = AttemptHour::default();
            times.iter().for_each(|ms| hour.count(&attempt(0, *ms, answered(200))));
            times.sort_unstable();
            let rank = (times.len() * usize::try_from(thousandths).unwrap()).div_ceil(1000).max(1);
            let class = time_class(times[rank - 1]);
            let told = u64::try_from(hour.tally.percentile(thousandths).unwrap().as_millis());
            let told = told.unwrap();
            prop_assert!(time_floor(class) <= told && told <= time_floor(class + 1));
        }
    }
}
