//! Records that are acknowledged but not in SQLite yet.
//!
//! A read of one tenant's deliveries and events need not wait for the applier, which may be busy
//! with other tenants: it takes the batches that are not applied, picks the tenant's records out of
//! them, and lays them over the rows of SQLite ([`Overlay`]). A read of sums waits for the applier only if
//! something that it depends on is not applied ([`Needs`]), because a sum over both could count a record
//! twice. A batch is indexed by tenant when a read needs it for the first time, so batches that nobody reads
//! cost nothing.

use std::sync::{Arc, OnceLock};

use postrider_domain::attempt::Attempt;
use postrider_domain::circuit::Circuit;
use postrider_domain::delivery::{Delivery, StateName};
use postrider_domain::ids::{DeliveryId, DestinationId, EventId, TenantId};

use super::kind;
use crate::embedded::QuickMap;
use crate::embedded::journal::Record;
use crate::records::{Acceptance, Commit, DeliveryChange, DestinationChange, EventRecord};

/// A tenant with more unapplied changes than this waits for the applier.
pub(in crate::embedded) const CHANGES_MAX: usize = 2_000;

/// Records that became durable in the journal together.
#[derive(Debug)]
pub(in crate::embedded) struct Batch {
    records: Vec<Record>,
    by_tenant: OnceLock<ByTenant>,
}

type ByTenant = QuickMap<TenantId, OfTenant>;

/// Where the changes of a tenant are: the index of the record, and the index in it.
#[derive(Debug, Default)]
struct OfTenant {
    /// Acceptances and changes of deliveries.
    changes: Vec<(usize, usize)>,
    /// Changes of destinations.
    destinations: Vec<(usize, usize)>,
    /// Whether a replay job advanced.
    has_replay: bool,
    /// Whether the outcomes of a replay job changed.
    has_outcome: bool,
}

/// What a read depends on: it waits for the applier while something of it is not applied.
#[derive(Debug)]
pub(in crate::embedded) enum Needs {
    /// Everything of the tenant.
    Everything,
    /// How many deliveries wait for these destinations.
    WaitingFor(Vec<DestinationId>),
    /// The attempts at these destinations.
    AttemptsAt(Vec<DestinationId>),
    /// The transitions of this destination's circuit.
    TransitionsOf(DestinationId),
    /// The progress and the outcomes of replay jobs.
    Replays,
}

/// The contents of a record, as its writer provided them.
enum Decoded<'r> {
    Nothing,
    Accept(&'r [Acceptance]),
    Settle(&'r Commit),
}

fn decoded(record: &Record) -> Decoded<'_> {
    let Some(meaning) = &record.meaning else { return Decoded::Nothing };
    let accepted = || meaning.get::<Vec<Acceptance>>().map(|batch| Decoded::Accept(batch));
    let settled = || meaning.get::<Commit>().map(Decoded::Settle);
    let found = match record.kind {
        kind::ACCEPT => accepted(),
        kind::SETTLE => settled(),
        _ => None,
    };
    found.unwrap_or(Decoded::Nothing)
}

impl Batch {
    /// Records of a running store: each has its decoded value.
    pub(in crate::embedded) fn new(records: Vec<Record>) -> Self {
        Batch { records, by_tenant: OnceLock::new() }
    }

    pub(in crate::embedded) fn records(&self) -> &[Record] {
        &self.records
    }

    /// The size of the records in the journal.
    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(|record| record.bytes).sum()
    }

    fn by_tenant(&self) -> &ByTenant {
        self.by_tenant.get_or_init(|| {
            let mut index = ByTenant::default();
            let mut add = |tenant: &TenantId, note: &dyn Fn(&mut OfTenant)| {
                if let Some(of) = index.get_mut(tenant) {
                    note(of);
                } else {
                    note(index.entry(tenant.clone()).or_default());
                }
            };
            for (place, record) in self.records.iter().enumerate() {
                match decoded(record) {
                    Decoded::Nothing => {}
                    Decoded::Accept(batch) => {
                        for (within, acceptance) in batch.iter().enumerate() {
                            add(&acceptance.event.tenant, &|of| of.changes.push((place, within)));
                        }
                    }
                    Decoded::Settle(commit) => {
                        for (within, change) in commit.deliveries.iter().enumerate() {
                            add(&change.delivery.tenant, &|of| {
                                of.changes.push((place, within));
                                of.has_outcome |= change.moves_outcome();
                            });
                        }
                        for (within, change) in commit.destinations.iter().enumerate() {
                            add(&change.tenant, &|of| of.destinations.push((place, within)));
                        }
                        if let Some(job) = &commit.replay {
                            add(&job.tenant, &|of| of.has_replay = true);
                        }
                    }
                }
            }
            index
        })
    }

    /// A tenant's changes of deliveries, without acceptances.
    fn settled<'b>(&'b self, of: &'b OfTenant) -> impl Iterator<Item = &'b DeliveryChange> {
        of.changes.iter().filter_map(|(place, within)| match decoded(self.records.get(*place)?) {
            Decoded::Settle(commit) => commit.deliveries.get(*within),
            Decoded::Nothing | Decoded::Accept(_) => None,
        })
    }

    /// A tenant's changes of destinations.
    fn destinations<'b>(&'b self, of: &'b OfTenant) -> impl Iterator<Item = &'b DestinationChange> {
        of.destinations.iter().filter_map(|(place, within)| {
            match decoded(self.records.get(*place)?) {
                Decoded::Settle(commit) => commit.destinations.get(*within),
                Decoded::Nothing | Decoded::Accept(_) => None,
            }
        })
    }

    fn has(&self, of: &OfTenant, needs: &Needs) -> bool {
        let waits = |state| state == StateName::Waiting;
        match needs {
            Needs::Everything => true,
            Needs::WaitingFor(destinations) => self.settled(of).any(|change| {
                waits(change.before) != waits(change.delivery.state.name())
                    && destinations.contains(&change.delivery.destination)
            }),
            Needs::AttemptsAt(destinations) => self.settled(of).any(|change| {
                change.attempt.is_some() && destinations.contains(&change.delivery.destination)
            }),
            Needs::TransitionsOf(id) => self
                .destinations(of)
                .any(|change| change.id == *id && !change.transitions.is_empty()),
            Needs::Replays => of.has_replay || of.has_outcome,
        }
    }
}

