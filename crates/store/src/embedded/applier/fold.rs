//! Many journal records become few writes.
//!
//! What happened to a delivery between two transactions is one row in its last state. **One that
//! was accepted and ended in between never touches the queue.** Counters are added up. The order
//! of records matters here and nowhere after.

use std::collections::HashMap;
use std::hash::Hash;

use postrider_domain::attempt::{Attempt, Verdict};
use postrider_domain::circuit::{Circuit, Transition};
use postrider_domain::delivery::{Delivery, DeliveryState, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_domain::time::Timestamp;

use super::super::files::Day;
use crate::records::{Acceptance, Commit, DeliveryChange, DestinationChange, ReplayJob, Tally};

const MINUTE_MS: i64 = 60_000;

/// The minute that a time falls in.
pub(in crate::embedded) fn minute(time: Timestamp) -> i64 {
    time.as_unix_ms().div_euclid(MINUTE_MS)
}

/// A delivery as it is after everything that was folded.
#[derive(Debug)]
pub(super) struct Folded {
    pub(super) delivery: Delivery,
    /// The queue may have a row of it.
    pub(super) in_queue: bool,
}

/// By how much a tenant's accounts change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LedgerChange {
    pub(super) accepted: i64,
    pub(super) queued: i64,
    pub(super) waiting: i64,
    pub(super) delivered: i64,
    pub(super) dead: i64,
    pub(super) cancelled: i64,
}

impl LedgerChange {
    fn account(&mut self, state: StateName) -> &mut i64 {
        match state {
            // Nothing is in flight in a store.
            StateName::Queued | StateName::InFlight => &mut self.queued,
            StateName::Waiting => &mut self.waiting,
            StateName::Delivered => &mut self.delivered,
            StateName::Dead => &mut self.dead,
            StateName::Cancelled => &mut self.cancelled,
        }
    }
}

/// What some records come to.
#[derive(Debug, Default)]
pub(super) struct Fold {
    pub(super) events: HashMap<Day, Vec<Acceptance>>,
    pub(super) deliveries: HashMap<Day, Vec<Folded>>,
    pub(super) attempts: HashMap<Day, Vec<(DeliveryId, Attempt)>>,
    pub(super) destinations: HashMap<DestinationId, (TenantId, Circuit)>,
    pub(super) transitions: Vec<(TenantId, DestinationId, Transition)>,
    pub(super) replays: Vec<ReplayJob>,
    pub(super) ledger: HashMap<TenantId, LedgerChange>,
    pub(super) tallies: HashMap<(TenantId, i64), Tally>,
    pub(super) backlog: HashMap<DestinationId, i64>,
    places: HashMap<DeliveryId, (Day, usize)>,
    rows: usize,
}

/// The entry of a key.
fn entry<'m, K: Clone + Eq + Hash, V: Default>(map: &'m mut HashMap<K, V>, key: &K) -> &'m mut V {
    map.entry(key.clone()).or_default()
}

impl Fold {
    /// How many rows it will write, about.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Puts rows in the order of their keys: what is inserted side by side is written together.
    /// Nothing can be folded in afterwards.
    pub(super) fn sort(&mut self) {
        self.places.clear();
        for events in self.events.values_mut() {
            events.sort_unstable_by(|one, other| one.event.id.cmp(&other.event.id));
        }
        for deliveries in self.deliveries.values_mut() {
            deliveries.sort_unstable_by_key(|folded| folded.delivery.id);
        }
        for attempts in self.attempts.values_mut() {
            attempts.sort_unstable_by_key(|(delivery, attempt)| (*delivery, attempt.number));
        }
    }

    /// Every day that is touched.
    pub(super) fn days(&self) -> Vec<Day> {
        let keys = self.events.keys().chain(self.deliveries.keys()).chain(self.attempts.keys());
        let mut days: Vec<Day> = keys.copied().collect();
        days.sort_unstable();
        days.dedup();
        days
    }

