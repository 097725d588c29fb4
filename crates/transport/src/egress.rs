//! The egress policy in effect, shared by all users and changeable while requests run.
//!
//! The addresses of this machine may change; a request that begins after a call of [`Egress::own`]
//! is checked against the new ones, even on a kept connection.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_domain::egress::EgressPolicy;

/// The policy in effect. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Egress(Arc<RwLock<Arc<EgressPolicy>>>);

impl Egress {
    /// The current policy.
    pub fn policy(&self) -> Arc<EgressPolicy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the addresses of this server; returns whether they changed.
    pub fn own(&self, addresses: Vec<IpAddr>) -> bool {
        let before = self.policy();
        let is_change = before.own_addresses != addresses;
        if is_change {
            let policy = EgressPolicy { own_addresses: addresses, ..(*before).clone() };
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
        }
        is_change
    }
}

impl From<EgressPolicy> for Egress {
    fn from(policy: EgressPolicy) -> Self {
        Egress(Arc::new(RwLock::new(Arc::new(policy))))
    }
}
