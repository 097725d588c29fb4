//! Records that are acknowledged but not in SQLite yet.
//!
//! A read of one tenant's deliveries and events need not wait for the applier, which may be busy
//! with other tenants: it takes the batches that are not applied, picks the tenant's records out of
//! them, and lays them over the rows of SQLite ([`Overlay`]). A batch is indexed by tenant when a
//! read needs it for the first time, so batches that nobody reads cost nothing.

use std::sync::{Arc, OnceLock};

use postrider_domain::delivery::Delivery;
use postrider_domain::ids::{DeliveryId, EventId, TenantId};

use super::kind;
use crate::embedded::QuickMap;
use crate::embedded::journal::Record;
use crate::records::{Acceptance, Commit, DeliveryChange, EventRecord};

/// A tenant with more unapplied changes than this waits for the applier.
pub(in crate::embedded) const CHANGES_MAX: usize = 2_000;

/// Records that became durable in the journal together.
#[derive(Debug)]
pub(in crate::embedded) struct Batch {
    records: Vec<Record>,
    by_tenant: OnceLock<ByTenant>,
}

/// Where the changes of a tenant are: the index of the record, and the index in it.
type ByTenant = QuickMap<TenantId, Vec<(usize, usize)>>;

/// The contents of a record, as its writer provided them.
enum Decoded<'r> {
    Nothing,
    Accept(&'r [Acceptance]),
    Settle(&'r [DeliveryChange]),
}

fn decoded(record: &Record) -> Decoded<'_> {
    let Some(meaning) = &record.meaning else { return Decoded::Nothing };
    let accepted = || meaning.get::<Vec<Acceptance>>().map(|batch| Decoded::Accept(batch));
    let settled = || meaning.get::<Commit>().map(|commit| Decoded::Settle(&commit.deliveries));
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
            for (place, record) in self.records.iter().enumerate() {
                let mut add = |tenant: &TenantId, within| match index.get_mut(tenant) {
                    Some(places) => places.push((place, within)),
                    None => drop(index.insert(tenant.clone(), vec![(place, within)])),
                };
                match decoded(record) {
                    Decoded::Nothing => {}
                    Decoded::Accept(batch) => {
                        let tenants = batch.iter().map(|acceptance| &acceptance.event.tenant);
                        tenants.enumerate().for_each(|(within, tenant)| add(tenant, within));
                    }
                    Decoded::Settle(changes) => {
                        let tenants = changes.iter().map(|change| &change.delivery.tenant);
                        tenants.enumerate().for_each(|(within, tenant)| add(tenant, within));
                    }
                }
            }
            index
        })
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
            let places = batch.by_tenant().get(tenant).map_or(&[][..], Vec::as_slice);
            for (place, within) in places {
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
                    Decoded::Settle(settled) => {
                        changes += 1;
                        if changes > CHANGES_MAX {
                            return None;
                        }
                        overlay.put(&settled.get(*within)?.delivery);
                    }
                }
            }
        }
        Some(overlay)
    }
}

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
