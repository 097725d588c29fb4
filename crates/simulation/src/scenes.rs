//! Scenes: each plays one rule of the contract on purpose while the model checks it. A random life
//! may not reach the same situation.

use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_domain::subscription::RateLimit;
use postrider_engine::{IngestRate, Options};

use crate::coverage::Cover;
use crate::edges::{Edge, FAIL, HOUR, MINUTE, OK, Stage, crashed};
use crate::limit_scenes::{limits_kept, rate_kept};
use crate::oracle::Stand;
use crate::oracle::circuit::State;
use crate::oracle::rules::{RETRIES, Rules, due};
use crate::policy_scenes::{
    changed_while_waiting, limits_cut, own_deadline, own_offsets, own_schedule_not_admitted,
    shared_url,
};
use crate::recovery_scenes::{
    asked_crash, asked_once, bulk_retry, bulk_retry_crash, dead_after_due, dead_pace,
    drain_by_hand, enable_with_dead_crash, old_dead, weekend, weekend_crash,
};
use crate::world::life::Outcome;
use crate::world::receivers::Mood;
use crate::world::{Nature, Pace};

/// All scenes.
pub const SCENES: [Edge; 41] = [
    ("a probe that a crash took is made again ten minutes after it was sent", probe_lost),
    ("where none waits, the next one that arrives is the probe", probe_of_arrival),
    ("what does not fit into the lanes is sent all the same", overflow),
    ("more retries than fit into memory are on time", memory),
    ("when most begin to fail at once transitions are held, for an hour at most", mass_failure),
    ("an outage of our own disables nobody, during it or after it", own_outage),
    ("an outage that disabled somebody before it was recognised enables them", first_minute),
    ("a receiver that was repaired is not disabled by its successes", repaired),
    ("one bad receiver among many is disabled", one_of_many),
    ("a clock that is set costs no slot and makes no attempt early", clock_set),
    ("a clock that is set while the server is down changes nothing", clock_set_in_downtime),
    ("a drain sends what waits ahead of its slots", drain),
    ("a drain that a crash interrupted begins anew", drain_again),
    ("a failure stops the ramp of a drain", drain_stops),
    ("what waits is sent now, in bulk, and not past the circuit", bulk_retry),
    ("a delivery that was asked for is no preferred probe later", asked_once),
    ("a delivery that was asked for is the next probe, after a crash too", asked_crash),
    ("a bulk retry that a crash interrupted asks for each once", bulk_retry_crash),
    ("a destination that is enabled with a drain sends what waits", drain_by_hand),
    ("what died over a weekend is replayed when the receiver is back", weekend),
    ("the replay of what died is not lost in a crash", weekend_crash),
    ("nor where somebody asks for a replay of their own", enable_with_dead_crash),
    ("what is too old is kept, after jobs of people too", old_dead),
    ("the replay of what died keeps its pace", dead_pace),
    ("what falls due goes before the replay of what died", dead_after_due),
    ("a subscription's own offsets, to the millisecond, and dead after its own last", own_offsets),
    ("slots of an own schedule pass while a destination is disabled", own_schedule_not_admitted),
    ("a changed policy leaves the slot that a delivery waits for", changed_while_waiting),
    ("an attempt ends at its subscription's own deadline", own_deadline),
    ("the operator's limits cut what a subscription wants", limits_cut),
    ("subscriptions of one URL have their own dead and one recovery", shared_url),
    ("Retry-After moves a retry later, and not past the last slot", retry_after),
    ("delays counted from the attempt before end at 48 hours", previous_attempt),
    ("jitter moves slots within its share, and the same after a crash", jitter),
    ("a rate limit is kept", rate_limit),
    ("a rate limit is kept whatever is asked for", rate_kept),
    ("no more is in flight than the limits allow, whatever is asked for", limits_kept),
    ("a tenant that floods delays itself", tenant_flood),
    ("cancelled, replayed and unsubscribed in mid-flight", in_mid_flight),
    ("what is cancelled on its way to the lanes is not sent", on_its_way),
    ("nothing is left behind when all is done", nothing_left),
];

