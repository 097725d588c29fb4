//! Events, deliveries, batches of acceptances, commits and replay jobs.

use std::sync::Arc;

use postrider_domain::catalogue::EventMark;
use postrider_domain::circuit::{Circuit, CircuitState, Counters, Suspended};
use postrider_domain::delivery::{CancelReason, DeadReason, DeliveryState, StateName};
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, SubscriptionId};
use postrider_domain::job_outcomes::{ByJob, JobOutcomes};
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::trace::TraceContext;

use super::attempt::{get_attempt, put_attempt};
use super::{Decoder, Encoder, Malformed, VERSION};
use crate::embedded::files::rows::delivery::{
    get_delivery, get_delivery_body, put_delivery, put_delivery_body,
};
use crate::records::{
    Acceptance, Commit, DeliveryChange, DeliveryFilter, DestinationChange, ReplayJob, ReplayState,
};

/// The number by which a state is stored.
pub(in crate::embedded) const fn state_number(state: StateName) -> u8 {
    match state {
        StateName::Queued => 0,
        StateName::Waiting => 1,
        StateName::Delivered => 2,
        StateName::Dead => 3,
        StateName::Cancelled => 4,
        StateName::InFlight => 5,
    }
}

fn get_state_name(from: &mut Decoder) -> Result<StateName, Malformed> {
    state_of(from.byte()?)
}

fn state_of(number: u8) -> Result<StateName, Malformed> {
    let known = StateName::ALL.into_iter().find(|state| state_number(*state) == number);
    known.ok_or(Malformed("an unknown state"))
}

/// A flag in the number of a slot: an attempt was requested before the slot, and the slot's own
/// time follows.
const AHEAD: u64 = 1 << 32;
/// Another one: a bulk job sent the delivery, and its identifier follows.
const BY_JOB: u64 = 1 << 33;
/// With [`BY_JOB`]: an attempt has failed since.
const HAS_FAILED: u64 = 1 << 34;

fn job_flags(by_job: Option<ByJob>) -> u64 {
    match by_job {
        None => 0,
        Some(ByJob { has_failed: false, .. }) => BY_JOB,
        Some(ByJob { has_failed: true, .. }) => BY_JOB | HAS_FAILED,
    }
}

fn get_by_job(flags: u64, from: &mut Decoder) -> Result<Option<ByJob>, Malformed> {
    let has_failed = flags & HAS_FAILED != 0;
    match flags & BY_JOB {
        0 if has_failed => Err(Malformed("a failure of no job")),
        0 => Ok(None),
        _ => Ok(Some(ByJob { job: ReplayId::from_bytes(from.fixed()?), has_failed })),
    }
}

pub(in crate::embedded) fn put_state(out: &mut Encoder, state: &DeliveryState) {
    out.byte(state_number(state.name()));
    match *state {
        DeliveryState::Queued => {}
        DeliveryState::Waiting(slot) => {
            let flag = if slot.ahead_of.is_some() { AHEAD } else { 0 };
            out.unsigned(u64::from(slot.number) | flag | job_flags(slot.by_job));
            out.time(slot.due_at);
            out.time(slot.clock.anchor_at);
            out.time(slot.clock.previous_at);
            if let Some(at) = slot.ahead_of {
                out.time(at);
            }
            if let Some(by_job) = slot.by_job {
                out.fixed(by_job.job.as_bytes());
            }
        }
        DeliveryState::Delivered { at } => out.time(at),
        DeliveryState::Dead { at, reason } => {
            out.time(at);
            out.byte(match reason {
                DeadReason::Exhausted => 0,
                DeadReason::NotAdmitted => 1,
            });
        }
        DeliveryState::Cancelled { at, reason } => {
            out.time(at);
            out.byte(match reason {
                CancelReason::Asked => 0,
                CancelReason::SubscriptionDeleted => 1,
            });
        }
    }
}

