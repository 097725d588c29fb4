//! `cargo xtask budget`: instructions per delivery, counted by callgrind, against the budget.
//!
//! Each part is counted twice, the second time with twice as many deliveries: the difference
//! excludes the start. The figures do not depend on the load of the machine, only on the code. A
//! part that costs more than its budget fails, and so does one that costs much less: then lower the
//! budget with `--update`.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::install;
use crate::process::{command, output, run as run_command, target};
use crate::toml::Toml;

const FILE: &str = "xtask/budget.toml";

/// A measured part of a delivery's life.
struct Part {
    name: &'static str,
    deliveries: u64,
    /// The allowed difference in per cent.
    tolerance: u64,
    what: &'static str,
}

const PARTS: [Part; 6] = [
    Part { name: "accept_single", deliveries: 1000, tolerance: 3, what: "an event in a request" },
    Part {
        name: "accept_batch",
        deliveries: 2000,
        tolerance: 3,
        what: "an event in a batch of 100",
    },
    Part {
        name: "deliver_single",
        deliveries: 1000,
        tolerance: 3,
        what: "accept_single, then match, dispatch, render, sign, settle; store in memory",
    },
    Part {
        name: "deliver",
        deliveries: 2000,
        tolerance: 3,
        what: "accept_batch, then match, dispatch, render, sign, settle; store in memory",
    },
    Part {
        name: "embedded",
        deliveries: 4000,
        tolerance: 15,
        what: "the same on the embedded store; its threads take turns as they like",
    },
    Part {
        name: "post",
        deliveries: 1000,
        tolerance: 3,
        what: "a POST by the transport, with the receiver's side",
    },
];

/// Counts and compares; with `--update` writes the new budget.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let update = match arguments {
        [] => false,
        [flag] if flag == "--update" => true,
        _ => bail!("cargo xtask budget [--update]"),
    };
    install::valgrind()?;
    let build = "cargo build --package postrider-api --example budget --profile serve";
    run_command(&mut command(root, build))?;
    let written = fs::read_to_string(root.join(FILE)).unwrap_or_default();
    let budget = Toml::parse(&written);
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    for (part, counted) in PARTS.iter().zip(count_all(root)?) {
        let allowed = budget.value("instructions", part.name).and_then(|text| text.parse().ok());
        let verdict = judge(counted, allowed, part.tolerance);
        println!("{:<16} {counted:>8} instructions per delivery  {}", part.name, verdict.shown());
        lines.push(format!("# {}\n{} = {counted}\n", part.what, part.name));
        if !update && let Verdict::Off(why) = verdict {
            faults.push(format!("{}: {why}", part.name));
        }
    }
    if update {
        return write(root, &lines);
    }
    if !faults.is_empty() {
        bail!("{}\nif that is meant so: cargo xtask budget --update", faults.join("\n"));
    }
    Ok(())
}

fn write(root: &Path, lines: &[String]) -> Result<()> {
    let text = format!(
        "# Instructions per delivery. Written by `cargo xtask budget --update`, compared by\n\
         # `cargo xtask budget`, which CI runs.\n\n[instructions]\n{}",
        lines.join("")
    );
    fs::write(root.join(FILE), text).with_context(|| format!("cannot write {FILE}"))?;
    println!("wrote {FILE}");
    Ok(())
}

/// The comparison of a count with its budget.
enum Verdict {
    Fits(String),
    Off(String),
}

impl Verdict {
    fn shown(&self) -> &str {
        match self {
            Verdict::Fits(text) | Verdict::Off(text) => text,
        }
    }
}

fn judge(counted: u64, allowed: Option<u64>, tolerance: u64) -> Verdict {
    let Some(allowed) = allowed else { return Verdict::Off("has no budget".to_owned()) };
    let change = counted.abs_diff(allowed).saturating_mul(1000) / allowed.max(1);
    let sign = if counted < allowed { '-' } else { '+' };
    let text = format!("{sign}{}.{} % of {allowed}", change / 10, change % 10);
    if change <= tolerance * 10 { Verdict::Fits(text) } else { Verdict::Off(text) }
}

/// Instructions per delivery of each part. The short runs and the long ones are counted at the same
/// time: callgrind runs all threads of a program on one core.
fn count_all(root: &Path) -> Result<Vec<u64>> {
    let all = |times: u64| -> Result<Vec<u64>> {
        PARTS.iter().map(|part| instructions(root, part.name, part.deliveries * times)).collect()
    };
    let (few, many) = thread::scope(|scope| {
        let few = scope.spawn(|| all(1));
        let many = all(2);
        (few.join(), many)
    });
    let Ok(few) = few else { bail!("the thread that counts has panicked") };
    let runs = few?.into_iter().zip(many?);
    let per_delivery =
        |(part, (few, many)): (&Part, (u64, u64))| many.saturating_sub(few) / part.deliveries;
    Ok(PARTS.iter().zip(runs).map(per_delivery).collect())
}

/// Instructions of a whole run.
fn instructions(root: &Path, part: &str, deliveries: u64) -> Result<u64> {
    let folder = root.join("target/callgrind");
    let data = folder.join(format!("{part}.{deliveries}-data"));
    // Remove the data of an earlier run.
    drop(fs::remove_dir_all(&data));
    fs::create_dir_all(&folder)?;
    let profile = folder.join(format!("{part}.{deliveries}.out"));
    let mut callgrind = command(root, "valgrind --tool=callgrind --quiet");
    callgrind.arg(format!("--callgrind-out-file={}", profile.display()));
    callgrind.arg(target(root).join("serve/examples/budget"));
    callgrind.arg(part).arg(deliveries.to_string()).arg(&data);
    output(&mut callgrind)?;
    drop(fs::remove_dir_all(&data));
    let text = fs::read(&profile)?;
    total(&String::from_utf8_lossy(&text))
        .with_context(|| format!("{} has no total", profile.display()))
}

/// The total in a profile.
fn total(profile: &str) -> Option<u64> {
    let line = profile
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")));
    line?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_costs_more_or_much_less_is_off() {
        let fits = |counted, allowed| matches!(judge(counted, allowed, 3), Verdict::Fits(_));
        assert!(fits(1000, Some(1000)) && fits(1030, Some(1000)) && fits(970, Some(1000)));
        assert!(!fits(1031, Some(1000)) && !fits(969, Some(1000)) && !fits(1000, None));
        assert_eq!(judge(1015, Some(1000), 3).shown(), "+1.5 % of 1000");
    }

    #[test]
    fn the_total_is_the_last_word_of_a_profile() {
        assert_eq!(total("events: Ir\nfn=(1)\n1 7\n\ntotals: 1234\n"), Some(1234));
        assert_eq!(total("summary: 99\nfn=(1)\n"), Some(99));
        assert_eq!(total(""), None);
    }

    #[test]
    fn every_part_has_its_budget() {
        let text = fs::read_to_string(crate::root().join(FILE)).unwrap();
        let budget = Toml::parse(&text);
        let has: Vec<&str> = budget.keys("instructions").collect();
        assert_eq!(has, PARTS.iter().map(|part| part.name).collect::<Vec<_>>());
    }
}
