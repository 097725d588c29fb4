//! Explains a delivery: its state, the reason, what happens next and when, and what would unblock
//! it.
//!
//! Nothing here decides anything. The explanation follows from the rules in [`crate::retry`],
//! [`crate::circuit`] and [`crate::delivery`].

use std::fmt;
use std::time::Duration;

use crate::attempt::Attempt;
use crate::circuit::{CircuitState, Evidence};
use crate::delivery::{CancelReason, DeadReason, Delivery, DeliveryState, StateName};
use crate::destination::Destination;
use crate::policy::Policy;
use crate::retry::{self, Slot};
use crate::subscription::Subscription;
use crate::time::Timestamp;

/// The facts about a delivery that an explanation is made of.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The delivery.
    pub delivery: &'a Delivery,
    /// Whether it is being attempted.
    pub in_flight: bool,
    /// Its destination; `None` if it does not exist any more.
    pub destination: Option<&'a Destination>,
    /// Its subscription; `None` if it was deleted.
    pub subscription: Option<&'a Subscription>,
    /// Its last attempt, if it had one.
    pub last_attempt: Option<&'a Attempt>,
    /// What a due delivery waits for; `None` if that is not known on this node.
    pub standing: Option<&'a Standing>,
}

/// What a delivery that is due waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Deliveries to the same destination that are sent before it; a lower bound if `is_stored`.
    pub ahead: usize,
    /// Whether it is still only in the store, behind all deliveries in memory.
    pub is_stored: bool,
    /// What the first delivery of the destination's queue waits for.
    pub waits: Vec<Wait>,
}

/// Something that a delivery waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// The destination has reached its limit of attempts in flight.
    DestinationLimit {
        /// Attempts in flight.
        in_flight: u32,
        /// The limit.
        limit: u32,
    },
    /// The destination's rate is used up.
    Rate {
        /// The rate, in requests per thousand seconds.
        per_1000_seconds: u64,
        /// When the next request may be sent.
        next_at: Timestamp,
    },
    /// The tenant has reached its limit of attempts in flight.
    TenantLimit {
        /// Attempts in flight.
        in_flight: usize,
        /// The limit, as long as the other tenants have as many in flight as now.
        limit: usize,
    },
    /// The tenant has reached its limit of bytes in flight.
    TenantBytes {
        /// Bytes in flight.
        bytes: usize,
        /// The limit, as long as the other tenants have as many in flight as now.
        limit: usize,
    },
    /// All tenants together have reached the limit of attempts in flight.
    TotalLimit {
        /// Attempts in flight.
        in_flight: usize,
        /// The limit.
        limit: usize,
    },
    /// Only its turn: nothing else blocks it.
    Turn {
        /// Tenants that are served before its own.
        tenants: usize,
        /// Destinations of its tenant that are served before its own.
        destinations: usize,
    },
    /// Nothing is sent at this moment: the server is shutting down, or waits for its store.
    Pause,
}

impl Wait {
    /// The stable name, for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Wait::DestinationLimit { .. } => "destination_limit",
            Wait::Rate { .. } => "destination_rate",
            Wait::TenantLimit { .. } => "tenant_limit",
            Wait::TenantBytes { .. } => "tenant_bytes",
            Wait::TotalLimit { .. } => "total_limit",
            Wait::Turn { .. } => "turn",
            Wait::Pause => "pause",
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wait::DestinationLimit { in_flight, limit } => write!(
                f,
                "the destination has {in_flight} attempts in flight, and may have {limit} at a time"
            ),
            Wait::Rate { per_1000_seconds, next_at } => {
                let (whole, rest) = (per_1000_seconds / 1000, per_1000_seconds % 1000);
                let rate = format!("{whole}.{rest:03}");
                let rate = rate.trim_end_matches('0').trim_end_matches('.');
                write!(
                    f,
                    "the destination's rate limit is {rate} a second; the next is at {next_at}"
                )
            }
            Wait::TenantLimit { in_flight, limit } => write!(
                f,
                "the tenant has {in_flight} attempts in flight, and may have {limit} at a time"
            ),
            Wait::TenantBytes { bytes, limit } => write!(
                f,
                "the tenant has {bytes} bytes of payloads in flight, and may have {limit} at a time"
            ),
            Wait::TotalLimit { in_flight, limit } => write!(
                f,
                "the server has {in_flight} attempts in flight, and may have {limit} at a time"
            ),
            Wait::Turn { tenants, destinations } => write!(
                f,
                "it is not its turn yet: {tenants} other tenants and {destinations} other \
                 destinations of its tenant come before it"
            ),
            Wait::Pause => {
                f.write_str("nothing is sent now: the server is stopping, or waits for its store")
            }
        }
    }
}