/// All batches that were not applied at one moment, oldest first.
#[derive(Debug)]
pub(in crate::embedded) struct Unapplied(pub(super) Vec<Arc<Batch>>);

impl Unapplied {
    /// A tenant's changes in these batches; `None` if they are too many to be merged for one read.
    pub(in crate::embedded) fn of(&self, tenant: &TenantId) -> Option<Overlay> {
        let mut overlay = Overlay::default();
        let mut changes = 0;
        for batch in &self.0 {
            let Some(of) = batch.by_tenant().get(tenant) else { continue };
            for (place, within) in &of.changes {
                match decoded(batch.records.get(*place)?) {
                    Decoded::Nothing => return None,
                    Decoded::Accept(accepted) => {
                        let acceptance = accepted.get(*within)?;
                        changes += 1 + acceptance.deliveries.len();
                        if changes > CHANGES_MAX {
                            return None;
                        }
                        overlay.accept(acceptance);
                    }
                    Decoded::Settle(commit) => {
                        changes += 1;
                        if changes > CHANGES_MAX {
                            return None;
                        }
                        overlay.put(&commit.deliveries.get(*within)?.delivery);
                    }
                }
            }
        }
        Some(overlay)
    }

    /// Whether something of a tenant that a read depends on is not applied.
    pub(in crate::embedded) fn has(&self, tenant: &TenantId, needs: &Needs) -> bool {
        self.of_tenant(tenant).any(|(batch, of)| batch.has(of, needs))
    }

    /// Whether a replay job of any tenant advanced.
    pub(in crate::embedded) fn has_replays(&self) -> bool {
        self.0.iter().any(|batch| batch.by_tenant().values().any(|of| of.has_replay))
    }

    /// The latest circuits of a tenant's destinations; `None` if they are too many for one read.
    pub(in crate::embedded) fn circuits(&self, tenant: &TenantId) -> Option<Circuits> {
        let mut latest = QuickMap::default();
        for (batch, of) in self.of_tenant(tenant) {
            for change in batch.destinations(of) {
                latest.insert(change.id, &change.circuit);
            }
            if latest.len() > CHANGES_MAX {
                return None;
            }
        }
        Some(latest.into_iter().map(|(id, circuit)| (id, circuit.clone())).collect())
    }

    /// The attempts of a delivery, oldest first.
    pub(in crate::embedded) fn attempts(&self, tenant: &TenantId, id: DeliveryId) -> Vec<Attempt> {
        self.of_tenant(tenant)
            .flat_map(|(batch, of)| batch.settled(of))
            .filter(|change| change.delivery.id == id)
            .filter_map(|change| change.attempt.clone())
            .collect()
    }

    fn of_tenant(&self, tenant: &TenantId) -> impl Iterator<Item = (&Batch, &OfTenant)> {
        self.0
            .iter()
            .filter_map(|batch| batch.by_tenant().get(tenant).map(|of| (batch.as_ref(), of)))
    }
}

/// Unapplied circuits of destinations.
pub(in crate::embedded) type Circuits = QuickMap<DestinationId, Circuit>;

/// A tenant's unapplied deliveries and events, in their latest states. SQLite may have some of them
/// already, in the same state or a later one.
#[derive(Debug, Default)]
pub(in crate::embedded) struct Overlay {
    deliveries: QuickMap<DeliveryId, Delivery>,
    events: QuickMap<EventId, EventRecord>,
}

impl Overlay {
    fn accept(&mut self, acceptance: &Acceptance) {
        let Acceptance { event, accepted_at, deliveries, .. } = acceptance;
        let record = EventRecord {
            event: Arc::clone(event),
            accepted_at: *accepted_at,
            deliveries: u32::try_from(deliveries.len()).unwrap_or(u32::MAX),
            mark: acceptance.mark.clone(),
        };
        self.events.insert(event.id.clone(), record);
        deliveries.iter().for_each(|delivery| self.put(delivery));
    }

    fn put(&mut self, delivery: &Delivery) {
        self.deliveries.insert(delivery.id, delivery.clone());
    }

    pub(in crate::embedded) fn delivery(&self, id: DeliveryId) -> Option<&Delivery> {
        self.deliveries.get(&id)
    }

    /// All deliveries, in no order.
    pub(in crate::embedded) fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.values()
    }

    pub(in crate::embedded) fn event(&self, id: &EventId) -> Option<&EventRecord> {
        self.events.get(id)
    }

    /// All events, in no order.
    pub(in crate::embedded) fn events(&self) -> impl Iterator<Item = &EventRecord> {
        self.events.values()
    }
}
