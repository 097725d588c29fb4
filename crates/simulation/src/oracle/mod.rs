//! An independent, deliberately simple model of the contract. It sees only what is visible from
//! outside: durable writes, sent requests, and commands. It does not use the domain's decisions.
//!
//! Every disagreement is a [`Violation`]. Times are milliseconds since the epoch.

pub mod circuit;
mod jobs;
pub mod limits;
pub mod policies;
pub mod quiet;
pub mod rules;
pub mod schedule;
pub mod sends;
pub mod suspension;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use postrider_domain::attempt::Attempt;
use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ReplayId, SubscriptionId, TenantId,
};
use postrider_domain::ledger::Ledger;
use postrider_store::{Acceptance, Commit, DestinationChange};
use postrider_store_testing::memory::Durable;

use crate::coverage::{Cover, Coverage};
use crate::trace::{Line, Trace};
use circuit::{Context, Model, State};
use limits::Limits;
use policies::Policies;
use rules::{Clock, Rules};
use suspension::Watch;

/// A violation of the contract.
#[derive(Debug, Clone)]
pub struct Violation {
    /// When it was noticed.
    pub at: i64,
    /// What is wrong, as a sentence.
    pub what: String,
    /// The delivery that is concerned.
    pub delivery: Option<DeliveryId>,
    /// The destination that is concerned.
    pub destination: Option<DestinationId>,
}

/// The state of a delivery in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// Waiting for its first attempt.
    Queued,
    /// Waiting for a slot of its schedule.
    Waiting {
        /// The number of the slot.
        slot: u32,
        /// When it is due.
        due: i64,
        /// The times from which its slots are counted.
        clock: Clock,
    },
    /// Delivered.
    Delivered,
    /// Dead: no slot is left.
    Dead,
    /// Cancelled.
    Cancelled,
}

/// The model of a delivery.
#[derive(Debug)]
pub struct Owed {
    /// The tenant.
    pub tenant: TenantId,
    /// The event.
    pub event: EventId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The destination.
    pub destination: DestinationId,
    /// When it was accepted.
    pub created_at: i64,
    /// When its schedule began: its acceptance, or its replay.
    pub begun: i64,
    /// Its state.
    pub stand: Stand,
    /// How often it was attempted.
    pub attempts: u32,
    /// When the last settled attempt began.
    pub last_attempt: Option<i64>,
    /// When it last changed.
    pub since: i64,
    /// Attempts in flight in the current process.
    pub in_flight: u32,
    /// When the last attempt ended.
    pub landed_at: i64,
    /// When the last attempt began, and since when its destination had been busy then.
    pub sent: (i64, Option<i64>),
    /// How often a receiver accepted it since its schedule began.
    pub taken: u32,
    /// Of `taken`: how many the server cannot know because it crashed. They may be repeated.
    pub unheard_crash: u32,
    /// Of `taken`: how many the server cannot know because the response was lost.
    pub unheard_answer: u32,
    /// Whether somebody wants to cancel it.
    pub cancel_asked: bool,
    /// Whether somebody wants to replay it.
    pub replay_asked: bool,
    /// Requested attempts ("retry now") that were not made yet.
    pub retries_asked: u32,
    /// It died of an outage that has ended, and is to be replayed.
    pub replay_due: bool,
    /// Where within the jitter its slots fell.
    spread: BTreeMap<u32, i64>,
    raw: Delivery,
}

