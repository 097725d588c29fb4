//! Coordination of nodes: shards are logged, acceptances counted, the rest is passed on.

use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::ids::TenantId;
use postrider_store::{
    Acceptance, Accepted, Changes, Hint, Member, Nodes, PeerMessage, ShardLeases, ShardSet,
    StoreError,
};
use tokio::sync::broadcast;

use super::{InstrumentedStore, instant, owed};

#[async_trait]
impl Nodes for InstrumentedStore {
    fn node(&self) -> Option<&str> {
        self.store.node()
    }

    fn lease(&self) -> Option<Duration> {
        self.store.lease()
    }

    async fn hold_and_keep(&self) -> Result<(ShardLeases, ShardSet), StoreError> {
        let result = self.store.hold_and_keep().await;
        self.shard_log.tell(self.store.node(), result.as_ref().map(|(leases, _)| leases));
        result
    }

    async fn give_back(&self, shards: &ShardSet) -> Result<(), StoreError> {
        self.store.give_back(shards).await
    }

    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        self.store.hints()
    }

    async fn accept_as_of(
        &self,
        batch: Vec<Acceptance>,
        version: u64,
    ) -> Result<Option<Vec<Accepted>>, StoreError> {
        let owed = owed(&batch);
        let began = instant();
        let result = self.store.accept_as_of(batch, version).await;
        match &result {
            Ok(Some(answers)) => self.accepted(answers, &owed, began),
            Ok(None) => {}
            Err(error) => self.refused(error),
        }
        result
    }

    async fn changes(&self, version: u64) -> Result<Changes, StoreError> {
        self.store.changes(version).await
    }

    async fn format(&self) -> Result<u32, StoreError> {
        self.store.format().await
    }

    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        self.store.members().await
    }

    async fn send_messages(&self, messages: &[PeerMessage]) -> Result<(), StoreError> {
        self.store.send_messages(messages).await
    }

    async fn take_messages(&self) -> Result<Vec<PeerMessage>, StoreError> {
        self.store.take_messages().await
    }

    async fn claim(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.store.claim(name, value).await
    }

    async fn claimed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.store.claimed(name).await
    }

    async fn replace_claim(
        &self,
        name: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        self.store.replace_claim(name, expected, value).await
    }

    async fn begin_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        within: Duration,
    ) -> Result<bool, StoreError> {
        self.store.begin_answer(tenant, key, within).await
    }

    async fn end_answer(&self, tenant: &TenantId, key: &str) -> Result<(), StoreError> {
        self.store.end_answer(tenant, key).await
    }
}
