//! Deliveries that are treated alike, and what waits.
//!
//! Without jitter a delivery's slots lie at fixed distances from its acceptance, whether it was
//! attempted in them or not. So deliveries that came one after the other and stand in the same slot
//! stay together until the circuit treats one of them differently. **A cohort is only ever moved as
//! a whole where every member would be moved in the same way.**

use std::collections::{BTreeMap, BTreeSet};

use super::Traffic;
use crate::delivery::{Delivery, DeliveryState};
use crate::event::EventType;
use crate::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use crate::mixing::STEP;
use crate::retry::Slot;
use crate::time::Timestamp;

/// Consecutive deliveries in the same slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cohort {
    /// The number of the first one.
    pub(super) first: u64,
    /// How many there are.
    pub(super) count: u64,
    /// The slot of the first one.
    pub(super) slot: Slot,
    pub(super) attempts: u32,
    pub(super) last_attempt_at: Option<Timestamp>,
}

impl Cohort {
    /// When the member with this number falls due.
    fn due_at(&self, n: u64, traffic: Traffic) -> Timestamp {
        let later = traffic.offset(n).saturating_sub(traffic.offset(self.first));
        self.slot.due_at.saturating_add(later)
    }

    /// How many of its members fall due before this time.
    fn due_before(&self, end: Timestamp, traffic: Traffic) -> u64 {
        if self.slot.due_at >= end {
            return 0;
        }
        let created = traffic.at(self.first).saturating_add(end.since(self.slot.due_at));
        traffic.before(created).saturating_sub(self.first).min(self.count)
    }

    /// The members from this number on.
    fn from(&self, n: u64, traffic: Traffic) -> Option<Cohort> {
        let count = (self.first + self.count).checked_sub(n).filter(|count| *count > 0)?;
        let later = traffic.offset(n).saturating_sub(traffic.offset(self.first));
        let mut slot = self.slot;
        for time in [&mut slot.due_at, &mut slot.clock.anchor_at, &mut slot.clock.previous_at] {
            *time = time.saturating_add(later);
        }
        Some(Cohort { first: n, count, slot, ..*self })
    }
}

/// Everything that waits, by when it falls due and by who is probed first.
#[derive(Debug)]
pub(super) struct Waiting {
    traffic: Traffic,
    by_due: BTreeMap<(Timestamp, u64), Cohort>,
    by_rank: BTreeSet<(Option<Timestamp>, u64, Timestamp)>,
    /// When each cohort falls due, by its first member: the oldest first.
    by_first: BTreeMap<u64, Timestamp>,
    count: u64,
}

impl Waiting {
    pub(super) fn new(traffic: Traffic) -> Self {
        let (by_due, by_rank, by_first) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Waiting { traffic, by_due, by_rank, by_first, count: 0 }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// How many cohorts there are.
    pub(super) fn groups(&self) -> usize {
        self.by_due.len()
    }

    pub(super) fn insert(&mut self, cohort: Cohort) {
        self.count += cohort.count;
        let Cohort { first, slot, last_attempt_at, .. } = cohort;
        self.by_rank.insert((last_attempt_at, first, slot.due_at));
        self.by_first.insert(first, slot.due_at);
        self.by_due.insert((slot.due_at, first), cohort);
    }

    fn remove(&mut self, due_at: Timestamp, first: u64) -> Option<Cohort> {
        let cohort = self.by_due.remove(&(due_at, first))?;
        self.by_rank.remove(&(cohort.last_attempt_at, first, due_at));
        self.by_first.remove(&first);
        self.count -= cohort.count;
        Some(cohort)
    }

    /// When the next one falls due.
    pub(super) fn next_due_at(&self) -> Option<Timestamp> {
        self.by_due.keys().next().map(|(due_at, _)| *due_at)
    }

    /// Takes the one that falls due next.
    pub(super) fn pop_one(&mut self) -> Option<Cohort> {
        let (due_at, first) = *self.by_due.keys().next()?;
        self.take(due_at, first, 1)
    }

    /// Takes those of one cohort that fall due before this time; at most `most` of them.
    pub(super) fn pop_due(&mut self, end: Timestamp) -> Option<Cohort> {
        let (&(due_at, first), cohort) = self.by_due.iter().next()?;
        match cohort.due_before(end, self.traffic) {
            0 => None,
            count => self.take(due_at, first, count),
        }
    }

    /// Takes the one that is probed next.
    pub(super) fn pop_probe(&mut self) -> Option<Cohort> {
        let (_, first, due_at) = *self.by_rank.iter().next()?;
        self.take(due_at, first, 1)
    }

    /// Takes the oldest, at most so many, all of one cohort.
    pub(super) fn pop_oldest(&mut self, most: u64) -> Option<Cohort> {
        let (&first, &due_at) = self.by_first.iter().next()?;
        self.take(due_at, first, most)
    }

    fn take(&mut self, due_at: Timestamp, first: u64, most: u64) -> Option<Cohort> {
        let cohort = self.remove(due_at, first)?;
        let count = cohort.count.min(most);
        if let Some(rest) = cohort.from(first + count, self.traffic) {
            self.insert(rest);
        }
        Some(Cohort { count, ..cohort })
    }

    /// When the last member of a cohort falls due.
    pub(super) fn last_due_at(&self, cohort: &Cohort) -> Timestamp {
        cohort.due_at(cohort.first + cohort.count - 1, self.traffic)
    }
}

/// What all deliveries of a forecast have in common.
#[derive(Debug)]
pub(super) struct Template {
    delivery: Delivery,
}

impl Template {
    pub(super) fn new() -> Option<Self> {
        let destination = DestinationId::from_bytes([0; 16]);
        let delivery = Delivery {
            id: delivery_id(0),
            tenant: TenantId::default_tenant(),
            event: EventId::new(super::OUTAGE_AT, [0; 10]),
            subscription: SubscriptionId::from_bytes([0; 16]),
            destination,
            kind: "forecast".parse::<EventType>().ok()?,
            created_at: super::OUTAGE_AT,
            state: DeliveryState::Queued,
            attempts: 0,
            last_attempt_at: None,
        };
        Some(Template { delivery })
    }

    /// The first member of a cohort, as the domain knows it.
    pub(super) fn waiting(&self, cohort: &Cohort, traffic: Traffic) -> Delivery {
        Delivery {
            id: delivery_id(cohort.first),
            created_at: traffic.at(cohort.first),
            state: DeliveryState::Waiting(cohort.slot),
            attempts: cohort.attempts,
            last_attempt_at: cohort.last_attempt_at,
            ..self.delivery.clone()
        }
    }

    /// A delivery that was just accepted.
    pub(super) fn queued(&self, n: u64, traffic: Traffic) -> Delivery {
        Delivery { id: delivery_id(n), created_at: traffic.at(n), ..self.delivery.clone() }
    }
}

/// Identifiers in the order of acceptance, with a tail that looks random (jitter is made of it).
pub(super) fn delivery_id(n: u64) -> DeliveryId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    let tail = n.wrapping_add(1).wrapping_mul(STEP);
    bytes[8..].copy_from_slice(&tail.to_be_bytes());
    DeliveryId::from_bytes(bytes)
}