impl Stage {
    /// Adds this many healthy receivers.
    fn others(&mut self, count: usize) -> Result<Vec<DestinationId>> {
        (0..count).map(|n| self.receiver(&format!("https://other{n}.example.com/in"))).collect()
    }

    pub(crate) fn send_now(&mut self, count: usize) -> Result<()> {
        self.world.send(&self.tenant.clone(), "task.created", count).map_err(crashed)
    }

    pub(crate) fn count(&self, wanted: impl Fn(Stand) -> bool) -> usize {
        self.world.oracle().owed.values().filter(|owed| wanted(owed.stand)).count()
    }

    pub(crate) fn delivered(&self) -> usize {
        self.count(|stand| stand == Stand::Delivered)
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.world.oracle().attempts
    }

    fn in_flight(&self) -> Vec<DeliveryId> {
        let oracle = self.world.oracle();
        oracle.owed.iter().filter(|(_, owed)| owed.in_flight > 0).map(|(id, _)| *id).collect()
    }

    fn closed(&self) -> usize {
        let oracle = self.world.oracle();
        oracle.destinations.values().filter(|dest| dest.model.state == State::Closed).count()
    }

    fn is_held(&mut self) -> Result<bool> {
        let gauges = self.world.gauges().map_err(crashed)?;
        gauges.map(|gauges| gauges.suspended).ok_or_else(|| anyhow!("no gauges"))
    }
}

pub(crate) fn met(stage: &Stage, cover: Cover) -> Result<()> {
    let count = stage.world.oracle().coverage.count(cover);
    ensure!(count > 0, "never met: {}", cover.text());
    Ok(())
}

fn probe_lost() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::SMALL)?;
    stage.send(FAIL, 11)?;
    ensure!(stage.is_open()?, "not disabled");
    stage.world.receivers.set(stage.id, Mood::Hangs);
    stage.pass(10 * MINUTE)?;
    ensure!(stage.in_flight().len() == 1, "one probe is in flight");
    stage.world.crash(1_000)?;
    met(&stage, Cover::CrashInProbe)?;
    stage.world.receivers.set(stage.id, OK);
    let sent = stage.attempts();
    stage.pass(9 * MINUTE)?;
    ensure!(stage.attempts() == sent, "probed again too soon");
    stage.pass(2 * MINUTE)?;
    ensure!(stage.state()? == State::Closed, "not probed again");
    stage.end()
}

fn overflow() -> Result<Outcome> {
    let mut nature = Nature::plain(0);
    nature.options =
        Options { handover_batches_max: 1, handover_deliveries_max: 2, ..nature.options };
    let mut stage = Stage::with(nature)?;
    for _ in 0..3 {
        let tenant = stage.tenant.clone();
        stage.world.send_together(&tenant, "task.created", 20, 5).map_err(crashed)?;
        stage.pass(5_000)?;
    }
    ensure!(stage.delivered() == 300, "{} of 300 delivered", stage.delivered());
    stage.end()
}

fn memory() -> Result<Outcome> {
    let mut nature = Nature::plain(0);
    nature.options = Options { resident_max: 20, page: 6, ..nature.options };
    let mut stage = Stage::with(nature)?;
    stage.others(3)?;
    stage.world.oracle().coverage.hit(Cover::SmallMemory);
    stage.world.receivers.set_all(FAIL, i64::MAX);
    for _ in 0..4 {
        stage.send_now(10)?;
        stage.pass(20_000)?;
    }
    stage.pass(2 * HOUR)?;
    stage.world.crash(30 * MINUTE)?;
    stage.pass(47 * HOUR)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 160, "not all of them are dead");
    stage.end()
}

fn probe_of_arrival() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::SMALL)?;
    stage.send(FAIL, 11)?;
    let all: Vec<_> = stage.world.oracle().owed.keys().copied().collect();
    for id in all {
        stage.world.cancel(id).map_err(crashed)?;
    }
    stage.world.receivers.set(stage.id, OK);
    stage.pass(HOUR)?;
    ensure!(stage.is_open()?, "re-enabled by nothing");
    stage.send_now(1)?;
    stage.pass(1_000)?;
    met(&stage, Cover::ProbeOfArrival)?;
    ensure!(stage.state()? == State::Closed && stage.delivered() == 1, "it was not the probe");
    stage.end()
}

