//! The state of a [`super::MemoryStore`] and its indexes.
//!
//! An index changes only in [`State::put_delivery`] and [`State::remove_delivery`], so it cannot
//! disagree with the deliveries.

use std::collections::BTreeMap;

use postrider_domain::attempt::Attempt;
use postrider_domain::attempt_tally::AttemptHour;
use postrider_domain::circuit::Transition;
use postrider_domain::delivery::{Delivery, DeliveryState};
use postrider_domain::ids::{
    AuditId, DeliveryId, DestinationId, EventId, ReplayId, Shard, SubscriptionId, TenantId,
};
use postrider_domain::ledger::{Ledger, Movement};
use postrider_domain::time::Timestamp;
use postrider_store::{
    AuditEntry, Change, DestinationRecord, Document, DocumentKind, Epoch, EventRecord,
    IdempotentAnswer, Key, Pass, ReplayJob, ShardLeases, ShardSet, SubscriptionRecord, Tally,
    Tenant,
};

use super::index::Index;

/// Milliseconds of a minute.
pub(super) const MINUTE_MS: i64 = 60_000;

/// The kind, the tenant (`None` is the server) and the name of a document.
pub(super) type DocumentKey = (DocumentKind, Option<TenantId>, String);

/// A stored event.
#[derive(Debug, Clone)]
pub(super) struct StoredEvent {
    pub(super) record: EventRecord,
    pub(super) fingerprint: [u8; 32],
    pub(super) deliveries: Vec<DeliveryId>,
}

/// The whole state of a store.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) tenants: BTreeMap<TenantId, Tenant>,
    pub(super) keys: BTreeMap<String, Key>,
    pub(super) subscriptions: BTreeMap<(TenantId, SubscriptionId), SubscriptionRecord>,
    pub(super) destinations: BTreeMap<(TenantId, DestinationId), DestinationRecord>,
    /// Destinations that nothing uses, with the time since when.
    pub(super) unused_since: BTreeMap<(TenantId, DestinationId), Timestamp>,
    pub(super) answers: BTreeMap<(TenantId, String), IdempotentAnswer>,
    pub(super) audit: BTreeMap<AuditId, AuditEntry>,
    pub(super) passes: BTreeMap<String, Pass>,
    pub(super) documents: BTreeMap<DocumentKey, Document>,
    pub(super) events: BTreeMap<(TenantId, EventId), StoredEvent>,
    pub(super) deliveries: BTreeMap<DeliveryId, Delivery>,
    pub(super) attempts: BTreeMap<DeliveryId, BTreeMap<u32, Attempt>>,
    /// Transitions by destination, in the order of writing.
    pub(super) transitions: BTreeMap<(TenantId, DestinationId), Vec<Transition>>,
    pub(super) replays: BTreeMap<(TenantId, ReplayId), ReplayJob>,
    pub(super) ledgers: BTreeMap<TenantId, Ledger>,
    /// Tallies by tenant and minute since the epoch.
    pub(super) tallies: BTreeMap<(TenantId, i64), Tally>,
    /// Hours of attempts by destination and hour since the epoch, with the destination's tenant.
    pub(super) attempt_hours: BTreeMap<(DestinationId, i64), (TenantId, AttemptHour)>,
    /// Claimed values, which never change.
    pub(super) claims: BTreeMap<String, Vec<u8>>,
    /// Changes by other nodes; their number is the version of the configuration.
    pub(super) changes: Vec<Change>,
    /// How often each shard was given to another node; missing means never.
    given_away: BTreeMap<Shard, u64>,
    /// Shards that another node should get, and those that it has.
    pub(super) wanted: ShardSet,
    pub(super) elsewhere: ShardSet,

    pub(super) events_of: Index<TenantId, (Timestamp, EventId)>,
    pub(super) deliveries_of: Index<TenantId, (Timestamp, DeliveryId)>,
    /// Queued deliveries by acceptance.
    pub(super) queued: Index<(), (Timestamp, DeliveryId)>,
    pub(super) queued_of: Index<DestinationId, (Timestamp, DeliveryId)>,
    /// Waiting deliveries by due time.
    pub(super) due: Index<(), (Timestamp, DeliveryId)>,
    /// Waiting deliveries of a destination in the order of probes: never attempted first, then by
    /// last attempt.
    pub(super) probe_rank: Index<DestinationId, (Option<Timestamp>, DeliveryId)>,
    /// Waiting deliveries of a destination by acceptance.
    pub(super) waiting_of: Index<DestinationId, (Timestamp, DeliveryId)>,
    /// Waiting deliveries of a destination by due time.
    pub(super) due_of: Index<DestinationId, (Timestamp, DeliveryId)>,
    pub(super) unfinished_of: Index<SubscriptionId, DeliveryId>,
}

impl State {
    /// The version of the last change by another node.
    pub(super) fn version(&self) -> u64 {
        u64::try_from(self.changes.len()).unwrap_or(u64::MAX)
    }

