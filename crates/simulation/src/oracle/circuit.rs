//! A model of a destination's circuit, written from the contract: which changes must follow from the settled
//! attempts.
//!
//! Nothing here calls the domain's circuit; states and counters are compared with it. The possible
//! changes while transitions are suspended are in [`super::suspension`].

use postrider_domain::attempt::{Attempt, Ending};
use postrider_domain::circuit::{Circuit, CircuitState, Counters, Evidence, Transition};
use postrider_domain::ids::DeliveryId;

use super::rules::Rules;
use crate::coverage::Cover;

/// The state of a modelled circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Enabled.
    Closed,
    /// Disabled until the next probe.
    Open {
        /// When the next probe is due.
        probe_at: i64,
    },
    /// Disabled, and a probe is in flight.
    HalfOpen {
        /// The delivery that is the probe.
        probe: DeliveryId,
        /// When the probe was admitted.
        probed_at: i64,
    },
    /// Never attempted.
    Frozen,
}

impl State {
    /// Whether a wish for this delivery as the next probe is still to come true.
    pub(super) fn keeps_wish(self, asked: DeliveryId) -> bool {
        match self {
            State::Open { .. } => true,
            State::HalfOpen { probe, .. } => probe != asked,
            State::Closed | State::Frozen => false,
        }
    }
}

/// The name of a state in the trace.
pub(super) fn to_text(state: postrider_domain::circuit::StateName) -> &'static str {
    use postrider_domain::circuit::StateName;
    match state {
        StateName::Closed => "circuit closed",
        StateName::Open => "circuit open",
        StateName::HalfOpen => "circuit half-open",
        StateName::Frozen => "circuit frozen",
    }
}

/// A modelled circuit.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its state.
    pub state: State,
    pub(super) attempts: u64,
    pub(super) successes: u64,
    pub(super) failures: u64,
    /// Consecutive failures.
    pub consecutive: u64,
    /// When the first and the last of the consecutive failures were counted.
    pub(super) run: (i64, i64),
    /// When it was last disabled.
    pub(super) disabled_at: i64,
    /// Consecutive failures that a suspension has kept from being counted.
    pub(super) apart: u64,
    /// The time of the last success, or of its creation.
    pub last_success: i64,
    /// Situations that occurred, for coverage.
    pub met: Vec<Cover>,
}

/// Facts outside the destination: commands of people, and the start of the process.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context {
    /// When the running process began.
    pub up_at: i64,
    /// Whether somebody wants to enable it.
    pub enable_asked: bool,
    /// Whether somebody wants to freeze it.
    pub freeze_asked: bool,
    /// Whether the probe may have been cancelled.
    pub cancelled: bool,
    /// Whether so many destinations have failed recently that transitions may be suspended.
    pub may_suspend: bool,
}

/// The classification of an attempt's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// A success.
    Success,
    /// A failure of the destination.
    Failure,
    /// The receiver answered 410.
    Gone,
    /// A fault of our own.
    OwnFault,
}

/// Classifies an attempt by its status alone.
pub fn outcome(attempt: &Attempt) -> Outcome {
    match &attempt.ending {
        Ending::Answered(answer) if (200..300).contains(&answer.status) => Outcome::Success,
        Ending::Answered(answer) if answer.status == 410 => Outcome::Gone,
        Ending::Answered(_) | Ending::Failed(_) => Outcome::Failure,
        Ending::OwnFault(_) => Outcome::OwnFault,
    }
}

/// When an attempt ended.
pub fn ended(attempt: &Attempt) -> i64 {
    let total = i64::try_from(attempt.timings.total.as_millis()).unwrap_or(i64::MAX);
    attempt.started_at.as_unix_ms() + total
}

/// The kind of change that is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Nothing,
    Enabled { by_probe: bool },
    Disabled,
    ProbeFailed,
    ProbeLost,
    Frozen,
    FrozenGone,
}

impl Model {
    /// A destination that was just created.
    pub fn new(created_at: i64) -> Self {
        Model {
            state: State::Closed,
            attempts: 0,
            successes: 0,
            failures: 0,
            consecutive: 0,
            run: (0, 0),
            disabled_at: i64::MIN,
            apart: 0,
            last_success: created_at,
            met: Vec::new(),
        }
    }

