//! A delivery: one event owed to one subscription, its state and its next state.
//!
//! ```text
//!   accepted ─▶ queued ──────────────▶ delivered ◀───────┐
//!                 │ failed, or not admitted              │
//!                 ▼                                      │
//!              waiting (slot n) ─────────────────────────┤ (a replay leads back to waiting)
//!                 │ no slot is left                      │
//!                 ▼                                      │
//!               dead ────────────────────────────────────┘
//!   (every unfinished delivery can be cancelled)
//! ```
//!
//! In flight is not a stored state: a delivery whose attempt was not settled when a process ended
//! is attempted again. Every function here returns the changed delivery and has no other effect.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::attempt::Turn;
use crate::event::EventType;
use crate::ids::{DeliveryId, DestinationId, EventId, ReplayId, SubscriptionId, TenantId};
use crate::job_outcomes::ByJob;
use crate::policy::RetryPolicy;
use crate::retry::{self, ScheduleClock, Slot};
use crate::time::Timestamp;

/// A delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What the receiver sees as `webhook-id`.
    pub id: DeliveryId,
    /// The tenant that it belongs to.
    pub tenant: TenantId,
    /// The event.
    pub event: EventId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The destination.
    pub destination: DestinationId,
    /// The event's type.
    pub kind: EventType,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Its state.
    pub state: DeliveryState,
    /// How often it was attempted, probes and replays included.
    pub attempts: u32,
    /// When the last attempt began.
    pub last_attempt_at: Option<Timestamp>,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DeliveryState {
    /// In the first lane, waiting for its first attempt.
    Queued,
    /// In the retry lane, until its slot falls due.
    Waiting(Slot),
    /// Delivered.
    Delivered {
        /// When it was delivered.
        at: Timestamp,
    },
    /// No slot is left. The delivery is kept, listed, and can be replayed.
    Dead {
        /// When it became dead.
        at: Timestamp,
        /// The reason.
        reason: DeadReason,
    },
    /// Cancelled.
    Cancelled {
        /// When it was cancelled.
        at: Timestamp,
        /// The reason.
        reason: CancelReason,
    },
}

/// Why a delivery is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// Its last attempt failed.
    Exhausted,
    /// Its last slot passed while the destination was disabled or frozen.
    NotAdmitted,
}

/// Why a delivery was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// Cancelled through the API.
    Asked,
    /// Its subscription was deleted.
    SubscriptionDeleted,
}

/// The accounts of the ledger, one for each state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateName {
    /// In the first lane.
    Queued,
    /// Being attempted.
    InFlight,
    /// In the retry lane.
    Waiting,
    /// Delivered.
    Delivered,
    /// Dead.
    Dead,
    /// Cancelled.
    Cancelled,
}

/// The two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// New deliveries.
    First,
    /// Retries and replays. They never delay the first lane.
    Retry,
}

/// The call does not fit the delivery's state: one that has not ended cannot be replayed, one that has
/// ended cannot be cancelled, and only one that waits can be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongState {
    /// Only a delivery that has ended can be replayed, and this one has not.
    #[error("the delivery is {0}: only one that has ended can be replayed; {how}", how = instead_of_replay(*.0))]
    Unfinished(StateName),
    /// Only an unfinished delivery can be cancelled.
    #[error("the delivery is {0} already: only one that has not ended can be cancelled")]
    Finished(StateName),
    /// Only a waiting delivery can be retried now, and this one is due or being attempted.
    #[error("the delivery is {0}: it is attempted without being asked for")]
    OnItsWay(StateName),
    /// Only a waiting delivery can be retried now, and this one has ended: it can be replayed.
    #[error("the delivery is {0} already: to send it once more, replay it")]
    ToBeReplayed(StateName),
}

/// What to do with a delivery that cannot be replayed because it has not ended.
const fn instead_of_replay(state: StateName) -> &'static str {
    match state {
        StateName::Waiting => {
            "to send it now, retry it (POST /v1/deliveries/{id}/retry, postrider deliveries retry)"
        }
        StateName::Queued => "its first attempt is made as soon as its turn comes",
        StateName::InFlight => "wait for the outcome of its attempt",
        StateName::Delivered | StateName::Dead | StateName::Cancelled => "look at it again",
    }
}

impl Delivery {
    /// A delivery as it is accepted: queued in the first lane.
    pub fn accepted(
        id: DeliveryId,
        event: &crate::event::Event,
        subscription: SubscriptionId,
        destination: DestinationId,
        now: Timestamp,
    ) -> Self {
        Delivery {
            id,
            tenant: event.tenant.clone(),
            event: event.id.clone(),
            subscription,
            destination,
            kind: event.kind.clone(),
            created_at: now,
            state: DeliveryState::Queued,
            attempts: 0,
            last_attempt_at: None,
        }
    }

