//! `postrider config`: the effective settings and their origins.

use crate::config::{Loaded, show};
use crate::exit::Failure;
use crate::output::Output;

/// Prints the configuration: as a valid file, or as JSON with origins.
pub(crate) fn run(loaded: &Loaded, output: Output) -> Result<(), Failure> {
    let shown = loaded.shown();
    Ok(output.value(&show::json(&shown), |_| show::toml(&shown).trim_end().to_owned())?)
}
