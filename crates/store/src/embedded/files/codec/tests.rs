//! Every value decodes to itself, and no bytes make the decoder panic.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{
    Answer, Attempt, BodyEnd, Connection, Ending, Failure, FailureClass, OwnFault, OwnFaultKind,
    Phase, RetryAfter, Timings, Turn,
};
use postrider_domain::circuit::{Circuit, CircuitState, Evidence, StateName as CircuitName};
use postrider_domain::circuit::{Counters, Suspended, Transition};
use postrider_domain::delivery::{CancelReason, DeadReason, Delivery, DeliveryState, StateName};
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, SubscriptionId};
use postrider_domain::job_outcomes::{ByJob, JobOutcomes};
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_domain::trace::TraceContext;
use proptest::prelude::*;

use super::*;
use crate::records::{
    Acceptance, Commit, DeliveryChange, DeliveryFilter, DestinationChange, ReplayJob, ReplayState,
};

const NOW: Timestamp = Timestamp::from_unix_ms(1_794_735_000_120);

fn event(old: bool) -> Event {
    Event {
        id: "order-17".parse().unwrap(),
        tenant: "acme".parse().unwrap(),
        kind: "task.updated".parse().unwrap(),
        object: old.then(|| "Straße 1".parse().unwrap()),
        data: RawJson::from_trusted(Bytes::from_static(b"{\"a\": 1}")),
        old: old.then(|| RawJson::from_trusted(Bytes::from_static(b"null"))),
        time: Timestamp::from_unix_ms(-5),
        trace: TraceContext::new([5; 16], [6; 8], old).filter(|_| old),
    }
}

fn delivery(state: DeliveryState) -> Delivery {
    let (subscription, destination) =
        (SubscriptionId::from_bytes([2; 16]), DestinationId::from_bytes([3; 16]));
    let id = DeliveryId::from_bytes([1; 16]);
    let accepted = Delivery::accepted(id, &event(false), subscription, destination, NOW);
    Delivery { state, attempts: 3, last_attempt_at: Some(NOW), ..accepted }
}

fn by_job(has_failed: bool) -> Option<ByJob> {
    Some(ByJob { job: ReplayId::from_bytes([9; 16]), has_failed })
}

fn states() -> Vec<DeliveryState> {
    let clock = ScheduleClock { anchor_at: NOW, previous_at: Timestamp::MAX };
    vec![
        DeliveryState::Queued,
        DeliveryState::Waiting(Slot::new(11, NOW, clock)),
        DeliveryState::Waiting(Slot::new(11, NOW, clock).with_attempt_at(Timestamp::EPOCH)),
        DeliveryState::Waiting(Slot { by_job: by_job(false), ..Slot::new(0, NOW, clock) }),
        DeliveryState::Waiting(Slot {
            by_job: by_job(true),
            ..Slot::new(u32::MAX, NOW, clock).with_attempt_at(Timestamp::EPOCH)
        }),
        DeliveryState::Delivered { at: NOW },
        DeliveryState::Dead { at: NOW, reason: DeadReason::Exhausted },
        DeliveryState::Dead { at: NOW, reason: DeadReason::NotAdmitted },
        DeliveryState::Cancelled { at: NOW, reason: CancelReason::Asked },
        DeliveryState::Cancelled { at: NOW, reason: CancelReason::SubscriptionDeleted },
    ]
}

fn endings() -> Vec<Ending> {
    let answers = [
        (None, BodyEnd::Whole),
        (Some(RetryAfter::Delay(Duration::from_millis(1500))), BodyEnd::Cut),
        (Some(RetryAfter::At(NOW)), BodyEnd::Late),
        (None, BodyEnd::Broken),
    ];
    let phases = [Phase::Dns, Phase::Connect, Phase::Tls, Phase::Request, Phase::Response];
    let classes = [
        FailureClass::Refused,
        FailureClass::Reset,
        FailureClass::Dns,
        FailureClass::Tls,
        FailureClass::Blocked,
        FailureClass::Protocol,
    ];
    let kinds = [
        OwnFaultKind::Resolver,
        OwnFaultKind::Proxy,
        OwnFaultKind::Resources,
        OwnFaultKind::Shutdown,
        OwnFaultKind::Internal,
    ];
    let body = Bytes::from_static(b"\x00not text\xff");
    let answered = answers.map(|(retry_after, body_end)| {
        Ending::Answered(Answer { status: 503, retry_after, body: body.clone(), body_end })
    });
    let timeouts = phases.map(FailureClass::Timeout);
    let failed = classes.into_iter().chain(timeouts);
    let failed = failed.map(|class| Ending::Failed(Failure { class, detail: "why".into() }));
    let own = kinds.map(|kind| Ending::OwnFault(OwnFault { kind, detail: String::new() }));
    answered.into_iter().chain(failed).chain(own).collect()
}

