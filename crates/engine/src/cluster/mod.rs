//! Other nodes on the same store: hearing of what they did, and asking them for what is theirs.
//!
//! **On a store for one node none of this does anything.** A hint makes a node look; underneath it looks
//! now and then all the same, so that nothing depends on a hint. What is asked of another node goes
//! as a letter through the store, and its answer comes back as one: nodes need no addresses of each
//! other.

mod letters;
mod refresh;
mod route;

use std::time::Duration;

use postrider_domain::delivery::Delivery;
use postrider_domain::time::Timestamp;
use postrider_store::{Hint, ReplayJob, ShardLeases, ShardSet};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

pub(crate) use letters::{Post, Question};
pub(crate) use refresh::{NEWEST, Refresher};
pub(crate) use route::{Done, is_cancelled};

use crate::core::Input;
use crate::handle::EngineHandle;
use crate::upkeep::ToHolder;

/// How often a node looks for what it may not have heard of.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How far back it looks for work each time, each so many times, and each so many more times.
const LOOK_BACK: [(u64, Duration); 2] =
    [(1, Duration::from_secs(10)), (15, Duration::from_secs(150))];
/// So many times after each other, everything is looked through.
const LOOK_AT_ALL: u64 = 300;

/// Now, for leases: how long ago something was, whatever clocks say.
#[expect(clippy::disallowed_methods, reason = "a lease is a duration since a call, and not a time")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Begins to work with others, where there can be any.
pub(crate) fn begin(engine: &EngineHandle, replays: mpsc::UnboundedReceiver<ToReplay>) {
    if engine.shared.post.is_some() {
        tokio::spawn(listen(engine.clone()));
        tokio::spawn(replay_elsewhere(engine.clone(), replays));
    }
}

/// Hears of what other nodes did, and looks for it, until the engine has ended.
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
        Hint::Letters => take_letters(engine),
        // Sending fails only after the engine has shut down.
        Hint::Shards => drop(engine.shared.holder.send(ToHolder::Anew(ShardLeases::default()))),
    }
}

/// Looks for everything that a hint could have told.
fn look(engine: &EngineHandle, looks: u64) {
    refresh(engine);
    take_letters(engine);
    let now = engine.shared.clock.now();
    let back = LOOK_BACK.iter().rev().find(|(every, _)| looks.is_multiple_of(*every));
    let since = match back {
        Some((_, back)) if !looks.is_multiple_of(LOOK_AT_ALL) => now.saturating_sub(*back),
        Some(_) | None => Timestamp::EPOCH,
    };
    work(engine, ShardSet::ALL, since);
}

fn work(engine: &EngineHandle, shards: ShardSet, since: Timestamp) {
    // Nobody takes it only where the engine has ended.
    drop(engine.shared.inputs.send(Input::Work(shards, since)));
}

/// A job, its next deliveries, and whether these are the last.
pub(crate) type ToReplay = (ReplayJob, Vec<Delivery>, bool);

/// Has deliveries of jobs replayed by their owners, until the engine has ended.
async fn replay_elsewhere(engine: EngineHandle, mut jobs: mpsc::UnboundedReceiver<ToReplay>) {
    while let Some((job, rows, is_all)) = jobs.recv().await {
        tokio::spawn(engine.clone().replay_elsewhere(job, rows, is_all));
    }
}

/// Brings the directory up to date, beside everything else.
fn refresh(engine: &EngineHandle) {
    let refresher = std::sync::Arc::clone(&engine.shared.refresher);
    tokio::spawn(async move {
        // What fails now is done at the next look.
        drop(refresher.catch_up_once().await);
    });
}

fn take_letters(engine: &EngineHandle) {
    if let Some(post) = engine.shared.post.clone() {
        let engine = engine.clone();
        tokio::spawn(async move { post.take(&engine).await });
    }
}