pub(in crate::embedded) fn get_state(from: &mut Decoder) -> Result<DeliveryState, Malformed> {
    Ok(match get_state_name(from)? {
        StateName::Queued => DeliveryState::Queued,
        StateName::Waiting => {
            let flagged = from.unsigned()?;
            let due_at = from.time()?;
            let clock = ScheduleClock { anchor_at: from.time()?, previous_at: from.time()? };
            let ahead_of = if flagged & AHEAD == 0 { None } else { Some(from.time()?) };
            let by_job = get_by_job(flagged, from)?;
            let number = flagged & !(AHEAD | BY_JOB | HAS_FAILED);
            let number = u32::try_from(number).map_err(|_| Malformed("a number"))?;
            DeliveryState::Waiting(Slot { number, due_at, clock, ahead_of, by_job })
        }
        StateName::Delivered => DeliveryState::Delivered { at: from.time()? },
        StateName::Dead => {
            let at = from.time()?;
            let reason = match from.byte()? {
                0 => DeadReason::Exhausted,
                1 => DeadReason::NotAdmitted,
                2.. => return Err(Malformed("an unknown reason")),
            };
            DeliveryState::Dead { at, reason }
        }
        StateName::Cancelled => {
            let at = from.time()?;
            let reason = match from.byte()? {
                0 => CancelReason::Asked,
                1 => CancelReason::SubscriptionDeleted,
                2.. => return Err(Malformed("an unknown reason")),
            };
            DeliveryState::Cancelled { at, reason }
        }
        StateName::InFlight => return Err(Malformed("a state that is not stored")),
    })
}

pub(in crate::embedded) fn put_event(out: &mut Encoder, event: &Event) {
    out.text(event.tenant.as_str());
    out.text(event.id.as_str());
    out.text(event.kind.as_str());
    out.option(event.object.as_ref(), |out, object| out.text(object.as_str()));
    out.time(event.time);
    out.bytes(event.data.as_bytes());
    out.option(event.old.as_ref(), |out, old| out.bytes(old.as_bytes()));
}

fn get_event(from: &mut Decoder) -> Result<Event, Malformed> {
    Ok(Event {
        tenant: from.parse()?,
        id: from.parse()?,
        kind: from.parse()?,
        object: from.option(Decoder::parse)?,
        time: from.time()?,
        data: RawJson::from_trusted(from.bytes()?),
        old: from.option(Decoder::bytes)?.map(RawJson::from_trusted),
        trace: None,
    })
}

/// The checksum of an event's row, computed from all its values, each with its length.
pub(in crate::embedded) fn event_sum(
    scratch: &mut Encoder,
    (event, mark): (&Event, &EventMark),
    accepted_at: postrider_domain::time::Timestamp,
    fingerprint: &[u8; 32],
    deliveries: &[u8],
) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    scratch.clear();
    scratch.text(event.tenant.as_str());
    scratch.text(event.id.as_str());
    scratch.text(event.kind.as_str());
    scratch.option(event.object.as_ref(), |out, object| out.text(object.as_str()));
    scratch.time(event.time);
    scratch.time(accepted_at);
    scratch.fixed(fingerprint);
    scratch.bytes(deliveries);
    scratch.size(event.data.as_bytes().len());
    scratch.option(event.old.as_ref(), |out, old| out.size(old.as_bytes().len()));
    if let Some(trace) = event.trace {
        scratch.fixed(&trace.to_bytes());
    }
    if !mark.is_empty() {
        scratch.text(&mark_text(mark));
    }
    sum.update(scratch.as_slice());
    sum.update(event.data.as_bytes());
    if let Some(old) = &event.old {
        sum.update(old.as_bytes());
    }
    sum.finalize()
}

/// What is noted about an event, as text. Equal marks have equal texts.
fn mark_text(mark: &EventMark) -> String {
    // The type has no value that JSON lacks.
    serde_json::to_string(mark).unwrap_or_default()
}

/// Begins the bytes of a trace context that has a mark after it. No trace context alone is as long.
const MARKED: [u8; 2] = [0xff, 1];

