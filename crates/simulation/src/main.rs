//! `postrider-simulation run` simulates seeds, `planted` shows that planted bugs are caught.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this is a command line")]

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use postrider_simulation::coverage::Coverage;
use postrider_simulation::edges::EDGES;
use postrider_simulation::planted::{BUGS, catch};
use postrider_simulation::scenes::SCENES;
use postrider_simulation::seeds;
use postrider_simulation::world::life::{Outcome, live};

const USAGE: &str = "\
usage: postrider-simulation run [--seed N] [--seeds A..B] [--seconds S] [--years Y] [--hours H]
                                [--jobs J] [--first N]
       postrider-simulation planted [--seeds-max N] [--jobs J] [--only A,B]   (in the copy of `cargo xtask planted`)

run       lives seeds from 1 (or those given, or from N on) until the seconds or simulated years are
          over, on as many threads as there are cores; plays the edges of the contract and the
          scenes first, unless seeds are given, and lives what once found something, unless it is
          told where to begin
planted   plants one bug at a time, all or only those named, and shows that it is caught";

/// The longest time for one simulated run ("life"), on its own core.
const LIFE_MAX: Duration = Duration::from_secs(300);
/// After this many simulated years a long run prints its progress.
const YEARS_TO_TELL: u64 = 10;
/// After this many violations the run stops.
const VIOLATIONS_MAX: usize = 20;
/// The least number of lives, edge cases and scenes of a run, unless the seeds are given.
const LIVES_MIN: u64 = 100;
const HOUR_MS: u64 = 3_600_000;

/// The command line.
#[derive(Debug, Default)]
struct Wish {
    seeds: Option<(u64, u64)>,
    first: Option<u64>,
    seconds: Option<u64>,
    years: Option<u64>,
    hours: Option<u64>,
    seeds_max: Option<u64>,
    only: Option<String>,
    jobs: Option<usize>,
}

/// The sums over all lives.
#[derive(Debug, Default)]
struct Sum {
    lives: u64,
    lived_ms: u64,
    attempts: u64,
    crashes: u64,
    violations: usize,
    /// Lives that were simulated twice, with the same trace.
    repeated: u64,
    coverage: Coverage,
}

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
            "--first" => wish.first = Some(value.parse()?),
            "--seconds" => wish.seconds = Some(value.parse()?),
            "--years" => wish.years = Some(value.parse()?),
            "--hours" => wish.hours = Some(value.parse()?),
            "--seeds-max" => wish.seeds_max = Some(value.parse()?),
            "--only" => wish.only = Some(value),
            "--jobs" => wish.jobs = Some(value.parse()?),
            other => bail!("there is no {other}"),
        }
    }
    Ok(wish)
}

impl Wish {
    fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        self.jobs.unwrap_or_else(cores).max(1)
    }

    fn is_single(&self) -> bool {
        self.seeds.is_some_and(|(from, to)| to == from + 1)
    }
}

/// The seed that a thread simulates, and the processor time of the process when it began. An engine
/// in an endless loop cannot be stopped from inside. Processor time is used, because a busy or
/// suspended machine is not an endless loop.
struct Watched(AtomicU64, Mutex<Option<Duration>>);

impl Watched {
    fn begin(&self, what: u64) {
        self.0.store(what, Ordering::Relaxed);
        *lock(&self.1) = Some(worked());
    }

    fn end(&self) {
        *lock(&self.1) = None;
    }

    fn check(&self, max: Duration) {
        let since = *lock(&self.1);
        if since.is_some_and(|since| worked().saturating_sub(since) > max) {
            let seed = self.0.load(Ordering::Relaxed);
            let (replay, seconds) = (replay(seed, None), max.as_secs());
            println!("VIOLATION: seed {seed} has not ended in {seconds} s of work\n{replay}");
            std::process::exit(1);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs work on this many threads, and checks that they make progress.
fn on_threads(jobs: usize, work: impl Fn(&Watched) -> Result<()> + Sync) -> Result<()> {
    let watched: Vec<_> = (0..jobs).map(|_| Watched(AtomicU64::new(0), Mutex::new(None))).collect();
    let done = AtomicBool::new(false);
    let max = LIFE_MAX * u32::try_from(jobs).unwrap_or(u32::MAX);
    std::thread::scope(|scope| {
        let threads: Vec<_> = watched.iter().map(|watched| scope.spawn(|| work(watched))).collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                pause_for_real(Duration::from_millis(200));
                watched.iter().for_each(|watched| watched.check(max));
            }
        });
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| bail!("a world ended in a panic: see above"))
        });
        let ended: Vec<Result<()>> = ended.collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().collect()
    })
}

#[expect(clippy::disallowed_methods, reason = "the watchdog looks at real time")]
fn pause_for_real(duration: Duration) {
    std::thread::sleep(duration);
}

