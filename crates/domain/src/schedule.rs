//! A delivery's retry schedule as the API shows it: every slot, with what became of it or when it
//! falls due.
//!
//! The slots come from [`crate::retry::next_slot`], which also decides when a retry is made;
//! **nothing here computes a due time by itself.** A waiting delivery stores its next slot and the
//! time from which its slots are counted. A delivery that has ended stores neither: its schedule is
//! derived from its attempts.

use std::cmp::Ordering;

use crate::attempt::{Attempt, Turn};
use crate::delivery::{Delivery, DeliveryState};
use crate::policy::RetryPolicy;
use crate::retry::{self, ScheduleClock, Slot};
use crate::time::Timestamp;

/// The schedule that a delivery follows, or followed last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The time from which the slots are counted: the first attempt, else the acceptance or the
    /// replay.
    pub started_at: Timestamp,
    /// Whether `started_at` is certain. It is not before the first attempt, nor if it had to be
    /// derived because a delivery that has ended stores no schedule.
    pub is_exact: bool,
    /// Whether the schedule began with a replay.
    pub is_replay: bool,
    /// When an attempt is made that somebody requested before the next slot.
    pub asked_for_at: Option<Timestamp>,
    /// Slot 0 is the first attempt; the others are the retries.
    pub slots: Vec<SlotView>,
}

/// One slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotView {
    /// Retry n is made in slot n; slot 0 is the first attempt.
    pub number: u32,
    /// When the slot falls or fell due.
    pub due_at: Timestamp,
    /// What became of the slot.
    pub state: SlotState,
    /// The number of the attempt that was made in the slot.
    pub attempt: Option<u32>,
}

/// What became of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// An attempt was made in the slot and delivered.
    Delivered,
    /// An attempt was made in the slot and failed.
    Failed,
    /// The slot passed without an attempt.
    Spent,
    /// The attempt of the slot is in flight.
    InFlight,
    /// The slot is the next one.
    Next,
    /// The slot comes after the next one.
    Ahead,
    /// The delivery was delivered or cancelled before the slot fell due.
    Unneeded,
}

impl SlotState {
    /// The word in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            SlotState::Delivered => "delivered",
            SlotState::Failed => "failed",
            SlotState::Spent => "spent",
            SlotState::InFlight => "in_flight",
            SlotState::Next => "next",
            SlotState::Ahead => "ahead",
            SlotState::Unneeded => "unneeded",
        }
    }
}

/// Passed to `next_slot` as the current time, so that it skips no slot as already past.
const LONG_AGO: Timestamp = Timestamp::from_unix_ms(i64::MIN);

/// How far a delivery has come in its schedule.
struct Progress {
    clock: ScheduleClock,
    is_exact: bool,
    /// The next slot, if there is one.
    next: Option<Slot>,
}

/// The schedule of a delivery. `log` has its attempts, oldest first; `is_whole` says that none of
/// the last ones is missing.
pub fn schedule(
    delivery: &Delivery,
    in_flight: bool,
    log: &[Attempt],
    is_whole: bool,
    policy: &RetryPolicy,
) -> Schedule {
    let run = last_run(delivery, log);
    let is_replay = is_replay(delivery, run, log);
    let progress = progress(delivery, run, is_replay);
    let mut slots = Vec::with_capacity(usize::try_from(policy.max).unwrap_or(0) + 1);
    let mut clock = ScheduleClock { previous_at: progress.clock.anchor_at, ..progress.clock };
    let mut before: Option<&Attempt> = None;
    for number in 0..=policy.max {
        let made = run.iter().find(|attempt| slot_of(attempt.turn) == Some(number));
        let due_at = due_at(delivery, number, clock, &progress, before, policy);
        let state = match made {
            Some(attempt) if attempt.ending.is_success() => SlotState::Delivered,
            Some(_) => SlotState::Failed,
            None => unattempted(delivery, (number, due_at), &progress, in_flight),
        };
        slots.push(SlotView { number, due_at, state, attempt: made.map(|made| made.number) });
        let attempted_at = made.map(|attempt| attempt.started_at);
        clock.previous_at = attempted_at.unwrap_or(due_at);
        before = made;
    }
    Schedule {
        started_at: progress.clock.anchor_at,
        is_exact: progress.is_exact && is_whole,
        is_replay,
        asked_for_at: progress.next.filter(|slot| slot.ahead_of.is_some()).map(|slot| slot.due_at),
        slots,
    }
}