    /// The turn of an ordinary attempt made now; `None` if the delivery has ended.
    pub fn turn(&self) -> Option<Turn> {
        match self.state {
            DeliveryState::Queued => Some(Turn::First),
            DeliveryState::Waiting(Slot { ahead_of: Some(_), .. }) => Some(Turn::Manual),
            DeliveryState::Waiting(Slot { number: 0, .. }) => Some(Turn::First),
            DeliveryState::Waiting(Slot { number, .. }) => Some(Turn::Retry(number)),
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => None,
        }
    }

    /// The lane that it is in; `None` if it has ended.
    pub fn lane(&self) -> Option<Lane> {
        match self.state {
            DeliveryState::Queued => Some(Lane::First),
            DeliveryState::Waiting(_) => Some(Lane::Retry),
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => None,
        }
    }

    /// When it ended.
    pub fn finished_at(&self) -> Option<Timestamp> {
        match self.state {
            DeliveryState::Queued | DeliveryState::Waiting(_) => None,
            DeliveryState::Delivered { at }
            | DeliveryState::Dead { at, .. }
            | DeliveryState::Cancelled { at, .. } => Some(at),
        }
    }

    /// When it is due for its next attempt, if the circuit admits it.
    pub fn next_attempt_at(&self) -> Option<Timestamp> {
        match self.state {
            DeliveryState::Queued => Some(self.created_at),
            DeliveryState::Waiting(slot) => Some(slot.due_at),
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => None,
        }
    }

    /// The order in which waiting deliveries are taken as probes: those never attempted first, then
    /// the one whose last attempt is the oldest.
    pub fn probe_rank(&self) -> (Option<Timestamp>, DeliveryId) {
        (self.last_attempt_at, self.id)
    }

    /// The delivery after a successful attempt. One that was cancelled meanwhile stays cancelled.
    #[must_use]
    pub fn delivered(&self, started_at: Timestamp, now: Timestamp) -> Delivery {
        let state = match self.state {
            DeliveryState::Queued | DeliveryState::Waiting(_) => {
                DeliveryState::Delivered { at: now }
            }
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => self.state,
        };
        self.attempted(started_at, state)
    }

    /// The delivery after a failed attempt in `turn`. `wish` is the time that `Retry-After` asks for.
    ///
    /// A probe and a manual attempt take no slot and do not move the clock. But a slot that fell
    /// due while the delivery was in flight is spent.
    #[must_use]
    pub fn failed(
        &self,
        turn: Turn,
        started_at: Timestamp,
        wish: Option<Timestamp>,
        now: Timestamp,
        policy: &RetryPolicy,
    ) -> Delivery {
        let next = match (self.state, turn) {
            (DeliveryState::Queued, Turn::Probe | Turn::Manual) => {
                self.slot_after(ScheduleClock::starting_at(self.created_at), 0, now, policy)
            }
            (DeliveryState::Waiting(slot), Turn::Probe | Turn::Manual) => {
                self.slot_from(slot.itself(), now, policy)
            }
            (DeliveryState::Queued, Turn::First | Turn::Retry(_))
            | (DeliveryState::Waiting(Slot { number: 0, .. }), Turn::First | Turn::Retry(_)) => {
                self.slot_after(ScheduleClock::starting_at(started_at), 0, now, policy)
            }
            (DeliveryState::Waiting(slot), Turn::First | Turn::Retry(_)) => {
                let clock = ScheduleClock { previous_at: started_at, ..slot.clock };
                self.slot_after(clock, slot.number, now, policy)
            }
            (
                DeliveryState::Delivered { .. }
                | DeliveryState::Dead { .. }
                | DeliveryState::Cancelled { .. },
                _,
            ) => return self.attempted(started_at, self.state),
        };
        let by_job = self.by_job().map(ByJob::after_failure);
        let state = match next.map(|slot| Slot { by_job, ..slot }) {
            Some(slot) => DeliveryState::Waiting(slot.not_before(wish, policy)),
            None => DeliveryState::Dead { at: now, reason: DeadReason::Exhausted },
        };
        self.attempted(started_at, state)
    }

    /// The delivery after its circuit did not admit it: it waits for its next slot, without an
    /// attempt and without a counted failure, or is dead if no slot is left. Its clock started at
    /// acceptance.
    #[must_use]
    pub fn not_admitted(&self, now: Timestamp, policy: &RetryPolicy) -> Delivery {
        let next = match self.state {
            DeliveryState::Queued => {
                self.slot_after(ScheduleClock::starting_at(self.created_at), 0, now, policy)
            }
            DeliveryState::Waiting(slot) => self.slot_from(slot.itself(), now, policy),
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => return self.clone(),
        };
        let state = match next.map(|slot| Slot { by_job: self.by_job(), ..slot }) {
            Some(slot) => DeliveryState::Waiting(slot),
            None => DeliveryState::Dead { at: now, reason: DeadReason::NotAdmitted },
        };
        Delivery { state, ..self.clone() }
    }

    /// The delivery after it was cancelled.
    pub fn cancelled(&self, reason: CancelReason, now: Timestamp) -> Result<Delivery, WrongState> {
        match self.state {
            DeliveryState::Queued | DeliveryState::Waiting(_) => {
                Ok(Delivery { state: DeliveryState::Cancelled { at: now, reason }, ..self.clone() })
            }
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => Err(WrongState::Finished(self.state.name())),
        }
    }

