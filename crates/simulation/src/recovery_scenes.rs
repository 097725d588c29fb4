//! Scenes of recovery: bulk retries, enabling with a drain, and the replay of what died.

use anyhow::{Result, anyhow, ensure};

use crate::coverage::Cover;
use crate::edges::{FAIL, HOUR, MINUTE, OK, Stage, crashed};
use crate::oracle::Stand;
use crate::oracle::circuit::State;
use crate::oracle::rules::{RETRIES, Rules, due};
use crate::random::Random;
use crate::scenes::{disabled_in, disabled_with, met};
use crate::world::life::Outcome;
use crate::world::receivers::Mood;
use crate::world::{Nature, Pace};

pub(crate) fn bulk_retry() -> Result<Outcome> {
    let mut stage = disabled_with(50, Rules { freeze_over: 2_000, ..Rules::SMALL })?;
    // The next slots are 44 minutes after acceptance, the next probe is after 30.
    stage.pass(13 * MINUTE)?;
    let mut chance = Random::new(7, "bulk retry");
    let sent = stage.attempts();
    for _ in 0..4 {
        stage.world.retry_many(stage.id, &mut chance).map_err(crashed)?;
    }
    ensure!(stage.attempts() == sent, "sent past the circuit");
    // The probe fails, and what was asked for follows its slots again.
    stage.pass(9 * MINUTE)?;
    met(&stage, Cover::RetryBulk)?;
    met(&stage, Cover::WishLapsed)?;
    stage.world.receivers.set(stage.id, OK);
    stage.world.retry_many(stage.id, &mut chance).map_err(crashed)?;
    stage.pass(12 * MINUTE)?;
    ensure!(stage.delivered() == 61, "{} of 61 delivered", stage.delivered());
    stage.world.freeze(stage.id).map_err(crashed)?;
    stage.send_now(3)?;
    for _ in 0..8 {
        stage.world.retry_many(stage.id, &mut chance).map_err(crashed)?;
    }
    met(&stage, Cover::RetryBulkRefused)?;
    stage.end()
}

pub(crate) fn asked_once() -> Result<Outcome> {
    let mut stage = disabled_with(3, Rules { freeze_over: 2_000, ..Rules::SMALL })?;
    // The probe at ten minutes fails. The next slots are 21 minutes after acceptance, the next
    // probe is at 20.
    stage.pass(10 * MINUTE + 30_000)?;
    let asked = {
        let oracle = stage.world.oracle();
        let never = oracle.owed.iter().filter(|(_, owed)| owed.last_attempt.is_none());
        never.map(|(id, _)| *id).max()
    };
    let asked = asked.ok_or_else(|| anyhow!("all were attempted"))?;
    // It would be the next probe. It is sent at its time, although the destination is enabled.
    stage.world.retry(asked).map_err(crashed)?;
    stage.world.enable(stage.id).map_err(crashed)?;
    stage.pass(MINUTE)?;
    met(&stage, Cover::RetriedNow)?;
    // The slots at 21 minutes fail. The next probe is one that was never attempted.
    stage.pass(MINUTE)?;
    ensure!(stage.is_open()?, "not disabled again");
    stage.pass(11 * MINUTE)?;
    stage.end()
}

/// Somebody asks for the delivery that would be the last probe, and the process ends before the probe
/// is due: for a moment, and until after that.
pub(crate) fn asked_crash() -> Result<Outcome> {
    let mut last = None;
    for downtime in [0, HOUR] {
        let mut stage = disabled_with(3, Rules { freeze_over: 2_000, ..Rules::SMALL })?;
        let asked = {
            let oracle = stage.world.oracle();
            oracle.owed.iter().max_by_key(|(id, owed)| (owed.last_attempt, **id)).map(|(id, _)| *id)
        };
        let asked = asked.ok_or_else(|| anyhow!("nothing waits"))?;
        stage.world.retry(asked).map_err(crashed)?;
        stage.world.crash(downtime)?;
        stage.pass(11 * MINUTE)?;
        met(&stage, Cover::AskedProbe)?;
        let violation = stage.world.oracle().violations.first().map(|first| first.what.clone());
        ensure!(violation.is_none(), "{violation:?}");
        last = Some(stage);
    }
    last.ok_or_else(|| anyhow!("nothing was played"))?.end()
}