/// The attempts that belong to the last schedule of a delivery.
fn last_run<'a>(delivery: &Delivery, log: &'a [Attempt]) -> &'a [Attempt] {
    match delivery.state {
        DeliveryState::Queued => log,
        DeliveryState::Waiting(Slot { number: 0, .. }) => &log[log.len()..],
        // Attempts before the time from which the slots are counted belong to an earlier schedule.
        DeliveryState::Waiting(Slot { clock, .. }) => {
            let before = log.iter().take_while(|attempt| attempt.started_at < clock.anchor_at);
            &log[before.count()..]
        }
        DeliveryState::Delivered { .. }
        | DeliveryState::Dead { .. }
        | DeliveryState::Cancelled { .. } => &log[last_beginning(log)..],
    }
}

/// The index of the first attempt of a finished delivery's last schedule. A schedule begins after a
/// success, or where the slot number does not grow: only a replay causes either.
fn last_beginning(log: &[Attempt]) -> usize {
    let (mut begins, mut slot) = (0, None);
    for (n, attempt) in log.iter().enumerate() {
        let after_success = n > 0 && log[n - 1].ending.is_success();
        let number = slot_of(attempt.turn);
        if after_success || number.is_some_and(|number| slot >= Some(number)) {
            (begins, slot) = (n, None);
        }
        slot = number.or(slot);
    }
    begins
}

/// Whether the delivery's last schedule began with a replay.
fn is_replay(delivery: &Delivery, run: &[Attempt], log: &[Attempt]) -> bool {
    let is_first = run.iter().any(|attempt| attempt.turn == Turn::First);
    match delivery.state {
        // Without a first attempt the slots are counted from the acceptance, or from the replay.
        DeliveryState::Waiting(slot) if !is_first => slot.clock.anchor_at > delivery.created_at,
        DeliveryState::Queued
        | DeliveryState::Waiting(_)
        | DeliveryState::Delivered { .. }
        | DeliveryState::Dead { .. }
        | DeliveryState::Cancelled { .. } => run.len() < log.len(),
    }
}

/// The slot that an attempt was made in; `None` for a probe or a requested attempt.
const fn slot_of(turn: Turn) -> Option<u32> {
    match turn {
        Turn::First => Some(0),
        Turn::Retry(number) => Some(number),
        Turn::Probe | Turn::Manual => None,
    }
}

fn progress(delivery: &Delivery, run: &[Attempt], is_replay: bool) -> Progress {
    let first = run.iter().find(|attempt| attempt.turn == Turn::First);
    match delivery.state {
        DeliveryState::Waiting(slot) => {
            Progress { clock: slot.clock, is_exact: slot.number > 0, next: Some(slot) }
        }
        DeliveryState::Queued => Progress {
            clock: ScheduleClock::starting_at(delivery.created_at),
            is_exact: false,
            next: Some(Slot::new(
                0,
                delivery.created_at,
                ScheduleClock::starting_at(delivery.created_at),
            )),
        },
        DeliveryState::Delivered { .. }
        | DeliveryState::Dead { .. }
        | DeliveryState::Cancelled { .. } => {
            // Without a first attempt the slots are counted from the acceptance. If a replay had no
            // first attempt, the time of the replay is unknown: the start of its earliest attempt
            // is the best estimate.
            let unknown = run.first().filter(|_| is_replay).map(|attempt| attempt.started_at);
            let at = first.map(|attempt| attempt.started_at).or(unknown);
            let clock = ScheduleClock::starting_at(at.unwrap_or(delivery.created_at));
            Progress { clock, is_exact: first.is_some() || !is_replay, next: None }
        }
    }
}

/// When a slot falls due: as stored for the next slot, and computed for the others.
fn due_at(
    delivery: &Delivery,
    number: u32,
    clock: ScheduleClock,
    progress: &Progress,
    before: Option<&Attempt>,
    policy: &RetryPolicy,
) -> Timestamp {
    if let Some(next) = progress.next.filter(|next| next.number == number) {
        return next.itself().due_at;
    }
    let Some(spent) = number.checked_sub(1) else { return progress.clock.anchor_at };
    let slot = retry::next_slot(clock, spent, LONG_AGO, delivery.id, policy);
    // A `Retry-After` in the response to the previous attempt moves the slot.
    let wish = before.and_then(|attempt| {
        let ended_at = attempt.started_at.saturating_add(attempt.timings.total);
        attempt.ending.retry_after(ended_at)
    });
    slot.map_or(clock.previous_at, |slot| slot.not_before(wish, policy).due_at)
}