/// The model of a destination.
#[derive(Debug)]
pub struct Dest {
    /// When the store says that it was created; `None` before anybody looked.
    created_at: Option<i64>,
    /// Its circuit.
    pub model: Model,
    /// The delivery that somebody asked for last while it was disabled: it must be the next probe.
    pub probe_asked: Option<DeliveryId>,
    /// Its states with their start times, newest last.
    history: Vec<(i64, State)>,
    /// When it was last disabled or frozen.
    pub not_closed_at: i64,
    /// Whether somebody wants to enable it, and no transition has shown it yet.
    pub enable_asked: bool,
    /// Whether somebody wants to freeze it, and no transition has shown it yet.
    pub freeze_asked: bool,
    /// Somebody asked for a drain, and it has not begun yet.
    pub drain_asked: bool,
    /// When it was enabled again, each time.
    recoveries: BTreeSet<i64>,
    /// From when to when it drained last; to the end of time while it does.
    drained: (i64, i64),
    /// Since when it has not been enabled.
    down_since: Option<i64>,
    /// Attempts in flight.
    pub in_flight: u32,
    /// Since when at least one attempt has been in flight.
    pub busy_from: i64,
    /// When the last attempt in flight ended.
    pub idle_from: i64,
    /// Whether it has a rate limit, so that its deliveries may be late.
    pub paced: bool,
    /// The most requests per second, and when the last ones were sent.
    pub rate: Option<usize>,
    pub(super) recent: VecDeque<i64>,
    last: Option<(postrider_domain::circuit::Circuit, usize)>,
}

/// The model of the contract, with everything that it has observed.
#[derive(Debug)]
pub struct Oracle {
    /// The thresholds and times of the contract.
    pub rules: Rules,
    /// Every delivery that was accepted.
    pub owed: BTreeMap<DeliveryId, Owed>,
    /// Deliveries that have not ended, by destination.
    open: BTreeMap<DestinationId, BTreeSet<DeliveryId>>,
    ledgers: BTreeMap<TenantId, Ledger>,
    /// Every destination.
    pub destinations: BTreeMap<DestinationId, Dest>,
    /// The bytes of every accepted event, and its number of deliveries.
    pub events: BTreeMap<(TenantId, EventId), (Bytes, usize)>,
    /// Subscriptions that somebody wants to delete.
    pub deleted: BTreeSet<SubscriptionId>,
    /// What subscriptions want otherwise.
    policies: Policies,
    /// Whether somebody wants a bulk replay.
    pub bulk_replay: bool,
    jobs: BTreeMap<ReplayId, jobs::Sent>,
    /// The jobs that people started.
    asked_jobs: BTreeSet<ReplayId>,
    /// Which job sent a delivery last, while it has not ended.
    sent_by: BTreeMap<DeliveryId, ReplayId>,
    /// The commit that is looked at is a job's.
    is_job: bool,
    /// When the process that runs now began; `None` while none does.
    pub up_at: i64,
    /// Until this time the store may have faults, and everything may be late.
    pub disturbed_until: i64,
    /// How late deliveries may be because the store is slow.
    pub slack: i64,
    /// The violations so far.
    pub violations: Vec<Violation>,
    /// The trace.
    pub trace: Trace,
    /// The coverage.
    pub coverage: Coverage,
    /// Attempts that began.
    pub attempts: u64,
    /// Attempts in flight.
    pub in_flight: u32,
    /// How many attempts may be in flight.
    pub limits: Limits,
    /// Attempts that were in flight when the process ended.
    lost: u32,
    /// Tells whether transitions may be suspended.
    watch: Watch,
    now: i64,
}

impl Oracle {
    /// A model of an empty world.
    pub fn new(rules: Rules, now: i64) -> Self {
        Oracle {
            rules,
            owed: BTreeMap::new(),
            open: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            destinations: BTreeMap::new(),
            events: BTreeMap::new(),
            deleted: BTreeSet::new(),
            policies: Policies::default(),
            bulk_replay: false,
            jobs: BTreeMap::new(),
            asked_jobs: BTreeSet::new(),
            sent_by: BTreeMap::new(),
            is_job: false,
            up_at: now,
            disturbed_until: 0,
            slack: 0,
            violations: Vec::new(),
            trace: Trace::default(),
            coverage: Coverage::default(),
            attempts: 0,
            in_flight: 0,
            limits: Limits::default(),
            lost: 0,
            watch: Watch::default(),
            now,
        }
    }

    /// Adds a line to the trace.
    pub fn note(
        &mut self,
        what: &'static str,
        delivery: Option<DeliveryId>,
        destination: Option<DestinationId>,
        n: i64,
    ) {
        self.trace.push(Line { at: self.now, what, delivery, destination, n });
    }

