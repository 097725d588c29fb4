//! `cargo xtask clients`: the clients in other languages, tested against the real binary.
//!
//! `clients/check.py` runs the tests of each client and every example of its README, and compares
//! `clients/openapi.json` with the document that the server serves. All files that it creates are
//! in the target folder.

use std::path::Path;

use anyhow::Result;

use crate::install;
use crate::process::{command, run as run_command, target};

/// Builds the binary and checks the clients. The arguments are passed to `clients/check.py`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    install::languages()?;
    run_command(&mut command(root, "cargo build --quiet --package postrider"))?;
    let mut check = command(root, "python3 clients/check.py --work target/clients --binary");
    run_command(check.arg(target(root).join("debug/postrider")).args(arguments))
}
