//! One seed, one simulated life: a random world goes through faults of all kinds, then all faults
//! end, and it must become idle.

use std::time::Duration;

use anyhow::{Result, anyhow};
use postrider_domain::ids::{DeliveryId, DestinationId, TenantId};
use postrider_engine::Options;

use super::actions::KINDS;
use super::receivers::Mood;
use super::{Crashed, Nature, Pace, World, policies};
use crate::coverage::{Cover, Coverage};
use crate::oracle::Violation;
use crate::oracle::policies::SPAN_MS_MAX;
use crate::oracle::rules::{RETRIES, Rules, due};
use crate::random::Random;

/// The result of one simulated life.
#[derive(Debug)]
pub struct Outcome {
    /// The seed of this life.
    pub seed: u64,
    /// Its length, in virtual milliseconds.
    pub lived_ms: i64,
    /// Attempts.
    pub attempts: u64,
    /// Processes that crashed or were stopped.
    pub crashes: u64,
    /// The violations.
    pub violations: Vec<Violation>,
    /// The coverage.
    pub coverage: Coverage,
    /// The hash of the trace.
    pub hash: u64,
    /// The last lines of the trace that concern the first violation.
    pub trace: String,
}

const HOUR_MS: u64 = 3_600_000;

/// Simulates one life with `hours` of faults; `None` lets the seed decide how many.
pub fn live(seed: u64, hours: Option<u64>) -> Result<Outcome> {
    let mut chance = Random::new(seed, "nature");
    let nature = draw(seed, &mut chance);
    let mut world = World::new(nature)?;
    populate(&mut world, &mut chance)?;
    let (least, most) = if world.nature.sparse { (400, 1_600) } else { (12, 100) };
    let hours = hours.unwrap_or_else(|| chance.between(least, most));
    let end = world.now + i64::try_from(hours * HOUR_MS)?;
    let mut acts = Random::new(seed, "acts");
    // A random stream of its own: steps of the clock must not change the rest of a life.
    let mut clock = Random::new(seed, "clock");
    while world.now < end && !is_broken(&world) {
        step(&mut world, &mut acts, &mut clock)?;
    }
    if !is_broken(&world) {
        heal(&mut world)?;
    }
    Ok(outcome(&world))
}

/// The outcome of a world in its current state.
pub fn outcome(world: &World) -> Outcome {
    let oracle = world.oracle();
    let trace = oracle.violations.first().map_or_else(String::new, |first| {
        let lines = oracle.trace.last_of(first.delivery, first.destination, 60);
        format!("{lines}  {:?}\n", world.nature)
    });
    Outcome {
        seed: world.nature.seed,
        lived_ms: world.now - crate::clock::START_MS,
        attempts: oracle.attempts,
        crashes: world.processes - 1,
        violations: oracle.violations.clone(),
        coverage: oracle.coverage.clone(),
        hash: oracle.trace.hash(),
        trace,
    }
}

fn is_broken(world: &World) -> bool {
    !world.oracle().violations.is_empty()
}

fn draw(seed: u64, chance: &mut Random) -> Nature {
    let mut nature = Nature::plain(seed);
    nature.rules = if chance.chance(600) { Rules::SMALL } else { Rules::DEFAULT };
    nature.rules.drain = chance.chance(200);
    nature.pace = match chance.below(4) {
        0 | 1 => Pace::Instant,
        2 => Pace::Yields,
        _ => Pace::Milliseconds,
    };
    // With a slow store, small pages make deliveries late although nothing is wrong.
    if chance.chance(400) && nature.pace != Pace::Milliseconds {
        nature.options = Options {
            handover_batches_max: 2,
            handover_deliveries_max: usize::try_from(chance.between(1, 20)).unwrap_or(1),
            lane_resident_max: usize::try_from(chance.between(1, 10)).unwrap_or(1),
            resident_max: usize::try_from(chance.between(5_000, 9_000)).unwrap_or(5_000),
            page: usize::try_from(chance.between(3, 10)).unwrap_or(3),
            commit_changes_max: usize::try_from(chance.between(1, 20)).unwrap_or(1),
            payload_bytes_max: 100,
            due_window: Duration::from_secs(chance.between(10, 300)),
            ..nature.options
        };
    }
    if seed > PLAIN_SEEDS {
        draw_more(&mut nature);
    }
    nature
}

