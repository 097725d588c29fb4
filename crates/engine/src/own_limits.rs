//! Limits that a tenant has of its own, instead of the server's. They are in the tenant's record; here is what this
//! node knows of them, for all tenants that have any.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use postrider_domain::ids::TenantId;
use postrider_domain::limits::PAGE_MAX;
use postrider_store::{PageRequest, Store, StoreError, Tenant, TenantDetails};

use crate::handle::EngineHandle;
use crate::quotas::{Quota, Whose};

/// The own limits of one tenant; `None` where the server's holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantLimits {
    quotas: [Option<u64>; Quota::ALL.len()],
    /// The most requests per second.
    pub requests_per_second: Option<u32>,
    /// The most events per second.
    pub events_per_second: Option<u32>,
}

impl TenantLimits {
    /// The limits in a tenant's details. A quota that this version does not know is ignored.
    pub fn of(details: &TenantDetails) -> Self {
        let own = |quota: &Quota| details.quotas.get(quota.name()).copied();
        let mut quotas = [None; Quota::ALL.len()];
        let of_tenants = |quota: &&Quota| quota.whose() == Whose::Tenant;
        for quota in Quota::ALL.iter().filter(of_tenants) {
            quotas[*quota as usize] = own(quota);
        }
        TenantLimits {
            quotas,
            requests_per_second: details.requests_per_second,
            events_per_second: details.events_per_second,
        }
    }

    /// The tenant's own value of a quota.
    pub fn quota(&self, quota: Quota) -> Option<u64> {
        self.quotas[quota as usize]
    }

    fn is_empty(&self) -> bool {
        *self == TenantLimits::default()
    }
}

/// The own limits of all tenants.
#[derive(Debug, Default)]
pub(crate) struct OwnLimits {
    tenants: RwLock<HashMap<TenantId, TenantLimits>>,
    /// Whether there are any: most servers have none, and then nobody takes the lock.
    is_used: AtomicBool,
}

impl OwnLimits {
    pub(crate) fn of(&self, tenant: &TenantId) -> TenantLimits {
        if !self.is_used.load(Ordering::Acquire) {
            return TenantLimits::default();
        }
        let tenants = self.tenants.read().unwrap_or_else(PoisonError::into_inner);
        tenants.get(tenant).copied().unwrap_or_default()
    }

    /// Whether a tenant has limits of its own.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Sets what a tenant has; `None` where it does not exist.
    pub(crate) fn set(&self, id: &TenantId, tenant: Option<&Tenant>) {
        let limits = tenant.map(|tenant| TenantLimits::of(&tenant.details)).unwrap_or_default();
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if limits.is_empty() {
            tenants.remove(id);
        } else {
            tenants.insert(id.clone(), limits);
        }
        self.is_used.store(!tenants.is_empty(), Ordering::Release);
    }

    /// Reads what a tenant has.
    pub(crate) async fn read(&self, store: &dyn Store, id: &TenantId) -> Result<(), StoreError> {
        self.set(id, store.tenant(id).await?.as_ref());
        Ok(())
    }

    /// Reads what all tenants have.
    pub(crate) async fn read_all(&self, store: &dyn Store) -> Result<(), StoreError> {
        let mut known: Vec<TenantId> = Vec::new();
        let mut page = PageRequest { limit: PAGE_MAX, cursor: None };
        loop {
            let found = store.tenants(&page).await?;
            for tenant in &found.items {
                self.set(&tenant.id, Some(tenant));
                known.push(tenant.id.clone());
            }
            page.cursor = found.next;
            if page.cursor.is_none() {
                break;
            }
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        // The list is by identifier.
        tenants.retain(|id, _| known.binary_search(id).is_ok());
        self.is_used.store(!tenants.is_empty(), Ordering::Release);
        Ok(())
    }
}

impl EngineHandle {
    /// The own limits of a tenant.
    pub fn limits_of(&self, tenant: &TenantId) -> TenantLimits {
        self.shared.directory.own_limits.of(tenant)
    }

    /// The most events per second of a tenant without a limit of its own; `None` without a limit.
    pub fn events_per_second(&self) -> Option<u32> {
        self.shared.ingest.rate.map(|rate| rate.per_second)
    }

    /// Takes over a tenant that was changed, or deleted where it is `None`. Other nodes learn it from the store.
    pub fn tenant_changed(&self, id: &TenantId, tenant: Option<&Tenant>) {
        self.shared.directory.own_limits.set(id, tenant);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use postrider_domain::time::Timestamp;
    use postrider_store::Configuration;
    use postrider_store_testing::memory::MemoryStore;

    use super::*;

    fn tenant(id: &str, quotas: &[(&str, u64)]) -> Tenant {
        let quotas: BTreeMap<String, u64> =
            quotas.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let details = TenantDetails { quotas, ..TenantDetails::default() };
        Tenant { id: id.parse().unwrap(), name: None, created_at: Timestamp::EPOCH, details }
    }

    #[tokio::test]
    async fn limits_are_read_from_the_records_of_tenants() {
        let store = MemoryStore::default();
        let acme = tenant("acme", &[("subscriptions", 7), ("server_subscriptions", 8), ("x", 9)]);
        for one in [&acme, &tenant("plain", &[])] {
            assert!(store.create_tenant(one).await.unwrap());
        }
        let own = OwnLimits::default();
        own.set(&"gone".parse().unwrap(), Some(&tenant("gone", &[("keys", 1)])));
        own.read_all(&store).await.unwrap();
        let limits = own.of(&acme.id);
        assert_eq!(limits.quota(Quota::TenantSubscriptions), Some(7));
        assert_eq!(limits.quota(Quota::Subscriptions), None, "the server's is nobody's own");
        assert_eq!(limits.quota(Quota::TenantKeys), None);
        assert_eq!(own.of(&"plain".parse().unwrap()), TenantLimits::default());
        assert_eq!(own.of(&"gone".parse().unwrap()), TenantLimits::default());
        own.set(&acme.id, None);
        assert!(!own.is_used());
    }
}
