//! The queues of deliveries, and settling.

use std::sync::Arc;

use async_trait::async_trait;
use postrider_domain::delivery::Delivery;
use postrider_domain::event::Event;
use postrider_domain::ids::{DestinationId, EventId, SubscriptionId, TenantId};
use postrider_domain::job_outcomes::{OutcomeChange, count_outcomes};
use postrider_domain::ledger::movement;
use postrider_domain::time::Timestamp;
use postrider_store::{
    Commit, DeliveryChange, DestinationChange, DueMark, ReplayJob, ReplayState, ShardLeases,
    StoreError, WaitingOrder, Work,
};

use super::state::State;
use super::{Durable, MemoryStore};

#[async_trait]
impl Work for MemoryStore {
    async fn queued(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state| {
            let ids = state.queued.after(&(), after.map(place)).map(|(_, id)| *id);
            let held = state.fetch(ids).filter(|delivery| leases.has(delivery.destination.shard()));
            Ok(held.take(limit).cloned().collect())
        })
        .await
    }

    async fn queued_of(
        &self,
        destination: DestinationId,
        after: Option<DueMark>,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state| {
            let ids = state.queued_of.after(&destination, after.map(place)).map(|(_, id)| *id);
            Ok(state.fetch(ids).take(limit).cloned().collect())
        })
        .await
    }

    async fn due(
        &self,
        leases: &ShardLeases,
        after: Option<DueMark>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state| {
            let later = state.due.after(&(), after.map(place));
            let ids = later.take_while(|(due_at, _)| *due_at <= until).map(|(_, id)| *id);
            let held = state.fetch(ids).filter(|delivery| leases.has(delivery.destination.shard()));
            Ok(held.take(limit).cloned().collect())
        })
        .await
    }

    async fn waiting_of(
        &self,
        destination: DestinationId,
        order: WaitingOrder,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state| {
            let found = match order {
                WaitingOrder::ProbeRank => {
                    let ids = state.probe_rank.of(&destination).map(|(_, id)| *id);
                    state.fetch(ids).take(limit).cloned().collect()
                }
                WaitingOrder::Oldest => {
                    let ids = state.waiting_of.of(&destination).map(|(_, id)| *id);
                    state.fetch(ids).take(limit).cloned().collect()
                }
                WaitingOrder::Due => {
                    let ids = state.due_of.of(&destination).map(|(_, id)| *id);
                    state.fetch(ids).take(limit).cloned().collect()
                }
            };
            Ok(found)
        })
        .await
    }

    async fn unfinished_of(
        &self,
        subscription: SubscriptionId,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        self.read(|state| {
            let ids = state.unfinished_of.of(&subscription).copied();
            Ok(state.fetch(ids).take(limit).cloned().collect())
        })
        .await
    }

    async fn events(
        &self,
        ids: &[(TenantId, EventId)],
    ) -> Result<Vec<Option<Arc<Event>>>, StoreError> {
        self.read(|state| {
            let found = ids.iter().map(|id| state.events.get(id));
            Ok(found.map(|event| event.map(|event| Arc::clone(&event.record.event))).collect())
        })
        .await
    }

    async fn settle(&self, leases: &ShardLeases, commit: Commit) -> Result<(), StoreError> {
        let (leases, witness) = (leases.clone(), self.options.witness.clone());
        self.write(move |state| {
            state.check(&leases, &commit)?;
            if let Some(witness) = witness {
                witness(Durable::Settled(&commit));
            }
            for change in commit.deliveries {
                state.change_delivery(change)?;
            }
            for change in commit.destinations {
                state.change_destination(change);
            }
            if let Some(job) = commit.replay {
                state.advance_replay(job);
            }
            Ok(())
        })
        .await
    }
}

