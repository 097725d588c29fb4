//! The interface of the engine. A handle is cheap to clone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_domain::circuit::CircuitState;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::destination::Destination;
use postrider_domain::event::RawJson;
use postrider_domain::explain::{Standing, Words};
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, SubscriptionId, TenantId};
use postrider_domain::job_outcomes::JobOutcomes;
use postrider_domain::ledger::Ledger;
use postrider_domain::matching::TenantIndex;
use postrider_domain::policy::{DestinationPolicy, Policy};
use postrider_domain::time::Timestamp;
use postrider_store::{Change, DeliveryFilter, ReplayJob, ReplayState, ShardLeases, Store};
use postrider_transport::Clock;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use crate::attempt::Runner;
use crate::background::{Background, LARGE_BATCH, LARGE_BYTES, LARGE_FAN_OUT};
use crate::cluster::{Done, Mailbox, PeerRequest, Refresher, is_cancelled};
use crate::core::{
    Command, DeliveryCommand, Gauges, Input, OnDelivery, OnDestination, OnReplay, ReplayChange,
    TenantOverlay, View,
};
use crate::directory::Directory;
use crate::entropy::{Entropy, ten};
use crate::ingest::{Ingest, IngestError, Ingested, NewEvent};
use crate::live::EngineEvent;
use crate::new_replay::NewReplay;
use crate::quotas::StartedBy;
pub use crate::refusal::CommandError;
use crate::trial::Elsewhere;
use crate::upkeep::ToLeaseHolder;

/// The current state of a destination, including what only memory has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationView {
    /// The destination with its circuit as it is now.
    pub destination: Destination,
    /// Attempts in flight.
    pub in_flight: u32,
    /// The limit of attempts in flight.
    pub in_flight_limit: u32,
    /// Deliveries in the first lane and in memory.
    pub queued: usize,
    /// Due deliveries in the retry lane and in memory.
    pub ready: usize,
    /// When the oldest delivery in the first lane was accepted.
    pub oldest_queued_at: Option<Timestamp>,
}

/// Why an engine has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was shut down.
    Shutdown,
    /// The store has stopped: the process must end.
    StoreStopped(String),
}

/// The state that all handles share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) inputs: mpsc::UnboundedSender<Input>,
    pub(crate) live: broadcast::Sender<EngineEvent>,
    pub(crate) policy: watch::Sender<Arc<Policy>>,
    pub(crate) ended: watch::Receiver<Option<Ended>>,
    pub(crate) end: watch::Sender<bool>,
    pub(crate) stopping: AtomicBool,
    pub(crate) refresher: Arc<Refresher>,
    /// Test sends to destinations of other nodes.
    pub(crate) elsewhere: Elsewhere,
    /// The mailbox for requests to other nodes; `None` if there can be none.
    pub(crate) mailbox: Option<Arc<Mailbox>>,
    /// The task that renews the leases of our shards.
    pub(crate) holder: mpsc::UnboundedSender<ToLeaseHolder>,
    /// Where large work is done.
    pub(crate) background: Background,
}

/// Whether accepting these events is large work, for a tenant with this many subscriptions.
fn is_large(events: &[NewEvent], subscriptions: usize) -> bool {
    let bytes = |json: &RawJson| json.as_bytes().len();
    let of = |event: &NewEvent| bytes(&event.data) + event.old.as_ref().map_or(0, bytes);
    events.len() >= LARGE_BATCH
        || events.len().saturating_mul(subscriptions) >= LARGE_FAN_OUT
        || events.iter().map(of).sum::<usize>() >= LARGE_BYTES
}

/// A running engine.
#[derive(Clone)]
pub struct EngineHandle {
    pub(crate) shared: Arc<Shared>,
}

