//! The edge cases of the contract, reached on purpose with the contract's own numbers: 100 and 101
//! attempts, 70 % and just over, 1,999, 2,000 and 2,001 failures, 72 hours to the millisecond,
//! 49,999 and 50,000, and the last slot in our own downtime.

use std::net::IpAddr;

use anyhow::{Result, anyhow, ensure};
use postrider_domain::egress::{EgressPolicy, vet_address, vet_answers};
use postrider_domain::ids::{DestinationId, TenantId};

use crate::oracle::Stand;
use crate::oracle::circuit::State;
use crate::oracle::rules::{RETRIES, Rules, due};
use crate::world::life::{Outcome, outcome};
use crate::world::receivers::Mood;
use crate::world::{Crashed, Nature, World};

pub(crate) const OK: Mood = Mood::Healthy { within: 0 };
/// A receiver that fails at once, so that thousands of first attempts fail before the first retry
/// is due.
pub(crate) const FAIL: Mood = Mood::Resets;
const URL: &str = "https://edge.example.com/in";
pub(crate) const MINUTE: u64 = 60_000;
pub(crate) const HOUR: u64 = 60 * MINUTE;

/// An edge case: its name, and the function that plays it.
pub type Edge = (&'static str, fn() -> Result<Outcome>);

/// All edge cases.
pub const EDGES: [Edge; 10] = [
    ("100 of 100 failed stays enabled, the 101st disables", grace),
    ("exactly 70 % stays enabled, just over disables", share),
    ("1,999 in a row stay enabled, 2,000 disable, 2,001 and 72 h freeze", consecutive),
    ("2,000 in a row never freeze by time, 2,001 do", not_over),
    ("49,999 in a row do not freeze, 50,000 do", many),
    ("410 freezes, and a straggler's success does not thaw", gone),
    ("the eleven offsets, to the millisecond, and dead after the last", offsets),
    ("the last slot in our own downtime is made up", downtime),
    ("one destination that hangs delays no other", neighbours),
    ("no address that is not public is contacted", guarded),
];

/// Addresses that the contract forbids, each for another reason.
const FORBIDDEN: [&str; 12] = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.0.1",
    "224.0.0.1",
    "::1",
    "::ffff:10.0.0.1",
    "fd00::1",
    "fe80::1",
];

/// Each forbidden address is refused alone, and together with a public one.
fn guarded() -> Result<Outcome> {
    let policy = EgressPolicy::default();
    let public: IpAddr = "192.0.78.9".parse()?;
    ensure!(vet_answers(&[public], &policy).is_ok(), "{public} may not be contacted");
    for text in FORBIDDEN {
        let address: IpAddr = text.parse()?;
        ensure!(vet_address(address, &policy).is_err(), "{text} may be contacted");
        ensure!(vet_answers(&[public, address], &policy).is_err(), "{text} hides in an answer");
    }
    Ok(outcome(&Stage::new(Rules::DEFAULT)?.world))
}

/// A world with one receiver.
pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) tenant: TenantId,
    pub(crate) id: DestinationId,
}

pub(crate) fn crashed(_: Crashed) -> anyhow::Error {
    anyhow!("the process ended by itself")
}

impl Stage {
    pub(crate) fn new(rules: Rules) -> Result<Self> {
        Stage::with(Nature { rules, ..Nature::plain(0) })
    }

    pub(crate) fn with(nature: Nature) -> Result<Self> {
        let world = World::new(nature)?;
        let tenant = TenantId::default_tenant();
        let id = DestinationId::of(&tenant, URL);
        let mut stage = Stage { world, tenant, id };
        stage.receiver(URL)?;
        Ok(stage)
    }

    pub(crate) fn receiver(&mut self, url: &str) -> Result<DestinationId> {
        let record = self.world.wish(&self.tenant, url, "task.*");
        let id = record.subscription.destination;
        self.world.subscribe(record).map_err(crashed)?;
        self.world.receivers.set(id, OK);
        Ok(id)
    }

    /// Accepts this many deliveries and waits until each was attempted once.
    pub(crate) fn send(&mut self, mood: Mood, count: usize) -> Result<()> {
        self.world.receivers.set(self.id, mood);
        for batch in (0..count).step_by(500) {
            let size = (count - batch).min(500);
            self.world.send(&self.tenant.clone(), "task.created", size).map_err(crashed)?;
            self.pass(3_000)?;
        }
        Ok(())
    }

    pub(crate) fn pass(&mut self, ms: u64) -> Result<()> {
        self.world.pass(ms).map_err(crashed)?;
        self.world.check().map_err(crashed)
    }

    pub(crate) fn state(&self) -> Result<State> {
        let oracle = self.world.oracle();
        oracle.destinations.get(&self.id).map(|dest| dest.model.state).ok_or_else(|| anyhow!("?"))
    }

    pub(crate) fn is_open(&self) -> Result<bool> {
        Ok(matches!(self.state()?, State::Open { .. }))
    }

    /// Ends the stage and returns the outcome, with all violations.
    pub(crate) fn end(self) -> Result<Outcome> {
        Ok(outcome(&self.world))
    }
}

fn grace() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(FAIL, 100)?;
    ensure!(stage.state()? == State::Closed, "100 of 100 disabled");
    stage.send(FAIL, 1)?;
    ensure!(stage.is_open()?, "the 101st failure did not disable");
    stage.end()
}

fn share() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(OK, 42)?;
    stage.send(FAIL, 98)?;
    ensure!(stage.state()? == State::Closed, "98 of 140 disabled");
    stage.send(FAIL, 1)?;
    ensure!(stage.is_open()?, "99 of 141 did not disable");
    stage.end()
}