/// A trace context and what is noted about an event, as one column: the trace context alone where nothing is.
pub(in crate::embedded) fn noted(trace: Option<TraceContext>, mark: &EventMark) -> Option<Vec<u8>> {
    if mark.is_empty() {
        return trace.map(|trace| trace.to_bytes().to_vec());
    }
    let mut out = Encoder::default();
    out.fixed(&MARKED);
    out.fixed(&[0; TraceContext::BYTES]);
    out.option(trace, |out, trace| out.fixed(&trace.to_bytes()));
    out.text(&mark_text(mark));
    Some(out.finish())
}

pub(in crate::embedded) fn get_noted(
    bytes: Option<Vec<u8>>,
) -> Result<(Option<TraceContext>, EventMark), Malformed> {
    let trace = |bytes| TraceContext::from_bytes(bytes).ok_or(Malformed("an unknown trace"));
    let Some(bytes) = bytes else { return Ok((None, EventMark::default())) };
    if let Ok(alone) = <[u8; TraceContext::BYTES]>::try_from(bytes.as_slice()) {
        return Ok((Some(trace(alone)?), EventMark::default()));
    }
    let mut from = Decoder::new(bytes.into());
    let (begins, _): ([u8; 2], [u8; TraceContext::BYTES]) = (from.fixed()?, from.fixed()?);
    if begins != MARKED {
        return Err(Malformed("an unknown trace"));
    }
    let context = from.option(|from| trace(from.fixed()?))?;
    let mark = get_mark(&mut from)?;
    from.end()?;
    Ok((context, mark))
}

/// Flag: the application chose the event's identifier.
const ID_GIVEN: u8 = 1;
/// Flag: a trace context follows.
const TRACED: u8 = 2;
/// Flag: what is noted about the event follows.
const NOTED: u8 = 4;

/// A batch of acceptances as one journal record.
pub(in crate::embedded) fn put_acceptances(batch: &[Acceptance]) -> Vec<u8> {
    let bytes = batch.iter().map(|acceptance| {
        let event = &acceptance.event;
        let old = event.old.as_ref().map_or(0, |old| old.as_bytes().len());
        256 + event.data.as_bytes().len() + old + 80 * acceptance.deliveries.len()
    });
    let mut out = Encoder::with_capacity(bytes.sum());
    out.byte(VERSION);
    out.size(batch.len());
    for acceptance in batch {
        let event = &acceptance.event;
        put_event(&mut out, event);
        out.time(acceptance.accepted_at);
        out.fixed(&acceptance.fingerprint);
        out.byte(
            (u8::from(acceptance.id_given) * ID_GIVEN)
                | (u8::from(event.trace.is_some()) * TRACED)
                | (u8::from(!acceptance.mark.is_empty()) * NOTED),
        );
        if let Some(trace) = event.trace {
            out.fixed(&trace.to_bytes());
        }
        if !acceptance.mark.is_empty() {
            out.text(&mark_text(&acceptance.mark));
        }
        out.size(acceptance.deliveries.len());
        for delivery in &acceptance.deliveries {
            put_delivery_body(&mut out, delivery);
        }
    }
    out.finish()
}

pub(in crate::embedded) fn get_acceptances(
    bytes: bytes::Bytes,
) -> Result<Vec<Acceptance>, Malformed> {
    let mut from = Decoder::new(bytes);
    check_version(&mut from)?;
    let batch = from.list(|from| {
        let mut event = get_event(from)?;
        let (accepted_at, fingerprint, flags) = (from.time()?, from.fixed()?, from.byte()?);
        if flags & TRACED != 0 {
            let trace = TraceContext::from_bytes(from.fixed()?);
            event.trace = Some(trace.ok_or(Malformed("an unknown trace"))?);
        }
        let mark = if flags & NOTED == 0 { EventMark::default() } else { get_mark(from)? };
        let event = Arc::new(event);
        Ok(Acceptance {
            accepted_at,
            fingerprint,
            id_given: flags & ID_GIVEN != 0,
            mark,
            deliveries: from.list(|from| {
                let (tenant, id) = (event.tenant.clone(), event.id.clone());
                get_delivery_body(from, tenant, id, event.kind.clone())
            })?,
            event,
        })
    })?;
    from.end()?;
    Ok(batch)
}

