//! Destinations that are not in memory: they are read when something is to be done with them, and
//! what that is waits here meanwhile.
//!
//! One may have been idle, or another node has made it. What waits here was read or accepted while
//! nobody could change it; a change that came in between is remembered until the read has ended, so
//! nothing is taken for how it stood before.

use std::collections::HashMap;
use std::sync::Arc;

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DestinationId, ReplayId, TenantId};
use postrider_store::ShardSet;

use super::destinations::LoadId;
use super::messages::{Action, Parked};
use super::state::Core;
use crate::handle::CommandError;
use crate::loaded::Loaded;

/// Deliveries that wait for one destination; beyond it they are read back.
const WAITING_MAX: usize = 64;

/// A destination that is being read, and what waits for it.
#[derive(Default)]
pub(super) struct Lookup {
    pub(super) read: LoadId,
    pub(super) deliveries: Vec<(Delivery, Option<Arc<Loaded>>)>,
    /// Whether more is in the store than waits here.
    pub(super) has_more: bool,
    pub(super) commands: Vec<Parked>,
    pub(super) jobs: Vec<ReplayId>,
}

/// The destinations that are being read.
pub(super) type Lookups = HashMap<DestinationId, Lookup>;

impl Core {
    /// Reads a destination of ours that is not in memory, where it is not being read already.
    fn look_up(&mut self, tenant: &TenantId, id: DestinationId) -> Option<&mut Lookup> {
        if !self.holding.has(id.shard()) {
            return None;
        }
        if !self.lookups.contains_key(&id) {
            let read = self.open_find();
            self.actions.push(Action::Find(read, tenant.clone(), id));
            self.lookups.insert(id, Lookup { read, ..Lookup::default() });
        }
        self.lookups.get_mut(&id)
    }

    /// A delivery waits for its destination, which is not in memory.
    pub(super) fn await_destination(&mut self, delivery: Delivery, event: Option<Arc<Loaded>>) {
        let (tenant, destination) = (delivery.tenant.clone(), delivery.destination);
        let Some(lookup) = self.look_up(&tenant, destination) else { return };
        if lookup.deliveries.len() < WAITING_MAX {
            lookup.deliveries.push((delivery, event));
        } else {
            lookup.has_more = true;
        }
    }

    /// A destination that is not in memory has more in the store.
    pub(super) fn await_more(&mut self, tenant: &TenantId, destination: DestinationId) {
        if let Some(lookup) = self.look_up(tenant, destination) {
            lookup.has_more = true;
        }
    }

    /// A command waits for its destination, which is not in memory.
    pub(super) fn park_command(
        &mut self,
        tenant: &TenantId,
        destination: DestinationId,
        command: Parked,
    ) {
        match self.look_up(tenant, destination) {
            Some(lookup) => lookup.commands.push(command),
            None => command.refuse(CommandError::Moved),
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
            if let Some(lookup) = self.look_up(tenant, destination) {
                lookup.jobs.push(job);
            }
        }
    }

    /// A destination was read: what waited for it. `None` where it was lost meanwhile: what was read is
    /// not how it is.
    pub(super) fn end_lookup(&mut self, read: LoadId, id: DestinationId) -> Option<Lookup> {
        if self.lookups.get(&id)?.read != read {
            return None;
        }
        self.lookups.remove(&id)
    }

    /// What waits for destinations of these shards does not wait any more.
    pub(super) fn end_lookups_in(&mut self, lost: &ShardSet) -> Vec<Lookup> {
        let gone = self.lookups.extract_if(|id, _| lost.has(id.shard()));
        gone.map(|(_, lookup)| lookup).collect()
    }

    /// Whether a replay job waits for some destination.
    pub(super) fn is_job_waiting(&self, job: ReplayId) -> bool {
        self.lookups.values().any(|lookup| lookup.jobs.contains(&job))
    }

    /// How many deliveries wait for their destinations.
    pub(super) fn awaited(&self) -> usize {
        self.lookups.values().map(|lookup| lookup.deliveries.len()).sum()
    }
}