    /// Sets the current time.
    pub fn tick(&mut self, now: i64) {
        self.now = self.now.max(now);
    }

    /// Records a violation.
    pub fn violate(
        &mut self,
        what: String,
        delivery: Option<DeliveryId>,
        destination: Option<DestinationId>,
    ) {
        let destination = destination.or_else(|| Some(self.owed.get(&delivery?)?.destination));
        self.note(crate::trace::VIOLATION, delivery, destination, 0);
        self.violations.push(Violation { at: self.now, what, delivery, destination });
    }

    /// Whether there are so many destinations that transitions may be suspended.
    pub fn may_suspend(&self) -> bool {
        self.destinations.len() >= 20
    }

    /// Whether faults of the store may still make deliveries late.
    pub fn is_disturbed(&self) -> bool {
        self.now <= self.disturbed_until
    }

    /// Applies a durable write.
    pub fn durable(&mut self, what: Durable<'_>, now: i64) {
        self.tick(now);
        match what {
            Durable::Accepted(acceptance) => self.accepted(acceptance),
            Durable::Settled(commit) => self.settled(commit),
        }
    }

    fn accepted(&mut self, acceptance: &Acceptance) {
        let event = &acceptance.event;
        let key = (event.tenant.clone(), event.id.clone());
        let bytes = event.data.as_bytes().clone();
        if self.events.insert(key, (bytes, acceptance.deliveries.len())).is_some() {
            self.violate(format!("event {} was accepted twice", event.id), None, None);
        }
        for delivery in &acceptance.deliveries {
            let created_at = delivery.created_at.as_unix_ms();
            self.note("accepted", Some(delivery.id), Some(delivery.destination), created_at);
            let owed = Owed {
                tenant: delivery.tenant.clone(),
                event: delivery.event.clone(),
                subscription: delivery.subscription,
                destination: delivery.destination,
                created_at,
                begun: created_at,
                stand: Stand::Queued,
                attempts: 0,
                last_attempt: None,
                since: created_at,
                in_flight: 0,
                landed_at: 0,
                sent: (0, None),
                taken: 0,
                unheard_crash: 0,
                unheard_answer: 0,
                cancel_asked: false,
                replay_asked: false,
                retries_asked: 0,
                replay_due: false,
                spread: BTreeMap::new(),
                raw: delivery.clone(),
            };
            self.ledgers.entry(delivery.tenant.clone()).or_default().accept(1);
            self.open.entry(delivery.destination).or_default().insert(delivery.id);
            if self.owed.insert(delivery.id, owed).is_some() {
                self.violate(
                    "the same delivery was accepted twice".into(),
                    Some(delivery.id),
                    None,
                );
            }
        }
    }

    fn settled(&mut self, commit: &Commit) {
        if self.is_repeat(commit) {
            return;
        }
        let mut by_destination: BTreeMap<DestinationId, Vec<(&Attempt, DeliveryId)>> =
            BTreeMap::new();
        for change in &commit.deliveries {
            if let Some(attempt) = &change.attempt {
                let to = change.delivery.destination;
                by_destination.entry(to).or_default().push((attempt, change.delivery.id));
                self.watch.settled(to, attempt);
            }
        }
        for change in &commit.destinations {
            let attempts = by_destination.remove(&change.id).unwrap_or_default();
            self.circuit_settled(change, &attempts);
        }
        for (destination, attempts) in by_destination {
            let delivery = attempts.first().map(|(_, id)| *id);
            let what = "an attempt was settled without its destination".to_owned();
            self.violate(what, delivery, Some(destination));
        }
        if let Some(job) = &commit.replay {
            self.job_advanced(job, commit);
        }
        self.is_job = commit.replay.is_some();
        for change in &commit.deliveries {
            self.delivery_settled(change);
            self.outcome_settled(change, commit.replay.as_ref().map(|job| job.id));
        }
    }

