//! `cargo xtask fixture PROGRAM NAME`: stores of a released version, made by its own binary.
//!
//! They are in `crates/server/tests/fixtures/NAME/`, and every later version must open them. Their
//! contents are defined in `crates/server/tests/cluster/fixtures/make.rs`.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::process;

/// Makes the fixture of a version. An existing one is never made again.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let [program, name] = arguments else {
        bail!("give the binary of the version and its name: cargo xtask fixture PROGRAM NAME");
    };
    let program = Path::new(program).canonicalize().with_context(|| format!("no {program}"))?;
    let words = "cargo test --package postrider --test cluster -- --ignored --nocapture";
    let mut make = process::command(root, words);
    make.arg("fixture_is_made_by_a_program");
    make.env("POSTRIDER_FIXTURE_PROGRAM", program).env("POSTRIDER_FIXTURE_NAME", name);
    process::run(&mut make)
}