fn mass_failure() -> Result<Outcome> {
    let mut stage = Stage::new(Rules { freeze_at: 50_000, freeze_over: 2_000, ..Rules::SMALL })?;
    stage.others(24)?;
    stage.send_now(12)?;
    stage.pass(5 * MINUTE)?;
    let begun = stage.world.now;
    stage.world.receivers.set_all(Mood::NoName, begun + 200 * 60_000);
    for _ in 0..5 {
        stage.send_now(3)?;
        stage.pass(8_000)?;
    }
    ensure!(stage.is_held()?, "15 failures of 25 receivers at once, and nothing is held");
    while stage.world.now < begun + 58 * 60_000 {
        stage.send_now(1)?;
        stage.pass(20_000)?;
        ensure!(stage.closed() == 25, "disabled while it is held");
    }
    met(&stage, Cover::Suspended)?;
    while stage.world.now < begun + 65 * 60_000 {
        stage.send_now(1)?;
        stage.pass(20_000)?;
    }
    ensure!(!stage.is_held()?, "held for more than an hour");
    ensure!(stage.closed() == 0, "an outage that is not ours, and nothing is disabled");
    stage.world.receivers.heal();
    stage.pass(11 * MINUTE)?;
    ensure!(stage.closed() == 25, "not re-enabled");
    stage.end()
}

/// A receiver of another tenant with its own event type.
fn busy_receiver(stage: &mut Stage) -> Result<(TenantId, DestinationId)> {
    let acme: TenantId = "acme".parse()?;
    let record = stage.world.wish(&acme, "https://busy.example.com/in", "task.*");
    let id = record.subscription.destination;
    stage.world.subscribe(record).map_err(crashed)?;
    stage.world.receivers.set(id, OK);
    Ok((acme, id))
}

fn own_outage() -> Result<Outcome> {
    let mut stage = Stage::new(Rules { freeze_at: 50_000, freeze_over: 2_000, ..Rules::SMALL })?;
    stage.others(23)?;
    stage.send_now(2)?;
    stage.pass(5 * MINUTE)?;
    let end = stage.world.now + 12 * 60_000;
    stage.world.receivers.set_all(Mood::NoName, i64::MAX);
    while stage.world.now < end {
        stage.send_now(2)?;
        stage.pass(8_000)?;
        ensure!(stage.closed() == 24, "disabled by an outage of our own");
    }
    ensure!(stage.is_held()?, "nothing is held");
    // Another process meets the same outage; then most destinations recover for a few seconds, and
    // fail again.
    stage.world.crash(0)?;
    for (mood, times) in [(Mood::NoName, 25), (OK, 6), (Mood::NoName, 6), (OK, 6)] {
        stage.world.receivers.set_all(mood, i64::MAX);
        for _ in 0..times {
            stage.send_now(3)?;
            stage.pass(4_000)?;
            ensure!(stage.closed() == 24, "disabled after an outage of our own");
        }
        if mood == OK {
            // One failure of its own: it would disable the destination if the outage's failures counted.
            stage.world.receivers.heal();
            stage.send(FAIL, 1)?;
            stage.world.receivers.set(stage.id, OK);
            ensure!(stage.closed() == 24, "disabled by one failure and those of an outage");
        }
    }
    met(&stage, Cover::FailureSuspended)?;
    met(&stage, Cover::RunTakenBack)?;
    stage.world.receivers.heal();
    for _ in 0..20 {
        stage.send_now(3)?;
        stage.pass(60_000)?;
        ensure!(stage.closed() == 24, "disabled long after an outage of our own");
    }
    stage.end()
}

fn first_minute() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::SMALL)?;
    stage.others(23)?;
    let (acme, _) = busy_receiver(&mut stage)?;
    stage.send_now(1)?;
    stage.pass(5 * MINUTE)?;
    stage.world.receivers.set_all(Mood::NoName, i64::MAX);
    stage.world.send(&acme, "task.created", 11).map_err(crashed)?;
    stage.pass(20_000)?;
    ensure!(stage.closed() == 24, "11 failures before anybody else fails, and still enabled");
    stage.send_now(1)?;
    stage.pass(20_000)?;
    ensure!(stage.is_held()?, "nothing is held");
    ensure!(stage.closed() == 25, "disabled by an outage of our own");
    met(&stage, Cover::EnabledByTakingBack)?;
    stage.world.receivers.heal();
    stage.pass(20 * MINUTE)?;
    stage.world.send(&acme, "task.created", 3).map_err(crashed)?;
    stage.pass(20_000)?;
    ensure!(stage.closed() == 25, "disabled after an outage of our own");
    stage.end()
}

