//! The events, deliveries and outcomes to measure with, and the counters of the operating system.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postrider_domain::attempt::{
    Answer, Attempt, BodyEnd, Connection, Ending, Failure, FailureClass, Timings, Turn,
};
use postrider_domain::circuit::Circuit;
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::destination::Destination;
use postrider_domain::event::{Event, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::retry::{ScheduleClock, Slot};
use postrider_domain::time::Timestamp;
use postrider_store::{Acceptance, Commit, DeliveryChange, DestinationChange};

pub(crate) const DAY: Timestamp = Timestamp::from_unix_ms(1_794_700_800_000);
/// The default length of a payload.
pub(crate) const PAYLOAD_BYTES: u64 = 600;

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

fn field(path: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time that this process has used.
pub(crate) fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks = stat.split(' ').skip(13).take(2).map(|field| field.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Bytes that this process has passed to `write`. (The count of bytes sent to the disk is less
/// useful: it counts a whole page even if one byte of it changed.)
pub(crate) fn written_bytes() -> u64 {
    field("/proc/self/io", "wchar:")
}

/// Memory of this process without the page cache.
pub(crate) fn memory_mb() -> u64 {
    field("/proc/self/status", "RssAnon:") / 1024
}

pub(crate) struct World {
    tenant: TenantId,
    data: RawJson,
    destinations: Vec<Destination>,
}

impl World {
    pub(crate) fn new(destinations: usize) -> Self {
        World::with_payloads(destinations, PAYLOAD_BYTES)
    }

    pub(crate) fn with_payloads(destinations: usize, bytes: u64) -> Self {
        let tenant = TenantId::default_tenant();
        let text = "x".repeat(usize::try_from(bytes).unwrap().saturating_sub(12));
        let data = format!("{{\"text\": \"{text}\"}}");
        let made = (0..destinations).map(|n| {
            Destination::new(tenant.clone(), format!("https://hooks.example.com/{n}"), DAY)
        });
        World {
            data: RawJson::from_trusted(Bytes::from(data)),
            destinations: made.collect(),
            tenant,
        }
    }

    pub(crate) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    pub(crate) fn destination(&self, n: u64) -> DestinationId {
        self.of(n).id
    }

    pub(crate) fn subscription(&self, n: u64) -> SubscriptionId {
        let mut subscription = *self.of(n).id.as_bytes();
        subscription[15] = 1;
        SubscriptionId::from_bytes(subscription)
    }

    fn of(&self, n: u64) -> &Destination {
        let count = u64::try_from(self.destinations.len()).unwrap();
        &self.destinations[usize::try_from(n % count).unwrap()]
    }

    /// Event number `n` with one delivery, accepted `ms` milliseconds after midnight.
    pub(crate) fn acceptance(&self, n: u64, ms: u64) -> Acceptance {
        let at = Timestamp::from_unix_ms(DAY.as_unix_ms() + i64::try_from(ms).unwrap());
        // Pseudo-random: different for every event, the same in every run.
        let mut random = [0; 10];
        let mixed = (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        random[..8].copy_from_slice(&(mixed ^ (mixed >> 32)).to_be_bytes());
        random[8..].copy_from_slice(&n.to_be_bytes()[6..]);
        let event = Arc::new(Event {
            id: EventId::new(at, random),
            tenant: self.tenant.clone(),
            kind: "task.updated".parse().unwrap(),
            object: None,
            data: self.data.clone(),
            old: None,
            time: at,
            trace: None,
        });
        let destination = self.of(n).id;
        let delivery = Delivery::accepted(
            DeliveryId::new(at, random),
            &event,
            self.subscription(n),
            destination,
            at,
        );
        Acceptance {
            event,
            accepted_at: at,
            fingerprint: [7; 32],
            id_given: false,
            mark: postrider_domain::catalogue::EventMark::default(),
            deliveries: vec![delivery],
        }
    }

    /// The commit of deliveries that succeeded at the first attempt.
    pub(crate) fn arrived(&self, deliveries: Vec<Delivery>) -> Commit {
        let destinations = deliveries.first().map(|delivery| {
            let mut circuit = Circuit::new(DAY);
            circuit.counters.attempts = 5;
            DestinationChange {
                tenant: self.tenant.clone(),
                id: delivery.destination,
                circuit,
                transitions: Vec::new(),
            }
        });
        Commit {
            deliveries: deliveries.into_iter().map(arrived).collect(),
            destinations: destinations.into_iter().collect(),
            ..Commit::default()
        }
    }

    /// The change of a delivery that failed and waits until the given time.
    pub(crate) fn failed(&self, delivery: Delivery, due_at: Timestamp) -> DeliveryChange {
        let before = delivery.state.name();
        let started_at = delivery.created_at;
        let clock = ScheduleClock::starting_at(started_at);
        let number = delivery.attempts + 1;
        let class = FailureClass::Refused;
        let ending = Ending::Failed(Failure { class, detail: "connection refused".into() });
        DeliveryChange {
            before,
            by_job: None,
            delivery: Delivery {
                state: DeliveryState::Waiting(Slot::new(number, due_at, clock)),
                attempts: number,
                last_attempt_at: Some(started_at),
                ..delivery
            },
            attempt: Some(attempt(number, started_at, ending)),
        }
    }
}

fn attempt(number: u32, started_at: Timestamp, ending: Ending) -> Attempt {
    let timings = Timings {
        response: Some(Duration::from_micros(812)),
        total: Duration::from_micros(903),
        connection: Connection::Reused,
        ..Timings::default()
    };
    let turn = if number == 1 { Turn::First } else { Turn::Retry(number - 1) };
    Attempt { number, turn, started_at, timings, ending }
}

fn arrived(delivery: Delivery) -> DeliveryChange {
    let body = Bytes::from_static(b"{\"ok\":true}");
    let ending =
        Ending::Answered(Answer { status: 200, retry_after: None, body, body_end: BodyEnd::Whole });
    let at = delivery.created_at.saturating_add(Duration::from_millis(1));
    let delivery = delivery.delivered(delivery.created_at, at);
    let attempt = attempt(delivery.attempts, delivery.created_at, ending);
    DeliveryChange { before: StateName::Queued, by_job: None, delivery, attempt: Some(attempt) }
}
