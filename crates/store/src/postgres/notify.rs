//! Hints to other nodes, by NOTIFY.
//!
//! A hint may be lost: the tables that it refers to are also polled. Hints about new work are sent
//! outside the transaction that accepted it, because PostgreSQL commits transactions with NOTIFY
//! one by one. Hints within a few milliseconds are combined into one message; this node's own
//! shards are left out.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_domain::time::Timestamp;
use tokio::sync::{Notify, broadcast};
use tokio::task::AbortHandle;
use tokio_postgres::AsyncMessage;

use super::StoreState;
use super::address::Target;
use super::error::failed;
use super::pool::Scope;
use crate::error::StoreError;
use crate::nodes::{Hint, ShardSet};

const WORK: &str = "postrider_work";
/// The channel for changes of the configuration; notified in the same transaction.
pub(super) const CHANGES: &str = "postrider_changes";
/// The channel for messages to a node; it names the receiver.
pub(super) const MESSAGES: &str = "postrider_letters";
/// The channel for nodes that join, leave or release shards; notified in the same transaction.
pub(super) const SHARDS: &str = "postrider_shards";

/// The shortest time between two messages.
const PAUSE: Duration = Duration::from_millis(3);

/// How long to wait before listening again after the connection was lost.
const RETRY: Duration = Duration::from_secs(1);

/// Sends and receives hints.
pub(super) struct Notifier {
    listen_at: Mutex<Option<Target>>,
    heard: broadcast::Sender<Hint>,
    /// The first receiver. It exists from the start, so that a late subscriber misses no hint.
    first: Mutex<Option<broadcast::Receiver<Hint>>>,
    to_tell: Mutex<Option<(ShardSet, Timestamp)>>,
    told: Notify,
    is_on: bool,
    tasks: Mutex<Vec<AbortHandle>>,
}

impl Notifier {
    pub(super) fn new(listen_at: Option<Target>) -> Self {
        let (heard, first) = broadcast::channel(256);
        let is_on = listen_at.is_some();
        Notifier {
            listen_at: Mutex::new(listen_at),
            heard,
            first: Mutex::new(Some(first)),
            to_tell: Mutex::default(),
            told: Notify::new(),
            is_on,
            tasks: Mutex::default(),
        }
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<Hint> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| self.heard.subscribe())
    }

    /// Announces new work in these shards, accepted at `since` or later. Shards in `held` are left
    /// out: they are this node's own.
    pub(super) fn tell(&self, shards: ShardSet, since: Timestamp, held: &ShardSet) {
        let others = shards.without(held);
        if !self.is_on || others.is_empty() {
            return;
        }
        let mut to_tell = self.to_tell.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, oldest) = to_tell.get_or_insert((others, since));
        all.extend(&others);
        *oldest = since.min(*oldest);
        self.told.notify_one();
    }

    pub(super) fn stop(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Starts the tasks that send and receive.
pub(super) fn spawn(core: &Arc<StoreState>) {
    let notifier = &core.notifier;
    let listen_at = notifier.listen_at.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(target) = listen_at else { return };
    let node = core.options.node.clone();
    let listener = tokio::spawn(listen(target, node, notifier.heard.clone()));
    let teller = tokio::spawn(tell(Arc::clone(core)));
    let mut tasks = notifier.tasks.lock().unwrap_or_else(PoisonError::into_inner);
    tasks.extend([listener.abort_handle(), teller.abort_handle()]);
}

async fn tell(core: Arc<StoreState>) {
    // A hint need not be durable, so its commit does not wait for the disk.
    let sql = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
    loop {
        core.notifier.told.notified().await;
        let told = core.notifier.to_tell.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((shards, since)) = told else { continue };
        // If the hint is lost, polling finds the change.
        drop(core.vital.query(Scope::All, sql, &[&WORK, &write(shards, since)]).await);
        pause(PAUSE).await;
    }
}

async fn listen(target: Target, node: String, heard: broadcast::Sender<Hint>) {
    loop {
        // Hints were lost while the connection was down, so check everything after each reconnection.
        drop(listen_once(&target, &node, &heard).await);
        all(&heard);
        pause(RETRY).await;
    }
}

/// Sends every kind of hint to this node's receivers.
fn all(heard: &broadcast::Sender<Hint>) {
    let work = Hint::Work { shards: ShardSet::ALL, since: Timestamp::EPOCH };
    for hint in [work, Hint::Changed, Hint::Messages, Hint::Shards] {
        // Sending fails if there is no receiver, which is no error.
        heard.send(hint).unwrap_or_default();
    }
}

fn write(shards: ShardSet, since: Timestamp) -> String {
    format!("{}{}", shards.write(), since.as_unix_ms())
}

/// Parses the hint in a message; `None` if it is for another node.
fn read(channel: &str, payload: &str, node: &str) -> Option<Hint> {
    match channel {
        CHANGES => Some(Hint::Changed),
        SHARDS => Some(Hint::Shards),
        MESSAGES => (payload == node).then_some(Hint::Messages),
        _ => {
            let since = payload.get(64..).and_then(|since| since.parse().ok());
            let since = since.map_or(Timestamp::EPOCH, Timestamp::from_unix_ms);
            Some(Hint::Work { shards: ShardSet::read(payload).unwrap_or(ShardSet::ALL), since })
        }
    }
}

async fn listen_once(
    target: &Target,
    node: &str,
    heard: &broadcast::Sender<Hint>,
) -> Result<(), StoreError> {
    let connect = target.config.connect(target.connector.clone());
    let (client, mut connection) = connect.await.map_err(|e| failed(&e))?;
    let driver = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(note)) => {
                    let hint = read(note.channel(), note.payload(), node);
                    if let Some(hint) = hint {
                        // Sending fails if there is no receiver, which is no error.
                        heard.send(hint).unwrap_or_default();
                    }
                }
                Ok(_) => {}
                Err(error) => return failed(&error),
            }
        }
        StoreError::Unavailable("the server closed the connection".into())
    };
    let listening = async {
        let sql = format!("LISTEN {WORK}; LISTEN {CHANGES}; LISTEN {MESSAGES}; LISTEN {SHARDS}");
        client.batch_execute(&sql).await.map_err(|e| failed(&e))?;
        all(heard);
        std::future::pending::<Result<(), StoreError>>().await
    };
    tokio::select! {
        error = driver => Err(error),
        ended = listening => ended,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of the store that waits for time; it must not depend on the transport"
)]
async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_parses_to_the_hint_that_was_sent() {
        let shards: ShardSet = [7, 200].map(postrider_domain::ids::Shard).into_iter().collect();
        let since = Timestamp::from_unix_ms(1_700_000_000_123);
        let work = |shards, since| Some(Hint::Work { shards, since });
        assert_eq!(read(WORK, &write(shards, since), "a"), work(shards, since));
        assert_eq!(read(WORK, "nonsense", "a"), work(ShardSet::ALL, Timestamp::EPOCH));
        assert_eq!(read(CHANGES, "", "a"), Some(Hint::Changed));
        assert_eq!(read(SHARDS, "", "a"), Some(Hint::Shards));
        assert_eq!(read(MESSAGES, "a", "a"), Some(Hint::Messages));
        assert_eq!(read(MESSAGES, "b", "a"), None);
    }
}
