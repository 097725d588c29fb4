//! Draws random operations: which one comes next, on which records, and with which outcome.

use std::time::Duration;

use postrider_domain::circuit::Suspension;
use postrider_domain::delivery::{CancelReason, Delivery, StateName};
use postrider_domain::event::Event;
use postrider_domain::ids::TenantId;
use postrider_domain::mixing::mix;
use postrider_domain::policy::Policy;
use postrider_domain::settlement::settle;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Commit, DeliveryChange, DeliveryFilter, DestinationChange, DueMark, EventFilter,
    ReplayJob, ReplayState, Store, WaitingOrder,
};

use super::operation::Operation;
use crate::conformance::ground::{ALL, commit_of};
use crate::samples::{
    START, acceptance, acme, delivery_id, destination, digest, event, every_ending, every_timings,
    finished, json, key, kind, replay, replay_id, subscription, subscription_id, tenant, umbrella,
};

const KINDS: [&str; 3] = ["task.updated", "task.deleted", "note.added"];

/// Identifiers are globally unique, so the two tenants use different ones.
fn first_subscription(whose: &TenantId) -> u64 {
    if *whose == acme() { 0 } else { 100 }
}

/// The random source, and the time, which only advances.
pub(super) struct Dice {
    state: u64,
    now: Timestamp,
    deliveries: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice { state: mix(seed), now: START, deliveries: 0 }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    fn below(&mut self, n: u64) -> u64 {
        self.state = mix(self.state);
        self.state % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T>(&mut self, mut items: Vec<T>) -> Option<T> {
        let n = u64::try_from(items.len()).unwrap();
        (n > 0).then(|| items.swap_remove(usize::try_from(self.below(n)).unwrap()))
    }

    fn limit(&mut self) -> usize {
        usize::try_from(1 + self.below(7)).unwrap()
    }

    fn whose(&mut self) -> TenantId {
        if self.one_in(3) { umbrella() } else { acme() }
    }

    fn parity(&mut self) -> Option<u8> {
        [None, None, Some(0), Some(1)][usize::try_from(self.below(4)).unwrap()]
    }

    /// Advances the time: often not at all, often a little, at times by days.
    fn pass_time(&mut self) {
        let ms = match self.below(4) {
            0 => 0,
            1 => self.below(50),
            2 => self.below(200_000),
            _ => self.below(20_000_000),
        };
        self.now = self.now.saturating_add(Duration::from_millis(ms));
    }

    /// Draws the next operation. Its target is looked up in the model.
    pub(super) async fn operation(&mut self, model: &dyn Store) -> Operation {
        self.pass_time();
        match self.below(24) {
            0..=4 => self.accept(),
            5..=9 => self.attempt(model).await,
            10 | 11 => self.move_without_attempt(model).await,
            12 => self.change_circuit(model).await,
            13 | 14 => self.put(),
            15 => self.configure(),
            16 => self.advance_replay(model).await,
            17 => self.put_replay(model).await,
            18 => Operation::Reopen,
            19 => self.list_deliveries(),
            20 => self.list_events(),
            21 => self.look_at_queues(),
            22 => self.look_at_one(),
            _ => self.tallies(),
        }
    }

    fn accept(&mut self) -> Operation {
        let whose = self.whose();
        let batch = (0..=self.below(3)).map(|_| self.acceptance(&whose)).collect();
        Operation::Accept(batch)
    }

    /// An event with one of few identifiers and two fingerprints, so that there are repeats and
    /// conflicts.
    fn acceptance(&mut self, whose: &TenantId) -> Acceptance {
        let id = format!("e{}", self.below(80));
        let data = json(&format!(" {{\"n\" : {}}} ", self.below(1_000)));
        let name = KINDS[usize::try_from(self.below(3)).unwrap()];
        let event = Event { data, kind: kind(name), ..event(whose, &id) };
        let owed: Vec<(u64, u64)> = (0..self.below(4))
            .map(|_| {
                self.deliveries += 1;
                (self.deliveries, self.below(5))
            })
            .collect();
        let fingerprint = digest(u8::from(self.one_in(12)));
        let mut acceptance = Acceptance { fingerprint, ..acceptance(event, self.now, &owed) };
        for (delivery, (_, to)) in acceptance.deliveries.iter_mut().zip(owed) {
            delivery.subscription = subscription_id(to + first_subscription(whose));
        }
        acceptance
    }

    async fn some_delivery(&mut self, model: &dyn Store, states: &[StateName]) -> Option<Delivery> {
        let whose = self.whose();
        let all = model.list_deliveries(&whose, &DeliveryFilter::default(), &ALL).await.unwrap();
        let fit = all.items.into_iter().filter(|d| states.contains(&d.state.name())).collect();
        self.pick(fit)
    }

    async fn attempt(&mut self, model: &dyn Store) -> Operation {
        let states = [StateName::Queued, StateName::Waiting];
        let mut commit = Commit::default();
        if let Some(delivery) = self.some_delivery(model, &states).await {
            let place = model.destination(&delivery.tenant, delivery.destination).await.unwrap();
            if let (Some(place), Some(turn)) = (place, delivery.turn()) {
                let ending = self.pick(every_ending()).unwrap();
                let mut done = finished(self.now, ending);
                done.timings = self.pick(every_timings()).unwrap();
                self.pass_time();
                let policy = Policy::default();
                let now = self.now;
                let settled = settle(&delivery, &place, turn, done, now, Suspension::Off, &policy);
                commit = commit_of(settled, &delivery);
            }
        }
        Operation::Settle(self.parity(), commit)
    }

    async fn move_without_attempt(&mut self, model: &dyn Store) -> Operation {
        let all = StateName::ALL;
        let Some(before) = self.some_delivery(model, &all).await else { return self.accept() };
        let after = match self.below(3) {
            0 => before.not_admitted(self.now, &Policy::default().retry),
            1 => before.cancelled(CancelReason::Asked, self.now).unwrap_or(before.clone()),
            _ => before.replayed(self.now).unwrap_or(before.clone()),
        };
        let change = DeliveryChange::of(&before, after, None);
        let commit = Commit { deliveries: vec![change], ..Commit::default() };
        Operation::Settle(self.parity(), commit)
    }

    async fn change_circuit(&mut self, model: &dyn Store) -> Operation {
        let whose = self.whose();
        let all = model.destinations(&whose, &ALL).await.unwrap().items;
        let Some(mut place) = self.pick(all) else { return self.put() };
        let reason = self.one_in(2).then(|| "by hand".to_owned());
        let freeze = self.one_in(2);
        let circuit = &mut place.circuit;
        let transition = if freeze {
            circuit.freeze(reason, self.now)
        } else {
            circuit.enable(reason, self.now)
        };
        let change = DestinationChange {
            tenant: whose,
            id: place.id,
            circuit: place.circuit,
            transitions: transition.into_iter().collect(),
        };
        Operation::Settle(None, Commit { destinations: vec![change], ..Commit::default() })
    }

    /// A subscription with one of few identifiers, destinations and types, so that there are twins.
    fn put(&mut self) -> Operation {
        let whose = self.whose();
        let (n, to) = (self.subscription_number(&whose), self.below(5));
        let mut record = subscription(&whose, n, to);
        let types = subscription(&whose, self.below(2), to).subscription.types;
        record.subscription.types = types;
        record.subscription.updated_at = self.now;
        record.subscription.enabled = self.one_in(2);
        let mut place = destination(&whose, to);
        place.created_at = self.now;
        Operation::Put(Box::new(record), Box::new(place))
    }

    fn subscription_number(&mut self, whose: &TenantId) -> u64 {
        self.below(8) + first_subscription(whose)
    }

    fn configure(&mut self) -> Operation {
        let whose = self.whose();
        let id = format!("k{}", self.below(5));
        match self.below(6) {
            0 => Operation::CreateTenant(tenant(whose.as_str(), self.now)),
            1 => Operation::DeleteTenant(whose),
            2 => Operation::CreateKey(key(&id, Some(&whose), self.now)),
            3 => Operation::DeleteKey(whose, id),
            4 => {
                let n = self.subscription_number(&whose);
                Operation::MarkDeleted(whose, subscription_id(n), self.now)
            }
            _ => {
                let n = self.subscription_number(&whose);
                Operation::Remove(whose, subscription_id(n))
            }
        }
    }

    async fn put_replay(&mut self, model: &dyn Store) -> Operation {
        let whose = self.whose();
        let n = self.below(3) + if whose == acme() { 0 } else { 100 };
        let states = [ReplayState::Running, ReplayState::Paused, ReplayState::Cancelled];
        let state = states[usize::try_from(self.below(3)).unwrap()];
        let job = match model.replay(&whose, replay_id(n)).await.unwrap() {
            Some(job) => job,
            None => ReplayJob { filter: self.filter(), ..replay(&whose, n, self.now) },
        };
        Operation::PutReplay(ReplayJob { state, ..job })
    }

    async fn advance_replay(&mut self, model: &dyn Store) -> Operation {
        let whose = self.whose();
        let jobs = model.replays(&whose, &ALL).await.unwrap().items;
        let Some(mut job) = self.pick(jobs) else { return self.put() };
        let limit = self.limit();
        if self.one_in(2) {
            return Operation::Candidates(job, limit);
        }
        let mut commit = Commit::default();
        for delivery in model.replay_candidates(&job, limit).await.unwrap() {
            job.done += 1;
            job.position = Some(delivery.id);
            let after = if job.retries() {
                delivery.asked_for(self.now)
            } else {
                delivery.replayed(self.now)
            };
            let after = after.unwrap().sent_by(job.id);
            commit.deliveries.push(DeliveryChange::of(&delivery, after, None));
        }
        if commit.deliveries.is_empty() {
            job.state = ReplayState::Finished;
            job.finished_at = Some(self.now);
        }
        commit.replay = Some(job);
        Operation::Settle(None, commit)
    }

    fn filter(&mut self) -> DeliveryFilter {
        let whose = self.whose();
        let state = StateName::ALL[usize::try_from(self.below(6)).unwrap()];
        let (to, n) = (self.below(5), self.below(80));
        let name = KINDS[usize::try_from(self.below(3)).unwrap()];
        let (since, until) = (self.some_time(), self.some_time());
        DeliveryFilter {
            state: self.one_in(2).then_some(state),
            destination: self.one_in(4).then(|| destination(&whose, to).id),
            subscription: self.one_in(6).then(|| subscription_id(to + first_subscription(&whose))),
            event: self.one_in(8).then(|| format!("e{n}").parse().unwrap()),
            kind: self.one_in(4).then(|| kind(name)),
            since: self.one_in(4).then_some(since),
            until: self.one_in(4).then_some(until),
            ended_since: self.one_in(6).then_some(since),
        }
    }

    /// A random time between the start and now.
    fn some_time(&mut self) -> Timestamp {
        let span = u64::try_from(self.now.since(START).as_millis()).unwrap();
        START.saturating_add(Duration::from_millis(self.below(span + 1)))
    }

    fn some_mark(&mut self) -> Option<DueMark> {
        let delivery = delivery_id(self.below(self.deliveries + 1));
        let at = self.some_time();
        self.one_in(2).then_some(DueMark { at, delivery })
    }

    fn list_deliveries(&mut self) -> Operation {
        Operation::Deliveries(self.whose(), self.filter(), self.limit())
    }

    fn list_events(&mut self) -> Operation {
        let DeliveryFilter { kind, since, until, .. } = self.filter();
        Operation::Events(
            self.whose(),
            EventFilter { kind, since, until, ..EventFilter::default() },
            self.limit(),
        )
    }

    fn look_at_queues(&mut self) -> Operation {
        let (parity, mark, limit) = (self.parity(), self.some_mark(), self.limit());
        if self.one_in(2) {
            return Operation::Queued(parity, mark, limit);
        }
        let until = self.some_time().saturating_add(Duration::from_secs(self.below(100_000)));
        Operation::Due(parity, mark, until, limit)
    }

    fn look_at_one(&mut self) -> Operation {
        let (whose, to) = (self.whose(), self.below(5));
        let limit = self.limit();
        match self.below(4) {
            0 => Operation::UnfinishedOf(subscription_id(to + first_subscription(&whose))),
            1 => Operation::WaitingOf(destination(&whose, to).id, WaitingOrder::Oldest, limit),
            2 => Operation::WaitingOf(destination(&whose, to).id, WaitingOrder::Due, limit),
            _ => Operation::WaitingOf(destination(&whose, to).id, WaitingOrder::ProbeRank, limit),
        }
    }

    fn tallies(&mut self) -> Operation {
        let whose = self.whose();
        let (one, other) = (self.some_time(), self.some_time());
        let step = [1, 5, 60][usize::try_from(self.below(3)).unwrap()];
        let tenant = (!self.one_in(3)).then_some(whose);
        Operation::Tallies(tenant, one.min(other), one.max(other), step)
    }
}