pub(crate) fn bulk_retry_crash() -> Result<Outcome> {
    let many = 1_000;
    let rules = Rules { grace: many, consecutive: many, freeze_at: many, ..Rules::SMALL };
    let mut stage = Stage::new(Rules { freeze_over: many, ..rules })?;
    stage.send(FAIL, 30)?;
    // The first slots are 85 seconds after acceptance, and the job needs six seconds.
    let sent = stage.attempts();
    stage.world.retry_all(stage.id, 5).map_err(crashed)?;
    stage.pass(3_100)?;
    let before = stage.attempts() - sent;
    ensure!((1..30).contains(&before), "{before} of 30 were sent before the crash");
    stage.world.crash(0)?;
    stage.pass(MINUTE)?;
    let all = stage.attempts() - sent;
    // The attempt that the crash interrupted is made again.
    let is_once = (30..=31).contains(&all);
    ensure!(is_once, "{all} attempts of 30 deliveries, each of which was asked for once");
    stage.end()
}

pub(crate) fn drain_by_hand() -> Result<Outcome> {
    let mut stage = disabled_with(100, Rules::SMALL)?;
    stage.world.receivers.set(stage.id, Mood::Healthy { within: 20 });
    stage.world.enable_and_send(stage.id, true, false).map_err(crashed)?;
    stage.pass(500)?;
    stage.world.crash(0)?;
    stage.pass(20_000)?;
    ensure!(stage.delivered() == 111, "{} of 111 delivered", stage.delivered());
    met(&stage, Cover::DrainedByHand)?;
    stage.world.enable_and_send(stage.id, false, true).map_err(crashed)?;
    stage.pass(MINUTE)?;
    met(&stage, Cover::EnabledWithDead)?;
    ensure!(stage.delivered() == 111, "{} after a replay of nothing", stage.delivered());
    stage.end()
}

/// A receiver that fails on Friday evening, with so many that die until Monday.
fn friday(seed: u64, pace: Pace) -> Result<Stage> {
    let rules = Rules { freeze_at: 50_000, freeze_over: 2_000, replay_dead: true, ..Rules::SMALL };
    let mut stage = disabled_in(40, Nature { rules, pace, ..Nature::plain(seed) })?;
    for _ in 0..6 {
        stage.pass(10 * HOUR)?;
        stage.send_now(5)?;
    }
    let dead = stage.count(|stand| stand == Stand::Dead);
    ensure!(dead >= 51, "only {dead} are dead");
    Ok(stage)
}

pub(crate) fn weekend() -> Result<Outcome> {
    let mut stage = friday(0, Pace::Instant)?;
    stage.world.receivers.set(stage.id, OK);
    stage.pass(11 * MINUTE)?;
    ensure!(stage.state()? == State::Closed, "not re-enabled");
    met(&stage, Cover::DeadReplayed)?;
    stage.pass(due(0, RETRIES).unsigned_abs())?;
    ensure!(stage.delivered() == 81, "{} of 81 delivered", stage.delivered());
    stage.end()
}

pub(crate) fn weekend_crash() -> Result<Outcome> {
    // The process ends with one of the first writes after the enabling.
    let mut last = crash_at_write(0, 1)?;
    for (seed, write) in (1..12).flat_map(|seed| (1..=4).map(move |write| (seed, write))) {
        last = crash_at_write(seed, write)?;
    }
    last.end()
}

/// How long each write takes depends on the seed.
fn crash_at_write(seed: u64, write: u64) -> Result<Stage> {
    let mut stage = friday(seed, Pace::Milliseconds)?;
    stage.world.receivers.set(stage.id, OK);
    stage.world.freeze(stage.id).map_err(crashed)?;
    stage.world.plan_crash(None, Some(write), None);
    if stage.world.enable(stage.id).and_then(|()| stage.world.pass(1_000)).is_err() {
        stage.world.crash(0)?;
    }
    stage.world.plan_crash(None, None, None);
    // Enabling it once more would replay what died once more.
    if stage.state()? == State::Frozen {
        stage.world.enable(stage.id).map_err(crashed)?;
    }
    stage.pass(MINUTE)?;
    let dead = stage.count(|stand| stand == Stand::Dead);
    ensure!(dead == 0, "{dead} were not replayed after a crash at write {write}");
    met(&stage, Cover::DeadReplayed)?;
    let violation = stage.world.oracle().violations.first().map(|first| first.what.clone());
    ensure!(violation.is_none(), "{violation:?}");
    Ok(stage)
}

