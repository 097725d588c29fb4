//! `cargo xtask ci`: runs all checks, one after the other, and prints a summary.
//!
//! A step that fails does not stop the others, so that one run shows everything that is broken; the
//! summary repeats its last lines. If the build fails, the tests are skipped.

use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{command, exists, run as run_command, run_and_listen};
use crate::{
    budget, clients, dashboard, deny, dist, docs_check, generators, install, planted, previous,
    process, reference, references, tidy,
};

/// Test binaries that start servers, kill processes or run simulations: the quick form skips them.
const SLOW_BINARIES: [&str; 8] = [
    "abuse",
    "cluster",
    "end_to_end",
    "journal_kill",
    "postgres",
    "simulation",
    "store_faults",
    "store_kill",
];

/// Runs all steps, or with `--quick` those that take a few minutes.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    process::record();
    match arguments {
        [] => run_all(root),
        [flag] if flag == "--quick" => run_quick(root),
        _ => bail!("`cargo xtask ci` takes --quick and nothing else"),
    }
}

/// Format, tidy, third-party code, clippy, and the tests that need no server and no database.
fn run_quick(root: &Path) -> Result<()> {
    let mut report = Report::default();
    check_sources(&mut report, root);
    report.step("clippy", || clippy(root));
    report.step("quick tests", || counted(&mut Runner::installed().test_quickly(root)));
    report.skip("everything else", "run `cargo xtask ci` for it");
    report.end()
}

/// The checks that need no build.
fn check_sources(report: &mut Report, root: &Path) {
    report.step("format", || once(run_command(&mut command(root, "cargo fmt --all --check"))));
    report.step("tidy", || once(tidy::run(root)));
    report.step("third-party code", || once(deny::check(root)));
    report.step("packages", || once(dist::check_packaging(root)));
}

fn clippy(root: &Path) -> Count {
    let lint = "cargo clippy --workspace --all-targets -- -D warnings";
    once(run_command(&mut command(root, lint)))
}

fn run_all(root: &Path) -> Result<()> {
    let mut report = Report::default();
    report.step("install", || once(install::everything(root)));
    check_sources(&mut report, root);
    // Before the server: its binary has the page inside.
    report.step("dashboard", || once(dashboard::build(root).and_then(|()| dashboard::check(root))));
    let runner = Runner::installed();
    let built = report.step("build", || once(run_command(&mut runner.build(root))));
    if built {
        report.step("clippy", || clippy(root));
        let mut tests = runner.test(root);
        match previous::build(root) {
            Ok(Some(program)) => drop(tests.env(previous::VARIABLE, program)),
            Ok(None) => report.skip("rolling upgrade", "the version before is not in this clone"),
            Err(error) => drop(report.step("rolling upgrade", || once(Err(error)))),
        }
        report.step("tests", || counted(&mut tests));
        simulate(&mut report, root);
        report.step("budget", || once(budget::run(root, &[])));
        if references::is_possible() {
            report.step("references", || once(references::run_all(root, &[])));
        } else {
            report.skip("references", "no network namespace can be made here");
        }
        report.step("clients", || once(clients::run(root, &[])));
        report.step("dashboard in a browser", || once(dashboard::test(root)));
        report.step("reference", || once(reference::run(root, &["--check".to_owned()])));
        report.step("generators", || once(generators::run_all(root)));
        report.step("shell blocks", || once(docs_check::run(root, &[])));
        report.step("doc tests", || {
            counted(&mut command(root, "cargo test --quiet --workspace --doc"))
        });
        report.step("docs", || {
            let mut docs = command(root, "cargo doc --workspace --no-deps");
            once(run_command(docs.env("RUSTDOCFLAGS", "-D warnings")))
        });
    } else {
        let steps = [
            "clippy",
            "tests",
            "simulation",
            "planted bugs",
            "budget",
            "references",
            "clients",
            "dashboard in a browser",
            "reference",
            "generators",
            "shell blocks",
            "doc tests",
            "docs",
        ];
        for step in steps {
            report.skip(step, "it does not build");
        }
    }
    report.end()
}

/// The number of seeds that CI tries and that earlier commits did not.
const NEW_SEEDS: u64 = 40;

/// The edge cases, the scenes and the first seeds, then seeds that belong to this commit. Then every
/// planted bug must be caught, in a copy of the sources.
fn simulate(report: &mut Report, root: &Path) {
    let words = "cargo run --quiet --profile simulation -p postrider-simulation --";
    report.step("simulation", || {
        let fixed = once(run_command(&mut command(root, &format!("{words} run --seconds 40"))));
        let hash = process::output(&mut command(root, "git rev-parse HEAD")).unwrap_or_default();
        let first = first_new_seed(&hash);
        let words = format!("{words} run --seeds {first}..{}", first + NEW_SEEDS);
        fixed.and(once(run_command(&mut command(root, &words))))
    });
    report.step("planted bugs", || once(planted::run(root, &[])));
}