fn attempts() -> Vec<Attempt> {
    let turns = [Turn::First, Turn::Retry(7), Turn::Probe];
    let connections = [Connection::Fresh, Connection::Reused, Connection::Resent];
    let numbered = endings().into_iter().zip(1..);
    let attempt = |(ending, number): (Ending, u32)| Attempt {
        number,
        turn: turns[usize::try_from(number).unwrap() % 3],
        started_at: NOW,
        timings: Timings {
            dns: Some(Duration::from_nanos(1)),
            connect: None,
            tls: Some(Duration::from_secs(5)),
            response: None,
            total: Duration::new(5, 999_999_999),
            connection: connections[usize::try_from(number).unwrap() % 3],
        },
        ending,
    };
    numbered.map(attempt).collect()
}

fn circuits() -> Vec<Circuit> {
    let evidence = Evidence::NoSuccess { since: NOW };
    let probe = DeliveryId::from_bytes([9; 16]);
    let states = [
        CircuitState::Closed,
        CircuitState::Open { since: NOW, evidence: evidence.clone(), probe_at: NOW },
        CircuitState::HalfOpen { since: NOW, evidence: evidence.clone(), probe, probed_at: NOW },
        CircuitState::Frozen { since: NOW, evidence },
    ];
    let counters =
        Counters { attempts: u64::MAX, successes: 1, failures: 2, consecutive_failures: 3 };
    let circuit = |(n, state): (u64, CircuitState)| Circuit {
        state,
        counters,
        last_success_at: NOW,
        ever_succeeded: n % 2 == 0,
        draining: n % 3 == 0,
        failing_since: (n % 2 == 0).then_some(NOW),
        down_since: (n % 3 == 1).then_some(NOW),
        replay_dead_since: (n % 3 == 2).then_some(NOW),
        recovered_at: (n % 2 == 1).then_some(NOW),
        next_probe: (n % 3 == 0).then_some(probe),
        suspended: Suspended { failures: n / 2, consecutive: n / 3 },
    };
    (0_u64..).zip(states).map(circuit).collect()
}

fn job() -> ReplayJob {
    ReplayJob {
        id: ReplayId::from_bytes([4; 16]),
        tenant: "acme".parse().unwrap(),
        filter: DeliveryFilter {
            state: Some(StateName::Dead),
            destination: Some(DestinationId::from_bytes([5; 16])),
            subscription: Some(SubscriptionId::from_bytes([6; 16])),
            event: Some("order-17".parse().unwrap()),
            kind: Some("task.updated".parse().unwrap()),
            since: Some(NOW),
            until: Some(Timestamp::MAX),
            ended_since: Some(NOW),
        },
        per_second: Some(5),
        created_at: NOW,
        state: ReplayState::Paused,
        total: 7,
        done: 6,
        position: Some(DeliveryId::from_bytes([7; 16])),
        finished_at: None,
        outcomes: JobOutcomes::default(),
    }
}

fn commit() -> Commit {
    let attempts = attempts().into_iter().map(Some).chain([None]);
    let states = states().into_iter().cycle();
    let jobs = [None, by_job(false), by_job(true)].into_iter().cycle();
    let deliveries = states.zip(attempts).zip(jobs).map(|((state, attempt), by_job)| {
        let before = StateName::Queued;
        DeliveryChange { before, by_job, delivery: delivery(state), attempt }
    });
    let destinations = circuits().into_iter().map(|circuit| DestinationChange {
        tenant: "acme".parse().unwrap(),
        id: DestinationId::from_bytes([8; 16]),
        transitions: vec![Transition {
            at: NOW,
            from: CircuitName::Closed,
            to: CircuitName::Frozen,
            evidence: Evidence::ByHand { reason: Some("tired".into()) },
            counters: circuit.counters,
        }],
        circuit,
    });
    Commit {
        deliveries: deliveries.collect(),
        destinations: destinations.collect(),
        replay: Some(job()),
        ..Commit::default()
    }
}

