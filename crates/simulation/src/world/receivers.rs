//! Simulated receivers: each has a behaviour ("mood") that changes with time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use postrider_domain::attempt::{
    Answer, BodyEnd, Ending, Failure, FailureClass, Finished, OwnFault, OwnFaultKind, Phase,
    RetryAfter, Timings,
};
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_transport::{Request, Transport};

use super::Trigger;
use crate::clock::{WorldClock, pause};
use crate::coverage::Cover;
use crate::oracle::Oracle;
use crate::oracle::sends::Fate;
use crate::random::Random;

/// The behaviour of a receiver for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Answers everything within this many milliseconds.
    Healthy {
        /// Milliseconds.
        within: u64,
    },
    /// Fails some of the requests with this status.
    Fails {
        /// How many of a thousand.
        of_thousand: u64,
        /// The status.
        status: u16,
    },
    /// Refuses connections.
    Refuses,
    /// Its name does not resolve.
    NoName,
    /// Breaks connections.
    Resets,
    /// Alternates between healthy and failing.
    Flaps {
        /// The time between two changes, in milliseconds.
        every_ms: u64,
    },
    /// Never answers.
    Hangs,
    /// Answers just before the deadline, or too late.
    Late,
    /// Answers with `Retry-After`.
    Busy {
        /// The status.
        status: u16,
        /// The requested pause in seconds.
        seconds: u64,
    },
    /// Answers 410.
    Gone,
    /// Receives every request; the response is lost.
    Mute,
    /// The attempt fails with a fault of our own.
    OwnFault,
}

/// The reaction of a receiver to one request.
struct Reaction {
    after_ms: u64,
    ending: Ending,
    fate: Fate,
}

struct Receiver {
    chance: Random,
    mood: Mood,
    until: i64,
    /// Reactions to the next requests, one each; afterwards the mood decides.
    script: VecDeque<Mood>,
    /// Whether it keeps its mood until the world changes it.
    steady: bool,
}

/// All receivers of a world. They outlive every process.
pub struct Receivers {
    clock: Arc<WorldClock>,
    oracle: Arc<Mutex<Oracle>>,
    trigger: Arc<Trigger>,
    inner: Mutex<BTreeMap<DestinationId, Receiver>>,
    /// A mood for all receivers, and until when.
    all: Mutex<Option<(Mood, i64)>>,
}

impl Receivers {
    /// A world without receivers.
    pub fn new(clock: Arc<WorldClock>, oracle: Arc<Mutex<Oracle>>, trigger: Arc<Trigger>) -> Self {
        Receivers { clock, oracle, trigger, inner: Mutex::default(), all: Mutex::default() }
    }

    /// Adds a receiver whose moods follow from the seed.
    pub fn add(&self, id: DestinationId, chance: Random) {
        let receiver = Receiver {
            chance,
            mood: Mood::Healthy { within: 50 },
            until: i64::MIN,
            script: VecDeque::new(),
            steady: false,
        };
        self.inner().entry(id).or_insert(receiver);
    }

    /// Sets the mood of a receiver.
    pub fn set(&self, id: DestinationId, mood: Mood) {
        if let Some(receiver) = self.inner().get_mut(&id) {
            (receiver.mood, receiver.steady) = (mood, true);
        }
    }

    /// Sets the mood of a receiver until then; its own moods follow.
    pub fn set_until(&self, id: DestinationId, mood: Mood, until: i64) {
        if let Some(receiver) = self.inner().get_mut(&id) {
            (receiver.mood, receiver.until) = (mood, until);
        }
    }

    /// Queues a reaction for the next request, before the mood decides.
    pub fn script(&self, id: DestinationId, moods: impl IntoIterator<Item = Mood>) {
        if let Some(receiver) = self.inner().get_mut(&id) {
            receiver.script.extend(moods);
        }
    }

    /// Gives all receivers this mood until then, as if our own network had failed.
    pub fn set_all(&self, mood: Mood, until: i64) {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = Some((mood, until));
    }

    /// Makes all receivers healthy for good.
    pub fn heal(&self) {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for receiver in self.inner().values_mut() {
            (receiver.mood, receiver.steady) = (Mood::Healthy { within: 100 }, true);
        }
    }

    fn inner(&self) -> MutexGuard<'_, BTreeMap<DestinationId, Receiver>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn react(&self, id: DestinationId, deadline_ms: u64, now: i64) -> Reaction {
        let mut inner = self.inner();
        let Some(receiver) = inner.get_mut(&id) else {
            return failed(FailureClass::Dns, 0, Fate::NotTaken);
        };
        receiver.age(now);
        let all = *self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let all = all.filter(|(_, until)| now < *until).map(|(mood, _)| mood);
        let mood = all.or_else(|| receiver.script.pop_front()).unwrap_or(receiver.mood);
        reaction(mood, &mut receiver.chance, deadline_ms, now)
    }
}

impl Receiver {
    /// Changes moods whose time has passed.
    fn age(&mut self, now: i64) {
        while !self.steady && now >= self.until {
            let hours = i64::try_from(self.chance.skewed(10 * 3_600_000)).unwrap_or(0);
            self.until = if self.until == i64::MIN { now } else { self.until } + 1_000 + hours;
            self.mood = draw(&mut self.chance);
        }
    }
}