/// The processor time of this process.
fn worked() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
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
    let sum = Mutex::new(Sum::default());
    let played: Vec<_> =
        if wish.seeds.is_none() { EDGES.iter().chain(&SCENES).collect() } else { Vec::new() };
    let (from, to) = wish.seeds.unwrap_or((wish.first.unwrap_or(1), u64::MAX));
    let seconds = wish.seconds.or((wish.seeds.is_none() && wish.years.is_none()).then_some(60));
    let (next_edge, next_seed) = (AtomicU64::new(0), AtomicU64::new(from));
    // These seeds reach every situation that must be covered, however slow the machine.
    let is_gated = wish.seeds.is_none() && wish.first.is_none();
    let lives_min = if is_gated { LIVES_MIN } else { 0 };
    let found = seeds::read(if is_gated { seeds::LONG } else { "" })?;
    let next_found = AtomicU64::new(0);
    let is_over = || {
        let sum = lock(&sum);
        let is_late = seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds);
        is_late && sum.lives >= lives_min
            || wish.years.is_some_and(|wanted| sum.years() >= wanted)
            || sum.violations > VIOLATIONS_MAX
    };
    on_threads(wish.jobs(), |watched| {
        while let Ok(place) = usize::try_from(next_edge.fetch_add(1, Ordering::Relaxed))
            && let Some((name, edge)) = played.get(place)
        {
            watched.begin(0);
            let outcome = edge();
            watched.end();
            lock(&sum).play(name, outcome);
        }
        while let Ok(place) = usize::try_from(next_found.fetch_add(1, Ordering::Relaxed))
            && let Some((seed, hours)) = found.get(place)
        {
            watched.begin(*seed);
            let outcome = live(*seed, *hours)?;
            watched.end();
            lock(&sum).add(&outcome);
            report(&outcome, wish);
        }
        while !is_over() {
            let seed = next_seed.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            watched.begin(seed);
            let outcome = live(seed, wish.hours)?;
            // Some lives are simulated twice: both traces must be equal.
            let again = (seed % 32 == 7).then(|| live(seed, wish.hours)).transpose()?;
            watched.end();
            let mut sum = lock(&sum);
            let told = sum.years() / YEARS_TO_TELL;
            sum.add(&outcome);
            sum.repeat(&outcome, again.as_ref());
            report(&outcome, wish);
            if sum.years() / YEARS_TO_TELL > told {
                println!("so far: {}", sum.line(from, begun.elapsed()));
            }
        }
        Ok(())
    })?;
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{}", sum.coverage.table());
    let mut good = sum.violations == 0;
    if is_gated {
        for cover in sum.coverage.missing() {
            good = false;
            println!("NEVER MET: {}", cover.text());
        }
    }
    println!("{}", sum.line(from, begun.elapsed()));
    Ok(good)
}

fn report(outcome: &Outcome, wish: &Wish) {
    if wish.is_single() {
        println!("trace hash {:016x}", outcome.hash);
    }
    let Some(first) = outcome.violations.first() else { return };
    println!("VIOLATION in seed {}: {}", outcome.seed, first.what);
    if let Some(id) = first.delivery {
        println!("  delivery {id}");
    }
    if let Some(id) = first.destination {
        println!("  destination {id}");
    }
    print!("{}", outcome.trace);
    println!("{}", replay(outcome.seed, wish.hours));
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.lives += 1;
        self.lived_ms += outcome.lived_ms.unsigned_abs();
        self.attempts += outcome.attempts;
        self.crashes += outcome.crashes;
        self.violations += outcome.violations.len();
        self.coverage.add(&outcome.coverage);
    }

    fn play(&mut self, name: &str, outcome: Result<Outcome>) {
        let why = match outcome {
            Ok(outcome) => {
                self.add(&outcome);
                outcome.violations.first().map(|first| format!("{}\n{}", first.what, outcome.trace))
            }
            Err(error) => {
                self.violations += 1;
                Some(error.to_string())
            }
        };
        match why {
            None => println!("ok: {name}"),
            Some(why) => println!("VIOLATION: {name}: {why}"),
        }
    }

    fn repeat(&mut self, one: &Outcome, other: Option<&Outcome>) {
        let Some(other) = other else { return };
        self.repeated += 1;
        if one.hash != other.hash {
            self.violations += 1;
            let seed = one.seed;
            println!("VIOLATION in seed {seed}: lived twice, it was not the same");
            println!("{}", replay(seed, None));
        }
    }

    fn years(&self) -> u64 {
        self.lived_ms / (8_760 * HOUR_MS)
    }

    fn line(&self, from: u64, took: Duration) -> String {
        let hours = self.lived_ms / HOUR_MS;
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        format!(
            "simulation: {} lives from seed {from}, {hours} simulated hours ({} years), {} attempts, \
             {} crashes, {} lived twice, {} violations, {} hours per second",
            self.lives,
            self.years(),
            self.attempts,
            self.crashes,
            self.repeated,
            self.violations,
            hours * 1_000 / ms,
        )
    }
}

fn planted(wish: &Wish) -> Result<bool> {
    if BUGS.is_empty() {
        bail!("no bug is planted in this build; `cargo xtask planted` makes one with bugs")
    }
    let names: Option<Vec<&str>> = wish.only.as_deref().map(|only| only.split(',').collect());
    if let Some(name) = names.iter().flatten().find(|name| BUGS.iter().all(|(bug, _)| bug != *name))
    {
        bail!("there is no bug {name}");
    }
    let is_wanted =
        |(bug, _): &&(&str, &str)| names.as_ref().is_none_or(|names| names.contains(bug));
    let bugs: Vec<_> = BUGS.iter().filter(is_wanted).collect();
    let (begun, max) = (real_now(), wish.seeds_max.unwrap_or(300));
    let (next, caught) = (AtomicU64::new(0), AtomicU64::new(0));
    on_threads(wish.jobs(), |watched| {
        while let Ok(place) = usize::try_from(next.fetch_add(1, Ordering::Relaxed))
            && let Some((bug, breaks)) = bugs.get(place)
        {
            watched.begin(0);
            let found = catch(bug, max);
            watched.end();
            match found {
                Some((by, what)) => {
                    caught.fetch_add(1, Ordering::Relaxed);
                    println!("{bug}: caught by {by}: {what}");
                }
                None => println!("{bug}: NOT CAUGHT in {max} seeds: {breaks}"),
            }
        }
        Ok(())
    })?;
    let (caught, all) = (caught.into_inner(), bugs.len());
    let took = begun.elapsed().as_secs();
    println!("planted bugs: {caught} of {all} caught, in {took} s");
    Ok(u64::try_from(all).is_ok_and(|all| caught == all))
}