/// The explanation of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Its state.
    pub state: StateName,
    /// The state in a sentence.
    pub summary: String,
    /// The reasons, one sentence each.
    pub because: Vec<String>,
    /// What happens next; `None` if nothing happens by itself.
    pub next: Option<NextStep>,
    /// What a person can do about it; empty if nothing is needed.
    pub unblock: Vec<Unblock>,
    /// What a due delivery waits for; `None` if it is not due, or that is not known.
    pub standing: Option<Standing>,
    /// The slot that it waits for; `None` where it waits for none.
    pub retry: Option<RetryPlace>,
}

/// Which retry of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPlace {
    /// Retry n; 0 for the first attempt of a schedule.
    pub number: u32,
    /// How many retries there are.
    pub max: u32,
    /// When its slot falls due.
    pub due_at: Timestamp,
}

/// What happens next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextStep {
    /// When it happens; `None` if that does not depend on time.
    pub at: Option<Timestamp>,
    /// What happens, as a sentence.
    pub what: String,
}

/// An action that would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unblock {
    /// The action, for programs.
    pub action: Action,
    /// The action as a sentence.
    pub what: String,
}

/// The actions a person can take about a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Repair the receiver.
    FixReceiver,
    /// Enable the destination.
    EnableDestination,
    /// Retry the delivery now.
    Retry,
    /// Replay the delivery.
    Replay,
    /// Create the subscription again.
    Resubscribe,
}

impl Action {
    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Action::FixReceiver => "fix_receiver",
            Action::EnableDestination => "enable_destination",
            Action::Retry => "retry",
            Action::Replay => "replay",
            Action::Resubscribe => "resubscribe",
        }
    }
}

/// Explains a delivery at `now`. `policy` is the server's; its subscription may have some of it otherwise.
pub fn explain(facts: &Facts<'_>, now: Timestamp, policy: &Policy) -> Explanation {
    let own = facts.subscription.map(|subscription| subscription.policy).unwrap_or_default();
    let policy = &policy.for_subscription(&own);
    let is_due = match facts.delivery.state {
        DeliveryState::Queued => !facts.in_flight,
        DeliveryState::Waiting(slot) => !facts.in_flight && slot.due_at <= now,
        DeliveryState::Delivered { .. }
        | DeliveryState::Dead { .. }
        | DeliveryState::Cancelled { .. } => false,
    };
    let standing = facts.standing.filter(|_| is_due).cloned();
    let retry = match facts.delivery.state {
        DeliveryState::Waiting(slot) => {
            let slot = slot.itself();
            Some(RetryPlace { number: slot.number, max: policy.retry.max, due_at: slot.due_at })
        }
        DeliveryState::Queued
        | DeliveryState::Delivered { .. }
        | DeliveryState::Dead { .. }
        | DeliveryState::Cancelled { .. } => None,
    };
    Explanation { standing, retry, ..explain_state(facts, now, policy) }
}

fn explain_state(facts: &Facts<'_>, now: Timestamp, policy: &Policy) -> Explanation {
    let delivery = facts.delivery;
    if facts.in_flight {
        return in_flight(facts, policy);
    }
    match delivery.state {
        DeliveryState::Queued => queued(facts, now),
        DeliveryState::Waiting(slot) => waiting(facts, slot, now, policy),
        DeliveryState::Delivered { at } => Explanation {
            state: StateName::Delivered,
            summary: format!("delivered at {at} by {}", attempts(delivery.attempts)),
            because: last_attempt(facts).into_iter().collect(),
            next: None,
            unblock: Vec::new(),
            standing: None,
            retry: None,
        },
        DeliveryState::Dead { at, reason } => dead(facts, at, reason),
        DeliveryState::Cancelled { at, reason } => cancelled(facts, at, reason),
    }
}

