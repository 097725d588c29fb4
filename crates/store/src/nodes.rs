//! Several nodes on one store: the messages between them, and work that only one of them may do.
//!
//! A store for one node is the trivial case: there is no other node, and it uses every default here.
//! **A hint may be lost**: the change that it announces is in the store, and the engine also polls for
//! it.

use std::time::Duration;

use async_trait::async_trait;
use postrider_domain::ids::{Shard, SubscriptionId, TenantId};
use postrider_domain::time::Timestamp;
use tokio::sync::broadcast;

use crate::contract::{Intake, Upkeep};
use crate::error::StoreError;
use crate::records::{Acceptance, Accepted, ShardLeases};

/// The newest format level that this version reads and writes.
///
/// A level covers everything that one node writes and another reads: columns, sealed values,
/// messages. A version that writes something that the version before it cannot read raises the
/// level by one, and writes it only where [`Nodes::format`] says so.
///
/// | level | since | what |
/// |---|---|---|
/// | 0 | 0.1.0, commit 414a721 | nodes without a level in the database |
/// | 1 | the version after it | nodes write their version and level |
/// | 2 | 0.2.0 | subscriptions with a name, description, metadata, `uid`, a policy or the format `workfront` |
/// | 3 | 0.2.0 | waiting deliveries name the bulk job that sent them |
pub const FORMAT: u32 = 3;

/// The version of this program, as a node tells it to the others.
pub const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// The methods by which nodes on one store coordinate.
#[async_trait]
pub trait Nodes: Intake + Upkeep {
    /// The format level that may be written: every node of the store reads it. It is [`FORMAT`] unless
    /// an older node runs. **It never falls**: once it has risen, an older node that comes back is
    /// refused, so a caller may write what it was told it may write at any time after.
    async fn format(&self) -> Result<u32, StoreError> {
        Ok(FORMAT)
    }

    /// The name of this node; `None` for a store that only one node can open.
    fn node(&self) -> Option<&str> {
        None
    }

    /// How long leases last, from the *start* of the call of [`crate::Upkeep::hold_shards`]; `None`
    /// where no other node could take the shards.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Takes or renews leases as [`crate::Upkeep::hold_shards`] does. Returns also the shards to hand
    /// over to other nodes, without releasing them: the engine starts nothing new in these shards, waits
    /// until its attempts there have ended, and then calls [`Nodes::give_back`].
    async fn hold_and_keep(&self) -> Result<(ShardLeases, ShardSet), StoreError> {
        Ok((self.hold_shards().await?, ShardSet::default()))
    }

    /// Releases the leases of these shards, where this node has them.
    async fn give_back(&self, shards: &ShardSet) -> Result<(), StoreError> {
        let _ = shards;
        Ok(())
    }

    /// Receives hints, a few milliseconds after the change that they announce. A receiver that lags
    /// has missed some hints and should look for every kind of change.
    fn hints(&self) -> Option<broadcast::Receiver<Hint>> {
        None
    }

    /// Accepts as [`Intake::accept`] does, unless a subscription of the batch's tenant changed after
    /// `version`: then nothing is written and the answer is `None`, and the caller matches again with
    /// the current subscriptions.
    async fn accept_as_of(
        &self,
        batch: Vec<Acceptance>,
        version: u64,
    ) -> Result<Option<Vec<Accepted>>, StoreError> {
        let _ = version;
        self.accept(batch).await.map(Some)
    }

    /// Changes of the configuration after `version`, by any node, oldest first.
    async fn changes(&self, version: u64) -> Result<Changes, StoreError> {
        Ok(Changes { version, ..Changes::default() })
    }

    /// Every living node with the shards that it owns.
    async fn members(&self) -> Result<Vec<Member>, StoreError> {
        Ok(Vec::new())
    }

    /// Sends messages to other nodes. A message to a node that has left is never delivered.
    async fn send_messages(&self, messages: &[PeerMessage]) -> Result<(), StoreError> {
        let _ = messages;
        Ok(())
    }

    /// Takes the messages to this node, each once.
    async fn take_messages(&self) -> Result<Vec<PeerMessage>, StoreError> {
        Ok(Vec::new())
    }

    /// Sets a value under a name: the first value stays. Returns the value that is set.
    async fn claim(&self, name: &str, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        let _ = name;
        Ok(value.to_vec())
    }