/// The first of the seeds that belong to this commit. Each commit tries others, and every run of CI
/// on one commit tries the same: a failure repeats.
fn first_new_seed(hash: &str) -> u64 {
    let digits = hash.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    digits.map_or(1_000, |number| number * 1_000)
}

/// The cores of this machine. Tests run on one thread more: many wait for a server's own deadlines.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The test runner: nextest if it is installed.
enum Runner {
    Nextest,
    Cargo,
}

impl Runner {
    fn installed() -> Self {
        if exists("cargo nextest --version") { Runner::Nextest } else { Runner::Cargo }
    }

    fn build(&self, root: &Path) -> Command {
        command(root, &format!("{} --no-run", self.words()))
    }

    fn test(&self, root: &Path) -> Command {
        match self {
            Runner::Nextest => {
                let words = format!("{} --no-tests pass --test-threads", self.words());
                let mut tests = command(root, &words);
                tests.arg((cores() + 1).to_string());
                tests
            }
            Runner::Cargo => command(root, &format!("{} --no-fail-fast", self.words())),
        }
    }

    fn test_quickly(&self, root: &Path) -> Command {
        match self {
            Runner::Nextest => {
                let quick = format!("not binary(/^({})$/)", SLOW_BINARIES.join("|"));
                let mut tests = command(root, self.words());
                tests.args(["--no-tests", "pass", "-E", &quick]);
                tests
            }
            Runner::Cargo => command(root, "cargo test --workspace --lib --bins --no-fail-fast"),
        }
    }

    /// Arguments that exclude benchmarks.
    fn words(&self) -> &'static str {
        match self {
            Runner::Nextest => "cargo nextest run --workspace --profile ci",
            Runner::Cargo => "cargo test --workspace --lib --bins --tests --examples",
        }
    }
}

/// The count of a step that is not a test run.
fn once(result: Result<()>) -> Count {
    match result {
        Ok(()) => Count { passed: 1, failed: 0 },
        Err(error) => {
            process::say(&format!("error: {error:#}"));
            Count { passed: 0, failed: 1 }
        }
    }
}

/// Runs tests and counts them from the runner's output.
fn counted(tests: &mut Command) -> Count {
    let (succeeded, heard) = match run_and_listen(tests) {
        Ok(heard) => heard,
        Err(error) => return once(Err(error)),
    };
    let mut count = count_tests(&heard);
    if !succeeded && count.failed == 0 {
        count.failed = 1;
    }
    count
}

/// Parses `N passed` and `N failed` from the summaries of nextest and of cargo's own test harness.
fn count_tests(output: &str) -> Count {
    let mut count = Count::default();
    for line in output.lines() {
        let line = without_colour(line);
        // Skip indented lines: they are output of a failed test, which nextest's summary already
        // counts.
        if !line.starts_with("test result: ") && !line.trim_start().starts_with("Summary [") {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<usize>() else { continue };
            match pair[1].trim_end_matches([',', ';']) {
                "passed" => count.passed += number,
                "failed" => count.failed += number,
                _ => {}
            }
            if pair[1].starts_with("timed") || pair[1].starts_with("exec") {
                count.failed += number;
            }
        }
    }
    count
}

fn without_colour(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        plain += piece.split_once('m').map_or("", |(_, text)| text);
    }
    plain
}

/// The passed and failed checks of a step.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Count {
    passed: usize,
    failed: usize,
}