    /// Whether a commit with an unknown outcome is repeated.
    fn is_repeat(&self, commit: &Commit) -> bool {
        let same_delivery = |change: &postrider_store::DeliveryChange| {
            self.owed.get(&change.delivery.id).is_some_and(|owed| owed.raw == change.delivery)
        };
        let same_destination = |change: &DestinationChange| {
            let last = self.destinations.get(&change.id).and_then(|dest| dest.last.as_ref());
            last.is_some_and(|(circuit, transitions)| {
                *circuit == change.circuit && *transitions == change.transitions.len()
            })
        };
        commit.deliveries.iter().all(same_delivery)
            && commit.destinations.iter().all(same_destination)
    }

    fn circuit_settled(&mut self, change: &DestinationChange, attempts: &[(&Attempt, DeliveryId)]) {
        for transition in &change.transitions {
            self.note(
                circuit::to_text(transition.to),
                None,
                Some(change.id),
                transition.at.as_unix_ms(),
            );
        }
        let (rules, up_at) = (self.rules, self.up_at);
        let may_drain = self.may_drain(change.id);
        self.probes_seen(change);
        let cancelled = self.probe_was_cancelled(change.id);
        // A commit may be late: its transitions happened no earlier than the end of its first
        // attempt.
        let first = attempts.first().map_or(self.now, |(attempt, _)| circuit::ended(attempt));
        let may_suspend = self.may_suspend() && self.watch.is_possible(first.min(self.now));
        let Some(dest) = self.destinations.get_mut(&change.id) else {
            return self.violate("an unknown destination".into(), None, Some(change.id));
        };
        let context = Context {
            up_at,
            enable_asked: dest.enable_asked,
            freeze_asked: dest.freeze_asked,
            cancelled,
            may_suspend,
        };
        let result = dest.model.after(attempts, change, &rules, &context);
        match result {
            Ok(model) => {
                for cover in &model.met {
                    self.coverage.hit(*cover);
                }
                if model
                    .met
                    .iter()
                    .any(|met| matches!(met, Cover::EnabledByHand | Cover::CountersResetByHand))
                {
                    dest.enable_asked = false;
                }
                dest.freeze_asked &= !model.met.contains(&Cover::FrozenByHand);
                dest.take(model, change);
                let drains_unasked = dest.drains(change.circuit.draining, may_drain, self.now);
                let ended = dest.outage_ended(&change.transitions);
                if drains_unasked && self.now > self.disturbed_until {
                    self.violate("drains, and nobody asked".into(), None, Some(change.id));
                }
                if let Some(began_at) = ended {
                    self.outage_ended(change.id, began_at);
                }
            }
            Err(what) => self.violate(what, None, Some(change.id)),
        }
    }

    fn probe_was_cancelled(&self, destination: DestinationId) -> bool {
        match self.destinations.get(&destination).map(|dest| dest.model.state) {
            Some(State::HalfOpen { probe, .. }) => self
                .owed
                .get(&probe)
                .is_some_and(|owed| owed.cancel_asked || self.deleted.contains(&owed.subscription)),
            Some(State::Closed | State::Open { .. } | State::Frozen) | None => false,
        }
    }

    /// The number of deliveries in each state, from the running counts.
    pub fn ledger(&self, tenant: Option<&TenantId>) -> Ledger {
        match tenant {
            Some(tenant) => self.ledgers.get(tenant).copied().unwrap_or_default(),
            None => self.ledgers.values().fold(Ledger::default(), |mut sum, one| {
                sum.accepted += one.accepted;
                sum.queued += one.queued;
                sum.waiting += one.waiting;
                sum.delivered += one.delivered;
                sum.dead += one.dead;
                sum.cancelled += one.cancelled;
                sum
            }),
        }
    }

    /// The number of deliveries in each state, counted one by one.
    pub fn recount(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for owed in self.owed.values() {
            ledger.accepted += 1;
            *account(&mut ledger, owed.stand) += 1;
        }
        ledger
    }

