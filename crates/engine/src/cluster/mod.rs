//! Other nodes on the same store: noticing their changes, and sending them requests.
//!
//! **On a store for one node nothing here does anything.** A hint makes a node look for changes at
//! once; without hints it polls, so that nothing depends on a hint. A request to another node is a
//! message through the store, and so is its answer: nodes need no network addresses of each other.

mod messages;
mod refresh;
mod route;

use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::time::Timestamp;
use postrider_store::{Hint, ReplayJob, ShardLeases, ShardSet};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use messages::{Mailbox, PeerRequest};
pub(crate) use refresh::{NEWEST, Refresher};
pub(crate) use route::{Done, is_cancelled};

use crate::core::Input;
use crate::handle::EngineHandle;
use crate::upkeep::ToLeaseHolder;

/// How often a node polls for changes without a hint.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How far back a poll looks for new deliveries: 10 s, and in every 15th poll 150 s.
const LOOK_BACK: [(u64, Duration); 2] =
    [(1, Duration::from_secs(10)), (15, Duration::from_secs(150))];
/// Every this many polls, all queued deliveries are read.
const LOOK_AT_ALL: u64 = 300;

/// A monotonic time for leases, which does not depend on the system's clock.
#[expect(clippy::disallowed_methods, reason = "a lease is a duration since a call, and not a time")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Starts the tasks that work with other nodes, if the store allows several.
pub(crate) fn begin(engine: &EngineHandle, replays: mpsc::UnboundedReceiver<ToReplay>) {
    if engine.shared.mailbox.is_some() {
        tokio::spawn(listen(engine.clone()));
        tokio::spawn(replay_elsewhere(engine.clone(), replays));
    }
}

/// Receives hints and polls, until the engine shuts down.
async fn listen(engine: EngineHandle) {
    let Some(mut hints) = engine.shared.store.hints() else { return };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ended = engine.shared.ended.clone();
    let mut looks = 0;
    loop {
        tokio::select! {
            hint = hints.recv() => match hint {
                Ok(hint) => heard(&engine, hint),
                Err(RecvError::Lagged(_)) => look(&engine, 0),
                Err(RecvError::Closed) => return,
            },
            _ = ticks.tick() => {
                looks += 1;
                look(&engine, looks);
            }
            _ = ended.wait_for(Option::is_some) => return,
        }
    }
}

fn heard(engine: &EngineHandle, hint: Hint) {
    match hint {
        Hint::Work { shards, since } => work(engine, shards, since),
        Hint::Changed => refresh(engine),
        Hint::Messages => take_messages(engine),
        // Sending fails only after the engine has shut down.
        Hint::Shards => {
            drop(engine.shared.holder.send(ToLeaseHolder::Renew(ShardLeases::default())));
        }
    }
}

/// Polls for every kind of change that a hint could announce.
fn look(engine: &EngineHandle, looks: u64) {
    refresh(engine);
    take_messages(engine);
    let now = engine.shared.clock.now();
    let back = LOOK_BACK.iter().rev().find(|(every, _)| looks.is_multiple_of(*every));
    let since = match back {
        Some((_, back)) if !looks.is_multiple_of(LOOK_AT_ALL) => now.saturating_sub(*back),
        Some(_) | None => Timestamp::EPOCH,
    };
    work(engine, ShardSet::ALL, since);
}

fn work(engine: &EngineHandle, shards: ShardSet, since: Timestamp) {
    // Sending fails only after the engine has shut down.
    drop(engine.shared.inputs.send(Input::Work(shards, since)));
}

/// A job, its next deliveries, and whether these are its last ones.
pub(crate) type ToReplay = (ReplayJob, Vec<Delivery>, bool);

/// Has deliveries of replay jobs replayed by the nodes that own them, until the engine shuts down.
async fn replay_elsewhere(engine: EngineHandle, mut jobs: mpsc::UnboundedReceiver<ToReplay>) {
    while let Some((job, rows, is_all)) = jobs.recv().await {
        tokio::spawn(engine.clone().replay_elsewhere(job, rows, is_all));
    }
}

/// Brings the subscription directory up to date, in a task of its own.
fn refresh(engine: &EngineHandle) {
    let refresher = std::sync::Arc::clone(&engine.shared.refresher);
    tokio::spawn(async move {
        // After an error it is done at the next poll.
        drop(refresher.catch_up_once().await);
    });
}

fn take_messages(engine: &EngineHandle) {
    if let Some(mailbox) = engine.shared.mailbox.clone() {
        let engine = engine.clone();
        tokio::spawn(async move { mailbox.take(&engine).await });
    }
}