fn in_flight(facts: &Facts<'_>, policy: &Policy) -> Explanation {
    let deadline = policy.attempt.deadline.as_secs_f64();
    let is_own = facts.subscription.is_some_and(|one| one.policy.attempt_deadline.is_some());
    let whose = if is_own { ", its subscription's own deadline" } else { "" };
    Explanation {
        state: StateName::InFlight,
        summary: "a request to the receiver is under way".to_owned(),
        because: last_attempt(facts).into_iter().collect(),
        next: Some(NextStep {
            at: None,
            what: format!("it ends within {deadline} s{whose}, and its outcome is recorded"),
        }),
        unblock: Vec::new(),
        standing: None,
        retry: None,
    }
}

fn queued(facts: &Facts<'_>, now: Timestamp) -> Explanation {
    let since = facts.delivery.created_at;
    let mut because = circuit_words(facts, now);
    because.extend(standing_words(facts));
    Explanation {
        state: StateName::Queued,
        summary: format!("accepted at {since}, in the queue of first attempts"),
        because,
        next: Some(NextStep {
            at: turn_at(facts, now),
            what: "the first attempt is made as soon as it is its turn".to_owned(),
        }),
        unblock: unblock_destination(facts),
        standing: None,
        retry: None,
    }
}

/// What a due delivery waits for, as sentences.
fn standing_words(facts: &Facts<'_>) -> Vec<String> {
    let Some(standing) = facts.standing else { return Vec::new() };
    let ahead = match (standing.ahead, standing.is_stored) {
        (0, false) => "it is the next one of its destination".to_owned(),
        (n, false) => format!("{n} other deliveries of its destination are sent before it"),
        (n, true) => {
            format!("at least {n} other deliveries of its destination are sent before it")
        }
    };
    standing.waits.iter().map(ToString::to_string).chain([ahead]).collect()
}

/// The earliest time of its turn, if a rate limit determines it.
fn turn_at(facts: &Facts<'_>, now: Timestamp) -> Option<Timestamp> {
    let standing = facts.standing?;
    let at = standing.waits.iter().find_map(|wait| match wait {
        Wait::Rate { per_1000_seconds, next_at } => {
            let ahead = u64::try_from(standing.ahead).unwrap_or(u64::MAX);
            let ms = ahead.saturating_mul(1_000_000) / (*per_1000_seconds).max(1);
            Some(next_at.saturating_add(Duration::from_millis(ms)))
        }
        Wait::DestinationLimit { .. }
        | Wait::TenantLimit { .. }
        | Wait::TenantBytes { .. }
        | Wait::TotalLimit { .. }
        | Wait::Turn { .. }
        | Wait::Pause => None,
    });
    at.map(|at| at.max(now))
}

fn waiting(facts: &Facts<'_>, slot: Slot, now: Timestamp, policy: &Policy) -> Explanation {
    let summary = match slot.number {
        _ if slot.ahead_of.is_some() => {
            format!("somebody asked for an attempt, which is due at {}", slot.due_at)
        }
        0 => format!("replayed, and due at {}", slot.due_at),
        n => format!("waiting for retry {n} of {}, due at {}", policy.retry.max, slot.due_at),
    };
    let mut because: Vec<String> = last_attempt(facts).into_iter().collect();
    because.extend(circuit_words(facts, now));
    if slot.due_at <= now {
        because.extend(standing_words(facts));
    }
    let last_at = retry::last_due_at(slot.clock, &policy.retry);
    if let Some(at) = slot.ahead_of {
        let (n, max) = (slot.number, policy.retry.max);
        because.push(format!("that takes no slot: retry {n} of {max} is due at {at}"));
    }
    if slot.number > 0 {
        because.push(format!("its last retry is due at {last_at}; after that it is kept as dead"));
    }
    because.extend(own_schedule_words(facts, policy));
    Explanation {
        state: StateName::Waiting,
        summary,
        because,
        next: Some(next_of_waiting(facts, slot, now)),
        unblock: unblock_waiting(facts, slot, now),
        standing: None,
        retry: None,
    }
}

