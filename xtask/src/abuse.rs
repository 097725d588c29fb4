//! `cargo xtask abuse`: runs the abuse suite against the real binary, with one line of figures per
//! attack.
//!
//! The long form runs on a release build; `--short` is the form that CI runs. `--binary` attacks another
//! binary, such as the one of an older version. `neighbour` measures one tenant beside another that
//! runs all attacks at once.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process::{command, run_and_listen};

/// The prefix of lines with figures.
const FIGURE: &str = "abuse: ";

/// The parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    short: bool,
    neighbour: bool,
    binary: Option<String>,
    rounds: Option<String>,
    /// Parts of the names of the tests to run.
    tests: Vec<String>,
}

impl Asked {
    fn read(arguments: &[String]) -> Result<Asked> {
        let mut asked = Asked::default();
        let mut rest = arguments.iter();
        while let Some(word) = rest.next() {
            let mut value =
                || rest.next().cloned().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--short" => asked.short = true,
                "--binary" => asked.binary = Some(value()?),
                "--rounds" => asked.rounds = Some(value()?),
                "neighbour" => asked.neighbour = true,
                _ if word.starts_with("--") => bail!(
                    "`cargo xtask abuse` takes neighbour, --short, --rounds N, --binary PATH and names of \
                     tests, not {word}"
                ),
                _ => asked.tests.push(word.clone()),
            }
        }
        if asked.rounds.is_some() && !asked.neighbour {
            bail!("--rounds goes with `neighbour`");
        }
        Ok(asked)
    }

    fn words(&self) -> String {
        let release = if self.short { "" } else { " --release" };
        let test = format!("cargo test{release} -p postrider --test abuse -- --nocapture");
        // One attack after the other, because concurrent ones would distort the figures.
        format!("{test} --test-threads 1")
    }
}

/// Runs the suite, and prints its figures together at the end.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let asked = Asked::read(arguments)?;
    let mut step = command(root, &asked.words());
    if asked.neighbour {
        step.args(["--ignored", "neighbour::"]);
    }
    step.args(&asked.tests);
    if !asked.short {
        step.env("ABUSE_LONG", "1");
    }
    if let Some(binary) = &asked.binary {
        let binary =
            std::fs::canonicalize(binary).with_context(|| format!("no binary {binary}"))?;
        step.env("ABUSE_BINARY", binary);
    }
    if let Some(rounds) = &asked.rounds {
        step.env("ABUSE_ROUNDS", rounds);
    }
    let (succeeded, heard) = run_and_listen(&mut step)?;
    let figures: Vec<&str> = heard.lines().filter_map(|line| line.strip_prefix(FIGURE)).collect();
    println!("\n{}", figures.join("\n"));
    let held = figures.iter().filter(|line| line.contains(": held: ")).count();
    println!("\n{held} of {} attacks held", figures.len());
    if !succeeded {
        bail!("something did not hold");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<Asked> {
        Asked::read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn command_line_is_read() {
        assert_eq!(read("").unwrap(), Asked::default());
        let asked = read("neighbour --rounds 3 --binary /x").unwrap();
        assert!(asked.neighbour && asked.rounds.as_deref() == Some("3"));
        assert_eq!(read("--short http2::").unwrap().tests, ["http2::"]);
        for bad in ["--long", "--rounds 3", "--binary"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn short_form_needs_no_release_build() {
        assert!(!read("--short").unwrap().words().contains("--release"));
        assert!(read("").unwrap().words().contains("--release"));
    }
}
