//! Test sends: one attempt now, whose outcome is returned to the caller and not stored.
//!
//! A test send takes in-flight capacity like every other attempt, and is refused if there is none.
//! A frozen destination is never attempted, not even by a test.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postrider_domain::attempt::Finished;
use postrider_domain::circuit::CircuitState;
use postrider_domain::egress::DestinationUrl;
use postrider_domain::event::Event;
use postrider_domain::explain::Words;
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::workfront;
use postrider_transport::Target;
use tokio::sync::oneshot;

use crate::attempt::AttemptPlan;
use crate::core::{Command, OnDestination, Trial};
use crate::directory::Prepared;
use crate::entropy::ten;
use crate::handle::{CommandError, EngineHandle};
use crate::ingest::NewEvent;
use crate::loaded::Loaded;

/// How many test sends of this node may run at the same time to a destination that another node
/// owns.
const ELSEWHERE_MAX: u32 = 4;

/// Running test sends to destinations of other nodes.
#[derive(Default)]
pub(crate) struct Elsewhere(Mutex<HashMap<DestinationId, u32>>);

impl Elsewhere {
    fn counts(&self) -> MutexGuard<'_, HashMap<DestinationId, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, destination: DestinationId) -> Result<(), CommandError> {
        let mut counts = self.counts();
        let count = counts.entry(destination).or_default();
        if *count >= ELSEWHERE_MAX {
            let what = format!("{ELSEWHERE_MAX} tests of this destination are under way");
            let retry_after = Duration::from_secs(1);
            return Err(CommandError::Full { what, retry_after, is_own: true });
        }
        *count += 1;
        Ok(())
    }

    fn end(&self, destination: DestinationId) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&destination) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&destination);
            }
        }
    }
}

impl EngineHandle {
    /// Sends a test event to a subscription now and waits for the outcome. Nothing is stored.
    pub async fn test_send(
        &self,
        tenant: &TenantId,
        subscription: SubscriptionId,
        event: NewEvent,
    ) -> Result<Finished, CommandError> {
        let (engine, tenant) = (self.clone(), tenant.clone());
        // In a task of its own, so that the capacity is released even if the caller goes away.
        let task = tokio::spawn(async move { engine.test(&tenant, subscription, event).await });
        task.await.unwrap_or(Err(CommandError::Stopping))
    }

    async fn test(
        &self,
        tenant: &TenantId,
        subscription: SubscriptionId,
        event: NewEvent,
    ) -> Result<Finished, CommandError> {
        let shared = &self.shared;
        let mut prepared = shared.directory.get(subscription);
        if prepared.is_none() {
            // Another node may have created the subscription a moment ago.
            shared.refresher.catch_up().await?;
            prepared = shared.directory.get(subscription);
        }
        let prepared = prepared.ok_or(CommandError::NotFound)?;
        if prepared.subscription.tenant != *tenant {
            return Err(CommandError::NotFound);
        }
        let destination = prepared.subscription.destination;
        match self.begin_trial(tenant, destination).await {
            Ok(trial) => {
                let finished = self.send_test(tenant, prepared, event).await;
                self.tell(Command::EndTrial { trial })?;
                finished
            }
            Err(CommandError::Moved) => {
                self.check_elsewhere(tenant, destination).await?;
                shared.elsewhere.begin(destination)?;
                let finished = self.send_test(tenant, prepared, event).await;
                shared.elsewhere.end(destination);
                finished
            }
            Err(error) => Err(error),
        }
    }

    async fn begin_trial(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> Result<Trial, CommandError> {
        let tenant = tenant.clone();
        self.ask(|reply| {
            Command::OnDestination(OnDestination::BeginTrial { tenant, destination, reply })
        })
        .await?
    }

    /// Another node owns the destination: the store says whether it is frozen.
    async fn check_elsewhere(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> Result<(), CommandError> {
        let found = self.shared.store.destination(tenant, destination).await?;
        match found.map(|found| found.circuit.state) {
            Some(CircuitState::Frozen { since, evidence }) => {
                Err(CommandError::Frozen { since, why: Words(&evidence).to_string() })
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn send_test(
        &self,
        tenant: &TenantId,
        prepared: Arc<Prepared>,
        event: NewEvent,
    ) -> Result<Finished, CommandError> {
        let (shared, wish) = (&self.shared, &prepared.subscription);
        let target = DestinationUrl::from_trusted(&wish.url)
            .ok()
            .and_then(|url| Target::new(tenant.clone(), wish.destination, url, None).ok());
        let now = shared.clock.now();
        let event = Event {
            id: event.id.unwrap_or_else(|| EventId::new(now, ten(&*shared.entropy))),
            tenant: tenant.clone(),
            kind: event.kind,
            object: event.object,
            data: event.data,
            old: event.old,
            time: event.time.unwrap_or(now),
            trace: event.trace,
        };
        let event = Arc::new(Loaded::new(Arc::new(event)));
        // A test is sent in the version that the subscription has.
        let version = workfront::owed(wish, now).next().flatten();
        let delivery = DeliveryId::new(now, workfront::mark(ten(&*shared.entropy), version));
        let limits = shared.policy.borrow().attempt_for(&wish.policy);
        let target = target.map(Arc::new);
        let (report, finished) = oneshot::channel();
        let plan = AttemptPlan { delivery, number: 1, event, prepared, target, limits };
        shared.runner.begin_test(plan, report);
        finished.await.map_err(|_| CommandError::Stopping)
    }
}
