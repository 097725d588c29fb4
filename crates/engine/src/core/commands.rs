//! What people ask for: enabling, freezing, cancelling, replaying, looking.
//!
//! Whoever changes something is answered when the change is durable.

use std::sync::Arc;

use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{CancelReason, Delivery, Lane, WrongState};
use postrider_domain::destination::Destination;
use postrider_domain::explain::Standing;
use postrider_domain::ids::{DeliveryId, DestinationId, SubscriptionId, TenantId};
use postrider_domain::mass_failure::MassFailureGuard;
use postrider_domain::policy::Policy;
use postrider_domain::steady::Step;
use postrider_domain::subscription::RateLimit;
use postrider_store::{DeliveryFilter, Holding, ReplayJob, ReplayState, ShardSet};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::commits::Ack;
use super::queue::DestIx;
use super::state::Place;
use super::trial::Trial;
use super::{Action, Core, DestinationOverlay, Gauges, Load, LoadId, TenantOverlay};
use crate::handle::CommandError;
use crate::live::EngineEvent;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, CommandError>>;

/// What somebody wants.
pub(crate) enum Command {
    /// A subscription names this destination.
    Destination {
        record: Box<Destination>,
        reply: oneshot::Sender<()>,
    },
    /// The rate limit of a destination is now this.
    Rate {
        destination: DestinationId,
        rate: Option<RateLimit>,
    },
    /// What a deleted subscription is still owed is to be cancelled.
    CancelAll {
        tenant: TenantId,
        subscription: SubscriptionId,
    },
    Enable {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
        reply: Reply<Destination>,
    },
    Freeze {
        tenant: TenantId,
        destination: DestinationId,
        reason: Option<String>,
        reply: Reply<Destination>,
    },
    Cancel {
        tenant: TenantId,
        delivery: DeliveryId,
        reply: Reply<Delivery>,
    },
    Replay {
        tenant: TenantId,
        delivery: DeliveryId,
        reply: Reply<Delivery>,
    },
    /// A replay job is kept as it is given: it goes on from there where it is running.
    RunJob {
        job: Box<ReplayJob>,
        reply: Reply<ReplayJob>,
    },
    ChangeJob {
        job: Box<ReplayJob>,
        change: ReplayChange,
        reply: Reply<ReplayJob>,
    },
    /// The time of day was set: the operator is to know.
    ClockStepped {
        step: Step,
    },
    Tenant {
        tenant: Option<TenantId>,
        reply: oneshot::Sender<TenantOverlay>,
    },
    Flying {
        tenant: TenantId,
        filter: Box<DeliveryFilter>,
        below: Option<DeliveryId>,
        limit: usize,
        reply: oneshot::Sender<Vec<Delivery>>,
    },
    InFlight {
        deliveries: Vec<DeliveryId>,
        reply: oneshot::Sender<Vec<bool>>,
    },
    Look {
        tenant: TenantId,
        destination: DestinationId,
        reply: oneshot::Sender<Option<DestinationOverlay>>,
    },
    /// What a delivery that is due waits for.
    Standing {
        delivery: DeliveryId,
        destination: DestinationId,
        lane: Lane,
        reply: oneshot::Sender<Option<Standing>>,
    },
    /// A test send is to have its places.
    BeginTrial {
        tenant: TenantId,
        destination: DestinationId,
        reply: Reply<Trial>,
    },
    /// It gives them back.
    EndTrial {
        trial: Trial,
    },
    Holding {
        reply: oneshot::Sender<Arc<Holding>>,
    },
    Gauges {
        reply: oneshot::Sender<Gauges>,
    },
    Policy {
        policy: Arc<Policy>,
    },
    /// The shards are held until then; these destinations and jobs came with shards that are new.
    Held {
        holding: Holding,
        gained: Vec<Destination>,
        jobs: Vec<ReplayJob>,
        until: Option<Instant>,
        /// Those of them that another node should have, and which decision that is.
        leaving: (ShardSet, u64),
    },
    /// Shards may have become ours, or others should have some of ours.
    HoldAnew,
    /// A destination that was looked for.
    Found {
        read: LoadId,
        id: DestinationId,
        record: Option<Box<Destination>>,
    },
    /// The owners of a job's next deliveries have replayed so many of them.
    ReplayedElsewhere {
        job: Box<ReplayJob>,
        last: Option<DeliveryId>,
        replayed: u64,
        is_all: bool,
    },
    Shutdown {
        done: oneshot::Sender<usize>,
    },
    Abandon,
    Stop {
        why: String,
    },
}

