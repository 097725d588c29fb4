//! `postrider keyring`: the keys that secrets at rest are sealed with. Touches the file only.
//!
//! **No key is ever printed**, only names.

use clap::{Args, Subcommand};
use postrider_api::vault::KeyRing;
use serde_json::json;

use super::load;
use crate::cli::ServerArgs;
use crate::config::Environment;
use crate::exit::Failure;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Keyring {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the names of its keys.
    Show(ServerArgs),
    /// Add a key, which is used from the server's next start or SIGHUP on. Older ones stay: they open
    /// what was sealed with them.
    Rotate(ServerArgs),
}

pub(crate) fn run(
    keyring: &Keyring,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let (arguments, rotate) = match &keyring.command {
        Command::Show(arguments) => (arguments, false),
        Command::Rotate(arguments) => (arguments, true),
    };
    let path = load(arguments, environment)?.config.keyring_path();
    let mut ring = KeyRing::read(&path).map_err(|error| Failure::failed(error.to_string()))?;
    if rotate {
        ring.add_key().map_err(|error| Failure::failed(error.to_string()))?;
        ring.replace(&path).map_err(|error| Failure::failed(error.to_string()))?;
    }
    let names = ring.names();
    let newest = names.last().copied().unwrap_or_default();
    let shown = json!({"path": path.display().to_string(), "keys": names, "newest": newest});
    Ok(output.value(&shown, |_| {
        let list = names.iter().map(|name| match *name == newest {
            true => format!("{name}  newest"),
            false => (*name).to_owned(),
        });
        let list = list.collect::<Vec<_>>().join("\n");
        let next = "\n\nThe server takes the new key at SIGHUP or its next start; the next start also \
                    seals anew what is sealed with older ones. Every node of a cluster needs this \
                    file, before any of them uses the new key. Keep a copy: what is sealed with a key \
                    is lost without it.";
        format!("{}\n{list}{}", path.display(), if rotate { next } else { "" })
    })?)
}
