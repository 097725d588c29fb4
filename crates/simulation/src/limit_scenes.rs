//! Scenes of limits: how much is sent at once and in a second, while everything is asked for that can be.

use anyhow::{Result, ensure};
use postrider_domain::ids::DeliveryId;
use postrider_domain::subscription::RateLimit;
use postrider_engine::Options;

use crate::coverage::Cover;
use crate::edges::{HOUR, MINUTE, Stage, crashed};
use crate::oracle::Stand;
use crate::oracle::rules::Rules;
use crate::scenes::{disabled_in, met};
use crate::world::Nature;
use crate::world::life::Outcome;
use crate::world::receivers::Mood;

/// A disabled destination with 51 dead deliveries and 40 that wait, under these options.
fn much_to_send(options: Options) -> Result<Stage> {
    let rules = Rules { freeze_at: 50_000, freeze_over: 2_000, replay_dead: true, ..Rules::SMALL };
    let mut stage = disabled_in(40, Nature { rules, options, ..Nature::plain(0) })?;
    stage.pass(60 * HOUR)?;
    stage.send_now(40)?;
    stage.pass(1_000)?;
    let dead = stage.count(|stand| stand == Stand::Dead);
    ensure!(dead == 51, "{dead} of 51 are dead");
    let mut oracle = stage.world.oracle();
    for dest in oracle.destinations.values_mut() {
        // The limits make deliveries late.
        dest.paced = true;
    }
    drop(oracle);
    Ok(stage)
}

/// Asks for everything that waits, ten times: by a drain, replays, a bulk retry, and one by one.
fn ask_for_everything(stage: &mut Stage) -> Result<()> {
    stage.world.enable_and_send(stage.id, true, true).map_err(crashed)?;
    stage.world.retry_all(stage.id, 100).map_err(crashed)?;
    for _ in 0..10 {
        let waiting: Vec<DeliveryId> = {
            let oracle = stage.world.oracle();
            let all = oracle.owed.iter();
            let waiting = all.filter(|(_, owed)| matches!(owed.stand, Stand::Waiting { .. }));
            waiting.map(|(id, _)| *id).collect()
        };
        for id in waiting {
            stage.world.retry(id).map_err(crashed)?;
        }
        stage.world.test_sends(4).map_err(crashed)?;
        stage.send_now(3)?;
        stage.pass(200)?;
    }
    Ok(())
}

pub(crate) fn limits_kept() -> Result<Outcome> {
    let options = Options {
        destination_in_flight_start: 6,
        destination_in_flight_max: 6,
        tenant_in_flight_max: Some(8),
        ..Nature::plain(0).options
    };
    let mut stage = much_to_send(options)?;
    // A second destination of the same tenant.
    let other = stage.receiver("https://other.example.com/in")?;
    for id in [stage.id, other] {
        stage.world.receivers.set(id, Mood::Healthy { within: 3_000 });
        if let Some(dest) = stage.world.oracle().destinations.get_mut(&id) {
            dest.paced = true;
        }
    }
    ask_for_everything(&mut stage)?;
    stage.pass(10 * MINUTE)?;
    met(&stage, Cover::AtLimit)?;
    met(&stage, Cover::TestSend)?;
    // Of 11, 40, 40 and 30 events, the last ones to both receivers.
    ensure!(stage.delivered() == 151, "{} of 151 delivered", stage.delivered());
    stage.end()
}

pub(crate) fn rate_kept() -> Result<Outcome> {
    let mut stage = much_to_send(Nature::plain(0).options)?;
    let mut record = stage.world.subscriptions[0].clone();
    record.subscription.rate_limit = RateLimit::per_second(5.0).ok();
    stage.world.subscribe(record).map_err(crashed)?;
    if let Some(dest) = stage.world.oracle().destinations.get_mut(&stage.id) {
        // Five per second, and one more from a full bucket.
        dest.rate = Some(6);
    }
    stage.world.receivers.set(stage.id, Mood::Healthy { within: 20 });
    ask_for_everything(&mut stage)?;
    stage.pass(MINUTE)?;
    ensure!(stage.delivered() == 121, "{} of 121 delivered", stage.delivered());
    stage.world.oracle().coverage.hit(Cover::Paced);
    stage.end()
}
