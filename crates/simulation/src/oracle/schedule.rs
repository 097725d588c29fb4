//! The life of a delivery, modelled from sections 3 and 4: every change must be one that follows.

use postrider_domain::attempt::{Answer, Attempt, Ending, RetryAfter, Turn};
use postrider_domain::delivery::{CancelReason, DeadReason, Delivery, DeliveryState};
use postrider_domain::ids::DeliveryId;
use postrider_store::DeliveryChange;

use super::circuit::{Outcome, ended, outcome};
use super::rules::{RETRIES, due, next_slot};
use super::{Oracle, Stand};
use crate::coverage::Cover;

impl Oracle {
    /// A delivery changed, durably.
    pub(super) fn delivery_settled(&mut self, change: &DeliveryChange) {
        let id = change.delivery.id;
        let Some(owed) = self.owed.get(&id) else {
            return self.violate("a delivery that was never accepted".into(), Some(id), None);
        };
        if owed.raw == change.delivery {
            return;
        }
        let stand = stand_of(&change.delivery);
        let verdict = match &change.attempt {
            Some(attempt) => self.attempt_settled(id, attempt, &change.delivery, stand),
            None => self.moved(id, &change.delivery, stand),
        };
        let (what, n) = match (&change.attempt, stand) {
            (Some(_), _) => ("settled", i64::from(change.delivery.attempts)),
            (None, Stand::Waiting { slot, .. }) => ("moved to slot", i64::from(slot)),
            (None, Stand::Queued | Stand::Delivered | Stand::Dead | Stand::Cancelled) => {
                ("moved to its end", 0)
            }
        };
        self.note(what, Some(id), Some(change.delivery.destination), n);
        if let Err(what) = verdict {
            self.violate(what, Some(id), None);
        }
        let now = self.now;
        if let Some(owed) = self.owed.get_mut(&id) {
            owed.stand = stand;
            owed.since = now;
            owed.raw = change.delivery.clone();
            if let Some(attempt) = &change.attempt {
                owed.attempts += 1;
                owed.last_attempt = Some(attempt.started_at.as_unix_ms());
            }
        }
    }

    fn attempt_settled(
        &mut self,
        id: DeliveryId,
        attempt: &Attempt,
        after: &Delivery,
        stand: Stand,
    ) -> Result<(), String> {
        let owed = self.owed.get(&id).ok_or("it is gone")?;
        let before = owed.stand;
        if attempt.number != owed.attempts + 1 || after.attempts != attempt.number {
            return Err(format!("attempt {} follows {}", attempt.number, owed.attempts));
        }
        let end = ended(attempt);
        self.check_turn(id, attempt)?;
        let expected = match (before, outcome(attempt)) {
            (Stand::Cancelled, _) => {
                self.coverage.hit(Cover::CancelledInFlight);
                Stand::Cancelled
            }
            (Stand::Delivered | Stand::Dead, _) => {
                return Err(format!("attempted although it was {before:?}"));
            }
            (Stand::Queued | Stand::Waiting { .. }, Outcome::Success) => {
                self.coverage.hit(Cover::Delivered);
                Stand::Delivered
            }
            (
                Stand::Queued | Stand::Waiting { .. },
                Outcome::Failure | Outcome::Gone | Outcome::OwnFault,
            ) => self.after_failure(id, before, attempt, end),
        };
        if let DeliveryState::Dead { reason: DeadReason::NotAdmitted, .. } = after.state {
            return Err("dead as never admitted right after an attempt".into());
        }
        if stand != expected {
            return Err(format!("is {stand:?} after the attempt, must be {expected:?}"));
        }
        Ok(())
    }

    /// Where a delivery stands after an attempt that failed and ended at `end`.
    fn after_failure(
        &mut self,
        id: DeliveryId,
        before: Stand,
        attempt: &Attempt,
        end: i64,
    ) -> Stand {
        let created_at = self.owed.get(&id).map_or(0, |owed| owed.created_at);
        let started = attempt.started_at.as_unix_ms();
        let is_probe = attempt.turn == Turn::Probe;
        let (anchor, spent) = match before {
            Stand::Waiting { slot, due, anchor } if is_probe && due > end => {
                return self.moved_later(attempt, Stand::Waiting { slot, due, anchor }, end);
            }
            Stand::Waiting { slot, anchor, .. } if is_probe || slot > 0 => (anchor, slot),
            Stand::Queued if is_probe => (created_at, 0),
            Stand::Waiting { .. }
            | Stand::Queued
            | Stand::Delivered
            | Stand::Dead
            | Stand::Cancelled => (started, 0),
        };
        let Some((slot, due)) = next_slot(anchor, spent, end) else {
            self.coverage.hit(Cover::DeadExhausted);
            return Stand::Dead;
        };
        if slot > spent + 1 {
            self.coverage.hit(Cover::SpentInFlight);
        }
        self.moved_later(attempt, Stand::Waiting { slot, due, anchor }, end)
    }