/// What is to become of a replay job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum ReplayChange {
    Pause,
    Resume,
    Cancel,
}

/// What is wanted of a delivery that must be read first.
pub(crate) enum Wish {
    Cancel(Reply<Delivery>),
    Replay(Reply<Delivery>),
}

impl Wish {
    pub(super) fn refuse(self, error: CommandError) {
        let (Wish::Cancel(reply) | Wish::Replay(reply)) = self;
        // Whoever asked may have gone away.
        drop(reply.send(Err(error)));
    }
}

impl Core {
    #[expect(clippy::too_many_lines, reason = "one arm for each command, and nothing else")]
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Destination { record, reply } => {
                if self.holding.has(record.id.shard()) {
                    self.add_destination(*record, None);
                }
                reply.send(()).ok();
            }
            Command::Rate { destination, rate } => {
                if let Some(ix) = self.dest_ix(destination) {
                    self.set_rate(ix, rate);
                }
            }
            Command::CancelAll { tenant, subscription } => self.cancel_all(tenant, subscription),
            Command::Enable { tenant, destination, reason, reply } => {
                self.change_circuit(&tenant, destination, reply, |core, ix| {
                    core.enable(ix, reason)
                });
            }
            Command::Freeze { tenant, destination, reason, reply } => {
                self.change_circuit(&tenant, destination, reply, |core, ix| {
                    core.freeze(ix, reason)
                });
            }
            Command::Cancel { tenant, delivery, reply } => {
                self.wish(tenant, delivery, Wish::Cancel(reply));
            }
            Command::Replay { tenant, delivery, reply } => {
                self.wish(tenant, delivery, Wish::Replay(reply));
            }
            Command::RunJob { job, reply } => {
                // Whoever owns its shard runs it.
                if !self.holding.has(job.shard()) {
                    drop(reply.send(Err(CommandError::Moved)));
                    return;
                }
                if job.state == ReplayState::Running {
                    self.run_job((*job).clone());
                }
                drop(reply.send(Ok(*job)));
            }
            Command::ChangeJob { job, reply, .. } if !self.holding.has(job.shard()) => {
                drop(reply.send(Err(CommandError::Moved)));
            }
            Command::ChangeJob { job, change, reply } => self.change_replay(*job, change, reply),
            Command::Policy { policy } => self.set_policy(policy),
            Command::Held { holding, gained, jobs, until, leaving } => {
                self.hold(holding, gained, jobs, until);
                self.leave(leaving.0, leaving.1);
            }
            Command::ClockStepped { step } => self.clock_stepped(step),
            Command::HoldAnew => self.actions.push(Action::HoldAnew(Holding::default())),
            Command::Found { read, id, record } => self.found(read, id, record),
            Command::ReplayedElsewhere { job, last, replayed, is_all } => {
                self.replayed_elsewhere(&job, last, replayed, is_all);
            }
            Command::Shutdown { done } => self.begin_shutdown(done),
            Command::Abandon => self.abandon(),
            Command::Stop { why } => self.stop(why),
            Command::Tenant { tenant, reply } => drop(reply.send(self.overlay(tenant.as_ref()))),
            Command::Flying { tenant, filter, below, limit, reply } => {
                drop(reply.send(self.flying(&tenant, &filter, below, limit)));
            }
            Command::InFlight { deliveries, reply } => {
                let flags = deliveries.iter().map(|id| self.is_in_flight(*id)).collect();
                drop(reply.send(flags));
            }
            Command::Look { tenant, destination, reply } => self.show(&tenant, destination, reply),
            Command::Standing { delivery, destination, lane, reply } => {
                drop(reply.send(self.standing(delivery, destination, lane)));
            }
            Command::BeginTrial { tenant, destination, reply } => {
                self.begin_trial(&tenant, destination, reply);
            }
            Command::EndTrial { trial } => self.end_trial(&trial),
            Command::Holding { reply } => drop(reply.send(self.holding())),
            Command::Gauges { reply } => drop(reply.send(self.gauges())),
        }
    }

    fn change_circuit(
        &mut self,
        tenant: &TenantId,
        destination: DestinationId,
        reply: Reply<Destination>,
        change: impl FnOnce(&mut Core, DestIx) -> Option<Transition> + Send + 'static,
    ) {
        let Some(ix) = self.dest_ix(destination) else {
            let owner = tenant.clone();
            let then = move |core: &mut Core, found: Result<(), CommandError>| match found {
                Ok(()) => core.change_circuit(&owner, destination, reply, change),
                // Whoever asked may have gone away.
                Err(error) => drop(reply.send(Err(error))),
            };
            return self.when_found(tenant, destination, Box::new(then));
        };
        if self.dests[ix.get()].record.tenant != *tenant {
            drop(reply.send(Err(CommandError::NotFound)));
            return;
        }
        self.dests[ix.get()].used_at = self.now;
        let transition = change(self, ix);
        let changed = transition.is_some();
        self.circuit_changed(ix, transition);
        self.arm_circuit(ix);
        if changed && self.dests[ix.get()].record.evidence().is_none() {
            self.recovered(ix);
        }
        self.activate(ix);
        let record = self.dests[ix.get()].record.clone();
        self.answer_when_durable(destination, reply, record);
    }

    fn enable(&mut self, ix: DestIx, reason: Option<String>) -> Option<Transition> {
        self.dests[ix.get()].record.circuit.enable(reason, self.now)
    }

    fn freeze(&mut self, ix: DestIx, reason: Option<String>) -> Option<Transition> {
        self.stop_ramp(ix);
        self.dests[ix.get()].record.circuit.freeze(reason, self.now)
    }

    /// Something is wanted of a delivery: as it is in memory, or as the store has it.
    fn wish(&mut self, tenant: TenantId, id: DeliveryId, wish: Wish) {
        let known = self.entries.get(&id).map(|entry| &entry.delivery);
        match known.or_else(|| self.commits.dirty(id)) {
            Some(delivery) if delivery.tenant == tenant => {
                let delivery = delivery.clone();
                self.grant(wish, Some(delivery));
            }
            Some(_) => wish.refuse(CommandError::NotFound),
            None => self.load_for(Load::One { tenant, delivery: id }, Some(wish)),
        }
    }

    pub(super) fn grant(&mut self, wish: Wish, delivery: Option<Delivery>) {
        let Some(delivery) = delivery else { return wish.refuse(CommandError::NotFound) };
        let (id, destination) = (delivery.id, delivery.destination);
        if !self.holding.has(destination.shard()) {
            return wish.refuse(CommandError::Moved);
        }
        // It may have changed while it was read.
        let resident = self.entries.get(&id).map(|entry| entry.delivery.clone());
        let is_resident = resident.is_some();
        let newest = resident.or_else(|| self.commits.dirty(id).cloned()).unwrap_or(delivery);
        match wish {
            Wish::Cancel(reply) => {
                let refused = newest.cancelled(CancelReason::Asked, self.now).err();
                let cancelled = if is_resident {
                    self.cancel_resident(id, CancelReason::Asked)
                } else {
                    self.cancel_absent(&newest, CancelReason::Asked)
                };
                match (cancelled, refused) {
                    (Some(cancelled), None) => {
                        self.answer_when_durable(destination, reply, cancelled);
                    }
                    (_, Some(wrong)) => drop(reply.send(Err(wrong.into()))),
                    (None, None) => drop(reply.send(Err(CommandError::NotFound))),
                }
            }
            Wish::Replay(reply) => self.replay_one(&newest, is_resident, reply),
        }
    }

    fn replay_one(&mut self, delivery: &Delivery, is_resident: bool, reply: Reply<Delivery>) {
        let replayed = if is_resident {
            Err(WrongState::Unfinished.into())
        } else if !self.directory.has(delivery.subscription) {
            Err(CommandError::SubscriptionGone)
        } else {
            delivery.replayed(self.now).map_err(CommandError::from)
        };
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let Some(ix) = self.dest_ix(delivery.destination) else {
            let (tenant, id) = (delivery.tenant.clone(), delivery.id);
            let then = move |core: &mut Core, found: Result<(), CommandError>| match found {
                Ok(()) => core.wish(tenant, id, Wish::Replay(reply)),
                Err(error) => drop(reply.send(Err(error))),
            };
            return self.when_found(&delivery.tenant, delivery.destination, Box::new(then));
        };
        self.commit_delivery(delivery.state.name(), replayed.clone(), None);
        self.place(replayed.clone(), ix);
        self.answer_when_durable(replayed.destination, reply, replayed);
    }

    fn change_replay(&mut self, job: ReplayJob, change: ReplayChange, reply: Reply<ReplayJob>) {
        let state = self.jobs.get(&job.id).map_or(job.state, |known| known.job.state);
        let next = match (change, state) {
            (ReplayChange::Pause, ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Paused
            }
            (ReplayChange::Resume, ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Running
            }
            (ReplayChange::Cancel, ReplayState::Running | ReplayState::Paused) => {
                ReplayState::Cancelled
            }
            (_, ReplayState::Finished | ReplayState::Cancelled) => {
                drop(reply.send(Err(CommandError::JobEnded)));
                return;
            }
        };
        let job = Box::new(self.change_job(job, next));
        // What it has brought back so far is durable before its new state is.
        self.commits.when_durable(Ack::PutReplay(job, reply));
    }

    fn set_policy(&mut self, policy: Arc<Policy>) {
        if policy.mass_failure != self.policy.mass_failure {
            // A suspension by the numbers before ends with them.
            self.guard = MassFailureGuard::new(policy.mass_failure.clone());
            self.resume_transitions();
        }
        self.policy = policy;
        let all: Vec<DestIx> = self.dests.iter().map(|(ix, _)| ix).collect();
        for ix in all {
            self.arm_circuit(ix);
        }
    }

    fn clock_stepped(&mut self, step: Step) {
        self.actions.push(Action::Publish(EngineEvent::ClockStep(step)));
    }

    fn is_in_flight(&self, id: DeliveryId) -> bool {
        self.entries.get(&id).is_some_and(
            |entry| matches!(entry.place, Place::InFlight(flight) if flight.account.is_some()),
        )
    }

    /// A tenant's deliveries in flight that are wanted, newest first.
    fn flying(
        &self,
        tenant: &TenantId,
        filter: &DeliveryFilter,
        below: Option<DeliveryId>,
        limit: usize,
    ) -> Vec<Delivery> {
        let overlay = self.overlay(Some(tenant));
        let all = usize::try_from(overlay.queued + overlay.waiting).unwrap_or(usize::MAX);
        let entries = self.entries.iter();
        let flying = entries
            .filter(|(id, entry)| entry.delivery.tenant == *tenant && self.is_in_flight(**id))
            .map(|(_, entry)| &entry.delivery)
            .take(all);
        let is_wanted = |delivery: &&Delivery| {
            below.is_none_or(|below| delivery.id < below) && filter.matches(delivery)
        };
        let mut wanted: Vec<&Delivery> = flying.filter(is_wanted).collect();
        wanted.sort_unstable_by_key(|delivery| std::cmp::Reverse(delivery.id));
        wanted.into_iter().take(limit).cloned().collect()
    }

    fn overlay(&self, tenant: Option<&TenantId>) -> TenantOverlay {
        match tenant {
            Some(tenant) => self
                .tenant_by_id
                .get(tenant)
                .map_or(TenantOverlay::default(), |&ix| self.tenants[ix].overlay),
            None => {
                self.tenants.iter().fold(TenantOverlay::default(), |all, tenant| TenantOverlay {
                    queued: all.queued + tenant.overlay.queued,
                    waiting: all.waiting + tenant.overlay.waiting,
                })
            }
        }
    }

    /// Shows a destination; one at rest is read first.
    fn show(
        &mut self,
        tenant: &TenantId,
        destination: DestinationId,
        reply: oneshot::Sender<Option<DestinationOverlay>>,
    ) {
        // Whoever asked may have gone away.
        let show = move |core: &mut Core, _| drop(reply.send(core.look(destination)));
        match self.dest_ix(destination) {
            Some(_) => show(self, Ok(())),
            None => self.when_found(tenant, destination, Box::new(show)),
        }
    }

    fn look(&self, destination: DestinationId) -> Option<DestinationOverlay> {
        let dest = &self.dests[self.dest_ix(destination)?.get()];
        let oldest = dest.first.ids.iter().find_map(|id| self.entries.get(id));
        Some(DestinationOverlay {
            destination: dest.record.clone(),
            in_flight: dest.in_flight,
            in_flight_limit: dest.limit.get(false),
            queued: dest.first.len,
            ready: dest.retry.len,
            oldest_queued_at: oldest.map(|entry| entry.delivery.created_at),
        })
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            destinations: self.dest_by_id.len(),
            resident: self.resident() + self.awaited(),
            in_flight_first: self.in_flight.first,
            in_flight_retry: self.in_flight.retry,
            queued: self.dests.iter().map(|(_, dest)| dest.first.len).sum(),
            ready: self.dests.iter().map(|(_, dest)| dest.retry.len).sum(),
            due: self.due.len(),
            alarms: self.alarms.len(),
            unpersisted: self.commits.unpersisted(),
            loads: self.loads.len(),
            payload_bytes: self.payload_bytes,
            flying_bytes: self.flying_bytes.total,
            replays: self.jobs.len(),
            shards: self.holding.shards.len(),
            leased: self.is_leased,
            filters_over_budget: self.directory.over_budget(),
            held: self.guard.hold() == postrider_domain::circuit::Hold::Held,
        }
    }
}
