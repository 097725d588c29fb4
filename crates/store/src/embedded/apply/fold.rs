//! Folding: many journal records become few writes.
//!
//! All changes of a delivery between two transactions become one row in its last state, with its
//! first attempt inside. **A delivery that is accepted and ends between two transactions is never
//! written to a lane.** Counters are added up. Nothing is copied: a fold borrows the records. After
//! folding, the order of the records no longer matters.

use std::collections::hash_map::Entry;

use postrider_domain::attempt::Attempt;
use postrider_domain::attempt_tally::{AttemptHour, hour_of};
use postrider_domain::circuit::{Circuit, Transition};
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, TenantId};
use postrider_domain::job_outcomes::{OutcomeChange, count_outcomes};
use postrider_domain::ledger::{LedgerDelta, Movement, movement};
use postrider_domain::time::Timestamp;

use crate::embedded::QuickMap;
use crate::embedded::files::Day;
use crate::records::{Acceptance, Commit, DeliveryChange, DestinationChange, ReplayJob, Tally};

const MINUTE_MS: i64 = 60_000;

/// The minute that a time falls in.
pub(in crate::embedded) fn minute(time: Timestamp) -> i64 {
    time.as_unix_ms().div_euclid(MINUTE_MS)
}

/// A delivery after all folded changes.
#[derive(Debug)]
pub(super) struct Folded<'r> {
    pub(super) delivery: &'r Delivery,
    /// Its state before the fold; it says which lane may have a row of the delivery.
    pub(super) before: Option<StateName>,
    /// The index of its event among the events of the day; `None` where the event was accepted
    /// before this fold.
    pub(super) event: Option<usize>,
    /// Its first attempt, which is stored inside its row.
    pub(super) first: Option<&'r Attempt>,
}

/// The writes to the file of one day.
#[derive(Debug, Default)]
pub(super) struct OfDay<'r> {
    pub(super) events: Vec<&'r Acceptance>,
    pub(super) deliveries: Vec<Folded<'r>>,
    /// Attempts that are not inside the row of their delivery.
    pub(super) attempts: Vec<(DeliveryId, &'r Attempt)>,
    /// How many events, deliveries and attempts are added to the file.
    pub(super) more: [i64; 3],
}

impl OfDay<'_> {
    /// Whether all deliveries are accepted in this fold, together with their events.
    pub(super) fn begins(&self) -> bool {
        self.deliveries.iter().all(|folded| folded.event.is_some())
    }
}

/// The counter of a day's file that grows.
#[derive(Debug, Clone, Copy)]
enum More {
    Event = 0,
    Delivery = 1,
    Attempt = 2,
}