impl Count {
    fn and(self, other: Count) -> Count {
        Count { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

/// The results of all steps so far.
#[derive(Default)]
struct Report {
    results: Vec<StepResult>,
}

struct StepResult {
    step: &'static str,
    became: Became,
}

enum Became {
    /// `last` has the last lines that a failed step printed.
    Done {
        count: Count,
        took: Duration,
        last: Vec<String>,
    },
    Skipped {
        reason: &'static str,
    },
}

impl Report {
    /// Runs a step; returns whether it passed.
    #[expect(clippy::disallowed_methods, reason = "the summary says how long each step took")]
    fn step(&mut self, step: &'static str, work: impl FnOnce() -> Count) -> bool {
        println!("\n== {step}");
        let started = Instant::now();
        drop(process::take_recorded());
        let count = work();
        let printed = process::take_recorded();
        let last = if count.failed > 0 { printed } else { Vec::new() };
        let became = Became::Done { count, took: started.elapsed(), last };
        self.results.push(StepResult { step, became });
        count.failed == 0
    }

    fn skip(&mut self, step: &'static str, reason: &'static str) {
        self.results.push(StepResult { step, became: Became::Skipped { reason } });
    }

    fn total(&self) -> Count {
        let mut total = Count::default();
        for line in &self.results {
            if let Became::Done { count, .. } = &line.became {
                total.passed += count.passed;
                total.failed += count.failed;
            }
        }
        total
    }

    /// Prints the last lines of each failed step, then the summary; an error if a step failed.
    fn end(&self) -> Result<()> {
        for StepResult { step, became } in &self.results {
            if let Became::Done { last, .. } = became
                && !last.is_empty()
            {
                println!("\n== the end of \"{step}\", which failed:\n{}", last.join("\n"));
            }
        }
        println!("\n{}", self.summary());
        if self.failed() > 0 {
            bail!("CI failed");
        }
        Ok(())
    }

    fn failed(&self) -> usize {
        self.total().failed
    }

    /// A line for each step; then the sum, in which every test counts as one, and so does every
    /// other step.
    fn summary(&self) -> String {
        let mut text = String::new();
        for StepResult { step, became } in &self.results {
            text += &match became {
                Became::Skipped { reason } => format!("{step:<18} skipped  ({reason})\n"),
                Became::Done { count, took, .. } => {
                    let verdict = if count.failed == 0 { "passed" } else { "FAILED" };
                    let tests = match (count.passed, count.failed) {
                        (1, 0) | (0, 1) => String::new(),
                        (passed, failed) => format!("  ({passed} passed, {failed} failed)"),
                    };
                    format!("{step:<18} {verdict}   {:>6.1} s{tests}\n", took.as_secs_f64())
                }
            };
        }
        let Count { passed, failed } = self.total();
        text + &format!("\n{passed} passed, {failed} failed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_as_their_runner_says() {
        let check = |output: &str, passed, failed| {
            assert_eq!(count_tests(output), Count { passed, failed }, "{output}");
        };
        check("     Summary [   0.045s] 31 tests run: 31 passed, 2 skipped", 31, 0);
        check(
            "     Summary [   0.045s] 31 tests run: 29 passed (1 slow), 1 failed, 1 timed out, 0 skipped",
            29,
            2,
        );
        check(
            "\u{1b}[32;1m     Summary\u{1b}[0m [   0.045s] \u{1b}[1m3\u{1b}[0m tests run: \u{1b}[1m3\u{1b}[0m \u{1b}[32;1mpassed\u{1b}[0m, 0 skipped",
            3,
            0,
        );
        check(
            "test result: ok. 4 passed; 0 failed; 0 ignored\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored",
            5,
            2,
        );
        check(
            "    test result: FAILED. 0 passed; 1 failed\n Summary [ 1s] 2 tests run: 1 passed, 1 failed",
            1,
            1,
        );
        check("it printed: 9 passed, 9 failed", 0, 0);
    }

    #[test]
    fn the_summary_ends_with_the_sum_alone_on_a_line() {
        let mut report = Report::default();
        report.step("format", || Count { passed: 1, failed: 0 });
        report.step("tests", || Count { passed: 30, failed: 2 });
        report.skip("docs", "it does not build");
        let summary = report.summary();
        let lines: Vec<&str> = summary.lines().collect();
        assert!(lines[0].starts_with("format             passed"), "{summary}");
        assert!(lines[1].starts_with("tests              FAILED"), "{summary}");
        assert!(lines[1].ends_with("(30 passed, 2 failed)"), "{summary}");
        assert_eq!(lines[2], "docs               skipped  (it does not build)");
        assert_eq!(lines[4..], ["31 passed, 2 failed"]);
        assert_eq!(report.failed(), 2);
    }

    #[test]
    fn each_commit_has_seeds_of_its_own() {
        assert_eq!(first_new_seed("0000002a84cc19ffe1\n"), 42_000);
        assert_eq!(first_new_seed(""), 1_000);
    }

    #[test]
    fn tests_that_end_badly_without_a_word_count_as_one_failure() {
        let mut crashed = command(Path::new("/"), "false");
        assert_eq!(counted(&mut crashed), Count { passed: 0, failed: 1 });
        let mut missing = command(Path::new("/"), "no-such-program-here");
        assert_eq!(counted(&mut missing), Count { passed: 0, failed: 1 });
    }
}