/// Makes `failures` consecutive failures without reaching the failure share that disables.
fn in_a_row(stage: &mut Stage, failures: usize) -> Result<()> {
    stage.send(OK, 1_000)?;
    // Retries of failed deliveries come in between: make the last few failures one by one.
    let now = |stage: &Stage| {
        let oracle = stage.world.oracle();
        oracle.destinations.get(&stage.id).map_or(0, |dest| dest.model.consecutive)
    };
    let wanted = u64::try_from(failures)?;
    while now(stage) < wanted {
        let left = usize::try_from(wanted - now(stage))?;
        stage.send(FAIL, left.min(500))?;
        ensure!(now(stage) <= wanted, "too many");
    }
    Ok(())
}

fn consecutive() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    in_a_row(&mut stage, 1_999)?;
    ensure!(stage.state()? == State::Closed, "1,999 disabled");
    stage.send(FAIL, 1)?;
    ensure!(stage.is_open()?, "2,000 did not disable");
    // Probes raise the count over 2,000; no delivery succeeds for 72 hours.
    let last = {
        let oracle = stage.world.oracle();
        oracle.destinations.get(&stage.id).map_or(0, |dest| dest.model.last_success)
    };
    let frozen_at = last + 72 * 3_600_000 + 1;
    while stage.world.now + 7_000_000 < frozen_at {
        stage.send(FAIL, 1)?;
        stage.pass(2 * HOUR - 10_000)?;
    }
    stage.world.pass((frozen_at - 1_001 - stage.world.now).unsigned_abs()).map_err(crashed)?;
    ensure!(stage.state()? != State::Frozen, "frozen at 71:59:59");
    stage.world.pass(2_000).map_err(crashed)?;
    ensure!(stage.state()? == State::Frozen, "not frozen at 72:00:01");
    stage.end()
}

fn not_over() -> Result<Outcome> {
    // Disabled by the share at once, and probed until exactly 2,000 failures: no freezing then.
    let rules = Rules { consecutive: 1_000_000, percent: 100, ..Rules::DEFAULT };
    let mut stage = Stage::new(rules)?;
    in_a_row(&mut stage, 2_000)?;
    let all: Vec<_> = stage.world.oracle().owed.keys().copied().collect();
    for id in all {
        stage.world.cancel(id).map_err(crashed)?;
    }
    stage.pass(73 * HOUR)?;
    ensure!(stage.state()? == State::Closed, "2,000 froze after 72 h");
    stage.send(FAIL, 1)?;
    ensure!(stage.state()? == State::Frozen, "2,001 did not freeze after 72 h");
    stage.end()
}

fn many() -> Result<Outcome> {
    let rules = Rules { consecutive: 1_000_000, percent: 100, ..Rules::DEFAULT };
    let mut stage = Stage::new(rules)?;
    let count = |stage: &Stage| {
        let oracle = stage.world.oracle();
        oracle.destinations.get(&stage.id).map_or(0, |dest| dest.model.consecutive)
    };
    while count(&stage) < 46_000 {
        stage.send(FAIL, 500)?;
    }
    // Make the last few failures one by one, at a time when no retry is due.
    let all: Vec<_> = stage.world.oracle().owed.keys().copied().collect();
    for id in all {
        stage.world.cancel(id).map_err(crashed)?;
    }
    while count(&stage) < 49_999 {
        let left = usize::try_from(49_999 - count(&stage))?;
        stage.send(FAIL, left.min(500))?;
    }
    ensure!(count(&stage) == 49_999 && stage.state()? == State::Closed, "49,999 froze");
    stage.send(FAIL, 1)?;
    ensure!(stage.state()? == State::Frozen, "50,000 did not freeze");
    stage.end()
}

fn gone() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    let slow = Mood::Late;
    stage.world.receivers.script(stage.id, [slow, Mood::Gone]);
    stage.send(OK, 2)?;
    ensure!(stage.state()? == State::Frozen, "410 did not freeze");
    stage.pass(MINUTE)?;
    ensure!(stage.state()? == State::Frozen, "thawed");
    stage.world.enable(stage.id).map_err(crashed)?;
    ensure!(stage.state()? == State::Closed, "not enabled by hand");
    stage.end()
}

fn offsets() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(FAIL, 1)?;
    stage.pass(due(0, RETRIES).unsigned_abs() + MINUTE)?;
    let oracle = stage.world.oracle();
    let only = oracle.owed.values().next().ok_or_else(|| anyhow!("nothing is owed"))?;
    ensure!(only.attempts == 12 && only.stand == Stand::Dead, "{only:?}");
    drop(oracle);
    stage.end()
}

fn downtime() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    stage.send(FAIL, 1)?;
    stage.pass(30 * HOUR)?;
    stage.world.crash(100 * HOUR)?;
    stage.pass(2_000)?;
    let oracle = stage.world.oracle();
    let only = oracle.owed.values().next().ok_or_else(|| anyhow!("nothing is owed"))?;
    ensure!(only.attempts == 12 && only.stand == Stand::Dead, "{only:?}");
    drop(oracle);
    stage.end()
}

fn neighbours() -> Result<Outcome> {
    let mut stage = Stage::new(Rules::DEFAULT)?;
    for n in 0..10 {
        let other = stage.receiver(&format!("https://hangs{n}.example.com/in"))?;
        stage.world.receivers.set(other, Mood::Hangs);
    }
    // The model reports every late attempt at the healthy destination.
    for _ in 0..200 {
        stage.world.send(&stage.tenant.clone(), "task.created", 1).map_err(crashed)?;
        stage.pass(700)?;
    }
    stage.end()
}
