//! The engine, as the API wants to see it; the vault and the clock, as others want to see them.
//!
//! Each crate names what it needs; here it is handed over. Nothing is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use postrider_api::Vault;
use postrider_api::credentials::Credentials as ApiCredentials;
use postrider_api::engine::{
    ActionError, Engine, EngineEvent, InFlight, IngestError, Ingested, NewEvent, Switch,
};
use postrider_domain::attempt::Finished;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::{EventType, RawJson};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_engine::{
    CommandError, CredentialsError, EngineEvent as Happened, EngineHandle, NewReplay,
    OpenCredentials,
};
use postrider_store::{
    DestinationRecord, ReplayJob, ReplayState, StoreError, SubscriptionPut, SubscriptionRecord,
};
use postrider_transport::{Clock as _, SystemClock};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::flights::Flights;

/// Live events that a slow reader of the API may lag behind.
const LIVE_EVENTS_MAX: usize = 4096;

/// The vault, as the engine opens credentials with it.
pub(super) struct Opener(pub(super) Vault);

impl postrider_engine::Credentials for Opener {
    fn open(&self, record: &SubscriptionRecord) -> Result<OpenCredentials, CredentialsError> {
        match ApiCredentials::open(&self.0, record) {
            Ok(open) => Ok(OpenCredentials { secrets: open.secrets, token: open.token }),
            Err(error) => Err(CredentialsError(error.to_string())),
        }
    }
}

/// The machine's clock, as the API asks it.
pub(super) struct ApiClock;

impl postrider_api::Clock for ApiClock {
    fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}

/// The engine, as the API sees it.
pub(super) struct Bridge {
    engine: EngineHandle,
    flights: Flights,
    live: broadcast::Sender<EngineEvent>,
    is_ready: Arc<AtomicBool>,
}

impl Bridge {
    /// Follows the engine from now on; ready until `is_ready` says otherwise.
    pub(super) fn new(engine: EngineHandle, is_ready: Arc<AtomicBool>) -> Bridge {
        let flights = Flights::default();
        let live = broadcast::Sender::new(LIVE_EVENTS_MAX);
        // Both end when the engine does.
        drop(tokio::spawn(flights.clone().follow(engine.subscribe())));
        drop(tokio::spawn(pass_on(engine.subscribe(), live.clone())));
        Bridge { engine, flights, live, is_ready }
    }
}

/// Passes on what happens, to whoever reads the API's stream.
async fn pass_on(mut from: broadcast::Receiver<Happened>, to: broadcast::Sender<EngineEvent>) {
    loop {
        match from.recv().await {
            // Nobody may be reading.
            Ok(event) => {
                if to.receiver_count() > 0
                    && let Some(event) = told(event)
                {
                    drop(to.send(event));
                }
            }
            Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "the stream misses some"),
            Err(RecvError::Closed) => return,
        }
    }
}

fn told(event: Happened) -> Option<EngineEvent> {
    Some(match event {
        Happened::Attempt { delivery, attempt } => EngineEvent::Attempt { delivery, attempt },
        Happened::Began { tenant, delivery, destination, turn } => {
            EngineEvent::Began { tenant, delivery, destination, turn }
        }
        Happened::Transition { tenant, destination, url, transition } => {
            EngineEvent::Transition { tenant, destination, url, transition }
        }
        Happened::Dead { delivery, reason } => EngineEvent::Dead { delivery, reason },
        Happened::Warning { tenant, destination, url, warning } => {
            EngineEvent::Warning { tenant, destination, url, warning }
        }
        Happened::HoldChange(_) => return None,
    })
}

/// What the engine says of something that did not happen. `NotFound` is no error to the API.
fn refused<T>(result: Result<T, CommandError>) -> Result<Option<T>, ActionError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(CommandError::NotFound) => Ok(None),
        Err(CommandError::WrongState(wrong)) => Err(ActionError::Delivery(wrong)),
        Err(CommandError::JobEnded) => Err(ActionError::ReplayEnded),
        Err(CommandError::Stopping) => Err(ActionError::Stopping),
        Err(CommandError::Store(error)) => Err(ActionError::Store(error)),
        Err(error @ (CommandError::SubscriptionGone | CommandError::NotAnEndState)) => {
            Err(ActionError::Store(StoreError::Internal(error.to_string())))
        }
    }
}

