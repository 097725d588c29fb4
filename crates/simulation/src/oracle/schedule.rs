//! A model of the life of a delivery, written from the contract: every change must be a valid one.

use postrider_domain::attempt::{Answer, Attempt, Ending, RetryAfter, Turn};
use postrider_domain::delivery::{CancelReason, DeadReason, Delivery, DeliveryState};
use postrider_domain::ids::DeliveryId;
use postrider_store::DeliveryChange;

use super::circuit::{Outcome, ended, outcome};
use super::rules::{Clock, Schedule};
use super::{Oracle, Stand};
use crate::coverage::Cover;

impl Oracle {
    /// Checks a durable change of a delivery.
    pub(super) fn delivery_settled(&mut self, change: &DeliveryChange) {
        let id = change.delivery.id;
        let Some(owed) = self.owed.get(&id) else {
            return self.violate("a delivery that was never accepted".into(), Some(id), None);
        };
        if owed.raw == change.delivery {
            return;
        }
        let stand = self.stand_of(&change.delivery);
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
        self.stands(id, stand);
        if let Some(owed) = self.owed.get_mut(&id) {
            owed.since = now;
            owed.raw = change.delivery.clone();
            if let Some(attempt) = &change.attempt {
                owed.attempts += 1;
                owed.last_attempt = Some(attempt.started_at.as_unix_ms());
                if let Some(dest) = self.destinations.get_mut(&change.delivery.destination) {
                    dest.probe_asked = dest.probe_asked.filter(|asked| *asked != id);
                }
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
            ) => {
                let mut last = Err(String::new());
                for schedule in self.schedules(id).iter().rev() {
                    last = self.after_failure((id, schedule), before, attempt, after, stand);
                    if last.is_ok() {
                        break;
                    }
                }
                return last;
            }
        };
        if stand != expected {
            return Err(format!("is {stand:?} after the attempt, must be {expected:?}"));
        }
        Ok(())
    }

    /// The state of a delivery after a failed attempt.
    fn after_failure(
        &mut self,
        (id, schedule): (DeliveryId, &Schedule),
        before: Stand,
        attempt: &Attempt,
        after: &Delivery,
        stand: Stand,
    ) -> Result<(), String> {
        if let DeliveryState::Dead { reason: DeadReason::NotAdmitted, .. } = after.state {
            return Err("dead as never admitted right after an attempt".into());
        }
        let (started, end) = (attempt.started_at.as_unix_ms(), ended(attempt));
        let created_at = self.owed.get(&id).map_or(0, |owed| owed.created_at);
        let is_probe = matches!(attempt.turn, Turn::Probe | Turn::Manual);
        let wish = wish(attempt, end);
        let begins = |at: i64| (Clock { anchor: at, previous: at }, 0);
        let (clock, spent) = match before {
            // A probe takes no slot, and neither does a manual attempt.
            Stand::Waiting { slot, due: at, clock } if is_probe && at > end => {
                let at = at.max(wish.min(schedule.last(clock.anchor)));
                let expected = Stand::Waiting { slot, due: at, clock };
                return if self.is_same(stand, expected) {
                    Ok(())
                } else {
                    Err(format!("is {stand:?} after the probe, must be {expected:?}"))
                };
            }
            // A slot that fell due while the probe was in flight is spent.
            Stand::Waiting { slot, due, clock } if is_probe => {
                (Clock { previous: due, ..clock }, slot)
            }
            Stand::Waiting { slot, clock, .. } if slot > 0 => {
                (Clock { previous: started, ..clock }, slot)
            }
            Stand::Queued if is_probe => begins(created_at),
            Stand::Waiting { .. }
            | Stand::Queued
            | Stand::Delivered
            | Stand::Dead
            | Stand::Cancelled => begins(started),
        };
        self.check_next((id, schedule), (clock, spent), end, wish, stand)
    }

