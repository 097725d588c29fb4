//! `postrider-simulation run` lives seeds, `planted` shows that mistakes are caught.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a command line")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use postrider_simulation::coverage::Coverage;
use postrider_simulation::edges::EDGES;
use postrider_simulation::world::life::{Outcome, live};

const USAGE: &str = "\
usage: postrider-simulation run [--seed N] [--seeds A..B] [--seconds S] [--years Y] [--hours H]
       postrider-simulation planted [--seeds-max N]     (with --features planted-bugs)

run       lives seeds from 1 (or those given) until the seconds or simulated years are over;
          checks the edges of the contract first, unless a single seed is asked for
planted   makes one mistake at a time and shows that it is caught";

/// What is asked for.
#[derive(Debug, Default)]
struct Wish {
    seeds: Option<(u64, u64)>,
    seconds: Option<u64>,
    years: Option<u64>,
    hours: Option<u64>,
    seeds_max: Option<u64>,
}

/// What came of all lives.
#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    lived_ms: u64,
    attempts: u64,
    crashes: u64,
    violations: usize,
    coverage: Coverage,
}

/// The seed that is being lived, for the watchdog.
static SEED: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    match start() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn start() -> Result<bool> {
    let mut words = std::env::args().skip(1);
    let command = words.next().context("what is to be done?")?;
    let wish = parse(words)?;
    watch();
    match command.as_str() {
        "run" => run(&wish),
        "planted" => planted(&wish),
        other => bail!("there is no {other}"),
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Wish> {
    let mut wish = Wish::default();
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seed" => {
                let seed = value.parse()?;
                wish.seeds = Some((seed, seed + 1));
            }
            "--seeds" => {
                let (from, to) = value.split_once("..").context("--seeds A..B")?;
                wish.seeds = Some((from.parse()?, to.parse()?));
            }
            "--seconds" => wish.seconds = Some(value.parse()?),
            "--years" => wish.years = Some(value.parse()?),
            "--hours" => wish.hours = Some(value.parse()?),
            "--seeds-max" => wish.seeds_max = Some(value.parse()?),
            other => bail!("there is no {other}"),
        }
    }
    Ok(wish)
}

/// Ends the process when a life does not go on: an engine that spins on the spot cannot be stopped
/// from inside.
fn watch() {
    std::thread::spawn(|| {
        let mut last = (u64::MAX, 0);
        loop {
            pause_for_real(Duration::from_secs(1));
            let seed = SEED.load(Ordering::Relaxed);
            last = if last.0 == seed { (seed, last.1 + 1) } else { (seed, 0) };
            if last.1 > 120 && seed > 0 {
                println!(
                    "VIOLATION: seed {seed} has not ended for two minutes\n{}",
                    replay(seed, None)
                );
                std::process::exit(1);
            }
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "the watchdog looks at real time")]
fn pause_for_real(duration: Duration) {
    std::thread::sleep(duration);
}

#[expect(clippy::disallowed_methods, reason = "the speed of a run is measured in real time")]
fn real_now() -> Instant {
    Instant::now()
}

fn replay(seed: u64, hours: Option<u64>) -> String {
    let hours = hours.map_or_else(String::new, |hours| format!(" --hours {hours}"));
    format!("replay: cargo run --release -p postrider-simulation -- run --seed {seed}{hours}")
}

fn run(wish: &Wish) -> Result<bool> {
    let begun = real_now();
    let mut sum = Sum::default();
    let is_single = wish.seeds.is_some_and(|(from, to)| to == from + 1);
    let mut good = true;
    if !is_single {
        good &= edges(&mut sum);
    }
    let (from, to) = wish.seeds.unwrap_or((1, u64::MAX));
    let seconds = wish.seconds.or((wish.seeds.is_none() && wish.years.is_none()).then_some(60));
    for seed in from..to {
        let years = sum.lived_ms / (365 * 24 * 3_600_000);
        if seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds)
            || wish.years.is_some_and(|wanted| years >= wanted)
        {
            break;
        }
        SEED.store(seed, Ordering::Relaxed);
        let outcome = live(seed, wish.hours)?;
        if is_single {
            println!("trace hash {:016x}", outcome.hash);
        }
        good &= report(&outcome, wish.hours);
        sum.add(&outcome);
        if sum.violations > 20 {
            break;
        }
    }
    SEED.store(0, Ordering::Relaxed);
    print!("{}", sum.coverage.table());
    let missing = sum.coverage.missing();
    if !is_single && !missing.is_empty() && sum.seeds >= 200 {
        good = false;
        for cover in missing {
            println!("NEVER MET: {}", cover.text());
        }
    }
    println!("{}", sum.line(begun.elapsed()));
    Ok(good)
}

fn edges(sum: &mut Sum) -> bool {
    let mut good = true;
    for (name, edge) in EDGES {
        let line = match edge() {
            Ok(outcome) => {
                sum.add(&outcome);
                outcome.violations.first().map(|first| format!("{}\n{}", first.what, outcome.trace))
            }
            Err(error) => Some(error.to_string()),
        };
        match line {
            None => println!("edge ok: {name}"),
            Some(why) => {
                good = false;
                sum.violations += 1;
                println!("EDGE MISSED: {name}: {why}");
            }
        }
    }
    good
}

fn report(outcome: &Outcome, hours: Option<u64>) -> bool {
    let Some(first) = outcome.violations.first() else { return true };
    println!("VIOLATION in seed {}: {}", outcome.seed, first.what);
    if let Some(id) = first.delivery {
        println!("  delivery {id}");
    }
    if let Some(id) = first.destination {
        println!("  destination {id}");
    }
    print!("{}", outcome.trace);
    println!("{}", replay(outcome.seed, hours));
    false
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.lived_ms += outcome.lived_ms.unsigned_abs();
        self.attempts += outcome.attempts;
        self.crashes += outcome.crashes;
        self.violations += outcome.violations.len();
        self.coverage.add(&outcome.coverage);
    }

    fn line(&self, took: Duration) -> String {
        let hours = self.lived_ms / 3_600_000;
        let seconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        format!(
            "simulation: {} lives, {hours} simulated hours ({} years), {} attempts, {} crashes, \
             {} violations, {} hours per second",
            self.seeds,
            hours / 8_760,
            self.attempts,
            self.crashes,
            self.violations,
            hours * 1_000 / seconds,
        )
    }
}

#[cfg(not(feature = "planted-bugs"))]
fn planted(_: &Wish) -> Result<bool> {
    bail!("build with --features planted-bugs")
}

#[cfg(feature = "planted-bugs")]
fn planted(wish: &Wish) -> Result<bool> {
    use postrider_simulation::planted::{BUGS, catch};
    let (max, mut caught) = (wish.seeds_max.unwrap_or(300), 0);
    for (n, bug) in (1u64..).zip(BUGS) {
        SEED.store(n, Ordering::Relaxed);
        match catch(bug, max) {
            Some((seeds, what)) => {
                caught += 1;
                println!("{bug:?}: caught in {seeds} seeds: {what}");
            }
            None => println!("{bug:?}: NOT CAUGHT in {max} seeds"),
        }
    }
    SEED.store(0, Ordering::Relaxed);
    println!("planted bugs: {caught} of {} caught", BUGS.len());
    Ok(caught == BUGS.len())
}