/// Seeds below this number found bugs before later properties of worlds were added: their worlds
/// stay as they were.
const PLAIN_SEEDS: u64 = 300;

fn draw_more(nature: &mut Nature) {
    let mut chance = Random::new(nature.seed, "more of its nature");
    match chance.below(10) {
        0 => nature.rules.from_previous = true,
        1 => nature.rules.jitter = chance.between(1, 100),
        _ => {}
    }
    if chance.chance(200) && nature.pace != Pace::Milliseconds {
        let most = usize::try_from(chance.between(20, 200)).unwrap_or(20);
        nature.options.resident_max = most;
    }
    if !is_tight(nature) {
        let window = [120, 600, 3_600][chance.place(3).unwrap_or(0)];
        nature.options.due_window = Duration::from_secs(window);
    }
    if chance.chance(250) {
        nature.options.sleep_max = Options::default().sleep_max;
    }
    if has_few_in_flight(nature.seed) {
        let mut few = Random::new(nature.seed, "few in flight");
        nature.options.destination_in_flight_max = u32::try_from(few.between(1, 6)).unwrap_or(1);
    }
    nature.sparse = chance.chance(300);
    if is_recovering(nature.seed) {
        nature.rules.replay_dead = Random::new(nature.seed, "recovery").chance(600);
    }
}

/// Whether people in this life end outages by bulk retries and by enabling destinations with a
/// drain and a replay, and the rules may replay dead deliveries. Not in every life: seeds that
/// found bugs earlier keep their worlds.
fn is_recovering(seed: u64) -> bool {
    seed.is_multiple_of(4) && (PLAIN_SEEDS..1 << 32).contains(&seed)
}

/// Whether subscriptions have policies of their own in this life, and change them.
fn has_policies(seed: u64) -> bool {
    let is_one = seed % 8 == 4 || matches!(seed % 16, 5 | 11 | 15);
    is_one && (PLAIN_SEEDS..1 << 32).contains(&seed)
}

/// Whether destinations may have few attempts in flight in this life.
fn has_few_in_flight(seed: u64) -> bool {
    matches!(seed % 16, 6 | 8) && (PLAIN_SEEDS..1 << 32).contains(&seed)
}

fn is_tight(nature: &Nature) -> bool {
    nature.options.lane_resident_max <= 10
}

fn populate(world: &mut World, chance: &mut Random) -> Result<()> {
    let tenants = ["default", "acme"];
    let mut policies = Random::new(world.nature.seed, "policies");
    for n in 0..chance.between(2, 8) {
        let tenant: TenantId = tenants[usize::from(n % 3 == 2)].parse()?;
        let url = format!("https://r{n}.example.com/in");
        for _ in 0..chance.between(1, 2) {
            let types = ["task.*", "task.created", "*"][chance.place(3).unwrap_or(0)];
            let mut record = world.wish(&tenant, &url, types);
            if has_policies(world.nature.seed) {
                record.subscription.policy = policies::draw(&mut policies);
            }
            world.subscribe(record).map_err(|Crashed| anyhow!("it ended too soon"))?;
        }
    }
    if chance.chance(300) {
        let tenant: TenantId = tenants[0].parse()?;
        let record = world.wish(&tenant, "https://ops.example.com/in", "postrider.*");
        world.subscribe(record).map_err(|Crashed| anyhow!("it ended too soon"))?;
    }
    let seed = world.nature.seed;
    let mut more = Random::new(seed, "more receivers");
    if seed > PLAIN_SEEDS && more.chance(60) {
        // Enough destinations for the mass-failure guard.
        let tenant: TenantId = tenants[0].parse()?;
        for n in 0..more.between(20, 26) {
            let url = format!("https://many{n}.example.com/in");
            let record = world.wish(&tenant, &url, "task.*");
            world.subscribe(record).map_err(|Crashed| anyhow!("it ended too soon"))?;
        }
    }
    if is_tight(&world.nature) {
        world.oracle().coverage.hit(Cover::TightLimits);
    }
    if world.nature.options.resident_max <= 200 {
        world.oracle().coverage.hit(Cover::SmallMemory);
    }
    Ok(())
}

/// By how much the time of day is set: by seconds, hours or days, forward or back. Always a
/// multiple of two seconds: a sum of several steps is zero, or more than the difference that the
/// clock corrects gradually.
fn some_jump(clock: &mut Random) -> i64 {
    let most = [5, 2 * 3_600, 10 * 24 * 3_600][clock.place(3).unwrap_or(0)];
    let by = i64::try_from(2_000 * (1 + clock.below(most))).unwrap_or(2_000);
    if clock.chance(500) { by } else { -by }
}

