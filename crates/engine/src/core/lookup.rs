//! Destinations that are not in memory: they are read when they are needed; deliveries and commands
//! wait here meanwhile.
//!
//! The destination may have been idle, or another node has created it. A waiting delivery was read
//! or accepted when nobody else could change it. A change that comes in between is remembered until
//! the read has ended, so that no outdated state is used.

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

/// The most deliveries that wait here for one destination; the others are read from the store
/// later.
const WAITING_MAX: usize = 64;

/// A destination that is being read, and everything that waits for it.
#[derive(Default)]
pub(super) struct Lookup {
    pub(super) read: LoadId,
    pub(super) deliveries: Vec<(Delivery, Option<Arc<Loaded>>)>,
    /// Whether the store has more deliveries than wait here.
    pub(super) has_more: bool,
    pub(super) commands: Vec<Parked>,
    pub(super) jobs: Vec<ReplayId>,
}

/// The destinations that are being read.
#[derive(Default)]
pub(super) struct Lookups {
    by_id: HashMap<DestinationId, Lookup>,
}

impl Core {
    /// Reads a destination that this node owns, unless it is being read already.
    fn look_up(&mut self, tenant: &TenantId, id: DestinationId) -> Option<&mut Lookup> {
        if !self.shards.has(id.shard()) {
            return None;
        }
        if !self.lookups.by_id.contains_key(&id) {
            let read = self.begin_lookup();
            self.actions.push(Action::ReadDestination(read, tenant.clone(), id));
            self.lookups.by_id.insert(id, Lookup { read, ..Lookup::default() });
        }
        self.lookups.by_id.get_mut(&id)
    }

    /// Lets a delivery wait for its destination, which is not in memory.
    pub(super) fn await_destination(&mut self, delivery: Delivery, event: Option<Arc<Loaded>>) {
        let (tenant, destination) = (delivery.tenant.clone(), delivery.destination);
        let Some(lookup) = self.look_up(&tenant, destination) else { return };
        if lookup.deliveries.len() < WAITING_MAX {
            lookup.deliveries.push((delivery, event));
        } else {
            lookup.has_more = true;
        }
    }

    /// Records that a destination that is not in memory has more deliveries in the store.
    pub(super) fn await_more(&mut self, tenant: &TenantId, destination: DestinationId) {
        if let Some(lookup) = self.look_up(tenant, destination) {
            lookup.has_more = true;
        }
    }

    /// Lets a command wait for its destination, which is not in memory.
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

    /// Lets a replay job wait for these destinations.
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

    /// A destination was read: returns everything that waited for it. `None` if its shard was lost
    /// meanwhile: the read state may be outdated.
    pub(super) fn end_lookup(&mut self, read: LoadId, id: DestinationId) -> Option<Lookup> {
        if self.lookups.by_id.get(&id)?.read != read {
            return None;
        }
        self.lookups.by_id.remove(&id)
    }

    /// Removes the lookups in these shards.
    pub(super) fn end_lookups_in(&mut self, lost: &ShardSet) -> Vec<Lookup> {
        let gone = self.lookups.by_id.extract_if(|id, _| lost.has(id.shard()));
        gone.map(|(_, lookup)| lookup).collect()
    }

    /// Whether a replay job waits for a destination.
    pub(super) fn is_job_waiting(&self, job: ReplayId) -> bool {
        self.lookups.by_id.values().any(|lookup| lookup.jobs.contains(&job))
    }

    /// How many deliveries wait for their destinations.
    pub(super) fn awaited(&self) -> usize {
        self.lookups.by_id.values().map(|lookup| lookup.deliveries.len()).sum()
    }
}
