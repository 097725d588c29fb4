//! The gate in front of every handler: limits how many requests of one tenant are executed at the same
//! time.
//!
//! A tenant whose requests are slow uses up its own permits, and its further requests wait. **No tenant
//! can take the permits of another**, and a request that waits too long is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_domain::ids::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::{Budget, Exhausted, Quota, Share};

/// How many requests may wait for each permit.
const WAITING_PER_PLACE: usize = 8;
const WHAT: &str = "requests in progress";

/// Permits for requests.
#[derive(Debug)]
pub(crate) struct Gate {
    quota: Quota,
    wait_max: Duration,
    /// Requests that are executing or waiting.
    present: Arc<Budget>,
    tenants: Mutex<HashMap<TenantId, Arc<Semaphore>>>,
    total: Arc<Semaphore>,
}

/// The permission to execute one request; released when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    _of_tenant: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _present: Share,
}

impl Gate {
    pub(crate) fn new(quota: Quota, wait_max: Duration) -> Gate {
        let present = Quota {
            per_tenant: quota.per_tenant.saturating_mul(1 + WAITING_PER_PLACE),
            in_total: quota.in_total.saturating_mul(1 + WAITING_PER_PLACE),
        };
        Gate {
            quota,
            wait_max,
            present: Budget::new(WHAT, present),
            tenants: Mutex::default(),
            total: Arc::new(Semaphore::new(quota.in_total.min(Semaphore::MAX_PERMITS))),
        }
    }

    /// Waits for a permit for a request of this tenant.
    pub(crate) async fn enter(&self, tenant: &TenantId) -> Result<Permit, Exhausted> {
        let present = self.present.take(tenant, 1)?;
        let own = self.of(tenant);
        let mut refusal = Exhausted::Tenant(WHAT);
        let entering = async {
            // The tenant's own permit first: a request that waits for the total does not hold a
            // permit of another tenant.
            let of_tenant = own.acquire_owned().await.ok()?;
            refusal = Exhausted::Total(WHAT);
            let of_all = Arc::clone(&self.total).acquire_owned().await.ok()?;
            Some(Permit { _of_tenant: of_tenant, _of_all: of_all, _present: present })
        };
        let entered = tokio::time::timeout(self.wait_max, entering).await;
        entered.ok().flatten().ok_or(refusal)
    }

    /// The semaphore of a tenant. Semaphores of tenants without requests are removed.
    fn of(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = tenants.get(tenant) {
            return Arc::clone(own);
        }
        if tenants.len() > 2 * self.quota.in_total {
            tenants.retain(|_, own| Arc::strong_count(own) > 1);
        }
        let own = Arc::new(Semaphore::new(self.quota.per_tenant.min(Semaphore::MAX_PERMITS)));
        tenants.insert(tenant.clone(), Arc::clone(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_waits_only_for_itself_and_not_for_long() {
        let quota = Quota { per_tenant: 2, in_total: 3 };
        let gate = Arc::new(Gate::new(quota, Duration::from_secs(2)));
        let [a, b, c] = ["a", "b", "c"].map(|name| name.parse::<TenantId>().unwrap());
        let first = gate.enter(&a).await.unwrap();
        let _second = gate.enter(&a).await.unwrap();
        let waiting = tokio::spawn({
            let (gate, a) = (Arc::clone(&gate), a.clone());
            async move { gate.enter(&a).await }
        });
        assert_eq!(gate.enter(&a).await.unwrap_err(), Exhausted::Tenant(WHAT));
        assert_eq!(waiting.await.unwrap().unwrap_err(), Exhausted::Tenant(WHAT));
        let other = gate.enter(&b).await.unwrap();
        assert_eq!(gate.enter(&c).await.unwrap_err(), Exhausted::Total(WHAT));
        drop(first);
        gate.enter(&c).await.unwrap();
        drop(other);
        gate.enter(&a).await.unwrap();
    }

    #[tokio::test]
    async fn more_than_a_queue_of_a_tenant_is_refused_at_once() {
        let quota = Quota { per_tenant: 1, in_total: 10 };
        let gate = Arc::new(Gate::new(quota, Duration::from_secs(3600)));
        let tenant = TenantId::default_tenant();
        let _inside = gate.enter(&tenant).await.unwrap();
        let waiting: Vec<_> = (0..WAITING_PER_PLACE)
            .map(|_| {
                let (gate, tenant) = (Arc::clone(&gate), tenant.clone());
                tokio::spawn(async move { gate.enter(&tenant).await })
            })
            .collect();
        while gate.present.take(&tenant, 1).is_ok() {
            tokio::task::yield_now().await;
        }
        assert_eq!(gate.enter(&tenant).await.unwrap_err(), Exhausted::Tenant(WHAT));
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
