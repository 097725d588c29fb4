//! Which policy holds: for a delivery that of its subscription, for a destination what its subscriptions
//! want together. The rules are in `postrider_domain::policy`.

use std::sync::Arc;

use postrider_domain::attempt::Verdict;
use postrider_domain::circuit::StateName as CircuitName;
use postrider_domain::delivery::Delivery;
use postrider_domain::policy::{DestinationPolicy, Policy};

use super::destinations::DestIx;
use super::state::Core;

impl Core {
    /// The policy of a delivery's subscription. Deliveries of a deleted subscription are about to be
    /// cancelled: until then the server's policy holds for them.
    pub(super) fn policy_of(&self, delivery: &Delivery) -> Arc<Policy> {
        let prepared = self.directory.get(delivery.subscription);
        match prepared.map(|prepared| prepared.subscription.policy) {
            Some(own) if !own.is_empty() => Arc::new(self.policy.for_subscription(&own)),
            Some(_) | None => Arc::clone(&self.policy),
        }
    }

    /// What the subscriptions of a destination want together.
    pub(super) fn destination_policy(&self, ix: DestIx) -> DestinationPolicy {
        let record = &self.table.dests[ix.get()].record;
        self.directory.destination_policy(&record.tenant, record.id, &self.policy)
    }

    /// The policy that an outcome is settled by: a failure needs the delivery's schedule, and a success
    /// that may end an outage what becomes of the dead. Nothing is looked up for other successes.
    pub(super) fn settling_policy(
        &self,
        delivery: &Delivery,
        ix: DestIx,
        verdict: Verdict,
    ) -> Arc<Policy> {
        let is_closed =
            self.table.dests[ix.get()].record.circuit.state_name() == CircuitName::Closed;
        match verdict {
            Verdict::Success if is_closed => Arc::clone(&self.policy),
            Verdict::Success => {
                let mut policy = Policy::clone(&self.policy);
                policy.recovery.dead = self.destination_policy(ix).dead_recovery();
                Arc::new(policy)
            }
            Verdict::Failure | Verdict::Gone | Verdict::OwnFault => self.policy_of(delivery),
        }
    }
}
