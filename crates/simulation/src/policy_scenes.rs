//! Scenes of subscriptions with policies of their own.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use postrider_domain::ids::SubscriptionId;
use postrider_domain::payload::Format;
use postrider_domain::policy::{DeadRecovery, RecoveryMode, SubscriptionPolicy};

use crate::coverage::Cover;
use crate::edges::{FAIL, HOUR, MINUTE, OK, Stage, crashed};
use crate::oracle::Stand;
use crate::oracle::circuit::State;
use crate::oracle::rules::Rules;
use crate::scenes::met;
use crate::world::life::Outcome;
use crate::world::receivers::Mood;

fn schedule(unit_ms: u64, max: u32) -> SubscriptionPolicy {
    SubscriptionPolicy {
        retry_unit: Some(Duration::from_millis(unit_ms)),
        retry_max: Some(max),
        ..SubscriptionPolicy::default()
    }
}

impl Stage {
    /// The first subscription.
    fn first(&self) -> Result<SubscriptionId> {
        let first = self.world.subscriptions.first().ok_or_else(|| anyhow!("no subscription"))?;
        Ok(first.subscription.id)
    }

    fn policy(&mut self, policy: SubscriptionPolicy) -> Result<()> {
        let id = self.first()?;
        self.world.set_policy(id, policy).map_err(crashed)
    }

    /// A second subscription of the same URL, with this policy.
    fn neighbour(&mut self, policy: SubscriptionPolicy) -> Result<SubscriptionId> {
        let first = self.world.subscriptions.first().ok_or_else(|| anyhow!("no subscription"))?;
        let url = first.subscription.url.clone();
        let mut record = self.world.wish(&self.tenant.clone(), &url, "task.*");
        // In another format it is no twin; what is sent to it is not compared.
        record.subscription.types = serde_json::from_str("[\"task.*\", \"note.*\"]")?;
        record.subscription.format = Format::Raw;
        record.subscription.policy = policy;
        let id = record.subscription.id;
        self.world.subscribe(record).map_err(crashed)?;
        Ok(id)
    }

    fn of(&self, id: SubscriptionId, stand: impl Fn(Stand) -> bool) -> usize {
        let oracle = self.world.oracle();
        oracle.owed.values().filter(|owed| owed.subscription == id && stand(owed.stand)).count()
    }
}

pub(crate) fn own_offsets() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.policy(schedule(10_000, 3))?;
    stage.send(FAIL, 1)?;
    stage.pass(70_500)?;
    let oracle = stage.world.oracle();
    let only = oracle.owed.values().next().ok_or_else(|| anyhow!("nothing is owed"))?;
    ensure!(only.attempts == 4 && only.stand == Stand::Dead, "{only:?}");
    drop(oracle);
    met(&stage, Cover::OwnSchedule)?;
    stage.end()
}

pub(crate) fn own_schedule_not_admitted() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::SMALL)?;
    stage.policy(schedule(20 * MINUTE, 4))?;
    stage.send(FAIL, 11)?;
    ensure!(stage.is_open()?, "not disabled");
    // Slots at 20, 60, 140 and 300 minutes pass while it is disabled.
    stage.send_now(5)?;
    stage.pass(290 * MINUTE)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 0, "dead before the last slot");
    stage.pass(20 * MINUTE)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) >= 10, "not dead after the last slot");
    stage.end()
}

pub(crate) fn changed_while_waiting() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(FAIL, 3)?;
    stage.pass(MINUTE)?;
    stage.policy(schedule(10_000, 5))?;
    stage.world.crash(0)?;
    stage.pass(30_000)?;
    ensure!(stage.attempts() == 6, "the slot that was given is kept: {}", stage.attempts());
    stage.pass(4 * MINUTE)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 3, "it follows the new schedule then");
    stage.send(FAIL, 2)?;
    stage.policy(SubscriptionPolicy { retry_max: Some(0), ..SubscriptionPolicy::default() })?;
    stage.pass(MINUTE)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 5, "and ends where no retry is left");
    met(&stage, Cover::OwnPolicyChanged)?;
    stage.end()
}

pub(crate) fn own_deadline() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    let patient = Duration::from_secs(12);
    stage.policy(SubscriptionPolicy { attempt_deadline: Some(patient), ..Default::default() })?;
    stage.world.receivers.set(stage.id, Mood::Hangs);
    stage.send_now(1)?;
    stage.pass(11_500)?;
    ensure!(stage.world.oracle().in_flight == 1, "it ended before its deadline");
    stage.pass(1_000)?;
    ensure!(stage.world.oracle().in_flight == 0, "it did not end at its deadline");
    met(&stage, Cover::Timeout)?;
    stage.end()
}

pub(crate) fn limits_cut() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    let wish =
        SubscriptionPolicy { attempt_deadline: Some(Duration::from_secs(60)), ..schedule(1, 40) };
    stage.policy(wish)?;
    stage.world.receivers.set(stage.id, Mood::Hangs);
    stage.send_now(1)?;
    stage.pass(8 * 24 * HOUR)?;
    let oracle = stage.world.oracle();
    let only = oracle.owed.values().next().ok_or_else(|| anyhow!("nothing is owed"))?;
    // A unit of a second: the nineteenth is due within seven days; slots of the first 20 s pass in flight.
    ensure!(only.stand == Stand::Dead && only.attempts <= 20, "{only:?}");
    drop(oracle);
    stage.end()
}

pub(crate) fn shared_url() -> Result<Outcome> {
    let rules = Rules { freeze_at: 50_000, freeze_over: 2_000, ..Rules::SMALL };
    let mut stage = Stage::new(rules)?;
    let first = stage.first()?;
    let wish = SubscriptionPolicy {
        recovery_mode: Some(RecoveryMode::Drain),
        dead: Some(DeadRecovery::Replay),
        ..schedule(60_000, 5)
    };
    stage.policy(wish)?;
    let kept = stage.neighbour(schedule(60_000, 5))?;
    stage.send(FAIL, 20)?;
    ensure!(stage.is_open()?, "not disabled");
    stage.pass(HOUR)?;
    ensure!(stage.of(first, |stand| stand == Stand::Dead) == 20, "the first one's die");
    ensure!(stage.of(kept, |stand| stand == Stand::Dead) == 20, "and the other's");
    stage.send_now(10)?;
    stage.world.receivers.set(stage.id, OK);
    stage.pass(11 * MINUTE)?;
    ensure!(stage.state()? == State::Closed, "not re-enabled");
    met(&stage, Cover::DeadReplayed)?;
    met(&stage, Cover::Drained)?;
    ensure!(stage.of(first, |stand| stand == Stand::Delivered) == 30, "its dead are replayed");
    ensure!(stage.of(kept, |stand| stand == Stand::Dead) == 20, "the other's dead are kept");
    // Another one wants slots: that goes before a drain.
    stage.neighbour_wants_slots(kept)?;
    stage.send(FAIL, 20)?;
    stage.pass(5_000)?;
    stage.world.receivers.set(stage.id, OK);
    let sent = stage.attempts();
    stage.world.enable(stage.id).map_err(crashed)?;
    stage.pass(20_000)?;
    ensure!(stage.attempts() == sent, "sent ahead of its slots although one wants slots");
    stage.end()
}

impl Stage {
    fn neighbour_wants_slots(&mut self, id: SubscriptionId) -> Result<()> {
        let policy =
            SubscriptionPolicy { recovery_mode: Some(RecoveryMode::Slots), ..schedule(60_000, 5) };
        self.world.set_policy(id, policy).map_err(crashed)
    }
}
