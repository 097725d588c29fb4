//! The key ring and the admin key: loaded, or created at the first start.
//!
//! A server that does not find the key ring of its data refuses to start: a new ring could not open
//! the sealed secrets. The admin key is shown once and written to a file that only its owner can
//! read.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use postrider_api::note_server;
use postrider_api::vault::{
    KeyRing, Resealed, Vault, check_all, is_ring_needed, reseal_all, seal_clear_headers,
};
use postrider_domain::time::Timestamp;
use postrider_store::Store;

use crate::config::{Config, StoreChoice};

/// The name of the claim that holds the fingerprint of the store's key ring.
const RING_CLAIM: &str = postrider_store::postgres::KEY_RING;
/// How often a cluster is asked whether headers can be sealed.
const SEAL_EVERY: Duration = Duration::from_secs(60);
/// The file with the admin key.
const ADMIN_KEY: &str = "admin.key";

impl Config {
    /// The path of the key ring.
    pub(crate) fn keyring_path(&self) -> PathBuf {
        self.keyring.clone().unwrap_or_else(|| self.data_dir.join("keyring"))
    }

    /// The path of the admin key.
    pub(crate) fn admin_key_path(&self) -> PathBuf {
        self.data_dir.join(ADMIN_KEY)
    }
}

/// Loads the key ring, and checks that it opens every sealed secret of the store.
pub(crate) async fn open_vault(config: &Config, store: &dyn Store) -> anyhow::Result<Vault> {
    let path = config.keyring_path();
    let ring = if path.exists() {
        KeyRing::read(&path)?
    } else {
        anyhow::ensure!(
            !is_ring_needed(store).await?,
            "the key ring {} is missing, and this data was sealed with it: restore the file, or \
             name another by POSTRIDER_KEYRING",
            path.display()
        );
        anyhow::ensure!(
            config.keyring.is_none(),
            "the key ring {} is missing: create it on one node by starting without `keyring`, and \
             copy it",
            path.display()
        );
        new_ring(store, &path).await?
    };
    let vault = Vault::new(ring);
    // Check first: if an older version has claimed nothing, a wrong ring must not be claimed.
    check_all(store, &vault).await.with_context(|| format!("with {}", path.display()))?;
    anyhow::ensure!(
        claim(store, &vault).await?,
        "{} is the key ring of another store: {}, or name the right one by POSTRIDER_KEYRING",
        path.display(),
        match config.store {
            StoreChoice::Embedded => "restore the file that was made with this data",
            StoreChoice::Postgres(_) =>
                "copy the file `keyring` from the data directory of a node of this cluster",
        }
    );
    Ok(vault)
}

/// Creates a key ring. If several nodes start at once on an empty store, only one of them succeeds.
async fn new_ring(store: &dyn Store, path: &Path) -> anyhow::Result<KeyRing> {
    let ring = KeyRing::generate()?;
    // Write the file first, so that a claimed ring is never lost.
    ring.create(path)?;
    if !claim(store, &Vault::new(ring.clone())).await? {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        anyhow::bail!(
            "the key ring {} is missing, and this cluster has one: copy the file `keyring` from the \
             data directory of the node that was started first, or name it by POSTRIDER_KEYRING",
            path.display()
        );
    }
    Ok(ring)
}

/// Claims the store for this ring. Returns whether the store belongs to it: a store belongs to the
/// ring that it was first opened with, on every node.
async fn claim(store: &dyn Store, vault: &Vault) -> anyhow::Result<bool> {
    let mine = mark(vault);
    Ok(store.claim(RING_CLAIM, &mine).await? == mine)
}

/// A keyed hash that only this key ring can compute, to compare rings without revealing them.
pub(crate) fn mark(vault: &Vault) -> Vec<u8> {
    vault.keyed_hash(&[b"key ring"]).to_vec()
}

/// Seals again, with the newest key, all secrets that an older key sealed. Only on the embedded
/// store, where no other node can change a record at the same time.
pub(super) async fn reseal(
    config: &Config,
    store: &dyn Store,
    vault: &Vault,
    now: Timestamp,
) -> anyhow::Result<()> {
    if config.store == StoreChoice::Embedded {
        let Resealed { stale, clear } = reseal_all(store, vault).await?;
        if stale > 0 {
            tracing::info!(stale, "credentials were sealed again with the newest key");
            note_server(store, "keyring.reseal", "keyring", None, now).await?;
        }
        if clear > 0 {
            tracing::info!(clear, "custom headers that were stored in plain text are sealed now");
        }
    }
    Ok(())
}

/// On a store with several nodes: starts a task that seals the custom headers that version 0.1.0
/// stored in plain text. A single node has sealed them at its start.
pub(super) fn seal_headers_of_cluster(config: &Config, store: &Arc<dyn Store>, vault: &Vault) {
    if config.store != StoreChoice::Embedded {
        drop(tokio::spawn(seal_when_all_nodes_read(Arc::clone(store), vault.clone())));
    }
}

/// Seals the custom headers as soon as every node reads the sealed form. Twice, because a node that
/// read the format level just before it rose may write once more in plain text.
async fn seal_when_all_nodes_read(store: Arc<dyn Store>, vault: Vault) {
    let mut ticks = tokio::time::interval(SEAL_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut passes = 0;
    while passes < 2 {
        ticks.tick().await;
        match seal_clear_headers(&*store, &vault).await {
            Ok(None) => {}
            Ok(Some(clear)) => {
                passes += 1;
                if clear > 0 {
                    tracing::info!(
                        clear,
                        "custom headers that were stored in plain text are sealed now"
                    );
                }
            }
            Err(error) => {
                tracing::warn!(%error, "custom headers in plain text cannot be sealed now; trying again");
            }
        }
    }
}

/// Reloads the key ring from its file, if that has all keys of the current ring. Returns the name
/// of its newest key, if the ring changed.
pub(super) fn reload_ring(config: &Config, vault: &Vault) -> Option<String> {
    let path = config.keyring_path();
    match KeyRing::read(&path) {
        Ok(ring) if ring.names() == vault.ring().names() => {}
        Ok(ring) if ring.replaces(&vault.ring()) => {
            let newest = ring.names().last().copied().unwrap_or_default().to_owned();
            vault.replace(ring);
            tracing::info!(newest, "the key ring has a new key, which is used from now on");
            return Some(newest);
        }
        Ok(_) => tracing::error!(
            path = %path.display(),
            "the key ring lacks keys that are in use: it stays as it was"
        ),
        Err(error) => tracing::error!(%error, "the key ring stays as it was"),
    }
    None
}

/// Writes the admin key atomically, readable by its owner alone.
pub(crate) fn write_admin_key(path: &Path, key: &str) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let beside = path.with_extension("key.new");
        // A leftover file, or a link that somebody placed there, is removed and not followed.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&beside)?;
        writeln!(file, "{key}")?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn admin_key_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join(ADMIN_KEY), folder.path().join("elsewhere"));
        fs::write(&elsewhere, "theirs").unwrap();
        symlink(&elsewhere, folder.path().join("admin.key.new")).unwrap();
        symlink(&elsewhere, &path).unwrap();
        write_admin_key(&path, "ours").unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "theirs");
        assert_eq!(fs::read_to_string(&path).unwrap(), "ours\n");
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.is_file() && found.mode() & 0o777 == 0o600);
    }
}
