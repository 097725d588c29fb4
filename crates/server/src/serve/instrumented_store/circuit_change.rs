//! A change of a destination's circuit: counted and logged after it is durable.

use postrider_domain::circuit::Transition;
use postrider_domain::destination::DestinationState;
use postrider_domain::ids::{DestinationId, TenantId};

use super::super::alerts::AlertFeed;
use super::super::metrics::{Metrics, Standing};

/// The parts of a destination's change that are counted and logged.
pub(super) struct CircuitChange {
    pub(super) destination: DestinationId,
    pub(super) tenant: TenantId,
    pub(super) state: DestinationState,
    /// Consecutive failures.
    pub(super) failures: u64,
    pub(super) transitions: Vec<Transition>,
}

impl CircuitChange {
    pub(super) fn report(&self, metrics: &Metrics, alerts: Option<&AlertFeed>) {
        metrics.destination_is(Standing {
            destination: self.destination,
            tenant: self.tenant.clone(),
            state: self.state,
            failures: self.failures,
        });
        for transition in &self.transitions {
            let (from, to): (DestinationState, DestinationState) =
                (transition.from.into(), transition.to.into());
            // A probe changes the circuit but not the shown state; it is counted among the
            // attempts.
            if from != to {
                metrics.transition(from, to);
                if let Some(alerts) = alerts {
                    alerts.transition(&self.tenant, to);
                }
            }
            tracing::info!(
                destination = %self.destination,
                tenant = %self.tenant,
                from = from.as_str(),
                to = to.as_str(),
                why = transition.evidence.as_str(),
                "circuit"
            );
        }
    }
}
