//! Encodes attempts with every kind of outcome.

use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{
    Answer, Attempt, BodyEnd, Connection, Ending, Failure, FailureClass, OwnFault, OwnFaultKind,
    Phase, RetryAfter, Timings, Turn,
};
use postrider_domain::ids::DeliveryId;

use super::{Decoder, Encoder, Malformed};
use crate::embedded::files::rows::attempt_sum;

const SUM_BYTES: usize = 4;

pub(in crate::embedded) fn put_attempt(out: &mut Encoder, attempt: &Attempt) {
    out.unsigned(u64::from(attempt.number));
    match attempt.turn {
        Turn::First => out.byte(0),
        Turn::Retry(number) => {
            out.byte(1);
            out.unsigned(u64::from(number));
        }
        Turn::Probe => out.byte(2),
        Turn::Manual => out.byte(3),
    }
    out.time(attempt.started_at);
    put_timings(out, &attempt.timings);
    match &attempt.ending {
        Ending::Answered(answer) => {
            out.byte(0);
            put_answer(out, answer);
        }
        Ending::Failed(failure) => {
            out.byte(1);
            put_class(out, failure.class);
            out.text(&failure.detail);
        }
        Ending::OwnFault(fault) => {
            out.byte(2);
            out.byte(match fault.kind {
                OwnFaultKind::Resolver => 0,
                OwnFaultKind::Proxy => 1,
                OwnFaultKind::Resources => 2,
                OwnFaultKind::Shutdown => 3,
                OwnFaultKind::Internal => 4,
            });
            out.text(&fault.detail);
        }
    }
}

/// Encodes an attempt that is stored inside the row of its delivery: the checksum, then the
/// attempt.
pub(in crate::embedded) fn put_first_attempt(
    out: &mut Encoder,
    delivery: DeliveryId,
    attempt: &Attempt,
) {
    out.fixed(&[0; SUM_BYTES]);
    put_attempt(out, attempt);
    if let Some((sum, body)) = out.0.split_first_chunk_mut::<SUM_BYTES>() {
        *sum = attempt_sum(delivery.as_bytes(), body).to_le_bytes();
    }
}

/// Decodes the attempt that is stored inside the row of this delivery.
pub(in crate::embedded) fn get_first_attempt(
    mut bytes: Bytes,
    delivery: DeliveryId,
) -> Result<Attempt, Malformed> {
    if bytes.len() < SUM_BYTES {
        return Err(Malformed("it ends too early"));
    }
    let body = bytes.split_off(SUM_BYTES);
    if *bytes != attempt_sum(delivery.as_bytes(), &body).to_le_bytes() {
        return Err(Malformed("its checksum is wrong"));
    }
    get_attempt(&mut Decoder::new(body))
}

pub(in crate::embedded) fn get_attempt(from: &mut Decoder) -> Result<Attempt, Malformed> {
    let number = from.number()?;
    let turn = match from.byte()? {
        0 => Turn::First,
        1 => Turn::Retry(from.number()?),
        2 => Turn::Probe,
        3 => Turn::Manual,
        4.. => return Err(Malformed("an unknown turn")),
    };
    let started_at = from.time()?;
    let timings = get_timings(from)?;
    let ending = match from.byte()? {
        0 => Ending::Answered(get_answer(from)?),
        1 => Ending::Failed(Failure { class: get_class(from)?, detail: from.parse()? }),
        2 => {
            let kind = match from.byte()? {
                0 => OwnFaultKind::Resolver,
                1 => OwnFaultKind::Proxy,
                2 => OwnFaultKind::Resources,
                3 => OwnFaultKind::Shutdown,
                4 => OwnFaultKind::Internal,
                5.. => return Err(Malformed("an unknown fault of our own")),
            };
            Ending::OwnFault(OwnFault { kind, detail: from.parse()? })
        }
        3.. => return Err(Malformed("an unknown ending")),
    };
    Ok(Attempt { number, turn, started_at, timings, ending })
}