/// That the schedule is the subscription's own, where it is.
fn own_schedule_words(facts: &Facts<'_>, policy: &Policy) -> Option<String> {
    facts.subscription.filter(|subscription| subscription.policy.has_own_schedule())?;
    let (unit, max) = (policy.retry.unit.as_secs_f64(), policy.retry.max);
    Some(format!(
        "its subscription has a schedule of its own: {max} retries, the first {unit} s after the first \
         attempt"
    ))
}

/// What happens at the slot, depending on the circuit.
fn next_of_waiting(facts: &Facts<'_>, slot: Slot, now: Timestamp) -> NextStep {
    let retry = |at: Timestamp| {
        if at <= now {
            let what = "it is attempted now, as soon as it is its turn".to_owned();
            return NextStep { at: turn_at(facts, now), what };
        }
        let what = match slot.ahead_of {
            Some(_) => "it is attempted because somebody asked for it",
            None => "it is attempted at its slot",
        };
        NextStep { at: Some(at), what: what.to_owned() }
    };
    let Some(destination) = facts.destination else { return retry(slot.due_at) };
    match &destination.circuit.state {
        CircuitState::Closed => retry(slot.due_at),
        CircuitState::Open { probe_at, .. }
            if destination.circuit.next_probe == Some(facts.delivery.id) =>
        {
            NextStep {
                at: Some((*probe_at).max(now)),
                what: "it is sent to probe the destination, because somebody asked for it; a \
                       success enables the destination again"
                    .to_owned(),
            }
        }
        CircuitState::Open { probe_at, .. } if slot.ahead_of.is_some() => NextStep {
            at: Some(slot.due_at.max(*probe_at).max(now)),
            what: "it is attempted after the next probe, because somebody asked for it; where the \
                   probe fails, it follows its slot"
                .to_owned(),
        },
        CircuitState::Open { probe_at, .. } => NextStep {
            at: Some((*probe_at).max(now)),
            what: "one delivery, perhaps this one, is sent to probe the destination; a success \
                   enables it again"
                .to_owned(),
        },
        CircuitState::HalfOpen { .. } => NextStep {
            at: None,
            what: "a probe is under way; where it succeeds, deliveries follow their slots"
                .to_owned(),
        },
        CircuitState::Frozen { .. } => NextStep {
            at: Some(slot.due_at.max(now)),
            what: "its slot passes without an attempt while the destination is frozen".to_owned(),
        },
    }
}

fn dead(facts: &Facts<'_>, at: Timestamp, reason: DeadReason) -> Explanation {
    let why = match reason {
        DeadReason::Exhausted => "its last attempt failed, and no retry is left",
        DeadReason::NotAdmitted => {
            "its last slot passed while the destination was disabled or frozen, so no attempt was \
             made"
        }
    };
    let mut because = vec![why.to_owned()];
    because.extend(last_attempt(facts));
    let mut unblock = unblock_destination(facts);
    unblock.push(again_hint(facts));
    Explanation {
        state: StateName::Dead,
        summary: format!("dead since {at}, after {}; kept and replayable", {
            attempts(facts.delivery.attempts)
        }),
        because,
        next: None,
        unblock,
        standing: None,
        retry: None,
    }
}

fn cancelled(facts: &Facts<'_>, at: Timestamp, reason: CancelReason) -> Explanation {
    let why = match reason {
        CancelReason::Asked => "somebody cancelled it",
        CancelReason::SubscriptionDeleted => "its subscription was deleted",
    };
    Explanation {
        state: StateName::Cancelled,
        summary: format!("cancelled at {at}, after {}", attempts(facts.delivery.attempts)),
        because: vec![why.to_owned()],
        next: None,
        unblock: vec![again_hint(facts)],
        standing: None,
        retry: None,
    }
}

fn last_attempt(facts: &Facts<'_>) -> Option<String> {
    let attempt = facts.last_attempt?;
    let outcome = match attempt.ending.status() {
        Some(status) => format!("was answered with status {status}"),
        None => format!("failed: {}", attempt.ending),
    };
    Some(format!("attempt {} at {} {outcome}", attempt.number, attempt.started_at))
}