    /// The value that is set under a name.
    async fn claimed(&self, name: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Replaces the value under a name, if it is `expected` (`None`: if none is set). Returns whether
    /// it was: of several callers that expect the same, one succeeds.
    async fn replace_claim(
        &self,
        name: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError>;

    /// Claims the work on the answer for an idempotency key. Returns whether the caller may do the
    /// work: no other node has claimed it within the time `within`.
    async fn begin_answer(
        &self,
        tenant: &TenantId,
        key: &str,
        within: Duration,
    ) -> Result<bool, StoreError> {
        let _ = (tenant, key, within);
        Ok(true)
    }

    /// Releases the claim on an idempotency key, after its answer was stored or the request failed
    /// without one.
    async fn end_answer(&self, tenant: &TenantId, key: &str) -> Result<(), StoreError> {
        let _ = (tenant, key);
        Ok(())
    }
}

/// A hint that something changed in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Deliveries of these shards were accepted by another node.
    Work {
        /// Which shards.
        shards: ShardSet,
        /// When the oldest of the new deliveries was accepted.
        since: Timestamp,
    },
    /// The configuration changed.
    Changed,
    /// There are messages for this node.
    Messages,
    /// A node joined, left or released shards: the shards of this node may have changed.
    Shards,
}

/// What changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The version of the last change in it: ask for changes after this version next.
    pub version: u64,
    /// Whether there are more changes to ask for.
    pub is_cut: bool,
    /// The requested changes are pruned already: everything may have changed.
    pub everything: bool,
    /// What changed.
    pub list: Vec<Change>,
}

/// One change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A subscription was put, or marked as deleted.
    Subscription(TenantId, SubscriptionId),
    /// A key was deleted.
    Key(String),
    /// A tenant was changed or deleted.
    Tenant(TenantId),
}

/// A node whose lease has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The node's name.
    pub name: String,
    /// The shards that it owns.
    pub shards: ShardSet,
    /// The version of its program; `None` where that is too old to say so.
    pub program: Option<String>,
    /// The newest format level that it reads.
    pub format: u32,
    /// When it was last seen: it renews its leases every few seconds.
    pub seen_at: Timestamp,
}

/// A message from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerMessage {
    /// The message's own identifier.
    pub id: [u8; 16],
    /// The node that sent it.
    pub from: String,
    /// The node that it is for.
    pub to: String,
    /// The contents. Opaque to the store.
    pub body: String,
}

/// A set of shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardSet(pub(crate) [u64; 4]);

impl ShardSet {
    /// All shards.
    pub const ALL: ShardSet = ShardSet([u64::MAX; 4]);

    /// Adds a shard.
    pub fn insert(&mut self, shard: Shard) {
        self.0[usize::from(shard.0 / 64)] |= 1 << (shard.0 % 64);
    }

    /// Whether the shard is in the set.
    pub fn has(&self, shard: Shard) -> bool {
        self.0[usize::from(shard.0 / 64)] & (1 << (shard.0 % 64)) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// The shards of the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = Shard> {
        (0..=u8::MAX).map(Shard).filter(|shard| self.has(*shard))
    }

    /// Adds all shards of another set.
    pub fn extend(&mut self, other: &ShardSet) {
        self.0.iter_mut().zip(other.0).for_each(|(all, new)| *all |= new);
    }

    /// The shards of this set that the other one does not have.
    pub fn without(mut self, other: &ShardSet) -> ShardSet {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine &= !theirs);
        self
    }

    pub(crate) fn write(&self) -> String {
        self.0.iter().map(|part| format!("{part:016x}")).collect()
    }

    pub(crate) fn read(text: &str) -> Option<ShardSet> {
        let mut set = ShardSet::default();
        for (n, part) in set.0.iter_mut().enumerate() {
            *part = u64::from_str_radix(text.get(n * 16..(n + 1) * 16)?, 16).ok()?;
        }
        Some(set)
    }
}

impl FromIterator<Shard> for ShardSet {
    fn from_iter<T: IntoIterator<Item = Shard>>(shards: T) -> Self {
        let mut set = ShardSet::default();
        shards.into_iter().for_each(|shard| set.insert(shard));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_set_parses_back_from_its_text() {
        let some: ShardSet = [0, 5, 63, 64, 200, 255].map(Shard).into_iter().collect();
        for set in [ShardSet::default(), some, ShardSet::ALL] {
            assert_eq!(ShardSet::read(&set.write()), Some(set));
            assert_eq!(set.iter().collect::<ShardSet>(), set);
        }
        assert_eq!(some.iter().count(), 6);
        for nonsense in ["", "zz", &"0".repeat(63), &"ä".repeat(40)] {
            assert_eq!(ShardSet::read(nonsense), None, "{nonsense}");
        }
    }
}