fn put_answer(out: &mut Encoder, answer: &Answer) {
    out.unsigned(u64::from(answer.status));
    match answer.retry_after {
        None => out.byte(0),
        Some(RetryAfter::Delay(delay)) => {
            out.byte(1);
            put_duration(out, delay);
        }
        Some(RetryAfter::At(time)) => {
            out.byte(2);
            out.time(time);
        }
    }
    out.byte(match answer.body_end {
        BodyEnd::Whole => 0,
        BodyEnd::Cut => 1,
        BodyEnd::Late => 2,
        BodyEnd::Broken => 3,
    });
    out.bytes(&answer.body);
}

fn get_answer(from: &mut Decoder) -> Result<Answer, Malformed> {
    let status = from.number()?;
    let retry_after = match from.byte()? {
        0 => None,
        1 => Some(RetryAfter::Delay(get_duration(from)?)),
        2 => Some(RetryAfter::At(from.time()?)),
        3.. => return Err(Malformed("an unknown wish for a retry")),
    };
    let body_end = match from.byte()? {
        0 => BodyEnd::Whole,
        1 => BodyEnd::Cut,
        2 => BodyEnd::Late,
        3 => BodyEnd::Broken,
        4.. => return Err(Malformed("an unknown end of a body")),
    };
    Ok(Answer { status, retry_after, body: from.bytes()?, body_end })
}

fn put_class(out: &mut Encoder, class: FailureClass) {
    out.byte(match class {
        FailureClass::Refused => 0,
        FailureClass::Reset => 1,
        FailureClass::Dns => 2,
        FailureClass::Tls => 3,
        FailureClass::Timeout(Phase::Dns) => 4,
        FailureClass::Timeout(Phase::Connect) => 5,
        FailureClass::Timeout(Phase::Tls) => 6,
        FailureClass::Timeout(Phase::Request) => 7,
        FailureClass::Timeout(Phase::Response) => 8,
        FailureClass::Blocked => 9,
        FailureClass::Protocol => 10,
    });
}

fn get_class(from: &mut Decoder) -> Result<FailureClass, Malformed> {
    Ok(match from.byte()? {
        0 => FailureClass::Refused,
        1 => FailureClass::Reset,
        2 => FailureClass::Dns,
        3 => FailureClass::Tls,
        4 => FailureClass::Timeout(Phase::Dns),
        5 => FailureClass::Timeout(Phase::Connect),
        6 => FailureClass::Timeout(Phase::Tls),
        7 => FailureClass::Timeout(Phase::Request),
        8 => FailureClass::Timeout(Phase::Response),
        9 => FailureClass::Blocked,
        10 => FailureClass::Protocol,
        11.. => return Err(Malformed("an unknown failure")),
    })
}

fn put_timings(out: &mut Encoder, timings: &Timings) {
    for phase in [timings.dns, timings.connect, timings.tls, timings.response] {
        out.option(phase, put_duration);
    }
    put_duration(out, timings.total);
    out.byte(match timings.connection {
        Connection::Fresh => 0,
        Connection::Reused => 1,
        Connection::Resent => 2,
    });
}

fn get_timings(from: &mut Decoder) -> Result<Timings, Malformed> {
    let mut phase = || from.option(get_duration);
    let (dns, connect, tls, response) = (phase()?, phase()?, phase()?, phase()?);
    let total = get_duration(from)?;
    let connection = match from.byte()? {
        0 => Connection::Fresh,
        1 => Connection::Reused,
        2 => Connection::Resent,
        3.. => return Err(Malformed("an unknown connection")),
    };
    Ok(Timings { dns, connect, tls, response, total, connection })
}

fn put_duration(out: &mut Encoder, duration: Duration) {
    out.unsigned(duration.as_secs());
    out.unsigned(u64::from(duration.subsec_nanos()));
}

fn get_duration(from: &mut Decoder) -> Result<Duration, Malformed> {
    let (seconds, nanos) = (from.unsigned()?, from.number::<u32>()?);
    if nanos >= 1_000_000_000 {
        return Err(Malformed("a duration has too many nanoseconds"));
    }
    Ok(Duration::new(seconds, nanos))
}
