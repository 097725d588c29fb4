//! Creates, changes and deletes subscriptions: first in the store, then in the directory. Each
//! tenant has one change at a time on each node.

use postrider_domain::ids::{SubscriptionId, TenantId};
use postrider_store::{DestinationRecord, SubscriptionPut, SubscriptionRecord};

use crate::core::Command;
use crate::handle::{CommandError, EngineHandle};

impl EngineHandle {
    /// Creates a subscription, or replaces the one with its identifier. Existing deliveries keep
    /// the destination for which they were accepted.
    pub async fn put_subscription(
        &self,
        record: SubscriptionRecord,
    ) -> Result<SubscriptionPut, CommandError> {
        let engine = self.clone();
        // In a task of its own, so that nothing stays half done if the caller goes away.
        let task = tokio::spawn(async move { engine.put(record).await });
        task.await.unwrap_or(Err(CommandError::Stopping))
    }

    async fn put(&self, record: SubscriptionRecord) -> Result<SubscriptionPut, CommandError> {
        let shared = &self.shared;
        let subscription = &record.subscription;
        let _one_at_a_time = shared.refresher.changing.of(&subscription.tenant).await;
        let (tenant, now) = (subscription.tenant.clone(), shared.clock.now());
        let destination = DestinationRecord::new(tenant.clone(), subscription.url.clone(), now);
        let before = shared.store.subscription(&tenant, subscription.id).await?;
        let is_new = shared.store.destination(&tenant, destination.id).await?.is_none();
        self.admit_subscription(&record, is_new).await?;
        let put = shared.store.put_subscription(&record, &destination).await?;
        if let SubscriptionPut::Twin(_) = put {
            return Ok(put);
        }
        // An existing destination keeps its stored circuit.
        let stored = shared.store.destination(&tenant, destination.id).await?;
        let stored = Box::new(stored.unwrap_or(destination));
        let id = stored.id;
        self.ask(|reply| Command::Destination { record: stored, reply }).await?;
        shared.directory.put(&record);
        self.tell_rate(&tenant, id)?;
        if let Some(before) = before.filter(|before| before.subscription.destination != id) {
            self.tell_rate(&tenant, before.subscription.destination)?;
        }
        Ok(put)
    }

    /// Deletes a subscription and cancels its unfinished deliveries. `false` if it does not exist.
    pub async fn delete_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<bool, CommandError> {
        let (engine, tenant) = (self.clone(), tenant.clone());
        let task = tokio::spawn(async move { engine.delete(&tenant, id).await });
        task.await.unwrap_or(Err(CommandError::Stopping))
    }

    async fn delete(&self, tenant: &TenantId, id: SubscriptionId) -> Result<bool, CommandError> {
        let shared = &self.shared;
        let _one_at_a_time = shared.refresher.changing.of(tenant).await;
        let Some(before) = shared.store.subscription(tenant, id).await? else { return Ok(false) };
        let now = shared.clock.now();
        if !shared.store.mark_subscription_deleted(tenant, id, now).await? {
            return Ok(false);
        }
        shared.directory.remove(tenant, id);
        self.tell_rate(tenant, before.subscription.destination)?;
        self.tell(Command::CancelAll { tenant: tenant.clone(), subscription: id })?;
        Ok(true)
    }
}