fn repaired() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(FAIL, 90)?;
    for _ in 0..20 {
        stage.send(OK, 1)?;
        ensure!(stage.state()? == State::Closed, "disabled by a success");
    }
    met(&stage, Cover::SuccessOverShare)?;
    stage.send(FAIL, 1)?;
    ensure!(stage.is_open()?, "a failure over the share does not disable");
    stage.end()
}

const DAY_MS: i64 = 24 * 3_600_000;

/// The model checks the offsets of every delivery, to the millisecond of virtual time.
fn clock_set() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(FAIL, 1)?;
    let jumps = [-49 * 3_600_000, 49 * 3_600_000, -5_000, 30_000, 30 * DAY_MS, -400 * DAY_MS];
    for by in jumps {
        stage.world.set_clock(by, true).map_err(crashed)?;
        stage.send_now(1)?;
        stage.pass(3 * HOUR)?;
    }
    met(&stage, Cover::ClockSetBack)?;
    met(&stage, Cover::ClockSetAhead)?;
    ensure!(stage.count(|stand| matches!(stand, Stand::Waiting { .. })) == 7, "one has ended");
    stage.pass(48 * HOUR)?;
    let oracle = stage.world.oracle();
    let all = oracle.owed.values();
    let whole = all.filter(|owed| owed.stand == Stand::Dead && owed.attempts == 12).count();
    drop(oracle);
    ensure!(whole == 7, "{whole} of 7 had all of their 12 attempts");
    stage.end()
}

fn clock_set_in_downtime() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    for by in [-49 * 3_600_000, 49 * 3_600_000, -5_000, 10 * DAY_MS] {
        stage.send(FAIL, 1)?;
        stage.world.crash_and_set_clock(20_000, by)?;
        stage.pass(HOUR)?;
        stage.world.reboot(10_000)?;
        stage.pass(HOUR)?;
    }
    met(&stage, Cover::ClockSetInDowntime)?;
    stage.pass(48 * HOUR)?;
    let oracle = stage.world.oracle();
    let all = oracle.owed.values();
    let whole = all.filter(|owed| owed.stand == Stand::Dead && owed.attempts == 12).count();
    drop(oracle);
    ensure!(whole == 4, "{whole} of 4 had all of their 12 attempts");
    stage.end()
}

fn one_of_many() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::SMALL)?;
    stage.others(24)?;
    stage.send_now(1)?;
    stage.world.receivers.set(stage.id, FAIL);
    for _ in 0..15 {
        stage.send_now(1)?;
        stage.pass(2_000)?;
        ensure!(!stage.is_held()?, "held because of one receiver");
    }
    ensure!(stage.is_open()? && stage.closed() == 24, "the bad one is disabled, and no other");
    stage.end()
}

pub(crate) fn disabled_with(waiting: usize, rules: Rules) -> Result<Stage> {
    disabled_in(waiting, Nature { rules, ..Nature::plain(0) })
}

pub(crate) fn disabled_in(waiting: usize, nature: Nature) -> Result<Stage> {
    let mut stage = Stage::with(nature)?;
    stage.send(FAIL, 11)?;
    ensure!(stage.is_open()?, "not disabled");
    stage.send_now(waiting)?;
    stage.pass(9 * MINUTE)?;
    Ok(stage)
}

fn drain() -> Result<Outcome> {
    let mut stage = disabled_with(200, Rules { drain: true, ..Rules::SMALL })?;
    stage.world.receivers.set(stage.id, Mood::Healthy { within: 20 });
    stage.pass(MINUTE)?;
    ensure!(stage.state()? == State::Closed, "not re-enabled");
    stage.pass(10_000)?;
    ensure!(stage.delivered() == 211, "{} of 211 delivered", stage.delivered());
    met(&stage, Cover::Drained)?;
    stage.end()
}

