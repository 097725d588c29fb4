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

const PYTHON_PACKAGES: [&str; 4] = ["mcp", "requests", "schemathesis", "standardwebhooks"];
/// How often each client sends each refused body.
const REFUSALS: &str = "30";
const NODE_PACKAGES: [&str; 1] = ["standardwebhooks"];

/// Whether this machine supports network namespaces.
pub(crate) fn is_possible() -> bool {
    exists("unshare -n true")
}

/// Builds the binary, installs the libraries and tools, and runs them.
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
    let binary = target(root).join("debug/postrider");
    let mut check = on_loopback(root, &python);
    run(check.arg("xtask/references/check.py").args([&binary, &folder]))?;
    let mut refusals = on_loopback(root, &python);
    run(refusals.arg("xtask/references/refusals.py").arg(&binary).arg(REFUSALS))
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