/// The state of a slot in which no attempt was made.
fn unattempted(
    delivery: &Delivery,
    (number, due_at): (u32, Timestamp),
    progress: &Progress,
    in_flight: bool,
) -> SlotState {
    match delivery.state {
        DeliveryState::Delivered { at } | DeliveryState::Cancelled { at, .. } if due_at > at => {
            SlotState::Unneeded
        }
        DeliveryState::Delivered { .. }
        | DeliveryState::Cancelled { .. }
        | DeliveryState::Dead { .. } => SlotState::Spent,
        DeliveryState::Queued | DeliveryState::Waiting(_) => {
            match number.cmp(&progress.next.map_or(0, |slot| slot.number)) {
                Ordering::Less => SlotState::Spent,
                Ordering::Equal if in_flight => SlotState::InFlight,
                Ordering::Equal => SlotState::Next,
                Ordering::Greater => SlotState::Ahead,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::attempt::{Answer, BodyEnd, Ending, RetryAfter, Timings};
    use crate::event::{Event, RawJson};
    use crate::ids::{DeliveryId, DestinationId, SubscriptionId, TenantId};
    use crate::policy::{MeasuredFrom, Share};

    const START: Timestamp = Timestamp::from_unix_ms(1_763_199_000_000);

    fn after(ms: u64) -> Timestamp {
        START.saturating_add(Duration::from_millis(ms))
    }

    /// A delivery with its attempts, changed by the same functions as in the engine.
    struct Life {
        delivery: Delivery,
        log: Vec<Attempt>,
        policy: RetryPolicy,
    }

    impl Life {
        fn new(policy: RetryPolicy) -> Self {
            let event = Event {
                id: "evt_1".parse().unwrap(),
                tenant: TenantId::default_tenant(),
                kind: "task.updated".parse().unwrap(),
                object: None,
                data: RawJson::from_trusted(Bytes::from_static(b"{}")),
                old: None,
                time: START,
                trace: None,
            };
            let (id, subscription) = (DeliveryId::new(START, [1; 10]), [2; 10]);
            let destination = DestinationId::of(&event.tenant, "https://hooks.example.com/in");
            let subscription = SubscriptionId::new(START, subscription);
            let delivery = Delivery::accepted(id, &event, subscription, destination, START);
            Life { delivery, log: Vec::new(), policy }
        }

        fn attempt(&mut self, turn: Option<Turn>, at: Timestamp, status: u16, wish: Option<u64>) {
            let Some(turn) = turn.or(self.delivery.turn()) else { return };
            let retry_after = wish.map(|s| RetryAfter::Delay(Duration::from_secs(s)));
            let ending = Ending::Answered(Answer {
                status,
                retry_after,
                body: Bytes::new(),
                body_end: BodyEnd::Whole,
            });
            self.delivery = if ending.is_success() {
                self.delivery.delivered(at, at)
            } else {
                self.delivery.failed(turn, at, ending.retry_after(at), at, &self.policy)
            };
            let timings = Timings { total: Duration::ZERO, ..Timings::default() };
            let number = self.delivery.attempts;
            self.log.push(Attempt { number, turn, started_at: at, timings, ending });
        }

        fn step(&mut self, step: &str) {
            let (word, ms) = step.split_once('@').unwrap();
            let at = after(ms.parse().unwrap());
            match word {
                "fail" => self.attempt(None, at, 500, None),
                "busy" => self.attempt(None, at, 503, Some(1_000)),
                "ok" => self.attempt(None, at, 200, None),
                "probe" => self.attempt(Some(Turn::Probe), at, 500, None),
                "away" => self.delivery = self.delivery.not_admitted(at, &self.policy),
                "replay" => self.delivery = self.delivery.replayed(at).unwrap(),
                "ask" => self.delivery = self.delivery.asked_for(at).unwrap(),
                "cancel" => {
                    let reason = crate::delivery::CancelReason::Asked;
                    self.delivery = self.delivery.cancelled(reason, at).unwrap();
                }
                other => panic!("{other}"),
            }
        }

        fn schedule(&self) -> Schedule {
            schedule(&self.delivery, false, &self.log, true, &self.policy)
        }
    }

    /// The slots as `0:failed(1)@0 1:next@84800`, without those that come after the next one.
    fn shown(schedule: &Schedule) -> String {
        let slots = schedule.slots.iter().filter(|slot| slot.state != SlotState::Ahead);
        let slots = slots.filter(|slot| slot.state != SlotState::Unneeded).map(|slot| {
            let attempt = slot.attempt.map_or(String::new(), |number| format!("({number})"));
            let due = slot.due_at.since(START).as_millis();
            format!("{}:{}{attempt}@{due}", slot.number, slot.state.as_str())
        });
        slots.collect::<Vec<_>>().join(" ")
    }

    fn check(steps: &str, expected: &str) -> Schedule {
        let mut life = Life::new(RetryPolicy { max: 4, ..RetryPolicy::default() });
        steps.split_whitespace().for_each(|step| life.step(step));
        let schedule = life.schedule();
        assert_eq!(shown(&schedule), expected, "{steps}");
        assert_eq!(schedule.slots.len(), 5);
        schedule
    }

    #[test]
    fn slots_say_what_became_of_them() {
        check("", "0:next@0");
        check("fail@10", "0:failed(1)@10 1:next@84810");
        check("fail@0 fail@84800", "0:failed(1)@0 1:failed(2)@84800 2:next@254400");
        check("fail@0 ok@84900", "0:failed(1)@0 1:delivered(2)@84800");
        check("away@0 away@84800", "0:spent@0 1:spent@84800 2:next@254400");
        let dead = "0:spent@0 1:spent@84800 2:spent@254400 3:spent@593600 4:spent@1272000";
        check("away@0 away@1272000", dead);
        check("fail@0 probe@100000", "0:failed(1)@0 1:spent@84800 2:next@254400");
        check("fail@0 cancel@90000", "0:failed(1)@0 1:spent@84800");
        let asked = check("fail@0 ask@5000", "0:failed(1)@0 1:next@84800");
        assert_eq!(asked.asked_for_at, Some(after(5_000)));
        // A `Retry-After` moves the slot, both before the attempt of that slot and after it.
        check("busy@0", "0:failed(1)@0 1:next@1000000");
        check(
            "busy@0 fail@1000000",
            "0:failed(1)@0 1:failed(2)@1000000 2:spent@254400 3:spent@593600 4:next@1272000",
        );
    }

    #[test]
    fn replay_has_a_schedule_of_its_own() {
        let waiting = check("ok@0 replay@500", "0:next@500");
        assert!(waiting.is_replay && !waiting.is_exact);
        let begun = check("ok@0 replay@500 fail@600", "0:failed(2)@600 1:next@85400");
        assert!(begun.is_replay && begun.is_exact);
        let never = check(
            "away@0 away@1272000 replay@2000000 away@2000000",
            "0:spent@2000000 1:next@2084800",
        );
        assert!(never.is_replay && never.is_exact);
        let again =
            check("ok@0 replay@500 fail@600 ok@85400", "0:failed(2)@600 1:delivered(3)@85400");
        assert!(again.is_replay && again.is_exact);
        assert!(!check("fail@0", "0:failed(1)@0 1:next@84800").is_replay);
    }

    proptest! {
        /// The slots that are shown as ahead are the times at which the delivery is then attempted.
        #[test]
        fn slots_ahead_are_where_the_attempts_will_be(
            first in 0..100_000u64,
            jitter in 0..=100u32,
            previous in any::<bool>(),
            turned_away in any::<bool>(),
            max in 0..12u32,
        ) {
            let policy = RetryPolicy {
                max,
                jitter: Share::percent(jitter),
                measured_from: if previous {
                    MeasuredFrom::PreviousAttempt
                } else {
                    MeasuredFrom::FirstAttempt
                },
                ..RetryPolicy::default()
            };
            let mut life = Life::new(policy);
            if turned_away {
                life.delivery = life.delivery.not_admitted(START, &life.policy);
            } else {
                life.attempt(None, after(first), 500, None);
            }
            let before = life.schedule();
            while let DeliveryState::Waiting(slot) = life.delivery.state {
                let seen = before.slots.iter().find(|seen| seen.number == slot.number).unwrap();
                prop_assert_eq!(seen.due_at, slot.due_at);
                life.attempt(None, slot.due_at, 500, None);
            }
            let attempted = life.schedule();
            let made = attempted.slots.iter().filter(|slot| slot.attempt.is_some()).count();
            prop_assert_eq!(made, life.log.len());
            prop_assert!(attempted.slots.is_sorted_by_key(|slot| slot.due_at));
        }
    }
}
