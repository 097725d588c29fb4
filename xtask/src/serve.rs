//! `cargo xtask serve`: from a fresh checkout to a running server by one command.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{command, shown};
use crate::{dashboard, install, process};

/// Builds and becomes `postrider serve`, so that signals reach it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    dashboard::build(root)?;
    install::make()?;
    process::run(&mut command(root, "cargo build --release --package postrider"))?;
    // The server's own relative paths (`--data-dir`) mean the folder that the person stands in.
    let mut serve = Command::new(root.join("target/release/postrider"));
    serve.arg("serve").args(arguments);
    println!("$ {}", shown(&serve));
    Err(serve.exec()).context("cannot start `postrider`")
}
