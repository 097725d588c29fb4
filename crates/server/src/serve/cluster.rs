//! What makes a server a node of a cluster: its name, and log lines when its shards change.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use postrider_store::postgres::{PostgresOptions, PostgresStore};
use postrider_store::{ShardLeases, StoreError};

use crate::config::Config;

/// The file with the node's name, so that it is the same after a restart.
const NODE: &str = "node";
/// Connects to the database as a node.
pub(super) async fn connect(config: &Config, url: &str) -> anyhow::Result<Arc<PostgresStore>> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.data_dir)
        .with_context(|| format!("cannot create {}", config.data_dir.display()))?;
    let node = match &config.node {
        Some(name) => name.clone(),
        None => name(&config.data_dir.join(NODE))?,
    };
    let options = PostgresOptions {
        node: node.clone(),
        connections: config.postgres.connections,
        listen_url: config.postgres.listen_url.clone(),
        ..PostgresOptions::default()
    };
    let store = PostgresStore::connect(url, options).await.context("cannot use the database")?;
    if !store.is_walled().await? {
        tracing::warn!(
            "row-level security does not bind this database role, because it is a superuser or has \
             BYPASSRLS: use an ordinary one, as the second wall between tenants"
        );
    }
    tracing::info!(node, "joined the cluster");
    Ok(store)
}

/// The node's name: generated at the first start, then read from the file.
fn name(path: &Path) -> anyhow::Result<String> {
    let failed = || format!("cannot use {}, which holds this node's name", path.display());
    match std::fs::read_to_string(path) {
        Ok(text) if is_name(text.trim()) => return Ok(text.trim().to_owned()),
        Ok(_) => anyhow::bail!("{}: not a valid node name; remove the file", failed()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(failed),
    }
    let name = format!("node-{:08x}", u32::from_le_bytes(postrider_entropy::system_bytes()?));
    let write = || -> io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{name}")?;
        file.sync_all()
    };
    write().with_context(failed)?;
    Ok(name)
}

/// Whether a text can be a node's name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=63).contains(&text.len()) && text.bytes().all(is_good)
}

/// The last logged number of shards, so that only changes are logged.
#[derive(Default)]
pub(super) struct ShardLog(Mutex<Option<Result<usize, ()>>>);

impl ShardLog {
    /// Logs a change of the number of shards, and failures to renew the leases.
    pub(super) fn tell(&self, node: Option<&str>, held: Result<&ShardLeases, &StoreError>) {
        let Some(node) = node else { return };
        let now = held.map(|leases| leases.shards.len()).map_err(|_| ());
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(now);
        match held {
            _ if before == Some(now) => {}
            Ok(leases) => tracing::info!(node, shards = leases.shards.len(), "shards held"),
            Err(error) => tracing::warn!(
                node,
                %error,
                "cannot renew the leases of the shards: nothing is sent after they expire, until this works again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_and_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NODE);
        let first = name(&path).unwrap();
        assert!(is_name(&first));
        assert_eq!(name(&path).unwrap(), first);
        std::fs::write(&path, "not a name\n").unwrap();
        assert!(name(&path).is_err());
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "node-1", "db_2.example"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "ä", "a\n", &"x".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