/// Starts a process after one that has ended, on a machine whose clock may have been set meanwhile.
fn begin_again(world: &mut World, downtime: u64, clock: &mut Random) -> Result<()> {
    match clock.below(10) {
        0..3 => {
            let by = some_jump(clock);
            world.crash_and_set_clock(downtime, by)
        }
        3 => world.reboot(downtime),
        _ => world.crash(downtime),
    }
}

/// One step: time passes, an action happens, and everything is checked.
fn step(world: &mut World, acts: &mut Random, clock: &mut Random) -> Result<()> {
    let set = if clock.chance(30) {
        let (by, looks) = (some_jump(clock), clock.chance(700));
        world.set_clock(by, looks)
    } else {
        Ok(())
    };
    let done = set.and_then(|()| try_step(world, acts));
    if done == Err(Crashed) {
        let downtime = match acts.below(10) {
            0..4 => 0,
            4..6 => acts.skewed(5_000),
            6..9 => acts.skewed(2 * HOUR_MS),
            _ => acts.skewed(80 * HOUR_MS),
        };
        if downtime > HOUR_MS {
            world.oracle().coverage.hit(Cover::Downtime);
        }
        world.store.heal();
        begin_again(world, downtime, clock)?;
        let until = world.now + 20_000;
        let mut oracle = world.oracle();
        if oracle.disturbed_until > until {
            oracle.disturbed_until = until;
        }
        drop(oracle);
        // If the new process ends at once, the next step notices.
        world.look_up_subscriptions().ok();
    }
    Ok(())
}

/// Applies an action to a random delivery that has ended, or has not.
fn on_some(
    world: &mut World,
    acts: &mut Random,
    ended: bool,
    act: impl FnOnce(&mut World, DeliveryId) -> Result<(), Crashed>,
) -> Result<(), Crashed> {
    world.some_delivery(acts, ended).map_or(Ok(()), |id| act(world, id))
}

fn try_step(world: &mut World, acts: &mut Random) -> Result<(), Crashed> {
    let reach = if world.nature.sparse {
        [50, 300_000, 12 * HOUR_MS, 48 * HOUR_MS, 120 * HOUR_MS]
    } else {
        [50, 5_000, 300_000, 3 * HOUR_MS, 6 * HOUR_MS]
    };
    let reach = reach[acts.place(5).unwrap_or(0)];
    world.pass(acts.skewed(reach))?;
    if world.subscriptions.is_empty() {
        return add(world, acts);
    }
    let tenants = world.tenants();
    let tenant = tenants[acts.place(tenants.len()).unwrap_or(0)].clone();
    let kind = KINDS[acts.place(3).unwrap_or(0)];
    let all = world.destinations();
    let destination = all[acts.place(all.len()).unwrap_or(0)];
    if world.nature.seed > PLAIN_SEEDS && acts.chance(80) {
        return try_more(world, acts, &tenant, kind);
    }
    if has_policies(world.nature.seed) && acts.chance(50) {
        world.change_policy(acts)?;
        return world.check();
    }
    if is_recovering(world.nature.seed) && acts.chance(60) {
        return try_recovery(world, acts, destination, (&tenant, kind));
    }
    match acts.below(1000) {
        0..500 => world.send(&tenant, kind, usize::try_from(acts.between(1, 3)).unwrap_or(1))?,
        500..600 => {
            let count = usize::try_from(acts.skewed(160)).unwrap_or(1);
            world.send(&tenant, kind, count)?;
        }
        600..640 => world.send_twice(&tenant, kind)?,
        640..740 if !world.crash_is_planned() => match acts.below(4) {
            0 => world.plan_crash(Some(acts.between(1, 10)), None, None),
            1 => world.plan_crash(None, Some(acts.between(1, 10)), None),
            2 => world.plan_crash(None, None, Some(acts.skewed(20_000))),
            _ => return Err(Crashed),
        },
        740..760 => {
            let downtime = acts.skewed(HOUR_MS);
            return world.restart(downtime).map_err(|_| Crashed);
        }
        760..800 => world.trouble(acts)?,
        800..830 => world.enable(destination)?,
        830..845 => world.freeze(destination)?,
        845..865 => on_some(world, acts, false, World::cancel)?,
        865..885 => on_some(world, acts, false, World::retry)?,
        885..925 => on_some(world, acts, true, World::replay)?,
        925..940 => world.replay_many(destination, acts)?,
        940..950 => {
            if let Some(place) = acts.place(world.subscriptions.len()) {
                world.unsubscribe(place)?;
            }
        }
        950..970 => add(world, acts)?,
        970..990 => world.change_subscription(acts)?,
        _ => {
            let drain = world.oracle().rules.drain;
            let rules = if acts.chance(500) { Rules::SMALL } else { Rules::DEFAULT };
            // Changes that a slow store has not committed yet were decided with the old policy.
            if world.nature.pace == Pace::Milliseconds || world.oracle().is_disturbed() {
                return world.check();
            }
            let Rules { from_previous, jitter, replay_dead, .. } = world.oracle().rules;
            world.change_rules(Rules { drain, from_previous, jitter, replay_dead, ..rules })?;
        }
    }
    world.check()
}