    /// `Retry-After` on 429 and 503: later, never earlier, never past the last slot.
    fn moved_later(&mut self, attempt: &Attempt, stand: Stand, end: i64) -> Stand {
        let Stand::Waiting { slot, due: at, anchor } = stand else { return stand };
        let wish = match &attempt.ending {
            Ending::Answered(Answer { status: 429 | 503, retry_after: Some(wish), .. }) => {
                match wish {
                    RetryAfter::Delay(delay) => {
                        end.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))
                    }
                    RetryAfter::At(at) => at.as_unix_ms(),
                }
            }
            Ending::Answered(_) | Ending::Failed(_) | Ending::OwnFault(_) => return stand,
        };
        let last = due(anchor, RETRIES);
        if wish > at {
            let cover = if wish > last { Cover::RetryAfterCut } else { Cover::RetryAfterMoves };
            self.coverage.hit(cover);
        }
        Stand::Waiting { slot, due: at.max(wish.min(last)), anchor }
    }

    /// Which turn an attempt may take, and when it may begin.
    fn check_turn(&mut self, id: DeliveryId, attempt: &Attempt) -> Result<(), String> {
        let (rules, now, slack) = (self.rules, self.now, self.slack);
        let (up_at, disturbed) = (self.up_at, self.is_disturbed());
        let owed = self.owed.get(&id).ok_or("it is gone")?;
        let dest = self.destinations.get(&owed.destination).ok_or("no destination")?;
        let started = attempt.started_at.as_unix_ms();
        if started > now || ended(attempt) > now {
            return Err("settled before it ended".into());
        }
        let (slot, due_at) = match (owed.stand, attempt.turn) {
            (_, Turn::Probe) => {
                let chosen = dest.history.iter().rev().any(|(since, state)| {
                    let is_it =
                        matches!(state, super::State::HalfOpen { probe, .. } if *probe == id);
                    is_it && *since <= started
                });
                return if chosen {
                    Ok(())
                } else {
                    Err("a probe that was not let through".into())
                };
            }
            (Stand::Queued, Turn::First) => (0, owed.created_at),
            (Stand::Waiting { slot: 0, due, .. }, Turn::First) => (0, due),
            (Stand::Waiting { slot, due, .. }, Turn::Retry(n)) if n == slot => (slot, due),
            (Stand::Cancelled, Turn::First | Turn::Retry(_)) => return Ok(()),
            (stand, turn) => return Err(format!("{turn:?} while {stand:?}")),
        };
        if !dest.was_closed(started - slack, started) {
            return Err(format!("{:?} while the circuit was not closed", attempt.turn));
        }
        if started < due_at && !rules.drain {
            return Err(format!("attempted {} ms before its slot", due_at - started));
        }
        let wanted = due_at.max(up_at);
        let is_excused = disturbed
            || dest.paced
            || owed.sent.0 != started
            || owed.sent.1.is_some_and(|busy_from| busy_from <= wanted + slack);
        if started > wanted + slack && !is_excused {
            return Err(format!("attempted {} ms after its slot", started - wanted));
        }
        let cover = match slot {
            _ if started < due_at => Cover::Drained,
            RETRIES if up_at > due_at => Cover::LastSlotMadeUp,
            _ if up_at > due_at => Cover::MadeUp,
            0 => Cover::FirstAttempt,
            RETRIES => Cover::LastRetry,
            _ => Cover::Retry,
        };
        self.coverage.hit(cover);
        Ok(())
    }

    /// A change without an attempt: turned away, cancelled or replayed.
    fn moved(&mut self, id: DeliveryId, after: &Delivery, stand: Stand) -> Result<(), String> {
        let owed = self.owed.get(&id).ok_or("it is gone")?;
        let before = owed.stand;
        if after.attempts != owed.attempts {
            return Err("the count of attempts changed without an attempt".into());
        }
        match (before, stand) {
            (Stand::Queued | Stand::Waiting { .. }, Stand::Cancelled) => {
                let deleted = self.deleted.contains(&owed.subscription);
                let is_asked = match after.state {
                    DeliveryState::Cancelled { reason: CancelReason::Asked, .. } => {
                        self.coverage.hit(Cover::Cancelled);
                        owed.cancel_asked
                    }
                    DeliveryState::Cancelled { .. }
                    | DeliveryState::Queued
                    | DeliveryState::Waiting(_)
                    | DeliveryState::Delivered { .. }
                    | DeliveryState::Dead { .. } => {
                        self.coverage.hit(Cover::CancelledWithSubscription);
                        deleted
                    }
                };
                if is_asked { Ok(()) } else { Err("cancelled, and nobody asked".into()) }
            }
            (Stand::Queued | Stand::Waiting { .. }, Stand::Waiting { .. } | Stand::Dead) => {
                self.turned_away(id, before, stand)
            }
            (
                Stand::Delivered | Stand::Dead | Stand::Cancelled,
                Stand::Waiting { slot: 0, due, anchor },
            ) => {
                let is_asked = owed.replay_asked || self.bulk_replay;
                if !is_asked || due != anchor || due > self.now {
                    return Err(format!("replayed to {stand:?}, asked for: {is_asked}"));
                }
                if let Some(owed) = self.owed.get_mut(&id) {
                    (owed.replay_asked, owed.cancel_asked) = (false, false);
                    (owed.taken, owed.unheard_crash, owed.unheard_answer) = (0, 0, 0);
                }
                Ok(())
            }
            (before, after) => Err(format!("went from {before:?} to {after:?}")),
        }
    }

    /// The circuit said no: the next slot, or dead when none is left.
    fn turned_away(&mut self, id: DeliveryId, before: Stand, after: Stand) -> Result<(), String> {
        let (now, up_at) = (self.now, self.up_at);
        let exact = self.slack == 0 && !self.is_disturbed();
        let owed = self.owed.get(&id).ok_or("it is gone")?;
        let dest = self.destinations.get(&owed.destination).ok_or("no destination")?;
        let (anchor, spent, due_at) = match before {
            Stand::Waiting { slot, due, anchor } => (anchor, slot, due),
            Stand::Queued | Stand::Delivered | Stand::Dead | Stand::Cancelled => {
                (owed.created_at, 0, owed.created_at)
            }
        };
        if due_at > now {
            return Err("its slot was spent before it fell due".into());
        }
        let asked_from = due_at.max(up_at);
        if !dest.was_not_closed_since(asked_from.min(now)) {
            return Err("turned away by a closed circuit".into());
        }
        let starts = before == Stand::Queued;
        let verdict = match after {
            Stand::Dead if due(anchor, RETRIES) <= now => {
                self.coverage.hit(Cover::DeadNotAdmitted);
                Ok(())
            }
            Stand::Waiting { slot, due: at, anchor: is } => {
                // The question was asked at some time from the slot to now.
                let asked_last = next_slot(anchor, spent, now);
                let is_next = slot > spent && at == due(anchor, slot) && is == anchor;
                let not_too_late = slot == spent + 1 || due(anchor, slot - 1) <= now;
                if !is_next || !not_too_late || exact && asked_last != Some((slot, at)) {
                    Err(format!("turned away to {after:?}, must be {asked_last:?}"))
                } else {
                    Ok(())
                }
            }
            Stand::Dead | Stand::Queued | Stand::Delivered | Stand::Cancelled => {
                Err(format!("turned away to {after:?} before its last slot"))
            }
        };
        self.coverage.hit(Cover::SlotSpent);
        if starts {
            self.coverage.hit(Cover::StartedFromAcceptance);
        }
        verdict
    }
}

/// Where a delivery that was stored stands.
fn stand_of(delivery: &Delivery) -> Stand {
    match delivery.state {
        DeliveryState::Queued => Stand::Queued,
        DeliveryState::Waiting(slot) => Stand::Waiting {
            slot: slot.number,
            due: slot.due_at.as_unix_ms(),
            anchor: slot.clock.anchor_at.as_unix_ms(),
        },
        DeliveryState::Delivered { .. } => Stand::Delivered,
        DeliveryState::Dead { .. } => Stand::Dead,
        DeliveryState::Cancelled { .. } => Stand::Cancelled,
    }
}
