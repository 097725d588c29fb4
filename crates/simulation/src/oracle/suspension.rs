//! A model of the circuit while transitions are suspended because most destinations fail at once.
//!
//! When a suspension begins and ends cannot be seen from outside. While so many destinations have
//! failed lately that there may be one ([`Watch`]), a failure may or may not be excluded from the
//! counters, and so may the consecutive failures before any attempt. The model follows all of these
//! paths; the stored circuit must be the end of one of them.

use std::collections::{BTreeMap, HashSet, VecDeque};

use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::{Circuit, Transition};
use postrider_domain::ids::{DeliveryId, DestinationId};
use postrider_store::DestinationChange;

use super::circuit::{Context, Expected, Model, Outcome, State, ended, outcome};
use super::rules::Rules;
use crate::coverage::Cover;

/// How many destinations must have been attempted for a suspension.
const DESTINATIONS: usize = 20;
/// The time within which the destinations must have failed.
const MINUTE_MS: i64 = 60_000;
/// The longest suspension.
const LONGEST_MS: i64 = 3_600_000;

/// Decides from settled attempts whether transitions may be suspended.
#[derive(Debug, Default)]
pub struct Watch {
    recent: VecDeque<(i64, DestinationId, bool)>,
    /// The number of recent attempts of each destination, and how many failed.
    counts: BTreeMap<DestinationId, (usize, usize)>,
    failing: usize,
    /// A suspension has ended by this time.
    until: i64,
}

impl Watch {
    /// Counts a settled attempt.
    pub fn settled(&mut self, destination: DestinationId, attempt: &Attempt) {
        let (at, failed) = (ended(attempt), outcome(attempt) != Outcome::Success);
        self.recent.push_back((at, destination, failed));
        let count = self.counts.entry(destination).or_default();
        self.failing += usize::from(failed && count.1 == 0);
        *count = (count.0 + 1, count.1 + usize::from(failed));
        while let Some((then, destination, failed)) = self.recent.front().copied()
            && at - then > MINUTE_MS + 10_000
        {
            self.recent.pop_front();
            let Some(count) = self.counts.get_mut(&destination) else { continue };
            *count = (count.0 - 1, count.1 - usize::from(failed));
            self.failing -= usize::from(failed && count.1 == 0);
            if count.0 == 0 {
                self.counts.remove(&destination);
            }
        }
        // The attempt that begins the suspension may be in the next commit.
        let attempted = self.counts.len();
        if attempted + 1 >= DESTINATIONS && (self.failing + 1) * 2 > attempted {
            self.until = at + LONGEST_MS + 2 * MINUTE_MS;
        }
    }

    /// Whether there may be a suspension at this time.
    pub fn is_possible(&self, now: i64) -> bool {
        now <= self.until
    }
}

/// A possible history of a circuit, and how many of the observed transitions it explains.
#[derive(Debug, Clone)]
struct Way {
    model: Model,
    explained: usize,
}

impl Way {
    /// Two histories with the same key continue in the same way.
    fn key(&self) -> (State, [u64; 4], [i64; 4], usize) {
        let Model { state, attempts, successes, failures, consecutive, .. } = self.model;
        let Model { last_success, run, disabled_at, .. } = self.model;
        let counted = [attempts, successes, failures, consecutive];
        (state, counted, [last_success, run.0, run.1, disabled_at], self.explained)
    }

    /// Continues the history by an attempt, evaluated as usual or as suspended.
    fn learned(
        &self,
        attempt: &Attempt,
        id: DeliveryId,
        seen: &[Transition],
        rules: &Rules,
        is_suspended: bool,
    ) -> Option<Way> {
        let (mut way, at) = (self.clone(), ended(attempt));
        let expected = if is_suspended {
            way.model.learn_suspended(outcome(attempt), id, at, rules)?
        } else {
            way.model.learn(outcome(attempt), id, at, rules)
        };
        if expected != Expected::Nothing {
            let next = seen.get(way.explained)?;
            // Several attempts may end in one millisecond: the counters tell which one caused the
            // transition.
            if next.counters != way.counters_before(expected, &self.model) {
                return None;
            }
            way.model.compare(expected, next, at).ok()?;
            way.explained += 1;
        }
        Some(way)
    }

    fn counters_before(
        &self,
        expected: Expected,
        before: &Model,
    ) -> postrider_domain::circuit::Counters {
        match expected {
            // The counters before the reset.
            Expected::Enabled { .. } => before.counters(),
            Expected::Nothing
            | Expected::Disabled
            | Expected::ProbeFailed
            | Expected::ProbeLost
            | Expected::Frozen
            | Expected::FrozenGone => self.model.counters(),
        }
    }

    fn unasked(
        mut self,
        seen: &[Transition],
        rules: &Rules,
        context: &Context,
        is_next: impl Fn(&Model, &Transition) -> bool,
    ) -> Option<Way> {
        while let Some(next) = seen.get(self.explained).filter(|next| is_next(&self.model, next)) {
            self.model.unasked(next, rules, context).ok()?;
            self.explained += 1;
        }
        Some(self)
    }

