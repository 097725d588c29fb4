//! The policies of subscriptions, modelled from docs/decisions/0017: what each wants, cut by the
//! operator's limits, and what a destination has of it.
//!
//! While a change is under way both the old and the new policy are possible.

use std::collections::{BTreeMap, BTreeSet};

use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId};
use postrider_domain::policy::{DeadRecovery, RecoveryMode};
use postrider_domain::subscription::Subscription;

use super::Oracle;
use super::rules::Schedule;

/// The defaults of the operator's limits, typed from docs/limits.md.
const UNIT_MS_MIN: i64 = 1_000;
const RETRIES_MAX: u32 = 20;
/// The longest time from the first attempt to the last retry.
pub const SPAN_MS_MAX: i64 = 7 * 24 * 3_600_000;
const DEADLINE_MS: i64 = 5_000;
const DEADLINE_MS_RANGE: (i64, i64) = (100, 20_000);
const DEAD_AGE_MS_MAX: i64 = 30 * 24 * 3_600_000;
/// What was accepted longer ago than this is not replayed by itself.
pub const DEAD_AGE_MS: i64 = 7 * 24 * 3_600_000;

/// What a subscription wants, after the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// Where its deliveries go.
    pub destination: DestinationId,
    /// Its schedule.
    pub schedule: Schedule,
    /// The deadline of its attempts.
    pub deadline_ms: i64,
    /// Whether it wants a drain; `None` where it wants nothing.
    pub drain: Option<bool>,
    /// Whether its dead are replayed; `None` for the server's rule.
    pub replay: Option<bool>,
    /// What was accepted longer ago is not replayed.
    pub dead_age_ms: i64,
}

/// The policies of all subscriptions: those that may hold now, the newest last.
#[derive(Debug, Default)]
pub struct Policies {
    known: BTreeMap<SubscriptionId, Vec<Own>>,
    /// Subscriptions whose policy was changed.
    changed: BTreeSet<SubscriptionId>,
    /// Subscriptions whose dead were to be replayed at some time. A job that has begun goes on.
    ever_replayed: BTreeSet<SubscriptionId>,
}

impl Own {
    /// Nothing of its own, at no destination.
    const PLAIN: Own = Own {
        destination: DestinationId::from_bytes([0; 16]),
        schedule: Schedule::CONTRACT,
        deadline_ms: DEADLINE_MS,
        drain: None,
        replay: None,
        dead_age_ms: DEAD_AGE_MS,
    };

    /// What a subscription wants.
    pub fn of(subscription: &Subscription) -> Self {
        let wish = subscription.policy;
        let ms = |duration: std::time::Duration| i64::try_from(duration.as_millis());
        let unit_ms = wish.retry_unit.and_then(|unit| ms(unit).ok());
        let mut schedule = Schedule {
            unit_ms: unit_ms.map(|unit| unit.clamp(UNIT_MS_MIN, SPAN_MS_MAX)),
            retries: wish.retry_max.map_or(super::rules::RETRIES, |max| max.min(RETRIES_MAX)),
        };
        if schedule.unit_ms.is_none() && schedule.retries > super::rules::RETRIES {
            // The contract's table ends with its eleventh retry; beyond it the unit is as it says.
            schedule.unit_ms = Some(84_800);
        }
        while schedule.last(0) > SPAN_MS_MAX {
            schedule.retries -= 1;
        }
        let deadline = wish.attempt_deadline.and_then(|deadline| ms(deadline).ok());
        let (least, most) = DEADLINE_MS_RANGE;
        Own {
            destination: subscription.destination,
            schedule,
            deadline_ms: deadline.map_or(DEADLINE_MS, |own| own.clamp(least, most)),
            drain: wish.recovery_mode.map(|mode| mode == RecoveryMode::Drain),
            replay: wish.dead.map(|dead| dead == DeadRecovery::Replay),
            dead_age_ms: wish
                .dead_max_age
                .and_then(|age| ms(age).ok())
                .map_or(DEAD_AGE_MS, |age| age.min(DEAD_AGE_MS_MAX)),
        }
    }
}

impl Oracle {
    /// A subscription is being created or changed: both what it was and what it becomes may hold.
    pub fn policy_begins(&mut self, subscription: &Subscription) {
        let own = Own::of(subscription);
        let known = self.policies.known.entry(subscription.id).or_default();
        let Some(before) = known.last().copied().filter(|before| *before != own) else {
            if known.is_empty() {
                known.push(own);
            }
            if own.replay == Some(true) {
                self.policies.ever_replayed.insert(subscription.id);
            }
            return;
        };
        known.push(own);
        if (Own { destination: own.destination, ..before }) == own {
            return;
        }
        self.policies.changed.insert(subscription.id);
        if own.replay == Some(true) {
            self.policies.ever_replayed.insert(subscription.id);
        }
        // A slot of the new schedule is spread anew, and a replay may not be wanted any more.
        for owed in self.owed.values_mut().filter(|owed| owed.subscription == subscription.id) {
            owed.spread.clear();
            owed.replay_due = false;
        }
    }

