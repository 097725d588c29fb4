//! Telling other nodes that there is work for them.
//!
//! A hint, never the truth: the queues are the truth and are polled. It is sent apart from the
//! transaction that accepted the work, because PostgreSQL lets those that notify commit one by one;
//! what comes together within a few milliseconds is one message. Shards of this node's own are left
//! out: it knows already.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_domain::ids::Shard;
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use super::Core;
use super::address::Target;
use super::error::failed;
use super::pool::Scope;
use crate::error::StoreError;

const CHANNEL: &str = "postrider_work";

/// At most one message in so long.
const PAUSE: Duration = Duration::from_millis(3);

/// How long to wait before listening again after the connection was lost.
const RETRY: Duration = Duration::from_secs(1);

/// Some of the shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardSet([u64; 4]);

impl ShardSet {
    /// All of them.
    pub const ALL: ShardSet = ShardSet([u64::MAX; 4]);

    /// Puts one in.
    pub fn insert(&mut self, shard: Shard) {
        self.0[usize::from(shard.0 / 64)] |= 1 << (shard.0 % 64);
    }

    /// Whether it is in.
    pub fn has(&self, shard: Shard) -> bool {
        self.0[usize::from(shard.0 / 64)] & (1 << (shard.0 % 64)) != 0
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Those that are in, in order.
    pub fn iter(&self) -> impl Iterator<Item = Shard> {
        (0..=u8::MAX).map(Shard).filter(|shard| self.has(*shard))
    }

    fn without(mut self, other: &ShardSet) -> ShardSet {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine &= !theirs);
        self
    }

    fn write(&self) -> String {
        self.0.iter().map(|part| format!("{part:016x}")).collect()
    }

    fn read(text: &str) -> Option<ShardSet> {
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

/// Tells and hears.
pub(super) struct Notifier {
    listen_at: Mutex<Option<Target>>,
    heard: broadcast::Sender<ShardSet>,
    to_tell: Mutex<ShardSet>,
    told: Notify,
    is_on: bool,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Notifier {
    pub(super) fn new(listen_at: Option<Target>) -> Self {
        let (heard, _) = broadcast::channel(64);
        let is_on = listen_at.is_some();
        Notifier {
            listen_at: Mutex::new(listen_at),
            heard,
            to_tell: Mutex::default(),
            told: Notify::new(),
            is_on,
            tasks: Mutex::default(),
        }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<ShardSet> {
        self.heard.subscribe()
    }

    /// There is new work in these shards, and this node holds those.
    pub(super) fn tell(&self, shards: ShardSet, held: &ShardSet) {
        let others = shards.without(held);
        if !self.is_on || others.is_empty() {
            return;
        }
        let mut to_tell = self.to_tell.lock().unwrap_or_else(PoisonError::into_inner);
        to_tell.0.iter_mut().zip(others.0).for_each(|(all, new)| *all |= new);
        self.told.notify_one();
    }

    pub(super) fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Begins to tell and to hear.
pub(super) fn spawn(core: &Arc<Core>) {
    let notifier = &core.notifier;
    let listen_at = notifier.listen_at.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(target) = listen_at else { return };
    let listener = tokio::spawn(listen(target, notifier.heard.clone()));
    let teller = tokio::spawn(tell(Arc::clone(core)));
    let mut tasks = notifier.tasks.lock().unwrap_or_else(PoisonError::into_inner);
    tasks.extend([listener.abort_handle(), teller.abort_handle()]);
}

async fn tell(core: Arc<Core>) {
    // Nobody has to wait until a hint is on disk.
    let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
    loop {
        core.notifier.told.notified().await;
        let shards = std::mem::take(
            &mut *core.notifier.to_tell.lock().unwrap_or_else(PoisonError::into_inner),
        );
        // A hint that is lost is found by polling.
        drop(core.vital.query(Scope::All, sql, &[&CHANNEL, &shards.write()]).await);
        pause(PAUSE).await;
    }
}

async fn listen(target: Target, heard: broadcast::Sender<ShardSet>) {
    loop {
        // Whatever was said while nobody listened is lost, so every begin and end means all.
        drop(listen_once(&target, &heard).await);
        drop(heard.send(ShardSet::ALL));
        pause(RETRY).await;
    }
}

async fn listen_once(
    target: &Target,
    heard: &broadcast::Sender<ShardSet>,
) -> Result<(), StoreError> {
    let connect = target.config.connect(target.connector.clone());
    let (client, mut connection) = connect.await.map_err(|e| failed(&e))?;
    let driver = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(note)) => {
                    drop(heard.send(ShardSet::read(note.payload()).unwrap_or(ShardSet::ALL)));
                }
                Ok(_) => {}
                Err(error) => return failed(&error),
            }
        }
        StoreError::Unavailable("the server closed the connection".into())
    };
    let listening = async {
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(|e| failed(&e))?;
        drop(heard.send(ShardSet::ALL));
        std::future::pending::<Result<(), StoreError>>().await
    };
    tokio::select! {
        error = driver => Err(error),
        ended = listening => ended,
    }
}

#[expect(clippy::disallowed_methods, reason = "a pause between hints decides nothing")]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_read_as_it_was_written() {
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
