//! Schedules of other products: fixed delays after each failed attempt, and no circuit.

use std::time::Duration;

use super::cohort::{Cohort, Waiting};
use super::tally::Tally;
use super::{Forecast, OUTAGE_AT, Scenario};
use crate::retry::{ScheduleClock, Slot};
use crate::time::Timestamp;

/// A schedule without a circuit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedSchedule {
    /// The delays from each failed attempt to the next attempt.
    pub delays: Vec<Duration>,
    /// The destination is switched off when all attempts have failed for this long. Deliveries that
    /// wait then, or are accepted later, are not sent any more.
    pub off_after: Option<Duration>,
}

impl FixedSchedule {
    /// The time from the first attempt to the last.
    pub fn length(&self) -> Duration {
        self.delays.iter().sum()
    }
}

pub(super) fn run(scenario: &Scenario, schedule: &FixedSchedule) -> Forecast {
    let outage_ends_at = OUTAGE_AT.saturating_add(scenario.outage);
    let off_at = schedule
        .off_after
        .map(|after| OUTAGE_AT.saturating_add(after))
        .filter(|at| *at < outage_ends_at);
    let ends_at = outage_ends_at.saturating_add(schedule.length() + Duration::from_secs(3_600));
    let mut run = Run {
        scenario,
        schedule,
        outage_ends_at,
        waiting: Waiting::new(scenario.traffic),
        tally: Tally::new(scenario, ends_at),
        accepted: 0,
    };
    let mut now = OUTAGE_AT;
    while now < ends_at {
        let mut end = run.tally.next_sample_at().min(ends_at);
        for boundary in [Some(outage_ends_at), off_at].into_iter().flatten() {
            if now < boundary {
                end = end.min(boundary);
            }
        }
        match off_at {
            Some(off_at) if now >= off_at => run.nothing_is_sent(end),
            Some(_) | None => run.everything_is_sent(end),
        }
        now = end;
        run.tally.look(now, run.waiting.count(), 0);
        if run.tally.forecast.recovered_at.is_some() {
            break;
        }
    }
    run.tally.forecast.ends_at = now.since(OUTAGE_AT);
    run.tally.finish(run.accepted, run.waiting.count(), now)
}

struct Run<'a> {
    scenario: &'a Scenario,
    schedule: &'a FixedSchedule,
    outage_ends_at: Timestamp,
    waiting: Waiting,
    tally: Tally,
    accepted: u64,
}

impl Run<'_> {
    fn accept(&mut self, end: Timestamp) -> Option<Cohort> {
        let count = self.scenario.traffic.before(end).saturating_sub(self.accepted);
        let (first, due_at) = (self.accepted, self.scenario.traffic.at(self.accepted));
        self.accepted += count;
        let slot = Slot::new(0, due_at, ScheduleClock::starting_at(due_at));
        (count > 0).then_some(Cohort { first, count, slot, attempts: 0, last_attempt_at: None })
    }

    fn everything_is_sent(&mut self, end: Timestamp) {
        let mut next = self.accept(end);
        while let Some(cohort) = next {
            self.attempt(cohort);
            next = self.waiting.pop_due(end);
        }
    }

    /// No interval crosses the end of the outage, so the outcome of the first member is that of
    /// all.
    fn attempt(&mut self, cohort: Cohort) {
        let Cohort { first, count, slot, .. } = cohort;
        if slot.due_at >= self.outage_ends_at {
            return self.tally.arrived(first, count, slot.due_at);
        }
        self.tally.forecast.failed_attempts += count;
        let delay = usize::try_from(slot.number).ok().and_then(|n| self.schedule.delays.get(n));
        match delay {
            None => self.tally.died(first, count, slot.due_at),
            Some(delay) => {
                let due_at = slot.due_at.saturating_add(*delay);
                let slot = Slot { number: slot.number + 1, due_at, ..slot };
                self.waiting.insert(Cohort { slot, attempts: cohort.attempts + 1, ..cohort });
            }
        }
    }

    fn nothing_is_sent(&mut self, end: Timestamp) {
        let accepted = self.accept(end).map_or(0, |cohort| cohort.count);
        self.tally.forecast.dead += accepted + self.waiting.count();
        self.tally.forecast.dead_never_attempted += accepted;
        self.waiting = Waiting::new(self.scenario.traffic);
    }
}
