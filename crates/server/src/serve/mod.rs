//! `postrider serve`.
mod http;
mod metrics;
mod observed;
mod outward;
mod signals;

use crate::cli::ServerArgs;
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::Output;
pub(crate) fn run(
    arguments: &ServerArgs,
    environment: &Environment,
    _output: Output,
) -> Result<(), Failure> {
    let _loaded = crate::commands::load(arguments, environment)?;
    Ok(())
}