fn draw(chance: &mut Random) -> Mood {
    match chance.below(100) {
        0..35 => Mood::Healthy { within: chance.skewed(2_000) },
        35..55 => Mood::Fails {
            of_thousand: chance.between(300, 1000),
            status: [500, 502, 404, 301, 400][chance.place(5).unwrap_or(0)],
        },
        55..65 => Mood::Refuses,
        65..68 => Mood::NoName,
        68..71 => Mood::Resets,
        71..76 => Mood::Flaps { every_ms: chance.between(1_000, 1_200_000) },
        76..82 => Mood::Hangs,
        82..86 => Mood::Late,
        86..91 => Mood::Busy {
            status: if chance.chance(500) { 429 } else { 503 },
            seconds: chance.skewed(400_000),
        },
        91 => Mood::Gone,
        92..96 => Mood::Mute,
        _ => Mood::OwnFault,
    }
}

fn reaction(mood: Mood, chance: &mut Random, deadline_ms: u64, now: i64) -> Reaction {
    match mood {
        Mood::Healthy { within } => answered(200, None, chance.below(within + 1)),
        Mood::Fails { of_thousand, status } => {
            let after = chance.skewed(3_000);
            answered(if chance.chance(of_thousand) { status } else { 204 }, None, after)
        }
        Mood::Refuses => failed(FailureClass::Refused, chance.below(3), Fate::NotTaken),
        Mood::NoName => failed(FailureClass::Dns, chance.below(30), Fate::NotTaken),
        Mood::Resets => failed(FailureClass::Reset, chance.below(30), Fate::NotTaken),
        Mood::Flaps { every_ms } => {
            let phase = now.unsigned_abs() / every_ms.max(1);
            answered(if phase.is_multiple_of(2) { 200 } else { 503 }, None, chance.below(100))
        }
        Mood::Hangs => timed_out(deadline_ms, Fate::NotTaken),
        Mood::Late => {
            let after = chance.between(deadline_ms.saturating_sub(600), deadline_ms + 200);
            if after < deadline_ms {
                answered(200, None, after)
            } else {
                timed_out(deadline_ms, Fate::TakenUnheard)
            }
        }
        Mood::Busy { status, seconds } => {
            let wish = if chance.chance(500) {
                RetryAfter::Delay(Duration::from_secs(seconds))
            } else {
                let at = Timestamp::from_unix_ms(now);
                RetryAfter::At(at.saturating_add(Duration::from_secs(seconds)))
            };
            answered(status, Some(wish), chance.below(50))
        }
        Mood::Gone => answered(410, None, chance.below(50)),
        Mood::Mute => failed(FailureClass::Reset, chance.below(500), Fate::TakenUnheard),
        Mood::OwnFault => Reaction {
            after_ms: chance.below(50),
            ending: Ending::OwnFault(OwnFault {
                kind: OwnFaultKind::Resolver,
                detail: "as the seed has it".into(),
            }),
            fate: Fate::NotTaken,
        },
    }
}

fn answered(status: u16, retry_after: Option<RetryAfter>, after_ms: u64) -> Reaction {
    let answer = Answer {
        status,
        retry_after,
        body: Bytes::from_static(b"noted"),
        body_end: BodyEnd::Whole,
    };
    let is_taken = (200..300).contains(&status);
    let fate = if is_taken { Fate::Taken } else { Fate::NotTaken };
    Reaction { after_ms, ending: Ending::Answered(answer), fate }
}

fn failed(class: FailureClass, after_ms: u64, fate: Fate) -> Reaction {
    let failure = Failure { class, detail: "as the seed has it".into() };
    Reaction { after_ms, ending: Ending::Failed(failure), fate }
}

fn timed_out(deadline_ms: u64, fate: Fate) -> Reaction {
    failed(FailureClass::Timeout(Phase::Response), deadline_ms, fate)
}

/// A request in flight. If it is dropped before its end, its process has crashed.
struct Flight<'a> {
    receivers: &'a Receivers,
    id: Option<DeliveryId>,
    tenant: TenantId,
    destination: DestinationId,
    fate: Fate,
    heard: bool,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let now = self.receivers.clock.now_ms();
        let mut oracle = self.receivers.oracle();
        let to = (&self.tenant, self.destination);
        oracle.landed(self.id, to, self.fate, self.heard, now);
    }
}

impl Transport for Receivers {
    async fn send(&self, request: Request) -> Finished {
        let started = self.clock.now_ms();
        let destination = request.target.destination();
        let id = request
            .headers
            .iter()
            .find(|(name, _)| name == "webhook-id")
            .and_then(|(_, value)| value.to_str().ok()?.parse::<DeliveryId>().ok());
        let deadline_ms = u64::try_from(request.deadline.as_millis()).unwrap_or(u64::MAX);
        let deadline = i64::try_from(deadline_ms).unwrap_or(i64::MAX);
        let tenant = request.target.tenant().clone();
        let body = request.body.to_bytes();
        self.oracle().sent(id, (&tenant, destination), &body, deadline, started);
        let reaction = self.react(destination, deadline_ms, started);
        let fate = reaction.fate;
        let mut flight = Flight { receivers: self, id, tenant, destination, fate, heard: false };
        self.trigger.sent();
        if reaction.after_ms > 0 {
            pause(reaction.after_ms).await;
        }
        flight.heard = true;
        drop(flight);
        let total = self.clock.now_ms() - started;
        if let Ending::Failed(Failure { class: FailureClass::Timeout(_), .. }) = reaction.ending {
            self.oracle().coverage.hit(Cover::Timeout);
        } else if total > 4_000 {
            self.oracle().coverage.hit(Cover::Late);
        }
        let total = Duration::from_millis(total.unsigned_abs());
        Finished {
            started_at: Timestamp::from_unix_ms(started),
            timings: Timings { total, ..Timings::default() },
            ending: reaction.ending,
        }
    }
}