    fn and_taken_back(self) -> impl Iterator<Item = Way> {
        let back = self.taken_back();
        std::iter::once(self).chain(back)
    }

    fn taken_back(&self) -> Option<Way> {
        let mut way = self.clone();
        (way.model.consecutive > 0 && way.model.is_short_run()).then(|| {
            way.model.take_run_back();
            way
        })
    }
}

impl Model {
    /// The model after a commit to its destination, or how the commit contradicts the contract.
    /// Enabling an enabled destination leaves no transition, so if somebody asked for that, its reset
    /// may stand before any of the attempts.
    pub fn after(
        &self,
        attempts: &[(&Attempt, DeliveryId)],
        change: &DestinationChange,
        rules: &Rules,
        context: &Context,
    ) -> Result<Model, String> {
        let result = self.with_reset(attempts, change, None, (rules, context));
        if result.is_ok() || !context.enable_asked {
            return result;
        }
        let mut others = (0..=attempts.len())
            .map(|place| self.with_reset(attempts, change, Some(place), (rules, context)));
        match others.find(Result::is_ok) {
            Some(Ok(mut model)) => {
                model.met.push(Cover::CountersResetByHand);
                Ok(model)
            }
            Some(Err(_)) | None => result,
        }
    }

    fn with_reset(
        &self,
        attempts: &[(&Attempt, DeliveryId)],
        change: &DestinationChange,
        reset_before: Option<usize>,
        (rules, context): (&Rules, &Context),
    ) -> Result<Model, String> {
        let mut model = self.clone();
        model.met.clear();
        let (seen, stored) = (&change.transitions, &change.circuit);
        let mut plain = model.clone();
        let result = plain
            .apply(attempts, seen, reset_before, rules, context)
            .and_then(|()| plain.agrees(stored));
        match result {
            Ok(()) => Ok(plain),
            Err(what) if context.may_suspend => {
                let numbers = (rules, context);
                let way = model.apply_suspended(attempts, seen, reset_before, numbers, stored);
                way.ok_or(what)
            }
            Err(what) => Err(what),
        }
    }

    /// Like [`Model::apply`], along every history that a suspension allows: returns the one that
    /// ends as the stored circuit.
    pub fn apply_suspended(
        &self,
        attempts: &[(&Attempt, DeliveryId)],
        seen: &[Transition],
        reset_before: Option<usize>,
        (rules, context): (&Rules, &Context),
        stored: &Circuit,
    ) -> Option<Model> {
        let mut ways = vec![Way { model: self.clone(), explained: 0 }];
        for (place, (attempt, id)) in attempts.iter().enumerate() {
            let mut next = Vec::new();
            for way in ways.into_iter().flat_map(Way::and_taken_back) {
                let first =
                    |model: &Model, next: &Transition| model.comes_first(next, attempt, *id);
                let Some(mut way) = way.unasked(seen, rules, context, first) else { continue };
                if reset_before == Some(place) {
                    way.model.reset();
                }
                for way in way.and_taken_back() {
                    // Of two histories with the same end, the first one is kept: that with a
                    // suspension.
                    next.extend(way.learned(attempt, *id, seen, rules, true));
                    next.extend(way.learned(attempt, *id, seen, rules, false));
                }
            }
            let mut known = HashSet::new();
            next.retain(|way: &Way| known.insert(way.key()));
            ways = next;
        }
        let ended = ways.into_iter().filter_map(|way| {
            let mut way = way.unasked(seen, rules, context, |_, _| true)?;
            if reset_before == Some(attempts.len()) {
                way.model.reset();
            }
            Some(way.and_taken_back())
        });
        let mut ended = ended.flatten();
        ended.find(|way| way.model.agrees(stored).is_ok()).map(|way| way.model)
    }

    /// Applies an attempt while transitions are suspended; `None` if that makes no difference.
    fn learn_suspended(
        &mut self,
        outcome: Outcome,
        id: DeliveryId,
        at: i64,
        rules: &Rules,
    ) -> Option<Expected> {
        if !matches!(outcome, Outcome::Failure | Outcome::Gone) {
            return None;
        }
        self.apart += 1;
        let [attempts, failures, consecutive] =
            [self.attempts, self.failures, self.consecutive].map(|count| count + self.apart);
        if self.state == State::Closed && rules.disables(attempts, failures, consecutive) {
            self.met.push(Cover::Suspended);
        }
        self.met.push(Cover::FailureSuspended);
        let is_probe = matches!(self.state, State::HalfOpen { probe, .. } if probe == id);
        let none = u64::MAX;
        let held =
            Rules { consecutive: none, grace: none, freeze_at: none, freeze_over: none, ..*rules };
        Some(self.judge(outcome, is_probe, at, &held))
    }

    /// Whether the consecutive failures came within the time that it may take to notice an outage.
    pub(super) fn is_short_run(&self) -> bool {
        self.run.1 - self.run.0 <= MINUTE_MS
    }

    /// Excludes the consecutive failures, because they were the first ones of an outage.
    pub(super) fn take_run_back(&mut self) {
        self.met.push(Cover::RunTakenBack);
        self.attempts -= self.consecutive;
        self.failures -= self.consecutive;
        self.consecutive = 0;
    }
}
