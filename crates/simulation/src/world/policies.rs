//! Subscriptions get policies of their own, and change them while deliveries wait.

use std::time::Duration;

use postrider_domain::policy::{DeadRecovery, RecoveryMode, SubscriptionPolicy};
use postrider_domain::subscription::Subscription;

use super::{Crashed, Pace, World};
use crate::coverage::Cover;
use crate::random::Random;

const DAY_MS: u64 = 24 * 3_600_000;

/// A policy at random, partly outside of the operator's limits.
pub fn draw(chance: &mut Random) -> SubscriptionPolicy {
    let one_of = |chance: &mut Random, all: &[u64]| {
        let ms = all[chance.place(all.len()).unwrap_or(0)];
        Some(Duration::from_millis(ms + chance.below(100)))
    };
    let mut policy = SubscriptionPolicy::default();
    if chance.chance(600) {
        policy.retry_unit = one_of(chance, &[400, 1_000, 10_000, 60_000, 300_000, 3_600_000]);
    }
    if chance.chance(600) {
        policy.retry_max = u32::try_from(chance.below(24)).ok();
    }
    if chance.chance(400) {
        policy.attempt_deadline = one_of(chance, &[10, 300, 2_000, 12_000, 60_000]);
    }
    if chance.chance(300) {
        let modes = [RecoveryMode::Slots, RecoveryMode::Drain];
        policy.recovery_mode = Some(modes[chance.place(2).unwrap_or(0)]);
    }
    if chance.chance(400) {
        let all = [DeadRecovery::Keep, DeadRecovery::Replay];
        policy.dead = Some(all[chance.place(2).unwrap_or(0)]);
    }
    if chance.chance(200) {
        policy.dead_max_age = one_of(chance, &[DAY_MS / 4, 5 * DAY_MS, 20 * DAY_MS, 40 * DAY_MS]);
    }
    policy
}

impl World {
    /// Gives a subscription another policy.
    pub fn change_policy(&mut self, chance: &mut Random) -> Result<(), Crashed> {
        // What a slow or disturbed store has not committed yet was decided with the old policy.
        if self.nature.pace == Pace::Milliseconds || self.oracle().is_disturbed() {
            return Ok(());
        }
        let Some(place) = chance.place(self.subscriptions.len()) else { return Ok(()) };
        let mut record = self.subscriptions[place].clone();
        record.subscription.policy = draw(chance);
        self.set_policy(record.subscription.id, record.subscription.policy)
    }

    /// Gives a subscription this policy.
    pub fn set_policy(
        &mut self,
        id: postrider_domain::ids::SubscriptionId,
        policy: SubscriptionPolicy,
    ) -> Result<(), Crashed> {
        self.pass(1)?;
        let known = self.subscriptions.iter().find(|one| one.subscription.id == id);
        let Some(mut record) = known.cloned() else { return Ok(()) };
        record.subscription.policy = policy;
        self.oracle().coverage.hit(Cover::OwnPolicyChanged);
        self.subscribe(record)
    }

    /// A changed subscription is stored. What was decided before is durable a moment later; then only the
    /// new policy holds.
    pub(super) fn settle_policy(&mut self, subscription: &Subscription) -> Result<(), Crashed> {
        if self.oracle().is_policy_changing(subscription.id) {
            let is_slow = self.nature.pace == Pace::Milliseconds;
            self.pass(if is_slow { 1_000 } else { 1 })?;
        }
        self.oracle().policy_is(subscription);
        Ok(())
    }
}
