//! `postrider keys reset-admin`: replaces an admin key that was lost.
//!
//! It works on the store itself, so it needs no key, but the files of the server and its key ring.
//! **It refuses while a server is running**: a server keeps keys in memory.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use postrider_api::reset_admin;
use postrider_store::embedded::{EmbeddedOptions, EmbeddedStore};
use postrider_store::postgres::{PostgresOptions, PostgresStore, Visitor, shown};
use postrider_store::{Store, StoreError};
use postrider_transport::{Clock as _, SystemClock};
use serde_json::json;

use crate::cli::{Connection, ServerArgs};
use crate::commands::load;
use crate::config::{Config, Environment, StoreChoice};
use crate::exit::Failure;
use crate::output::{Colour, Output, escaped};
use crate::serve::{open_vault, write_admin_key};

/// The data directory unless another one is given.
const DEFAULT_DIRECTORY: &str = "./postrider-data";

#[derive(Debug, Args)]
pub(super) struct ResetAdmin {
    /// Configuration file of the server (TOML); also POSTRIDER_CONFIG.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The store: `embedded`, or the address of a PostgreSQL database.
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
}

pub(super) async fn run(
    connection: &Connection,
    arguments: &ResetAdmin,
    environment: &Environment,
    output: Output,
) -> Result<(), Failure> {
    let data_dir = &connection.data_dir;
    let is_given = data_dir != Path::new(DEFAULT_DIRECTORY);
    let arguments = ServerArgs {
        config: arguments.config.clone(),
        store: arguments.store.clone(),
        data_dir: is_given.then(|| data_dir.display().to_string()),
        ..ServerArgs::default()
    };
    let config = load(&arguments, environment)?.config;
    if config.admin_key.is_some() {
        let message = "the admin key is the one that POSTRIDER_ADMIN_KEY (the setting admin_key) gives: \
                       set another one there, and start the server again";
        return Err(Failure::usage(message));
    }
    let store = open(&config).await?;
    let replaced = replace(&config, &*store).await;
    let closed = store.close().await.map_err(|error| Failure::failed(error.to_string()));
    let (key, path) = replaced?;
    closed?;
    let answer = json!({ "admin_key_file": path });
    // Where nobody reads it, the key would end in a log.
    let is_seen = std::io::stdout().is_terminal() && !output.json;
    Ok(output.value(&answer, |_| {
        let place = escaped(&path.display().to_string());
        let shown = if is_seen { output.paint(Colour::Bold, &key) + "\n" } else { String::new() };
        format!(
            "{shown}The new admin key is in {place}. The key of the first start does not work any more; \
             other keys stay."
        )
    })?)
}

async fn replace(
    config: &Config,
    store: &dyn Store,
) -> Result<(zeroize::Zeroizing<String>, PathBuf), Failure> {
    let vault = open_vault(config, store).await?;
    let key = reset_admin(store, &vault, SystemClock.now()).await.map_err(anyhow::Error::from)?;
    let path = config.admin_key_path();
    write_admin_key(&path, &key).map_err(|error| {
        Failure::failed(format!(
            "{error:#}\nThe old admin key is deleted, and the new one was lost: make room, and run this \
             again"
        ))
    })?;
    Ok((key, path))
}

/// Opens the store, if no server has it open.
async fn open(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    match &config.store {
        StoreChoice::Embedded => open_directory(&config.data_dir).await,
        StoreChoice::Postgres(url) => open_database(config, url).await,
    }
}

async fn open_directory(data_dir: &Path) -> Result<Arc<dyn Store>, Failure> {
    let place = escaped(&data_dir.display().to_string());
    if !data_dir.join("main.db").is_file() {
        return Err(Failure::usage(format!(
            "there is no store in {place}: name the data directory of the server by --data-dir"
        )));
    }
    let directory = data_dir.to_owned();
    let opened =
        tokio::task::spawn_blocking(|| EmbeddedStore::open(directory, EmbeddedOptions::default()));
    match opened.await.context("opening the store panicked")? {
        Ok(store) => Ok(store),
        Err(StoreError::Locked { .. }) => Err(Failure::failed(format!(
            "a server is running on {place}, and keeps its keys in memory: stop it, run this again, and \
             start it"
        ))),
        Err(error) => Err(Failure::failed(error.to_string())),
    }
}

async fn open_database(config: &Config, url: &str) -> Result<Arc<dyn Store>, Failure> {
    let failed = |error: StoreError| Failure::failed(format!("{}: {error}", shown(url)));
    let cluster = async { Visitor::connect(url).await?.cluster().await }.await.map_err(failed)?;
    let running: Vec<_> =
        cluster.nodes.iter().filter(|node| node.is_leased).map(|node| node.name.as_str()).collect();
    if !running.is_empty() {
        return Err(Failure::failed(format!(
            "nodes of this cluster are running, and keep keys in memory: stop {}, run this again, and \
             start them (a node that was killed counts as running until its lease has ended, within a \
             minute)",
            escaped(&running.join(", "))
        )));
    }
    if cluster.schema.is_none() {
        return Err(Failure::usage(format!("there is no store in {}", shown(url))));
    }
    let options = PostgresOptions {
        node: "reset-admin".to_owned(),
        connections: config.postgres.connections.min(4),
        listen: false,
        ..PostgresOptions::default()
    };
    Ok(PostgresStore::connect(url, options).await.map_err(failed)?)
}
