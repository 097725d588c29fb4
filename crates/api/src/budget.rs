//! Budgets: how much of a resource one tenant may hold at the same time, and all tenants together.
//!
//! Bytes of request bodies, bytes of answers and open streams have budgets. **Nothing waits for a
//! budget**: a request that does not fit is refused at once, so there can be no deadlock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postrider_domain::ids::TenantId;

use crate::problem::{Code, Problem};

/// The `Retry-After` of a refusal by a budget.
const RETRY_AFTER_SECONDS: u64 = 2;

/// A limit for each tenant and one for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The limit of one tenant.
    pub per_tenant: usize,
    /// The limit of all tenants together.
    pub in_total: usize,
}

/// The current use of a quota.
#[derive(Debug)]
pub(crate) struct Budget {
    what: &'static str,
    quota: Quota,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    in_total: usize,
    tenants: HashMap<TenantId, usize>,
}

/// A limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Exhausted {
    /// The tenant's limit is reached.
    #[error("the tenant has too many {0} at the same time: let some of them end first")]
    Tenant(&'static str),
    /// The limit of all tenants is reached.
    #[error("the server has too many {0} at the same time: repeat the request")]
    Total(&'static str),
}

impl From<Exhausted> for Problem {
    fn from(exhausted: Exhausted) -> Self {
        let code = match exhausted {
            Exhausted::Tenant(_) => Code::TooManyAtOnce,
            Exhausted::Total(_) => Code::Overloaded,
        };
        Problem::new(code, exhausted.to_string()).retry_after(RETRY_AFTER_SECONDS)
    }
}

impl Budget {
    /// A budget; `what` completes the message "too many … at the same time".
    pub(crate) fn new(what: &'static str, quota: Quota) -> Arc<Budget> {
        Arc::new(Budget { what, quota, taken: Mutex::default() })
    }

    /// An empty share that may grow.
    pub(crate) fn share(self: &Arc<Self>, tenant: &TenantId) -> Share {
        Share { budget: Arc::clone(self), tenant: tenant.clone(), amount: 0 }
    }

    /// A share of this amount.
    pub(crate) fn take(
        self: &Arc<Self>,
        tenant: &TenantId,
        amount: usize,
    ) -> Result<Share, Exhausted> {
        let mut share = self.share(tenant);
        share.grow(amount)?;
        Ok(share)
    }

    /// A share of this amount, even beyond the limit: for work that can no longer be refused.
    pub(crate) fn overdraw(self: &Arc<Self>, tenant: &TenantId, amount: usize) -> Share {
        let mut share = self.share(tenant);
        self.taken().add(tenant, amount);
        share.amount = amount;
        share
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn add(&mut self, tenant: &TenantId, amount: usize) {
        self.in_total += amount;
        match self.tenants.get_mut(tenant) {
            Some(taken) => *taken += amount,
            None => drop(self.tenants.insert(tenant.clone(), amount)),
        }
    }

    fn give_back(&mut self, tenant: &TenantId, amount: usize) {
        self.in_total -= amount;
        if let Some(taken) = self.tenants.get_mut(tenant) {
            *taken -= amount;
            if *taken == 0 {
                self.tenants.remove(tenant);
            }
        }
    }
}

/// The share of one request or stream; released when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    tenant: TenantId,
    amount: usize,
}

impl Share {
    /// Adds to the share. If that fails, the share is unchanged.
    pub(crate) fn grow(&mut self, by: usize) -> Result<(), Exhausted> {
        let Budget { what, quota, .. } = &*self.budget;
        let mut taken = self.budget.taken();
        let own = taken.tenants.get(&self.tenant).copied().unwrap_or(0);
        if own.saturating_add(by) > quota.per_tenant {
            return Err(Exhausted::Tenant(what));
        }
        if taken.in_total.saturating_add(by) > quota.in_total {
            return Err(Exhausted::Total(what));
        }
        taken.add(&self.tenant, by);
        self.amount += by;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.budget.taken().give_back(&self.tenant, self.amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_limits_tenant_and_total_and_takes_shares_back() {
        let budget = Budget::new("things", Quota { per_tenant: 3, in_total: 5 });
        let [a, b, c] = ["a", "b", "c"].map(|name| name.parse::<TenantId>().unwrap());
        let mut first = budget.take(&a, 2).unwrap();
        assert_eq!(first.grow(2), Err(Exhausted::Tenant("things")));
        first.grow(1).unwrap();
        let second = budget.take(&b, 2).unwrap();
        assert_eq!(budget.take(&b, 1).unwrap_err(), Exhausted::Total("things"));
        assert_eq!(Problem::from(Exhausted::Total("things")).code(), Code::Overloaded);
        drop(first);
        let third = budget.take(&c, 3).unwrap();
        let forced = budget.overdraw(&c, 100);
        assert!(budget.take(&b, 1).is_err());
        drop((second, third, forced));
        assert_eq!(budget.taken().in_total, 0);
        assert!(budget.taken().tenants.is_empty(), "a tenant that has nothing costs nothing");
    }
}
