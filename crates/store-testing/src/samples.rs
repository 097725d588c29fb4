//! Sample values for testing stores: plain ones, and every variant of enums.
//!
//! Values are computed from small numbers: the same number gives the same value.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::access::Scope;
use postrider_domain::attempt::{
    Answer, Attempt, BodyEnd, Connection, Ending, Failure, FailureClass, Finished, OwnFault,
    OwnFaultKind, Phase, RetryAfter, Timings, Turn,
};
use postrider_domain::catalogue::EventMark;
use postrider_domain::delivery::Delivery;
use postrider_domain::destination::Destination;
use postrider_domain::event::{Event, EventType, RawJson};
use postrider_domain::ids::{AuditId, DeliveryId, ReplayId, SubscriptionId, TenantId};
use postrider_domain::job_outcomes::JobOutcomes;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Actor, ActorKind, AuditEntry, DeliveryFilter, IdempotentAnswer, Key, ReplayJob,
    ReplayState, SubscriptionRecord, Tenant, TenantDetails,
};
use postrider_test_support::samples;

/// The start of all samples: 2025-11-15T09:30:00.000Z, a whole minute.
pub const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

/// The time `ms` milliseconds after [`START`].
pub fn at(ms: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(ms))
}

/// A tenant's identifier.
pub fn tenant_id(name: &str) -> TenantId {
    name.parse().unwrap()
}

/// The tenant that most tests act for.
pub fn acme() -> TenantId {
    tenant_id("acme")
}

/// A tenant that must never see records of the other one.
pub fn umbrella() -> TenantId {
    tenant_id("umbrella")
}

/// A type of events.
pub fn kind(name: &str) -> EventType {
    name.parse().unwrap()
}

/// Ten bytes that stand for randomness.
pub fn random(n: u64) -> [u8; 10] {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&n.to_be_bytes());
    bytes
}

/// A delivery's identifier; larger numbers are larger identifiers.
pub fn delivery_id(n: u64) -> DeliveryId {
    DeliveryId::new(START, random(n))
}

/// A subscription's identifier.
pub fn subscription_id(n: u64) -> SubscriptionId {
    SubscriptionId::new(START, random(n))
}

/// A replay's identifier.
pub fn replay_id(n: u64) -> ReplayId {
    ReplayId::new(START, random(n))
}

/// A digest.
pub fn digest(n: u8) -> [u8; 32] {
    [n; 32]
}

/// A tenant.
pub fn tenant(name: &str, created_at: Timestamp) -> Tenant {
    let details =
        TenantDetails { description: Some(format!("all of {name}")), ..TenantDetails::default() };
    Tenant { id: tenant_id(name), name: Some(format!("{name} & Söhne")), created_at, details }
}

/// A key with every field set.
pub fn key(id: &str, tenant: Option<&TenantId>, created_at: Timestamp) -> Key {
    Key {
        id: id.into(),
        tenant: tenant.cloned(),
        name: Some(format!("key {id}")),
        scopes: Scope::ALL.to_vec(),
        hash: digest(7),
        created_at,
        expires_at: Some(at(1_000_000)),
        last_used_at: None,
    }
}

/// The URL with this number.
pub fn url(n: u64) -> String {
    format!("https://hooks.example.com/in/{n}")
}

/// A destination with a closed circuit.
pub fn destination(tenant: &TenantId, n: u64) -> Destination {
    Destination::new(tenant.clone(), url(n), START)
}

/// A subscription to everything, with its sealed credentials; its URL is that of destination `to`.
pub fn subscription(tenant: &TenantId, n: u64, to: u64) -> SubscriptionRecord {
    let types = format!("type.n{n}");
    let subscription =
        samples::subscription(subscription_id(n), tenant, &url(to), &[&types], at(n));
    SubscriptionRecord { subscription, credentials: vec![0, 255, 10, 13], deleted_at: None }
}

/// An event.
pub fn event(tenant: &TenantId, id: &str) -> Event {
    Event {
        id: id.parse().unwrap(),
        tenant: tenant.clone(),
        kind: kind("task.updated"),
        object: Some("task 1".parse().unwrap()),
        data: json(" {\"a\" : 1.0e2}\n"),
        old: Some(json("null")),
        time: START.saturating_sub(Duration::from_secs(1)),
        trace: None,
    }
}

/// JSON with exactly these bytes.
pub fn json(text: &str) -> RawJson {
    RawJson::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
}

/// A delivery of an event that was accepted at this time; its subscription has the same number as
/// its destination.
pub fn delivery(event: &Event, n: u64, to: u64, created_at: Timestamp) -> Delivery {
    let destination = destination(&event.tenant, to).id;
    Delivery::accepted(delivery_id(n), event, subscription_id(to), destination, created_at)
}

/// An event to be accepted, with deliveries: pairs of delivery and destination. The application
/// chose its identifier.
pub fn acceptance(event: Event, accepted_at: Timestamp, deliveries: &[(u64, u64)]) -> Acceptance {
    let owed = deliveries.iter().map(|(n, to)| delivery(&event, *n, *to, accepted_at)).collect();
    Acceptance {
        event: Arc::new(event),
        accepted_at,
        fingerprint: digest(1),
        id_given: true,
        mark: EventMark::default(),
        deliveries: owed,
    }
}

