//! `cargo xtask coverage`: measures which lines of the domain its own tests run.
//!
//! rustc counts (`-C instrument-coverage`); LLVM's tools of the same major version as rustc's read
//! the counts, from the Debian package `llvm-<version>`. Lines of tests do not count, because they
//! would only raise the figure.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::ensure_debian_package;
use crate::process::{command, output, run_and_listen};

/// Measures, and prints a line for each file.
pub(crate) fn run(root: &Path) -> Result<()> {
    let llvm = llvm_tools(root)?;
    let target = root.join("target/coverage");
    let counts = target.join("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts)?;
    }
    let mut tests = command(root, "cargo test --package postrider-domain --lib --tests");
    tests.env("CARGO_TARGET_DIR", &target).env("RUSTFLAGS", "-C instrument-coverage");
    tests.env("LLVM_PROFILE_FILE", counts.join("%p-%m.profraw"));
    let (succeeded, heard) = run_and_listen(&mut tests)?;
    if !succeeded {
        bail!("the tests failed");
    }

    let merged = target.join("domain.profdata");
    let mut merge = Command::new(llvm.join("llvm-profdata"));
    merge.args(["merge", "--sparse", "--output"]).arg(&merged);
    for entry in fs::read_dir(&counts).context("the tests wrote no counts")? {
        merge.arg(entry?.path());
    }
    output(&mut merge)?;

    let mut export = Command::new(llvm.join("llvm-cov"));
    export.args(["export", "--format=lcov", "--instr-profile"]).arg(&merged);
    for binary in test_binaries(&heard) {
        export.arg("--object").arg(root.join(binary));
    }
    let lcov = output(&mut export)?;

    let folder = root.join("crates/domain/src");
    let mut files = Vec::new();
    for (path, lines) in lines_by_file(&lcov) {
        if let Ok(name) = Path::new(path).strip_prefix(&folder)
            && !name.ends_with("tests.rs")
        {
            let code = code_lines(&fs::read_to_string(path)?);
            let lines = lines.into_iter().filter(|(line, _)| *line <= code).collect();
            files.push(File { name: name.to_string_lossy().into_owned(), lines });
        }
    }
    print!("\n{}", report(&files));
    Ok(())
}

/// The folder of the LLVM tools that match this rustc.
fn llvm_tools(root: &Path) -> Result<PathBuf> {
    let version = output(&mut command(root, "rustc --version --verbose"))?;
    let major = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))
        .and_then(|version| version.split('.').next())
        .context("rustc does not say which LLVM it has")?;
    let folder = format!("/usr/lib/llvm-{major}/bin");
    let probe = format!("{folder}/llvm-cov");
    ensure_debian_package(&format!("llvm-{major}"), &probe, "it reads rustc's coverage counts")?;
    Ok(folder.into())
}

/// The test programs in cargo's output: `Running unittests src/lib.rs (target/…)`.
fn test_binaries(heard: &str) -> Vec<&str> {
    heard
        .lines()
        .filter(|line| line.trim_start().starts_with("Running "))
        .filter_map(|line| line.rsplit_once('(')?.1.strip_suffix(')'))
        .collect()
}

/// How often each line ran, by file, from the lcov format (`SF:file`, `DA:line,count`).
fn lines_by_file(lcov: &str) -> BTreeMap<&str, BTreeMap<usize, u64>> {
    let mut files: BTreeMap<&str, BTreeMap<usize, u64>> = BTreeMap::new();
    let mut file = "";
    for line in lcov.lines() {
        if let Some(path) = line.strip_prefix("SF:") {
            file = path;
        } else if let Some((number, count)) =
            line.strip_prefix("DA:").and_then(|data| data.split_once(','))
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse::<u64>())
        {
            *files.entry(file).or_default().entry(number).or_default() += count;
        }
    }
    files
}

/// How many lines there are before `mod tests`, which is at the end of a file.
fn code_lines(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let tests = lines
        .windows(2)
        .position(|two| two[0].starts_with("#[cfg(test)]") && two[1].starts_with("mod tests"));
    tests.unwrap_or(lines.len())
}

struct File {
    name: String,
    lines: BTreeMap<usize, u64>,
}

fn report(files: &[File]) -> String {
    let mut text = String::new();
    let (mut ran, mut all) = (0, 0);
    for file in files.iter().filter(|file| !file.lines.is_empty()) {
        let missed: Vec<usize> =
            file.lines.iter().filter(|(_, count)| **count == 0).map(|(line, _)| *line).collect();
        let total = file.lines.len();
        let hit = total - missed.len();
        text += &format!("{:<28} {hit:>5} of {total:>5}  {}", file.name, percent(hit, total));
        text += &if missed.is_empty() {
            "\n".to_owned()
        } else {
            format!("  not {}\n", ranges(&missed))
        };
        ran += hit;
        all += total;
    }
    text + &format!("domain: {ran} of {all} lines ran, {}\n", percent(ran, all))
}

/// A share in tenths of a per cent, rounded down: 100.0 % means all.
fn percent(part: usize, whole: usize) -> String {
    let tenths = (part * 1000).checked_div(whole).unwrap_or(1000);
    format!("{:>3}.{} %", tenths / 10, tenths % 10)
}

/// Formats 1, 2, 3 and 7 as `1-3, 7`.
fn ranges(lines: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &line in lines {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == line => *end = line,
            _ => ranges.push((line, line)),
        }
    }
    let show = |(start, end): &(usize, usize)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_those_that_cargo_ran() {
        let heard = "   Compiling x v1 (/x)\n     Running unittests src/lib.rs (target/debug/deps/x-1)\n\
                     Running tests/y.rs (target/debug/deps/y-2)\ntest result: ok.\n";
        assert_eq!(test_binaries(heard), ["target/debug/deps/x-1", "target/debug/deps/y-2"]);
    }

    #[test]
    fn lines_of_tests_are_left_out() {
        let source = "//! Doc.\nfn a() {}\n\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(code_lines(source), 3);
        assert_eq!(code_lines("fn a() {}\n#[cfg(test)]\nfn b() {}\n"), 3);
    }

    #[test]
    fn a_line_counts_as_run_when_any_program_ran_it() {
        let files =
            lines_by_file("SF:/a.rs\nFN:1,a\nDA:1,0\nDA:2,5\nend_of_record\nSF:/a.rs\nDA:1,2\n");
        assert_eq!(files["/a.rs"], BTreeMap::from([(1, 2), (2, 5)]));
    }

    #[test]
    fn the_report_names_the_lines_that_did_not_run() {
        let lines = BTreeMap::from([(1, 1), (2, 0), (3, 0), (5, 0), (6, 9), (7, 1)]);
        let report = report(&[File { name: "a.rs".to_owned(), lines }]);
        assert_eq!(
            report,
            "a.rs                             3 of     6   50.0 %  not 2-3, 5\n\
             domain: 3 of 6 lines ran,  50.0 %\n"
        );
        assert_eq!(percent(999, 1000), " 99.9 %");
        assert_eq!(percent(9999, 10000), " 99.9 %");
    }
}
