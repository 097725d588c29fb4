//! Accepting events.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_domain::ids::{EventId, TenantId};
use postrider_store::{Acceptance, Accepted, EventRecord, Intake, StoreError};

use super::state::{State, StoredEvent};
use super::{Durable, MemoryStore};

#[async_trait]
impl Intake for MemoryStore {
    async fn accept(&self, batch: Vec<Acceptance>) -> Result<Vec<Accepted>, StoreError> {
        let witness = self.options.witness.clone();
        self.write(move |state| {
            let answers = state.judge(&batch);
            if !answers.contains(&Accepted::Conflict) {
                for (acceptance, answer) in batch.into_iter().zip(&answers) {
                    if *answer == Accepted::New {
                        if let Some(witness) = &witness {
                            witness(Durable::Accepted(&acceptance));
                        }
                        state.accept(acceptance);
                    }
                }
            }
            Ok(answers)
        })
        .await
    }
}

impl State {
    /// The answer for each event of a batch.
    fn judge(&self, batch: &[Acceptance]) -> Vec<Accepted> {
        let mut earlier: BTreeMap<(TenantId, EventId), ([u8; 32], u32)> = BTreeMap::new();
        let judge = |acceptance: &Acceptance| {
            let key = (acceptance.event.tenant.clone(), acceptance.event.id.clone());
            let stored = self.events.get(&key);
            let known = stored
                .map(|event| (event.fingerprint, event.record.deliveries))
                .or_else(|| earlier.get(&key).copied());
            match known {
                Some((fingerprint, deliveries)) if fingerprint == acceptance.fingerprint => {
                    Accepted::Duplicate { deliveries }
                }
                Some(_) => Accepted::Conflict,
                None => {
                    earlier.insert(key, (acceptance.fingerprint, deliveries(acceptance)));
                    Accepted::New
                }
            }
        };
        batch.iter().map(judge).collect()
    }

    fn accept(&mut self, acceptance: Acceptance) {
        let count = deliveries(&acceptance);
        let Acceptance { event, accepted_at, fingerprint, deliveries, id_given: _, mark } =
            acceptance;
        let (tenant, id) = (event.tenant.clone(), event.id.clone());
        let record = EventRecord { event, accepted_at, deliveries: count, mark };
        let ids = deliveries.iter().map(|delivery| delivery.id).collect();
        let stored = StoredEvent { record, fingerprint, deliveries: ids };
        self.events.insert((tenant.clone(), id.clone()), stored);
        self.events_of.insert(tenant.clone(), (accepted_at, id));
        self.ledgers.entry(tenant.clone()).or_default().accept(u64::from(count));
        if count > 0 {
            self.tally(&tenant, accepted_at).accepted += u64::from(count);
        }
        deliveries.into_iter().for_each(|delivery| self.put_delivery(delivery));
    }
}

fn deliveries(acceptance: &Acceptance) -> u32 {
    u32::try_from(acceptance.deliveries.len()).unwrap_or(u32::MAX)
}