    /// Changes the state of a delivery.
    fn stands(&mut self, id: DeliveryId, stand: Stand) {
        let Some(owed) = self.owed.get_mut(&id) else { return };
        if let Some(ledger) = self.ledgers.get_mut(&owed.tenant) {
            *account(ledger, owed.stand) -= 1;
            *account(ledger, stand) += 1;
        }
        owed.stand = stand;
        let open = self.open.entry(owed.destination).or_default();
        match stand {
            Stand::Queued | Stand::Waiting { .. } => open.insert(id),
            Stand::Delivered | Stand::Dead | Stand::Cancelled => open.remove(&id),
        };
    }

    /// The deliveries of a destination that have not ended.
    fn open_at(&self, destination: DestinationId) -> impl Iterator<Item = (DeliveryId, &Owed)> {
        let ids = self.open.get(&destination).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.owed.get(id)?)))
    }
}

fn account(ledger: &mut Ledger, stand: Stand) -> &mut u64 {
    match stand {
        Stand::Queued => &mut ledger.queued,
        Stand::Waiting { .. } => &mut ledger.waiting,
        Stand::Delivered => &mut ledger.delivered,
        Stand::Dead => &mut ledger.dead,
        Stand::Cancelled => &mut ledger.cancelled,
    }
}

impl Dest {
    /// A destination that was created.
    pub fn new(created_at: i64) -> Self {
        Dest {
            created_at: None,
            model: Model::new(created_at),
            probe_asked: None,
            history: vec![(i64::MIN, State::Closed)],
            not_closed_at: i64::MIN,
            enable_asked: false,
            freeze_asked: false,
            drain_asked: false,
            recoveries: BTreeSet::new(),
            drained: (i64::MAX, i64::MIN),
            down_since: None,
            in_flight: 0,
            busy_from: 0,
            idle_from: 0,
            paced: false,
            rate: None,
            recent: VecDeque::new(),
            last: None,
        }
    }

    /// Takes over when it was created. One that was unused for longer than the retention was removed,
    /// and begins anew when somebody subscribes it again.
    pub fn created(&mut self, at: i64) {
        let known = self.created_at.replace(at);
        if self.last.is_none() {
            self.model.last_success = at;
        } else if known.is_some_and(|known| known != at) {
            *self =
                Dest { created_at: Some(at), paced: self.paced, rate: self.rate, ..Dest::new(at) };
        }
    }

    fn take(&mut self, model: Model, change: &DestinationChange) {
        use postrider_domain::circuit::{Evidence, StateName};
        for transition in &change.transitions {
            let at = transition.at.as_unix_ms();
            let state = match transition.to {
                StateName::Closed => State::Closed,
                StateName::Open => State::Open { probe_at: 0 },
                StateName::HalfOpen => {
                    let Evidence::ProbeSent { delivery } = &transition.evidence else { continue };
                    State::HalfOpen { probe: *delivery, probed_at: at }
                }
                StateName::Frozen => State::Frozen,
            };
            if transition.from != StateName::Closed || transition.to != StateName::Closed {
                self.not_closed_at = at;
            }
            self.history.push((at, state));
            self.probe_asked = self.probe_asked.filter(|asked| state.keeps_wish(*asked));
        }
        if self.history.len() > 400 {
            self.history.drain(..200);
        }
        self.model = model;
        self.last = Some((change.circuit.clone(), change.transitions.len()));
    }

    /// Whether it was enabled at some time from `from` to `to`, both included.
    pub fn was_closed(&self, from: i64, to: i64) -> bool {
        let last_before = self.history.iter().rev().find(|(since, _)| *since < from);
        let in_it = self.history.iter().rev().take_while(|(since, _)| *since >= from);
        in_it.filter(|(since, _)| *since <= to).chain(last_before).any(|(_, s)| *s == State::Closed)
    }

    /// Whether it was disabled or frozen at some time since then.
    pub fn was_not_closed_since(&self, at: i64) -> bool {
        self.model.state != State::Closed || self.not_closed_at >= at
    }
}
