//! Commands on one delivery: cancel, replay, retry now. They are answered when the change is
//! durable.

use postrider_domain::delivery::{CancelReason, Delivery, StateName, WrongState};
use postrider_domain::ids::ReplayId;

use super::asked::Asker;
use super::messages::{DeliveryCommand, Load, OnDelivery, Parked};
use super::state::Core;
use super::table::Position;
use crate::handle::CommandError;

impl Core {
    /// Executes a command on a delivery in memory, or reads the delivery first.
    pub(super) fn on_delivery(&mut self, command: OnDelivery) {
        let id = command.delivery;
        let known = self.table.entries.get(&id).map(|entry| &entry.delivery);
        match known.or_else(|| self.commits.dirty(id)) {
            Some(delivery) if delivery.tenant == command.tenant => {
                let delivery = delivery.clone();
                self.change_delivery(command, Some(delivery));
            }
            Some(_) => command.refuse(CommandError::NotFound),
            None => {
                let load = Load::One { tenant: command.tenant.clone(), delivery: id };
                self.load_for(load, Some(command));
            }
        }
    }

    /// Executes a command on a delivery that is in memory or was read; `None` if it does not exist.
    pub(super) fn change_delivery(&mut self, command: OnDelivery, delivery: Option<Delivery>) {
        let Some(delivery) = delivery else { return command.refuse(CommandError::NotFound) };
        let id = delivery.id;
        if !self.shards.has(delivery.destination.shard()) {
            return command.refuse(CommandError::Moved);
        }
        // The delivery may have changed while it was read.
        let resident = self.table.entries.get(&id).map(|entry| entry.delivery.clone());
        let is_resident = resident.is_some();
        let newest = resident.or_else(|| self.commits.dirty(id).cloned()).unwrap_or(delivery);
        match command.change {
            DeliveryCommand::Cancel => self.cancel_one(&newest, is_resident, command),
            DeliveryCommand::Replay => self.replay_one(&newest, is_resident, None, command),
            DeliveryCommand::ReplayFor { job } => {
                self.replay_one(&newest, is_resident, job, command);
            }
            DeliveryCommand::Retry => self.retry_one(&newest, Asker::Somebody, command),
            DeliveryCommand::RetryUnlessAttempted { job, since } => {
                if self.is_on_its_way(&newest)
                    || newest.last_attempt_at.is_some_and(|at| at > since)
                {
                    // The job has requested this attempt already, or the delivery is sent without
                    // the job.
                    return command.refuse(WrongState::OnItsWay(newest.state.name()).into());
                }
                self.retry_one(&newest, Asker::Job(job), command);
            }
        }
    }

    fn cancel_one(&mut self, delivery: &Delivery, is_resident: bool, command: OnDelivery) {
        let refused = delivery.cancelled(CancelReason::Asked, self.now).err();
        let cancelled = if is_resident {
            self.cancel_resident(delivery.id, CancelReason::Asked)
        } else {
            self.cancel_absent(delivery, CancelReason::Asked)
        };
        match (cancelled, refused) {
            (Some(cancelled), None) => {
                let destination = delivery.destination;
                self.commits.answer_when_durable(destination, command.reply, cancelled);
            }
            (_, Some(wrong)) => command.refuse(wrong.into()),
            (None, None) => command.refuse(CommandError::NotFound),
        }
    }

    /// Requests an attempt of a waiting delivery before its slot.
    fn retry_one(&mut self, delivery: &Delivery, asker: Asker, command: OnDelivery) {
        if !self.directory.has(delivery.subscription) {
            return command.refuse(CommandError::SubscriptionGone);
        }
        let Some(ix) = self.table.dest_ix(delivery.destination) else {
            let (tenant, destination) = (&delivery.tenant, delivery.destination);
            return self.park_command(tenant, destination, Parked::OnDelivery(command));
        };
        let asked = match self.ask_for(delivery, ix, asker) {
            Ok(asked) => asked,
            Err(error) => return command.refuse(error),
        };
        self.commits.answer_when_durable(asked.destination, command.reply, asked);
    }

    /// Replays a delivery, for a job or by hand.
    fn replay_one(
        &mut self,
        delivery: &Delivery,
        is_resident: bool,
        job: Option<ReplayId>,
        command: OnDelivery,
    ) {
        let replayed = if is_resident {
            let position = self.table.entries.get(&delivery.id).map(|entry| entry.position);
            let is_in_flight = matches!(position, Some(Position::InFlight(_)));
            let state = if is_in_flight { StateName::InFlight } else { delivery.state.name() };
            Err(WrongState::Unfinished(state).into())
        } else if !self.directory.has(delivery.subscription) {
            Err(CommandError::SubscriptionGone)
        } else {
            delivery.replayed(self.now).map_err(CommandError::from)
        };
        let replayed = match (replayed, job) {
            (Ok(replayed), Some(job)) => replayed.sent_by(job),
            (Ok(replayed), None) => replayed,
            (Err(error), _) => return command.refuse(error),
        };
        let Some(ix) = self.table.dest_ix(delivery.destination) else {
            let (tenant, destination) = (&delivery.tenant, delivery.destination);
            return self.park_command(tenant, destination, Parked::OnDelivery(command));
        };
        self.commits.delivery(delivery, replayed.clone(), None);
        self.place(replayed.clone(), ix);
        self.commits.answer_when_durable(replayed.destination, command.reply, replayed);
    }
}