impl EngineHandle {
    /// Accepts events of a tenant: all of them, durable with all their deliveries, or none.
    pub async fn ingest(
        &self,
        tenant: &TenantId,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Ingested>, IngestError> {
        if self.shared.stopping.load(Ordering::Acquire) {
            return Err(IngestError::Stopping);
        }
        let (ingest, tenant) = (Arc::clone(&self.shared.ingest), tenant.clone());
        let (held, _) = self.shared.directory.subscription_sums.of(&tenant);
        // In a task of its own, so that nothing stays half done if the caller goes away.
        let is_large = is_large(&events, usize::try_from(held.count).unwrap_or(usize::MAX));
        let work = async move { ingest.ingest(&tenant, events).await };
        let task = self.shared.background.spawn(is_large, work);
        task.await.unwrap_or(Err(IngestError::Stopping))
    }

    /// The runtime for large work.
    pub fn background(&self) -> &Background {
        &self.shared.background
    }

    /// Has a destination's owner do something with it, and says how it is then.
    pub(crate) async fn at_owner<F>(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        request: PeerRequest,
        here: impl Fn() -> F,
    ) -> Result<Destination, CommandError>
    where
        F: Future<Output = Result<Destination, CommandError>>,
    {
        match self.routed(destination.shard(), request, here).await? {
            Done::Here(destination) => Ok(destination),
            Done::Elsewhere => self.read_destination(tenant, destination).await,
        }
    }

    /// Freezes a destination.
    pub async fn freeze(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        reason: Option<String>,
    ) -> Result<Destination, CommandError> {
        let (owner, why) = (tenant.clone(), reason.clone());
        let request = PeerRequest::Freeze { tenant: owner, destination, reason: why };
        let here = || self.freeze_here(tenant, destination, reason.clone());
        self.at_owner(tenant, destination, request, here).await
    }

    pub(crate) async fn freeze_here(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
        reason: Option<String>,
    ) -> Result<Destination, CommandError> {
        let tenant = tenant.clone();
        self.ask(|reply| {
            Command::OnDestination(OnDestination::Freeze { tenant, destination, reason, reply })
        })
        .await?
    }

    /// Cancels a delivery that has not ended.
    pub async fn cancel(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Result<Delivery, CommandError> {
        let shard = self.shard_of(tenant, delivery).await?;
        let request = PeerRequest::Cancel { tenant: tenant.clone(), delivery };
        match self
            .routed(shard, request, || self.change_here(tenant, delivery, DeliveryCommand::Cancel))
            .await?
        {
            Done::Here(delivery) => Ok(delivery),
            Done::Elsewhere => self.read_delivery(tenant, delivery, is_cancelled).await,
        }
    }

    /// Replays a delivery that has ended: a new schedule, due at once.
    pub async fn replay(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Result<Delivery, CommandError> {
        let shard = self.shard_of(tenant, delivery).await?;
        let request = PeerRequest::Replay { tenant: tenant.clone(), delivery };
        match self
            .routed(shard, request, || self.change_here(tenant, delivery, DeliveryCommand::Replay))
            .await?
        {
            Done::Here(delivery) => Ok(delivery),
            // It may have been delivered, or have failed, meanwhile.
            Done::Elsewhere => self.read_delivery(tenant, delivery, |_| Ok(())).await,
        }
    }

    /// Attempts a waiting delivery now, without waiting for its slot, which stays. If its
    /// destination is disabled, the delivery is the next probe.
    pub async fn retry(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Result<Delivery, CommandError> {
        let shard = self.shard_of(tenant, delivery).await?;
        let request = PeerRequest::Retry { tenant: tenant.clone(), delivery };
        match self
            .routed(shard, request, || self.change_here(tenant, delivery, DeliveryCommand::Retry))
            .await?
        {
            Done::Here(delivery) => Ok(delivery),
            // It may have been delivered, or have failed, meanwhile.
            Done::Elsewhere => self.read_delivery(tenant, delivery, |_| Ok(())).await,
        }
    }

    /// Changes a delivery in a shard that this node owns.
    pub(crate) async fn change_here(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
        change: DeliveryCommand,
    ) -> Result<Delivery, CommandError> {
        let tenant = tenant.clone();
        self.ask(|reply| Command::OnDelivery(OnDelivery { tenant, delivery, change, reply }))
            .await?
    }

    /// How many deliveries a replay would bring back, or a retry would send: none of a subscription that
    /// is deleted. A retry of what waits for a frozen destination is refused.
    pub async fn count_replay(
        &self,
        tenant: &TenantId,
        wish: &NewReplay,
    ) -> Result<u64, CommandError> {
        let filter = replayable(&wish.filter)?;
        if let (Some(StateName::Waiting), Some(id)) = (filter.state, filter.destination)
            && let Some(destination) = self.shared.store.destination(tenant, id).await?
            && let CircuitState::Frozen { since, evidence } = destination.circuit.state
        {
            let why = Words(&evidence).to_string();
            return Err(CommandError::Frozen { since, why });
        }
        Ok(self.shared.store.count_replayable(tenant, &filter).await?)
    }

    /// Starts a bulk replay.
    pub async fn start_replay(
        &self,
        tenant: &TenantId,
        wish: NewReplay,
    ) -> Result<ReplayJob, CommandError> {
        let total = self.count_replay(tenant, &wish).await?;
        let now = self.shared.clock.now();
        let job = ReplayJob {
            id: wish.id.unwrap_or_else(|| ReplayId::new(now, ten(&*self.shared.entropy))),
            tenant: tenant.clone(),
            filter: replayable(&wish.filter)?,
            per_second: wish.per_second,
            created_at: now,
            state: ReplayState::Running,
            total,
            done: 0,
            position: None,
            finished_at: None,
            outcomes: JobOutcomes::default(),
        };
        {
            let _one_at_a_time = self.shared.ingest.backlog.admitting.lock().await;
            self.admit_replay(tenant, StartedBy::Somebody, true).await?;
            self.shared.store.put_replay(&job).await?;
        }
        let request = PeerRequest::RunJob { tenant: tenant.clone(), id: job.id };
        match self.routed(job.shard(), request, || self.run_job_here(job.clone())).await {
            Ok(Done::Here(job)) => Ok(job),
            // The next owner of its shard finds the job in the store.
            Ok(Done::Elsewhere) | Err(CommandError::Moved) => Ok(job),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn run_job_here(&self, job: ReplayJob) -> Result<ReplayJob, CommandError> {
        self.ask(|reply| Command::OnReplay(OnReplay::Run { job: Box::new(job), reply })).await?
    }

    /// Pauses a replay job.
    pub async fn pause_replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<ReplayJob, CommandError> {
        self.change_job(tenant, id, ReplayChange::Pause).await
    }

    /// Resumes a replay job that was paused.
    pub async fn resume_replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<ReplayJob, CommandError> {
        let job = self.shared.store.replay(tenant, id).await?.ok_or(CommandError::NotFound)?;
        let _one_at_a_time = self.shared.ingest.backlog.admitting.lock().await;
        self.admit_resumed(tenant, &job).await?;
        self.change_job(tenant, id, ReplayChange::Resume).await
    }

    /// Cancels a replay job. Deliveries that it has replayed stay replayed.
    pub async fn cancel_replay(
        &self,
        tenant: &TenantId,
        id: ReplayId,
    ) -> Result<ReplayJob, CommandError> {
        self.change_job(tenant, id, ReplayChange::Cancel).await
    }

    /// The ledger of a tenant, or of all tenants: from the store, corrected by what is in flight
    /// now.
    pub async fn ledger(&self, tenant: Option<&TenantId>) -> Result<Ledger, CommandError> {
        let mut in_flight = self.overlay_here(tenant.cloned()).await?;
        let elsewhere = self.overlay_elsewhere(tenant).await;
        in_flight.queued += elsewhere.queued;
        in_flight.waiting += elsewhere.waiting;
        let mut ledger = self.shared.store.ledger(tenant).await?;
        let (queued, waiting) =
            (in_flight.queued.min(ledger.queued), in_flight.waiting.min(ledger.waiting));
        ledger.queued -= queued;
        ledger.waiting -= waiting;
        ledger.in_flight += queued + waiting;
        Ok(ledger)
    }

    pub(crate) async fn overlay_here(
        &self,
        tenant: Option<TenantId>,
    ) -> Result<TenantOverlay, CommandError> {
        self.ask(|reply| Command::View(View::Tenant { tenant, reply })).await
    }

    /// The deliveries of a tenant that are in flight now and match a filter, newest first: those
    /// with identifiers below `below`, at most `limit`. Being in flight is not stored, so every
    /// node is asked.
    pub async fn list_in_flight(
        &self,
        tenant: &TenantId,
        filter: DeliveryFilter,
        below: Option<DeliveryId>,
        limit: usize,
    ) -> Result<Vec<Delivery>, CommandError> {
        let filter = DeliveryFilter { state: None, ..filter };
        let mut in_flight = self.list_in_flight_elsewhere(tenant, &filter, below, limit).await?;
        in_flight.extend(self.list_in_flight_here(tenant, filter, below, limit).await?);
        in_flight.sort_by_key(|delivery| std::cmp::Reverse(delivery.id));
        in_flight.truncate(limit);
        Ok(in_flight)
    }

    pub(crate) async fn list_in_flight_here(
        &self,
        tenant: &TenantId,
        filter: DeliveryFilter,
        below: Option<DeliveryId>,
        limit: usize,
    ) -> Result<Vec<Delivery>, CommandError> {
        let (tenant, filter) = (tenant.clone(), Box::new(filter));
        self.ask(|reply| Command::View(View::InFlightOf { tenant, filter, below, limit, reply }))
            .await
    }

    /// Which of these deliveries are in flight now.
    pub async fn in_flight(&self, deliveries: Vec<DeliveryId>) -> Result<Vec<bool>, CommandError> {
        let elsewhere = self.in_flight_elsewhere(&deliveries).await;
        let here = self.in_flight_here(deliveries).await?;
        Ok(here.into_iter().zip(elsewhere).map(|(here, elsewhere)| here || elsewhere).collect())
    }

    pub(crate) async fn in_flight_here(
        &self,
        deliveries: Vec<DeliveryId>,
    ) -> Result<Vec<bool>, CommandError> {
        self.ask(|reply| Command::View(View::InFlight { deliveries, reply })).await
    }

    /// The current state of a destination; `None` if this node does not own it.
    pub async fn destination(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> Result<Option<DestinationView>, CommandError> {
        let owner = tenant.clone();
        let look = |reply| {
            Command::OnDestination(OnDestination::Look { tenant: owner, destination, reply })
        };
        let seen = self.ask(look).await?;
        let seen = seen.filter(|seen| seen.destination.tenant == *tenant);
        Ok(seen.map(|seen| DestinationView {
            destination: seen.destination,
            in_flight: seen.in_flight,
            in_flight_limit: seen.in_flight_limit,
            queued: seen.queued,
            ready: seen.ready,
            oldest_queued_at: seen.oldest_queued_at,
        }))
    }

    /// What a due delivery waits for; `None` if this node does not own it, or it is not due.
    pub async fn standing(&self, delivery: &Delivery) -> Result<Option<Standing>, CommandError> {
        let Some(lane) = delivery.lane() else { return Ok(None) };
        let (delivery, destination) = (delivery.id, delivery.destination);
        self.ask(|reply| Command::View(View::Standing { delivery, destination, lane, reply })).await
    }

    /// The shards that this node holds.
    pub async fn leases(&self) -> Result<Arc<ShardLeases>, CommandError> {
        self.ask(|reply| Command::View(View::ShardLeases { reply })).await
    }

    /// The subscriptions of every tenant, on all nodes, as this node knows them now.
    pub fn subscriptions(&self) -> Vec<TenantIndex> {
        self.shared.directory.snapshots()
    }

    /// The subscriptions of a tenant, on all nodes, as this node knows them now; `None` where it has none.
    pub fn subscriptions_of(&self, tenant: &TenantId) -> Option<TenantIndex> {
        self.shared.directory.snapshot(tenant)
    }

    /// Keys and tenants that other nodes deleted, from now on; `None` means that any may be.
    pub fn changes(&self) -> broadcast::Receiver<Option<Change>> {
        self.shared.refresher.changes.subscribe()
    }

    /// The current numbers of the engine.
    pub async fn gauges(&self) -> Result<Gauges, CommandError> {
        self.ask(|reply| Command::View(View::Gauges { reply })).await
    }

    /// A stream of engine events. A listener that lags too far behind misses some.
    pub fn subscribe(&self) -> broadcast::Receiver<EngineEvent> {
        self.shared.live.subscribe()
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.shared.policy.borrow())
    }

    /// The policy for the deliveries of a subscription; the server's where it is unknown.
    pub fn policy_of(&self, subscription: SubscriptionId) -> Policy {
        let known = self.shared.directory.get(subscription);
        let own = known.map(|known| known.subscription.policy).unwrap_or_default();
        self.policy().for_subscription(&own)
    }

    /// What the subscriptions of a destination want together.
    pub fn destination_policy(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> DestinationPolicy {
        self.shared.directory.destination_policy(tenant, destination, &self.policy())
    }

    /// Applies another policy to all later decisions.
    pub fn reload_policy(&self, policy: Policy) -> Result<(), CommandError> {
        let policy = Arc::new(policy);
        self.shared.policy.send_replace(Arc::clone(&policy));
        self.tell(Command::Policy { policy })
    }

    /// Shuts down: nothing more is accepted or sent, and attempts in flight end and are settled,
    /// within `deadline`. Attempts that do not end in time are repeated after the next start;
    /// returns their number.
    pub async fn shutdown(&self, deadline: Duration) -> usize {
        self.shared.stopping.store(true, Ordering::Release);
        let (done, mut finished) = oneshot::channel();
        if self.tell(Command::Shutdown { done }).is_err() {
            return 0;
        }
        let given_up = match tokio::time::timeout(deadline, &mut finished).await {
            Ok(given_up) => given_up.unwrap_or(0),
            Err(_) => {
                drop(self.tell(Command::Abandon));
                // A store that does not answer must not keep the process alive.
                tokio::time::timeout(deadline, finished).await.map_or(0, |n| n.unwrap_or(0))
            }
        };
        self.shared.end.send_replace(true);
        let mut ended = self.shared.ended.clone();
        // The sender is dropped with the engine: in both cases the engine has ended.
        drop(ended.wait_for(Option::is_some).await);
        given_up
    }

    /// Waits until the engine has ended; returns the reason.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.shared.ended.clone();
        let reason = ended.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or(Ended::Shutdown)
    }

    async fn change_job(
        &self,
        tenant: &TenantId,
        id: ReplayId,
        change: ReplayChange,
    ) -> Result<ReplayJob, CommandError> {
        let job = self.shared.store.replay(tenant, id).await?.ok_or(CommandError::NotFound)?;
        let request = PeerRequest::ChangeJob { tenant: tenant.clone(), id, change };
        let here = || self.change_job_here(tenant, id, change);
        match self.routed(job.shard(), request, here).await? {
            Done::Here(job) => Ok(job),
            Done::Elsewhere => {
                let job = self.shared.store.replay(tenant, id).await?;
                job.ok_or(CommandError::NotFound)
            }
        }
    }

    pub(crate) async fn change_job_here(
        &self,
        tenant: &TenantId,
        id: ReplayId,
        change: ReplayChange,
    ) -> Result<ReplayJob, CommandError> {
        let job = self.shared.store.replay(tenant, id).await?.ok_or(CommandError::NotFound)?;
        self.ask(|reply| Command::OnReplay(OnReplay::Change { job: Box::new(job), change, reply }))
            .await?
    }

    pub(crate) fn tell_rate(
        &self,
        tenant: &TenantId,
        destination: DestinationId,
    ) -> Result<(), CommandError> {
        let rate = self.shared.directory.rate_limit(tenant, destination);
        self.tell(Command::Rate { destination, rate })
    }

    pub(crate) fn tell(&self, command: Command) -> Result<(), CommandError> {
        let sent = self.shared.inputs.send(Input::Command(command));
        sent.map_err(|_| CommandError::Stopping)
    }

    pub(crate) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, CommandError> {
        let (reply, answer) = oneshot::channel();
        self.tell(command(reply))?;
        answer.await.map_err(|_| CommandError::Stopping)
    }
}

/// A filter with a state that a job can have: one in which deliveries have ended, or waiting.
fn replayable(filter: &DeliveryFilter) -> Result<DeliveryFilter, CommandError> {
    match filter.state {
        None => Ok(DeliveryFilter { state: Some(StateName::Dead), ..filter.clone() }),
        Some(
            StateName::Dead | StateName::Delivered | StateName::Cancelled | StateName::Waiting,
        ) => Ok(filter.clone()),
        Some(StateName::Queued | StateName::InFlight) => Err(CommandError::NotReplayable),
    }
}