fn get_mark(from: &mut Decoder) -> Result<EventMark, Malformed> {
    serde_json::from_slice(&from.bytes()?).map_err(|_| Malformed("an unknown mark"))
}

fn check_version(from: &mut Decoder) -> Result<(), Malformed> {
    if from.byte()? == VERSION {
        Ok(())
    } else {
        Err(Malformed("a version that this program does not know"))
    }
}

fn put_circuit(out: &mut Encoder, circuit: &Circuit) {
    let counters = circuit.counters;
    for count in
        [counters.attempts, counters.successes, counters.failures, counters.consecutive_failures]
    {
        out.unsigned(count);
    }
    out.time(circuit.last_success_at);
    let suspended = circuit.suspended;
    let has_suspended = suspended != Suspended::default();
    out.byte(
        u8::from(circuit.ever_succeeded)
            | u8::from(circuit.draining) << 1
            | u8::from(circuit.failing_since.is_some()) << 2
            | u8::from(has_suspended) << 3
            | u8::from(circuit.down_since.is_some()) << 4
            | u8::from(circuit.replay_dead_since.is_some()) << 5
            | u8::from(circuit.recovered_at.is_some()) << 6
            | u8::from(circuit.next_probe.is_some()) << 7,
    );
    if let Some(since) = circuit.failing_since {
        out.time(since);
    }
    if has_suspended {
        out.unsigned(suspended.failures);
        out.unsigned(suspended.consecutive);
    }
    let times = [circuit.down_since, circuit.replay_dead_since, circuit.recovered_at];
    for at in times.into_iter().flatten() {
        out.time(at);
    }
    if let Some(next) = circuit.next_probe {
        out.fixed(next.as_bytes());
    }
    match &circuit.state {
        CircuitState::Closed => out.byte(0),
        other @ (CircuitState::Open { .. }
        | CircuitState::HalfOpen { .. }
        | CircuitState::Frozen { .. }) => {
            out.byte(1);
            put_json(out, other);
        }
    }
}

fn get_circuit(from: &mut Decoder) -> Result<Circuit, Malformed> {
    let counters = Counters {
        attempts: from.unsigned()?,
        successes: from.unsigned()?,
        failures: from.unsigned()?,
        consecutive_failures: from.unsigned()?,
    };
    let last_success_at = from.time()?;
    let flags = from.byte()?;
    let (ever_succeeded, draining) = (flags & 1 != 0, flags & 2 != 0);
    // A version that did not know one of the following left its flag zero.
    let failing_since = if flags & 4 != 0 { Some(from.time()?) } else { None };
    let suspended = if flags & 8 != 0 {
        Suspended { failures: from.unsigned()?, consecutive: from.unsigned()? }
    } else {
        Suspended::default()
    };
    let down_since = if flags & 16 != 0 { Some(from.time()?) } else { None };
    let replay_dead_since = if flags & 32 != 0 { Some(from.time()?) } else { None };
    let recovered_at = if flags & 64 != 0 { Some(from.time()?) } else { None };
    let next_probe =
        if flags & 128 != 0 { Some(DeliveryId::from_bytes(from.fixed()?)) } else { None };
    let state = from.option(get_json)?.unwrap_or(CircuitState::Closed);
    Ok(Circuit {
        state,
        counters,
        last_success_at,
        ever_succeeded,
        draining,
        failing_since,
        suspended,
        down_since,
        replay_dead_since,
        recovered_at,
        next_probe,
    })
}

