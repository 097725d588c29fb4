//! The forecast of Postrider's own policy, from the beginning of the outage until nothing waits.
//!
//! Time advances from one boundary to the next: a sample, the end of the outage, a probe, a freeze.
//! Between two boundaries, deliveries that the circuit does not admit are moved as cohorts and
//! successes are counted. Failures are processed one by one in the order of time, because each
//! failure may change the circuit.

use std::collections::VecDeque;
use std::time::Duration;

use super::cohort::{Cohort, Template, Waiting, delivery_id};
use super::tally::Tally;
use super::{Forecast, ForecastError, JITTERED_MAX, OUTAGE_AT, Scenario, Traffic, Work};
use crate::attempt::{Turn, Verdict};
use crate::circuit::{
    Admission, Circuit, CircuitState, Counters, StateName, Suspension, Transition,
};
use crate::delivery::{DeadReason, Delivery, DeliveryState};
use crate::policy::{DeadRecovery, Policy, RecoveryMode, Share};
use crate::retry;
use crate::time::Timestamp;

pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    policy: &'a Policy,
    traffic: Traffic,
    template: Template,
    circuit: Circuit,
    waiting: Waiting,
    tally: Tally,
    accepted: u64,
    now: Timestamp,
    outage_ends_at: Timestamp,
    ends_at: Timestamp,
    enable_at: Option<Timestamp>,
    ramp: Option<Ramp>,
    /// The dead deliveries, in the order in which they died, as ranges: the number of the first
    /// delivery, the length of the range, and whether its deliveries were ever attempted.
    dead: VecDeque<(u64, u64, bool)>,
    /// How many of the dead deliveries, from the front, are to be replayed.
    to_replay: u64,
    work: Work,
}

