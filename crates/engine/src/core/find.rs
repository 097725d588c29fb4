//! Destinations that are not in memory: they are read when something is to be done with them, and
//! what that is waits meanwhile.
//!
//! One may have been at rest, or another node has made it. What waits here was read or accepted
//! while nobody could change it; a change that came in between is remembered until the read has
//! ended, so nothing is taken for how it stood before.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_domain::delivery::{Delivery, DeliveryState, Lane};
use postrider_domain::destination::Destination;
use postrider_domain::ids::{DestinationId, ReplayId, TenantId};
use postrider_store::ShardSet;

use super::queue::DestIx;
use super::{Action, Core, LoadId};
use crate::handle::CommandError;
use crate::loaded::Loaded;

/// Deliveries that wait for one destination; beyond it they are read back.
const WAITING_MAX: usize = 64;

/// A destination that is being read.
#[derive(Default)]
pub(super) struct Finding {
    read: LoadId,
    deliveries: Vec<(Delivery, Option<Arc<Loaded>>)>,
    /// Whether more is in the store than waits here.
    has_more: bool,
    then: Vec<Then>,
    jobs: Vec<ReplayId>,
}

/// What somebody wants to be done when a destination is in memory, or told why it is not.
pub(super) type Then = Box<dyn FnOnce(&mut Core, Result<(), CommandError>) + Send>;

/// The destinations that are being read.
pub(super) type Findings = HashMap<DestinationId, Finding>;

impl Core {
    /// Reads a destination of ours that is not in memory, where it is not being read already.
    pub(super) fn find(&mut self, tenant: &TenantId, id: DestinationId) -> Option<&mut Finding> {
        if !self.holding.has(id.shard()) {
            return None;
        }
        if !self.finding.contains_key(&id) {
            let read = self.open_find();
            self.actions.push(Action::Find(read, tenant.clone(), id));
            self.finding.insert(id, Finding { read, ..Finding::default() });
        }
        self.finding.get_mut(&id)
    }

    /// A delivery waits for its destination, which is not in memory.
    pub(super) fn await_destination(&mut self, delivery: Delivery, event: Option<Arc<Loaded>>) {
        let (tenant, destination) = (delivery.tenant.clone(), delivery.destination);
        let Some(finding) = self.find(&tenant, destination) else { return };
        if finding.deliveries.len() < WAITING_MAX {
            finding.deliveries.push((delivery, event));
        } else {
            finding.has_more = true;
        }
    }

    /// A destination that is not in memory has more in the store.
    pub(super) fn await_more(&mut self, tenant: &TenantId, destination: DestinationId) {
        if let Some(finding) = self.find(tenant, destination) {
            finding.has_more = true;
        }
    }

    /// Does something when a destination is in memory.
    pub(super) fn when_found(&mut self, tenant: &TenantId, destination: DestinationId, then: Then) {
        match self.find(tenant, destination) {
            Some(finding) => finding.then.push(then),
            None => then(self, Err(CommandError::Moved)),
        }
    }

    /// A replay job waits for these destinations.
    pub(super) fn await_for_job(
        &mut self,
        job: ReplayId,
        tenant: &TenantId,
        destinations: Vec<DestinationId>,
    ) {
        for destination in destinations {
            if let Some(finding) = self.find(tenant, destination) {
                finding.jobs.push(job);
            }
        }
    }

    /// A destination that was looked for was read, where there is one.
    pub(super) fn found(
        &mut self,
        read: LoadId,
        id: DestinationId,
        record: Option<Box<Destination>>,
    ) {
        // Where it was lost meanwhile, what was read is not how it is.
        if self.finding.get(&id).is_some_and(|finding| finding.read == read)
            && let Some(finding) = self.finding.remove(&id)
        {
            match record {
                Some(record) => {
                    let rate = self.directory.rate_limit(&record.tenant, id);
                    let ix = self.add_destination(*record, rate);
                    self.go_on(ix, finding);
                }
                None => self.give_up(finding, || CommandError::NotFound),
            }
        }
        self.close_find(read);
    }

    /// What waited for a destination goes on.
    fn go_on(&mut self, ix: DestIx, finding: Finding) {
        for (delivery, event) in finding.deliveries {
            match delivery.state {
                DeliveryState::Queued => self.arrive(delivery, event),
                DeliveryState::Waiting(_) if !self.commits.is_dirty(delivery.id) => {
                    self.adopt(delivery);
                }
                DeliveryState::Waiting(_)
                | DeliveryState::Delivered { .. }
                | DeliveryState::Dead { .. }
                | DeliveryState::Cancelled { .. } => {}
            }
        }
        if finding.has_more {
            self.look_again(ix);
        }
        for then in finding.then {
            then(self, Ok(()));
        }
        for job in finding.jobs {
            self.sought(job);
        }
    }

    /// A job waits no longer, unless for another destination.
    fn sought(&mut self, job: ReplayId) {
        if !self.finding.values().any(|finding| finding.jobs.contains(&job)) {
            self.job_found(job);
        }
    }

    /// What waits for destinations that another node owns now does not wait any more.
    pub(super) fn lose_findings(&mut self, lost: &ShardSet) {
        let gone = self.finding.extract_if(|id, _| lost.has(id.shard()));
        let gone: Vec<Finding> = gone.map(|(_, finding)| finding).collect();
        for finding in gone {
            self.give_up(finding, || CommandError::Moved);
        }
    }

    fn give_up(&mut self, finding: Finding, why: impl Fn() -> CommandError) {
        for then in finding.then {
            then(self, Err(why()));
        }
        for job in finding.jobs {
            self.sought(job);
        }
    }

    /// How many deliveries wait for their destinations.
    pub(super) fn awaited(&self) -> usize {
        self.finding.values().map(|finding| finding.deliveries.len()).sum()
    }

    /// Reads what a destination has in the store, in both lanes.
    pub(super) fn look_again(&mut self, ix: DestIx) {
        let first = &mut self.dests[ix.get()].first;
        if first.loading {
            // What is being read may have begun too early.
            first.spilled = true;
        } else {
            self.read_back(ix, Lane::First);
        }
        self.due.forget_mark();
    }
}