/// The same, where something that is not there is answered otherwise.
fn done<T>(result: Result<T, CommandError>) -> Result<T, ActionError> {
    refused(result)?.ok_or(ActionError::Stopping)
}

#[async_trait]
impl Engine for Bridge {
    async fn ingest(
        &self,
        tenant: &TenantId,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Ingested>, IngestError> {
        use postrider_engine::IngestError as Refused;

        let events = events.into_iter().map(|event| postrider_engine::NewEvent {
            id: event.id,
            kind: event.kind,
            object: event.object,
            data: event.data,
            old: event.old,
            time: event.time,
        });
        let ingested = self.engine.ingest(tenant, events.collect()).await;
        let ingested = ingested.map_err(|error| match error {
            Refused::Conflict { index } => IngestError::Conflict { index },
            Refused::Reserved { index } => IngestError::Reserved { index },
            Refused::TooMany => IngestError::TooMany,
            Refused::TooFast { retry_after } => IngestError::TooFast { retry_after },
            Refused::Stopping => IngestError::Stopping,
            Refused::Store(error) => IngestError::Store(error),
        })?;
        let as_told = |one: postrider_engine::Ingested| Ingested {
            id: one.id,
            deliveries: one.deliveries,
            duplicate: one.duplicate,
        };
        Ok(ingested.into_iter().map(as_told).collect())
    }

    async fn put_subscription(
        &self,
        record: SubscriptionRecord,
    ) -> Result<SubscriptionPut, ActionError> {
        done(self.engine.put_subscription(record).await)
    }

    async fn delete_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<bool, ActionError> {
        done(self.engine.delete_subscription(tenant, id).await)
    }

    async fn test_send(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Option<Finished>, ActionError> {
        let internal = |what: &str| ActionError::Store(StoreError::Internal(what.to_owned()));
        let kind: EventType =
            "postrider.test".parse().map_err(|_| internal("the type of the test event"))?;
        let data = RawJson::parse("{\"message\":\"This is a test.\"}".into())
            .map_err(|_| internal("the data of the test event"))?;
        let event = postrider_engine::NewEvent {
            id: None,
            kind,
            object: None,
            data,
            old: None,
            time: None,
        };
        refused(self.engine.test_send(tenant, id, event).await)
    }

    async fn switch_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        to: Switch,
        reason: Option<String>,
    ) -> Result<Option<DestinationRecord>, ActionError> {
        refused(match to {
            Switch::Enable => self.engine.enable(tenant, id, reason).await,
            Switch::Freeze => self.engine.freeze(tenant, id, reason).await,
        })
    }

    async fn cancel(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, ActionError> {
        refused(self.engine.cancel(tenant, id).await)
    }

    async fn replay(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, ActionError> {
        refused(self.engine.replay(tenant, id).await)
    }

    async fn start_replay(&self, job: ReplayJob) -> Result<ReplayJob, ActionError> {
        let wish = NewReplay { filter: job.filter, per_second: job.per_second };
        done(self.engine.start_replay(&job.tenant, wish).await)
    }

    async fn steer_replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
        to: ReplayState,
    ) -> Result<Option<ReplayJob>, ActionError> {
        refused(match to {
            ReplayState::Running => self.engine.resume_replay(tenant, id).await,
            ReplayState::Paused => self.engine.pause_replay(tenant, id).await,
            ReplayState::Finished | ReplayState::Cancelled => {
                self.engine.cancel_replay(tenant, id).await
            }
        })
    }

    fn is_in_flight(&self, delivery: DeliveryId) -> bool {
        self.flights.has(delivery)
    }

    fn in_flight_ids(&self, tenant: &TenantId, limit: usize) -> Vec<DeliveryId> {
        self.flights.of(tenant, limit)
    }

    fn in_flight(&self, tenant: Option<&TenantId>) -> InFlight {
        self.flights.count(tenant)
    }

    fn listen(&self) -> broadcast::Receiver<EngineEvent> {
        self.live.subscribe()
    }

    fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }
}