/// Rare values are stored as the JSON that the domain gives them.
fn put_json(out: &mut Encoder, value: &impl serde::Serialize) {
    // Serializing cannot fail: the domain's values have no maps with keys other than texts. If it
    // did, decoding would reject the empty bytes.
    out.bytes(&serde_json::to_vec(value).unwrap_or_default());
}

fn get_json<T: serde::de::DeserializeOwned>(from: &mut Decoder) -> Result<T, Malformed> {
    let bytes = from.bytes()?;
    serde_json::from_slice(&bytes).map_err(|_| Malformed("JSON that is not what it should be"))
}

/// A flag in the byte of the state before a change: the identifier of the job that counted the outcome
/// follows.
const WAS_BY_JOB: u8 = 1 << 6;
/// With [`WAS_BY_JOB`]: an attempt had failed since.
const HAD_FAILED: u8 = 1 << 7;

fn put_before(out: &mut Encoder, change: &DeliveryChange) {
    let state = state_number(change.before);
    match change.by_job {
        None => out.byte(state),
        Some(ByJob { job, has_failed }) => {
            out.byte(state | WAS_BY_JOB | if has_failed { HAD_FAILED } else { 0 });
            out.fixed(job.as_bytes());
        }
    }
}

fn get_before(from: &mut Decoder) -> Result<(StateName, Option<ByJob>), Malformed> {
    let flagged = from.byte()?;
    let state = state_of(flagged & !(WAS_BY_JOB | HAD_FAILED))?;
    let has_failed = flagged & HAD_FAILED != 0;
    match flagged & WAS_BY_JOB {
        0 if has_failed => Err(Malformed("a failure of no job")),
        0 => Ok((state, None)),
        _ => Ok((state, Some(ByJob { job: ReplayId::from_bytes(from.fixed()?), has_failed }))),
    }
}

/// A commit as one journal record.
pub(in crate::embedded) fn put_commit(commit: &Commit) -> Vec<u8> {
    let mut out = Encoder::with_capacity(64 + 400 * commit.deliveries.len());
    out.byte(VERSION);
    out.size(commit.deliveries.len());
    for change in &commit.deliveries {
        put_before(&mut out, change);
        put_delivery(&mut out, &change.delivery);
        out.option(change.attempt.as_ref(), put_attempt);
    }
    out.size(commit.destinations.len());
    for change in &commit.destinations {
        out.text(change.tenant.as_str());
        out.fixed(change.id.as_bytes());
        put_circuit(&mut out, &change.circuit);
        out.size(change.transitions.len());
        for transition in &change.transitions {
            put_json(&mut out, transition);
        }
    }
    out.option(commit.replay.as_ref(), put_replay);
    out.finish()
}

pub(in crate::embedded) fn get_commit(bytes: bytes::Bytes) -> Result<Commit, Malformed> {
    let mut from = Decoder::new(bytes);
    check_version(&mut from)?;
    let deliveries = from.list(|from| {
        let (before, by_job) = get_before(from)?;
        Ok(DeliveryChange {
            before,
            by_job,
            delivery: get_delivery(from)?,
            attempt: from.option(get_attempt)?,
        })
    })?;
    let destinations = from.list(|from| {
        Ok(DestinationChange {
            tenant: from.parse()?,
            id: DestinationId::from_bytes(from.fixed()?),
            circuit: get_circuit(from)?,
            transitions: from.list(get_json)?,
        })
    })?;
    let replay = from.option(get_replay)?;
    from.end()?;
    Ok(Commit { deliveries, destinations, replay, traces: Vec::new() })
}

fn put_filter(out: &mut Encoder, filter: &DeliveryFilter) {
    out.option(filter.state, |out, state| out.byte(state_number(state)));
    out.option(filter.destination, |out, id| out.fixed(id.as_bytes()));
    out.option(filter.subscription, |out, id| out.fixed(id.as_bytes()));
    out.option(filter.event.as_ref(), |out, id| out.text(id.as_str()));
    out.option(filter.kind.as_ref(), |out, kind| out.text(kind.as_str()));
    out.option(filter.since, Encoder::time);
    match filter.ended_since {
        None => out.option(filter.until, Encoder::time),
        Some(since) => {
            out.byte(if filter.until.is_some() { UNTIL_AND_ENDED } else { ENDED });
            if let Some(until) = filter.until {
                out.time(until);
            }
            out.time(since);
        }
    }
}

