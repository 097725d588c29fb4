//! Named locks: for a read and a write that belong together, and for two requests with the same
//! idempotency key. They apply within this process; unused names are removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use postrider_domain::ids::TenantId;

/// A lock for each name.
#[derive(Debug, Default)]
pub(crate) struct Locks(Mutex<HashMap<Name, Weak<tokio::sync::Mutex<()>>>>);

#[derive(Debug, PartialEq, Eq, Hash)]
enum Name {
    Subscription(TenantId, String),
    IdempotencyKey(TenantId, String),
    Quota(&'static str, Option<TenantId>),
}

impl Locks {
    /// The lock of a subscription.
    pub(crate) fn of_subscription(
        &self,
        tenant: &TenantId,
        id: &str,
    ) -> Arc<tokio::sync::Mutex<()>> {
        self.of(Name::Subscription(tenant.clone(), id.to_owned()))
    }

    /// The lock of an idempotency key.
    pub(crate) fn of_idempotency_key(
        &self,
        tenant: &TenantId,
        key: &str,
    ) -> Arc<tokio::sync::Mutex<()>> {
        self.of(Name::IdempotencyKey(tenant.clone(), key.to_owned()))
    }

    /// The lock for counting and creating records under a quota, such as a tenant's keys.
    pub(crate) fn of_quota(
        &self,
        what: &'static str,
        tenant: Option<&TenantId>,
    ) -> Arc<tokio::sync::Mutex<()>> {
        self.of(Name::Quota(what, tenant.cloned()))
    }

    fn of(&self, name: Name) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(&name).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(name, Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_lock_for_as_long_as_somebody_holds_it() {
        let (locks, tenant) = (Locks::default(), TenantId::default_tenant());
        let first = locks.of_subscription(&tenant, "a");
        assert!(Arc::ptr_eq(&first, &locks.of_subscription(&tenant, "a")));
        assert!(!Arc::ptr_eq(&first, &locks.of_subscription(&tenant, "b")));
        assert!(!Arc::ptr_eq(&first, &locks.of_idempotency_key(&tenant, "a")));
        drop(first);
        locks.of_subscription(&tenant, "c");
        assert_eq!(locks.0.lock().unwrap().len(), 1, "nothing is remembered for ever");
    }
}