    /// The delivery, if it belongs to this tenant.
    pub(super) fn delivery(&self, tenant: &TenantId, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id).filter(|delivery| delivery.tenant == *tenant)
    }

    /// The deliveries of these identifiers, in order.
    pub(super) fn fetch<'a>(
        &'a self,
        ids: impl Iterator<Item = DeliveryId> + 'a,
    ) -> impl Iterator<Item = &'a Delivery> {
        ids.filter_map(|id| self.deliveries.get(&id))
    }

    /// Stores a delivery and updates all indexes.
    pub(super) fn put_delivery(&mut self, delivery: Delivery) {
        self.remove_delivery(delivery.id);
        let Delivery { id, destination, created_at, .. } = delivery;
        self.deliveries_of.insert(delivery.tenant.clone(), (created_at, id));
        match delivery.state {
            DeliveryState::Queued => {
                self.queued.insert((), (created_at, id));
                self.queued_of.insert(destination, (created_at, id));
                self.unfinished_of.insert(delivery.subscription, id);
            }
            DeliveryState::Waiting(slot) => {
                self.due.insert((), (slot.due_at, id));
                self.probe_rank.insert(destination, delivery.probe_rank());
                self.waiting_of.insert(destination, (created_at, id));
                self.due_of.insert(destination, (slot.due_at, id));
                self.unfinished_of.insert(delivery.subscription, id);
            }
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {}
        }
        self.deliveries.insert(id, delivery);
    }

    /// Removes a delivery; its attempts stay.
    pub(super) fn remove_delivery(&mut self, id: DeliveryId) {
        let Some(delivery) = self.deliveries.remove(&id) else { return };
        let Delivery { destination, created_at, .. } = delivery;
        self.deliveries_of.remove(&delivery.tenant, &(created_at, id));
        match delivery.state {
            DeliveryState::Queued => {
                self.queued.remove(&(), &(created_at, id));
                self.queued_of.remove(&destination, &(created_at, id));
                self.unfinished_of.remove(&delivery.subscription, &id);
            }
            DeliveryState::Waiting(slot) => {
                self.due.remove(&(), &(slot.due_at, id));
                self.probe_rank.remove(&destination, &delivery.probe_rank());
                self.waiting_of.remove(&destination, &(created_at, id));
                self.due_of.remove(&destination, &(slot.due_at, id));
                self.unfinished_of.remove(&delivery.subscription, &id);
            }
            DeliveryState::Delivered { .. }
            | DeliveryState::Dead { .. }
            | DeliveryState::Cancelled { .. } => {}
        }
    }

    /// The tally of the minute of `at`.
    pub(super) fn tally(&mut self, tenant: &TenantId, at: Timestamp) -> &mut Tally {
        let minute = at.as_unix_ms().div_euclid(MINUTE_MS);
        self.tallies.entry((tenant.clone(), minute)).or_default()
    }

    /// Counts a change of a delivery in the tallies.
    pub(super) fn tally_change(&mut self, tenant: &TenantId, movement: &Movement) {
        if let Some(at) = movement.delivered_at {
            self.tally(tenant, at).delivered += 1;
        }
        if let Some(at) = movement.dead_at {
            self.tally(tenant, at).dead += 1;
        }
        if let Some(at) = movement.failed_at {
            self.tally(tenant, at).failed += 1;
        }
    }

    /// All shards that no other node has, each with its current epoch.
    pub(super) fn leases(&self) -> ShardLeases {
        let here = (0..=u8::MAX).map(Shard).filter(|shard| !self.elsewhere.has(*shard));
        ShardLeases { shards: here.map(|shard| (shard, self.epoch(shard))).collect() }
    }

    /// Gives shards to the other node that should get them.
    pub(super) fn give_back(&mut self, shards: &ShardSet) {
        for shard in shards.without(&self.elsewhere).iter() {
            self.give_away(shard);
            self.elsewhere.insert(shard);
        }
    }

    /// Sets the shards that another node should get; others that it had come back.
    pub(super) fn want(&mut self, shards: ShardSet) {
        let returned = self.elsewhere.without(&shards);
        self.wanted = shards;
        self.elsewhere = self.elsewhere.without(&returned);
    }

    pub(super) fn give_away(&mut self, shard: Shard) {
        *self.given_away.entry(shard).or_default() += 1;
    }

    /// The first shard whose lease is stale or missing.
    pub(super) fn fenced(
        &self,
        leases: &ShardLeases,
        touched: impl IntoIterator<Item = Shard>,
    ) -> Option<Shard> {
        let held = |shard: Shard| {
            let place = leases.shards.binary_search_by_key(&shard, |(held, _)| *held).ok()?;
            leases.shards.get(place).map(|(_, epoch)| *epoch)
        };
        touched.into_iter().find(|shard| held(*shard) != Some(self.epoch(*shard)))
    }

    fn epoch(&self, shard: Shard) -> Epoch {
        Epoch(1 + self.given_away.get(&shard).copied().unwrap_or(0))
    }
}
