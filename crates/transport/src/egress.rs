//! What may be contacted, as it is now: shared by everybody who asks, and changed while requests run.
//!
//! The addresses of this machine come and go; a request that begins after [`Egress::own`] was called is
//! judged by the new ones, over a kept connection too.

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use postrider_domain::egress::EgressPolicy;

/// The policy in force. A clone is the same.
#[derive(Debug, Clone, Default)]
pub struct Egress(Arc<RwLock<Arc<EgressPolicy>>>);

impl Egress {
    /// The policy as it is now.
    pub fn policy(&self) -> Arc<EgressPolicy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// These are the addresses of this server from now on; whether they are others than before.
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
