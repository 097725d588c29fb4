//! What the API needs of the engine.
//!
//! Reads go straight to the store; everything that changes deliveries, destinations or
//! subscriptions goes through here, so that the engine's memory and the store never disagree.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::attempt::{Attempt, Finished, Turn};
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{DeadReason, Delivery, WrongState};
use postrider_domain::event::{EventType, RawJson};
use postrider_domain::ids::{
    DeliveryId, DestinationId, EventId, ObjectId, ReplayId, SubscriptionId, TenantId,
};
use postrider_domain::thresholds::Warning;
use postrider_domain::time::Timestamp;
use postrider_store::{
    DestinationRecord, ReplayJob, ReplayState, StoreError, SubscriptionPut, SubscriptionRecord,
};
use tokio::sync::broadcast;

/// The engine, as the API sees it.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Accepts a batch of one tenant's events, whole or not at all.
    async fn ingest(
        &self,
        tenant: &TenantId,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Ingested>, IngestError>;

    /// Creates or replaces a subscription, and its destination where that is new.
    async fn put_subscription(
        &self,
        record: SubscriptionRecord,
    ) -> Result<SubscriptionPut, ActionError>;
    /// Deletes a subscription and cancels what is owed to it; `false` where there is none.
    async fn delete_subscription(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<bool, ActionError>;
    /// Sends a test event to a subscription now; `None` where there is no such subscription.
    async fn test_send(
        &self,
        tenant: &TenantId,
        id: SubscriptionId,
    ) -> Result<Option<Finished>, ActionError>;

    /// Enables a destination, or freezes it; `None` where there is no such destination.
    async fn switch_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
        to: Switch,
        reason: Option<String>,
    ) -> Result<Option<DestinationRecord>, ActionError>;

    /// Cancels a delivery; `None` where there is no such delivery.
    async fn cancel(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, ActionError>;
    /// Replays a delivery; `None` where there is no such delivery.
    async fn replay(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
    ) -> Result<Option<Delivery>, ActionError>;

    /// Starts a bulk replay.
    async fn start_replay(&self, job: ReplayJob) -> Result<ReplayJob, ActionError>;
    /// Pauses, resumes or cancels a bulk replay; `None` where there is none.
    async fn steer_replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
        to: ReplayState,
    ) -> Result<Option<ReplayJob>, ActionError>;

    /// Whether this delivery is being attempted now.
    fn is_in_flight(&self, delivery: DeliveryId) -> bool;
    /// The deliveries of a tenant that are being attempted now, at most so many.
    fn in_flight_ids(&self, tenant: &TenantId, limit: usize) -> Vec<DeliveryId>;
    /// How many deliveries of a tenant (`None`: of all) are being attempted now.
    fn in_flight(&self, tenant: Option<&TenantId>) -> InFlight;
    /// What happens from now on.
    fn listen(&self) -> broadcast::Receiver<EngineEvent>;
    /// Whether events can be taken in.
    fn is_ready(&self) -> bool;
}

/// How many deliveries are being attempted, by where the store has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InFlight {
    /// From the first lane.
    pub queued: u64,
    /// From the retry lane.
    pub waiting: u64,
}

/// The two switches that people have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// On.
    Enable,
    /// Off for good.
    Freeze,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// A delivery is in the wrong state for it.
    #[error(transparent)]
    Delivery(#[from] WrongState),
    /// A replay job has ended.
    #[error("the replay has ended: start another one")]
    ReplayEnded,
    /// The engine is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An event as the application hands it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Chosen by the application, or none.
    pub id: Option<EventId>,
    /// What happened.
    pub kind: EventType,
    /// What it happened to.
    pub object: Option<ObjectId>,
    /// The new state.
    pub data: RawJson,
    /// The state before.
    pub old: Option<RawJson>,
    /// When it happened; now where the application does not say.
    pub time: Option<Timestamp>,
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingested {
    /// Its identifier.
    pub id: EventId,
    /// How many deliveries are owed for it.
    pub deliveries: u32,
    /// Whether it had been accepted before.
    pub duplicate: bool,
}

/// Why nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The identifier was used for something else.
    #[error("event {index} has an identifier that was used for another event")]
    Conflict {
        /// Which event of the batch.
        index: usize,
    },
    /// Applications cannot send Postrider's own events.
    #[error("event {index} has a type that begins with postrider., which is reserved")]
    Reserved {
        /// Which event of the batch.
        index: usize,
    },
    /// More events than a batch holds.
    #[error("too many events in one batch")]
    TooMany,
    /// The tenant sends more than it may.
    #[error("too many events: try again in {} ms", retry_after.as_millis())]
    TooFast {
        /// When it may go on.
        retry_after: Duration,
    },
    /// The engine is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Something that happened.
#[derive(Debug, Clone)]
pub enum EngineEvent {
    /// An attempt ended.
    Attempt {
        /// The delivery afterwards.
        delivery: Arc<Delivery>,
        /// The attempt.
        attempt: Arc<Attempt>,
    },
    /// An attempt began.
    Began {
        /// Whose.
        tenant: TenantId,
        /// Of which delivery.
        delivery: DeliveryId,
        /// Where to.
        destination: DestinationId,
        /// In which turn.
        turn: Turn,
    },
    /// A destination's circuit changed.
    Transition {
        /// Whose.
        tenant: TenantId,
        /// Which destination.
        destination: DestinationId,
        /// Its URL.
        url: Arc<str>,
        /// The change.
        transition: Transition,
    },
    /// A delivery ran out of retries.
    Dead {
        /// Which one.
        delivery: Arc<Delivery>,
        /// Why.
        reason: DeadReason,
    },
    /// A destination has come near a threshold.
    Warning {
        /// Whose.
        tenant: TenantId,
        /// Which destination.
        destination: DestinationId,
        /// Its URL.
        url: Arc<str>,
        /// Which threshold, and how near.
        warning: Warning,
    },
}