fn circuit_words(facts: &Facts<'_>, now: Timestamp) -> Vec<String> {
    let Some(destination) = facts.destination else { return Vec::new() };
    match &destination.circuit.state {
        CircuitState::Closed => Vec::new(),
        CircuitState::Open { since, evidence, probe_at } => {
            let probe = if *probe_at <= now { "due now" } else { "not due yet" };
            vec![format!(
                "the destination is disabled since {since} ({}); its next probe is {probe}",
                Words(evidence)
            )]
        }
        CircuitState::HalfOpen { since, evidence, .. } => vec![format!(
            "the destination is disabled since {since} ({}), and a probe is under way",
            Words(evidence)
        )],
        CircuitState::Frozen { since, evidence } => vec![format!(
            "the destination is frozen since {since} ({}): nothing is sent to it",
            Words(evidence)
        )],
    }
}

fn unblock_waiting(facts: &Facts<'_>, slot: Slot, now: Timestamp) -> Vec<Unblock> {
    let mut unblock = unblock_destination(facts);
    if unblock.is_empty() && facts.last_attempt.is_some() {
        unblock.push(fix_hint());
    }
    let is_frozen = facts
        .destination
        .is_some_and(|known| matches!(known.circuit.state, CircuitState::Frozen { .. }));
    if slot.due_at > now && slot.ahead_of.is_none() && !is_frozen && facts.subscription.is_some() {
        unblock.push(Unblock {
            action: Action::Retry,
            what: "retry it now: it need not wait for its slot, and keeps it; a bulk replay with \
                   state waiting does so for many"
                .to_owned(),
        });
    }
    unblock
}

fn unblock_destination(facts: &Facts<'_>) -> Vec<Unblock> {
    let enable = Unblock {
        action: Action::EnableDestination,
        what: "enable the destination once the receiver works; with waiting = drain what waits is \
               sent at once"
            .to_owned(),
    };
    match facts.destination.map(|destination| &destination.circuit.state) {
        None | Some(CircuitState::Closed) => Vec::new(),
        Some(CircuitState::Open { .. } | CircuitState::HalfOpen { .. }) => {
            vec![fix_hint(), enable]
        }
        Some(CircuitState::Frozen { .. }) => vec![enable],
    }
}

fn fix_hint() -> Unblock {
    Unblock {
        action: Action::FixReceiver,
        what: "make the receiver answer with a status from 200 to 299 in time".to_owned(),
    }
}

/// How to send it again: by a replay if its subscription still exists.
fn again_hint(facts: &Facts<'_>) -> Unblock {
    match facts.subscription {
        Some(_) => Unblock {
            action: Action::Replay,
            what: "replay it: a new schedule begins at once".to_owned(),
        },
        None => Unblock {
            action: Action::Resubscribe,
            what: "its subscription is gone: create it again and send the event anew".to_owned(),
        },
    }
}

fn attempts(count: u32) -> String {
    match count {
        0 => "no attempt".to_owned(),
        1 => "1 attempt".to_owned(),
        n => format!("{n} attempts"),
    }
}

/// Displays evidence as a phrase.
pub struct Words<'a>(pub &'a Evidence);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Evidence::FailureShare => f.write_str("too large a share of its attempts failed"),
            Evidence::ConsecutiveFailures => f.write_str("too many consecutive failures"),
            Evidence::NoSuccess { since } => {
                write!(f, "many consecutive failures and no success since {since}")
            }
            Evidence::Gone => f.write_str("the receiver answered 410 Gone"),
            Evidence::ProbeSent { delivery } => write!(f, "probed with {delivery}"),
            Evidence::ProbeFailed => f.write_str("the probe failed"),
            Evidence::ProbeLost => f.write_str("the probe was lost by a fault of our own"),
            Evidence::Success { by_probe: true } => f.write_str("the probe succeeded"),
            Evidence::Success { by_probe: false } => f.write_str("a delivery succeeded"),
            Evidence::ByHand { reason: None } => f.write_str("by hand"),
            Evidence::ByHand { reason: Some(reason) } if self.0.is_taken_back() => {
                f.write_str(reason)
            }
            Evidence::ByHand { reason: Some(reason) } => write!(f, "by hand: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests;