    /// The delivery after a replay: a new schedule, due at once. It is in the retry lane, so that
    /// replays never delay new deliveries. Its attempt log and its count continue.
    pub fn replayed(&self, now: Timestamp) -> Result<Delivery, WrongState> {
        match self.state {
            DeliveryState::Queued | DeliveryState::Waiting(_) => {
                Err(WrongState::Unfinished(self.state.name()))
            }
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {
                let clock = ScheduleClock::starting_at(now);
                let slot = Slot::new(0, now, clock);
                Ok(Delivery { state: DeliveryState::Waiting(slot), ..self.clone() })
            }
        }
    }

    /// Schedules a manual attempt at this time, without waiting for the slot. The slot stays.
    pub fn asked_for(&self, at: Timestamp) -> Result<Delivery, WrongState> {
        match self.state {
            DeliveryState::Waiting(slot) => {
                let state = DeliveryState::Waiting(slot.with_attempt_at(at));
                Ok(Delivery { state, ..self.clone() })
            }
            DeliveryState::Queued => Err(WrongState::OnItsWay(StateName::Queued)),
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => Err(WrongState::ToBeReplayed(self.state.name())),
        }
    }

    /// Schedules a manual attempt now. If a slot is due already, the attempt takes its place: so the
    /// wish is stored in any case, and is not lost if the circuit opens before the attempt.
    pub fn asked_for_now(&self, now: Timestamp) -> Result<Delivery, WrongState> {
        let DeliveryState::Waiting(slot) = self.state else { return self.asked_for(now) };
        let before_slot = slot.itself().due_at.saturating_sub(Duration::from_millis(1));
        self.asked_for(now.min(before_slot))
    }

    /// The waiting delivery, sent by this bulk job.
    #[must_use]
    pub fn sent_by(self, job: ReplayId) -> Delivery {
        self.with_job(Some(ByJob::sent(job)))
    }

    /// The delivery, sent by no bulk job.
    #[must_use]
    pub fn without_job(self) -> Delivery {
        self.with_job(None)
    }

    fn with_job(self, by_job: Option<ByJob>) -> Delivery {
        let state = match self.state {
            DeliveryState::Waiting(slot) => DeliveryState::Waiting(Slot { by_job, ..slot }),
            DeliveryState::Queued
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => self.state,
        };
        Delivery { state, ..self }
    }

    /// The bulk job that counts the outcome of the delivery; `None` if no job sent it, or if its
    /// outcome is counted.
    pub fn by_job(&self) -> Option<ByJob> {
        match self.state {
            DeliveryState::Waiting(slot) => slot.by_job,
            DeliveryState::Queued
            | DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => None,
        }
    }

    /// Whether its next attempt is a manual one.
    pub fn is_asked_for(&self) -> bool {
        matches!(self.state, DeliveryState::Waiting(Slot { ahead_of: Some(_), .. }))
    }

    fn attempted(&self, started_at: Timestamp, state: DeliveryState) -> Delivery {
        Delivery {
            state,
            attempts: self.attempts.saturating_add(1),
            last_attempt_at: Some(started_at),
            ..self.clone()
        }
    }

    fn slot_after(
        &self,
        clock: ScheduleClock,
        spent: u32,
        now: Timestamp,
        policy: &RetryPolicy,
    ) -> Option<Slot> {
        retry::next_slot(clock, spent, now, self.id, policy)
    }

    /// The given slot if it is still in the future; if it has passed without an ordinary attempt,
    /// the next one.
    fn slot_from(&self, slot: Slot, now: Timestamp, policy: &RetryPolicy) -> Option<Slot> {
        if slot.due_at > now {
            return Some(slot);
        }
        let clock = ScheduleClock { previous_at: slot.due_at, ..slot.clock };
        self.slot_after(clock, slot.number, now, policy)
    }
}

impl DeliveryState {
    /// The account of the ledger that counts this state.
    pub const fn name(&self) -> StateName {
        match self {
            DeliveryState::Queued => StateName::Queued,
            DeliveryState::Waiting(_) => StateName::Waiting,
            DeliveryState::Delivered { .. } => StateName::Delivered,
            DeliveryState::Dead { .. } => StateName::Dead,
            DeliveryState::Cancelled { .. } => StateName::Cancelled,
        }
    }
}

impl StateName {
    /// All states, in the order of the ledger's equation.
    pub const ALL: [StateName; 6] = [
        StateName::Queued,
        StateName::InFlight,
        StateName::Waiting,
        StateName::Delivered,
        StateName::Dead,
        StateName::Cancelled,
    ];

    /// The name in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            StateName::Queued => "queued",
            StateName::InFlight => "in_flight",
            StateName::Waiting => "waiting",
            StateName::Delivered => "delivered",
            StateName::Dead => "dead",
            StateName::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