/// A drain in progress: waiting deliveries are sent ahead of their slots, `size` at a time.
struct Ramp {
    size: u32,
    next_step_at: Timestamp,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        policy: &'a Policy,
        work: Work,
    ) -> Result<Self, ForecastError> {
        let traffic = scenario.traffic;
        let outage_ends_at = OUTAGE_AT.saturating_add(scenario.outage);
        let enable_at = scenario.enabled_after.map(|after| outage_ends_at.saturating_add(after));
        let schedule = retry::offset(policy.retry.max, &policy.retry);
        let replay = match policy.recovery.dead {
            DeadRecovery::Keep => 0,
            DeadRecovery::Replay => {
                traffic.before(outage_ends_at) / u64::from(policy.recovery.dead_per_second.max(1))
            }
        };
        let ends_at = enable_at
            .unwrap_or(outage_ends_at)
            .saturating_add(schedule)
            .saturating_add(Duration::from_secs(replay))
            .saturating_add(policy.circuit.probe_interval * 2)
            .saturating_add(Duration::from_secs(60));
        let all = traffic.before(ends_at);
        if policy.retry.jitter != Share::ZERO && all > JITTERED_MAX {
            return Err(ForecastError::TooManyWithJitter(all));
        }
        // Successes before the outage count: the share of failures includes them.
        let successes =
            traffic.before(OUTAGE_AT.saturating_add(scenario.healthy_before)).saturating_sub(1);
        let mut circuit = Circuit::new(OUTAGE_AT.saturating_sub(scenario.healthy_before));
        if successes > 0 {
            circuit.counters = Counters { attempts: successes, successes, ..Counters::default() };
            circuit.last_success_at = OUTAGE_AT;
            circuit.ever_succeeded = true;
        }
        let tally = Tally::new(scenario, ends_at);
        Ok(Run {
            scenario,
            policy,
            traffic,
            template: Template::new().ok_or(ForecastError::Rate)?,
            circuit,
            waiting: Waiting::new(traffic),
            tally,
            accepted: 0,
            now: OUTAGE_AT,
            outage_ends_at,
            ends_at,
            enable_at,
            ramp: None,
            dead: VecDeque::new(),
            to_replay: 0,
            work,
        })
    }

    pub(super) fn live_through(mut self) -> Result<Forecast, ForecastError> {
        while self.now < self.ends_at && self.tally.forecast.recovered_at.is_none() {
            self.may_go_on();
            self.work.check()?;
            self.enable_when_due();
            let (admission, transition) = self.ask(self.now);
            self.note(transition);
            let end = self.boundary();
            match admission {
                Admission::Admit if self.is_one_by_one() => self.one_by_one(end),
                Admission::Admit => self.everything_arrives(end),
                Admission::Probe => self.probe(end),
                Admission::WaitUntil(at) => self.nothing_is_admitted(end.min(at)),
                Admission::Refuse => self.nothing_is_admitted(end),
            }
            self.tally.look(self.now, self.waiting.count(), self.to_replay);
        }
        Ok(self.tally.finish(self.accepted, self.waiting.count(), self.now))
    }

    /// Takes one step; `false` if none is left. The forecast then fails with `TooMuchWork`.
    fn may_go_on(&mut self) -> bool {
        self.work.step(self.waiting.groups())
    }

    fn ask(&mut self, now: Timestamp) -> (Admission, Option<Transition>) {
        self.circuit.ask(now, Suspension::Off, &self.policy.circuit)
    }

    /// The earliest time at which something may change, whatever the state of the circuit.
    fn boundary(&self) -> Timestamp {
        let freeze_at = self
            .circuit
            .last_success_at
            .saturating_add(self.policy.circuit.freeze_after + Duration::from_millis(1));
        let step_at = self.ramp.as_ref().map(|ramp| ramp.next_step_at);
        let sample_at = self.tally.next_sample_at().min(self.ends_at);
        [Some(self.outage_ends_at), Some(freeze_at), self.enable_at, step_at]
            .into_iter()
            .flatten()
            .filter(|at| *at > self.now)
            .fold(sample_at, Timestamp::min)
    }

    fn enable_when_due(&mut self) {
        let is_frozen = self.circuit.state_name() == StateName::Frozen;
        if is_frozen && self.enable_at.is_some_and(|at| at <= self.now) {
            let transition = self.circuit.enable(None, self.now);
            self.note(transition);
            self.recovered();
        }
    }

    /// Keeps a transition, unless it is the start or the failure of a probe.
    fn note(&mut self, transition: Option<Transition>) {
        let Some(transition) = transition else { return };
        let is_disabled = |name| matches!(name, StateName::Open | StateName::HalfOpen);
        if !(is_disabled(transition.from) && is_disabled(transition.to)) {
            self.tally.forecast.transitions.push(transition);
        }
    }

    fn is_up(&self, at: Timestamp) -> bool {
        at >= self.outage_ends_at
    }

    /// Whether the next attempt may change the circuit: because it fails, or because the share of
    /// failures is still too large although it succeeds.
    fn is_one_by_one(&self) -> bool {
        let Counters { attempts, failures, .. } = self.circuit.counters;
        let policy = &self.policy.circuit;
        !self.is_up(self.now)
            || failures > 0
                && (attempts <= policy.disable_grace
                    || policy.disable_share.is_exceeded_by(failures, attempts))
    }

    /// The circuit is closed, and each attempt may change that.
    fn one_by_one(&mut self, end: Timestamp) {
        let accepted_at = self.traffic.at(self.accepted);
        let due_at = self.waiting.next_due_at().unwrap_or(Timestamp::MAX);
        let at = accepted_at.min(due_at);
        if at >= end {
            self.now = end;
            return;
        }
        self.now = self.now.max(at);
        let delivery = if accepted_at <= due_at {
            self.accepted += 1;
            Some(self.template.queued(self.accepted - 1, self.traffic))
        } else {
            self.waiting.pop_one().map(|one| self.template.waiting(&one, self.traffic))
        };
        let Some(delivery) = delivery else { return };
        let (admission, transition) = self.ask(at);
        self.note(transition);
        if admission != Admission::Admit {
            let after = delivery.not_admitted(at, &self.policy.retry);
            return self.keep(&after, 1);
        }
        let turn = delivery.turn().unwrap_or(Turn::First);
        self.attempt(&delivery, turn, at);
    }

    /// Makes one attempt and applies its outcome.
    fn attempt(&mut self, delivery: &Delivery, turn: Turn, at: Timestamp) {
        let is_up = self.is_up(at);
        let verdict = if is_up { Verdict::Success } else { Verdict::Failure };
        let was_closed = self.circuit.state_name() == StateName::Closed;
        let policy = &self.policy.circuit;
        let transition = self.circuit.learn(delivery.id, verdict, at, Suspension::Off, policy);
        self.note(transition);
        if is_up {
            let n = number(delivery);
            self.tally.arrived(n, 1, at);
            if !was_closed && self.circuit.state_name() == StateName::Closed {
                self.recovered();
            }
        } else {
            self.tally.forecast.failed_attempts += 1;
            self.tally.forecast.failed_probes += u64::from(turn == Turn::Probe);
            let after = delivery.failed(turn, at, None, at, &self.policy.retry);
            self.keep(&after, 1);
        }
    }

    /// The circuit is closed and the destination is up: all due deliveries succeed.
    fn everything_arrives(&mut self, end: Timestamp) {
        let count = self.traffic.before(end).saturating_sub(self.accepted);
        if count > 0 {
            let at = self.traffic.at(self.accepted);
            self.learn_successes(self.accepted, count, at);
            self.tally.arrived(self.accepted, count, at);
            self.accepted += count;
        }
        while self.may_go_on()
            && let Some(cohort) = self.waiting.pop_due(end)
        {
            self.learn_successes(cohort.first, cohort.count, cohort.slot.due_at);
            self.tally.arrived(cohort.first, cohort.count, cohort.slot.due_at);
        }
        self.drain(end);
        self.replay(end);
        self.now = end;
    }

    /// Replays dead deliveries of the outage at the policy's rate, once no drain is under way. All
    /// of them were accepted after the outage began.
    fn replay(&mut self, end: Timestamp) {
        let is_draining = self.ramp.is_some() && self.waiting.count() > 0;
        if self.to_replay == 0 || is_draining {
            return;
        }
        let ms = u64::try_from(end.since(self.now).as_millis()).unwrap_or(u64::MAX);
        let pace = u64::from(self.policy.recovery.dead_per_second);
        let mut left = (ms.saturating_mul(pace) / 1_000).max(1);
        while left > 0
            && self.to_replay > 0
            && let Some((first, count, is_attempted)) = self.dead.pop_front()
        {
            let now = count.min(left).min(self.to_replay);
            if now < count {
                self.dead.push_front((first + now, count - now, is_attempted));
            }
            (left, self.to_replay) = (left - now, self.to_replay - now);
            self.replay_range(first, first + now, is_attempted, end);
        }
    }

    /// Replays the dead deliveries `first..after`, except those that are too old.
    fn replay_range(&mut self, first: u64, after: u64, is_attempted: bool, at: Timestamp) {
        let oldest_at = at.saturating_sub(self.policy.recovery.dead_max_age);
        let mut first = first.max(self.traffic.before(oldest_at)).min(after);
        if first == after {
            return;
        }
        self.tally.replayed(after - first, is_attempted);
        self.learn_successes(first, after - first, at);
        while first < after && self.may_go_on() {
            first += self.tally.arrived_together(first, after - first, at);
        }
    }

    /// Counts `count` successes at the same time. The first one closes the circuit; the others only
    /// count, so they are added in one step.
    fn learn_successes(&mut self, first: u64, count: u64, at: Timestamp) {
        let policy = &self.policy.circuit;
        let transition =
            self.circuit.learn(delivery_id(first), Verdict::Success, at, Suspension::Off, policy);
        self.note(transition);
        let others = count.saturating_sub(1);
        self.circuit.counters.attempts += others;
        self.circuit.counters.successes += others;
    }

    /// The circuit has closed: with a ramp, waiting deliveries are sent before their slots.
    fn recovered(&mut self) {
        if self.policy.recovery.mode == RecoveryMode::Drain {
            let next_step_at = self.now.saturating_add(self.policy.recovery.ramp_step);
            self.ramp = Some(Ramp { size: 1, next_step_at });
        }
        if self.policy.recovery.dead == DeadRecovery::Replay {
            self.to_replay = self.dead.iter().map(|(_, count, _)| count).sum();
        }
    }

    /// Sends waiting deliveries, oldest first, as many as the ramp allows until `end`.
    fn drain(&mut self, end: Timestamp) {
        let Some(ramp) = &mut self.ramp else { return };
        let turns = end.since(self.now).as_nanos() / self.scenario.answer_time.as_nanos().max(1);
        let mut left =
            u64::from(ramp.size).saturating_mul(u64::try_from(turns.max(1)).unwrap_or(u64::MAX));
        if ramp.next_step_at <= end {
            ramp.size = ramp.size.saturating_mul(2).min(self.scenario.in_flight_max.max(1));
            ramp.next_step_at = end.saturating_add(self.policy.recovery.ramp_step);
        }
        while left > 0
            && self.may_go_on()
            && let Some(cohort) = self.waiting.pop_oldest(left)
        {
            left -= cohort.count;
            self.learn_successes(cohort.first, cohort.count, end);
            // The deliveries of a cohort were accepted one after the other, so each is late by a
            // different time.
            let (mut first, after) = (cohort.first, cohort.first + cohort.count);
            while first < after && self.may_go_on() {
                first += self.tally.arrived_together(first, after - first, end);
            }
        }
    }

    /// The probe interval has passed: a waiting delivery is sent as the probe, or the next one that
    /// is accepted.
    fn probe(&mut self, end: Timestamp) {
        let delivery = match self.waiting.pop_probe() {
            Some(one) => self.template.waiting(&one, self.traffic),
            None => {
                let at = self.traffic.at(self.accepted);
                if at >= end {
                    self.now = end;
                    return;
                }
                self.now = self.now.max(at);
                self.accepted += 1;
                self.template.queued(self.accepted - 1, self.traffic)
            }
        };
        let transition = self.circuit.begin_probe(delivery.id, self.now);
        self.note(transition);
        self.attempt(&delivery, Turn::Probe, self.now);
    }

    /// The circuit is open or frozen until `end`: due deliveries move to their next slot.
    fn nothing_is_admitted(&mut self, end: Timestamp) {
        let count = self.traffic.before(end).saturating_sub(self.accepted);
        let together = if self.policy.retry.jitter == Share::ZERO { count.max(1) } else { 1 };
        let until = self.accepted + count;
        while self.accepted < until && self.may_go_on() {
            let at = self.traffic.at(self.accepted);
            let delivery = self.template.queued(self.accepted, self.traffic);
            let after = delivery.not_admitted(at, &self.policy.retry);
            self.accepted += together;
            self.keep(&after, together);
        }
        while self.may_go_on()
            && let Some(cohort) = self.waiting.pop_due(end)
        {
            debug_assert!(self.waiting.last_due_at(&cohort) < end);
            let delivery = self.template.waiting(&cohort, self.traffic);
            let after = delivery.not_admitted(cohort.slot.due_at, &self.policy.retry);
            self.keep(&after, cohort.count);
        }
        self.now = end;
    }

    /// Stores a delivery, and `count - 1` others that are treated like it, by its new state.
    fn keep(&mut self, delivery: &Delivery, count: u64) {
        match delivery.state {
            DeliveryState::Waiting(slot) => self.waiting.insert(Cohort {
                first: number(delivery),
                count,
                slot,
                attempts: delivery.attempts,
                last_attempt_at: delivery.last_attempt_at,
            }),
            DeliveryState::Dead { reason, at } => {
                self.tally.died(number(delivery), count, at);
                let is_refused = reason == DeadReason::NotAdmitted;
                let is_attempted = !is_refused || delivery.attempts > 0;
                if !is_attempted {
                    self.tally.forecast.dead_never_attempted += count;
                }
                self.dead.push_back((number(delivery), count, is_attempted));
            }
            // Successes are counted elsewhere, and a forecast cancels nothing.
            DeliveryState::Queued
            | DeliveryState::Delivered { .. }
            | DeliveryState::Cancelled { .. } => {}
        }
        debug_assert!(!matches!(self.circuit.state, CircuitState::HalfOpen { .. }));
    }
}

/// The number of a delivery in the forecast, read from its identifier.
fn number(delivery: &Delivery) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&delivery.id.as_bytes()[..8]);
    u64::from_be_bytes(bytes)
}