    /// A subscription is as it is stored, and nothing that was decided before is under way.
    pub fn policy_is(&mut self, subscription: &Subscription) {
        self.policy_begins(subscription);
        self.policies.known.insert(subscription.id, vec![Own::of(subscription)]);
    }

    /// These are all subscriptions that are stored. One that was refused, as a twin, has no voice.
    pub fn policies_are<'a>(&mut self, stored: impl Iterator<Item = &'a Subscription>) {
        let stored: Vec<&Subscription> = stored.collect();
        let deleted = &self.deleted;
        let is_known =
            |id: &SubscriptionId| deleted.contains(id) || stored.iter().any(|one| one.id == *id);
        self.policies.known.retain(|id, _| is_known(id));
        for subscription in stored {
            self.policy_is(subscription);
        }
    }

    /// Whether a subscription that has policies of its own is being changed.
    pub fn is_policy_changing(&self, id: SubscriptionId) -> bool {
        let has_own = |own: &Own| {
            let plain = Own { destination: own.destination, ..Own::PLAIN };
            *own != plain
        };
        let is_any = self.policies.known.values().flatten().any(has_own);
        is_any && self.policies.known.get(&id).is_some_and(|owns| owns.len() > 1)
    }

    /// The policies that may hold for a delivery. Those of a deleted subscription follow the server's
    /// until they are cancelled.
    fn owns(&self, id: DeliveryId) -> Vec<Own> {
        let Some(owed) = self.owed.get(&id) else { return Vec::new() };
        let mut owns = self.policies.known.get(&owed.subscription).cloned().unwrap_or_default();
        if owns.is_empty() || self.deleted.contains(&owed.subscription) {
            owns.insert(0, Own { destination: owed.destination, ..Own::PLAIN });
        }
        owns
    }

    /// The schedules that a delivery may follow.
    pub(super) fn schedules(&self, id: DeliveryId) -> Vec<Schedule> {
        let mut schedules: Vec<Schedule> =
            self.owns(id).into_iter().map(|own| own.schedule).collect();
        schedules.dedup();
        schedules
    }

    /// The schedule that a delivery follows.
    pub(super) fn schedule(&self, id: DeliveryId) -> Schedule {
        self.schedules(id).last().copied().unwrap_or(Schedule::CONTRACT)
    }

    /// Whether an attempt of a delivery may have this deadline.
    pub(super) fn is_deadline(&self, id: DeliveryId, deadline_ms: i64) -> bool {
        self.owns(id).iter().any(|own| own.deadline_ms == deadline_ms)
    }

    /// Whether what waits at a destination may be drained without anybody asking: `slots` goes before
    /// `drain`, and either before the server's rule.
    pub(super) fn may_drain(&self, destination: DestinationId) -> bool {
        let of_it = || {
            let all = self.policies.known.iter();
            all.filter(|(id, _)| !self.deleted.contains(*id)).map(|(_, owns)| owns)
        };
        let is_changing = of_it()
            .any(|owns| owns.len() > 1 && owns.iter().any(|own| own.destination == destination));
        let wishes = || {
            let here = of_it().flatten().filter(|own| own.destination == destination);
            here.filter_map(|own| own.drain)
        };
        is_changing
            || !wishes().any(|drain| !drain) && (self.rules.drain || wishes().any(|drain| drain))
    }

    /// Whether a delivery that died may be replayed without anybody asking. One whose subscription has
    /// left the URL goes with the others there.
    pub(super) fn may_replay(&self, id: DeliveryId) -> bool {
        let Some(owed) = self.owed.get(&id) else { return false };
        let is_ever = self.policies.ever_replayed.contains(&owed.subscription);
        let may = |own: &Own| {
            own.replay.unwrap_or(self.rules.replay_dead) || own.destination != owed.destination
        };
        is_ever || self.owns(id).iter().any(may)
    }

    /// Whether a delivery is older than what is replayed by a job of this time. Not known of a subscription
    /// whose policy was changed: the job may be from before.
    pub(super) fn is_too_old(&self, id: DeliveryId, job_at: i64) -> bool {
        let Some(owed) = self.owed.get(&id) else { return false };
        !self.policies.changed.contains(&owed.subscription)
            && self.replay_age(id).is_some_and(|age| job_at - owed.created_at > age)
    }

    /// How old a delivery may be that is replayed without anybody asking, where it is certain that it is
    /// to be replayed.
    pub(super) fn replay_age(&self, id: DeliveryId) -> Option<i64> {
        let owed = self.owed.get(&id)?;
        let owns = self.owns(id);
        let [own] = owns.as_slice() else { return None };
        let is_wanted = own.replay.unwrap_or(self.rules.replay_dead);
        (is_wanted && own.destination == owed.destination).then_some(own.dead_age_ms)
    }
}
