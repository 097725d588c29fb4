//! Routes commands to the node that owns the shard.
//!
//! The owner of the shard makes the change. If it does not answer, or the shard is being handed
//! over, the command is sent again until a time limit. Reads are answered by all nodes together.

use std::time::Duration;

use postrider_domain::delivery::{Delivery, StateName, WrongState};
use postrider_domain::destination::Destination;
use postrider_domain::ids::{DeliveryId, DestinationId, ReplayId, Shard, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{DeliveryFilter, ReplayJob};
use postrider_transport::pause;
use tokio::task::JoinSet;

use super::instant;
use super::messages::{PeerAnswer, PeerRequest};
use crate::core::{Command, DeliveryCommand, Input, OnReplay, TenantOverlay};
use crate::handle::{CommandError, EngineHandle};

/// The time limit of a command: longer than a takeover, shorter than a request.
const PATIENCE: Duration = Duration::from_secs(25);
/// The time limit for one answer to a command.
const ANSWER: Duration = Duration::from_secs(6);
/// The time limit for one answer about deliveries in flight.
const GLANCE: Duration = Duration::from_millis(1500);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

impl EngineHandle {
    /// Runs a command here if this node owns the shard, otherwise on the owner. If the owner had to
    /// be asked twice, the first request may have been carried out already.
    pub(crate) async fn routed<T, F>(
        &self,
        shard: Shard,
        request: PeerRequest,
        here: impl Fn() -> F,
    ) -> Result<Done<T>, CommandError>
    where
        F: Future<Output = Result<T, CommandError>>,
    {
        let Some(mailbox) = &self.shared.mailbox else { return here().await.map(Done::Here) };
        let end = instant() + PATIENCE;
        let mut was_asked = false;
        loop {
            match here().await {
                Err(CommandError::Moved) => {}
                done => return done.map(Done::Here),
            }
            let members = self.shared.store.members().await.unwrap_or_default();
            let owner = members.into_iter().find(|member| member.shards.has(shard));
            if let Some(owner) = owner.filter(|owner| owner.name != mailbox.me()) {
                match mailbox.ask(&owner.name, request.clone(), ANSWER).await {
                    Some(PeerAnswer::Refused(refusal)) => {
                        let error = refusal.error();
                        if was_asked && matches!(error, CommandError::WrongState(_)) {
                            return Ok(Done::Elsewhere);
                        }
                        if !matches!(error, CommandError::Moved) {
                            return Err(error);
                        }
                    }
                    Some(_) => return Ok(Done::Elsewhere),
                    None => was_asked = true,
                }
            }
            if instant() >= end {
                return Err(CommandError::Moved);
            }
            pause(PAUSE).await;
        }
    }

    /// The shard of a delivery, if there are several nodes.
    pub(crate) async fn shard_of(
        &self,
        tenant: &TenantId,
        delivery: DeliveryId,
    ) -> Result<Shard, CommandError> {
        if self.shared.mailbox.is_none() {
            return Ok(Shard(0));
        }
        let found = self.shared.store.delivery(tenant, delivery).await?;
        found.map(|delivery| delivery.destination.shard()).ok_or(CommandError::NotFound)
    }

    /// Reads a destination from the store, after another node has changed it.
    pub(crate) async fn read_destination(
        &self,
        tenant: &TenantId,
        id: DestinationId,
    ) -> Result<Destination, CommandError> {
        self.shared.store.destination(tenant, id).await?.ok_or(CommandError::NotFound)
    }

    /// Reads a delivery from the store, after another node was asked to change it.
    pub(crate) async fn read_delivery(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
        is_so: impl Fn(&Delivery) -> Result<(), WrongState>,
    ) -> Result<Delivery, CommandError> {
        let found = self.shared.store.delivery(tenant, id).await?.ok_or(CommandError::NotFound)?;
        is_so(&found)?;
        Ok(found)
    }

    /// Sends a request to all other nodes; returns the answers that come in time.
    async fn everybody(&self, request: PeerRequest) -> Vec<PeerAnswer> {
        let Some(mailbox) = &self.shared.mailbox else { return Vec::new() };
        let Ok(members) = self.shared.store.members().await else { return Vec::new() };
        let mut asked = JoinSet::new();
        for member in members.into_iter().filter(|member| member.name != mailbox.me()) {
            let (mailbox, request) = (std::sync::Arc::clone(mailbox), request.clone());
            asked.spawn(async move { mailbox.ask(&member.name, request, GLANCE).await });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    /// Which of these deliveries are in flight on other nodes.
    pub(crate) async fn in_flight_elsewhere(&self, deliveries: &[DeliveryId]) -> Vec<bool> {
        let mut flags = vec![false; deliveries.len()];
        if self.shared.mailbox.is_some() {
            let request = PeerRequest::InFlight { deliveries: deliveries.to_vec() };
            for answer in self.everybody(request).await {
                if let PeerAnswer::Flags(theirs) = answer {
                    flags.iter_mut().zip(theirs).for_each(|(flag, their)| *flag |= their);
                }
            }
        }
        flags
    }

    /// The deliveries of a tenant that are in flight on other nodes and match a filter.
    pub(crate) async fn list_in_flight_elsewhere(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        below: Option<DeliveryId>,
        limit: usize,
    ) -> Result<Vec<Delivery>, CommandError> {
        let mut found = Vec::new();
        if self.shared.mailbox.is_some() {
            let request = PeerRequest::ListInFlight { tenant: tenant.clone(), below, limit };
            for answer in self.everybody(request).await {
                let PeerAnswer::InFlight(ids) = answer else { continue };
                for id in ids {
                    let delivery = self.shared.store.delivery(tenant, id).await?;
                    let is_open = |one: &Delivery| one.finished_at().is_none();
                    found.extend(delivery.filter(|one| is_open(one) && filter.matches(one)));
                }
            }
        }
        Ok(found)
    }

    /// A tenant's counts of deliveries in flight on other nodes.
    pub(crate) async fn overlay_elsewhere(&self, tenant: Option<&TenantId>) -> TenantOverlay {
        let mut all = TenantOverlay::default();
        if self.shared.mailbox.is_some() {
            let request = PeerRequest::Overlay { tenant: tenant.cloned() };
            for answer in self.everybody(request).await {
                if let PeerAnswer::Overlay { queued, waiting } = answer {
                    all.queued += queued;
                    all.waiting += waiting;
                }
            }
        }
        all
    }

    /// Answers the request of another node.
    pub(crate) async fn answer(&self, request: PeerRequest) -> Result<PeerAnswer, CommandError> {
        match request {
            PeerRequest::Enable { tenant, destination, reason, how } => {
                self.enable_here(&tenant, destination, reason, how).await?;
            }
            PeerRequest::Freeze { tenant, destination, reason } => {
                self.freeze_here(&tenant, destination, reason).await?;
            }
            PeerRequest::Cancel { tenant, delivery } => {
                self.change_here(&tenant, delivery, DeliveryCommand::Cancel).await?;
            }
            PeerRequest::Replay { tenant, delivery } => {
                self.change_here(&tenant, delivery, DeliveryCommand::Replay).await?;
            }
            PeerRequest::Retry { tenant, delivery } => {
                self.change_here(&tenant, delivery, DeliveryCommand::Retry).await?;
            }
            PeerRequest::ReplayEnded { tenant, job, by, deliveries } => {
                let (count, moved) = self.replay_ended(&tenant, job, by, deliveries).await;
                return Ok(PeerAnswer::Replayed { count, moved });
            }
            PeerRequest::RetryWaiting { tenant, job, since, deliveries } => {
                let (count, moved) = self.retry_waiting(&tenant, job, since, deliveries).await;
                return Ok(PeerAnswer::Replayed { count, moved });
            }
            PeerRequest::RunJob { tenant, id } => {
                let job = self.shared.store.replay(&tenant, id).await?;
                self.run_job_here(job.ok_or(CommandError::NotFound)?).await?;
            }
            PeerRequest::ChangeJob { tenant, id, change } => {
                self.change_job_here(&tenant, id, change).await?;
            }
            PeerRequest::InFlight { deliveries } => {
                return Ok(PeerAnswer::Flags(self.in_flight_here(deliveries).await?));
            }
            PeerRequest::ListInFlight { tenant, below, limit } => {
                let any = DeliveryFilter::default();
                let in_flight = self.list_in_flight_here(&tenant, any, below, limit).await?;
                let ids = in_flight.iter().map(|delivery| delivery.id);
                return Ok(PeerAnswer::InFlight(ids.collect()));
            }
            PeerRequest::Overlay { tenant } => {
                let TenantOverlay { queued, waiting } = self.overlay_here(tenant).await?;
                return Ok(PeerAnswer::Overlay { queued, waiting });
            }
        }
        Ok(PeerAnswer::Done)
    }

    /// Replays the given deliveries that had ended by `by`, for a job; returns how many, and which
    /// ones this node does not own.
    async fn replay_ended(
        &self,
        tenant: &TenantId,
        job: Option<ReplayId>,
        by: Timestamp,
        deliveries: Vec<DeliveryId>,
    ) -> (u64, Vec<DeliveryId>) {
        let mut replaying = JoinSet::new();
        for id in deliveries {
            let (engine, tenant) = (self.clone(), tenant.clone());
            replaying.spawn(async move {
                let found = match engine.shared.store.delivery(&tenant, id).await {
                    Ok(found) => found,
                    Err(_) => return Err(id),
                };
                // A delivery that was replayed meanwhile, by this job or by a person, is not
                // replayed again.
                let has_ended = |found: &Delivery| found.finished_at().is_some_and(|at| at <= by);
                if !found.as_ref().is_some_and(has_ended) {
                    return Ok(false);
                }
                match engine.change_here(&tenant, id, DeliveryCommand::ReplayFor { job }).await {
                    Ok(_) => Ok(true),
                    Err(CommandError::Moved | CommandError::Store(_)) => Err(id),
                    Err(_) => Ok(false),
                }
            });
        }
        sum(replaying.join_all().await)
    }

    /// Retries those of these deliveries that wait and were not attempted since then, for a job; answers
    /// how many, and which are not ours to retry.
    async fn retry_waiting(
        &self,
        tenant: &TenantId,
        job: Option<ReplayId>,
        since: Timestamp,
        deliveries: Vec<DeliveryId>,
    ) -> (u64, Vec<DeliveryId>) {
        let mut retrying = JoinSet::new();
        for id in deliveries {
            let (engine, tenant) = (self.clone(), tenant.clone());
            retrying.spawn(async move {
                let change = DeliveryCommand::RetryUnlessAttempted { job, since };
                match engine.change_here(&tenant, id, change).await {
                    Ok(_) => Ok(true),
                    Err(CommandError::Moved | CommandError::Store(_)) => Err(id),
                    Err(_) => Ok(false),
                }
            });
        }
        sum(retrying.join_all().await)
    }

    /// Has this node send some of a job's deliveries.
    async fn send_for(&self, job: &ReplayJob, ids: Vec<DeliveryId>) -> (u64, Vec<DeliveryId>) {
        if job.retries() {
            self.retry_waiting(&job.tenant, Some(job.id), job.created_at, ids).await
        } else {
            self.replay_ended(&job.tenant, Some(job.id), job.created_at, ids).await
        }
    }

    /// Asks the nodes that own a job's next deliveries to replay them, again and again until all are
    /// replayed. `is_all` says that these are the last ones of the job.
    pub(crate) async fn replay_elsewhere(self, job: ReplayJob, rows: Vec<Delivery>, is_all: bool) {
        let Some(mailbox) = &self.shared.mailbox else { return };
        let last = rows.last().map(|row| row.id);
        let (mut left, mut replayed) = (rows, 0);
        while !left.is_empty() {
            let members = self.shared.store.members().await.unwrap_or_default();
            for member in members {
                let is_theirs = |row: &Delivery| member.shards.has(row.destination.shard());
                let ids: Vec<_> =
                    left.iter().filter(|row| is_theirs(row)).map(|row| row.id).collect();
                if ids.is_empty() {
                    continue;
                }
                let answer = if member.name == mailbox.me() {
                    Some(self.send_for(&job, ids).await)
                } else {
                    let request = request_for(&job, ids);
                    match mailbox.ask(&member.name, request, ANSWER).await {
                        Some(PeerAnswer::Replayed { count, moved }) => Some((count, moved)),
                        _ => None,
                    }
                };
                if let Some((count, moved)) = answer {
                    replayed += count;
                    left.retain(|row| !is_theirs(row) || moved.contains(&row.id));
                }
            }
            if !left.is_empty() {
                pause(PAUSE).await;
            }
        }
        let job = Box::new(job);
        let command = OnReplay::ReplayedElsewhere { job, last, replayed, is_all };
        // Sending fails only after the engine has shut down.
        drop(self.shared.inputs.send(Input::Command(Command::OnReplay(command))));
    }
}

/// How many of a job's deliveries were sent, and which are another node's.
fn sum(results: Vec<Result<bool, DeliveryId>>) -> (u64, Vec<DeliveryId>) {
    let (mut count, mut moved) = (0, Vec::new());
    for result in results {
        match result {
            Ok(is_sent) => count += u64::from(is_sent),
            Err(id) => moved.push(id),
        }
    }
    (count, moved)
}

/// What another node is asked, to have it send some of a job's deliveries.
fn request_for(job: &ReplayJob, deliveries: Vec<DeliveryId>) -> PeerRequest {
    let (tenant, at) = (job.tenant.clone(), job.created_at);
    let (retries, job) = (job.retries(), Some(job.id));
    if retries {
        PeerRequest::RetryWaiting { tenant, job, since: at, deliveries }
    } else {
        PeerRequest::ReplayEnded { tenant, job, by: at, deliveries }
    }
}

/// Which node executed a command.
pub(crate) enum Done<T> {
    /// This node did, with this result.
    Here(T),
    /// The node that owns the shard did. The caller reads the result from the store.
    Elsewhere,
}

/// Checks a delivery that another node was to cancel, as the store has it now. It is an error if it has
/// ended otherwise. An unfinished state is none: somebody may have replayed it since.
pub(crate) fn is_cancelled(delivery: &Delivery) -> Result<(), WrongState> {
    match delivery.state.name() {
        StateName::Cancelled | StateName::Queued | StateName::Waiting | StateName::InFlight => {
            Ok(())
        }
        other @ (StateName::Delivered | StateName::Dead) => Err(WrongState::Finished(other)),
    }
}