    pub(super) fn accept(&mut self, acceptance: Acceptance) {
        let owed = i64::try_from(acceptance.deliveries.len()).unwrap_or(i64::MAX);
        let tenant = acceptance.event.tenant.clone();
        let ledger = entry(&mut self.ledger, &tenant);
        ledger.accepted += owed;
        ledger.queued += owed;
        let minute = minute(acceptance.accepted_at);
        if owed > 0 {
            self.tally(&tenant, minute, |tally| tally.accepted += owed.unsigned_abs());
        }
        // The event's row names its deliveries; their state is here.
        for delivery in acceptance.deliveries.clone() {
            self.put(delivery, false);
        }
        self.rows += 1;
        self.events.entry(Day::of(acceptance.accepted_at)).or_default().push(acceptance);
    }

    pub(super) fn settle(&mut self, commit: Commit) {
        for DeliveryChange { before, delivery, attempt } in commit.deliveries {
            let after = delivery.state.name();
            if before != after {
                self.move_in_ledger(&delivery, before, after);
            }
            if let Some(attempt) = attempt {
                self.log(&delivery, attempt);
            }
            self.put(delivery, matches!(before, StateName::Queued | StateName::Waiting));
        }
        for DestinationChange { tenant, id, circuit, transitions } in commit.destinations {
            for transition in transitions {
                self.transitions.push((tenant.clone(), id, transition));
            }
            self.rows += 1;
            self.destinations.insert(id, (tenant, circuit));
        }
        if let Some(job) = commit.replay {
            // How far it has come counts; the last one says it.
            self.replays.retain(|earlier| earlier.id != job.id);
            self.replays.push(job);
        }
    }

    fn move_in_ledger(&mut self, delivery: &Delivery, before: StateName, after: StateName) {
        let ledger = entry(&mut self.ledger, &delivery.tenant);
        *ledger.account(before) -= 1;
        *ledger.account(after) += 1;
        let left = i64::from(before == StateName::Waiting);
        let came = i64::from(after == StateName::Waiting);
        if left != came {
            *self.backlog.entry(delivery.destination).or_default() += came - left;
        }
        self.tally_state(delivery);
    }

    fn log(&mut self, delivery: &Delivery, attempt: Attempt) {
        match attempt.ending.verdict() {
            Verdict::Success => {}
            Verdict::Failure | Verdict::Gone | Verdict::OwnFault => {
                let minute = minute(attempt.started_at);
                self.tally(&delivery.tenant, minute, |tally| tally.failed += 1);
            }
        }
        self.rows += 1;
        let day = self.attempts.entry(Day::of(delivery.created_at)).or_default();
        day.push((delivery.id, attempt));
    }

    fn tally_state(&mut self, delivery: &Delivery) {
        match delivery.state {
            DeliveryState::Delivered { at } => {
                self.tally(&delivery.tenant, minute(at), |tally| tally.delivered += 1);
            }
            DeliveryState::Dead { at, .. } => {
                self.tally(&delivery.tenant, minute(at), |tally| tally.dead += 1);
            }
            DeliveryState::Queued | DeliveryState::Waiting(_) | DeliveryState::Cancelled { .. } => {
            }
        }
    }

    fn tally(&mut self, tenant: &TenantId, minute: i64, change: impl FnOnce(&mut Tally)) {
        change(self.tallies.entry((tenant.clone(), minute)).or_default());
    }

    pub(super) fn put(&mut self, delivery: Delivery, in_queue: bool) {
        if let Some(&(day, place)) = self.places.get(&delivery.id)
            && let Some(folded) =
                self.deliveries.get_mut(&day).and_then(|folded| folded.get_mut(place))
        {
            folded.delivery = delivery;
            return;
        }
        let day = Day::of(delivery.created_at);
        let folded = self.deliveries.entry(day).or_default();
        self.places.insert(delivery.id, (day, folded.len()));
        folded.push(Folded { delivery, in_queue });
        self.rows += 1;
    }
}