fn drain_again() -> Result<Outcome> {
    let mut stage = disabled_with(200, Rules { drain: true, ..Rules::SMALL })?;
    stage.world.receivers.set(stage.id, Mood::Healthy { within: 400 });
    while stage.state()? != State::Closed {
        stage.pass(200)?;
    }
    stage.pass(500)?;
    ensure!(stage.delivered() < 150, "it was too quick to be interrupted");
    stage.world.crash(0)?;
    stage.pass(40_000)?;
    ensure!(stage.delivered() == 211, "{} of 211 delivered", stage.delivered());
    stage.end()
}

fn drain_stops() -> Result<Outcome> {
    let mut stage = disabled_with(200, Rules { drain: true, ..Rules::SMALL })?;
    // The probe and one more delivery succeed; all later ones fail.
    stage.world.receivers.script(stage.id, [OK, OK]);
    let sent = stage.attempts();
    let before = stage.world.now;
    while stage.world.now < before + 70_000 {
        stage.pass(1_000)?;
    }
    let sent = stage.attempts() - sent;
    ensure!(stage.delivered() == 2, "{} delivered", stage.delivered());
    ensure!(sent <= 4, "the ramp went on after a failure: {sent} sent");
    stage.end()
}

fn retry_after() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    let busy = |status, seconds| Mood::Busy { status, seconds };
    for (mood, count) in [(busy(429, 3_600), 4), (busy(503, 10), 4), (busy(503, 900_000), 4)] {
        stage.send(mood, count)?;
    }
    stage.world.receivers.set(stage.id, FAIL);
    stage.pass(due(0, RETRIES).unsigned_abs() + MINUTE)?;
    met(&stage, Cover::RetryAfterMoves)?;
    met(&stage, Cover::RetryAfterCut)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 12, "not all of them are dead");
    stage.end()
}

fn previous_attempt() -> Result<Outcome> {
    let mut stage = Stage::new(Rules { from_previous: true, ..Rules::DEFAULT })?;
    stage.send(Mood::Hangs, 3)?;
    stage.pass(5 * HOUR)?;
    stage.world.crash(2 * HOUR)?;
    stage.pass(30 * HOUR)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 0, "dead too soon");
    stage.pass(12 * HOUR)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 3, "not dead after 48 h");
    met(&stage, Cover::FromPrevious)?;
    stage.end()
}

fn jitter() -> Result<Outcome> {
    let rules = Rules { jitter: 60, grace: 10_000, consecutive: 10_000, ..Rules::DEFAULT };
    let mut stage = Stage::new(rules)?;
    stage.send(FAIL, 40)?;
    stage.pass(HOUR)?;
    stage.world.crash(3 * HOUR)?;
    stage.pass(45 * HOUR)?;
    met(&stage, Cover::Jitter)?;
    ensure!(stage.count(|stand| stand == Stand::Dead) == 40, "not all of them are dead");
    stage.end()
}

fn rate_limit() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    let mut record = stage.world.subscriptions[0].clone();
    record.subscription.rate_limit = RateLimit::per_second(5.0).ok();
    stage.world.subscribe(record).map_err(crashed)?;
    if let Some(dest) = stage.world.oracle().destinations.get_mut(&stage.id) {
        // Five per second, and one more from a full bucket.
        dest.rate = Some(6);
    }
    stage.send_now(100)?;
    stage.pass(10_000)?;
    ensure!((45..=52).contains(&stage.delivered()), "{} in ten seconds", stage.delivered());
    stage.pass(11_000)?;
    ensure!(stage.delivered() == 100, "{} delivered", stage.delivered());
    stage.world.oracle().coverage.hit(Cover::Paced);
    stage.end()
}