impl State {
    /// Checks that a commit can be applied as a whole.
    fn check(&self, leases: &ShardLeases, commit: &Commit) -> Result<(), StoreError> {
        let of_deliveries = commit.deliveries.iter().map(|change| change.delivery.destination);
        let of_destinations = commit.destinations.iter().map(|change| change.id);
        let touched = of_deliveries.chain(of_destinations).map(|id| id.shard());
        if let Some(shard) = self.fenced(leases, touched) {
            return Err(StoreError::Fenced { shard });
        }
        for change in &commit.deliveries {
            self.check_delivery(change)?;
        }
        let job = commit.replay.as_ref().map(|job| (job.tenant.clone(), job.id));
        match job {
            Some(key) if !self.replays.contains_key(&key) => {
                Err(StoreError::Internal(format!("{} of {} is not there", key.1, key.0)))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_delivery(&self, change: &DeliveryChange) -> Result<(), StoreError> {
        let DeliveryChange { before, by_job, delivery, attempt } = change;
        let Some(stored) = self.delivery(&delivery.tenant, delivery.id) else {
            let what = format!("{} of {} is not there", delivery.id, delivery.tenant);
            return Err(StoreError::Internal(what));
        };
        if self.is_applied(change) {
            return Ok(());
        }
        let known = self.attempts.get(&delivery.id);
        let is_known = |number| known.is_some_and(|log| log.contains_key(&number));
        if stored.state.name() != *before {
            let is = stored.state.name();
            return Err(StoreError::Internal(format!("{} is {is}, not {before}", delivery.id)));
        }
        if stored.by_job() != *by_job {
            let is = stored.by_job();
            let what = format!("{} was sent by {is:?}, not by {by_job:?}", delivery.id);
            return Err(StoreError::Internal(what));
        }
        match attempt {
            Some(attempt) if is_known(attempt.number) => {
                let what = format!("attempt {} of {} is there", attempt.number, delivery.id);
                Err(StoreError::Internal(what))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a change is applied already, because its commit is repeated.
    fn is_applied(&self, change: &DeliveryChange) -> bool {
        let id = change.delivery.id;
        let log = self.attempts.get(&id);
        self.deliveries.get(&id) == Some(&change.delivery)
            && change
                .attempt
                .as_ref()
                .is_none_or(|attempt| log.and_then(|log| log.get(&attempt.number)) == Some(attempt))
    }

    fn change_delivery(&mut self, change: DeliveryChange) -> Result<(), StoreError> {
        if self.is_applied(&change) {
            return Ok(());
        }
        let DeliveryChange { before, by_job, delivery, attempt } = change;
        let movement = movement(before, &delivery, attempt.as_ref());
        if let Some(step) = movement.step {
            let ledger = self.ledgers.entry(delivery.tenant.clone()).or_default();
            ledger.apply(step).map_err(|error| StoreError::Internal(error.to_string()))?;
        }
        self.tally_change(&delivery.tenant, &movement);
        if let Some(attempt) = attempt {
            self.count_attempt(&delivery, &attempt);
            self.attempts.entry(delivery.id).or_default().insert(attempt.number, attempt);
        }
        count_outcomes(by_job, &delivery, |job, outcome, n| {
            let Some(job) = self.replays.get_mut(&(delivery.tenant.clone(), job)) else { return };
            let mut change = OutcomeChange::default();
            change[outcome as usize] = n;
            job.outcomes = job.outcomes.plus(&change);
        });
        self.put_delivery(delivery);
        Ok(())
    }

    fn change_destination(&mut self, change: DestinationChange) {
        let DestinationChange { tenant, id, circuit, transitions } = change;
        let Some(destination) = self.destinations.get_mut(&(tenant.clone(), id)) else { return };
        let timeline = self.transitions.entry((tenant, id)).or_default();
        let is_repeated = destination.circuit == circuit && timeline.ends_with(&transitions);
        if !is_repeated {
            destination.circuit = circuit;
            timeline.extend(transitions);
        }
    }

    /// Advances a job. One that was paused or cancelled meanwhile stays so.
    fn advance_replay(&mut self, job: ReplayJob) {
        let Some(stored) = self.replays.get_mut(&(job.tenant.clone(), job.id)) else { return };
        stored.done = job.done;
        stored.position = job.position;
        if stored.state == ReplayState::Running {
            stored.state = job.state;
            stored.finished_at = job.finished_at;
        }
    }
}

fn place(mark: DueMark) -> (Timestamp, postrider_domain::ids::DeliveryId) {
    (mark.at, mark.delivery)
}
