//! Leases, pruning and closing.

use std::path::Path;

use async_trait::async_trait;
use postrider_domain::ids::{EventId, TenantId};
use postrider_domain::time::Timestamp;
use postrider_store::{
    Acceptance, Accepted, Changes, Intake as _, Nodes, Pruned, ShardLeases, ShardSet, StoreError,
    Upkeep,
};

use super::MemoryStore;
use super::state::{State, StoredEvent};

/// A single node, but a test can simulate another one.
#[async_trait]
impl Nodes for MemoryStore {
    async fn hold_and_keep(&self) -> Result<(ShardLeases, ShardSet), StoreError> {
        let sight = |state: &mut State| (state.leases(), state.wanted.without(&state.elsewhere));
        self.write(move |state| Ok(sight(state))).await
    }

    async fn give_back(&self, shards: &ShardSet) -> Result<(), StoreError> {
        let shards = *shards;
        self.write(move |state| {
            state.give_back(&shards);
            Ok(())
        })
        .await
    }

    async fn accept_as_of(
        &self,
        batch: Vec<Acceptance>,
        version: u64,
    ) -> Result<Option<Vec<Accepted>>, StoreError> {
        let newest = self.lock().durable.version();
        if version < newest { Ok(None) } else { self.accept(batch).await.map(Some) }
    }

    async fn changes(&self, version: u64) -> Result<Changes, StoreError> {
        let state = &self.lock().durable;
        let seen = usize::try_from(version).unwrap_or(usize::MAX).min(state.changes.len());
        let list = state.changes.get(seen..).unwrap_or_default().to_vec();
        Ok(Changes { version: state.version(), list, ..Changes::default() })
    }

    async fn claim(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.write(move |state| Ok(state.claims.entry(name).or_insert(value).clone())).await
    }

    async fn claimed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name.to_owned();
        self.read(move |state| Ok(state.claims.get(&name).cloned())).await
    }

    async fn replace_claim(
        &self,
        name: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let (name, value) = (name.to_owned(), value.to_vec());
        let expected = expected.map(<[u8]>::to_vec);
        self.write(move |state| {
            let is_expected = state.claims.get(&name) == expected.as_ref();
            if is_expected {
                state.claims.insert(name, value);
            }
            Ok(is_expected)
        })
        .await
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn hold_shards(&self) -> Result<ShardLeases, StoreError> {
        self.write(|state| Ok(state.leases())).await
    }

    async fn release_shards(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(())).await
    }

    async fn prune(&self, before: Timestamp) -> Result<Pruned, StoreError> {
        self.write(move |state| Ok(state.prune(before))).await
    }

    /// Always fails: a store in memory cannot be backed up.
    async fn backup(&self, target: &Path) -> Result<(), StoreError> {
        let why = format!("a store in memory cannot be copied to {}", target.display());
        Err(StoreError::Internal(why))
    }

    async fn erase_freed(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(())).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.lock().faults.would_fail()
    }

    async fn close(&self) -> Result<(), StoreError> {
        let mut shared = self.lock();
        shared.faults.check_stopped()?;
        shared.sync();
        Ok(())
    }
}

impl State {
    fn prune(&mut self, before: Timestamp) -> Pruned {
        let old: Vec<(TenantId, EventId)> = self
            .events
            .iter()
            .filter(|(_, event)| event.record.accepted_at < before && self.has_ended(event))
            .map(|(key, _)| key.clone())
            .collect();
        let mut pruned = Pruned::default();
        for key in old {
            let Some(event) = self.events.remove(&key) else { continue };
            self.events_of.remove(&key.0, &(event.record.accepted_at, key.1));
            pruned.events += 1;
            for id in event.deliveries {
                self.remove_delivery(id);
                pruned.deliveries += 1;
                let attempts = self.attempts.remove(&id).map_or(0, |log| log.len());
                pruned.attempts += u64::try_from(attempts).unwrap_or(u64::MAX);
            }
        }
        self.answers.retain(|_, answer| answer.created_at >= before);
        pruned
    }

    fn has_ended(&self, event: &StoredEvent) -> bool {
        self.fetch(event.deliveries.iter().copied()).all(|d| d.finished_at().is_some())
    }
}