/// A running job that replays all dead deliveries of its tenant.
pub fn replay(tenant: &TenantId, n: u64, created_at: Timestamp) -> ReplayJob {
    ReplayJob {
        id: replay_id(n),
        tenant: tenant.clone(),
        filter: DeliveryFilter {
            state: Some(postrider_domain::delivery::StateName::Dead),
            ..DeliveryFilter::default()
        },
        per_second: None,
        created_at,
        state: ReplayState::Running,
        total: 10,
        done: 0,
        position: None,
        finished_at: None,
        outcomes: JobOutcomes::default(),
    }
}

/// An answer to store.
pub fn answer(n: u8, created_at: Timestamp) -> IdempotentAnswer {
    IdempotentAnswer {
        request: digest(n),
        status: 201,
        body: vec![n, 0, 255, b'{', b'}'],
        created_at,
    }
}

/// The n-th entry of an audit log.
pub fn audit(n: u64, tenant: Option<TenantId>, action: &str, status: u16) -> AuditEntry {
    let mut random = [0; 10];
    random[2..].copy_from_slice(&n.to_be_bytes());
    AuditEntry {
        id: AuditId::new(at(n), random),
        at: at(n),
        tenant,
        actor: Actor { kind: ActorKind::Key, id: format!("k{}", n % 3), name: None },
        action: action.to_owned(),
        target_kind: "key".to_owned(),
        target: Some(format!("t{}", n % 4)),
        address: Some("192.0.2.1".to_owned()),
        status: Some(status),
        problem: (status >= 400).then(|| "twin_subscription".to_owned()),
    }
}

/// An answer with this status and a body that is not text.
pub fn answered(status: u16) -> Ending {
    let body = Bytes::from_static(b"\0\xff not text");
    Ending::Answered(Answer { status, retry_after: None, body, body_end: BodyEnd::Whole })
}

/// A failure without an answer.
pub fn refused() -> Ending {
    Ending::Failed(Failure { class: FailureClass::Refused, detail: "port closed".into() })
}

/// An attempt that has ended, as the transport reports it.
pub fn finished(started_at: Timestamp, ending: Ending) -> Finished {
    Finished { started_at, timings: Timings::default(), ending }
}

/// Every kind of ending of an attempt.
pub fn every_ending() -> Vec<Ending> {
    let answer = |status, retry_after, body: &'static [u8], body_end| {
        Ending::Answered(Answer { status, retry_after, body: Bytes::from_static(body), body_end })
    };
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
    let kinds = [
        OwnFaultKind::Resolver,
        OwnFaultKind::Proxy,
        OwnFaultKind::Resources,
        OwnFaultKind::Shutdown,
        OwnFaultKind::Internal,
    ];
    let delay = RetryAfter::Delay(Duration::from_secs(120));
    let forever = RetryAfter::Delay(Duration::from_secs(u64::MAX));
    let answers = [
        answer(200, None, b"", BodyEnd::Whole),
        answer(204, None, b"\0\xff\xfe", BodyEnd::Cut),
        answer(299, None, b"{\"ok\": true}", BodyEnd::Late),
        answer(302, None, b"moved", BodyEnd::Broken),
        answer(410, None, b"gone", BodyEnd::Whole),
        answer(429, Some(delay), b"slow down", BodyEnd::Whole),
        answer(503, Some(RetryAfter::At(at(123_456_789))), b"later", BodyEnd::Whole),
        answer(503, Some(forever), b"never", BodyEnd::Whole),
    ];
    let detail = "größer als \"erlaubt\"\n\t'; --";
    let failures =
        classes.map(|class| Ending::Failed(Failure { class, detail: format!("{class} {detail}") }));
    let faults =
        kinds.map(|kind| Ending::OwnFault(OwnFault { kind, detail: format!("{kind} {detail}") }));
    answers.into_iter().chain(failures).chain(faults).collect()
}

/// Timings of every shape: all phases, none, and every kind of connection.
pub fn every_timings() -> Vec<Timings> {
    let part = |us| Some(Duration::from_micros(us));
    vec![
        Timings::default(),
        Timings {
            dns: part(1),
            connect: part(2_000),
            tls: part(3_000_000),
            response: part(4_999_999),
            total: Duration::from_nanos(5_000_000_001),
            connection: Connection::Fresh,
        },
        Timings {
            response: part(0),
            total: Duration::from_nanos(1),
            connection: Connection::Reused,
            ..Timings::default()
        },
        Timings {
            connect: part(77),
            total: Duration::from_millis(5_000),
            connection: Connection::Resent,
            ..Timings::default()
        },
    ]
}

/// Attempts, numbered from 1, that show every ending, every turn and every shape of timings.
pub fn every_attempt() -> Vec<Attempt> {
    let turns = [Turn::First, Turn::Retry(1), Turn::Retry(11), Turn::Probe, Turn::Manual];
    let cycle = turns.into_iter().zip(every_timings()).cycle();
    let endings = (1u32..).zip(every_ending());
    let attempts = endings.zip(cycle).map(|((number, ending), (turn, timings))| Attempt {
        number,
        turn,
        started_at: at(u64::from(number) * 1_000),
        timings,
        ending,
    });
    attempts.collect()
}