/// Somebody ends an outage, or a long one begins.
fn try_recovery(
    world: &mut World,
    acts: &mut Random,
    destination: DestinationId,
    (tenant, kind): (&TenantId, &str),
) -> Result<(), Crashed> {
    match acts.below(3) {
        0 => world.retry_many(destination, acts)?,
        1 => {
            let (drains, replays) = (acts.chance(700), acts.chance(400));
            world.enable_and_send(destination, drains, replays)?;
        }
        _ => {
            // An outage that lasts until deliveries die of it.
            let until = world.now + i64::try_from(acts.between(48, 80) * HOUR_MS).unwrap_or(0);
            world.receivers.set_until(destination, Mood::Resets, until);
            world.send(tenant, kind, 20)?;
        }
    }
    world.check()
}

/// Actions of applications and people while the store or the network fails.
fn try_more(
    world: &mut World,
    acts: &mut Random,
    tenant: &TenantId,
    kind: &str,
) -> Result<(), Crashed> {
    match acts.below(3) {
        0 => {
            let batches = usize::try_from(acts.between(2, 12)).unwrap_or(2);
            world.send_together(tenant, kind, batches, 3)?;
        }
        1 => {
            world.send(tenant, kind, 3)?;
            world.meddle(acts)?;
        }
        _ => {
            let mood = [Mood::NoName, Mood::OwnFault, Mood::Hangs][acts.place(3).unwrap_or(0)];
            let until = world.now + i64::try_from(acts.skewed(2 * HOUR_MS)).unwrap_or(0);
            world.receivers.set_all(mood, until);
            for _ in 0..acts.between(1, 30) {
                world.send(tenant, kind, 2)?;
                world.pass(acts.below(5_000))?;
            }
        }
    }
    world.check()
}

fn add(world: &mut World, acts: &mut Random) -> Result<(), Crashed> {
    let tenant = TenantId::default_tenant();
    let url = format!("https://r{}.example.com/in", acts.below(10));
    let types = ["task.*", "note.*", "*"][acts.place(3).unwrap_or(0)];
    let record = world.wish(&tenant, &url, types);
    world.oracle().coverage.hit(Cover::SubscriptionAdded);
    world.subscribe(record)?;
    world.check()
}

/// Ends all faults: each waiting delivery must end within its schedule and one probe interval.
fn heal(world: &mut World) -> Result<()> {
    world.plan_crash(None, None, None);
    world.store.heal();
    world.receivers.heal();
    world.oracle().note("healed", None, None, 0);
    let healed_at = world.now;
    let is_own = has_policies(world.nature.seed);
    let last_slot = if is_own { SPAN_MS_MAX } else { due(0, RETRIES) };
    let end = healed_at + last_slot + world.oracle().rules.probe_ms + 70_000;
    while world.now < end && !is_broken(world) {
        let left = (end - world.now).unsigned_abs();
        if world.pass(left.min(7 * HOUR_MS)).and_then(|()| world.check()).is_err() {
            // The crash was planned before the faults ended, or the store had been told to stop.
            world.crash(0)?;
        }
    }
    let now = world.now;
    let is_more = world.oracle().check_end(now, healed_at);
    if !is_more {
        world.check_leaks();
    }
    let mut oracle = world.oracle();
    if oracle.violations.is_empty() {
        oracle.coverage.hit(Cover::Healed);
    }
    Ok(())
}