fn batch() -> Vec<Acceptance> {
    let acceptance = |old| Acceptance {
        event: Arc::new(event(old)),
        accepted_at: NOW,
        fingerprint: [7; 32],
        id_given: old,
        mark: postrider_domain::catalogue::EventMark::default(),
        deliveries: states().into_iter().map(delivery).collect(),
    };
    vec![acceptance(true), acceptance(false)]
}

#[test]
fn batch_of_acceptances_decodes_to_itself() {
    let batch = batch();
    let read = get_acceptances(Bytes::from(put_acceptances(&batch))).unwrap();
    assert_eq!(format!("{read:?}"), format!("{batch:?}"));
    assert_eq!(read[0].event, batch[0].event, "payloads too, which are not shown");
}

#[test]
fn commit_decodes_to_itself() {
    let commit = commit();
    let read = get_commit(Bytes::from(put_commit(&commit))).unwrap();
    assert_eq!(format!("{read:?}"), format!("{commit:?}"));
    for (read, written) in read.deliveries.iter().zip(&commit.deliveries) {
        assert_eq!(read.attempt, written.attempt);
    }
    assert_eq!(read.replay, commit.replay);
    let empty = get_commit(Bytes::from(put_commit(&Commit::default()))).unwrap();
    assert!(empty.deliveries.is_empty() && empty.destinations.is_empty());
}

#[test]
fn job_decodes_to_itself_and_without_outcomes_as_earlier_versions_wrote_it() {
    let bytes = |job: &ReplayJob| {
        let mut out = Encoder::default();
        put_whole_replay(&mut out, job);
        out.finish()
    };
    let read = |bytes: Vec<u8>| get_whole_replay(&mut Decoder::new(bytes.into()));
    let mut progress = Encoder::default();
    values::put_replay(&mut progress, &job());
    assert_eq!(bytes(&job()), progress.finish());
    for outcomes in [JobOutcomes::default(), JobOutcomes([1, 0, u64::MAX, 3, 4])] {
        let job = ReplayJob { outcomes, ..job() };
        assert_eq!(read(bytes(&job)), Ok(job.clone()));
        let longer = [bytes(&job), vec![0]].concat();
        assert!(read(longer).is_err());
    }
}

#[test]
fn truncated_bytes_are_rejected() {
    for bytes in [put_commit(&commit()), put_acceptances(&batch())] {
        for end in 0..bytes.len() {
            let cut = Bytes::copy_from_slice(&bytes[..end]);
            assert!(get_commit(cut.clone()).is_err() && get_acceptances(cut).is_err(), "{end}");
        }
        let longer = Bytes::from([bytes, vec![0]].concat());
        assert!(get_commit(longer.clone()).is_err() && get_acceptances(longer).is_err());
    }
}

#[test]
fn unknown_version_is_rejected() {
    let mut bytes = put_commit(&Commit::default());
    bytes[0] += 1;
    let error = get_commit(Bytes::from(bytes)).unwrap_err();
    assert!(error.to_string().contains("a version that this program does not know"));
}

proptest! {
    #[test]
    fn numbers_decode_to_themselves(unsigned: u64, signed: i64) {
        let mut out = Encoder::default();
        out.unsigned(unsigned);
        out.signed(signed);
        let mut from = Decoder::new(Bytes::from(out.finish()));
        prop_assert_eq!(from.unsigned(), Ok(unsigned));
        prop_assert_eq!(from.signed(), Ok(signed));
        prop_assert_eq!(from.end(), Ok(()));
    }

    #[test]
    fn decoder_never_panics(at in 0usize..20_000, byte: u8, noise: Vec<u8>) {
        for mut bytes in [put_commit(&commit()), put_acceptances(&batch())] {
            let at = at % bytes.len();
            bytes[at] = byte;
            let (one, two) = (Bytes::from(bytes.clone()), Bytes::from(bytes));
            drop((get_commit(one), get_acceptances(two)));
        }
        let noise = Bytes::from([vec![VERSION], noise].concat());
        drop((get_commit(noise.clone()), get_acceptances(noise)));
    }
}
