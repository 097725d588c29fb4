//! `cargo xtask serve`: builds and runs the server from a fresh checkout.
//!
//! The build is optimised, but not as slowly as that of the packages: see `[profile.serve]` in
//! `Cargo.toml`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{command, shown, target};
use crate::{dashboard, install, process};

/// Builds, and executes `postrider serve` in place of this process, so that signals reach it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    dashboard::build(root)?;
    install::make()?;
    process::run(&mut command(root, "cargo build --profile serve --package postrider"))?;
    // Relative paths in the arguments (`--data-dir`) are relative to the user's current folder.
    let mut serve = Command::new(target(root).join("serve/postrider"));
    serve.arg("serve").args(arguments);
    println!("$ {}", shown(&serve));
    Err(serve.exec()).context("cannot start `postrider`")
}