/// The writes that a batch of records comes to.
#[derive(Debug, Default)]
pub(super) struct Fold<'r> {
    pub(super) days: Vec<(Day, OfDay<'r>)>,
    pub(super) destinations: QuickMap<DestinationId, (&'r TenantId, &'r Circuit)>,
    pub(super) transitions: Vec<(&'r TenantId, DestinationId, &'r Transition)>,
    pub(super) replays: Vec<&'r ReplayJob>,
    /// What is added to the outcomes of jobs, with their tenants.
    pub(super) outcomes: QuickMap<ReplayId, (&'r TenantId, OutcomeChange)>,
    pub(super) ledger: QuickMap<&'r TenantId, LedgerDelta>,
    pub(super) tallies: QuickMap<(&'r TenantId, i64), Tally>,
    pub(super) backlog: QuickMap<DestinationId, i64>,
    /// The attempts of each destination by the hour in which they began.
    pub(super) attempt_hours: QuickMap<(DestinationId, i64), AttemptHour>,
    /// For each delivery: the index of its day in `days`, and its index among the deliveries of
    /// that day.
    places: QuickMap<DeliveryId, (usize, usize)>,
    rows: usize,
}

impl<'r> Fold<'r> {
    /// An estimate of how many rows this fold writes.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Every event.
    pub(super) fn events(&self) -> impl Iterator<Item = &'r Acceptance> {
        self.days.iter().flat_map(|(_, of_day)| of_day.events.iter().copied())
    }

    /// The index of a day in `days`. There are few days, and most records are of the last one.
    fn day(&mut self, time: Timestamp) -> usize {
        let day = Day::of(time);
        match self.days.iter().rposition(|(known, _)| *known == day) {
            Some(place) => place,
            None => {
                self.days.push((day, OfDay::default()));
                self.days.len() - 1
            }
        }
    }

    fn of_day(&mut self, place: usize) -> Option<&mut OfDay<'r>> {
        self.days.get_mut(place).map(|(_, of_day)| of_day)
    }

    fn count(&mut self, place: usize, more: More) {
        if let Some(of_day) = self.of_day(place) {
            of_day.more[more as usize] += 1;
        }
    }

    pub(super) fn accept(&mut self, acceptance: &'r Acceptance) {
        let owed = i64::try_from(acceptance.deliveries.len()).unwrap_or(i64::MAX);
        let tenant = &acceptance.event.tenant;
        self.ledger.entry(tenant).or_default().accept(owed);
        let minute = minute(acceptance.accepted_at);
        if owed > 0 {
            self.tally(tenant, minute, |tally| tally.accepted += owed.unsigned_abs());
        }
        let day = self.day(acceptance.accepted_at);
        let Some(of_day) = self.of_day(day) else { return };
        let event = of_day.events.len();
        of_day.events.push(acceptance);
        self.count(day, More::Event);
        self.rows += 1;
        // The event's row lists its deliveries; their states are in rows of their own.
        for delivery in &acceptance.deliveries {
            let day_of_delivery = self.day(delivery.created_at);
            self.count(day_of_delivery, More::Delivery);
            let is_of_day = day_of_delivery == day;
            self.put(delivery, None, is_of_day.then_some(event), None);
        }
    }

    pub(super) fn settle(&mut self, commit: &'r Commit) {
        for DeliveryChange { before, by_job, delivery, attempt } in &commit.deliveries {
            self.count_change(delivery, movement(*before, delivery, attempt.as_ref()));
            count_outcomes(*by_job, delivery, |job, outcome, n| {
                let (_, change) = self.outcomes.entry(job).or_insert((&delivery.tenant, [0; _]));
                change[outcome as usize] += n;
            });
            if let Some(attempt) = attempt {
                self.count_attempt(delivery.destination, attempt);
            }
            self.put(delivery, Some(*before), None, attempt.as_ref());
        }
        for DestinationChange { tenant, id, circuit, transitions } in &commit.destinations {
            self.transitions.extend(transitions.iter().map(|one| (tenant, *id, one)));
            self.rows += 1;
            self.destinations.insert(*id, (tenant, circuit));
        }
        if let Some(job) = &commit.replay {
            // Only the latest progress of a job counts.
            self.replays.retain(|earlier| earlier.id != job.id);
            self.replays.push(job);
        }
    }

    fn count_change(&mut self, delivery: &'r Delivery, movement: Movement) {
        let Movement { step, delivered_at, dead_at, failed_at, waiting } = movement;
        let tenant = &delivery.tenant;
        if let Some(step) = step {
            self.ledger.entry(tenant).or_default().apply(step);
        }
        if waiting != 0 {
            *self.backlog.entry(delivery.destination).or_default() += waiting;
        }
        if let Some(at) = delivered_at {
            self.tally(tenant, minute(at), |tally| tally.delivered += 1);
        }
        if let Some(at) = dead_at {
            self.tally(tenant, minute(at), |tally| tally.dead += 1);
        }
        if let Some(at) = failed_at {
            self.tally(tenant, minute(at), |tally| tally.failed += 1);
        }
    }

    fn count_attempt(&mut self, destination: DestinationId, attempt: &Attempt) {
        let hour = self.attempt_hours.entry((destination, hour_of(attempt.started_at)));
        if matches!(hour, Entry::Vacant(_)) {
            self.rows += 1;
        }
        hour.or_default().count(attempt);
    }

    fn tally(&mut self, tenant: &'r TenantId, minute: i64, change: impl FnOnce(&mut Tally)) {
        change(self.tallies.entry((tenant, minute)).or_default());
    }

    /// Adds an event that is transferred from another store, with its deliveries in their current
    /// states.
    pub(super) fn import(
        &mut self,
        acceptance: &'r Acceptance,
        attempts: &'r [(DeliveryId, Attempt)],
    ) {
        let day = self.day(acceptance.accepted_at);
        let Some(of_day) = self.of_day(day) else { return };
        let event = of_day.events.len();
        of_day.events.push(acceptance);
        self.count(day, More::Event);
        for delivery in &acceptance.deliveries {
            if matches!(delivery.state, DeliveryState::Waiting(_)) {
                *self.backlog.entry(delivery.destination).or_default() += 1;
            }
            let day_of_delivery = self.day(delivery.created_at);
            self.count(day_of_delivery, More::Delivery);
            let is_of_day = day_of_delivery == day;
            self.put(delivery, None, is_of_day.then_some(event), None);
            for (_, attempt) in attempts.iter().filter(|(id, _)| *id == delivery.id) {
                self.put(delivery, None, None, Some(attempt));
            }
        }
    }

    /// Adds a delivery in its new state. Its first attempt goes into its row.
    fn put(
        &mut self,
        delivery: &'r Delivery,
        before: Option<StateName>,
        event: Option<usize>,
        attempt: Option<&'r Attempt>,
    ) {
        let first = attempt.filter(|attempt| attempt.number == 1);
        let known = self.places.get(&delivery.id).copied();
        let day = known.map_or_else(|| self.day(delivery.created_at), |(day, _)| day);
        let Some((_, of_day)) = self.days.get_mut(day) else { return };
        if attempt.is_some() {
            of_day.more[More::Attempt as usize] += 1;
        }
        if let Some(attempt) = attempt
            && first.is_none()
        {
            of_day.attempts.push((delivery.id, attempt));
            self.rows += 1;
        }
        if let Some(folded) = known.and_then(|(_, place)| of_day.deliveries.get_mut(place)) {
            folded.delivery = delivery;
            folded.first = first.or(folded.first);
            return;
        }
        self.places.insert(delivery.id, (day, of_day.deliveries.len()));
        of_day.deliveries.push(Folded { delivery, before, event, first });
        self.rows += 1;
    }
}
