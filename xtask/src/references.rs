//! `cargo xtask references`: tests Postrider with independent libraries and tools.
//!
//! The Standard Webhooks libraries for Python and JavaScript verify the signatures of the real
//! binary, Schemathesis tests the API and that of Workfront against their OpenAPI documents, and the HTTP clients of Python,
//! Node and Go and curl must read every refusal. The official Python client of the Model Context Protocol drives
//! `postrider mcp`. The libraries are installed from their registries
//! into the target folder. Everything runs in a network namespace that has nothing but loopback:
//! **no host in a generated request is ever contacted**.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::install;
use crate::process::{command, exists, run, target};

const PYTHON_PACKAGES: [&str; 4] = ["mcp==2.3.0", "requests", "schemathesis", "standardwebhooks"];
/// How often each client sends each refused body, unless `--refusals` says otherwise.
const REFUSALS: &str = "30";
const NODE_PACKAGES: [&str; 1] = ["standardwebhooks"];

/// Whether this machine supports network namespaces.
pub(crate) fn is_possible() -> bool {
    exists("unshare -n true")
}

/// Builds the binary, installs the libraries and tools, and runs them. With `--refusals N` only the refusals
/// are tested, each N times by each client.
pub(crate) fn run_all(root: &Path, arguments: &[String]) -> Result<()> {
    let refusals_only = asked(arguments)?;
    if !is_possible() {
        bail!("no network namespace can be made here; run this as root");
    }
    let folder = root.join("target/references");
    std::fs::create_dir_all(&folder)?;
    let python = python(&folder)?;
    node(&folder)?;
    install::http_clients()?;
    run(&mut command(root, "cargo build --quiet --package postrider"))?;
    let binary = target(root).join("debug/postrider");
    if refusals_only.is_none() {
        let mut check = on_loopback(root, &python);
        run(check.arg("xtask/references/check.py").args([&binary, &folder]))?;
    }
    let mut refusals = on_loopback(root, &python);
    let count = refusals_only.unwrap_or(REFUSALS);
    run(refusals.arg("xtask/references/refusals.py").arg(&binary).arg(count))
}

/// The number after `--refusals`; `None` without arguments.
fn asked(arguments: &[String]) -> Result<Option<&str>> {
    match arguments {
        [] => Ok(None),
        [word, count] if word == "--refusals" && count.parse::<u32>().is_ok_and(|n| n > 0) => {
            Ok(Some(count))
        }
        _ => bail!("`cargo xtask references` takes nothing, or --refusals and a number"),
    }
}

/// A command in a network namespace that has only loopback.
fn on_loopback(root: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .current_dir(root)
        .args(["-n", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(program);
    command
}

/// The interpreter of a Python environment with the packages.
fn python(folder: &Path) -> Result<PathBuf> {
    let environment = folder.join("python");
    let python = environment.join("bin/python");
    if !python.exists() {
        install::python()?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let mut pip = Command::new(&python);
    run(pip.args(["-m", "pip", "install", "--quiet"]).args(PYTHON_PACKAGES))?;
    Ok(python)
}

fn node(folder: &Path) -> Result<()> {
    install::node()?;
    std::fs::write(folder.join("package.json"), "{\"private\": true}\n")?;
    let mut npm = command(folder, "npm install --silent --no-audit --no-fund");
    run(npm.args(NODE_PACKAGES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_as_asked() {
        let read = |words: &str| {
            let words: Vec<_> = words.split_whitespace().map(str::to_owned).collect();
            asked(&words).map(|count| count.map(str::to_owned))
        };
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("--refusals 1000").unwrap().as_deref(), Some("1000"));
        for bad in ["--refusals", "--refusals 0", "--refusals many", "1000"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
