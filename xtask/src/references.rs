//! `cargo xtask references`: other people's work judges ours.
//!
//! The Standard Webhooks libraries for Python and JavaScript verify what the real binary signs,
//! Schemathesis tries the API against the document that it serves, and the HTTP clients of Python, Node
//! and Go and curl must read every refusal. The libraries are installed from their registries into the
//! target folder. Everything runs in a network namespace that has nothing but
//! loopback: **nothing that a generated request names is ever contacted**.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::install;
use crate::process::{command, exists, run};

const PYTHON_PACKAGES: [&str; 3] = ["requests", "schemathesis", "standardwebhooks"];
/// How often each client sends each body that is refused.
const REFUSALS: &str = "30";
const NODE_PACKAGES: [&str; 1] = ["standardwebhooks"];

/// Whether this machine permits what is needed.
pub(crate) fn is_possible() -> bool {
    exists("unshare -n true")
}

/// Builds the binary, installs the references, and lets them judge.
pub(crate) fn run_all(root: &Path) -> Result<()> {
    if !is_possible() {
        bail!("no network namespace can be made here; run this as root");
    }
    let folder = root.join("target/references");
    std::fs::create_dir_all(&folder)?;
    let python = python(&folder)?;
    node(&folder)?;
    install::http_clients()?;
    run(&mut command(root, "cargo build --quiet --package postrider"))?;
    let binary = root.join("target/debug/postrider");
    let mut check = on_loopback(root, &python);
    run(check.arg("xtask/references/check.py").args([&binary, &folder]))?;
    let mut refusals = on_loopback(root, &python);
    run(refusals.arg("xtask/references/refusals.py").arg(&binary).arg(REFUSALS))
}

/// A program in a network of its own that has nothing but loopback.
fn on_loopback(root: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .current_dir(root)
        .args(["-n", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""])
        .arg(program);
    command
}

/// The interpreter of an environment in which the packages are installed.
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