    /// Whether a delivery is in the next slot, or dead if none is left. `wish` is the time of
    /// `Retry-After`: later, never earlier, never after the last slot.
    fn check_next(
        &mut self,
        (id, schedule): (DeliveryId, &Schedule),
        (clock, spent): (Clock, u32),
        now: i64,
        wish: i64,
        seen: Stand,
    ) -> Result<(), String> {
        let slots = self.rules.next_slots(schedule, clock, spent, now);
        let last = schedule.last(clock.anchor);
        let Some((slot, at, from, to, counted)) = slots.iter().find_map(|next| {
            let (n, from, to, counted) = *next;
            let fits = |slot: u32, at: i64| slot == n && at >= from.max(wish.min(last));
            match seen {
                Stand::Waiting { slot, due, .. } if fits(slot, due) => {
                    Some((slot, due, from, to, counted))
                }
                Stand::Waiting { .. }
                | Stand::Queued
                | Stand::Delivered
                | Stand::Dead
                | Stand::Cancelled => None,
            }
        }) else {
            let is_end = slots.is_empty() && seen == Stand::Dead;
            if is_end {
                self.coverage.hit(Cover::DeadExhausted);
            }
            return if is_end { Ok(()) } else { Err(format!("is {seen:?}, must be {slots:?}")) };
        };
        let is_moved = at > to;
        if at > to.max(wish.min(last))
            || !self.is_same(seen, Stand::Waiting { slot, due: at, clock: counted })
        {
            return Err(format!("is {seen:?}, must be {slots:?}"));
        }
        if is_moved {
            let cover = if wish > last { Cover::RetryAfterCut } else { Cover::RetryAfterMoves };
            self.coverage.hit(cover);
        } else if self.rules.jitter > 0 {
            self.check_spread(id, slot, (at, schedule.due(clock.anchor, slot)), wish > from)?;
        }
        if slot > spent + 1 {
            self.coverage.hit(Cover::SpentInFlight);
        }
        if *schedule != Schedule::CONTRACT {
            self.coverage.hit(Cover::OwnSchedule);
        }
        if self.rules.from_previous && clock.previous > clock.anchor {
            self.coverage.hit(Cover::FromPrevious);
        }
        Ok(())
    }

    /// Checks that the same slot of the same schedule always has the same jitter.
    fn check_spread(
        &mut self,
        id: DeliveryId,
        slot: u32,
        (at, from): (i64, i64),
        is_wished: bool,
    ) -> Result<(), String> {
        if at > from {
            self.coverage.hit(Cover::Jitter);
        }
        let Some(owed) = self.owed.get_mut(&id).filter(|_| !is_wished) else { return Ok(()) };
        let known = *owed.spread.entry(slot).or_insert(at - from);
        if known == at - from {
            return Ok(());
        }
        Err(format!("slot {slot} is spread by {} ms, was by {known} ms", at - from))
    }

    /// Whether two states are equal; the times from which delays count are compared only if they
    /// matter.
    fn is_same(&self, one: Stand, other: Stand) -> bool {
        let plain = |stand: Stand| match stand {
            Stand::Waiting { slot, due, clock } if !self.rules.from_previous => {
                Stand::Waiting { slot, due, clock: Clock { previous: 0, ..clock } }
            }
            Stand::Waiting { .. }
            | Stand::Queued
            | Stand::Delivered
            | Stand::Dead
            | Stand::Cancelled => stand,
        };
        plain(one) == plain(other)
    }

    /// The state of a stored delivery.
    fn stand_of(&self, delivery: &Delivery) -> Stand {
        match delivery.state {
            DeliveryState::Queued => Stand::Queued,
            DeliveryState::Waiting(slot) => Stand::Waiting {
                slot: slot.number,
                // A manual attempt does not change the slot.
                due: slot.itself().due_at.as_unix_ms(),
                clock: Clock {
                    anchor: slot.clock.anchor_at.as_unix_ms(),
                    previous: slot.clock.previous_at.as_unix_ms(),
                },
            },
            DeliveryState::Delivered { .. } => Stand::Delivered,
            DeliveryState::Dead { .. } => Stand::Dead,
            DeliveryState::Cancelled { .. } => Stand::Cancelled,
        }
    }

