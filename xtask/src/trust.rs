//! `cargo xtask trust`: runs the tests of `docs/trust.md` with the real binary, and prints their
//! figures.
//!
//! `--long` is the long form: higher counts, on a release build, and the simulation in addition. A
//! variable that is set already is kept, so that a single count can be changed.

use std::path::Path;

use anyhow::{Result, bail};

use crate::process::{command, run_and_listen};

/// The counts of the long form.
const LONG: [(&str, &str); 14] = [
    ("CRASH_KILLS", "500"),
    ("CRASH_STOPS", "100"),
    ("CRASH_DISKS", "5"),
    ("CRASH_SYNCS", "20"),
    ("CRASH_FAULT_STEP", "1"),
    ("CRASH_FAULT_JOBS", "6"),
    ("CRASH_HOSTILE_EACH", "20"),
    ("CRASH_WAITING", "1000000"),
    ("CRASH_HOLES", "1000"),
    ("CRASH_HOLES_WAITING", "100000"),
    ("CRASH_HEALTHY", "100"),
    ("CRASH_PULSES", "3000"),
    ("STORE_KILLS", "200"),
    ("POSTRIDER_CLUSTER_ROUNDS", "20"),
];

/// The prefixes of lines with figures for `docs/internals/trust.md`.
const FIGURES: [&str; 11] = [
    "kill-9: ",
    "SIGTERM: ",
    "second SIGTERM: ",
    "disk full: ",
    "sync failure: ",
    "k-th I/O error: ",
    "hostile receivers: ",
    "return after an outage: ",
    "neighbours: ",
    "cluster, ",
    "fuzz: ",
];

/// Runs the suite in its short or long form; other arguments select tests.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let (flags, filters): (Vec<_>, Vec<_>) =
        arguments.iter().partition(|argument| argument.starts_with("--"));
    let long = match flags[..] {
        [] => false,
        [flag] if flag == "--long" => true,
        _ => bail!("`cargo xtask trust` takes --long and names of tests, and nothing else"),
    };
    let mut failed = Vec::new();
    let mut figures = Vec::new();
    for words in steps(long, !filters.is_empty()) {
        let mut step = command(root, &words);
        if words.contains(" end_to_end ") {
            match filters[..] {
                [] => step.arg("crash::"),
                _ => step.args(&filters),
            };
        }
        for (name, value) in LONG.iter().filter(|(name, _)| long && !is_set(name)) {
            step.env(name, value);
        }
        let (succeeded, heard) = run_and_listen(&mut step)?;
        figures.extend(heard.lines().filter(|line| is_figure(line)).map(str::to_owned));
        if !succeeded {
            failed.push(words);
        }
    }
    println!("\n{}", figures.join("\n"));
    if !failed.is_empty() {
        bail!("failed: {}", failed.join("; "));
    }
    Ok(())
}

/// The commands, run one after the other, because concurrent ones would distort the figures.
fn steps(long: bool, only_some: bool) -> Vec<String> {
    let release = if long { " --release" } else { "" };
    let mut steps = vec![format!(
        "cargo test{release} -p postrider --test end_to_end -- --nocapture --test-threads 1"
    )];
    if long && !only_some {
        let store = "cargo test --release -p postrider-store --test";
        steps.push(format!("{store} store_kill -- --nocapture"));
        steps.push("cargo test --release -p postrider --test cluster -- --nocapture".to_owned());
        steps.push("cargo run --release -p postrider-simulation -- run --years 100".to_owned());
    }
    steps
}

#[expect(clippy::disallowed_methods, reason = "whoever turns a count alone does it by a variable")]
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

fn is_figure(line: &str) -> bool {
    FIGURES.iter().any(|name| line.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_among_what_tests_print() {
        assert!(is_figure("kill-9: 30 kills, 750 acknowledged, 0 lost"));
        assert!(!is_figure("test crash::kills::x ... ok"));
        assert!(!is_figure("seed 12"));
    }

    #[test]
    fn the_long_form_has_more_steps_unless_some_are_chosen() {
        assert_eq!(steps(false, false).len(), 1);
        assert_eq!(steps(true, true).len(), 1);
        assert_eq!(steps(true, false).len(), 4);
        assert!(steps(true, false).iter().all(|words| words.contains("--release")));
    }
}