fn tenant_flood() -> Result<Outcome> {
    let mut nature = Nature::plain(0);
    nature.options = Options {
        tenant_in_flight_max: Some(4),
        tenant_ingest: Some(IngestRate { per_second: 100, burst: 1_000 }),
        ..nature.options
    };
    let mut stage = Stage::with(nature)?;
    let acme: TenantId = "acme".parse()?;
    let mut floods = Vec::new();
    for n in 0..3 {
        let url = format!("https://acme{n}.example.com/in");
        let record = stage.world.wish(&acme, &url, "task.*");
        let id = record.subscription.destination;
        stage.world.subscribe(record).map_err(crashed)?;
        stage.world.receivers.set(id, Mood::Healthy { within: 2_000 });
        floods.push(id);
    }
    for id in floods {
        if let Some(dest) = stage.world.oracle().destinations.get_mut(&id) {
            dest.paced = true;
        }
    }
    stage.world.send_together(&acme, "task.created", 40, 50).map_err(crashed)?;
    met(&stage, Cover::TooFast)?;
    // The model reports every late attempt of the other tenant.
    for _ in 0..100 {
        stage.send_now(1)?;
        stage.pass(100)?;
        let own = usize::from(!stage.in_flight().is_empty());
        ensure!(stage.in_flight().len() <= 4 + own, "over the tenant's limit");
    }
    stage.world.oracle().coverage.hit(Cover::TenantFlood);
    stage.pass(HOUR)?;
    ensure!(stage.count(|stand| stand == Stand::Delivered) >= 3_100, "not all are delivered");
    stage.end()
}

fn in_mid_flight() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.world.receivers.set(stage.id, Mood::Late);
    stage.send_now(3)?;
    stage.world.pass(500).map_err(crashed)?;
    let in_flight = stage.in_flight();
    ensure!(in_flight.len() == 3, "{} in flight", in_flight.len());
    stage.world.cancel(in_flight[0]).map_err(crashed)?;
    stage.world.replay(in_flight[1]).map_err(crashed)?;
    met(&stage, Cover::ReplayRefused)?;
    stage.pass(6_000)?;
    met(&stage, Cover::CancelledInFlight)?;
    stage.world.replay(in_flight[0]).map_err(crashed)?;
    stage.world.pass(500).map_err(crashed)?;
    stage.world.unsubscribe(0).map_err(crashed)?;
    stage.pass(MINUTE)?;
    met(&stage, Cover::CancelledWithSubscription)?;
    ensure!(stage.delivered() + stage.count(|stand| stand == Stand::Cancelled) == 3, "not ended");
    stage.end()
}

fn on_its_way() -> Result<Outcome> {
    let mut last = cancelled_on_its_way(0)?;
    for seed in 1..8 {
        last = cancelled_on_its_way(seed)?;
    }
    last.end()
}

/// How long each sync takes depends on the seed.
fn cancelled_on_its_way(seed: u64) -> Result<Stage> {
    // The sync of one batch makes others durable whose own sync still takes a while.
    let mut stage = Stage::with(Nature { pace: Pace::Milliseconds, ..Nature::plain(seed) })?;
    for _ in 0..5 {
        stage
            .world
            .send_and_cancel(&stage.tenant.clone(), "task.created", 20, 2)
            .map_err(crashed)?;
        stage.pass(MINUTE)?;
    }
    met(&stage, Cover::Cancelled)?;
    let ended = stage.delivered() + stage.count(|stand| stand == Stand::Cancelled);
    ensure!(ended == 200, "{ended} of 200 have ended");
    let violation = stage.world.oracle().violations.first().map(|first| first.what.clone());
    ensure!(violation.is_none(), "{violation:?}");
    Ok(stage)
}

fn nothing_left() -> Result<Outcome> {
    let mut nature = Nature::plain(0);
    nature.options.due_window = Duration::from_secs(600);
    let mut stage = Stage::with(nature)?;
    stage.others(3)?;
    for mood in [FAIL, Mood::Hangs, Mood::Busy { status: 429, seconds: 60 }, Mood::OwnFault] {
        stage.world.receivers.set_all(mood, stage.world.now + 3 * 3_600_000);
        stage.send_now(40)?;
        stage.pass(4 * HOUR)?;
    }
    stage.world.receivers.heal();
    stage.pass(due(0, RETRIES).unsigned_abs())?;
    ensure!(stage.count(|stand| matches!(stand, Stand::Queued | Stand::Waiting { .. })) == 0, "?");
    stage.world.check_leaks();
    stage.end()
}