    /// Checks the turn of an attempt, and that it did not begin too early.
    fn check_turn(&mut self, id: DeliveryId, attempt: &Attempt) -> Result<(), String> {
        let (now, slack) = (self.now, self.slack);
        let (up_at, disturbed) = (self.up_at, self.is_disturbed());
        let last = self.schedule(id).retries.max(1);
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
            (Stand::Cancelled, Turn::First | Turn::Retry(_) | Turn::Manual) => return Ok(()),
            (Stand::Waiting { .. }, Turn::Manual) => return self.check_asked(id, started),
            (stand, turn) => return Err(format!("{turn:?} while {stand:?}")),
        };
        if !dest.was_closed(started - slack, started) {
            return Err(format!("{:?} while the circuit was not closed", attempt.turn));
        }
        // A drain that somebody asked for may begin and end between two commits of a slow store.
        let drains = self.may_drain(owed.destination) || dest.drain_asked;
        if started < due_at && !drains && !dest.drained_at(started) {
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
            n if n == last && up_at > due_at => Cover::LastSlotMadeUp,
            _ if up_at > due_at => Cover::MadeUp,
            0 => Cover::FirstAttempt,
            n if n == last => Cover::LastRetry,
            _ => Cover::Retry,
        };
        self.coverage.hit(cover);
        Ok(())
    }

    /// Checks that somebody requested this attempt, that it is made once, and that the circuit
    /// allows it.
    fn check_asked(&mut self, id: DeliveryId, started: i64) -> Result<(), String> {
        let slack = self.slack;
        let owed = self.owed.get_mut(&id).ok_or("it is gone")?;
        let Some(left) = owed.retries_asked.checked_sub(1) else {
            return Err("attempted before its slot, and nobody asked".into());
        };
        owed.retries_asked = left;
        let dest = self.destinations.get(&owed.destination).ok_or("no destination")?;
        if !dest.was_closed(started - slack, started) {
            return Err("an attempt that was asked for while the circuit was not closed".into());
        }
        self.coverage.hit(Cover::RetriedNow);
        Ok(())
    }

    /// Checks a change without an attempt: not admitted, cancelled or replayed.
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
            // An attempt was requested, or postponed: the slot stays the same.
            (Stand::Waiting { .. }, Stand::Waiting { .. }) if before == stand => {
                let was_asked = owed.retries_asked > 0 || owed.raw.is_asked_for();
                // The probe failed, and the wish has lapsed; it may still be preferred as the next one.
                if owed.raw.is_asked_for() && !after.is_asked_for() {
                    self.coverage.hit(Cover::WishLapsed);
                }
                if was_asked { Ok(()) } else { Err("moved, and nobody asked".into()) }
            }
            (Stand::Queued | Stand::Waiting { .. }, Stand::Waiting { .. } | Stand::Dead) => {
                let mut last = Err(String::new());
                for schedule in self.schedules(id).iter().rev() {
                    last = self.turned_away((id, schedule), before, stand);
                    if last.is_ok() {
                        break;
                    }
                }
                last
            }
            (
                Stand::Delivered | Stand::Dead | Stand::Cancelled,
                Stand::Waiting { slot: 0, due, clock },
            ) => {
                let is_asked = owed.replay_asked || self.is_job;
                if !is_asked || due != clock.anchor || due > self.now {
                    return Err(format!("replayed to {stand:?}, asked for: {is_asked}"));
                }
                if let Some(owed) = self.owed.get_mut(&id) {
                    owed.begun = self.now;
                    (owed.replay_asked, owed.cancel_asked) = (false, false);
                    owed.replay_due = false;
                    (owed.taken, owed.unheard_crash, owed.unheard_answer) = (0, 0, 0);
                    owed.spread.clear();
                }
                Ok(())
            }
            (before, after) => Err(format!("went from {before:?} to {after:?}")),
        }
    }

    /// Checks a delivery that its circuit did not admit: it moves to the next slot, or is dead when none
    /// is left.
    fn turned_away(
        &mut self,
        (id, schedule): (DeliveryId, &Schedule),
        before: Stand,
        after: Stand,
    ) -> Result<(), String> {
        let (now, up_at) = (self.now, self.up_at);
        let exact = self.slack == 0 && !self.is_disturbed();
        let owed = self.owed.get(&id).ok_or("it is gone")?;
        let dest = self.destinations.get(&owed.destination).ok_or("no destination")?;
        let (clock, spent, due_at) = match before {
            Stand::Waiting { slot, due, clock } => (Clock { previous: due, ..clock }, slot, due),
            Stand::Queued | Stand::Delivered | Stand::Dead | Stand::Cancelled => {
                let at = owed.created_at;
                (Clock { anchor: at, previous: at }, 0, at)
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
            Stand::Dead if spent >= schedule.retries || schedule.last(clock.anchor) <= now => {
                self.coverage.hit(Cover::DeadNotAdmitted);
                Ok(())
            }
            Stand::Waiting { slot, due: at, .. } => {
                // Admission was asked at some time from the slot to now, and before the next slot.
                let asked = if exact { now } else { now.min(at - 1).max(asked_from.min(now)) };
                let next = self.rules.next_slots(schedule, clock, spent, asked);
                let is_one = next.iter().any(|(n, from, to, counted)| {
                    let is = Stand::Waiting { slot: *n, due: at, clock: *counted };
                    *n == slot && (*from..=*to).contains(&at) && self.is_same(after, is)
                });
                if is_one {
                    Ok(())
                } else {
                    Err(format!("turned away to {after:?}, must be {next:?}"))
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

/// The earliest time at which the receiver wants a retry: `Retry-After` of 429 and 503.
fn wish(attempt: &Attempt, end: i64) -> i64 {
    match &attempt.ending {
        Ending::Answered(Answer { status: 429 | 503, retry_after: Some(wish), .. }) => match wish {
            RetryAfter::Delay(delay) => {
                end.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX))
            }
            RetryAfter::At(at) => at.as_unix_ms(),
        },
        Ending::Answered(_) | Ending::Failed(_) | Ending::OwnFault(_) => i64::MIN,
    }
}
