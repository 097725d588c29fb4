//! What happens, gathered for the next look: transitions, dead deliveries, steps of the clock, a full
//! store.
//!
//! Whoever reports something only adds to a few counters and goes on. **Memory is bounded**: counts
//! for the tenants that targets name, and a few examples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::alerts::{AlertKind, EXAMPLES_MAX, Example, Seen, plain};
use postrider_domain::delivery::{DeadReason, Delivery};
use postrider_domain::destination::DestinationState;
use postrider_domain::ids::TenantId;
use postrider_domain::steady::Step;

/// Gathers what happens. Clones share it.
#[derive(Clone, Default)]
pub(in crate::serve) struct AlertFeed(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The tenants that some target asks for by name.
    tenants: BTreeSet<TenantId>,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    happened: BTreeMap<(AlertKind, Option<TenantId>), (u64, Vec<Example>)>,
    /// Whether transitions are suspended.
    is_suspended: bool,
    /// The place that has no room, since the store last refused something for that reason.
    full: Option<String>,
}

impl AlertFeed {
    pub(super) fn new(tenants: BTreeSet<TenantId>) -> Self {
        AlertFeed(Arc::new(Inner { tenants, ..Inner::default() }))
    }

    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.0.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, kind: AlertKind, tenant: Option<&TenantId>, example: impl Fn() -> Example) {
        let named = tenant.filter(|tenant| self.0.tenants.contains(*tenant));
        let mut gathered = self.gathered();
        for scope in std::iter::once(None).chain(named.map(Some)) {
            let (count, worst) = gathered.happened.entry((kind, scope.cloned())).or_default();
            *count = count.saturating_add(1);
            if worst.len() < EXAMPLES_MAX {
                worst.push(example());
            }
        }
    }

    /// A destination went to another state.
    pub(in crate::serve) fn transition(&self, tenant: &TenantId, to: DestinationState) {
        let kind = match to {
            DestinationState::Enabled => return,
            DestinationState::Disabled => AlertKind::DestinationDisabled,
            DestinationState::Frozen => AlertKind::DestinationFrozen,
        };
        // Examples of what lasts are looked up when a message is made.
        let example = || Example::of_server("", "");
        self.add(kind, Some(tenant), example);
    }

    /// A delivery died. Those of Postrider's own events are not told: a dead URL of the operator
    /// would cause alerts about itself.
    pub(in crate::serve) fn died(&self, delivery: &Delivery, reason: DeadReason) {
        if delivery.kind.is_reserved() {
            return;
        }
        let example = || Example {
            tenant: Some(delivery.tenant.clone()),
            id: Some(delivery.id.to_string()),
            name: plain(delivery.kind.as_str()),
            detail: match reason {
                DeadReason::Exhausted => format!("{} attempts failed", delivery.attempts),
                DeadReason::NotAdmitted => {
                    "the last slot passed while its destination was disabled or frozen".to_owned()
                }
            },
            weight: u64::from(delivery.attempts),
        };
        self.add(AlertKind::DeliveryDead, Some(&delivery.tenant), example);
    }

    /// Somebody set the clock.
    pub(in crate::serve) fn clock_stepped(&self, step: Step) {
        let detail = format!("set by {} ms at {}", step.by_ms, step.at);
        let weight = step.by_ms.unsigned_abs();
        let example = || Example { weight, ..Example::of_server("the time of day", &detail) };
        self.add(AlertKind::ClockStepped, None, example);
    }

    /// Transitions are suspended, or no longer.
    pub(in crate::serve) fn suspended(&self, is_suspended: bool) {
        self.gathered().is_suspended = is_suspended;
    }

    /// The store had no room, or has room again.
    pub(in crate::serve) fn full(&self, place: Option<&str>) {
        self.gathered().full = place.map(str::to_owned);
    }

    /// Whether transitions are suspended, and which place has no room.
    pub(super) fn standing(&self) -> (bool, Option<String>) {
        let gathered = self.gathered();
        (gathered.is_suspended, gathered.full.clone())
    }

    /// Takes the events since the last call.
    pub(super) fn drain(&self) -> Vec<Seen> {
        let happened = std::mem::take(&mut self.gathered().happened);
        let seen = |((kind, scope), (count, worst))| Seen { kind, scope, count, worst };
        happened.into_iter().map(seen).collect()
    }
}