    /// Resets the counters.
    pub fn reset(&mut self) {
        (self.attempts, self.successes, self.failures, self.consecutive) = (0, 0, 0, 0);
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            attempts: self.attempts,
            successes: self.successes,
            failures: self.failures,
            consecutive_failures: self.consecutive,
        }
    }

    /// Applies a commit to a destination: attempts in order, transitions in order, merged by their
    /// times and counters. Enabling an enabled destination leaves no transition; `reset_before` is
    /// the assumed position of such a reset.
    pub fn apply(
        &mut self,
        attempts: &[(&Attempt, DeliveryId)],
        seen: &[Transition],
        reset_before: Option<usize>,
        rules: &Rules,
        context: &Context,
    ) -> Result<(), String> {
        let mut seen = seen.iter().peekable();
        for (place, (attempt, id)) in attempts.iter().enumerate() {
            let at = ended(attempt);
            while let Some(next) = seen.next_if(|next| self.comes_first(next, attempt, *id)) {
                self.unasked(next, rules, context)?;
            }
            if reset_before == Some(place) {
                self.reset();
            }
            let expected = self.learn(outcome(attempt), *id, at, rules);
            if expected == Expected::Nothing {
                continue;
            }
            let Some(next) = seen.next() else {
                return Err(format!("{expected:?} expected after attempt {place}, saw nothing"));
            };
            self.compare(expected, next, at)?;
        }
        for next in seen {
            self.unasked(next, rules, context)?;
        }
        if reset_before == Some(attempts.len()) {
            self.reset();
        }
        Ok(())
    }

    /// Whether an observed transition came before this attempt, and not from it.
    pub(super) fn comes_first(&self, next: &Transition, attempt: &Attempt, id: DeliveryId) -> bool {
        let (at, end) = (next.at.as_unix_ms(), ended(attempt));
        let unasked = match &next.evidence {
            Evidence::ProbeSent { .. } | Evidence::ByHand { .. } => true,
            Evidence::ProbeLost => {
                let is_probe = matches!(self.state, State::HalfOpen { probe, .. } if probe == id);
                !(is_probe && outcome(attempt) == Outcome::OwnFault && at == end)
            }
            Evidence::NoSuccess { .. } | Evidence::ConsecutiveFailures => true,
            Evidence::FailureShare
            | Evidence::Gone
            | Evidence::ProbeFailed
            | Evidence::Success { .. } => false,
        };
        unasked && at <= end && next.counters == self.counters()
    }

    /// Applies one attempt.
    pub(super) fn learn(
        &mut self,
        outcome: Outcome,
        id: DeliveryId,
        at: i64,
        rules: &Rules,
    ) -> Expected {
        let is_probe = matches!(self.state, State::HalfOpen { probe, .. } if probe == id);
        match outcome {
            Outcome::OwnFault => {
                self.met.push(Cover::OwnFault);
                if !is_probe {
                    return Expected::Nothing;
                }
                self.met.push(Cover::ProbeOwnFault);
                self.state = State::Open { probe_at: at + rules.probe_ms };
                return Expected::ProbeLost;
            }
            Outcome::Success => {
                (self.last_success, self.apart) = (at, 0);
                if matches!(self.state, State::Open { .. } | State::HalfOpen { .. }) {
                    self.state = State::Closed;
                    self.reset();
                    return Expected::Enabled { by_probe: is_probe };
                }
                if self.state == State::Frozen {
                    self.met.push(Cover::StragglerAtFrozen);
                }
                self.attempts += 1;
                self.successes += 1;
                self.consecutive = 0;
                if self.state == State::Closed
                    && rules.disables(self.attempts, self.failures, self.consecutive)
                {
                    self.met.push(Cover::SuccessOverShare);
                }
                // Only a failed attempt can disable or freeze.
                return Expected::Nothing;
            }
            Outcome::Failure | Outcome::Gone => {
                self.attempts += 1;
                self.failures += 1;
                self.consecutive += 1;
                self.run = (if self.consecutive == 1 { at } else { self.run.0 }, at);
            }
        }
        self.judge(outcome, is_probe, at, rules)
    }

    pub(super) fn judge(
        &mut self,
        outcome: Outcome,
        is_probe: bool,
        at: i64,
        rules: &Rules,
    ) -> Expected {
        if self.state == State::Frozen {
            return Expected::Nothing;
        }
        if outcome == Outcome::Gone {
            self.state = State::Frozen;
            return Expected::FrozenGone;
        }
        if rules.freezes(self.consecutive, at - self.last_success) {
            self.state = State::Frozen;
            return Expected::Frozen;
        }
        if is_probe {
            self.state = State::Open { probe_at: at + rules.probe_ms };
            return Expected::ProbeFailed;
        }
        if self.state != State::Closed {
            return Expected::Nothing;
        }
        if rules.disables(self.attempts, self.failures, self.consecutive) {
            self.state = State::Open { probe_at: at + rules.probe_ms };
            self.disabled_at = at;
            return Expected::Disabled;
        }
        if self.attempts == rules.grace && self.failures == self.attempts {
            self.met.push(Cover::GraceAtEdge);
        }
        if self.attempts > rules.grace && self.failures * 100 == self.attempts * rules.percent {
            self.met.push(Cover::ShareAtEdge);
        }
        Expected::Nothing
    }

    pub(super) fn compare(
        &mut self,
        expected: Expected,
        seen: &Transition,
        at: i64,
    ) -> Result<(), String> {
        let cover = match (expected, &seen.evidence) {
            (Expected::Enabled { by_probe }, Evidence::Success { by_probe: seen_by_probe })
                if by_probe == *seen_by_probe =>
            {
                if by_probe {
                    Cover::EnabledByProbe
                } else {
                    Cover::EnabledByStraggler
                }
            }
            (Expected::Disabled, Evidence::FailureShare) => Cover::DisabledByShare,
            (Expected::Disabled, Evidence::ConsecutiveFailures) => Cover::DisabledByConsecutive,
            (Expected::ProbeFailed, Evidence::ProbeFailed) => Cover::ProbeFailed,
            (Expected::ProbeLost, Evidence::ProbeLost) => Cover::ProbeOwnFault,
            (Expected::Frozen, Evidence::NoSuccess { .. }) => Cover::FrozenByTime,
            (Expected::Frozen, Evidence::ConsecutiveFailures) => Cover::FrozenByConsecutive,
            (Expected::FrozenGone, Evidence::Gone) => Cover::FrozenGone,
            (_, evidence) => return Err(format!("{expected:?} expected, saw {evidence:?}")),
        };
        self.met.push(cover);
        if seen.at.as_unix_ms() == at {
            return Ok(());
        }
        Err(format!("{expected:?} expected at {at}, came at {}", seen.at.as_unix_ms()))
    }

    /// Checks a transition that no attempt caused.
    pub(super) fn unasked(
        &mut self,
        seen: &Transition,
        rules: &Rules,
        context: &Context,
    ) -> Result<(), String> {
        let at = seen.at.as_unix_ms();
        match (&seen.evidence, self.state) {
            (Evidence::ProbeSent { delivery }, State::Open { probe_at }) if at >= probe_at => {
                self.met.push(Cover::Probe);
                self.state = State::HalfOpen { probe: *delivery, probed_at: at };
            }
            (Evidence::ProbeLost, State::HalfOpen { probed_at, .. })
                if context.up_at >= probed_at || context.cancelled =>
            {
                self.met.push(Cover::ProbeLostInCrash);
                let from = if context.up_at >= probed_at { probed_at } else { at };
                self.state = State::Open { probe_at: from + rules.probe_ms };
            }
            (evidence, State::Open { .. } | State::HalfOpen { .. })
                if evidence.is_taken_back()
                    && context.may_suspend
                    && at - self.disabled_at <= 60_000
                    && self.is_short_run() =>
            {
                self.met.push(Cover::EnabledByTakingBack);
                self.state = State::Closed;
                self.take_run_back();
            }
            (Evidence::ByHand { .. }, state) => self.by_hand(seen, state, context)?,
            (Evidence::NoSuccess { .. } | Evidence::ConsecutiveFailures, state)
                if state != State::Frozen
                    && rules.freezes(self.consecutive, at - self.last_success) =>
            {
                self.met.push(Cover::FrozenByTime);
                if at == self.last_success + rules.freeze_after_ms + 1 {
                    self.met.push(Cover::FrozenOnTheDot);
                }
                self.state = State::Frozen;
            }
            (evidence, state) => {
                return Err(format!("{evidence:?} at {at} out of the blue, in {state:?}"));
            }
        }
        Ok(())
    }

    fn by_hand(
        &mut self,
        seen: &Transition,
        state: State,
        context: &Context,
    ) -> Result<(), String> {
        use postrider_domain::circuit::StateName;
        match (seen.to, context.enable_asked, context.freeze_asked) {
            (StateName::Closed, true, _) if state != State::Closed => {
                self.met.push(Cover::EnabledByHand);
                self.state = State::Closed;
                self.reset();
            }
            (StateName::Frozen, _, true) if state != State::Frozen => {
                self.met.push(Cover::FrozenByHand);
                self.state = State::Frozen;
            }
            (to, ..) => return Err(format!("{to:?} by hand, and nobody asked (in {state:?})")),
        }
        Ok(())
    }

    /// Compares the stored circuit with the model.
    pub fn agrees(&self, circuit: &Circuit) -> Result<(), String> {
        let ms = |at: postrider_domain::time::Timestamp| at.as_unix_ms();
        let state = match &circuit.state {
            CircuitState::Closed => State::Closed,
            CircuitState::Open { probe_at, .. } => State::Open { probe_at: ms(*probe_at) },
            CircuitState::HalfOpen { probe, probed_at, .. } => {
                State::HalfOpen { probe: *probe, probed_at: ms(*probed_at) }
            }
            CircuitState::Frozen { .. } => State::Frozen,
        };
        if state != self.state {
            return Err(format!("circuit is {state:?}, must be {:?}", self.state));
        }
        if circuit.counters != self.counters() {
            let (is, must) = (circuit.counters, self.counters());
            return Err(format!("counters are {is:?}, must be {must:?}"));
        }
        if ms(circuit.last_success_at) != self.last_success {
            return Err(format!(
                "last success is {}, must be {}",
                ms(circuit.last_success_at),
                self.last_success
            ));
        }
        Ok(())
    }
}