/// In place of the byte that says whether `until` follows: it does not, and `ended_since` does. A filter
/// without `ended_since` is stored as it was before there was one.
const ENDED: u8 = 2;
/// In the same place: `until` and then `ended_since` follow.
const UNTIL_AND_ENDED: u8 = 3;

fn get_filter(from: &mut Decoder) -> Result<DeliveryFilter, Malformed> {
    let filter = DeliveryFilter {
        state: from.option(get_state_name)?,
        destination: from.option(Decoder::fixed)?.map(DestinationId::from_bytes),
        subscription: from.option(Decoder::fixed)?.map(SubscriptionId::from_bytes),
        event: from.option(Decoder::parse)?,
        kind: from.option(Decoder::parse)?,
        since: from.option(Decoder::time)?,
        ..DeliveryFilter::default()
    };
    let (until, ended_since) = match from.byte()? {
        0 => (None, None),
        1 => (Some(from.time()?), None),
        ENDED => (None, Some(from.time()?)),
        UNTIL_AND_ENDED => (Some(from.time()?), Some(from.time()?)),
        4.. => return Err(Malformed("neither present nor absent")),
    };
    Ok(DeliveryFilter { until, ended_since, ..filter })
}

/// A job without its outcomes: the progress that a commit brings.
pub(in crate::embedded) fn put_replay(out: &mut Encoder, job: &ReplayJob) {
    out.fixed(job.id.as_bytes());
    out.text(job.tenant.as_str());
    put_filter(out, &job.filter);
    out.option(job.per_second, |out, rate| out.unsigned(u64::from(rate)));
    out.time(job.created_at);
    out.byte(match job.state {
        ReplayState::Running => 0,
        ReplayState::Paused => 1,
        ReplayState::Finished => 2,
        ReplayState::Cancelled => 3,
    });
    out.unsigned(job.total);
    out.unsigned(job.done);
    out.option(job.position, |out, id| out.fixed(id.as_bytes()));
    out.option(job.finished_at, Encoder::time);
}

pub(in crate::embedded) fn get_replay(from: &mut Decoder) -> Result<ReplayJob, Malformed> {
    Ok(ReplayJob {
        id: ReplayId::from_bytes(from.fixed()?),
        tenant: from.parse()?,
        filter: get_filter(from)?,
        per_second: from.option(Decoder::number)?,
        created_at: from.time()?,
        state: match from.byte()? {
            0 => ReplayState::Running,
            1 => ReplayState::Paused,
            2 => ReplayState::Finished,
            3 => ReplayState::Cancelled,
            4.. => return Err(Malformed("an unknown state of a replay")),
        },
        total: from.unsigned()?,
        done: from.unsigned()?,
        position: from.option(Decoder::fixed)?.map(DeliveryId::from_bytes),
        finished_at: from.option(Decoder::time)?,
        outcomes: JobOutcomes::default(),
    })
}

/// A job with its outcomes, as its row holds it. One without outcomes has the bytes that versions
/// without them wrote.
pub(in crate::embedded) fn put_whole_replay(out: &mut Encoder, job: &ReplayJob) {
    put_replay(out, job);
    if job.outcomes != JobOutcomes::default() {
        job.outcomes.0.into_iter().for_each(|count| out.unsigned(count));
    }
}

pub(in crate::embedded) fn get_whole_replay(from: &mut Decoder) -> Result<ReplayJob, Malformed> {
    let mut job = get_replay(from)?;
    if from.end().is_err() {
        for count in &mut job.outcomes.0 {
            *count = from.unsigned()?;
        }
    }
    from.end()?;
    Ok(job)
}
