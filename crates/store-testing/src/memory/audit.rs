//! The audit log.

use std::collections::BTreeMap;

use async_trait::async_trait;
use postrider_domain::ids::AuditId;
use postrider_domain::time::Timestamp;
use postrider_store::{Audit, AuditEntry, AuditFilter, Cursor, Page, PageRequest, StoreError};

use super::MemoryStore;
use super::state::State;

#[async_trait]
impl Audit for MemoryStore {
    async fn put_audit(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        let entry = entry.clone();
        self.write(move |state| {
            state.audit.insert(entry.id, entry);
            Ok(())
        })
        .await
    }

    async fn audit(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let below: Option<AuditId> = match &page.cursor {
            None => None,
            Some(Cursor(text)) => Some(text.parse().map_err(|_| StoreError::UnknownCursor)?),
        };
        let (low, high) = filter.bounds(below);
        self.read(|state| {
            let entries =
                state.audit.values().rev().filter(|entry| {
                    (low..high).contains(entry.id.as_bytes()) && filter.wants(entry)
                });
            let mut items: Vec<AuditEntry> = entries.take(page.limit + 1).cloned().collect();
            let is_more = items.len() > page.limit;
            items.truncate(page.limit);
            let next = items.last().filter(|_| is_more).map(|last| Cursor(last.id.to_string()));
            Ok(Page { items, next })
        })
        .await
    }

    async fn prune_audit(
        &self,
        before: Timestamp,
        most: u64,
        refused_most: u64,
    ) -> Result<u64, StoreError> {
        self.write(move |state| Ok(state.prune_audit(before, most, refused_most))).await
    }
}

impl State {
    fn prune_audit(&mut self, before: Timestamp, most: u64, refused_most: u64) -> u64 {
        let older = AuditFilter { until: Some(before), ..AuditFilter::default() };
        let (all, (_, first)) = (self.audit.len(), older.bounds(None));
        self.audit.retain(|id, _| *id.as_bytes() >= first);
        let mut counts: BTreeMap<_, (u64, u64)> = BTreeMap::new();
        let mut gone = Vec::new();
        for entry in self.audit.values().rev() {
            let (entries, refused) = counts.entry(entry.tenant.clone()).or_default();
            *entries += 1;
            *refused += u64::from(entry.is_refused());
            if *entries > most || (entry.is_refused() && *refused > refused_most) {
                gone.push(entry.id);
            }
        }
        gone.iter().for_each(|id| drop(self.audit.remove(id)));
        u64::try_from(all - self.audit.len()).unwrap_or(u64::MAX)
    }
}
