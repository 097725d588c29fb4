//! Whether transitions are suspended by the mass-failure guard, and the freezes that were put off
//! meanwhile. Data only; [`guard`](super::guard) changes it.

use std::collections::BTreeSet;

use postrider_domain::circuit::Suspension;
use postrider_domain::ids::DestinationId;
use postrider_domain::mass_failure::{MassFailureGuard, SuspensionChange};
use postrider_domain::policy::MassFailurePolicy;
use postrider_domain::time::Timestamp;

use super::destinations::DestIx;

/// The mass-failure guard.
#[derive(Debug)]
pub(super) struct Suspensions {
    guard: MassFailureGuard,
    /// Destinations whose freezing was suspended, to be asked again when the suspension ends.
    freezes_put_off: BTreeSet<DestIx>,
}

impl Suspensions {
    pub(super) fn new(policy: &MassFailurePolicy) -> Self {
        let guard = MassFailureGuard::new(policy.clone());
        Suspensions { guard, freezes_put_off: BTreeSet::new() }
    }

    /// Starts the guard anew with another policy. Freezes stay put off until a suspension ends.
    pub(super) fn set_policy(&mut self, policy: &MassFailurePolicy) {
        self.guard = MassFailureGuard::new(policy.clone());
    }

    /// Whether transitions are suspended now.
    pub(super) fn now(&self) -> Suspension {
        self.guard.suspension()
    }

    pub(super) fn since(&self) -> Option<Timestamp> {
        self.guard.suspended_since()
    }

    /// Records the outcome of an attempt.
    pub(super) fn record(
        &mut self,
        destination: DestinationId,
        failed: bool,
        now: Timestamp,
    ) -> Option<SuspensionChange> {
        self.guard.record(destination, failed, now)
    }

    pub(super) fn tick(&mut self, now: Timestamp) -> Option<SuspensionChange> {
        self.guard.tick(now)
    }

    pub(super) fn put_off_freeze(&mut self, ix: DestIx) {
        self.freezes_put_off.insert(ix);
    }

    pub(super) fn has_put_off(&self, ix: DestIx) -> bool {
        self.freezes_put_off.contains(&ix)
    }

    /// The destinations whose freezing was put off, when a suspension has ended.
    pub(super) fn take_put_off(&mut self) -> BTreeSet<DestIx> {
        std::mem::take(&mut self.freezes_put_off)
    }
}
