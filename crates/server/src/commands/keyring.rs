//! `postrider keyring`: the keys that seal secrets at rest. A rotation changes the file and, if no
//! server is running, adds an entry to the audit log of the data directory.
//!
//! **No key is ever printed**, only names.

use anyhow::Context as _;
use clap::{Args, Subcommand};
use postrider_api::note_operator;
use postrider_api::vault::KeyRing;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::{StoreError, Upkeep as _};
use postrider_transport::{Clock as _, SystemClock};
use serde_json::json;

use super::load;
use crate::cli::ServerArgs;
use crate::config::{Config, Environment, StoreChoice};
use crate::exit::Failure;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Keyring {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make it where there is none, before the first start of a cluster: every node needs the same
    /// file. One that is there stays as it is.
    Create(ServerArgs),
    /// List the names of its keys.
    Show(ServerArgs),
    /// Add a key, which is used after the server's next start or SIGHUP. Older keys stay: they open
    /// secrets that were sealed with them.
    Rotate(ServerArgs),
}

pub(crate) async fn run(
    keyring: &Keyring,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let (Command::Create(arguments) | Command::Show(arguments) | Command::Rotate(arguments)) =
        &keyring.command;
    let rotate = matches!(keyring.command, Command::Rotate(_));
    let config = load(arguments, environment)?.config;
    let path = config.keyring_path();
    if matches!(keyring.command, Command::Create(_)) && !path.exists() {
        let created = KeyRing::generate().map_err(Into::into).and_then(|ring| ring.create(&path));
        created.map_err(|error| Failure::failed(error.to_string()))?;
    }
    let mut ring = KeyRing::read(&path).map_err(|error| Failure::failed(error.to_string()))?;
    if rotate {
        ring.add_key().map_err(|error| Failure::failed(error.to_string()))?;
        ring.replace(&path).map_err(|error| Failure::failed(error.to_string()))?;
        note_rotation(&config, ring.names().last().copied().unwrap_or_default()).await?;
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

/// Adds the rotation to the audit log of a data directory that no server has open. A running server
/// adds its own entry when it loads the new key.
async fn note_rotation(config: &Config, newest: &str) -> Result<(), Failure> {
    let data_dir = config.data_dir.clone();
    if config.store != StoreChoice::Embedded || !data_dir.join("main.db").is_file() {
        return Ok(());
    }
    let opened =
        tokio::task::spawn_blocking(|| EmbeddedStore::open(data_dir, EmbeddedOptions::default()));
    let store = match opened.await.context("opening the store panicked")? {
        Ok(store) => store,
        Err(StoreError::Locked { .. }) => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    let now = SystemClock.now();
    let noted = note_operator(&*store, "keyring.rotate", "keyring", Some(newest), now).await;
    store.close().await.map_err(|error| failed(&error))?;
    noted.map_err(|error| failed(&error))
}

/// The error of the audit log; the file of the ring is already changed.
fn failed(error: &dyn std::error::Error) -> Failure {
    Failure::failed(format!(
        "the key ring has its new key, but the audit log has no entry of it: {error}"
    ))
}
