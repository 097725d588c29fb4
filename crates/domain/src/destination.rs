//! One URL of one tenant, with its circuit. Never shared between tenants.

use crate::circuit::{Circuit, CircuitState, Evidence, StateName};
use crate::ids::{DestinationId, TenantId};
use crate::time::Timestamp;

/// A destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Derived from the tenant and the URL.
    pub id: DestinationId,
    /// The tenant.
    pub tenant: TenantId,
    /// The URL in normal form, as it is shown and compared.
    pub url: String,
    /// When the first subscription with this URL was created.
    pub created_at: Timestamp,
    /// The circuit with its counters.
    pub circuit: Circuit,
}

/// A destination's state in the words of the contract. The API, metrics and logs use only these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DestinationState {
    /// Its circuit is closed.
    Enabled,
    /// Its circuit is open or half-open.
    Disabled,
    /// Its circuit is frozen.
    Frozen,
}

impl Destination {
    /// The destination of a first subscription with this URL.
    pub fn new(tenant: TenantId, url: String, created_at: Timestamp) -> Self {
        let id = DestinationId::of(&tenant, &url);
        Destination { id, tenant, url, created_at, circuit: Circuit::new(created_at) }
    }

    /// The state as it is shown.
    pub fn state(&self) -> DestinationState {
        self.circuit.state_name().into()
    }

    /// Why it is disabled or frozen; `None` if it is enabled.
    pub fn evidence(&self) -> Option<&Evidence> {
        match &self.circuit.state {
            CircuitState::Closed => None,
            CircuitState::Open { evidence, .. }
            | CircuitState::HalfOpen { evidence, .. }
            | CircuitState::Frozen { evidence, .. } => Some(evidence),
        }
    }
}

impl From<StateName> for DestinationState {
    fn from(circuit: StateName) -> Self {
        match circuit {
            StateName::Closed => DestinationState::Enabled,
            StateName::Open | StateName::HalfOpen => DestinationState::Disabled,
            StateName::Frozen => DestinationState::Frozen,
        }
    }
}

impl DestinationState {
    /// Every state.
    pub const ALL: [DestinationState; 3] =
        [DestinationState::Enabled, DestinationState::Disabled, DestinationState::Frozen];

    /// `enabled`, `disabled` or `frozen`.
    pub const fn as_str(self) -> &'static str {
        match self {
            DestinationState::Enabled => "enabled",
            DestinationState::Disabled => "disabled",
            DestinationState::Frozen => "frozen",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Verdict;
    use crate::circuit::Suspension;
    use crate::ids::DeliveryId;
    use crate::policy::CircuitPolicy;

    #[test]
    fn a_destination_reads_enabled_disabled_or_frozen() {
        let start = Timestamp::EPOCH;
        let probe = DeliveryId::from_bytes([1; 16]);
        let policy = CircuitPolicy { disable_consecutive: 1, ..CircuitPolicy::default() };
        let url = "https://hooks.example.com/in".to_owned();
        let mut destination = Destination::new(TenantId::default_tenant(), url.clone(), start);
        assert_eq!(destination.id, DestinationId::of(&TenantId::default_tenant(), &url));
        assert_eq!(destination.state().as_str(), "enabled");
        assert_eq!(destination.evidence(), None);

        let circuit = &mut destination.circuit;
        circuit.learn(probe, Verdict::Failure, start, Suspension::Off, &policy);
        assert_eq!(destination.state().as_str(), "disabled");
        assert_eq!(destination.evidence(), Some(&Evidence::ConsecutiveFailures));
        destination.circuit.begin_probe(probe, start.saturating_add(policy.probe_interval));
        assert_eq!(destination.state().as_str(), "disabled");
        assert_eq!(destination.evidence(), Some(&Evidence::ConsecutiveFailures));
        destination.circuit.freeze(None, start);
        assert_eq!(destination.state().as_str(), "frozen");
        assert_eq!(destination.evidence(), Some(&Evidence::ByHand { reason: None }));
    }
}