/// Somebody enables a destination and has its dead replayed; the process ends with one of the first
/// writes. The job of the person may be lost then, and that of the policy is not.
pub(crate) fn enable_with_dead_crash() -> Result<Outcome> {
    let mut last = None;
    for (seed, write) in (0..8).flat_map(|seed| (1..=4).map(move |write| (seed, write))) {
        let mut stage = friday(seed, Pace::Milliseconds)?;
        stage.world.receivers.set(stage.id, OK);
        stage.world.freeze(stage.id).map_err(crashed)?;
        stage.world.plan_crash(None, Some(write), None);
        let enabled = stage.world.enable_and_send(stage.id, false, true);
        if enabled.and_then(|()| stage.world.pass(1_000)).is_err() {
            stage.world.crash(0)?;
        }
        stage.world.plan_crash(None, None, None);
        if stage.state()? == State::Frozen {
            stage.world.enable(stage.id).map_err(crashed)?;
        }
        stage.pass(MINUTE)?;
        let dead = stage.count(|stand| stand == Stand::Dead);
        ensure!(dead == 0, "{dead} were not replayed after a crash at write {write}");
        let violation = stage.world.oracle().violations.first().map(|first| first.what.clone());
        ensure!(violation.is_none(), "{violation:?}");
        last = Some(stage);
    }
    last.ok_or_else(|| anyhow!("nothing was played"))?.end()
}

/// An outage that is longer than what is replayed is old, after a bulk replay that somebody started.
pub(crate) fn old_dead() -> Result<Outcome> {
    let mut stage = friday(0, Pace::Instant)?;
    stage.pass(150 * HOUR)?;
    // What is dead now is older than seven days at the end. What comes now is not.
    let old = stage.count(|stand| stand == Stand::Dead);
    stage.send_now(30)?;
    stage.pass(60 * HOUR)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == old + 30, "nothing died later");
    // One of these is the probe.
    stage.send_now(3)?;
    let mut chance = Random::new(7, "old dead");
    stage.world.retry_many(stage.id, &mut chance).map_err(crashed)?;
    stage.world.receivers.set(stage.id, OK);
    stage.pass(11 * MINUTE)?;
    ensure!(stage.state()? == State::Closed, "not re-enabled");
    met(&stage, Cover::DeadReplayed)?;
    let left = stage.count(|stand| stand == Stand::Dead);
    ensure!(left == old, "{left} are kept because they are too old, and {old} are");
    stage.end()
}

/// More die than the pace of the replay sends in a second.
pub(crate) fn dead_pace() -> Result<Outcome> {
    let rules = Rules { freeze_at: 50_000, freeze_over: 2_000, replay_dead: true, ..Rules::SMALL };
    let mut stage = disabled_in(500, Nature { rules, ..Nature::plain(3) })?;
    stage.pass(60 * HOUR)?;
    let dead = stage.count(|stand| stand == Stand::Dead);
    ensure!(dead >= 500, "only {dead} are dead");
    stage.world.receivers.set(stage.id, OK);
    stage.world.enable(stage.id).map_err(crashed)?;
    stage.pass(2_500)?;
    let delivered = dead - stage.count(|stand| stand == Stand::Dead);
    ensure!((200..=300).contains(&delivered), "{delivered} replayed in 2.5 seconds");
    stage.pass(10_000)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 0, "not all replayed");
    stage.end()
}

/// What died is replayed faster than the receiver takes it, while others fall due.
pub(crate) fn dead_after_due() -> Result<Outcome> {
    let rules = Rules { freeze_at: 50_000, freeze_over: 2_000, replay_dead: true, ..Rules::SMALL };
    let mut stage = disabled_in(300, Nature { rules, ..Nature::plain(5) })?;
    stage.pass(60 * HOUR)?;
    let dead = stage.count(|stand| stand == Stand::Dead);
    ensure!(dead >= 300, "only {dead} are dead");
    // Their slots are 84.8 seconds after acceptance.
    stage.send_now(5)?;
    stage.pass(82_000)?;
    stage.world.receivers.set(stage.id, Mood::Healthy { within: 2_000 });
    stage.world.enable(stage.id).map_err(crashed)?;
    stage.pass(8_000)?;
    let delivered = stage.delivered();
    ensure!((6..200).contains(&delivered), "{delivered} delivered: not those due, or no backlog");
    let waits = stage.count(|stand| matches!(stand, Stand::Waiting { slot, .. } if slot > 0));
    ensure!(waits == 0, "{waits} that fell due wait behind what died");
    stage.pass(10 * MINUTE)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 0, "not all replayed");
    stage.end()
}
